"""The serving side of a protocol that answers in order: one raw client, one service, no sockets."""

from __future__ import annotations

import pytest
from toy import ServerEnd, ToyServer
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from zope.interface.verify import verifyObject

from protogate.context import Limits, Timeouts
from protogate.errors import CLIENT_GONE, CUT_OFF, Abort, Phase
from protogate.interfaces import IConnection
from protogate.message import Peer, Response
from protogate.ordered.link import AHEAD
from protogate.ordered.server import DRAIN, QUIET, TURN
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import read_then
from protogate.testing.transport import HIGH

GET = b"GET /%d a 0\n\n.\n"
NONE = b"204 0\n\n.\n"


def whole(status, data=b""):
    return b"%d %d\n\n%b.\n" % (status, len(data), data)


def asked(end):
    return [request.target for request in end.app.requests]


def waiting(end):
    """A service that answers when it is told to: its Deferreds."""
    held = []

    def hold(request):
        held.append(Deferred())
        return held[-1]

    end.app.answer = hold
    return held


def reading(end):
    """A service that reads what it is sent, as far as it is told to, and does not answer: its Takers."""
    takers = []

    def read(request):
        takers.append(Taker(request.body, 1))
        return Deferred()

    end.app.answer = read
    return takers


def test_interfaces():
    assert verifyObject(IConnection, ServerEnd().link)


def test_who_asks_and_how():
    for peer, scheme in ((Peer("192.0.2.9", 7), b"http"), (Peer("192.0.2.9", 7, tls=True), b"https")):
        end = ServerEnd(peer=peer)
        end.send(GET % 1)
        (request,) = end.app.requests
        assert (request.peer, request.scheme, request.protocol) == (peer, scheme, "TOY")


# -- order


def test_the_next_request_is_not_looked_at_before_the_answer_to_this_one_is_out():
    end = ServerEnd()
    held = waiting(end)
    end.send(b"".join(GET % n for n in range(3)))
    for n in range(3):
        assert asked(end) == [b"/%d" % m for m in range(n + 1)]
        assert end.link.busy == 1
        held[n].callback(Response(200 + n))
    assert end.said == whole(200) + whole(201) + whole(202)
    assert end.link.busy == 0


def test_the_next_one_waits_for_the_end_of_the_body_too():
    end = ServerEnd()
    giver = Giver(length=4, close=False)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1 + GET % 2)
    giver.write(b"four")
    assert asked(end) == [b"/1"]
    end.app.answer = lambda request: Response(204)
    giver.finish()
    assert asked(end) == [b"/1", b"/2"]
    assert end.said == whole(200, b"four") + NONE


def test_what_one_read_causes_leaves_in_one_write():
    end = ServerEnd()
    end.send(b"".join(GET % n for n in range(TURN)))
    assert (end.said, end.wire.writes) == (NONE * TURN, 1)


def test_who_asks_much_at_once_does_not_keep_the_others_waiting():
    end = ServerEnd()
    end.send(b"".join(GET % n for n in range(3 * TURN + 1)))
    seen = []
    for _ in range(3):  # everybody else
        end.clock.callLater(0, lambda: seen.append(len(end.app.requests)))
    assert len(end.app.requests) == TURN
    end.clock.advance(0)
    assert seen == [2 * TURN] * 3
    assert asked(end) == [b"/%d" % n for n in range(3 * TURN + 1)]
    assert end.said == NONE * (3 * TURN + 1)


def test_who_leaves_while_the_others_have_their_turn_is_forgotten():
    end = ServerEnd()
    end.send(b"".join(GET % n for n in range(2 * TURN)))
    end.leave()
    end.clock.advance(0)
    assert len(end.app.requests) == TURN


def test_a_bound_on_what_is_read_ahead():
    end = ServerEnd()
    held = waiting(end)
    end.send(GET % 1)
    some = b"".join(GET % n for n in range(100))
    sent = 0
    while end.wire.reading:
        end.send(some)
        sent += len(some)
    assert AHEAD < sent <= AHEAD + len(some)
    end.app.answer = lambda request: Response(204)
    held[0].callback(Response(204))
    for _ in range(sent // len(GET % 10) // TURN + 1):
        end.clock.advance(0)
    assert end.wire.reading
    assert len(end.app.requests) == 1 + sent // len(some) * 100


def test_nothing_is_asked_for_who_does_not_read_his_answers():
    end = ServerEnd()
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 60000], 60000).body)
    end.send(GET % 0 * 10)
    for n in range(2, 11, 2):
        assert len(end.app.requests) == n
        end.wire.clear()


