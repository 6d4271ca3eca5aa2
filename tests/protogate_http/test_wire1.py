"""The reader of HTTP/1.1: what it takes, what it refuses, and that the cut into reads makes no difference."""

from __future__ import annotations

import h11
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.context import Limits
from protogate_http import wire1
from protogate_http.wire1 import CHUNKED, CLOSE, NONE, TRANSITIONS, Bad, End, Head, Requests, Responses, unfold

LIMITS = Limits()


def reach():
    """From each state, the states that a single next() may lead to: it may take several steps within a chunked body."""
    found = {state: set(after) for state, after in TRANSITIONS.items()}
    chunked = set(range(wire1.SIZE_STATE, wire1.TRAILER + 1))
    for _ in TRANSITIONS:
        for state in chunked:
            for other in list(found[state]):
                if other in chunked:
                    found[state] |= found[other]
    return found


REACH = reach()


def drain(reader, lengths, seen):
    """Events, with consecutive body bytes joined; lengths are given to body() after each head."""
    while True:
        before = reader.state
        event = reader.next()
        assert reader.state in REACH[before], (before, reader.state)
        if isinstance(event, Head):
            seen.append(("head", event.start, event.fields))
            reader.body(next(lengths, NONE))
        elif isinstance(event, End):
            seen.append(("end", event.trailers))
        elif event is not None:
            if seen and seen[-1][0] == "data":
                seen[-1] = ("data", seen[-1][1] + event)
            else:
                seen.append(("data", event))
        if reader.whole:
            reader.whole = False
            seen.append(("end", None))
        elif event is None:
            return seen


def read(kind, pieces, lengths=(), limits=LIMITS):
    reader, seen, lengths = kind(limits), [], iter(lengths)
    for piece in pieces:
        reader.feed(piece)
        try:
            drain(reader, lengths, seen)
        except Bad as error:
            seen.append(("bad", error.status, error.event, error.start, error.fields))
            assert reader.state == wire1.BROKEN
            reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert reader.next() is None, "nothing is read after an error"
            assert reader.pending() == 0
            break
    return seen


def every_way(kind, data, lengths=(), limits=LIMITS):
    """The same events however the bytes come."""
    whole = read(kind, [data], lengths, limits)
    assert read(kind, [data[i : i + 1] for i in range(len(data))], lengths, limits) == whole
    for at in range(1, len(data)):
        assert read(kind, [data[:at], data[at:]], lengths, limits) == whole, at
    return whole


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
BODIES = [
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello", None),
    (b'5;a=b\r\nhello\r\n1 ; c="x;\\"y" ;d\r\n!\r\n0\r\n\r\n', b"hello!", None),
    (
        b"00000000000000A\r\n0123456789\r\n0\r\nX-Sum: 7\r\nx-a:\r\n\r\n",
        b"0123456789",
        [(b"x-sum", b"7"), (b"x-a", b"")],
    ),
    (b"0\r\n\r\n", None, None),
]


@pytest.mark.parametrize(("data", "body", "trailers"), BODIES)
def test_chunked_bodies_come_out_without_their_framing(data, body, trailers):
    seen = every_way(Requests, GET + b"\r\n" + data + GET + b"\r\n", [CHUNKED, NONE])
    assert seen[1:-2] == ([("data", body)] if body else []) + [("end", trailers)]
    assert seen[-2][0] == "head"


