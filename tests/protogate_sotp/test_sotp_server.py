"""The serving side: clocks, credit, deadlines, drain, and what an answer looks like."""

from __future__ import annotations

import gzip

import pytest
from sotp_ends import HELLO, ORDER, End, frames, greeted
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred

from protogate.codings import pack
from protogate.context import Limits
from protogate.errors import CLIENT, UPSTREAM, Phase, overdue
from protogate.message import Headers, Request, Response, peer_at
from protogate.testing.bodies import Echo, Giver, Taker
from protogate.testing.cell import ok, read_then
from protogate_sotp.codings import CODINGS
from protogate_sotp.faults import DEADLINE, INTERNAL, NONE, REFUSED, TIMEOUT
from protogate_sotp.frames import (
    CANCEL,
    CREDIT,
    DATA,
    END,
    GOAWAY,
    INTERIM,
    LEAST,
    MOST_STREAM,
    PING,
    PONG,
    RESPONSE,
    Hello,
    cancelled,
    credited,
    frame,
    goaway,
    going,
)
from protogate_sotp.frames import (
    HELLO as HELLO_FRAME,
)
from protogate_sotp.heads import read_response, read_trailers, write_request
from protogate_sotp.link import Greeting
from protogate_sotp.options import Options
from protogate_sotp.server import BARRIER

NAMES = ("HELLO", "REQUEST", "RESPONSE", "DATA", "TRAILERS", "CREDIT", "CANCEL", "PING", "PONG", "GOAWAY")


def kinds(said):
    return [NAMES[kind] for kind, *_ in said]


def head(**named):
    """A REQUEST."""
    headers, wait = named.pop("headers", ()), named.pop("wait", 0)
    return write_request(Request(b"POST", b"/7/x", headers, **named), 3, lambda event: None, wait)


def waiting(request):
    return Deferred()


def reading(request):
    Taker(request.body)
    return Deferred()


# -- hello


def test_a_server_says_hello_when_it_was_greeted():
    end = End()
    assert end.wire.take() == b""
    end.feed(HELLO[:5], HELLO[5:])
    ((kind, _, stream, _),) = frames(end.wire.take())
    assert (kind, stream) == (HELLO_FRAME, 0)
    end.close()


def test_the_heads_it_announces_are_those_of_its_limits():
    small = End(limits=Limits(headers=1000, request_line=1000, header_count=10, response_headers=1000))
    assert small.end.hello.heads == LEAST.heads
    large = End(limits=Limits(headers=1 << 20))
    assert large.end.hello.heads > 1 << 20
    for end in (small, large):
        end.close()


def test_connections_share_one_hello():
    greeting = Greeting()
    one, two = (greeting.hello(Limits()) for _ in range(2))
    limits = Limits()
    assert greeting.hello(limits) is greeting.hello(limits)
    assert (one.heads, two.heads) == (greeting.hello(limits).heads,) * 2


# -- requests and answers


def test_a_request_by_number():
    end = greeted()
    end.order()
    (request,) = end.app.requests
    assert (request.method, request.target, request.authority) == (b"POST", b"/1001/order.create", b"1001")
    assert (request.service, request.protocol, request.body) == ("1001", "SOTP/1", None)
    assert (request.peer.ip, request.peer.port) == ("192.0.2.1", 54321)
    assert kinds(end.said) == ["RESPONSE"]
    assert end.app.closes == [[None]]
    end.close()


def test_a_small_answer_is_two_frames_in_one_write():
    end = greeted()
    end.app.answer = lambda request: Response(200, [], Giver([b"he", b"llo"], 5).body)
    writes = end.wire.writes
    end.order()
    assert end.wire.writes == writes + 1
    (first, second) = end.said
    assert first[:3] == (RESPONSE, 0, 1)
    assert read_response(first[3]).length == 5
    assert second == (DATA, END, 1, b"hello")
    end.close()