# -- back-pressure


def test_an_upload_is_read_as_fast_as_it_is_taken():
    end = ServerEnd()
    takers = reading(end)
    end.send(b"PUT / a *\n\n")
    while end.wire.reading:
        end.send(b"1000\n" + b"x" * 1000)
    (taker,) = takers
    assert taker.size == 1000
    assert AHEAD < len(end.link.input) < AHEAD + 2000
    while not end.wire.reading:
        taker.resume()
    taker.limit = None
    taker.resume()
    end.send(b"0\n.;x-sum=7\n")
    assert (taker.finished, taker.trailers) == (True, [(b"x-sum", b"7")])


def test_an_answer_is_taken_as_fast_as_it_is_read():
    end = ServerEnd()
    giver = Giver([b"x" * 10000] * 100, 1000000)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 0)
    got = b""
    while end.wire.size:
        assert giver.gave - len(got) <= 2 * HIGH
        got += end.wire.take()
    assert got == whole(200, b"x" * 1000000)


# -- framing


@pytest.mark.parametrize(("pieces", "length"), [([b"12345"], 4), ([b"123"], 4), ([b"12", b"345"], 4), ([], 1)])
def test_an_answer_that_is_not_as_long_as_it_said_breaks_off(pieces, length):
    end = ServerEnd()
    giver = Giver(pieces, length)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1 + GET % 2)
    assert (end.wire.rst, end.counted, asked(end)) == (True, ["body_length_mismatch"], [b"/1"])
    assert end.app.closes[0][0].status == 500


def test_content_that_cannot_be_said_is_dropped_and_the_next_request_served():
    end = ServerEnd()
    givers = []

    def answer(request):
        givers.append(Giver([b"four"], 4))
        return Response(200, [], givers[-1].body)

    end.app.answer = answer
    end.send(b"HEAD / a 0\n\n.\n" + GET % 1)
    assert end.said == whole(200) + whole(200, b"four")
    assert (givers[0].stopped, givers[0].gave) == (True, 0)
    assert end.app.closes == [[None], [None]]


def test_a_head_that_cannot_be_written_breaks_off(flush_errors):
    class Broken(ToyServer):
        def head(self, response, length):
            raise LookupError("broken")

    end = ServerEnd(Broken)
    giver = Giver([b"x"], 1)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1)
    assert (end.wire.rst, giver.stopped) == (True, True)
    assert len(flush_errors(LookupError)) == 1


# -- what is no request


def refused(request):
    """Answers as the gateway does."""
    if request.body is not None:
        request.body.stopProducing()
    return Response(request.malformed.status if request.malformed else 204)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\n\n.\n",
        b"GET / a -1\n\n.\n",
        b"GET / a x\n\n.\n",
        b"x" * 20000,
        b"PUT / a 2\n\nabc.\n",
        b"PUT / a *\n\n1\nab0\n.\n",
        b"PUT / a *\n\n0\n.;\r=x\n",
    ],
)
@pytest.mark.parametrize("single", [False, True])
def test_what_makes_no_sense_is_answered_once_and_ends_the_connection(data, single):
    end = ServerEnd()
    end.app.answer = refused
    data += GET % 7
    for piece in [data[at : at + 1] for at in range(len(data))] if single else [data]:
        if end.wire.reading:
            end.send(piece)
    assert end.said in (whole(400), whole(204))  # it was answered before the fault came, or not
    assert b"/7" not in asked(end)
    assert end.link.lingering
    assert end.counted == ([] if end.said == whole(204) and not single else ["malformed_request"] * len(end.counted))
    end.advance(60)
    assert end.wire.closing


def test_what_may_not_be_asked_is_answered_and_the_next_request_served():
    for start in (b"G@T / a", b"GET x a", b"GET /\x80 a", b"GET / \xff", b"GET /#x a"):
        end = ServerEnd()
        end.app.answer = refused
        end.send(start + b" 3\n\nabc.\n" + GET % 1)
        assert end.said == whole(400) + whole(204), start
        assert end.counted == ["malformed_request"]
        assert [request.malformed is None for request in end.app.requests] == [False, True]
    end = ServerEnd()
    end.app.answer = refused
    end.send(b"GET / a 0\nx=a\rb\n\n.\n" + GET % 1)
    assert end.said == whole(400) + whole(204)


