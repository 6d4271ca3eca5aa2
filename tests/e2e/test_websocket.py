"""The `websockets` library on both sides, the gateway between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK
from websockets.sync.client import ClientConnection, connect

from gateways import WITHIN, Gateway, Origin, config, eventually, origin, start, wire
from neighbours import Neighbours

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(company: Neighbours) -> Origin:
    return origin(company, "websocket_server.py")


@pytest.fixture(scope="module")
def gateway(company: Neighbours, server: Origin) -> Iterator[Gateway]:
    started = start(company, config(server.port), "twistd")
    yield started
    started.healthy()


@contextmanager
def client(gateway: Gateway, path: str) -> Iterator[ClientConnection]:
    """A connection through the gateway."""
    url = f"ws://127.0.0.1:{gateway.port}{path}"
    with connect(url, open_timeout=WITHIN, close_timeout=WITHIN, max_size=4 * MIB, proxy=None) as connection:
        yield connection


@pytest.mark.parametrize("message", ["text ☃", b"\x00\xff", "", b"", "t" * MIB, b"\x80" * MIB])
def test_messages_come_back(gateway: Gateway, message: str | bytes) -> None:
    with client(gateway, "/echo") as connection:
        connection.send(message)
        assert connection.recv(WITHIN) == message


def test_many_messages_under_way_keep_their_order(gateway: Gateway) -> None:
    with client(gateway, "/echo") as connection:
        for index in range(500):
            connection.send(f"{index}")
        assert [connection.recv(WITHIN) for _ in range(500)] == [str(index) for index in range(500)]


def test_fragments_make_one_message(gateway: Gateway) -> None:
    with client(gateway, "/echo") as connection:
        connection.send(iter(["one ", "two ", "three"]))
        assert connection.recv(WITHIN) == "one two three"


def test_a_message_in_fragments_comes_as_it_was_sent(gateway: Gateway) -> None:
    with client(gateway, "/pieces") as connection:
        connection.send("abc")
        assert list(connection.recv_streaming()) == ["a", "b", "c", ""]
        connection.send("d")
        assert connection.recv(WITHIN) == "d"


def test_pings_are_answered_by_the_other_end(gateway: Gateway) -> None:
    with client(gateway, "/echo") as connection:
        assert connection.ping(b"mine").wait(WITHIN)


def test_the_server_may_speak_first(gateway: Gateway) -> None:
    with client(gateway, "/first") as connection:
        assert connection.recv(WITHIN) == "welcome"
        connection.send("hello")
        assert connection.recv(WITHIN) == "hello"


def test_the_server_closes_with_its_code(gateway: Gateway) -> None:
    with client(gateway, "/leave") as connection:
        connection.send("go")
        with pytest.raises(ConnectionClosedError) as caught:
            connection.recv(WITHIN)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4001, "enough")


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "away"), (4242, "mine")])
def test_the_client_closes_with_its_code(gateway: Gateway, server: Origin, code: int, reason: str) -> None:
    with client(gateway, f"/told{code}") as connection:
        connection.close(code, reason)
        with pytest.raises((ConnectionClosedOK, ConnectionClosed)):
            connection.recv(WITHIN)
    wanted = f"closed /told{code} {code} {reason}\n"
    eventually(lambda: wanted in server.running.output(), "the server is told")


def test_a_client_that_vanishes_is_noticed_by_the_server(gateway: Gateway, server: Origin) -> None:
    with client(gateway, "/vanish") as connection:
        connection.send("here")
        assert connection.recv(WITHIN) == "here"
        connection.socket.close()
    eventually(lambda: "closed /vanish 1006 " in server.running.output(), "the server is told")


def test_a_refused_handshake_is_answered_by_the_upstream(gateway: Gateway) -> None:
    with wire(gateway.port) as connection:
        connection.send(
            b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        head, text = connection.answer()
    assert head.startswith(b"HTTP/1.1 400 "), head
    assert b"invalid Sec-WebSocket-Version header: 12" in text