def test_answers_come_as_they_are_ready():
    end = greeted()
    held = {}

    def hold(request):
        held[request.target] = Deferred()
        return held[request.target]

    end.app.answer = hold
    for number in (1, 3, 5):
        end.order(number, payload=ORDER[:11] + b"" + ORDER[11:].replace(b"order.create", b"order.%06d" % number))
    for number in (5, 1, 3):
        held[b"/1001/order.%06d" % number].callback(Response(204))
    assert [stream for _, _, stream, _ in end.said] == [5, 1, 3]
    end.close()


def test_trailers_end_the_answer():
    end = greeted()
    end.app.answer = lambda request: Response(200, [], Giver([b"x"], None, [(b"x-sum", b"7")]).body)
    end.order()
    said = end.said
    assert kinds(said) == ["RESPONSE", "DATA", "TRAILERS"]
    assert read_trailers(said[2][3]) == [(b"x-sum", b"7")]
    assert end.end.busy == 0
    end.close()


@pytest.mark.parametrize("status", [204, 205, 304])
def test_answers_without_content_have_none(status):
    end = greeted()
    giver = Giver([b"five!"], 5)
    end.app.answer = lambda request: Response(status, [], giver.body)
    end.order()
    ((kind, flags, _, payload),) = end.said
    assert (kind, flags) == (RESPONSE, END)
    assert read_response(payload).length == (5 if status == 304 else None)
    assert giver.stopped
    end.close()


def test_the_answer_to_head_says_how_long_it_would_be():
    for headers, body, length in (((), Giver([b"five!"], 5).body, 5), ([(b"content-length", b"9")], None, 9)):
        end = greeted()
        end.app.answer = lambda request, headers=headers, body=body: Response(200, Headers(headers), body)
        payload = write_request(Request(b"HEAD", b"/", authority=b"a"), 3, lambda event: None)
        end.order(payload=payload)
        ((_, flags, _, payload),) = end.said
        assert (flags, read_response(payload).length) == (END, length)
        end.close()


def test_what_a_module_made_that_cannot_be_said_is_a_502():
    for response, event in (
        (Response(700), "invalid_status"),
        (Response(99), "invalid_status"),
        (Response(200, [(b"x-a", b"v" * 70000)]), "invalid_request_refused"),
        (Response(200, [(b"x-%d" % at, b"v" * 60000) for at in range(2)]), "response_headers_too_large"),
    ):
        end = greeted()
        end.app.answer = lambda request, response=response: response
        end.order()
        ((_, flags, _, payload),) = end.said
        assert (flags, read_response(payload).status) == (END, 502)
        assert event in end.counted
        end.close()


def test_a_head_that_cannot_be_said_takes_its_body_with_it():
    end = greeted()
    giver = Giver([b"x"], 1)
    end.app.answer = lambda request: Response(200, [(b"x-a", b"v" * 70000)], giver.body)
    end.order()
    assert kinds(end.said) == ["RESPONSE"]
    assert giver.stopped
    end.close()


@pytest.mark.parametrize("pieces", [[b"x" * 6], [b"x" * 4]], ids=["longer", "shorter"])
def test_a_body_that_is_not_as_long_as_it_said_is_broken_off(pieces):
    end = greeted()
    end.app.answer = lambda request: Response(200, [], Giver(pieces, 5).body)
    end.order()
    said = end.said
    assert said[-1][0] == CANCEL
    assert cancelled(said[-1][3])[0] == INTERNAL
    assert "body_length_mismatch" in end.counted
    end.close()


def test_trailers_that_are_too_large_break_the_answer_off():
    end = greeted()
    trailers = [(b"x-%d" % at, b"v" * 60000) for at in range(2)]
    end.app.answer = lambda request: Response(200, [], Giver([b"x"], None, trailers).body)
    end.order()
    assert kinds(end.said)[-1] == "CANCEL"
    end.close()


