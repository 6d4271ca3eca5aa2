"""The asking side: clocks, credit, refusals, GOAWAY, and what a request looks like."""

from __future__ import annotations

import gzip

import pytest
from sotp_ends import HELLO, End, frames, greeted
from twisted.internet.defer import CancelledError

from protogate.body import Replay, Whole
from protogate.codings import pack
from protogate.errors import ALWAYS, GATEWAY, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase
from protogate.exchange.ledger import Ledger
from protogate.message import CONNECT, Headers, Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate_sotp.codings import CODINGS
from protogate_sotp.faults import CANCELLED, DEADLINE, HEADS, INTERNAL, NONE, REFUSED, TIMEOUT
from protogate_sotp.frames import (
    CANCEL,
    CREDIT,
    DATA,
    END,
    GOAWAY,
    INTERIM,
    MOST_STREAM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    Hello,
    cancel,
    cancelled,
    credited,
    frame,
    goaway,
    going,
)
from protogate_sotp.heads import read_request, write_response
from protogate_sotp.options import Options

OK = bytes(10)
"""A RESPONSE."""
BEATING = Hello(heartbeat=20).pack()


def limits():
    from protogate.context import Limits

    return Limits()


def answer(number=1, flags=END, payload=OK):
    return frame(RESPONSE, flags, number, payload)


def told(status, length=None, headers=()):
    return write_response(Response(status, headers), length, 3, lambda event: None)


def one(said):
    """The only frame."""
    (only,) = said
    return only


def asked(end):
    """The head of the one request that was written."""
    kind, _, _, payload = one([each for each in end.said if each[0] == REQUEST])
    assert kind == REQUEST
    return read_request(payload, limits())


def test_a_request_may_go_before_the_server_has_said_hello():
    end = End("client")
    end.call()
    hello, request = frames(end.wire.take())
    assert (hello[0], request[:3]) == (0, (REQUEST, END, 1))
    end.feed(HELLO + answer())
    assert [response.status for response in end.result] == [200]
    assert end.result[0].protocol == "SOTP/1"
    end.close()


def test_what_a_hello_allows_is_added_to_what_was_sent_before():
    end = End("client")
    giver = Giver([b"x" * 100000], 100000)
    end.call(body=giver.body)
    said = frames(end.wire.take())
    assert sum(len(payload) for kind, _, _, payload in said if kind == DATA) == 65536
    assert max(len(payload) for kind, _, _, payload in said if kind == DATA) == 16384
    end.feed(Hello(window=90000).pack())
    assert sum(len(payload) for kind, _, _, payload in end.said if kind == DATA) == 90000 - 65536
    end.close()


def test_capacity_is_what_the_server_takes():
    end = End("client")
    assert end.end.capacity == 100
    end.feed(Hello(streams=2).pack())
    assert end.end.capacity == 2
    end.call()
    end.call()
    assert end.end.capacity == 0
    end.rises.clear()
    end.feed(answer(1))
    assert (end.end.capacity, end.rises) == (1, [end.end])
    end.close()


def test_capacity_rises_when_a_hello_allows_more():
    end = End("client")
    for _ in range(100):
        end.call()
    assert end.end.capacity == 0
    end.rises.clear()
    end.feed(Hello(streams=150).pack())
    assert (end.end.capacity, end.rises) == (50, [end.end])
    end.close()


def test_numbers_are_odd_and_run_out():
    end = greeted("client")
    end.end.number = MOST_STREAM - 4
    end.call()
    end.call()
    assert [stream for kind, _, stream, _ in end.said if kind == REQUEST] == [MOST_STREAM - 2, MOST_STREAM]
    assert end.end.capacity == 0
    end.feed(answer(MOST_STREAM - 2) + answer(MOST_STREAM))
    assert end.end.dead
    end.close()


def test_http_that_sotp_has_no_service_for_goes_as_http():
    end = greeted("client")
    for request in (
        Request(b"GET", b"/1001/x", authority=b"a.test"),
        Request(b"POST", b"/1001/x?y=1", authority=b"a.test"),
        Request(b"POST", b"/x", authority=b"a.test", scheme=b"https"),
        Request(b"POST", b"/0/x", authority=b"a.test"),
        Request(b"POST", b"/4294967296/x", authority=b"a.test"),
        Request(b"POST", b"/../x", authority=b"a.test"),
        Request(b"OPTIONS", b"*", authority=b"a.test"),
    ):
        end.send(request)
        made = asked(end)
        assert (made.bad, made.service) == (None, "")
        assert (made.method, made.target, made.authority) == (request.method, request.target, b"a.test")
        assert made.scheme == request.scheme
    end.close()


