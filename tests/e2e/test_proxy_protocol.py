"""The PROXY protocol with those who speak it: HAProxy and curl in front, HAProxy and nginx behind."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from secure import REACTORS, begin, client, pair

from authority import Authority, Issued
from gateways import WITHIN, Gateway, Wire, eventually, upstream
from neighbours import Neighbours, free_port, need, run

ME = "127.0.0.3"
"""Where clients come from: not where proxies do."""
SHOWS = (
    "${source.ip}|${source.port}|${source.tls}|${source.tlsVersion}|${source.serverName}|${source.certificate.subject}"
)


class Ports(NamedTuple):
    """Where the gateway listens, beside its first port."""

    tls: int
    strict: int
    optional: int
    open: int
    secret: int


class Edge(NamedTuple):
    """A gateway that takes the word of this machine."""

    gateway: Gateway
    authority: Authority
    issued: Issued
    ports: Ports
    company: Neighbours


def behind(company: Neighbours, issued: Issued, node: int) -> dict[str, int]:
    """Servers that want to be told, by name."""
    ports = {name: free_port() for name in ("plain", "secret", "node", "nginx", "nginx-tls")}
    pem = issued.cert.with_suffix(".both")
    pem.write_bytes(issued.cert.read_bytes() + issued.key.read_bytes())
    shows = (
        "  tcp-request session set-var(sess.id) rand(1000000000)\n"
        '  http-request return status 200 content-type text/plain lf-string "%[src]|%[src_port]|%[dst]|%[dst_port]'
        '|%[fc_pp_authority]|%[var(sess.id)]"\n'
    )
    company.haproxy(
        f"frontend plain\n  bind 127.0.0.1:{ports['plain']} accept-proxy\n{shows}"
        f"frontend secret\n  bind 127.0.0.1:{ports['secret']} accept-proxy ssl crt {pem}\n{shows}"
        f"frontend tunnel\n  mode tcp\n  bind 127.0.0.1:{ports['node']} accept-proxy\n  default_backend node\n"
        f"backend node\n  mode tcp\n  server node 127.0.0.1:{node}\n",
        ports["node"],
    )
    tells = 'location / { return 200 "$proxy_protocol_addr|$proxy_protocol_port|"; }'
    company.nginx(
        f"server {{ listen 127.0.0.1:{ports['nginx']} proxy_protocol; {tells} }}\n"
        f"server {{ listen 127.0.0.1:{ports['nginx-tls']} ssl proxy_protocol; ssl_certificate {issued.cert};"
        f" ssl_certificate_key {issued.key}; {tells} }}\n",
        ports["nginx"],
    )
    return ports


@pytest.fixture(scope="module", params=REACTORS, ids=["ssl", "pyOpenSSL"])
def edge(request: pytest.FixtureRequest, company: Neighbours, node: int) -> Iterator[Edge]:
    need("haproxy")
    folder = company.directory / f"proxied-{request.param}"
    folder.mkdir()
    authority = Authority(folder)
    issued = authority.issue("shop.test")
    ports = Ports(*(free_port() for _ in Ports._fields))
    servers = behind(company, issued, node)
    mine = {"trusted": ["127.0.0.1/32"]}
    tls = {"certificates": [pair(issued)], "clientAuth": {"ca": str(authority.file), "mode": "optional"}}

    def listener(name: str, **given: Any) -> dict[str, Any]:
        port = getattr(ports, name, 0)
        return {"name": name, "address": f"127.0.0.1:{port}", "protocols": ["http1", "sotp"], **given}

    def told(name: str, version: str, scheme: str = "http") -> dict[str, Any]:
        entry = upstream(
            name + version, proxyProtocol=version, tls={"ca": str(authority.file), "serverName": "shop.test"}
        )
        if scheme == "http":
            del entry["tls"]
        return {**entry, "endpoints": [{"url": f"{scheme}://127.0.0.1:{servers[name]}"}]}

    upstreams = [told(name, version) for name in ("plain", "node", "nginx") for version in ("v1", "v2")]
    upstreams += [told(name, version, "https") for name in ("secret", "nginx-tls") for version in ("v1", "v2")]
    settings = {
        "gateway": {"timeouts": {"clientHeader": "2s"}},
        "listeners": [
            listener("web", proxyProtocol=mine, protocols=["http1"]),
            listener("tls", proxyProtocol=mine, tls=tls),
            listener("strict", proxyProtocol=mine),
            listener("optional", proxyProtocol={**mine, "mode": "optional"}),
            listener("open"),
            listener("secret", tls=tls),
        ],
        "upstreams": upstreams,
        "routes": [
            {
                "value": f"/{each['name']}",
                "matcherType": "prefix",
                "routes": [{"targets": [{"upstream": each["name"]}]}],
            }
            for each in upstreams
        ],
        "modules": [
            {
                "name": "respond",
                "condition": "request.path in ['/', '/health'] && !request.malformed",
                "actionParam": {"status": 200, "body": SHOWS},
            }
        ],
        "accessLog": {"file": "access.log"},
    }
    gateway = begin(company, settings, request.param)
    yield Edge(gateway, authority, issued, ports, company)
    gateway.healthy()


def front(edge: Edge, target: int, how: str, *, secure: bool = False, more: str = "") -> int:
    """An HAProxy that passes connections on to one of the gateway's ports; returns its own."""
    port = free_port()
    offered = ""
    if secure:
        pem = edge.issued.cert.with_suffix(".both")
        offered = f" ssl crt {pem} ca-file {edge.authority.file} verify optional alpn h2,http/1.1"
    edge.company.haproxy(
        f"frontend front\n  mode tcp\n  bind 127.0.0.1:{port}{offered}\n  default_backend back\n"
        f"backend back\n  mode tcp\n{more}  server gateway 127.0.0.1:{target} {how}\n",
        port,
    )
    return port