def test_interims_are_sent_until_the_answer():
    end = greeted()
    later = Deferred()
    end.app.answer = lambda request: later
    end.order()
    passes = end.app.requests[0].interim
    passes(Response(103, [(b"link", b"</a>")]))
    passes(Response(100))
    passes(Response(103, [(b"x-a", b"v" * 70000)]))
    ((kind, flags, _, payload),) = end.said
    assert (kind, flags, read_response(payload).status) == (RESPONSE, INTERIM, 103)
    assert end.counted == ["invalid_request_refused"]
    later.callback(Response(204))
    passes(Response(103))
    assert kinds(end.said) == ["RESPONSE"]
    end.close()


def test_content_is_asked_for_when_it_is_wanted():
    end = greeted()
    end.app.answer = waiting
    end.order(flags=0, payload=head(headers=[(b"expect", b"100-continue")]))
    assert end.said == []
    (request,) = end.app.requests
    assert request.headers == [(b"expect", b"100-continue")]
    taker = Taker(request.body)
    ((kind, flags, _, payload),) = end.said
    assert (kind, flags, read_response(payload).status) == (RESPONSE, INTERIM, 100)
    taker.pause()
    taker.resume()
    assert end.said == []
    end.close()


def test_an_expectation_without_content_is_none():
    end = greeted()
    end.order(payload=head(headers=[(b"expect", b"100-continue")]))
    assert end.app.requests[0].headers == []
    end.close()


def test_a_request_that_ends_beside_a_length_is_none():
    end = greeted()
    end.order(payload=head(body=Giver([b"x"], 3).body))
    assert end.app.requests[0].malformed.status == 400
    end.order(3, payload=head(body=Giver([], 0).body))
    assert end.app.requests[1].malformed is None
    end.close()


def test_an_unknown_compression_of_the_client_is_unpacked():
    for coding in CODINGS.values():
        end = greeted()  # HELLO says nothing of compression
        data = pack(coding, b"hello " * 1000)
        end.app.answer = lambda request, data=data, coding=coding: Response(
            200, Headers([(b"content-encoding", coding)]), Giver([data], len(data)).body
        )
        end.order()
        said = end.said
        told = read_response(said[0][3])
        assert (told.fields, told.length) == ([], None)
        assert b"".join(payload for kind, _, _, payload in said if kind == DATA) == b"hello " * 1000
        end.close()


def test_a_known_compression_is_passed_on():
    end = greeted(hello=Hello(capabilities=1).pack())
    data = gzip.compress(b"hello")
    end.app.answer = lambda request: Response(
        200, Headers([(b"content-encoding", b"gzip")]), Giver([data], len(data)).body
    )
    end.order()
    said = end.said
    assert said[0][3][5] == 1
    assert said[1][3] == data
    end.close()


@pytest.mark.parametrize(("tls", "scheme"), [(False, b"http"), (True, b"https")])
def test_the_scheme_is_what_we_see_and_not_what_the_client_says(tls, scheme):
    for said in (b"http", b"https"):
        end = greeted()
        end.end.peer.tls = tls
        end.order(payload=head(scheme=said))
        assert end.app.requests[0].scheme == scheme
        end.close()


# -- credit


def test_credit_comes_back_by_halves():
    end = greeted()
    end.app.answer = reading
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 32767))
    assert end.said == []
    end.feed(frame(DATA, 0, 1, b"x"))
    assert end.said == [(CREDIT, 0, 1, (32768).to_bytes(4, "big"))]
    end.close()


def test_who_pauses_gives_no_credit():
    end = greeted()
    takers = []

    def pausing(request):
        takers.append(Taker(request.body, 1))
        return Deferred()

    end.app.answer = pausing
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 65536))
    assert end.said == []
    takers[0].limit = None
    takers[0].resume()
    assert kinds(end.said) == ["CREDIT"]
    end.close()