def test_http_that_sotp_has_a_service_for_goes_to_that():
    end = greeted("client")
    for target, service in ((b"/1001/x", "1001"), (b"/4294967295/x", "4294967295"), (b"/a-b/c.d", "a-b")):
        end.send(Request(b"POST", target, authority=b"a.test"))
        made = asked(end)
        assert (made.service, made.target, made.authority) == (service, target, b"a.test")
    end.close()


@pytest.mark.parametrize(
    "request_",
    [
        Request(b"G T", b"/"),
        Request(b"GET", b"x"),
        Request(b"GET", b"/ "),
        Request(b"GET", b"*"),
        Request(b"CONNECT", b"/", upgrade=CONNECT),
        Request(b"GET", b"/", upgrade=CONNECT),
        Request(b"GET", b"/", authority=b"a b"),
        Request(b"GET", b"/", authority=b"a" * 256),
        Request(b"GET", b"/" + b"x" * 70000),
        Request(b"GET", b"/", [(b"x-a", b"v" * 70000)]),
        Request(b"GET", b"/", [(b"x-%d" % at, b"v" * 60000) for at in range(3)]),
    ],
    ids=lambda request: str(request.method + request.target)[:20],
)
def test_a_request_that_cannot_be_said_fails_and_harms_nobody(request_):
    end = greeted("client")
    end.send(request_)
    (error,) = end.errors
    assert (error.status, error.who, error.retry) == (500, GATEWAY, NEVER)
    assert end.counted == ["invalid_request_refused"]
    assert end.said == []
    end.call()
    assert one(end.said)[2] == 1
    end.close()


def test_fields_that_no_peer_would_take_are_left_out_and_counted():
    end = greeted("client")
    end.call(
        headers=[
            (b"X-Upper", b" bare "),
            (b"connection", b"close"),
            (b"Host", b"b.test"),
            (b"te", b"gzip"),
            (b"te", b"trailers"),
            (b"x-bad", b"a\nb"),
            (b"no token", b"1"),
            (b"content_length", b"1"),
        ]
    )
    assert asked(end).fields == [(b"x-upper", b"bare"), (b"te", b"trailers")]
    assert end.counted == ["invalid_field_dropped"] * 3
    end.close()


def test_content_types_become_numbers_and_come_back():
    end = greeted("client")
    for headers, kind in (
        ([(b"content-type", b"application/json")], 1),
        ([(b"content-type", b"application/x-sotp; type=77")], 77),
        ([(b"content-type", b"application/x-sotp; type=256")], 0),
        ([(b"content-type", b"text/html")], 0),
        ([(b"content-type", b"text/html"), (b"content-type", b"application/json")], 0),
    ):
        end.call(headers=headers)
        payload = one(end.said)[3]
        assert payload[8] == kind
        assert read_request(payload, limits()).fields == headers
    end.close()


def due(end, seconds):
    """A request that has so many seconds left."""
    request = Request(b"POST", b"/7/x")
    request.deadline = end.clock.seconds() + seconds
    return request


def test_the_deadline_that_is_passed_on_is_what_is_left_of_it():
    end = greeted("client")
    request = due(end, 2)
    end.advance(0.5)
    end.send(request)
    assert asked(end).deadline == 1500
    end.close()


@pytest.mark.parametrize(("seconds", "said"), [(-5, 1), (0, 1), (0.0004, 1), (9999999, 0xFFFFFFFF)])
def test_a_deadline_is_never_said_to_be_none_nor_more_than_there_is_room_for(seconds, said):
    end = greeted("client")
    end.send(due(end, seconds))
    assert asked(end).deadline == said
    end.close()


