"""Every fault of the page, from the bytes that cause it to the GOAWAY or CANCEL that follows."""

from __future__ import annotations

import pytest
from sotp_ends import HELLO, ORDER, VECTORS, End, frames, greeted
from twisted.internet.defer import Deferred

from protogate.context import Limits
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate_sotp.faults import CODES, FAULTS, FLOOD, FLOW, HEADS, LIMIT
from protogate_sotp.frames import (
    CANCEL,
    DATA,
    END,
    GOAWAY,
    INTERIM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    TRAILERS,
    cancel,
    cancelled,
    credited,
    frame,
    going,
)
from protogate_sotp.heads import read_response, write_request
from protogate_sotp.server import CANCELS

HARD = {"beyond_credit", "too_many_replies", "too_many_cancels", "large_response", "large_trailers"}
"""Those whose bytes are too many for a file: below."""


def silent(request):
    if request.body is not None:
        Taker(request.body)
    return Deferred()


@pytest.mark.parametrize(
    "each", VECTORS["faults"], ids=[f"{each['fault']}-{at}" for at, each in enumerate(VECTORS["faults"])]
)
@pytest.mark.parametrize("single", [False, True], ids=["whole", "byte by byte"])
def test_a_fault_is_answered_as_its_vector_says(each, single):
    data = bytes.fromhex(each["hex"])
    end = End(each["to"])
    end.app.answer = silent
    if each["to"] == "client":
        end.call(body=Giver(close=False).body)
    frames(end.wire.take())
    end.feed(*((data[at : at + 1] for at in range(len(data))) if single else [data]))
    said = end.said
    if each["answer"] == "GOAWAY":
        kind, _, stream, payload = said[-1]
        assert (kind, stream) == (GOAWAY, 0)
        assert going(payload)[1:] == (each["number"], each["text"])
        assert end.end.dead
        assert end.end.busy == 0
        assert "malformed_frame" in end.counted
    else:
        ((kind, _, stream, payload),) = [one for one in said if one[0] == CANCEL]
        assert stream == 1
        assert cancelled(payload) == (each["number"], each["text"])
        assert not end.end.dead
        assert "malformed_stream" in end.counted
        assert end.end.busy == 0
    assert CODES[each["number"]] == each["code"]
    for error in end.errors:
        assert error.status == 502
    end.close()


def test_every_fault_has_bytes():
    assert {each["fault"] for each in VECTORS["faults"]} == set(FAULTS) - HARD


@pytest.mark.parametrize("each", VECTORS["bad requests"], ids=lambda each: each["name"])
def test_a_bad_request_reaches_the_service_and_is_answered(each):
    end = greeted()
    end.order(flags=0, payload=bytes.fromhex(each["hex"]))
    (request,) = end.app.requests
    assert request.malformed.detail == each["text"]
    (kind, flags, stream, _), (last, _, _, code) = end.said
    assert (kind, flags, stream) == (RESPONSE, 1, 1)
    assert (last, cancelled(code)) == (CANCEL, (0, ""))
    assert end.app.closes == [[None]]
    assert len(end.counted) == 1
    end.order(3)
    assert end.said[0][:3] == (RESPONSE, 1, 3)  # the others go on
    end.close()


@pytest.mark.parametrize("each", VECTORS["bad responses"], ids=lambda each: each["name"])
def test_a_bad_response_is_refused(each):
    end = greeted("client")
    end.call()
    end.said  # noqa: B018
    end.feed(frame(RESPONSE, 1, 1, bytes.fromhex(each["hex"])))
    ((kind, _, _, code),) = end.said
    assert (kind, cancelled(code)[0]) == (CANCEL, FAULTS["bad_response"][1])
    assert [error.status for error in end.errors] == [502]
    end.close()


def test_bytes_beyond_the_credit_of_a_stream():
    end = greeted()
    end.app.answer = lambda request: Deferred()  # nobody takes them
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 65536))
    assert end.said == []
    end.feed(frame(DATA, 0, 1, b"x"))
    assert going(end.said[-1][3])[1:] == (FLOW, "more bytes than there was credit for")
    end.close()