def test_the_credit_of_the_connection_comes_back_whatever_becomes_of_the_streams():
    end = greeted(options=Options(streams=1))  # 1 MiB in all
    end.app.answer = ok  # wants nothing
    back, sent = 0, 0
    for number in range(1, 99, 2):
        end.order(number, flags=0)
        end.feed(frame(DATA, 0, number, b"x" * 60000))
        sent += 60000
        end.feed(frame(CANCEL, 0, number, b"\0\0"))
        back += sum(
            int.from_bytes(payload, "big") for kind, _, stream, payload in end.said if (kind, stream) == (CREDIT, 0)
        )
    assert sent - back < 1 << 19
    end.close()


def test_the_credit_of_the_connection_comes_back_however_much_of_it_is_held():
    """Else who reads would wait for who does not."""
    end = greeted(options=Options(window=1 << 20, connection_window=1 << 20))
    takers = []

    def answer(request):
        if not takers:
            takers.append(Taker(request.body))
        return Deferred()

    end.app.answer = answer
    end.order(1, flags=0).order(3, flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 1000))
    assert (takers[0].size, end.said) == (1000, [])
    left = (1 << 20) - 1000
    while left:  # nobody takes that
        size = min(left, 65536)
        assert end.said == []
        end.feed(frame(DATA, 0, 3, b"x" * size))
        left -= size
    ((kind, _, stream, payload),) = end.said
    assert (kind, stream, int.from_bytes(payload, "big")) == (CREDIT, 0, 1000)
    end.feed(frame(DATA, 0, 1, b"x" * 1000))
    assert takers[0].size == 2000
    assert not end.end.dead
    end.close()


def test_what_is_owed_when_a_stream_ends_is_given_back_then():
    end = greeted(options=Options(streams=1))
    end.app.answer = read_then(lambda request, data: Response(204))
    back = 0
    for number in range(1, 121, 2):
        end.order(number, flags=0)
        end.feed(frame(DATA, 0, number, b"x" * 10000), frame(DATA, 0, number, b"x" * 10000), frame(DATA, END, number))
        back += sum(
            int.from_bytes(payload, "big") for kind, _, stream, payload in end.said if (kind, stream) == (CREDIT, 0)
        )
    assert 60 * 20000 - back < 1 << 19
    end.close()


def test_the_credit_of_content_that_was_too_long_comes_back():
    end = greeted(options=Options(streams=1))
    end.app.answer = reading
    back = 0
    for number in range(1, 41, 2):
        end.order(number, flags=0, payload=head(body=Giver([], 1).body))
        end.feed(frame(DATA, 0, number, b"x" * 50000))
        back += sum(
            int.from_bytes(payload, "big") for kind, _, stream, payload in end.said if (kind, stream) == (CREDIT, 0)
        )
    assert not end.end.dead
    assert 1000000 - back < 1 << 19
    end.close()


def test_no_credit_is_given_for_a_stream_on_which_all_has_come():
    end = greeted()
    takers = []

    def pausing(request):
        takers.append(Taker(request.body, 1))
        return Deferred()

    end.app.answer = pausing
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 40000), frame(DATA, END, 1, b"x"))
    takers[0].limit = None
    takers[0].resume()
    assert takers[0].size == 40001
    assert end.said == []
    end.close()


def test_credit_of_the_connection_wakes_nobody_while_the_transport_is_full():
    end = greeted(hello=Hello(total=1 << 20, window=1 << 30).pack())
    giver = Giver([b"x" * 100000] * 20)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.order()
    sent = 0
    while said := end.said:
        sent += sum(len(payload) for kind, _, _, payload in said if kind == DATA)
    assert sent == 1 << 20
    end.end.pauseProducing()
    end.feed(credited(0, 50000))
    assert end.wire.value() == b""
    end.end.resumeProducing()
    assert sum(len(payload) for kind, _, _, payload in end.said if kind == DATA) == 50000
    end.close()


