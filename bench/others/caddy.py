"""Caddy.  It looks at its rules, and at the addresses of a list, one after the other; there is no other way."""

from __future__ import annotations

from pathlib import Path

from configuration import NETWORKS, RULES, SHARED, networks, paths
from others.plan import Plan
from processes import binary, free_port


def arguments(folder: Path, port: int, plan: Plan) -> list[str]:
    """Each rule is a handler of its own, as each has an upstream of its own in real life."""
    transport = "keepalive_idle_conns_per_host 1024" + ("\n versions h2c" if plan.back == "http2" else "")
    proxy = f"reverse_proxy 127.0.0.1:{plan.upstream} {{\n transport http {{\n {transport}\n }}\n }}"
    lines: list[str] = []
    if plan.governed:
        lines = [
            "@denied remote_ip " + " ".join(networks(NETWORKS)),
            "respond @denied 403",
            "@applies {\n method GET\n not path /internal/*\n }",
            "request_header @applies X-Request-Id {http.request.uuid}",
            "request_header @applies X-Client {http.request.remote.host}",
            "header @applies >X-Service-Call {http.reverse_proxy.upstream.duration_ms}",
            "header @applies >X-Route /",
        ]
        for at, (kind, path) in enumerate(paths(RULES - 1, SHARED)):
            lines.append(f"@r{at} path {path}{'*' if kind == 'prefix' else ''}\nhandle @r{at} {{\n{proxy}\n}}")
    lines.append(f"handle {{\n{proxy}\n}}")
    admin = f"127.0.0.1:{free_port()}" if plan.governed else "off"
    handlers = "\n".join(lines)
    scheme, secured, protocols = "http", "", "h1 h2c" if plan.front == "http2" else "h1"
    if plan.identity is not None:
        scheme, secured = "https", f"tls {plan.identity.cert} {plan.identity.key}"
        protocols = "h1 h2" if plan.front == "http2" else "h1"
    path = folder / "Caddyfile"
    path.write_text(f"""{{
    admin {admin}
    auto_https off
    persist_config off
    storage file_system {folder}/caddy
    log {{
        output discard
    }}
    {"metrics" if plan.governed else ""}
    servers {{
        protocols {protocols}
        timeouts {{
            idle 1h
            read_header 1h
        }}
    }}
}}
{scheme}://:{port} {{
    bind 127.0.0.1
    {secured}
    log {{
        output file {folder}/caddy-access.log {{
            roll_disabled
        }}
    }}
    route {{
        {handlers}
    }}
}}
""")
    return ["env", "GOMAXPROCS=1", binary("caddy") or "caddy", "run", "--adapter", "caddyfile", "--config", str(path)]