def test_bytes_beyond_the_credit_of_the_connection():
    end = greeted()
    end.app.answer = lambda request: Deferred()
    end.end.room = 3  # as if the others had used it
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"four"))
    assert going(end.said[-1][3])[1] == FLOW
    end.close()


def test_pings_of_a_peer_who_reads_nothing():
    end = greeted()
    end.end.pauseProducing()
    end.feed(frame(PING, 0, 0, b"8 bytes.") * 1000)
    assert not end.end.dead
    end.feed(frame(PING, 0, 0, b"8 bytes."))
    said = end.said
    assert [kind for kind, *_ in said] == [PONG] * 1000 + [GOAWAY]
    assert going(said[-1][3])[1] == FLOOD
    assert "frame_flood" in end.counted
    end.close()


def test_pings_of_a_peer_who_reads_are_answered_for_ever():
    end = greeted()
    for _ in range(3):
        end.end.pauseProducing()
        end.feed(frame(PING, 0, 0, b"8 bytes.") * 900)
        end.end.resumeProducing()
    assert len(end.said) == 2700
    end.close()


def test_requests_that_are_given_up_at_once():
    end = greeted()
    end.app.answer = lambda request: Deferred()
    for number in range(1, 2 * CANCELS + 1, 2):
        end.order(number).feed(cancel(number, 1))
    assert not end.end.dead
    end.order(number + 2).feed(cancel(number + 2, 1))
    assert going(end.said[-1][3])[1] == FLOOD
    assert end.end.busy == 0
    end.close()


def test_requests_that_end_make_up_for_those_given_up():
    end = greeted()
    held = []

    def hold(request):
        held.append(Deferred())
        return held[-1]

    end.app.answer = hold
    for at in range(1, CANCELS * 4 + 400, 4):
        end.order(at).order(at + 2).feed(cancel(at, 1))
        held[-1].callback(Response(204))
    assert not end.end.dead
    end.close()


def test_a_response_over_the_limit():
    end = greeted("client", limits=Limits(response_headers=100))
    end.call()
    end.said  # noqa: B018
    end.feed(frame(RESPONSE, 1, 1, bytes(9) + b"\x01\x03\0\xc8x-a" + b"v" * 200))
    ((kind, _, _, code),) = end.said
    assert (kind, cancelled(code)) == (CANCEL, (LIMIT, "the head of the response is too large"))
    assert end.counted == ["response_headers_too_large", "malformed_stream"]
    end.close()


@pytest.mark.parametrize("side", ["server", "client"])
def test_trailers_over_the_limit(side):
    end = greeted(side, limits=Limits(headers=100, response_headers=100))
    takers = []

    def take(request):
        takers.append(Taker(request.body))
        return Deferred()

    end.app.answer = take
    if side == "server":
        end.order(flags=0)
    else:
        end.call()
        end.feed(frame(RESPONSE, 0, 1, bytes(10)))
        takers.append(Taker(end.result[0].body))
    end.said  # noqa: B018
    end.feed(frame(TRAILERS, 0, 1, b"\0\1\x03\0\xc8x-a" + b"v" * 200))
    ((kind, _, _, code),) = end.said
    assert (kind, cancelled(code)) == (CANCEL, (LIMIT, "the trailers are too large"))
    assert takers[0].reason is not None
    assert end.counted == ["trailers_too_large", "malformed_stream"]
    end.close()


def test_many_fields_that_are_not_there_cost_nothing():
    end = greeted()
    end.app.answer = silent
    end.order(flags=0)
    end.feed(frame(TRAILERS, 0, 1, b"\xff\xff"))
    ((kind, _, _, code),) = end.said
    assert (kind, cancelled(code)[0]) == (CANCEL, HEADS)
    end.close()


def test_what_is_ignored():
    end = greeted()
    end.feed(frame(0x80, 0xFF, 5, b"?"), frame(200, 0, 0))
    end.order()
    said = end.said
    assert [kind for kind, *_ in said] == [RESPONSE]
    # All of this is for a stream that is over.
    end.feed(cancel(1, 0), credited(1, 5), frame(DATA, 0, 1, b"x"), frame(4, 0, 1, b"\0\0"))
    assert end.said == []
    end.close()