def test_what_is_sent_waits_for_credit_and_keeps_the_order():
    end = greeted()
    body = bytes(range(256)) * 512  # 128 KiB
    end.app.answer = lambda request: Response(200, [], Giver([body], len(body), [(b"x-a", b"1")]).body)
    end.order()
    got = b"".join(payload for kind, _, _, payload in end.said if kind == DATA)
    assert len(got) == 65536
    while len(got) < len(body):
        end.feed(credited(1, 10000))
        said = end.said
        got += b"".join(payload for kind, _, _, payload in said if kind == DATA)
    assert got == body
    assert kinds(said)[-1] == "TRAILERS"
    assert end.end.busy == 0
    end.close()


def test_a_frame_is_no_larger_than_the_peer_takes():
    end = greeted(hello=Hello(data=20000).pack())
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 50000], 50000).body)
    end.order()
    assert [len(payload) for kind, _, _, payload in end.said if kind == DATA] == [20000, 20000, 10000, 0]
    end.close()


def test_the_credit_of_the_connection_is_for_all_streams():
    end = greeted(hello=Hello(total=1 << 20, window=1 << 20).pack())
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 700000], 700000).body)
    end.order(1).order(3)
    got = {1: 0, 3: 0}

    def read():
        for kind, _, stream, payload in end.said:
            if kind == DATA:
                got[stream] += len(payload)

    read()
    assert sum(got.values()) == 1 << 20
    for _ in range(40):
        end.feed(credited(0, 10000))
        read()
    assert got == {1: 700000, 3: 700000}
    end.close()


def test_streams_take_turns_when_the_connection_is_short():
    end = greeted(hello=Hello(total=1 << 20, window=1 << 30).pack())
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 1000000] * 9).body)
    end.order(1).order(3).order(5)
    got = {1: 0, 3: 0, 5: 0}
    for _ in range(60):
        for kind, _, stream, payload in end.said:
            if kind == DATA:
                got[stream] += len(payload)
        end.feed(credited(0, 20000))
    assert min(got[3], got[5]) >= 300000
    end.close()


def test_a_full_transport_stops_what_is_written():
    end = greeted(hello=Hello(window=1 << 30, total=1 << 30).pack(), high=100000)
    giver = Giver([b"x" * 10000] * 100)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.order()
    assert giver.gave < 300000
    for _ in range(20):
        end.said  # noqa: B018
    assert giver.gave == 1000000
    end.close()


# -- early ends


def test_an_early_answer_cancels_the_rest():
    end = greeted()
    end.order(flags=0)
    said = end.said
    assert kinds(said) == ["RESPONSE", "CANCEL"]
    assert cancelled(said[1][3]) == (NONE, "")
    assert end.app.closes == [[None]]
    end.close()


def test_a_client_that_gives_up_is_told_to_the_service_and_to_nobody_else():
    end = greeted()
    gone = []
    end.app.answer = lambda request: Deferred(gone.append)
    end.order(1).order(3)
    end.feed(frame(CANCEL, 0, 1, b"\0\1bye"))
    assert len(gone) == 1
    assert (end.end.busy, end.said) == (1, [])
    assert end.app.closes[0][0].who == CLIENT
    end.close()


def test_a_request_cancelled_in_the_read_that_brought_it_never_reaches_the_service():
    end = greeted()
    end.feed(frame(1, 1, 1, ORDER) + frame(CANCEL, 0, 1, b"\0\1"))
    assert end.app.requests == []
    end.close()


def test_nothing_is_said_to_who_gave_up_in_the_read_that_asked_for_it():
    end = greeted()
    end.app.answer = lambda request: Response(200, [], Echo(request.body).out)
    end.order(flags=0)
    assert kinds(end.said) == ["RESPONSE"]
    end.feed(frame(DATA, 0, 1, b"hello") + frame(CANCEL, 0, 1, b"\0\1"))
    assert end.said == []
    end.close()