def test_a_deadline_ends_a_request():
    end = greeted("client")
    end.send(due(end, 1))
    end.said  # noqa: B018
    end.advance(1.1)
    (error,) = end.errors
    assert (error.status, error.who, error.phase) == (504, UPSTREAM, Phase.DEADLINE)
    kind, _, _, payload = one(end.said)
    assert (kind, cancelled(payload)[0]) == (CANCEL, DEADLINE)
    assert end.counted == ["deadline_exceeded"]
    end.close()


# -- content


def test_a_known_compression_is_passed_on():
    end = greeted("client", hello=Hello(capabilities=1).pack())
    data = gzip.compress(b"hello")
    end.call(headers=Headers([(b"content-encoding", b"gzip")]), body=Giver([data], len(data)).body)
    said = end.said
    assert said[0][3][9] == 1
    assert said[1][3] == data
    end.close()


def test_an_unknown_compression_of_the_server_is_unpacked_also_when_sent_again():
    for coding in CODINGS.values():
        data = pack(coding, b"hello " * 100)
        giver = Giver([data], len(data))
        request = Request(b"POST", b"/7/x", Headers([(b"content-encoding", coding)]), Replay(giver.body, 1 << 16))
        for _ in range(2):
            end = greeted("client")
            end.send(request)
            said = end.said
            assert (said[0][3][9], said[0][3][10]) == (0, 0)
            assert b"".join(payload for kind, _, _, payload in said if kind == DATA) == b"hello " * 100
            end.feed(cancel(1, REFUSED))
            (error,) = end.errors
            assert error.retry == ALWAYS
            assert not request.body.attached
            end.close()


def test_content_that_is_not_what_its_coding_says_is_broken_off():
    for data in (b"no gzip", gzip.compress(b"x" * 100)[:-3], gzip.compress(b"x") + b"more"):
        end = greeted("client")
        end.call(headers=Headers([(b"content-encoding", b"gzip")]), body=Giver([data], len(data)).body)
        assert one([each for each in end.said if each[0] == CANCEL])[2] == 1
        assert [error.status for error in end.errors] == [400]
        end.close()


def test_content_waits_for_the_100():
    end = greeted("client")
    giver = Giver([b"x"], 1)
    end.call(headers=[(b"expect", b"100-continue")], body=giver.body)
    assert [kind for kind, *_ in end.said] == [REQUEST]
    end.feed(answer(flags=INTERIM, payload=told(100)))
    assert end.said == [(DATA, END, 1, b"x")]
    end.feed(answer(flags=INTERIM, payload=told(100)))
    assert end.said == []
    end.close()


def test_content_does_not_wait_for_ever_for_the_100():
    end = greeted("client")
    end.call(headers=[(b"expect", b"100-continue")], body=Giver([b"x"], 1).body)
    end.said  # noqa: B018
    end.advance(1.2)
    assert end.said == [(DATA, END, 1, b"x")]
    end.close()


def test_an_answer_instead_of_the_100_wants_no_content():
    end = greeted("client")
    giver = Giver([b"x"], 1)
    end.call(headers=[(b"expect", b"100-continue")], body=giver.body)
    end.said  # noqa: B018
    end.feed(answer(payload=told(417)))
    assert [response.status for response in end.result] == [417]
    assert not giver.body.attached
    assert one(end.said)[0] == CANCEL
    end.close()


@pytest.mark.parametrize(("status", "sent"), [(200, [(DATA, END, 1, b"x")]), (403, [])])
def test_an_answer_that_goes_on_wants_the_content_if_it_is_a_success(status, sent):
    end = greeted("client")
    giver = Giver([b"x"], 1)
    end.call(headers=[(b"expect", b"100-continue")], body=giver.body)
    end.said  # noqa: B018
    end.feed(answer(flags=0, payload=told(status)))
    assert end.said == sent
    assert giver.body.attached is bool(sent)
    end.advance(2)
    assert end.said == []
    Taker(end.result[0].body)
    end.feed(frame(DATA, END, 1, b"y"))
    assert [kind for kind, *_ in end.said] == [CANCEL] * (status == 403)
    end.close()


def test_the_length_of_an_answer_to_head_is_a_field():
    end = greeted("client")
    end.send(Request(b"HEAD", b"/"))
    end.feed(answer(payload=told(200, 12)))
    assert end.result[0].headers == [(b"content-length", b"12")]
    assert end.result[0].body is None
    end.close()