BAD_BODIES = {
    "overflow": b"10000000000000000\r\nhello",
    "16 digits": b"FFFFFFFFFFFFFFFF\r\n",
    "negative": b"-5\r\nhello",
    "plus": b"+5\r\nhello",
    "prefix": b"0x5\r\nhello",
    "underscore": b"1_0\r\nhello",
    "leading zeros": b"0" * 1000 + b"5\r\nhello\r\n0\r\n\r\n",
    "empty size": b"\r\n\r\n",
    "space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "space after": b"5 \r\nhello\r\n0\r\n\r\n",
    "word": b"INVALID\r\n",
    "bare LF": b"5\nhello\n0\n\n",
    "LF in extension": b"2;\nxx\r\n10\r\n",
    "CR before extension": b"5\r;a\r\nhello\r\n0\r\n\r\n",
    "CR CR": b"5\r\r;a\r\nhello\r\n0\r\n\r\n",
    "line end in quotes": b'2;a="\r\n"\r\nxx\r\n0\r\n\r\n',
    "NUL in extension": b"2;a\x00\r\nxx\r\n0\r\n\r\n",
    "nameless extension": b"2;\r\nxx\r\n0\r\n\r\n",
    "open quotes": b'2;a="b\r\nxx\r\n0\r\n\r\n',
    "endless extension": b"2;" + b"a" * 300,
    "spill": b"5\r\nhelloXX0\r\n\r\n",
    "no CRLF after data": b"5\r\nhello0\r\n\r\n",
    "longer than said": b"5\r\nhelloworld\r\n0\r\n\r\n",
    "LF after data": b"5\r\nhello\n0\r\n\r\n",
    "CR after data": b"5\r\nhello\rX0\r\n\r\n",
    "bad trailer": b"0\r\nX : y\r\n\r\n",
    "folded trailer": b"0\r\nX: y\r\n z\r\n\r\n",
    "request as trailer": b"0\r\nGET / HTTP/1.1\r\n\r\n",
    "NUL in trailer": b"0\r\nX: \x00\r\n\r\n",
    "many trailers": b"0\r\n" + b"a: b\r\n" * 129 + b"\r\n",
    "non-ASCII digits": "５\r\nhello".encode(),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_chunked_bodies_with_two_readings_are_refused(name):
    data = BAD_BODIES[name]
    if name != "leading zeros" and len(data) < 100:
        seen = every_way(Requests, GET + b"\r\n" + data + GET + b"\r\n", [CHUNKED])
    else:
        seen = read(Requests, [GET + b"\r\n" + data + GET + b"\r\n"], [CHUNKED])
    assert seen[-1][:3] == ("bad", 400, "malformed_body")
    assert len([event for event in seen if event[0] == "head"]) == 1


@pytest.mark.parametrize(
    "data", [b"5\n", b"5;a\n", b"\n", b"0\r\n\n", b"0\r\nX: y\n", b"0\r\nX: y\r\n\n", b"5\r\nhello\r\n0\n"]
)
def test_a_bare_line_feed_in_the_framing_is_refused_before_anything_follows_it(data):
    for cut in range(len(data)):
        seen = read(Requests, [GET + b"\r\n" + data[:cut], data[cut:]], [CHUNKED])
        assert seen[-1][:3] == ("bad", 400, "malformed_body")


def test_line_feeds_behind_trailers_are_none_of_theirs():
    seen = every_way(Requests, GET + b"\r\n0\r\nX: y\r\n\r\n" + GET + b"\r\n\n\n", [CHUNKED, 2])
    assert seen[-2:] == [("data", b"\n\n"), ("end", None)]


def test_large_trailers_are_refused_while_they_come():
    limits = Limits(headers=100)
    reader = Requests(limits)
    reader.feed(GET + b"\r\n0\r\n")
    drain(reader, iter([CHUNKED]), [])
    reader.feed(b"a: " + b"b" * 100)
    with pytest.raises(Bad) as info:
        reader.next()
    assert (info.value.status, info.value.event) == (431, "trailers_too_large")
    seen = read(Requests, [GET + b"\r\n0\r\n", b"a: " + b"b" * 95 + b"\r\n\r\n"], [CHUNKED], limits)
    assert seen[-1] == ("end", [(b"a", b"b" * 95)])


def test_consecutive_chunks_of_one_read_come_as_one_piece():
    reader = Requests(LIMITS)
    reader.feed(GET + b"\r\n" + b"1\r\na\r\n" * 1000)
    assert isinstance(reader.next(), Head)
    reader.body(CHUNKED)
    assert reader.next() == b"a" * 1000


def test_counted_and_unlimited_bodies():
    seen = every_way(Requests, GET + b"\r\nhello" + GET + b"\r\n", [5, NONE])
    assert [event[0] for event in seen] == ["head", "data", "end", "head", "end"]
    assert seen[1] == ("data", b"hello")
    seen = every_way(Responses, b"HTTP/1.1 200 OK\r\n\r\nabc\r\n\r\ndef", [CLOSE])
    assert seen[1:] == [("data", b"abc\r\n\r\ndef")]


def test_eof_is_clean_between_messages_and_in_unlimited_bodies_only():
    reader = Responses(LIMITS)
    assert reader.eof()
    reader.feed(b"HTTP/1.1 ")
    reader.next()
    assert not reader.eof()
    reader.feed(b"200 OK\r\n\r\n")
    reader.next()
    reader.body(5)
    assert not reader.eof()
    reader.feed(b"12345")
    reader.next()
    assert reader.eof()
    reader.body(CLOSE)
    assert reader.eof()


GOOD = {
    b"GET / HTTP/1.1\r\n\r\n": (b"GET", b"/", b"1"),
    b"\r\nGET / HTTP/1.0\r\n\r\n": (b"GET", b"/", b"0"),
    b"!#$%&'*+-.^_`|~aZ9 /\x21\x7e{}\"<>\\^` HTTP/1.1\r\nX:\r\n\r\n": (
        b"!#$%&'*+-.^_`|~aZ9",
        b'/\x21\x7e{}"<>\\^`',
        b"1",
    ),
}


@pytest.mark.parametrize("data", GOOD)
def test_request_lines(data):
    seen = every_way(Requests, data + data)
    assert seen[0][1] == seen[2][1] == GOOD[data]


def test_values_lose_outer_space_and_names_their_case():
    seen = every_way(Requests, b"GET / HTTP/1.1\r\nHoSt: \t a b\t \r\nx-\xc3:y\r\n\r\n".replace(b"-\xc3", b"-b") + GET)
    assert seen[0][2] == [(b"host", b"a b"), (b"x-b", b"y")]
    assert every_way(Requests, b"GET / HTTP/1.1\r\nX: \xff\x80\r\n\r\n")[0][2] == [(b"x", b"\xff\x80")]


BAD_HEADS = [
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    b"GET / HTTP/1.1\rHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x01\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x7f\r\n\r\n",
    b"GET / HTTP/1.1\r\nX : a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX\t: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX\x85: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX\xa0: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\r\n\tb\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\r\n \t\r\n\r\n",
    b"GET / HTTP/1.1\r\n X: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\r\n\x0bb: c\r\n\r\n",
    b"GET / HTTP/1.1\r\n: a\r\n\r\n",
    b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
    b"GET / HTTP/1.1\r\n(a): c\r\n\r\n",
    b"GET / HTTP/1.1\r\n\xefa: c\r\n\r\n",
    b"GET / HTTP/1.1\r\na\r\n\r\n",
    b"GET  / HTTP/1.1\r\n\r\n",
    b"GET /  HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1 \r\n\r\n",
    b" GET / HTTP/1.1\r\n\r\n",
    b"GET\t/\tHTTP/1.1\r\n\r\n",
    b"GET / http/1.1\r\n\r\n",
    b"GET / HTTP/1.10\r\n\r\n",
    b"GET / HTTP/11\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET /\x80 HTTP/1.1\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\n\r\n",
    b"G\x00T / HTTP/1.1\r\n\r\n",
    b"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"\rGET / HTTP/1.1\r\n\r\n",
    b"\nGET / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("data", BAD_HEADS)
def test_heads_with_two_readings_are_refused(data):
    seen = every_way_but_salvage(data + GET + b"\r\n", LIMITS)
    assert len(seen) == 1
    assert seen[0][:3] == ("bad", 400, "malformed_head")


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/1.2", b"HTTP/0.9", b"HTTP/3.0"])
def test_other_versions_are_named(version):
    seen = every_way(Requests, b"GET / " + version + b"\r\nHost: a\r\n\r\n")
    assert seen[0][:3] == ("bad", 505, "http_version_not_supported")


def test_bare_lf_is_refused_without_waiting_for_more():
    assert read(Requests, [b"GET / HTTP/1.1\n"])[0][0] == "bad"


SMALL = Limits(request_line=30, header_line=20, headers=60, header_count=4)


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (b"GET /" + b"a" * 16 + b" HTTP/1.1\r\n\r\n", None),
        (b"GET /" + b"a" * 17 + b" HTTP/1.1\r\n\r\n", "request_line_too_long"),
        (b"GET /" + b"a" * 1000, "request_line_too_long"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 17 + b"\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 18 + b"\r\n\r\n", "header_line_too_long"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 500, "header_line_too_long"),
        (b"GET / HTTP/1.1\r\nContent-Length0" + b"a" * 255 + b": 1\r\n\r\n", "header_line_too_long"),
        (b"GET / HTTP/1.1\r\n" + b"A: 45678901234567\r\n" * 3 + b"B:\r\n\r\n", "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"A: 456789012345678\r\n" * 3 + b"\r\n", None),
        (b"GET / HTTP/1.1\r\n" + b"A: 456789012345678\r\n" * 3 + b"B:\r\n\r\n", "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"A:\r\n" * 4 + b"\r\n", None),
        (b"GET / HTTP/1.1\r\n" + b"A:\r\n" * 5 + b"\r\n", "too_many_headers"),
        (b"GET / HTTP/1.1\r\n" + b"A:\r\n" * 500, "too_many_headers"),
        (b"GET / HTTP/1.1\r\nA: b\nB: " + b"b" * 50 + b"\r\n\r\n", "malformed_head"),
        (b"GET / HTTP/1.1\r\n\rA\r\n" + b"\rB\r\n" * 50, "too_many_headers"),
    ],
)
def test_each_limit_of_a_head_has_its_own_event_however_it_comes(data, event):
    if len(data) > 300:
        seen = read(Requests, [data], (), SMALL)
        assert read(Requests, [data[i : i + 1] for i in range(len(data))], (), SMALL)[0][:3] == seen[0][:3]
    else:
        seen = [item[:3] for item in every_way_but_salvage(data, SMALL)]
    if event is None:
        assert seen[0][0] == "head"
    else:
        status = {"request_line_too_long": 414, "malformed_head": 400}.get(event, 431)
        assert seen[-1][:3] == ("bad", status, event)


def every_way_but_salvage(data, limits):
    """What can be saved of a bad head depends on how much was there; nothing else does."""

    def cut(seen):
        return [event[:3] for event in seen]

    whole = cut(read(Requests, [data], (), limits))
    for at in range(1, len(data)):
        assert cut(read(Requests, [data[:at], data[at:]], (), limits)) == whole, at
    assert cut(read(Requests, [data[i : i + 1] for i in range(len(data))], (), limits)) == whole
    return whole


@given(st.lists(st.sampled_from([b"A: b\r\n", b"CC: 5678\r\n", b"D:\n", b"E: " + b"e" * 30 + b"\r\n", b"\r", b"x"])))
def test_limits_do_not_depend_on_the_cut(lines):
    every_way_but_salvage(b"GET / HTTP/1.1\r\n" + b"".join(lines) + b"\r\n\r\n", SMALL)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\n",  # HTTP/0.9
        b"GET / HTTP/1.1 \r\n",
        b"get it\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the hello of TLS
        b" GET",
        b"\x00",
    ],
)
def test_who_does_not_begin_with_a_request_line_is_refused_without_waiting_for_more(data):
    assert [seen[:3] for seen in every_way_but_salvage(data, LIMITS)] == [("bad", 400, "malformed_head")]


def test_a_request_line_too_long_is_told_from_one_that_is_none_however_it_comes():
    assert every_way_but_salvage(b"GET /" + b"a" * 40 + b"\r\n\r\n", SMALL)[0][1] == 414
    assert every_way_but_salvage(b"GET /\r\n" + b"A: " + b"a" * 40 + b"\r\n\r\n", SMALL)[0][1] == 400


def test_a_bad_head_keeps_its_good_parts():
    bad = read(Requests, [b"GET /x HTTP/1.1\r\nHost: a\r\nB : c\r\nUser-Agent: me\r\nX: " + b"y" * 9000 + b"\r\n\r\n"])[
        0
    ]
    assert bad[2:] == ("header_line_too_long", (b"GET", b"/x"), [(b"host", b"a"), (b"user-agent", b"me")])
    bad = read(Requests, [b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"])[0]
    assert bad[3][0] == b"GET"
    assert len(bad[3][1]) <= LIMITS.request_line
    assert read(Requests, [b"\x16\x03\x01\x02\n"])[0][3:] == ((b"-", b"-"), [])


def test_partial_gives_what_is_there():
    reader = Requests(LIMITS)
    reader.feed(b"GET /slow HTTP/1.1\r\nHost: a\r\nX: ")
    assert reader.next() is None
    bad = reader.partial()
    assert (bad.start, bad.fields) == ((b"GET", b"/slow"), [(b"host", b"a"), (b"x", b"")])
    assert reader.next() is None


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", (b"1", b"200")),
        (b"HTTP/1.0 404\r\n\r\n", (b"0", b"404")),
        (b"HTTP/1.1 503 \r\n\r\n", (b"1", b"503")),
        (b"HTTP/1.1 200 \xc3\xa9t\xc3\xa9\r\n\r\n", (b"1", b"200")),
    ],
)
def test_status_lines(data, start):
    assert every_way(Responses, data)[0] == ("head", start, [])


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 600 x\r\n\r\n",
        b"HTTP/1.1 20 x\r\n\r\n",
        b"HTTP/1.1 2000 x\r\n\r\n",
        b"HTTP/1.1  200 x\r\n\r\n",
        b"HTTP/1.1 200x\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: y\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"220 smtp.example.com ESMTP\r\n\r\n",
    ],
)
def test_bad_response_heads(data):
    assert every_way(Responses, data + b"HTTP/1.1 200 OK\r\n\r\n")[0][:3] == ("bad", 502, "malformed_response")


