"""HAProxy."""

from __future__ import annotations

from pathlib import Path

from configuration import NETWORKS, RULES, SHARED, networks, paths
from others.plan import Plan
from processes import binary


def arguments(folder: Path, port: int, plan: Plan) -> list[str]:
    """Paths and addresses stand in its trees, read from files."""
    rules: list[str] = []
    if plan.governed:
        (folder / "haproxy-denied").write_text("\n".join(networks(NETWORKS)) + "\n")
        for kind in ("exact", "prefix"):
            lines = [f"{path} up\n" for each, path in paths(RULES - 1, SHARED) if each == kind]
            (folder / f"haproxy-{kind}").write_text("".join(lines))
        rules = [
            f"http-request deny if {{ src -f {folder}/haproxy-denied }}",
            "http-request set-var(txn.applies) bool(true) if METH_GET !{ path_beg /internal/ }",
            "http-request set-header X-Request-Id %[uuid()] if { var(txn.applies) -m bool }",
            "http-request set-header X-Client %[src] if { var(txn.applies) -m bool }",
            "http-response set-header X-Service-Call %Tr if { var(txn.applies) -m bool }",
            "http-response set-header X-Route / if { var(txn.applies) -m bool }",
            *(
                f"use_backend %[{found}] if {{ {found} -m found }}"
                for found in (f"path,map_str({folder}/haproxy-exact)", f"path,map_beg({folder}/haproxy-prefix)")
            ),
        ]
    frontend = "\n    ".join(rules)
    spoken = "proto h2" if plan.front == "http2" else ""
    if plan.identity is not None:  # the key is found beside it
        spoken = f"ssl crt {plan.identity.cert} alpn {'h2' if plan.front == 'http2' else 'http/1.1'}"
    path = folder / "haproxy.cfg"
    stats = "stats enable" if plan.governed else ""
    path.write_text(f"""
global
    nbthread 1
    maxconn 12000
    no strict-limits
defaults
    mode http
    timeout connect 3s
    timeout client 1h
    timeout server 30s
    timeout http-keep-alive 1h
    timeout http-request 1h
    option httplog
    option forwardfor
    log stdout format raw local0
    http-reuse always
frontend in
    bind 127.0.0.1:{port} backlog 4096 {spoken}
    {frontend}
    {stats}
    default_backend up
backend up
    server up 127.0.0.1:{plan.upstream} {"proto h2" if plan.back == "http2" else ""}
""")
    return [binary("haproxy") or "haproxy", "-f", str(path)]
