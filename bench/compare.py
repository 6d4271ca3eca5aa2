"""
CPU time per request of the gateway, beside nginx, HAProxy and Envoy, in the same run.

    python bench/compare.py [--seconds 4] [--rounds 5] [--only nginx,protogate] [--connections 64]

Every gateway is pinned to one core; the upstream (nginx) and the load (wrk) to another one.  Rounds are interleaved:
each round asks every gateway once, so a machine that gets slower slows all of them.  The figure is CPU time of the
gateway's process (user + system, from /proc/*/task/*/schedstat) divided by the requests that wrk counted: it stays
steady where throughput does not.  Only loopback addresses are loaded, and all processes end with this one.

Scenarios
    gateways   a 200-byte JSON answer over kept-alive HTTP/1.1, access log on
    rules      protogate with 10 and with 3,000 rules
    modules    protogate with 0 and with 20 modules
    large      a 100 KB answer
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import Process, binary, free_port, stage

GATEWAY_CORE, LOAD_CORE = "0", "1"
SMALL, LARGE = "/api/v1/orders/4711?verbose=1", "/large/file"


def nginx_upstream(folder: Path) -> Process:
    """What all gateways ask."""
    port = free_port()
    body = json.dumps({"id": 4711, "items": ["a" * 40, "b" * 40, "c" * 40], "note": "x" * 30}).ljust(200)
    (folder / "html/large").mkdir(parents=True)
    (folder / "html/large/file").write_bytes(os.urandom(100_000))
    return Process(
        nginx(
            folder,
            "upstream",
            port,
            f"""
            root {folder}/html;
            location / {{ default_type application/json; return 200 '{body}'; }}
            location /large/ {{ }}
        """,
            log="off",
        ),
        LOAD_CORE,
        port,
        folder / "upstream.log",
    )


def nginx(folder: Path, name: str, port: int, server: str, http: str = "", log: str = "access") -> list[str]:
    """Arguments of an nginx with one worker."""
    access = "off" if log == "off" else f"{folder}/{name}-access.log"
    path = folder / f"{name}.conf"
    path.write_text(f"""
        daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}-error.log;
        events {{ worker_connections 4096; }}
        http {{
            access_log {access}; sendfile on; keepalive_requests 1000000000; keepalive_timeout 600s;
            client_body_temp_path {folder}/{name}-body; proxy_temp_path {folder}/{name}-proxy;
            fastcgi_temp_path {folder}/{name}-fastcgi; uwsgi_temp_path {folder}/{name}-uwsgi;
            scgi_temp_path {folder}/{name}-scgi;
            {http}
            server {{ listen 127.0.0.1:{port}; {server} }}
        }}
    """)
    return [binary("nginx") or "nginx", "-c", str(path)]


def start_nginx(folder: Path, upstream: int) -> Process:
    port = free_port()
    arguments = nginx(
        folder,
        "proxy",
        port,
        "location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ''; "
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_buffering on; }",
        f"upstream up {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 1000000000; }}",
    )
    return Process(arguments, GATEWAY_CORE, port, folder / "proxy.log")


def start_haproxy(folder: Path, upstream: int) -> Process:
    port, path = free_port(), folder / "haproxy.cfg"
    path.write_text(f"""
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 3s
    timeout client 30s
    timeout server 30s
    option httplog
    option forwardfor
    log stdout format raw local0
    http-reuse always
frontend in
    bind 127.0.0.1:{port}
    default_backend up
backend up
    server up 127.0.0.1:{upstream}