def test_credit_that_comes_often_wakes_once_a_read():
    end = greeted()
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 1000, b"rest"], 1004).body)
    end.end.credit = 1000  # others have used it
    end.order()
    assert len(end.said) == 2
    before = end.end._rounds
    end.feed(frame(CREDIT, 0, 0, b"\0\0\0\1") * 1000)
    assert end.end._rounds == before + 1
    assert b"".join(payload for *_, payload in end.said) == b"rest"
    end.feed(frame(CREDIT, 0, 0, b"\0\0\0\1") * 1000)
    assert end.end._rounds == before + 1, "nobody waits for it"
    end.close()


def test_more_requests_than_it_takes_are_refused_unread():
    end = greeted(options=Options(streams=2))
    end.app.answer = waiting
    for number in (1, 3, 5):
        end.order(number)
    ((kind, _, stream, payload),) = end.said
    assert (kind, stream, cancelled(payload)[0]) == (CANCEL, 5, REFUSED)
    assert len(end.app.requests) == 2
    assert end.counted == ["stream_refused"]
    end.close()


def test_a_body_that_grows_over_the_limit_is_broken():
    end = greeted(limits=Limits(body=1000))
    end.app.answer = reading
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 1001))
    assert end.counted == ["body_too_large"]
    end.feed(frame(DATA, 0, 1, b"x" * 1001))
    assert end.counted == ["body_too_large"]
    end.close()


# -- deadlines


def test_a_deadline_is_counted_from_its_head_and_left_to_the_service():
    end = greeted()
    gone = []
    end.app.answer = lambda request: Deferred(gone.append)
    end.order(payload=head(wait=1500))
    (request,) = end.app.requests
    assert (request.headers, request.deadline) == ([], end.clock.seconds() + 1.5)
    end.advance(1.6)
    assert (end.said, gone) == ([], [])
    end.close()


def test_a_request_without_a_deadline_has_none():
    end = greeted()
    end.order(payload=head())
    assert end.app.requests[0].deadline is None
    end.close()


def test_an_answer_that_a_deadline_breaks_off_says_so():
    end = greeted()
    giver = Giver([b"some"], close=False)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.order(payload=head(wait=1000))
    giver.body.abort(overdue(UPSTREAM))
    said = end.said
    assert kinds(said) == ["RESPONSE", "DATA", "CANCEL"]
    assert cancelled(said[-1][3]) == (DEADLINE, "deadline exceeded")
    end.close()


# -- clocks


def test_a_link_that_says_nothing_is_closed():
    end = End(client_idle=5)
    end.advance(6)
    assert end.counted == ["client_idle_timeout"]
    assert end.closed or end.wire.closing
    end.close()


def test_a_link_without_heartbeats_is_closed_when_it_is_idle():
    end = greeted(client_idle=5)
    end.order()
    end.advance(4)
    end.order(3)
    end.advance(4)
    assert end.counted == []
    end.advance(2)
    assert end.counted == ["client_idle_timeout"]
    assert kinds(end.said) == ["RESPONSE", "RESPONSE", "GOAWAY"]
    end.close()


def test_a_link_without_heartbeats_is_not_idle_while_a_request_is_under_way():
    end = greeted(client_idle=5)
    end.app.answer = waiting
    end.order()
    end.advance(60)
    assert end.counted == []
    end.close()


BEATING = Hello(heartbeat=20).pack()


def test_heartbeats_keep_a_link():
    end = greeted(hello=BEATING, options=Options(heartbeat=10), client_idle=5)
    assert end.end.beat == 20
    for _ in range(10):
        end.advance(55)
        end.feed(frame(PING, 0, 0, b"8 bytes."))
        assert end.said == [(PONG, 0, 0, b"8 bytes.")]
    assert end.counted == []
    end.advance(59)
    assert end.counted == []
    end.advance(2)
    assert end.counted == ["heartbeat_timeout"]
    end.close()


