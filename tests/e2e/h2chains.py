"""
Chains of an HTTP/2 client, a gateway and programs of other people that speak HTTP/2, for one set of tests.

    BEHIND       client, gateway, neighbour: a path begins with the neighbour's name
    FRONT        client, neighbour, gateway, Node

What a chain cannot do, because the neighbour cannot, is in C{CANNOT}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from envoys import cluster, envoy, listener
from h2wire import H2, connected
from multiplexed import engine, rule
from secure import pair

from authority import Authority, Issued
from gateways import Gateway, config, origin, start
from neighbours import Neighbours, free_port, need

MIB = 1 << 20
ME = "127.0.0.3"
"""Where clients come from: not where proxies do."""
BEHIND = (
    "node", "node-tls", "nghttpd", "nghttpd-tls", "nginx", "nginx-tls", "nginx-h2", "nginx-h2-tls",
    "haproxy", "haproxy-tls", "envoy", "envoy-tls",
)  # fmt: skip
FRONT = ("haproxy", "haproxy-tls", "haproxy-proxy", "envoy", "envoy-tls", "envoy-proxy", "envoy-proxy-tls")
CHAINS = (*(f"before-{name}" for name in BEHIND), *(f"behind-{name}" for name in FRONT))
"""Where the gateway stands."""
_STATIC = {"sum", "trailers", "hints", "empty", "refuse", "gone", "fresh", "many", "wait"}
CANNOT: Mapping[str, set[str]] = {
    "before-nghttpd": _STATIC,  # it serves files, and echoes
    "before-nginx": {"trailers", "hints", "continue"},  # version 1.22 drops them, and says 100 itself
}
_ABORTS = "option abortonclose"
"""Without it HAProxy may keep to itself that a client gave up, until one of its clocks runs out."""
REWRITE = {
    "name": "rewritePath",
    "stage": "PRE_UPSTREAM",
    "actionParam": {"regex": "^/[a-z0-9-]+/", "replacement": "/"},
}
"""What a path begins with says where it goes, and nothing to who is there."""
ORIGIN = {"small": "/hello", "large": f"/bytes/{10 * MIB}"}


class Servers(NamedTuple):
    """
    What stands behind gateways, once for all engines.

    @ivar urls: by name.
    """

    company: Neighbours
    authority: Authority
    issued: Issued
    urls: dict[str, str]


class Chains(NamedTuple):
    """
    One gateway, with an engine, and all that is around it.

    @ivar front: where neighbours before it listen.
    """

    gateway: Gateway
    servers: Servers
    front: dict[str, int]

    @contextmanager
    def client(self, chain: str) -> Iterator[tuple[H2, str]]:
        """A connection to the beginning of a chain, and what its paths begin with."""
        side, _, name = chain.partition("-")
        port, prefix = (self.gateway.port, f"/{name}") if side == "before" else (self.front[name], "/plain")
        with connected(port, source=ME) as connection:
            yield connection, prefix


def can(*abilities: str) -> list[str]:
    """The chains that can do that."""
    lacks = {chain: set[str]() for chain in CHAINS}
    for chain in CHAINS:
        for name, missing in CANNOT.items():
            if re.fullmatch(rf"{name}(-\w+)*", chain):
                lacks[chain] |= missing
    return [chain for chain in CHAINS if not lacks[chain].intersection(abilities)]


def servers(company: Neighbours, node: int) -> Servers:
    """Start them."""
    authority = Authority(company.directory)
    issued = authority.issue("shop.test", ["shop.test", "127.0.0.1"])
    ports = {name: free_port() for name in BEHIND}
    files = company.directory / "files"
    (files / "bytes").mkdir(parents=True)
    (files / "hello").write_bytes(b"hello\n")
    (files / "bytes" / str(10 * MIB)).write_bytes(b"x" * 10 * MIB)
    (files / "bytes" / "5000").write_bytes(b"x" * 5000)
    ports["node"] = origin(company, "origin.js", arguments=("h2",)).port
    ports["node-tls"] = origin(company, "origin.js", arguments=("h2", str(issued.cert), str(issued.key))).port
    options = ["-a", "127.0.0.1", "-d", str(files), "--echo-upload", "--trailer", "x-sum: 42"]
    nghttpd = [need("nghttpd"), *options]
    company.start([*nghttpd, "--no-tls", str(ports["nghttpd"])], port=ports["nghttpd"])
    port = ports["nghttpd-tls"]
    company.start([*nghttpd, str(port), str(issued.key), str(issued.cert)], port=port)
    _nginx(company, ports, issued, node)
    _haproxy(company, ports, issued, node)
    envoy(
        company,
        (listener(ports["envoy"], "node"), cluster("node", ports["node"])),
        (listener(ports["envoy-tls"], "again", issued), cluster("again", ports["node"])),
    )
    schemes = {"nginx": "http", "nginx-tls": "https"}
    urls = {
        name: f"{schemes.get(name) or ('h2' if name.endswith('-tls') else 'h2c')}://127.0.0.1:{port}"
        for name, port in ports.items()
    }
    return Servers(company, authority, issued, {**urls, "plain": f"http://127.0.0.1:{node}"})


def _nginx(company: Neighbours, ports: Mapping[str, int], issued: Issued, node: int) -> None:
    tls = f"ssl_certificate {issued.cert}; ssl_certificate_key {issued.key};"
    listens = {"nginx": "", "nginx-tls": "ssl", "nginx-h2": "http2", "nginx-h2-tls": "http2 ssl"}
    company.nginx(
        f"upstream node {{ server 127.0.0.1:{node}; keepalive 8; }}\n"
        + "".join(
            f"""
            server {{
                listen 127.0.0.1:{ports[name]} {how}; {tls if "ssl" in how else ""}
                client_max_body_size 0;
                location /refuse {{ return 413 "too much\\n"; }}
                location / {{
                    proxy_pass http://node;
                    proxy_http_version 1.1;
                    proxy_set_header Connection "";
                    proxy_set_header Host $host;
                    proxy_request_buffering off;
                    proxy_buffering off;
                }}
            }}
            """
            for name, how in listens.items()
        ),
        ports["nginx"],
    )


def _haproxy(company: Neighbours, ports: Mapping[str, int], issued: Issued, node: int) -> None:
    pem = company.directory / "shop.both"
    pem.write_bytes(issued.cert.read_bytes() + issued.key.read_bytes())
    refuse = '  http-request return status 413 content-type text/plain string "too much\\n" if { path /refuse }\n'
    company.haproxy(
        f"frontend clear\n  bind 127.0.0.1:{ports['haproxy']} proto h2\n{refuse}  default_backend node\n"
        f"frontend secure\n  bind 127.0.0.1:{ports['haproxy-tls']} ssl crt {pem} alpn h2\n{refuse}"
        "  default_backend node\n"
        f"backend node\n  {_ABORTS}\n  server node 127.0.0.1:{node}\n",
        ports["haproxy"],
    )


def chains(there: Servers, name: str) -> Chains:
    """Start a gateway with that engine, and proxies before it."""
    company, ports = there.company, {each: free_port() for each in ("tls", "proxy", "proxy-tls")}
    told = {"trusted": ["127.0.0.1/32"]}
    tls = {"certificates": [pair(there.issued)]}

    def at(which: str, port: int, **given: Any) -> dict[str, Any]:
        return {"name": which, "address": f"127.0.0.1:{port}", "protocols": ["http2", "http1"], **given}

    def upstream(which: str, url: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": which, "endpoints": [{"url": url}]}
        return made if "-tls" not in which else {**made, "tls": {"ca": str(there.authority.file)}}

    settings = config(
        0,
        gateway={"trustedProxies": ["127.0.0.1/32"]},
        listeners=[
            at("web", 0),
            at("tls", ports["tls"], tls=tls),
            at("proxy", ports["proxy"], proxyProtocol=told),
            at("proxy-tls", ports["proxy-tls"], proxyProtocol=told, tls=tls),
        ],
        upstreams=[upstream(each, url) for each, url in there.urls.items()],
        routes=[rule(f"/{each}/", each) for each in there.urls],
        modules=[REWRITE],
        accessLog={"file": "access.log"},
    )
    with engine(name, company.directory):
        gateway = start(company, settings)
    return Chains(gateway, there, fronts(there, {"": gateway.port, **ports}))


def fronts(there: Servers, ports: Mapping[str, int]) -> dict[str, int]:
    """Proxies before the listeners of a gateway."""
    front = {name: free_port() for name in FRONT}
    ca = there.authority.file
    tls = f"ssl ca-file {ca} sni str(shop.test) verifyhost shop.test alpn h2"
    how = {
        "haproxy": f"{ports['']} proto h2",
        "haproxy-tls": f"{ports['tls']} {tls}",
        "haproxy-proxy": f"{ports['proxy']} proto h2 send-proxy-v2",
    }
    there.company.haproxy(
        "".join(
            f"frontend {name}\n  bind 127.0.0.1:{front[name]} proto h2\n"
            + ("" if "proxy-" in f"{name.partition('-')[2]}-" else "  option forwardfor\n")
            + f"  default_backend {name}\nbackend {name}\n  {_ABORTS}\n  server gateway 127.0.0.1:{to}\n"
            for name, to in how.items()
        ),
        front["haproxy"],
    )
    envoy(
        there.company,
        *(
            (
                listener(front[name], name),
                cluster(
                    name,
                    ports[name.partition("-")[2]],
                    ca=ca if name.endswith("-tls") else None,
                    proxy="-proxy" in name,
                ),
            )
            for name in FRONT
            if name.startswith("envoy")
        ),
    )
    return front
