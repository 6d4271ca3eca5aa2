"""Each limit alone: what is just within it passes, one more does not; its status, its counter, its one record."""

from __future__ import annotations

import pytest
from edge import EVERYBODY, GET, HOST, OK, PORT, SCRIPT, answer, config, counted, heads, installed, module

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect

START = b"GET / HTTP/1.1\r\n"
ENOUGH = b"HTTP/1.1 204 No Content\r\n\r\n"


def line(size: int) -> bytes:
    """A request whose request line has that many bytes."""
    return b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"a" * (size - len(b"GET / HTTP/1.1")))


def field(size: int) -> bytes:
    """One whose longest field line has that many."""
    return START + b"Host: a\r\nX: %b\r\n\r\n" % (b"b" * (size - len(b"X: ")))


def block(size: int) -> bytes:
    """One whose field lines have that many together, each with its CRLF."""
    lines = b"Host: a\r\n"
    while len(lines) < size - 200:
        lines += b"X: %b\r\n" % (b"c" * 95)
    last = size - len(lines)
    return START + lines + b"Y: %b\r\n\r\n" % (b"d" * (last - len(b"Y: \r\n")))


def count(number: int) -> bytes:
    """One with so many field lines."""
    return START + b"Host: a\r\n" + b"".join(b"X: %d\r\n" % at for at in range(number - 1)) + b"\r\n"


def known(size: int) -> bytes:
    """One with so many bytes of content, and a Content-Length."""
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + b"e" * size


def chunked(size: int) -> bytes:
    """The same in chunks."""
    data = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for at in range(0, size, 100):
        piece = min(100, size - at)
        data += b"%x\r\n%b\r\n" % (piece, b"f" * piece)
    return data + b"0\r\n\r\n"


CASES = {
    "requestLine": ({"requestLine": "1000B"}, line, 1000, 414, "request_line_too_long"),
    "headerLine": ({"headerLine": "1000B"}, field, 1000, 431, "header_line_too_long"),
    "headers": ({"headers": "1000B"}, block, 1000, 431, "headers_too_large"),
    "headerCount": ({"headerCount": 20}, count, 20, 431, "too_many_headers"),
    "body": ({"body": "1000B"}, known, 1000, 413, "body_too_large"),
    "body in chunks": ({"body": "1000B"}, chunked, 1000, 413, "body_too_large"),
}
EACH = pytest.mark.parametrize(("limits", "make", "limit", "status", "event"), CASES.values(), ids=CASES)


def origin_of(gateway):
    """Answers when the whole of a request that small is there."""
    return gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), Do.SILENCE])


@EACH
@pytest.mark.parametrize("most", [1 << 30, 7])
def test_just_within_and_one_beyond(limits, make, limit, status, event, most):
    with MemoryGateway(config(limits=limits), most=most) as gateway:
        origin = origin_of(gateway)
        client = gateway.client()
        client.send(make(limit))
        gateway.run()
        origin.connections[0].send(ENOUGH)
        gateway.run()
        assert answer(client.take()).status == 204
        assert not counted(gateway)
        client.send(make(limit + 1))
        gateway.run()
        got = answer(client.received)
        assert (got.status, got["connection"]) == (status, "close")
        assert got["proxy-status"] == 'edge-1; error=http_request_error; details="client"'
        assert counted(gateway) == {event: 1}
        first, made = gateway.records
        assert first.status == 204
        assert (made.status, made.who, made.target[:1]) == (status, "client", "/")
        client.close()
        gateway.run()
    counts = gateway.service.counters.snapshot()["counts"]
    assert counts["listener"]["web"][event] == 1


@EACH
def test_every_limit_is_far_from_the_others(limits, make, limit, status, event):
    """The same request passes where the limit has its default: no other one caught it."""
    with MemoryGateway(config()) as gateway:
        origin_of(gateway)
        client = gateway.client()
        client.send(make(limit + 1))
        gateway.run()
        assert client.received == b""
        assert not counted(gateway)
        client.close()
        gateway.run()


@EACH
def test_what_is_too_much_is_refused_while_it_comes(limits, make, limit, status, event):
    """A client that never ends is cut off at the limit, not when it is done or when memory is."""
    endless = {
        "request_line_too_long": b"GET /" + b"a" * 50_000,
        "header_line_too_long": START + b"Host: a\r\nX: " + b"a" * 50_000,
        "headers_too_large": START + b"Host: a\r\n" + b"X: %b\r\n" % (b"a" * 50) * 900,
        "too_many_headers": START + b"Host: a\r\n" + b"X: 1\r\n" * 9000,
        "body_too_large": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"64\r\n%b\r\n" % (b"a" * 100) * 500,
    }[event]
    with MemoryGateway(config(limits=limits)) as gateway:
        origin = origin_of(gateway)
        client = gateway.client()
        sent = 0
        while not client.received:
            client.send(endless[sent : sent + 50])
            sent += 50
            gateway.run()
            held = sum(
                end.wire.pending() for end in next(iter(gateway.service.ports.opened.values())).listener.connections
            )
            assert held <= 1000 + 50
        assert answer(client.received).status == status
        assert sent < 1400
        if event == "body_too_large":
            assert origin.received[0].count(b"a" * 100) <= 10
            assert origin.connections[0].lost is not None, "the truncation is visible"
        client.send(endless[sent:])  # it goes on: read and thrown away, never taken for another request
        gateway.run()
        assert answer(client.received).status == status
        assert len(gateway.records) == 1
        client.close()
        gateway.run()