@pytest.mark.parametrize(
    "data",
    [
        b"220 smtp.example.com ESMTP\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nA: b\n",
        b"HTTP/2.0 200\r\n",
        b"\r\n",
    ],
)
def test_who_does_not_begin_with_a_status_line_is_refused_without_waiting_for_more(data):
    assert every_way(Responses, data)[-1][:3] == ("bad", 502, "malformed_response")


def test_a_status_line_may_be_as_long_as_a_head():
    head = b"HTTP/1.1 200 " + b"y" * 3 * wire1.STATUS_LINE + b"\r\nA: b\r\n\r\n"
    assert read(Responses, [head[i : i + 1] for i in range(len(head))])[0] == ("head", (b"1", b"200"), [(b"a", b"b")])


def test_folded_lines_of_an_upstream_are_joined_by_a_space():
    seen = every_way(Responses, b"HTTP/1.1 200 OK\r\nX: a \r\n\t b\r\nY:\r\n c\r\nZ: d\r\n \r\n\r\n")
    assert seen[0][2] == [(b"x", b"a b"), (b"y", b"c"), (b"z", b"d")]
    assert unfold(b"HTTP/1.1 200 OK\r\nX: a\r\n\x0bb\r\n\r\n") == b"HTTP/1.1 200 OK\r\nX: a\r\n\x0bb\r\n\r\n"


