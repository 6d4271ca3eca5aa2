"""Upgrade and CONNECT: from the answer on, bytes in both directions until each side is done."""

from __future__ import annotations

import threading

from gateways import Gateway, eventually, wire

UPGRADE = (
    b"GET /raw HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONNECT = b"CONNECT 127.0.0.1:7 HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n"


def test_what_comes_along_with_the_101_belongs_to_the_tunnel(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(UPGRADE)
        head = client.until(b"\r\n\r\n").lower()
        assert head.startswith(b"http/1.1 101 ")
        assert b"\r\nupgrade: websocket\r\n" in head
        assert b"\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in head
        assert client.exactly(8) == b"welcome "


def test_an_upgraded_connection_can_be_closed_by_halves(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(UPGRADE)
        client.until(b"welcome ")
        client.send(b"ping")
        assert client.exactly(4) == b"ping"
        client.send(b"last")
        client.half_close()
        assert client.rest() == b"lastbye"


def test_connect_opens_a_tunnel(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(CONNECT)
        head = client.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"content-length" not in head.lower()
        assert b"transfer-encoding" not in head.lower()
        client.send(b"\x00\xff\r\n")
        assert client.exactly(4) == b"\x00\xff\r\n"
        client.half_close()
        assert client.rest() == b"bye"


def test_bytes_sent_before_the_answer_reach_the_tunnel(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(CONNECT + b"early")
        client.until(b"\r\n\r\n")
        assert client.exactly(5) == b"early"
        client.half_close()
        assert client.rest() == b"bye"


def test_a_tunnel_carries_more_than_anybody_holds(edge: Gateway) -> None:
    size, piece = 8 * 1024 * 1024, bytes(range(256)) * 256
    with wire(edge.port) as client:
        client.send(CONNECT)
        client.until(b"\r\n\r\n")

        def send() -> None:
            for _ in range(size // len(piece)):
                client.send(piece)
            client.half_close()

        sender = threading.Thread(target=send)
        sender.start()
        try:
            came = client.rest()
        finally:
            sender.join()
    assert len(came) == size + 3
    assert came == piece * (size // len(piece)) + b"bye"


def test_a_tunnel_has_one_record_when_it_is_over(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(UPGRADE.replace(b"/raw", b"/recorded"))
        client.until(b"welcome ")
        assert not [record for record in edge.records() if record["target"] == "/recorded"]
        client.send(b"12345")
        client.exactly(5)
        client.half_close()
        client.rest()
    mine = eventually(
        lambda: [record for record in edge.records() if record["target"] == "/recorded"], "the record of the tunnel"
    )
    assert [(record["status"], record["received"], record["delivered"]) for record in mine] == [(101, 5, 16)]


def test_other_protocols_are_not_upgraded_to(edge: Gateway) -> None:
    h2c = b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n"
    with wire(edge.port) as client:
        client.send(h2c + b"HTTP2-Settings: AAMAAABk\r\n\r\n")
        answer = client.rest().lower()
    assert answer.startswith(b"http/1.1 200 ")
    assert b"h2c" not in answer
    assert b"http2-settings" not in answer