@contextlib.contextmanager
def come(port: int, context: ssl.SSLContext | None = None) -> Iterator[Wire]:
    """A connection of a client's."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=WITHIN, source_address=(ME, 0))
    with plain:
        if context is None:
            yield Wire(plain)
        else:
            with context.wrap_socket(plain, server_hostname="shop.test") as secured:
                yield Wire(secured)


def ask(wire: Wire, path: str = "/") -> list[str]:
    """What the answer to a GET says, in its parts."""
    wire.send(f"GET {path} HTTP/1.1\r\nHost: shop.test\r\n\r\n".encode())
    head, body = wire.answer()
    assert head.startswith(b"HTTP/1.1 200"), head
    return body.decode().split("|")


HOW = [
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2-ssl-cn",
    "send-proxy-v2 proxy-v2-options crc32c,unique-id,authority",
]


@pytest.mark.parametrize("how", HOW)
def test_haproxy_tells_who_its_client_is(edge: Edge, how: str) -> None:
    with come(front(edge, edge.gateway.port, how)) as wire:
        told = ask(wire)
        assert told == [*map(str, wire.socket.getsockname()), "false", "", "", ""]
        assert ask(wire) == told


@pytest.mark.parametrize("how", HOW)
def test_haproxy_tells_before_tls(edge: Edge, how: str) -> None:
    with come(front(edge, edge.ports.tls, how), client(edge.authority)) as wire:
        told = [*map(str, wire.socket.getsockname()), "true", "TLSv1.3", "shop.test", ""]
        assert ask(wire) == told
        assert ask(wire) == told


@pytest.mark.parametrize("shown", [True, False])
def test_haproxy_tells_what_its_client_has_negotiated(edge: Edge, shown: bool) -> None:
    how = "send-proxy-v2-ssl-cn proxy-v2-options ssl,cert-cn,authority,crc32c"
    context = client(edge.authority, edge.authority.issue("partner.test") if shown else None)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with come(front(edge, edge.gateway.port, how, secure=True), context) as wire:
        who = [*map(str, wire.socket.getsockname()), "true", "TLSv1.2", "shop.test"]
        assert ask(wire) == [*who, "CN=partner.test" if shown else ""]


def test_the_proxys_own_connections_are_its_own(edge: Edge) -> None:
    checks = "  option httpchk GET /health\n"
    front(edge, edge.gateway.port, "send-proxy-v2 check check-send-proxy inter 100ms", more=checks)

    def own() -> set[str]:
        return {record["client"] for record in edge.gateway.records() if record["target"] == "/health"}

    assert eventually(own, "a health check") == {"127.0.0.1"}


def test_curl_tells(edge: Edge) -> None:
    url = f"http://127.0.0.1:{edge.gateway.port}/"
    answer = run([need("curl"), "-s", "--haproxy-protocol", url]).stdout.decode().split("|")
    assert answer[0] == "127.0.0.1"
    assert answer[2:] == ["false", "", "", ""]


def test_who_is_not_trusted_gets_nothing_where_all_have_to_tell(edge: Edge) -> None:
    with come(edge.ports.strict) as wire:
        with contextlib.suppress(ConnectionError):
            wire.send(b"PROXY TCP4 203.0.113.1 203.0.113.2 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert wire.rest() == b""


@pytest.mark.parametrize("port", ["optional", "open"])
def test_a_header_of_somebody_else_changes_nothing_but_is_bad(edge: Edge, port: str) -> None:
    with come(getattr(edge.ports, port)) as wire:
        wire.send(b"PROXY TCP4 203.0.113.1 203.0.113.2 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert wire.rest().startswith(b"HTTP/1.1 400 ")
    with come(getattr(edge.ports, port)) as wire:
        assert ask(wire)[0] == ME

    def refused() -> set[str]:
        return {record["client"] for record in edge.gateway.records() if record["status"] == 400}

    assert eventually(refused, "a record") == {ME}


def test_who_is_trusted_and_says_nothing_is_closed_in_time(edge: Edge) -> None:
    for said in (b"", b"PROXY TCP4 ", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", edge.ports.tls), timeout=WITHIN) as connection:
            connection.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1000) == b""


# -- behind


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", ["plain", "secret", "nginx", "nginx-tls"])
def test_a_server_is_told_who_the_client_is(edge: Edge, name: str, version: str) -> None:
    with come(edge.ports.open) as wire:
        told = ask(wire, f"/{name}{version}")
        assert told[:2] == [*map(str, wire.socket.getsockname())]
        if "nginx" not in name:
            assert told[2:4] == ["127.0.0.1", str(edge.ports.open)]


def test_a_server_is_told_what_the_client_has_negotiated(edge: Edge) -> None:
    with come(edge.ports.secret, client(edge.authority)) as wire:
        told = ask(wire, "/secretv2")
        assert told[:2] == [*map(str, wire.socket.getsockname())]
        assert told[4] == "shop.test"
        assert ask(wire, "/secretv1")[4] == ""


def test_what_came_from_a_proxy_goes_on_to_the_server(edge: Edge) -> None:
    port = front(edge, edge.gateway.port, "send-proxy-v2")
    with come(port) as wire:
        assert ask(wire, "/plainv1")[:4] == [*map(str, wire.socket.getsockname()), "127.0.0.1", str(port)]


def test_connections_to_a_server_are_kept_for_one_client_each(edge: Edge) -> None:
    with come(edge.ports.open) as one, come(edge.ports.open) as two:
        sessions = {}
        for _ in range(3):
            for wire in (one, two):
                told = ask(wire, "/plainv2")
                assert told[:2] == [*map(str, wire.socket.getsockname())]
                sessions.setdefault(wire, set()).add(told[-1])
        assert [len(seen) for seen in sessions.values()] == [1, 1]
        assert sessions[one] != sessions[two]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_tunnels_pass_with_their_half_closes(edge: Edge, version: str) -> None:
    with come(front(edge, edge.gateway.port, f"send-proxy{'-v2' if version == 'v2' else ''}")) as wire:
        wire.send(
            f"GET /node{version} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert wire.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        assert wire.until(b"welcome ") == b"welcome "
        wire.send(b"x" * 100_000)
        assert wire.exactly(100_000) == b"x" * 100_000
        wire.half_close()
        assert wire.rest() == b"bye"