def test_response_heads_have_a_limit_of_their_own():
    limits = Limits(response_headers=40)
    head = b"HTTP/1.1 200 OK\r\nX: " + b"y" * 16 + b"\r\n\r\n"
    assert len(head) == 40
    assert every_way(Responses, head, (), limits)[0][0] == "head"
    for data in (head.replace(b"yy", b"yyy", 1), head[:-4] + b"y" * 1000):
        assert every_way(Responses, data, (), limits)[0][:3] == ("bad", 502, "response_headers_too_large")


def test_spellings_are_cached_up_to_a_bound():
    for i in range(5000):
        assert wire1.low(b"X-%d" % i) == b"x-%d" % i
        assert wire1.parse(b"X-%d: y" % i) == (b"x-%d" % i, b"y")
    assert len(wire1._lower) <= 4096
    assert len(wire1._names) <= 4096
    assert b"X-1" in wire1._names


def test_status_lines_are_remembered_up_to_a_bound():
    for i in range(2 * wire1.KNOWN):
        assert wire1.answered(b"HTTP/1.1 200 %d" % i) == (b"1", b"200")
    assert 0 < len(wire1._statuses) <= wire1.KNOWN
    wire1.answered(b"HTTP/1.1 200 " + b"x" * wire1.LONG)
    assert max(map(len, wire1._statuses)) < wire1.LONG