def test_a_dead_peer_ends_its_requests():
    end = greeted(hello=BEATING, options=Options(heartbeat=10))
    gone = []
    end.app.answer = lambda request: Deferred(gone.append)
    end.order()
    end.advance(62)
    assert len(gone) == 1
    assert end.app.closes[0][0].reason == "no heartbeat from the client"
    end.close()


def test_a_frame_must_come_whole_in_time():
    end = greeted(client_header=5)
    end.feed(frame(1, 1, 1, ORDER)[:20])
    end.advance(4)
    end.feed(frame(1, 1, 1, ORDER)[20:22])
    assert end.counted == []
    end.advance(2)
    assert end.counted == ["client_header_timeout"]
    end.close()


def test_a_frame_that_came_late_but_whole_is_no_fault():
    end = greeted(client_header=5)
    end.feed(frame(1, 1, 1, ORDER)[:20])
    end.advance(4)
    end.feed(frame(1, 1, 1, ORDER)[20:])
    end.advance(9)
    assert end.counted == []
    assert end.app.requests[0].ledger.head - end.app.requests[0].ledger.first > 3.9
    end.close()


def test_content_in_small_pieces_has_all_the_time_it_needs():
    end = greeted(client_header=5, client_stall=5)
    end.app.answer = reading
    data = frame(1, 0, 1, ORDER) + frame(DATA, 0, 1, b"x" * 100)
    end.feed(data[:-90])
    for at in range(90, 0, -10):
        end.advance(4)
        end.feed(data[-at : len(data) - at + 10])
    assert end.counted == []
    assert end.app.requests[0].ledger.received == 100
    end.close()


def test_an_upload_that_stands_still_is_broken():
    end = greeted(client_stall=5)
    takers = []

    def take(request):
        takers.append(Taker(request.body))
        return Deferred()

    end.app.answer = take
    end.order(flags=0)
    end.advance(4)
    end.feed(frame(DATA, 0, 1, b"x"))
    end.advance(4)
    assert end.counted == []
    end.advance(2)
    assert end.counted == ["client_stall_timeout"]
    assert takers[0].reason.phase == Phase.CLIENT_STALL
    end.close()


def test_nobody_is_blamed_for_an_upload_that_is_not_wanted():
    end = greeted(client_stall=5)
    end.app.answer = waiting
    end.order(flags=0)
    end.feed(frame(DATA, 0, 1, b"x" * 65536))
    end.advance(60)
    assert end.counted == []
    end.close()


def test_an_upload_beside_an_answer_is_given_up():
    end = greeted(client_stall=5)
    takers = []

    def both(request):
        takers.append(Taker(request.body))
        return Response(200, [], Giver([b"x"], close=False).body)

    end.app.answer = both
    end.order(flags=0)
    assert kinds(end.said) == ["RESPONSE", "DATA"]
    end.advance(6)
    ((kind, _, _, payload),) = end.said
    assert (kind, cancelled(payload)[0]) == (CANCEL, TIMEOUT)
    end.close()


def test_an_upload_below_the_least_rate_is_broken():
    end = greeted(client_min_rate=100.0, client_stall=0)
    end.app.answer = reading
    end.order(flags=0)
    for _ in range(3):
        for _ in range(10):
            end.advance(1)
            end.feed(frame(DATA, 0, 1, b"x" * 110))
    assert end.counted == []
    end.advance(11)
    assert end.counted == ["client_min_rate_timeout"]
    end.close()


def test_a_client_that_gives_no_credit_is_given_up():
    end = greeted(client_stall=5)
    giver = Giver([b"x" * 100000])
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.order()
    for _ in range(2):
        end.said  # noqa: B018
        end.advance(4)
        end.feed(credited(1, 1))
    end.said  # noqa: B018
    assert end.counted == []
    end.advance(4)
    assert end.counted == []
    end.advance(2)
    assert end.counted == ["client_stall_timeout"]
    assert kinds(end.said)[-1] == "CANCEL"
    end.close()


