"""nginx as an upstream with TLS, over both libraries: whom the gateway believes, what it proves, what it says."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from secure import REACTORS, ask, begin, client, counters, pair, renew, shaken

from authority import Authority
from gateways import WITHIN, Gateway, Wire, config, eventually, origin, wire
from neighbours import Neighbours, free_port

LARGE = bytes(range(256)) * 20_000


class Back(NamedTuple):
    """A gateway in front of nginx, which has many faces."""

    gateway: Gateway
    admin: int


def upstream(name: str, url: str, **tls: Any) -> dict[str, Any]:
    return (
        {"name": name, "endpoints": [{"url": url}], "tls": tls} if tls else {"name": name, "endpoints": [{"url": url}]}
    )


@pytest.fixture(scope="module", params=REACTORS, ids=["ssl", "pyOpenSSL"])
def back(request: pytest.FixtureRequest, company: Neighbours) -> Iterator[Back]:
    folder = company.directory / f"upstream-{request.param}"
    strange = folder / "strange"
    strange.mkdir(parents=True)
    (folder / "large.bin").write_bytes(LARGE)
    authority, stranger = Authority(folder), Authority(strange, "stranger")
    ca, us = str(authority.file), authority.issue("gateway")
    faces = {
        "right": authority.issue("localhost"),
        "address": authority.issue("address", ["127.0.0.1"]),
        "wrong": authority.issue("wrong.test"),
        "expired": authority.issue("localhost", days=-1, file="expired"),
        "unknown": stranger.issue("localhost"),
        "asks": authority.issue("localhost", file="asks"),
        "old": authority.issue("localhost", file="old"),
    }
    ports = {name: free_port() for name in faces}
    more = {
        "asks": f"ssl_protocols TLSv1.2; ssl_client_certificate {ca}; ssl_verify_client on;",
        "old": "ssl_protocols TLSv1.1; ssl_ciphers ALL:@SECLEVEL=0;",
    }
    company.nginx(
        "".join(
            f"""
            server {{
                listen 127.0.0.1:{ports[name]} ssl;
                ssl_certificate {issued.cert}; ssl_certificate_key {issued.key};
                {more.get(name, "ssl_protocols TLSv1.2 TLSv1.3;")}
                root {folder};
                location = /once {{
                    keepalive_timeout 0;
                    return 200 "$ssl_protocol $ssl_session_reused $ssl_client_s_dn $ssl_server_name";
                }}
                location = /put {{ client_max_body_size 20m; dav_methods PUT; }}
                location / {{ add_header x-face {name}; }}
            }}
            """
            for name, issued in faces.items()
        ),
        ports["right"],
    )
    plain = free_port()
    listening = socket.create_server(("127.0.0.1", plain))
    at = {name: f"https://localhost:{port}" for name, port in ports.items()}
    upstreams = [
        upstream("right", at["right"], ca=ca),
        upstream("address", f"https://127.0.0.1:{ports['address']}", ca=ca),
        upstream("wrong", at["wrong"], ca=ca),
        upstream("named", at["wrong"], ca=ca, serverName="wrong.test"),
        upstream("expired", at["expired"], ca=ca),
        upstream("unknown", at["unknown"], ca=ca),
        upstream("system", at["right"]),
        upstream("careless", at["unknown"], verify=False),
        upstream("anonymous", at["asks"], ca=ca),
        upstream("known", at["asks"], ca=ca, **pair(us)),
        upstream("old", at["old"], ca=ca),
        {**upstream("silent", f"https://localhost:{plain}", ca=ca), "timeouts": {"tls": "300ms"}},
    ]
    admin = free_port()
    settings = {
        "listeners": [{"name": "web", "address": "127.0.0.1:0"}],
        "upstreams": upstreams,
        "routes": [
            {"type": "host", "value": each["name"], "routes": [{"targets": [{"upstream": each["name"]}]}]}
            for each in upstreams
        ],
        "admin": {"address": f"127.0.0.1:{admin}"},
        "accessLog": {"file": "access.log"},
    }
    gateway = begin(company, settings, request.param)
    with listening:
        yield Back(gateway, admin)
    gateway.healthy()


def asked(back: Back, name: str, path: str = "/once") -> tuple[int, bytes]:
    """What the upstream of that name answers."""
    with wire(back.gateway.port) as connection:
        return ask(connection.socket, path, host=name)


@pytest.mark.parametrize("name", ["right", "address", "named", "careless"])
def test_one_that_proves_who_it_is_is_asked(back: Back, name: str) -> None:
    status, body = asked(back, name)
    assert (status, body[:8]) == (200, b"TLSv1.3 ")


def test_the_name_that_must_be_proved_is_the_one_that_is_asked_for(back: Back) -> None:
    assert asked(back, "named")[1].endswith(b" wrong.test")
    assert asked(back, "right")[1].endswith(b" localhost")
    assert asked(back, "address")[1].endswith(b" "), "no name is asked for where there is none"


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("wrong", "tls_certificate_error", "localhost"),
        ("expired", "tls_certificate_error", "expired"),
        ("unknown", "tls_certificate_error", "certificate verify failed"),
        ("system", "tls_certificate_error", "certificate verify failed"),
        ("old", "tls_", "handshake failed"),
    ],
)
def test_one_that_does_not_is_refused_and_the_record_says_why(back: Back, name: str, error: str, why: str) -> None:
    with wire(back.gateway.port) as connection:
        connection.send(f"GET /{name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        head, body = connection.answer()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert f"error={error}".encode() in head
    assert b"localhost" not in body, "a stranger is told nothing"
    (record,) = eventually(
        lambda: [each for each in back.gateway.records() if each["target"] == f"/{name}"], "it is recorded"
    )
    assert record["phase"] == "tls"
    assert why in record["error"]
    assert record["ms"]["tls"] > 0


def test_a_certificate_is_shown_to_who_asks_for_one(back: Back) -> None:
    status, body = asked(back, "known")
    assert status == 200
    assert b"CN=gateway" in body
    assert asked(back, "anonymous")[0] == 400, "nginx says so after the handshake"


def test_one_that_does_not_answer_the_handshake_is_not_waited_for(back: Back) -> None:
    began = time.monotonic()
    with wire(back.gateway.port) as connection:
        connection.send(b"GET /silent HTTP/1.1\r\nHost: silent\r\n\r\n")
        head, body = connection.answer()
    assert head.startswith(b"HTTP/1.1 504 ")
    assert b"tls timeout" in body
    assert time.monotonic() - began < WITHIN


def test_sessions_with_an_upstream_are_resumed(back: Back) -> None:
    answers = [asked(back, "right")[1] for _ in range(4)]
    assert [b" r " in answer for answer in answers[1:]] == [True] * 3, answers
    assert counters(back.admin)["tls_resumed"] >= 3


def test_large_bodies_pass_whole(back: Back) -> None:
    with wire(back.gateway.port) as connection:
        connection.send(b"GET /large.bin HTTP/1.1\r\nHost: right\r\n\r\n")
        body = connection.answer()[1]
    assert hashlib.sha256(body).digest() == hashlib.sha256(LARGE).digest()


@pytest.mark.parametrize("reactor", REACTORS, ids=["ssl", "pyOpenSSL"])
def test_large_bodies_pass_whole_in_both_directions(neighbours: Neighbours, reactor: str) -> None:
    node = origin(neighbours, "origin.js")
    authority = Authority(neighbours.directory)
    settings = config(node.port)
    settings["listeners"][0]["tls"] = {"certificates": [pair(authority.issue("shop.test"))]}
    gateway = begin(neighbours, settings, reactor)
    with shaken(gateway.port, client(authority)) as connection:
        head = f"POST /echo HTTP/1.1\r\nHost: shop.test\r\nContent-Length: {len(LARGE)}\r\nConnection: close\r\n\r\n"
        sender = threading.Thread(target=connection.sendall, args=(head.encode() + LARGE,))
        sender.start()
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        sender.join()
    whole = answer.partition(b"\r\n\r\n")[2]
    body = b""
    while whole:
        size, _, whole = whole.partition(b"\r\n")
        body, whole = body + whole[: int(size, 16)], whole[int(size, 16) + 2 :]
    assert hashlib.sha256(body).digest() == hashlib.sha256(LARGE).digest()
    gateway.healthy()


@pytest.mark.parametrize(("reactor", "workers"), [("", 2), ("epoll", 0)], ids=["ssl", "pyOpenSSL"])
def test_renewed_files_are_picked_up_under_load_and_no_request_is_lost(
    neighbours: Neighbours, reactor: str, workers: int
) -> None:
    authority = Authority(neighbours.directory)
    issued = authority.issue("shop.test")
    first = issued.cert.read_bytes()
    settings = {
        "gateway": {"workers": workers},
        "listeners": [{"name": "web", "address": "127.0.0.1:0", "tls": {"certificates": [pair(issued)]}}],
        "modules": [{"name": "respond", "actionParam": {"status": 200, "body": "here"}}],
    }
    gateway = begin(neighbours, settings, reactor)
    eventually(lambda: not workers or "workers serve" in gateway.log, "they serve")
    context, over, shown, problems = client(authority), threading.Event(), set[bytes | None](), list[BaseException]()

    def load() -> None:
        try:
            while not over.is_set():
                with shaken(gateway.port, context) as connection:
                    shown.add(connection.getpeercert(True))
                    for _ in range(5):
                        assert ask(connection) == (200, b"here")
                over.wait(0.05)  # there is more to do on this machine
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with shaken(gateway.port, context) as kept:
            assert ask(kept) == (200, b"here")
            # One that cannot be used changes nothing …
            broken = issued.cert.with_name("broken.pem")
            broken.write_text("nothing\n")
            broken.replace(issued.cert)
            gateway.says("there is no certificate in PEM form in this file; what was there before stays in use")
            # … one that can is used by everybody soon.
            renew(authority.issue("shop.test", file="fresh"), issued)
            gateway.says("renewed files of TLS are in use: web", max(workers, 1))
            shown.clear()
            eventually(lambda: len(shown) > 0, "somebody connects")
            assert ask(kept) == (200, b"here"), "who was there before stays"
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert issued.cert.read_bytes() != first
    with shaken(gateway.port, context) as connection:
        assert connection.getpeercert(True) == ssl.PEM_cert_to_DER_cert(issued.cert.read_text())
    gateway.healthy()


@pytest.mark.parametrize("reactor", REACTORS, ids=["ssl", "pyOpenSSL"])
def test_a_reload_begins_and_ends_tls_on_an_open_port(neighbours: Neighbours, reactor: str) -> None:
    authority = Authority(neighbours.directory)
    port = free_port()
    plain: dict[str, Any] = {
        "listeners": [{"name": "web", "address": f"127.0.0.1:{port}"}],
        "modules": [{"name": "respond", "actionParam": {"status": 200, "body": "here"}}],
    }
    tls = {"certificates": [pair(authority.issue("shop.test"))]}
    secured = {**plain, "listeners": [{**plain["listeners"][0], "tls": tls}]}
    gateway = begin(neighbours, plain, reactor)
    with wire(port) as kept:
        assert ask(kept.socket) == (200, b"here")
        gateway.hangup(secured)
        with shaken(port, client(authority)) as connection:
            assert ask(connection) == (200, b"here")
            gateway.hangup(plain)
            assert ask(connection) == (200, b"here"), "a connection stays what it is"
        assert ask(kept.socket) == (200, b"here")
    with wire(port) as again:
        assert ask(again.socket) == (200, b"here")
    gateway.healthy()


@pytest.mark.parametrize("reactor", REACTORS, ids=["ssl", "pyOpenSSL"])
def test_tunnels_pass_both_ways_and_end(neighbours: Neighbours, reactor: str) -> None:
    """WebSocket over TLS on both legs: one gateway is the upstream of the other."""
    node, authority, port = origin(neighbours, "origin.js"), Authority(neighbours.directory), free_port()
    certificates = {"certificates": [pair(authority.issue("localhost"))]}
    behind = config(node.port, listen=port)
    behind["listeners"][0]["tls"] = certificates
    front = config(node.port)
    front["listeners"][0]["tls"] = certificates
    front["upstreams"] = [upstream("origin", f"wss://localhost:{port}", ca=str(authority.file))]
    gateways = [begin(neighbours, settings, reactor) for settings in (behind, front)]
    with shaken(gateways[1].port, client(authority), "localhost") as connection:
        tunnel = Wire(connection)
        tunnel.send(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert tunnel.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        assert tunnel.exactly(8) == b"welcome "
        tunnel.send(LARGE[:200_000])
        assert tunnel.exactly(200_000) == LARGE[:200_000]
        connection.unwrap().close()
    for gateway in gateways:
        gateway.healthy()