def test_names_whose_values_are_remembered_are_whole_names():
    assert {b"user-agent", b"content-encoding", b"access-control-allow-headers"} <= wire1.REMEMBERED
    assert not [name for name in wire1.REMEMBERED if name.endswith(b"-")]


TOKENS = st.text("abcXYZ019-_!~", min_size=1, max_size=8).map(str.encode)
VALUES = st.lists(st.integers(0x21, 0x7E), max_size=8).map(bytes)


def test_lines_that_come_again_and_again_are_remembered_up_to_a_bound():
    for i in range(3 * wire1.KNOWN):
        assert wire1.parsed([b"User-Agent:  %d " % i]) == [(b"user-agent", b"%d" % i)]
        assert wire1.parsed([b"User-Agent:  %d " % i]) == [(b"user-agent", b"%d" % i)]
    assert 0 < len(wire1._common) <= wire1.KNOWN
    wire1.parsed([b"Accept: " + b"x" * wire1.LONG])
    assert max(map(len, wire1._common)) < wire1.LONG


def test_no_secret_is_remembered():
    lines = [b"Authorization: Bearer 1", b"Cookie: sid=1", b"X-Api-Key: 1", b"Set-Cookie: a=1", b"X-Request-Id: 1"]
    assert wire1.parsed(lines) is not None
    assert not set(lines) & set(wire1._common)


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"Host: a", b"host:a", b"Host : a", b"Accept: */*"])))
)
def test_remembering_makes_no_difference(lines):
    fresh = [wire1.parse(line) for line in lines]
    for _ in range(2):
        assert wire1.parsed(lines) == (None if None in fresh else fresh)