def test_credit_is_given_for_what_was_taken():
    end = greeted("client")
    end.call()
    end.said  # noqa: B018
    end.feed(answer(flags=0) + frame(DATA, 0, 1, b"x" * 40000))
    taker = Taker(end.result[0].body)
    assert taker.size == 40000
    assert end.said == [(CREDIT, 0, 1, (40000).to_bytes(4, "big"))]
    end.feed(frame(4, 0, 1, b"\0\1\1\0\1a1"))
    assert taker.trailers == [(b"a", b"1")]
    end.close()


# -- how it fails


@pytest.mark.parametrize(
    ("code", "status", "retry"),
    [(REFUSED, 502, ALWAYS), (DEADLINE, 504, NEVER), (INTERNAL, 502, NEVER), (999, 502, NEVER)],
)
def test_a_request_that_the_server_gives_up(code, status, retry):
    end = greeted("client")
    end.call()
    end.feed(cancel(1, code, "so it is"))
    (error,) = end.errors
    assert (error.status, error.who, error.retry) == (status, UPSTREAM, retry)
    assert "so it is" in error.reason
    assert end.end.busy == 0
    end.close()


def test_a_refusal_within_the_answer_is_none():
    end = greeted("client")
    end.call()
    end.feed(answer(flags=0))
    taker = Taker(end.result[0].body)
    end.feed(cancel(1, REFUSED))
    assert taker.reason.retry == NEVER
    end.close()


def test_a_request_that_is_given_up_is_cancelled():
    end = greeted("client")
    answer = end.call()
    end.said  # noqa: B018
    answer.cancel()
    kind, _, stream, payload = one(end.said)
    assert (kind, stream, cancelled(payload)[0]) == (CANCEL, 1, CANCELLED)
    assert isinstance(end.errors[0], CancelledError)
    end.close()


def test_what_stands_above_a_goaway_was_not_looked_at():
    end = greeted("client")
    answers = [end.call() for _ in range(3)]
    failed = []
    answers[1].addErrback(lambda failure: failed.append(failure.value))
    end.feed(goaway(3, NONE))
    assert [(error.retry, error.status) for error in end.errors] == [(ALWAYS, 502)]
    assert end.end.capacity == 0
    end.feed(answer(1) + answer(3))
    assert len(end.result) == 2
    assert end.end.dead
    end.close()


def test_a_goaway_with_an_error_ends_what_is_under_way():
    end = greeted("client")
    end.call()
    end.feed(goaway(1, INTERNAL, "ouch"))
    assert end.counted == ["peer_complained"]
    end.end.connectionLost(None)
    (error,) = end.errors
    assert "INTERNAL: ouch" in error.reason
    end.finish()


def test_a_connection_that_is_lost_says_whether_to_retry():
    end = greeted("client")
    end.call()
    end.end.abort()
    assert [error.retry for error in end.errors] == [IDEMPOTENT]
    end.close()
    end = greeted("client")
    end.call()
    end.feed(answer(flags=0))
    taker = Taker(end.result[0].body)
    end.end.abort()
    assert taker.reason.retry == NEVER
    end.close()


def test_a_drain_says_so_and_ends_what_is_there():
    end = greeted("client")
    end.call()
    end.said  # noqa: B018
    end.end.drain()
    end.end.drain()
    kind, _, _, payload = one(end.said)
    assert (kind, going(payload)) == (GOAWAY, (0, NONE, ""))
    end.send(Request(b"GET", b"/"))
    assert [error.retry for error in end.errors] == [ALWAYS]
    end.feed(answer())
    assert end.end.dead
    end.close()


def test_a_server_says_goaway_instead_of_hello():
    end = End("client")
    end.call()
    frames(end.wire.take())
    end.feed(goaway(0, 22, "no common version"))
    (error,) = end.errors
    assert (error.retry, error.status) == (ALWAYS, 502)
    assert "VERSIONS: no common version" in error.reason
    assert end.said == []
    assert end.end.dead
    end.close()


def large(size=6000):
    """A request whose head is larger than the least that a server takes."""
    return Request(b"POST", b"/1/x", [(b"x-%d" % at, b"v" * size) for at in range(3)])


