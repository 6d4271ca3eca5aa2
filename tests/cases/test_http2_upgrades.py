"""WebSocket over HTTP/2 (RFC 8441), and those who pass the handshake of HTTP/1 on through it."""

from __future__ import annotations

import pytest
from two import BOTH, CANCEL, Two
from wire import Message

from h2frames import Field, data, fields, headers, res, rst

pytestmark = pytest.mark.parametrize("engine", BOTH)
KEY: Field = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")
ACCEPT: Field = (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
WRONG: Field = (b"sec-websocket-accept", b"d3JvbmcgYW5zd2VyIHRvIGEga2V5")
ASK: list[Field] = [
    (b":method", b"CONNECT"),
    (b":scheme", b"http"),
    (b":authority", b"a.test"),
    (b":path", b"/ws"),
    (b":protocol", b"websocket"),
    (b"sec-websocket-version", b"13"),
]
EXTENDED = {8: 1}


def opening(stream: int, *more: Field) -> bytes:
    """HEADERS that ask for a tunnel."""
    return headers(stream, fields([*ASK, *more]), False)


def accepts(two: Two, stream: int = 1) -> list[bytes]:
    """What the client is told of its key."""
    head = two.clients[0].message(stream).heads[0]
    assert dict(head)[b":status"] == b"200"
    return [value for name, value in head if name == ACCEPT[0]]


@pytest.mark.parametrize("told", [(), (WRONG,), (ACCEPT,)], ids=["nothing", "wrong", "right"])
def test_a_key_passes_once_and_its_answer_is_right_whatever_the_server_says_of_it(
    engine: str, told: tuple[Field, ...]
) -> None:
    with Two(engine, lambda asked: res(asked.stream, b"200", told, end=False), said=EXTENDED, early=True) as two:
        client = two.client()
        client.send(opening(1, KEY, KEY))
        assert two.asked[0].all(b"sec-websocket-key") == [KEY[1]]
        assert accepts(two) == [ACCEPT[1]]
        client.send(data(1, b"over", True))
        two.reply(data(two.asked[0].stream, b"out", True))


def test_who_has_no_key_is_told_nothing_of_one_and_the_server_gets_one_all_the_same(engine: str) -> None:
    with Two(engine, lambda asked: res(asked.stream, b"200", [WRONG], end=False), said=EXTENDED, early=True) as two:
        client = two.client()
        client.send(opening(1), opening(3))
        assert accepts(two, 1) == accepts(two, 3) == []
        (one,), (other,) = (asked.all(b"sec-websocket-key") for asked in two.asked)
        assert len(one) == len(other) == 24
        assert one != other
        for number, asked in zip((1, 3), two.asked, strict=True):
            client.send(data(number, b"over", True))
            two.reply(data(asked.stream, b"out", True))


def test_the_key_of_a_client_of_http2_is_answered_by_a_server_of_http1(engine: str) -> None:
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + ACCEPT[1] + b"\r\n\r\n"
    )
    with Two(engine, answer, behind="http1") as two:
        client = two.client()
        client.send(opening(1, KEY))
        (request,) = two.origin.requests
        assert isinstance(request, Message)
        assert request.get(b"sec-websocket-key") == KEY[1]
        assert accepts(two) == [ACCEPT[1]]
        client.send(data(1, b"over", True))
        two.origin.last.close()
        two.run()


def test_the_last_words_of_a_tunnel_pass_before_it_breaks_off(engine: str) -> None:
    """Whoever says them: Envoy ends each WebSocket that way, right behind the last frame."""
    with Two(engine, lambda asked: res(asked.stream, end=False), said=EXTENDED, early=True) as two:
        client = two.client()
        client.send(opening(1), opening(3))
        two.reply(data(two.asked[0].stream, b"bye"), rst(two.asked[0].stream, 10))
        assert (client.message(1).content, client.message(1).ended) == (b"bye", False)
        assert client.seen(1) == "reset INTERNAL_ERROR"
        client.send(data(3, b"over"), rst(3, CANCEL))
        assert (two.asked[1].message.content, two.asked[1].reset) == (b"over", CANCEL)
        two.check()


def test_other_tunnels_have_no_key(engine: str) -> None:
    with Two(engine, lambda asked: res(asked.stream, end=False), said=EXTENDED, early=True) as two:
        two.config["routes"].append({"type": "method", "value": "CONNECT", "routes": two.config["routes"][0]["routes"]})
        two.gateway.reload(two.config)
        client = two.client()
        client.send(headers(1, fields([*ASK[:1], (b":authority", b"a.test:7"), KEY]), False))
        assert two.asked[0].all(b"sec-websocket-key") == []
        assert accepts(two) == []
        client.send(data(1, b"over", True))
        two.reply(data(two.asked[0].stream, b"out", True))


def test_the_kernel_is_asked_who_vanished(engine: str) -> None:
    """Silence ends neither a tunnel nor a stream that may last, so nobody else would ever find out."""
    with Two(engine, None, said=EXTENDED) as two:
        client = two.client()
        client.send(opening(1))
        (_, wire) = two.gateway.reactor.links[0].ends[1]
        assert wire.getTcpKeepAlive()
        client.send(rst(1, CANCEL))