def test_a_client_that_takes_nothing_off_the_wire_is_given_up():
    end = greeted(hello=Hello(window=1 << 30, total=1 << 30).pack(), client_stall=5)
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 50000] * 9).body)
    end.order()
    end.advance(6)
    assert end.counted == ["client_stall_timeout"]
    assert end.wire.rst or end.wire.dead
    end.close()


# -- ends


def test_a_drain_loses_no_request_that_is_on_its_way():
    end = greeted()
    end.end.drain()
    end.end.drain()
    said = end.said
    assert kinds(said) == ["GOAWAY", "PING"]
    assert going(said[0][3]) == (MOST_STREAM, NONE, "")
    end.order(1)  # it was on its way
    assert kinds(end.said) == ["RESPONSE"]
    end.feed(frame(PONG, 0, 0, BARRIER))
    ((kind, _, _, payload),) = end.said
    assert (kind, going(payload)) == (GOAWAY, (1, NONE, ""))
    assert end.end.dead
    end.close()


def test_a_drain_refuses_what_comes_after_and_ends_what_is_there():
    end = greeted()
    held = Deferred()
    end.app.answer = lambda request: held
    end.order(1)
    end.end.drain()
    end.feed(frame(PONG, 0, 0, b"another."))
    assert end.end.final is None
    end.feed(frame(PONG, 0, 0, BARRIER))
    end.order(3)
    said = end.said
    assert kinds(said) == ["GOAWAY", "PING", "CANCEL"]
    assert cancelled(said[2][3])[0] == REFUSED
    held.callback(Response(204))
    said = end.said
    assert kinds(said) == ["RESPONSE", "GOAWAY"]
    assert going(said[1][3])[0] == 1
    end.close()


def test_a_drain_does_not_wait_for_ever_for_a_client():
    end = greeted()
    end.end.drain()
    end.advance(6)
    assert kinds(end.said) == ["GOAWAY", "PING", "GOAWAY"]
    end.close()


def test_a_drain_before_hello_closes():
    end = End()
    end.end.drain()
    assert end.end.dead
    ((kind, _, _, payload),) = end.said
    assert (kind, going(payload)) == (GOAWAY, (0, NONE, "")), "whatever is on its way may be sent elsewhere"
    end.close()


def test_goaway_of_a_client_is_heard():
    end = greeted()
    end.feed(goaway(0, NONE), goaway(0, INTERNAL, "ouch"))
    assert end.counted == ["peer_complained"]
    end.order()
    assert kinds(end.said) == ["RESPONSE"]
    end.close()


def test_an_abort_says_so_in_the_record():
    end = greeted()
    end.app.answer = waiting
    end.order()
    end.end.abort()
    assert end.app.closes[0][0].status == 503
    end.close()


@pytest.mark.parametrize(
    ("address", "ip"),
    [
        (IPv4Address("TCP", "192.0.2.1", 9), "192.0.2.1"),
        (IPv6Address("TCP", "::ffff:192.0.2.1", 9), "192.0.2.1"),
        (IPv6Address("TCP", "fe80::1%eth0", 9), "fe80::1"),
        (IPv4Address("TCP", "a name", 9), "a name"),
        (UNIXAddress(b"/x"), ""),
    ],
)
def test_a_peer_has_its_address_in_one_form(address, ip):
    assert peer_at(address).ip == ip


def test_a_tunnel_of_an_unknown_kind_is_not_implemented():
    end = greeted()
    payload = bytes(10) + b"\x02" + bytes(5)
    end.order(flags=0, payload=payload[:16] + b"\x03\x03\0\x01GET/h2c")
    assert end.app.requests[0].malformed.status == 501
    end.close()