@pytest.mark.parametrize(
    ("limits", "data", "status"),
    [
        (Limits(request_line=20), b"GET /%b a 0\n\n.\n" % (b"x" * 30), 414),
        (Limits(header_line=20), b"GET / a 0\nx=%b\n\n.\n" % (b"x" * 30), 431),
        (Limits(header_count=2), b"GET / a 0\n%b\n.\n" % (b"x=y\n" * 3), 431),
        (Limits(headers=20), b"GET / a 0\n%b\n.\n" % (b"abc=def\n" * 4), 431),
        (Limits(body=10), b"PUT / a 11\n\n12345678901.\n", 413),
    ],
)
def test_what_is_over_a_limit_is_refused_and_the_next_request_served(limits, data, status):
    end = ServerEnd(limits=limits)
    end.app.answer = refused
    end.send(data + GET % 1)
    assert end.said == whole(status) + whole(204)


def test_content_over_the_limit_whose_length_nobody_told_is_refused():
    end = ServerEnd(limits=Limits(body=10))
    takers = []

    def answer(request):
        takers.append(Taker(request.body))
        return Response(request.malformed.status) if request.malformed else Deferred()

    end.app.answer = answer
    end.send(b"PUT / a *\n\n6\nabcdef5\nabcde0\n.\n" + GET % 1)
    assert (end.said, takers[0].reason.status, len(takers)) == (whole(413), 413, 1)
    end = ServerEnd(limits=Limits(body=10))
    end.app.answer = answer
    end.send(b"PUT / a *\n\n6\nabcdef")
    end.send(b"5\nabcde")
    assert (takers[1].data, takers[1].reason.status) == (b"abcdef", 413)


@pytest.mark.parametrize("error", [KeyError("x"), TypeError(), StopIteration()])
def test_a_parser_that_fails_ends_the_connection_and_is_logged(error, flush_errors):
    class Broken(ToyServer):
        def read(self):
            while not len(self.input):
                yield None
            if not isinstance(error, StopIteration):
                raise error

    end = ServerEnd(Broken)
    end.app.answer = refused
    end.send(b"x")
    assert end.said == whole(500)
    assert len(flush_errors(type(error))) == 1
    end.send(b"x")
    assert len(end.app.requests) == 1


def test_what_is_too_deep_is_no_request():
    class Deep(ToyServer):
        def read(self):
            while not len(self.input):
                yield None
            raise RecursionError("too deep")

    end = ServerEnd(Deep)
    end.app.answer = refused
    end.send(b"x")
    assert (end.said, end.counted) == (whole(400), ["malformed_request"])


# -- early answers, and what nobody wants


def test_an_early_answer_keeps_the_connection_while_what_is_left_is_small():
    end = ServerEnd()
    end.send(b"PUT / a %d\n\n" % DRAIN)
    assert end.said == NONE
    assert end.link.busy == 1
    end.send(b"x" * DRAIN + b".\n" + GET % 1)
    assert end.said == NONE * 2


def test_an_early_answer_ends_the_connection_when_much_is_left():
    for data in (b"x" * (DRAIN + 1), b"x" * (3 * DRAIN) + b".\n" + GET % 1):
        end = ServerEnd()
        end.send(b"PUT / a %d\n\n" % (3 * DRAIN))
        end.send(data)
        assert (end.said, end.link.lingering, asked(end)) == (NONE, True, [b"/"])


def test_an_upload_that_nobody_wants_waits_for_its_answer():
    end = ServerEnd()
    held = waiting(end)
    end.send(b"PUT / a %d\n\n" % (9 * DRAIN))
    end.app.requests[0].body.stopProducing()
    while end.wire.reading:
        end.send(b"x" * 10000)
    assert end.said == b""
    held[0].callback(Response(413))
    assert (end.said, end.link.lingering) == (whole(413), True)


def test_pieces_of_nothing_are_not_read_for_ever():
    class Empty(ToyServer):
        def read(self):
            yield from super().read()

        def _more(self, data):
            super()._more(b"")

    end = ServerEnd(Empty)
    end.send(b"PUT / a *\n\n")
    while end.wire.reading and not end.link.dead:
        end.send(b"1\nx" * 10000)
    assert end.link.lingering


# -- who leaves