""")
    return Process([binary("haproxy") or "haproxy", "-f", str(path)], GATEWAY_CORE, port, folder / "haproxy.log")


def start_envoy(folder: Path, upstream: int) -> Process:
    port, path = free_port(), folder / "envoy.json"
    access = {
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": f"{folder}/envoy-access.log",
        },
    }
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "in",
        "access_log": [access],
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}]}
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    target = {"socket_address": {"address": "127.0.0.1", "port_value": upstream}}
    path.write_text(
        json.dumps(
            {
                "static_resources": {
                    "listeners": [
                        {
                            "address": address,
                            "filter_chains": [
                                {
                                    "filters": [
                                        {
                                            "name": "envoy.filters.network.http_connection_manager",
                                            "typed_config": manager,
                                        }
                                    ]
                                }
                            ],
                        }
                    ],
                    "clusters": [
                        {
                            "name": "up",
                            "type": "STATIC",
                            "connect_timeout": "3s",
                            "load_assignment": {
                                "cluster_name": "up",
                                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": target}}]}],
                            },
                        }
                    ],
                }
            }
        )
    )
    arguments = [
        binary("envoy") or "envoy",
        "-c",
        str(path),
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "-l",
        "error",
    ]
    return Process(arguments, GATEWAY_CORE, port, folder / "envoy.log")


def start_protogate(
    folder: Path, upstream: int, *, name: str = "protogate", rules: int = 0, modules: int = 0, log: bool = True
) -> Process:
    """protogate with that many rules before the one that matches, and that many modules that all apply."""
    port, path = free_port(), folder / f"{name}.json"
    targets = [{"targets": [{"upstream": "up"}]}]
    kinds = ("prefix", "exact", "template")
    values = ("/service-{}/api", "/exact/{}/x", "/shop-{}/users/{{id}}/orders")
    configuration: dict[str, Any] = {
        "gateway": {"name": "bench", "watch": False},
        "listeners": [{"name": "web", "address": f"127.0.0.1:{port}"}],
        "upstreams": [
            {
                "name": "up",
                "endpoints": [{"url": f"http://127.0.0.1:{upstream}"}],
                "pool": {"maxPerEndpoint": 128},
            }
        ],
        "routes": [
            *(
                {"value": values[number % 3].format(number), "matcherType": kinds[number % 3], "routes": targets}
                for number in range(max(rules - 1, 0))
            ),
            {"type": "uri", "value": "/", "matcherType": "prefix", "routes": targets},
        ],
        "modules": [
            {
                "name": "addResponseHeader",
                "ruleOrder": number,
                "condition": "request.method == 'GET'",
                "actionParam": {f"x-bench-{number}": "${request.func.remoteCost}" if number % 2 else "constant"},
            }
            for number in range(modules)
        ],
    }
    if log:
        configuration["accessLog"] = {"file": str(folder / f"{name}-access.log")}
    path.write_text(json.dumps(configuration))
    arguments = [sys.executable, "-m", "protogate", "run", "-c", str(path)]
    return Process(arguments, GATEWAY_CORE, port, folder / f"{name}.log")


@dataclass
class Figure:
    """What one gateway needed, over all rounds."""

    name: str
    process: Process
    path: str = SMALL
    cpu: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    errors: int = 0

    def ask(self, seconds: float, connections: int) -> None:
        """One round."""
        before, begun = self.process.cpu(), time.monotonic()
        done = subprocess.run(
            [
                "taskset",
                "-c",
                LOAD_CORE,
                binary("wrk") or "wrk",
                "-t1",
                f"-c{connections}",
                f"-d{seconds:g}s",
                f"http://127.0.0.1:{self.process.port}{self.path}",
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds + 60,
        )
        spent, took = self.process.cpu() - before, time.monotonic() - begun
        match = re.search(r"(\d+) requests in", done.stdout)
        requests = int(match[1]) if match else 0
        if not requests:
            raise SystemExit(f"{self.name}: no requests\n{done.stdout}\n{self.process.log.read_text()[-2000:]}")
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
        self.errors += int(bad[1]) if bad else 0
        self.cpu.append(spent / requests * 1e6)
        self.rate.append(requests / took)


def table(title: str, figures: list[Figure], base: str) -> str:
    """Markdown."""
    reference = statistics.median(next(figure for figure in figures if figure.name == base).cpu)
    lines = [
        f"### {title}",
        "",
        f"| | CPU µs/request (median, min–max) | × {base} | requests/s | not 2xx |",
        "|---|---|---|---|---|",
    ]
    for figure in figures:
        middle = statistics.median(figure.cpu)
        lines.append(
            f"| {figure.name} | {middle:.1f} ({min(figure.cpu):.1f}–{max(figure.cpu):.1f}) | {middle / reference:.2f} "
            f"| {statistics.median(figure.rate):,.0f} | {figure.errors} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the scenarios and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--scenarios", default="gateways,rules,modules,large")
    parser.add_argument("--only", default="", help="of the gateways: names, with commas")
    options = parser.parse_args()
    for needed in ("nginx", "wrk", "taskset"):
        if binary(needed) is None:
            raise SystemExit(f"{needed} is missing; `make bench` installs it where it can")
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("two cores are needed: one for the gateway, one for load and upstream")
    starters = {
        "nginx": start_nginx,
        "haproxy": start_haproxy,
        "envoy": start_envoy,
        "protogate": start_protogate,
    }
    chosen = [
        name
        for name in starters
        if (not options.only or name in options.only.split(",")) and (name == "protogate" or binary(name))
    ]
    print(
        f"wrk -c{options.connections}, {options.rounds} interleaved rounds of {options.seconds:g} s; gateway on core "
        f"{GATEWAY_CORE}, upstream and load on core {LOAD_CORE}\n"
    )
    with stage() as (folder, processes):
        upstream = nginx_upstream(folder)
        processes.append(upstream)

        def keep(process: Process) -> Process:
            processes.append(process)
            return process

        def measure(title: str, figures: list[Figure], base: str) -> None:
            for figure in figures:
                figure.ask(1, options.connections)  # warm up
                figure.cpu.clear()
                figure.rate.clear()
            for _ in range(options.rounds):
                for figure in figures:
                    figure.ask(options.seconds, options.connections)
            print(table(title, figures, base), flush=True)

        scenarios = options.scenarios.split(",")
        gateways = {}
        if {"gateways", "large"} & set(scenarios):
            gateways = {name: keep(starters[name](folder, upstream.port)) for name in chosen}
        base = "nginx" if "nginx" in chosen else "protogate"
        if "gateways" in scenarios:
            measure(
                "HTTP/1.1 → HTTP/1.1, 200-byte answer, access log on",
                [Figure(name, process) for name, process in gateways.items()],
                base,
            )
        if "large" in scenarios:
            measure(
                "HTTP/1.1 → HTTP/1.1, 100 KB answer, access log on",
                [Figure(name, process, LARGE) for name, process in gateways.items()],
                base,
            )
        if "rules" in scenarios:
            figures = [
                Figure(
                    f"{rules} rules", keep(start_protogate(folder, upstream.port, name=f"rules{rules}", rules=rules))
                )
                for rules in (10, 3000)
            ]
            measure("protogate, by number of rules", figures, "10 rules")
        if "modules" in scenarios:
            figures = [
                Figure(
                    f"{modules} modules",
                    keep(start_protogate(folder, upstream.port, name=f"modules{modules}", modules=modules)),
                )
                for modules in (0, 20)
            ]
            measure("protogate, by number of modules that apply", figures, "0 modules")


if __name__ == "__main__":
    main()