def test_a_body_that_is_too_long_by_its_own_account_is_neither_read_nor_forwarded():
    with MemoryGateway(config(limits={"body": "10B"})) as gateway:
        origin = origin_of(gateway)
        for expect in (b"", b"Expect: 100-continue\r\n"):
            client = gateway.client()
            client.send(b"PUT / HTTP/1.1\r\nHost: a\r\n%bContent-Length: 11\r\n\r\n" % expect)
            gateway.run()
            assert answer(client.received).status == 413
            client.close()
            gateway.run()
        assert not origin.connections


@EACH
def test_modules_see_what_is_left_of_it_and_may_answer(limits, make, limit, status, event):
    """What is too much reaches PRE_REQUEST, unless it is found out after that, within a body."""
    seen = []

    def spy(exchange):
        seen.append(
            (exchange.request.malformed is not None, exchange.source.ip, exchange.request.headers.get(b"x-who"))
        )

    mine = module("respond", "PRE_REQUEST", status=418, body="no", condition_="request.malformed", ruleOrder_=1)
    with (
        installed(spy=spy),
        MemoryGateway(config(modules=[module("spy", "PRE_REQUEST"), mine], limits=limits)) as gateway,
    ):
        origin_of(gateway)
        client = gateway.client(address=("127.0.0.9", 999))
        head, _, rest = make(limit + 1).partition(b"\r\n")
        client.send(head + b"\r\nX-Who: me\r\n" + rest if make is not count else make(limit + 1))
        gateway.run()
        assert answer(client.received).status == 418
        assert seen == [(True, "127.0.0.9", None if make is count else b"me")]
        (made,) = gateway.records
        assert (made.status, made.malformed) == (418, True)
        client.close()
        gateway.run()


@EACH
def test_an_access_list_judges_malformed_requests_too(limits, make, limit, status, event):
    deny = module("accessList", "PRE_REQUEST", deny=EVERYBODY)
    with MemoryGateway(config(modules=[deny], limits=limits)) as gateway:
        client = gateway.client()
        client.send(make(limit + 1))
        gateway.run()
        assert answer(client.received).status == 403
        (made,) = gateway.records
        assert (made.status, made.malformed) == (403, True)
        assert counted(gateway) == {event: 1}
        client.close()
        gateway.run()


def test_what_is_no_request_reaches_modules_as_well():
    with MemoryGateway(
        config(modules=[module("respond", "PRE_REQUEST", status=418, condition_="request.malformed")])
    ) as gateway:
        for at, data in enumerate(
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
                b"\x16\x03\x01\x02\x00",
                b"GET / HTTP/1.1\r\n\r\n",
                b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n",
            ),
            1,
        ):
            client = gateway.client()
            client.send(data if data[:1] == b"G" else data + b"\n")
            gateway.run()
            assert answer(client.received).status == 418, data
            assert len(gateway.records) == at
            client.close()
            gateway.run()


# -- responses


def head(size: int) -> bytes:
    """A response whose head has that many bytes."""
    start = b"HTTP/1.1 204 No Content\r\nX: "
    return start + b"r" * (size - len(start) - 4) + b"\r\n\r\n"


def test_response_headers():
    with MemoryGateway(config(limits={"responseHeaders": "1000B"})) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), head(1000)], [Expect(b"\r\n\r\n"), head(1001)])
        client = gateway.client()
        client.send(GET % b"/1")
        gateway.run()
        assert answer(client.take()).status == 204
        origin.connections[0].close()
        gateway.run()
        client.send(GET % b"/2")
        gateway.run()
        got = answer(client.take())
        assert got.status == 502
        assert got["proxy-status"] == 'edge-1; error=http_response_header_section_size; details="upstream"'
        assert counted(gateway) == {"response_headers_too_large": 1}
        assert gateway.service.counters.snapshot()["counts"]["upstream"]["origin"]["response_headers_too_large"] == 1
        assert (gateway.records[-1].status, gateway.records[-1].who) == (502, "upstream")
        assert len(heads(origin.connections[1])) == 1
        assert origin.connections[1].lost is not None
        client.send(GET % b"/3")  # the client's connection is none the worse for it
        gateway.run()
        assert answer(client.take()).status == 502
        client.close()
        gateway.run()


def test_response_headers_are_refused_while_they_come():
    with MemoryGateway(config(limits={"responseHeaders": "1000B"})) as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        upstream, sent = origin.connections[0], 0
        upstream.send(b"HTTP/1.1 200 OK\r\n")
        while not client.received:
            upstream.send(b"X: 4567890123456789012345\r\n")
            sent += 1
            gateway.run()
        assert sent < 1000 / 25 + 2
        assert answer(client.received).status == 502
        client.close()
        gateway.run()


# -- connections


def test_connections():
    with MemoryGateway(config(limits={"connections": 2})) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        one, two = gateway.client(), gateway.client()
        three = gateway.client()
        assert three.eof
        assert three.received == b""
        assert counted(gateway) == {"connections_refused": 1}
        assert not gateway.records
        for each in (one, two):
            each.send(GET % b"/")
        gateway.run()
        assert [answer(each.take()).status for each in (one, two)] == [200, 200]
        one.close()
        three.close()
        gateway.run()
        again = gateway.client()
        again.send(GET % b"/")
        gateway.run()
        assert answer(again.received).status == 200
        for each in (two, again):
            each.close()
        gateway.run()


def test_limits_of_a_reload_are_for_the_next_request_of_a_connection():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        busy, idle = gateway.client(), gateway.client()
        busy.send(line(1000))
        gateway.run()
        assert gateway.reload(config(limits={"requestLine": "512B"}))
        origin.connections[0].send(OK)
        gateway.run()
        assert answer(busy.take()).status == 200
        for each in (busy, idle):
            each.send(line(513))
            gateway.run()
            assert answer(each.received).status == 414
            each.close()
        gateway.run()