def test_interims_are_told_and_no_more():
    end = greeted("client")
    seen = []
    end.call(Request(b"POST", b"/1/x", interim=seen.append))
    end.said  # noqa: B018
    hint = bytes.fromhex(next(each["hex"] for each in VECTORS["responses"] if each["name"] == "early hints"))
    end.feed(frame(RESPONSE, INTERIM, 1, hint) * 16)
    assert [response.status for response in seen] == [103] * 16
    assert end.said == []
    end.close()


def test_nothing_is_read_after_a_fault():
    end = End()
    end.feed(HELLO + frame(REQUEST, 0, 2, ORDER))
    end.feed(frame(REQUEST, 1, 3, ORDER))
    assert end.app.requests == []
    end.close()


def test_a_request_in_front_of_a_fault_in_the_same_read_is_seen_and_given_up():
    end = greeted()
    cancelled = []
    end.app.answer = lambda request: Deferred(cancelled.append)
    end.feed(frame(REQUEST, END, 1, ORDER) + frame(REQUEST, END, 2, ORDER))
    assert len(end.app.requests) == len(cancelled) == 1
    assert [made.reason for (made,) in end.app.closes] == ["192.0.2.1: streams have odd numbers that go up"]
    end.close()


@pytest.mark.parametrize("content", [frame(DATA, END, 1, b"hello"), frame(DATA, 0, 1, b"hello") + frame(DATA, END, 1)])
def test_an_answer_in_front_of_a_fault_in_the_same_read_counts(content):
    end = greeted("client")
    end.call()
    end.feed(frame(RESPONSE, 0, 1, bytes(10)) + content + b"no frame at all")
    (response,) = end.result
    taker = Taker(response.body)
    assert (response.status, taker.data, taker.finished) == (200, b"hello", True)
    assert end.end.dead
    end.close()


def asked(target=b"/1001/a", fields=(), body=None, upgrade=None):
    """The payload of a REQUEST."""
    method = b"GET" if upgrade else b"POST"
    return write_request(Request(method, target, list(fields), body, b"1001", upgrade=upgrade), 0, [].append)


TIGHT = Limits(request_line=200, header_line=200, headers=300, header_count=3, body=10)
LARGE = {
    "request_line_too_long": (asked(b"/" + b"x" * 200), 414),
    "too_many_headers": (asked(fields=[(b"x-a", b"1")] * 4), 431),
    "headers_too_large": (asked(fields=[(b"x-a", b"v" * 150)] * 2), 431),
    "header_line_too_long": (asked(fields=[(b"x-a", b"v" * 200)]), 431),
    "body_too_large": (asked(body=Giver([], 11).body), 413),
}


@pytest.mark.parametrize("event", LARGE)
def test_a_request_over_a_limit_is_answered_with_what_that_is(event):
    payload, http = LARGE[event]
    end = greeted(limits=TIGHT)
    end.app.answer = lambda request: Response(request.malformed.status)
    end.order(flags=0 if event == "body_too_large" else END, payload=payload)
    kind, _, _, head = end.said[0]
    assert (kind, int.from_bytes(head[:2], "big")) == (RESPONSE, 17), "TOO_LARGE"
    assert read_response(head).status == http
    assert end.counted == [event]
    end.app.answer = lambda request: Response(204)
    end.order(3)  # the others go on
    assert [read_response(payload).status for kind, _, _, payload in end.said if kind == RESPONSE] == [204]
    end.close()


def test_content_over_the_limit_is_answered_as_it_comes():
    end = greeted(limits=TIGHT)
    end.app.answer = silent
    end.order(flags=0, payload=asked(body=Giver(close=False).body))
    end.feed(frame(DATA, 0, 1, b"x" * 10))
    assert end.said == []
    end.feed(frame(DATA, 0, 1, b"x"))
    assert end.counted == ["body_too_large"]
    end.close()


def test_a_tunnel_that_ends_at_once_is_none():
    end = greeted()
    end.app.answer = lambda request: Response(request.malformed.status)
    end.order(payload=asked(b"/", upgrade=b"websocket"))
    assert read_response(end.said[0][3]).status == 400
    assert end.counted == ["bad_framing"]
    end.close()
