"""nginx: as a candidate, and as the upstream of all of them."""

from __future__ import annotations

from pathlib import Path

from configuration import NETWORKS, RULES, SHARED, networks, paths
from others.plan import Plan
from processes import binary

CONNECTIONS = 24_000
"""It counts those to the upstream, too."""


def command(
    folder: Path, name: str, port: int, server: str, http: str = "", *, listen: str = "", log: bool = True
) -> list[str]:
    """
    Of an nginx with one worker.

    @param server: more directives of the server.
    @param http: more directives around it.
    @param listen: what it listens for: nothing, C{ssl}, C{http2} or both.
    """
    access = f"{folder}/{name}-access.log combined buffer=64k flush=1s" if log else "off"
    path = folder / f"{name}.conf"
    path.write_text(f"""
        daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}-error.log;
        events {{ worker_connections {CONNECTIONS}; }}
        http {{
            access_log {access}; sendfile on; keepalive_requests 1000000000; keepalive_timeout 1h;
            client_header_timeout 1h; client_max_body_size 0; types_hash_max_size 2048;
            client_body_temp_path {folder}/{name}-body; proxy_temp_path {folder}/{name}-proxy;
            fastcgi_temp_path {folder}/{name}-fastcgi; uwsgi_temp_path {folder}/{name}-uwsgi;
            scgi_temp_path {folder}/{name}-scgi;
            {http}
            server {{ listen 127.0.0.1:{port} {listen} backlog=4096; {server} }}
        }}
    """)
    return [binary("nginx") or "nginx", "-c", str(path)]


def arguments(folder: Path, port: int, plan: Plan) -> list[str]:
    """
    A reverse proxy: locations stand in a tree, addresses in a radix tree, conditions are maps.

    Its only way to speak HTTP/2 to an upstream is the one for gRPC, one request at a time on each connection.
    """
    how, scheme = ("grpc", "grpc") if plan.back == "http2" else ("proxy", "http")
    forward = f"{how}_pass {scheme}://up;"
    up = f"upstream up {{ server 127.0.0.1:{plan.upstream}; keepalive 1024; keepalive_requests 1000000000; }}"
    http = [up]
    server = ["proxy_http_version 1.1;", "client_body_buffer_size 64k;"]
    fields = ["Connection ''", "Host $http_host", "X-Forwarded-For $proxy_add_x_forwarded_for"]
    if plan.governed:
        denied = "".join(f"{network} 1; " for network in networks(NETWORKS))
        http += [
            f"geo $denied {{ default 0; {denied} }}",
            'map "$request_method $uri" $applies { default ""; "~^GET (?!/internal/)" 1; }',
            'map $applies $sent_id { default ""; 1 $request_id; }',
            'map $applies $sent_client { default ""; 1 $remote_addr; }',
            'map $applies $took { default ""; 1 $upstream_response_time; }',
            'map $applies $route { default ""; 1 "/"; }',
        ]
        fields += ["X-Request-Id $sent_id", "X-Client $sent_client"]
        server += ["if ($denied) { return 403; }", "add_header X-Service-Call $took;", "add_header X-Route $route;"]
        for kind, path in paths(RULES - 1, SHARED):
            server.append(f"location {'=' if kind == 'exact' else ''} {path} {{ {forward} }}")
        server.append("location = /.status { stub_status; }")
    server += [f"{how}_set_header {field};" for field in fields]
    server.append(f"location / {{ {forward} }}")
    listen = ["http2"] if plan.front == "http2" else []
    if plan.identity is not None:
        listen.append("ssl")
        server.append(f"ssl_certificate {plan.identity.cert}; ssl_certificate_key {plan.identity.key};")
        server.append("ssl_protocols TLSv1.2 TLSv1.3;")
    return command(folder, "nginx", port, "\n".join(server), "\n".join(http), listen=" ".join(listen))