@given(st.lists(st.tuples(TOKENS, VALUES), max_size=6), VALUES.filter(len))
def test_heads_are_read_as_other_parsers_read_it(fields, target):
    lines = [b"%b: %b\r\n" % field for field in [(b"Host", b"a"), *fields]]
    data = b"".join([b"GET /", target, b" HTTP/1.1\r\n", *lines, b"\r\n"])
    (kind, start, got), _ = read(Requests, [data])
    expected = [(b"host", b"a")] + [(name.lower(), value) for name, value in fields]
    assert (kind, start, got) == ("head", (b"GET", b"/" + target, b"1"), expected)
    other = h11.Connection(h11.SERVER)
    other.receive_data(data)
    event = other.next_event()
    assert list(event.headers) == expected
    assert event.target == b"/" + target


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5), st.integers(1, 30))
def test_chunked_bodies_are_read_as_other_parsers_read_them(chunks, size):
    data = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data
    seen = read(Requests, [data[at : at + size] for at in range(0, len(data), size)], [CHUNKED])
    body = b"".join(event[1] for event in seen if event[0] == "data")

    class Other:
        def __init__(self):
            self.body = b""

        def on_body(self, data):
            self.body += data

    other = Other()
    httptools.HttpRequestParser(other).feed_data(data)
    assert body == other.body == b"".join(chunks)
    assert seen[-1] == ("end", None)


@given(st.binary(max_size=200), st.booleans())
def test_garbage_never_raises_anything_else(data, response):
    read(Responses if response else Requests, [data, b"\r\n\r\n"], [CHUNKED, 3, CLOSE])


@given(st.binary(max_size=60), st.integers(0, 59))
def test_garbage_in_chunks_reads_the_same_however_it_comes(data, at):
    whole = read(Requests, [GET + b"\r\n5\r\nhello\r\n" + data], [CHUNKED])
    pieces = [GET + b"\r\n5\r\nhello\r\n" + data[:at], data[at:]]
    assert read(Requests, [piece for piece in pieces if piece], [CHUNKED]) == whole


def test_tiny_chunks_with_long_extensions_are_refused():
    line = b"1;" + b"x" * 200 + b"\r\na\r\n"
    seen = read(Requests, [GET + b"\r\n", *[line] * 200], [CHUNKED])
    assert seen[-1][:3] == ("bad", 400, "malformed_body")
    assert 50 < len(seen[1][1]) < 150
    line = b"64;" + b"x" * 200 + b"\r\n" + b"a" * 100 + b"\r\n"
    seen = read(Requests, [GET + b"\r\n" + line * 1000 + b"0\r\n\r\n"], [CHUNKED])
    assert seen[1:] == [("data", b"a" * 100_000), ("end", None)]