def test_who_leaves_is_cancelled_first_and_his_upload_broken_off_then():
    for why in (None, ConnectionLost()):
        end = ServerEnd()
        seen = []
        takers = []

        def answer(request, takers=takers, seen=seen):
            takers.append(Taker(request.body))
            return Deferred(lambda _: seen.append(takers[0].ended))

        end.app.answer = answer
        end.send(b"PUT / a 9\n\nabc")
        end.leave(why)
        assert seen == [False]
        assert takers[0].reason is CLIENT_GONE
        assert end.app.closes == [[CLIENT_GONE]]
        assert end.link.busy == 0


def test_a_body_that_is_written_is_stopped_when_the_client_leaves():
    end = ServerEnd()
    giver = Giver(close=False)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1)
    end.leave()
    assert (giver.stopped, end.app.closes) == (True, [[CLIENT_GONE]])


def test_a_half_close_while_an_answer_is_owed_means_that_the_client_left():
    end = ServerEnd()
    held = waiting(end)
    end.send(GET % 1)
    end.link.readConnectionLost()
    assert (held[0].called, end.wire.rst, end.app.closes) == (True, True, [[CLIENT_GONE]])


def test_a_half_close_when_nothing_is_owed_loses_nothing_that_was_said():
    end = ServerEnd()
    end.send(GET % 1)
    end.link.readConnectionLost()
    assert (end.said, end.wire.closing, end.wire.rst) == (NONE, True, False)


def test_a_half_close_ends_lingering():
    end = ServerEnd()
    end.app.answer = refused
    end.send(b"?\n\n")
    assert end.link.lingering
    end.link.readConnectionLost()
    assert not end.link.lingering
    assert end.wire.closing


# -- drain and abort


def test_drain_waits_a_while_for_a_request_that_is_on_its_way():
    end = ServerEnd()
    end.link.drain()
    end.advance(QUIET - 0.5)
    end.send(GET % 1)
    assert (end.said, end.wire.closing) == (NONE, True)
    end = ServerEnd()
    end.link.drain()
    end.advance(QUIET + 0.5)
    assert (end.wire.closing, end.counted) == (True, [])


def test_what_a_loop_far_behind_has_not_read_yet_is_answered():
    end = ServerEnd()
    end.link.drain()
    end.clock.advance(QUIET * 10)  # a single turn: clocks come first, then what can be read
    end.send(GET % 1)
    assert (end.said, end.wire.closing) == (NONE, True)


def test_drain_lets_the_answer_end_and_takes_no_other_request():
    end = ServerEnd()
    held = waiting(end)
    end.send(GET % 1 + GET % 2)
    end.link.drain()
    end.link.drain()
    end.advance(QUIET * 3)
    assert not end.wire.closing
    held[0].callback(Response(204))
    assert (end.said, asked(end), end.link.dead) == (NONE, [b"/1"], True)


def test_abort_ends_the_request_before_it_returns():
    end = ServerEnd()
    takers = reading(end)
    end.send(b"PUT / a 9\n\nabc")
    end.link.abort()
    assert (takers[0].reason, end.app.closes, end.wire.rst) == (CUT_OFF, [[CUT_OFF]], True)
    end.link.abort()


def test_an_answer_that_fails_breaks_off():
    end = ServerEnd()
    giver = Giver([b"so"], 9, close=False)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1)
    giver.abort(Abort("lost"))
    assert end.wire.rst
    assert not end.said.endswith(b".\n")


# -- clocks


def test_an_idle_client_is_let_go():
    end = ServerEnd(timeouts=Timeouts(client_idle=10))
    end.advance(8)
    end.send(GET % 1)
    end.wire.clear()
    end.advance(9)
    assert not end.wire.closing
    end.advance(2)
    assert (end.wire.closing, end.counted) == (True, ["client_idle_timeout"])


def test_a_head_that_does_not_come_is_given_up():
    end = ServerEnd(timeouts=Timeouts(client_header=10))
    end.app.answer = refused
    end.send(b"G")
    for _ in range(9):
        end.advance(1)
        end.send(b"E")
    assert end.app.requests == []
    end.advance(2)
    assert (end.said, end.counted) == (whole(408), ["client_header_timeout"])
    assert end.app.requests[0].malformed.phase is Phase.CLIENT_HEADER


def test_the_clock_of_a_head_starts_when_it_is_this_sides_turn_to_read():
    end = ServerEnd(timeouts=Timeouts(client_header=10))
    held = waiting(end)
    end.send(GET % 1 + b"GET /2")
    end.advance(60)
    held[0].callback(Response(204))
    end.wire.clear()
    end.advance(8)
    assert len(end.app.requests) == 1
    end.send(b" a 0\n\n.\n")
    assert asked(end) == [b"/1", b"/2"]


