"""Heads of HTTP/2 that have two readings, or are too large: what an upstream gets to see of them, and what not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import HeadersFrame
from two import BOTH, CALM, PROTOCOL_ERROR, REFUSED_STREAM, Asked, Client, Two, ok
from wire import Message

from h2frames import (
    HEADERS,
    LIST,
    PUSH,
    STREAMS,
    TABLE,
    WINDOW,
    Field,
    continuation,
    data,
    fields,
    headers,
    integer,
    literal,
    many,
    raw,
    req,
    request,
    res,
    settings,
)

pytestmark = pytest.mark.parametrize("engine", BOTH)
BEHIND = pytest.mark.parametrize("behind", ["http1", "http2"])


def refused(two: Two, client: Client, stream: int, *frames: bytes, status: int = 400) -> None:
    """An answer or a reset, one record that blames the client, nothing upstream; and the connection goes on."""
    asked, recorded = len(two.origin.connections), len(two.records)
    client.send(*frames)
    seen = client.seen(stream)
    assert seen in (f"answer {status}", "reset PROTOCOL_ERROR"), seen
    (record,) = two.records[recorded:]
    assert (record.status, record.who, record.malformed) == (status, "client", True), record
    assert record.error
    assert len(two.origin.connections) == asked, "something went upstream"
    client.send(req(stream + 2, b"/next"))
    assert client.seen(stream + 2) == "answer 200"


def fault(two: Two, *names: str) -> None:
    """One of these was counted, and nothing else of the kind."""
    assert sum(map(two.counts, names)) == 1, dict(two.gateway.service.counters.counts)


# -- C15, white space at the ends of values

SPACES: dict[str, Field] = {
    "space first": (b"x-a", b" v"),
    "tab last": (b"x-a", b"v\t"),
    "space last": (b"x-a", b"v "),
    "nothing but a space": (b"x-a", b" "),
    "length": (b"content-length", b" 5"),
    "length last": (b"content-length", b"5 "),
    "cookie": (b"cookie", b"a=1 "),
    "line end": (b"x-a", b"v\r\nx-b: w"),
    "bare line feed": (b"x-a", b"v\nx-b: w"),
    "nul": (b"x-a", b"v\0"),
}


@pytest.mark.parametrize("where", SPACES)
def test_values_that_others_would_strip_or_split_are_refused(engine: str, where: str) -> None:
    with Two(engine, behind="http1") as two:
        refused(two, two.client(), 1, req(1, b"/a", more=[SPACES[where]]))
        fault(two, "malformed_head", "malformed_stream", "bad_framing")


NAMES = {
    "upper case": b"X-A",
    "space": b"x a",
    "colon": b"x:a",
    "line end": b"x-a\r\nx-b",
    "nothing": b"",
    "a field of the connection": b"connection",
    "framing": b"transfer-encoding",
    "upgrade": b"upgrade",
}


@pytest.mark.parametrize("what", NAMES)
def test_names_that_others_would_read_differently_are_refused(engine: str, what: str) -> None:
    with Two(engine, behind="http1") as two:
        refused(two, two.client(), 1, req(1, b"/a", more=[(NAMES[what], b"chunked")]))
        fault(two, "malformed_head", "malformed_stream")


# -- C17, what host is asked

AUTHORITIES: dict[str, tuple[bytes | None, Sequence[bytes]]] = {
    "a path in it": (b"a.test/b", ()),
    "a user in it": (b"u@a.test", ()),
    "a user with a password": (b"u:p@a.test", ()),
    "a space in it": (b"a b", ()),
    "empty": (b"", ()),
    "a query in it": (b"a.test?x", ()),
    "a fragment in it": (b"a.test#x", ()),
    "a backslash in it": (b"a.test\\b", ()),
    "a port that is none": (b"a.test:8x", ()),
    "two ports": (b"a.test:80:80", ()),
    "host says another": (b"a.test", (b"b.test",)),
    "host says another port": (b"a.test", (b"a.test:81",)),
    "host says two": (b"a.test", (b"a.test", b"a.test")),
    "two hosts without it": (None, (b"a.test", b"b.test")),
    "neither": (None, ()),
    "an empty host without it": (None, (b"",)),
    "host has a user": (None, (b"u@a.test",)),
}


@pytest.mark.parametrize("what", AUTHORITIES)
def test_an_authority_with_two_readings_is_refused(engine: str, what: str) -> None:
    authority, hosts = AUTHORITIES[what]
    with Two(engine, behind="http1") as two:
        more = [(b"host", host) for host in hosts]
        refused(two, two.client(), 1, req(1, b"/a", more=more, authority=authority))
        fault(two, "bad_host", "malformed_stream", "malformed_head")


def test_the_host_of_http_1_is_made_from_the_authority(engine: str) -> None:
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(
            req(1, authority=b"A.test:8080"),
            req(3, more=[(b"host", b"a.test")]),
            req(5, more=[(b"host", b"b.test")], authority=None),
        )
        assert [request.all(b"host") for request in two.origin.requests] == [[b"A.test:8080"], [b"a.test"], [b"b.test"]]
        assert {request.target for request in two.origin.requests} == {b"/"}


def test_the_authority_of_http_2_is_made_from_the_host(engine: str) -> None:
    with Two(engine) as two:
        two.client().send(req(1, authority=b"a.test:8080"), req(3, more=[(b"host", b"b.test")], authority=None))
        assert [asked.all(b":authority") for asked in two.asked] == [[b"a.test:8080"], [b"b.test"]]
        assert [asked.all(b"host") for asked in two.asked] == [[], []]


# -- C19, crumbs of cookies

CRUMBS = [(b"cookie", b"a=1"), (b"x-between", b"1"), (b"cookie", b"b=2"), (b"cookie", b"c=3")]


@BEHIND
def test_crumbs_of_cookies_leave_as_one_field(engine: str, behind: str) -> None:
    with Two(engine, behind=behind) as two:
        two.client().send(req(1, more=CRUMBS))
        if behind == "http1":
            assert two.origin.requests[0].all(b"cookie") == [b"a=1; b=2; c=3"]
        else:
            assert two.asked[0].all(b"cookie") == [b"a=1; b=2; c=3"]


def test_crumbs_are_bounded_together(engine: str) -> None:
    """One cookie of that size would not be taken; nor is it in pieces."""
    crumbs = [(b"cookie", b"%03d=" % n + b"v" * 500) for n in range(17)]
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(req(1, more=crumbs))
        assert client.seen(1) == "answer 431"
        assert two.counts("header_line_too_long") == 1
        assert not two.origin.connections
        client.send(req(3, more=crumbs[:16]))
        assert client.seen(3) == "answer 200"
        assert len(two.origin.requests[0].all(b"cookie")[0]) < 8192


# -- C5, F1: too large, and still in step


KEPT = literal(b"x-kept", b"secret", 0x40)
"""An entry of the table, which later heads use."""
LATEST = b"\xbe"


@BEHIND
def test_a_head_that_is_too_large_is_refused_and_the_table_stays_in_step(engine: str, behind: str) -> None:
    with Two(engine, behind=behind) as two:
        client = two.client()
        block = fields(request()) + fields(many(68_000)) + KEPT
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        client.send(
            headers(1, pieces[0], last=False),
            *[continuation(1, piece, n == len(pieces) - 2) for n, piece in enumerate(pieces[1:])],
        )
        assert client.seen(1) == "answer 431"
        assert two.counts("headers_too_large") == 1
        assert not two.origin.connections
        client.send(headers(3, fields(request()) + LATEST))
        assert client.seen(3) == "answer 200"
        (kept,) = [two.asked[0].all(b"x-kept") if behind == "http2" else two.origin.requests[0].all(b"x-kept")]
        assert kept == [b"secret"]
        assert two.statuses == [431, 200]


def test_a_head_that_is_far_too_large_ends_the_connection_rather_than_to_be_skipped(engine: str) -> None:
    with Two(engine) as two:
        client = two.client()
        client.send(
            headers(1, fields(request()), last=False),
            *[continuation(1, fields(many(16_000)), n == 25) for n in range(26)],
            headers(3, fields(request()) + LATEST),
        )
        two.advance(5)
        assert client.peer.closed
        assert client.peer.goaways == [(0, CALM)]
        assert two.counts("header_flood") == 1
        assert two.asked == []
        assert two.records == []


def test_a_small_block_that_stands_for_a_large_head_is_not_let_grow(engine: str) -> None:
    """A bomb: one entry of the table, named again and again."""
    with Two(engine) as two:
        client = two.client()
        client.send(headers(1, fields(request()) + literal(b"x-bomb", b"v" * 4000, 0x40)))
        assert client.seen(1) == "answer 200"
        client.send(headers(3, fields(request()) + LATEST * 30))
        assert client.seen(3) == "answer 431"
        client.send(headers(5, fields(request()) + LATEST * 16_000))
        two.advance(5)
        assert client.peer.closed
        assert two.counts("header_flood") == 1
        assert len(two.asked) == 1


LARGE: dict[str, tuple[bytes, int, str]] = {
    "a field": (req(1, more=[(b"x-a", b"v" * 8300)]), 431, "header_line_too_long"),
    "their number": (req(1, more=[(b"x-%d" % n, b"v") for n in range(129)]), 431, "too_many_headers"),
    "the target": (req(1, b"/" + b"a" * 8300), 414, "request_line_too_long"),
    "the content": (req(1, b"/", b"POST", [(b"content-length", b"1001")], end=False), 413, "body_too_large"),
}


@pytest.mark.parametrize("what", LARGE)
def test_each_limit_has_its_answer_and_is_no_reason_to_try_again(engine: str, what: str) -> None:
    """REFUSED_STREAM would be one: it says that the request was not looked at."""
    frame, status, event = LARGE[what]
    with Two(engine, None, limits={"body": "1000B"}) as two:
        client = two.client()
        client.send(req(1001, b"/under-way"))
        client.send(frame.replace(b"\0\0\0\1", (1003).to_bytes(4, "big"), 1))
        assert client.message(1003).status == status
        assert client.resets.get(1003) in (None, 0)
        assert two.counts(event) == 1
        assert len(two.asked) == 1
        two.reply(ok(two.asked[0]))
        assert client.seen(1001) == "answer 200"
        assert sorted(two.statuses) == [200, status]


def test_a_head_of_an_upstream_that_is_too_large_is_a_502_and_its_table_stays_in_step(engine: str) -> None:
    def answer(asked: Asked) -> bytes:
        if len(two.asked) == 1:
            block = fields([(b":status", b"200"), *many(68_000)]) + KEPT
            pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
            return headers(asked.stream, pieces[0], last=False) + b"".join(
                continuation(asked.stream, piece, n == len(pieces) - 2) for n, piece in enumerate(pieces[1:])
            )
        return headers(asked.stream, b"\x88" + LATEST)

    with Two(engine, answer) as two:
        client = two.client()
        client.send(req(1))
        assert client.message(1).status == 502
        assert two.counts("response_headers_too_large") == 1
        client.send(req(3))
        assert client.seen(3) == "answer 200"
        assert (b"x-kept", b"secret") in client.message(3).heads[0]
        assert len(two.origin.connections) == 1


# -- C7, settings


def test_what_the_gateway_says_of_itself_has_its_own_numbers(engine: str) -> None:
    with Two(engine, told={"streams": 7, "window": "100KiB", "connectionWindow": "1MiB"}) as two:
        client = two.client()
        said = client.peer.settings
        assert (said[STREAMS], said[WINDOW]) == (7, 102_400)
        assert said[LIST] > 65536
        assert 65535 + client.peer.credit[0] == 1 << 20
        client.send(req(1))
        upstream = two.asked[0].end.peer
        assert (upstream.settings[PUSH], upstream.settings[WINDOW]) == (0, 102_400)
        assert STREAMS not in upstream.settings
        assert 65535 + upstream.credit[0] == 1 << 20


SETTINGS = {
    "push 2": (settings((PUSH, 2)), PROTOCOL_ERROR),
    "push 1": (settings((PUSH, 1)), PROTOCOL_ERROR),
    "window": (settings((WINDOW, 1 << 31)), 3),
    "frame too small": (settings((5, 16383)), PROTOCOL_ERROR),
    "frame too large": (settings((5, 1 << 24)), PROTOCOL_ERROR),
    "on a stream": (settings(stream=1), PROTOCOL_ERROR),
    "five bytes": (b"\0\0\5\4\0\0\0\0\0" + bytes(5), 6),
    "an ACK with content": (b"\0\0\6\4\1\0\0\0\0" + bytes(6), 6),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_of_an_upstream_that_are_wrong_end_its_connection_alone(engine: str, what: str) -> None:
    frame, code = SETTINGS[what]
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1), req(3))
        two.reply(frame)
        two.advance(5)
        (served,) = two.origin.connections
        assert served.peer.closed
        assert served.peer.goaways[-1][1] in (code, PROTOCOL_ERROR)
        assert [client.message(number).status for number in (1, 3)] == [502, 502]
        assert two.counts("malformed_frame") == 1
        assert {record.who for record in two.records} == {"upstream"}
        two.origin.answers = (ok,)
        client.send(req(5))
        assert client.seen(5) == "answer 200"


FINE = {
    "nothing": settings(),
    "a list of 0": settings((LIST, 0)),
    "unknown": settings((0x99, 7), (0xFFFF, 0)),
    "a table of 0": settings((TABLE, 0)),
    "a large table": settings((TABLE, 1 << 31)),
    "twice the same": settings((WINDOW, 0), (WINDOW, 65535)),
}


@pytest.mark.parametrize("what", FINE)
def test_settings_that_may_be_said_change_nothing_for_requests(engine: str, what: str) -> None:
    """MAX_HEADER_LIST_SIZE is advice, and 0 is a value of it."""
    with Two(engine, None) as two:
        client = two.client()
        client.send(FINE[what], req(1, more=[(b"x-a", b"v" * 1000)]))
        two.reply(FINE[what])
        two.reply(res(1, more=[(b"x-b", b"w" * 1000)], end=False), data(1, bytes(30_000), False)[:0])
        two.reply(data(1, b"ok", True))
        assert client.seen(1) == "answer 200"
        assert (b"x-b", b"w" * 1000) in client.message(1).heads[0]
        two.origin.answers = (ok,)
        client.send(req(3, more=[(b"x-a", b"v" * 1000)]))
        assert client.seen(3) == "answer 200"
        assert two.asked[1].all(b"x-a") == [b"v" * 1000]


def test_an_upstream_takes_as_many_requests_at_once_as_it_says(engine: str) -> None:
    """The others wait, on that connection or for another."""
    with Two(engine, ok, None, said={STREAMS: 2}, pool={"maxPerEndpoint": 1}) as two:
        client = two.client()
        client.send(req(1))
        numbers = range(3, 15, 2)
        client.send(*[req(number) for number in numbers])
        (served,) = two.origin.connections
        for n in range(1, 7):
            assert len(two.asked) == min(n + 2, 7), "one that was answered, and two at once"
            two.reply(ok(two.asked[n]), which=n)
        assert [client.seen(number) for number in numbers] == ["answer 200"] * 6
        assert REFUSED_STREAM not in client.resets.values()
        assert served.lost is None


def test_an_index_beyond_the_tables_ends_the_connection(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1))
        client.send(headers(3, fields(request()) + integer(99, 7, 0x80)))
        two.advance(5)
        assert client.peer.closed
        assert client.peer.goaways[-1][1] in (9, PROTOCOL_ERROR)
        assert two.statuses == [400]
        assert two.asked[0].reset is not None


def test_a_request_of_http_1_reads_the_same_in_http_2(engine: str) -> None:
    """Through both: what a strict reader of HTTP/1 sees is what was meant."""
    with Two(engine, behind="http1") as two:
        two.client().send(
            req(1, b"/a?b=c", b"POST", [(b"x-a", b"1"), (b"x-a", b"2"), (b"te", b"trailers")], end=False),
            data(1, b"hello", True, 20),
        )
        (request,) = two.origin.requests
        assert isinstance(request, Message)
        assert (request.method, request.target, request.body) == (b"POST", b"/a?b=c", b"hello")
        assert request.all(b"x-a") == [b"1", b"2"]


def test_a_field_that_no_table_may_have_stays_one(engine: str) -> None:
    """RFC 7541, 6.2.3: also behind a gateway, whose connection to the server is shared."""
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test"), ("x-open", "1")]
    block = Encoder().encode([*fields, NeverIndexedHeaderTuple("x-api-key", "secret")])
    with Two(engine) as two:
        client = two.client()
        client.send(raw(HEADERS, 5, 1, block))
        assert client.seen(1) == "answer 200"
        head = next(frame for frame in two.asked[0].end.peer.frames if isinstance(frame, HeadersFrame))
        found = [each for each in Decoder().decode(head.data) if isinstance(each, NeverIndexedHeaderTuple)]
        assert found == [("x-api-key", "secret")]
