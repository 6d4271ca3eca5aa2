"""Content of HTTP/2 that is not as long as it said: nobody behind takes it for whole, or gets the surplus."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scene import CHUNKED
from scene import ok as ok1
from two import BOTH, CANCEL, INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR, Asked, Origin2, Two, ok, room

from h2frames import Field, data, fields, headers, req, res

pytestmark = pytest.mark.parametrize("engine", BOTH)
BEHIND = pytest.mark.parametrize("behind", ["http1", "http2"])
TRAILERS = headers(1, fields([(b"x-sum", b"1")]))


def post(*lengths: bytes, end: bool = False) -> bytes:
    """A request that says how long it will be."""
    return req(1, b"/a", b"POST", [(b"content-length", length) for length in lengths], end)


WRONG: dict[str, Sequence[bytes]] = {
    "none of five": (post(b"5", end=True),),
    "empty and ended": (post(b"5"), data(1, b"", True)),
    "three of five": (post(b"5"), data(1, b"abc", True)),
    "three of five and trailers": (post(b"5"), data(1, b"abc"), TRAILERS),
    "trailers instead of five": (post(b"5"), TRAILERS),
    "sixteen instead of four": (post(b"4"), data(1, b"x" * 16, True)),
    "sixteen in pieces": (post(b"4"), data(1, b"xx"), data(1, b"xx"), data(1, b"x" * 12)),
    "one instead of none": (post(b"0"), data(1, b"x", True)),
    "padding in place of content": (post(b"9"), data(1, b"hello", True, 3)),
    "two lengths": (post(b"5", b"6"), data(1, b"hello", True)),
    "twice the same": (post(b"5", b"5"), data(1, b"hello", True)),
    "signed": (post(b"+5"), data(1, b"hello", True)),
    "a list": (post(b"5, 5"), data(1, b"hello", True)),
    "beyond all numbers": (post(b"99999999999999999999999"), data(1, b"hello", True)),
}


@BEHIND
@pytest.mark.parametrize("pieces", ["together", "apart"])
@pytest.mark.parametrize("what", WRONG)
def test_content_that_does_not_fit_is_refused(engine: str, behind: str, pieces: str, what: str) -> None:
    """Whatever of it was passed on when that showed.  (What HTTP/1 takes for whole before that is tried below.)"""
    frames = WRONG[what]
    with Two(engine, None if behind == "http1" else ok, behind=behind) as two:
        client = two.client()
        if pieces == "together":
            client.send(*frames)
        else:
            for frame in frames:
                if not client.resets:
                    client.send(frame)
        assert client.seen(1) in ("reset PROTOCOL_ERROR", "answer 400")
        (record,) = two.records
        assert (record.status, record.who) == (400, "client"), record
        assert record.error
        assert two.counts("malformed_stream") + two.counts("bad_framing") >= 1
        assert two.counts("failed_client") == 1
        nothing_is_whole(two, pieces == "apart" and behind == "http1" and what in LATER)
        two.origin.answers = (ok1 if behind == "http1" else ok,)
        client.send(req(3, b"/next"))
        assert client.seen(3) == "answer 200"


LATER = ("sixteen in pieces", "one instead of none")
"""Of these HTTP/1 is told a whole request before the rest comes."""


def nothing_is_whole(two: Two, later: bool) -> None:
    """Of what an origin got; nor is there more of a request than was said."""
    if isinstance(two.origin, Origin2):
        for served in two.origin.connections:
            for stream, message in served.peer.messages.items():
                assert not message.ended
                assert served.peer.resets[stream] in (CANCEL, INTERNAL_ERROR, PROTOCOL_ERROR)
                assert len(message.content) <= 5
    else:
        assert len(two.origin.requests) == later
        for served in two.origin.connections:
            assert served.lost is not None or not served.received, "nothing may follow half a request"
            assert len(served.received.partition(b"\r\n\r\n")[2]) <= 5


def test_the_fault_is_named(engine: str) -> None:
    with Two(engine, None, early=True) as two:
        client = two.client()
        client.send(post(b"5"))
        client.send(data(1, b"abc", True))
        (record,) = two.records
        assert "content-length" in record.error
        assert (record.status, record.who, record.malformed) == (400, "client", False)


@pytest.mark.parametrize("length", [0, 4])
def test_what_comes_behind_a_request_that_http_1_took_for_whole_reaches_nobody(engine: str, length: int) -> None:
    """It has its answer, and its connection serves the next one."""
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(post(b"%d" % length), *([data(1, bytes(length))] if length else []))
        assert client.message(1).status == 200
        if 1 not in client.resets:
            client.send(data(1, b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n", True))
        client.send(req(3, b"/next"))
        assert client.seen(3) == "answer 200"
        assert [request.target for request in two.origin.requests] == [b"/a", b"/next"]
        assert b"evil" not in b"".join(served.received for served in two.origin.connections)
        assert two.statuses == [200, 200]


@BEHIND
def test_content_that_fits_is_passed_on_as_long_as_it_said(engine: str, behind: str) -> None:
    with Two(engine, behind=behind) as two:
        client = two.client()
        client.send(post(b"5"), data(1, b"he", pad=9), data(1, b"llo"), data(1, b"", True))
        client.send(req(3, b"/", b"POST", [(b"content-length", b"0")]))
        client.send(req(5, b"/", b"POST", end=False), data(5, b"no length", True))
        assert [client.seen(number) for number in (1, 3, 5)] == ["answer 200"] * 3
        if behind == "http1":
            first, second, third = two.origin.requests
            assert (first.all(b"content-length"), first.body) == ([b"5"], b"hello")
            assert (second.all(b"content-length"), second.body) == ([b"0"], b"")
            assert (third.all(b"transfer-encoding"), third.body) == ([b"chunked"], b"no length")
        else:
            assert [asked.all(b"content-length") for asked in two.asked] == [[b"5"], [b"0"], []]
            assert [asked.message.content for asked in two.asked] == [b"hello", b"", b"no length"]


def test_chunks_of_http_1_have_no_length_in_http_2(engine: str) -> None:
    with Two(engine) as two:
        raw = two.gateway.client()
        raw.send(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
        two.run()
        assert raw.received.startswith(b"HTTP/1.1 200")
        (asked,) = two.asked
        assert asked.all(b"content-length") == asked.all(b"transfer-encoding") == []
        assert asked.message.content == b"hello"
        raw.close()


# -- the same of an upstream's answers


def answer(*lengths: bytes, end: bool = False, status: bytes = b"200") -> bytes:
    """An answer that says how long it will be."""
    return res(1, status, [(b"content-length", length) for length in lengths], end)


BAD: dict[str, Sequence[bytes]] = {
    "none of five": (answer(b"5", end=True),),
    "two lengths": (answer(b"5", b"6"), data(1, b"hello", True)),
    "a list": (answer(b"5, 5"), data(1, b"hello", True)),
    "signed": (answer(b"+5"), data(1, b"hello", True)),
}


@pytest.mark.parametrize("what", BAD)
def test_a_head_of_an_answer_that_cannot_be_is_a_502(engine: str, what: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1))
        two.reply(*BAD[what])
        assert client.message(1).status == 502
        (record,) = two.records
        assert (record.status, record.who) == (502, "upstream")
        assert two.asked[0].reset in (PROTOCOL_ERROR, None)


SHORT: dict[str, Sequence[bytes]] = {
    "three of five": (data(1, b"abc", True),),
    "three of five and trailers": (data(1, b"abc"), TRAILERS),
    "nothing": (data(1, b"", True),),
    "eight instead of five": (data(1, b"x" * 8, True),),
    "more in pieces": (data(1, b"xxxx"), data(1, b"xxxx")),
}


@pytest.mark.parametrize("side", ["http1", "http2"])
@pytest.mark.parametrize("what", SHORT)
def test_an_answer_that_does_not_fit_is_not_whole_for_its_client(engine: str, what: str, side: str) -> None:
    with Two(engine, None) as two:
        if side == "http2":
            client = two.client()
            client.send(req(1))
        else:
            raw = two.gateway.client()
            raw.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            two.run()
        two.reply(answer(b"5"))
        for frame in SHORT[what]:
            if two.asked[0].reset is None:
                two.reply(frame)
        (record,) = two.records
        assert record.who == "upstream"
        assert record.error
        if side == "http2":
            assert not client.message(1).ended
            assert client.resets[1] not in (NO_ERROR, CANCEL)
            assert len(client.message(1).content) <= 5
            two.origin.answers = (ok,)
            client.send(req(3))
            assert client.seen(3) == "answer 200"
        else:
            assert raw.lost is not None
            assert len(raw.received.partition(b"\r\n\r\n")[2]) < 5 or raw.received.endswith(b"xxxx")
        assert len(two.origin.connections) == 1, "a stream's fault alone"


def test_an_upstream_whose_answers_are_too_short_stops_nobody(engine: str) -> None:
    """ngh2 credits nothing of their last frames: their connection is left for another before it has no window."""

    def short(asked: Asked) -> bytes:
        head = res(asked.stream, more=[(b"content-length", b"9999")], end=False)
        return head + data(asked.stream, bytes(9000), True)

    with Two(engine, short, told={"connectionWindow": "128KiB", "streams": 4}) as two:
        client = two.client()
        for number in range(1, 101, 2):
            client.send(req(number))
            assert not client.message(number).ended or client.message(number).status == 502
            assert min(room(served) for served in two.origin.connections) > 64_000
        assert (len(two.origin.connections) == 1) is (engine == "h2")
        two.origin.answers = (ok,)
        client.send(req(101))
        assert client.seen(101) == "answer 200"
        two.advance(1)
        assert sum(served.lost is None for served in two.origin.connections) == 1


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
def test_a_length_without_content_is_that_of_another_answer(engine: str, method: bytes) -> None:
    """To HEAD, and with 304, it is what GET would bring (RFC 9110, 8.6)."""
    status = b"200" if method == b"HEAD" else b"304"
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1, b"/", method))
        two.reply(answer(b"5", end=True, status=status))
        assert client.seen(1) == f"answer {int(status)}"
        found: list[Field] = client.message(1).heads[0]
        assert [value for name, value in found if name == b"content-length"] == [b"5"]
        assert two.statuses == [int(status)]