def test_who_does_not_read_is_waited_for_by_the_clock_for_that_alone():
    end = ServerEnd(timeouts=Timeouts(client_header=5, client_stall=20), high=1000)
    end.app.answer = lambda request: Response(200, [], Giver([b"x" * 2000], 2000).body)
    end.send(GET % 1)
    end.send(GET % 2)
    end.advance(15)
    assert (end.counted, asked(end)) == ([], [b"/1"])
    end.wire.clear()
    assert asked(end) == [b"/1", b"/2"]
    end.advance(25)
    assert (end.counted, end.wire.rst) == (["client_stall_timeout"], True)


def test_an_upload_that_stands_still_is_given_up():
    end = ServerEnd(timeouts=Timeouts(client_stall=10))
    takers = reading(end)
    end.send(b"PUT / a 99\n\na")
    for _ in range(5):
        end.advance(8)
        takers[0].resume()
        end.send(b"b")
    takers[0].resume()
    end.advance(8)
    assert not takers[0].ended
    end.advance(3)
    assert (takers[0].reason.phase, end.counted) == (Phase.CLIENT_STALL, ["client_stall_timeout"])


def test_an_upload_that_we_do_not_read_is_not_given_up():
    end = ServerEnd(timeouts=Timeouts(client_stall=10, client_min_rate=1000))
    takers = reading(end)
    end.send(b"PUT / a 99\n\na")
    end.advance(60)
    assert (takers[0].ended, end.counted) == (False, [])


def test_an_upload_may_stand_still_where_that_clock_is_off():
    end = ServerEnd(timeouts=Timeouts(client_stall=0, client_min_rate=0))
    takers = reading(end)
    end.send(b"PUT / a 99\n\na")
    takers[0].limit = None
    takers[0].resume()
    end.advance(600)
    assert (takers[0].ended, end.counted) == (False, [])


def test_an_upload_below_the_least_rate_is_given_up():
    for rate, given_up in ((80, False), (120, True)):
        end = ServerEnd(timeouts=Timeouts(client_min_rate=rate, client_stall=0))
        takers = reading(end)
        end.send(b"PUT / a 99999\n\n")
        for _ in range(21):
            end.send(b"x" * 100)
            takers[0].limit = None
            takers[0].resume()
            end.advance(1)
        assert end.counted == ["client_min_rate_timeout"] * given_up
        if given_up:
            assert takers[0].reason.phase is Phase.CLIENT_MIN_RATE


def test_what_is_left_of_an_upload_is_not_waited_for_for_ever():
    for stall in (0, 10):
        end = ServerEnd(timeouts=Timeouts(client_stall=stall))
        end.send(b"PUT / a 99\n\na")
        assert end.said == NONE
        end.wire.clear()
        end.advance(45)
        assert (end.counted, end.wire.rst or end.wire.closing) == (["client_stall_timeout"], True)


def test_who_takes_nothing_of_his_answer_is_given_up():
    end = ServerEnd(timeouts=Timeouts(client_stall=10))
    giver = Giver([b"x" * 1000] * 1000)
    end.app.answer = lambda request: Response(200, [], giver.body)
    end.send(GET % 1)
    for _ in range(5):
        end.advance(9)
        end.wire.take(10)
    assert not giver.stopped
    end.advance(12)
    assert (giver.stopped, end.wire.rst, end.counted) == (True, True, ["client_stall_timeout"])


def test_a_service_that_takes_its_time_is_no_fault_of_the_client():
    end = ServerEnd(timeouts=Timeouts(client_stall=1, client_header=1, client_idle=1, client_min_rate=10))
    held = waiting(end)
    end.send(GET % 1)
    end.advance(600)
    held[0].callback(Response(204))
    assert (end.said, end.counted) == (NONE, [])


def test_clocks_end_with_the_connection():
    end = ServerEnd()
    waiting(end)
    end.send(GET % 1)
    end.leave()
    end.advance(1)
    assert end.clock.getDelayedCalls() == []


def test_the_answer_reads_what_was_sent():
    end = ServerEnd()
    end.app.answer = read_then(lambda request, data: Response(200, [], Giver([data], len(data)).body))
    end.send(b"PUT / a 5\n\nhel")
    end.send(b"lo.\n")
    assert end.said == whole(200, b"hello")