def test_a_head_that_may_be_too_large_waits_for_hello():
    end = End("client")
    end.send(large())
    end.call()
    assert [kind for kind, *_ in end.said] == [REQUEST]
    end.feed(Hello(heartbeat=0, heads=20000).pack())
    ((kind, _, number, _),) = end.said
    assert (kind, number) == (REQUEST, 3)
    end.feed(answer(3))
    assert [response.status for response in end.result] == [200]
    end.close()


def test_a_head_that_is_too_large_for_hello_is_refused():
    end = End("client")
    end.send(large())
    end.feed(HELLO)
    assert [(error.status, error.retry) for error in end.errors] == [(500, NEVER)]
    end.close()


def test_who_waits_for_hello_may_be_sent_elsewhere():
    end = End("client", response_head=10)
    end.send(large())
    end.advance(5)
    end.send(large())
    end.advance(6)
    assert [(error.phase, error.retry) for error in end.errors] == [(Phase.RESPONSE_HEAD, ALWAYS)]
    end.close()
    assert [error.retry for error in end.errors] == [ALWAYS] * 2


def test_who_waits_for_hello_may_give_up():
    end = End("client")
    first, second = end.send(large()), end.send(large())
    first.cancel()
    assert [type(error) for error in end.errors] == [CancelledError]
    frames(end.wire.take())
    end.feed(Hello(heartbeat=0, heads=20000).pack())
    assert [(kind, number) for kind, _, number, _ in end.said] == [(REQUEST, 1)]
    second.cancel()
    assert [kind for kind, *_ in end.said] == [CANCEL]
    assert len(end.errors) == 2
    end.close()


def test_an_answer_to_head_has_no_content():
    end = greeted("client")
    end.call(Request(b"HEAD", b"/"))
    end.said  # noqa: B018
    end.feed(answer(flags=0))
    ((kind, _, _, code),) = end.said
    assert (kind, cancelled(code)[0]) == (CANCEL, HEADS)
    end.close()


def test_an_answer_without_content_may_accept_a_tunnel():
    end = greeted("client")
    end.call(Request(b"CONNECT", b"", body=Giver(close=False).body, upgrade=CONNECT))
    end.feed(answer(flags=0, payload=told(204)))
    (response,) = end.result
    taker = Taker(response.body)
    end.feed(frame(DATA, END, 1, b"hi"))
    assert (taker.data, taker.finished) == (b"hi", True)
    end.said  # noqa: B018
    end.end.abort()
    end.close()


def test_a_large_body_that_waits_for_credit_is_not_copied_again_and_again():
    data = b"x" * (1 << 20)
    end = greeted("client")
    end.call(body=Whole(data))
    (stream,) = end.end.streams.values()
    sent = [size for kind, _, _, payload in end.said if kind == DATA for size in [len(payload)]]
    assert (sent, stream.queue is data) == ([16384] * 4, True)
    while stream.queue:
        end.feed(credited(1, 100_000), credited(0, 100_000))
        assert stream.queue is data or not stream.queue
        sent += [len(payload) for kind, _, _, payload in end.said if kind == DATA]
    assert sum(sent) == len(data)
    end.feed(answer())
    assert [response.status for response in end.result] == [200]
    end.close()


# -- clocks


def test_a_heartbeat_is_sent_when_nothing_else_was():
    end = greeted("client", hello=BEATING, options=Options(heartbeat=10))
    for _ in range(5):
        end.advance(20.1)
        ((kind, _, _, payload),) = end.said
        assert kind == PING
        end.feed(frame(PONG, 0, 0, payload))
    end.call()
    end.advance(20)
    assert [kind for kind, *_ in end.said] == [REQUEST]
    assert end.counted == []
    end.close()


def test_a_heartbeat_is_sent_when_nothing_came():
    """Else a server that says nothing to a long upload would seem dead."""
    end = greeted("client", hello=BEATING, options=Options(heartbeat=10))
    giver = Giver(close=False)
    end.call(body=giver.body)
    pings = 0
    for _ in range(100):
        end.advance(1)
        giver.write(b"x")
        for kind, _, _, payload in end.said:
            if kind == PING:
                pings += 1
                end.feed(frame(PONG, 0, 0, payload))
    assert (end.errors, pings) == ([], 2)
    end.close()


def test_a_server_that_is_silent_is_given_up():
    end = greeted("client", hello=BEATING, options=Options(heartbeat=10), response_head=0)
    end.call()
    for _ in range(5):
        end.said  # noqa: B018
        end.advance(11)
    assert end.errors == []
    end.said  # noqa: B018
    end.advance(11)
    (error,) = end.errors
    assert (error.reason, error.retry) == ("no heartbeat from the upstream", IDEMPOTENT)
    assert end.counted == ["heartbeat_timeout"]
    end.close()


def test_without_heartbeats_there_are_none():
    end = greeted("client", options=Options(heartbeat=0))
    end.advance(1000)
    assert end.said == []
    end.close()


def test_the_head_of_an_answer_must_come_in_time():
    end = greeted("client", response_head=5)
    end.call()
    end.said  # noqa: B018
    end.advance(4)
    assert end.errors == []
    end.feed(answer(flags=INTERIM, payload=told(103)))
    end.advance(2)
    (error,) = end.errors
    assert (error.phase, error.status) == (Phase.RESPONSE_HEAD, 504)
    kind, _, _, payload = one(end.said)
    assert (kind, cancelled(payload)[0]) == (CANCEL, TIMEOUT)
    assert end.counted == ["response_head_timeout"]
    end.close()


def test_the_clock_of_the_head_starts_when_the_request_has_left():
    end = greeted("client", response_head=5, upstream_stall=0)
    end.call()
    end.advance(20)
    assert end.errors == []
    end.said  # noqa: B018
    end.advance(6)
    assert [error.phase for error in end.errors] == [Phase.RESPONSE_HEAD]
    end.close()


def test_an_upload_that_goes_on_is_not_late():
    end = greeted("client", response_head=5)
    giver = Giver(close=False)
    end.call(body=giver.body)
    end.said  # noqa: B018
    end.advance(20)
    assert end.errors == []
    giver.finish()
    end.said  # noqa: B018
    end.advance(6)
    assert [error.phase for error in end.errors] == [Phase.RESPONSE_HEAD]
    end.close()


def test_the_body_of_an_answer_must_go_on():
    end = greeted("client", response_stall=5)
    end.call()
    end.said  # noqa: B018
    end.feed(answer(flags=0))
    taker = Taker(end.result[0].body)
    end.advance(4)
    end.feed(frame(DATA, 0, 1, b"x"))
    end.advance(4)
    assert taker.reason is None
    end.advance(2)
    assert taker.reason.phase == Phase.RESPONSE_STALL
    assert one(end.said)[0] == CANCEL
    end.close()


def test_nobody_is_blamed_for_an_answer_that_is_not_taken():
    end = greeted("client", response_stall=5)
    end.call()
    end.said  # noqa: B018
    end.feed(answer(flags=0) + frame(DATA, 0, 1, b"x"))
    end.advance(60)
    assert end.counted == []
    end.close()


def test_a_server_that_gives_no_credit_is_given_up():
    end = greeted("client", upstream_stall=5)
    giver = Giver([b"x" * 100000])
    end.call(body=giver.body)
    end.said  # noqa: B018
    end.advance(4)
    end.feed(credited(1, 1))
    end.said  # noqa: B018
    end.advance(4)
    assert end.errors == []
    end.advance(2)
    assert [error.phase for error in end.errors] == [Phase.UPSTREAM_STALL]
    assert giver.stopped
    end.close()


def test_a_server_that_takes_nothing_off_the_wire_is_given_up():
    end = greeted("client", upstream_stall=5)
    end.call()
    end.advance(4)
    assert end.errors == []
    end.advance(4)
    assert [error.phase for error in end.errors] == [Phase.UPSTREAM_STALL]
    assert end.wire.rst or end.wire.dead
    end.close()


def test_the_ledger_knows_when_the_request_was_sent():
    end = greeted("client")
    request = Request(b"POST", b"/7/x", body=Giver([b"x"], 1).body)
    request.ledger = Ledger(end.clock.seconds())
    end.send(request)
    assert request.ledger.sent == end.clock.seconds()
    end.close()


def test_no_abort_but_those_of_the_seams():
    end = greeted("client")
    end.call()
    end.feed(frame(10, 0, 0))
    assert [type(error) for error in end.errors] == [Abort]
    end.close()
