"""The calling side of a protocol that answers in order: one raw upstream, no sockets."""

from __future__ import annotations

import pytest
from toy import ClientEnd, ToyClient
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost
from zope.interface.verify import verifyObject

from protogate.context import Limits, Timeouts
from protogate.errors import ALWAYS, CLIENT, GATEWAY, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IClientConnection
from protogate.message import CONNECT, Request
from protogate.ordered.link import AHEAD
from protogate.testing.bodies import Giver, Taker

ASKED = b"GET /x  0\n\n.\n"
NONE = b"204 0\n\n.\n"


def whole(status, data=b"", fields=b""):
    return b"%d %d\n%b\n%b.\n" % (status, len(data), fields, data)


def told(answers):
    """Each answer, and its content."""
    return [(response.status, Taker(response.body).data) for response in answers]


def why(errors):
    return [(error.status, error.who, error.retry) for error in errors]


def test_interfaces():
    end = ClientEnd()
    assert verifyObject(IClientConnection, end.link)
    assert (end.rises, end.link.capacity, end.link.busy) == (1, 1, 0)


# -- one after the other


def test_a_connection_is_used_again_when_all_of_an_answer_was_read():
    end = ClientEnd()
    for n in range(1, 4):
        answers, errors = end.ask()
        assert (end.wire.take(), end.link.capacity, end.link.busy) == (ASKED, 0, 1)
        end.send(b"200 5\nx-a=1\n\nhel")
        taker = Taker(answers[0].body)
        assert (end.link.capacity, end.rises) == (0, n)
        end.send(b"lo.\n")
        assert (end.link.capacity, end.rises, end.link.busy) == (1, n + 1, 0)
        assert (answers[0].headers, answers[0].protocol) == ([(b"x-a", b"1")], "TOY")
        assert (taker.data, taker.finished, errors) == (b"hello", True, [])


def test_it_is_ready_while_what_was_read_is_still_held():
    end = ClientEnd()
    one, _ = end.ask()
    end.send(whole(200, b"one"))
    two, _ = end.ask()
    end.send(whole(201, b"two"))
    assert told(one + two) == [(200, b"one"), (201, b"two")]


def test_a_request_that_does_not_fit_is_refused_and_may_be_sent_elsewhere():
    end = ClientEnd()
    end.ask()
    giver = Giver([b"x"], 1)
    answers, errors = end.ask(b"PUT", giver.body)
    assert (answers, why(errors), giver.body.attached) == ([], [(502, UPSTREAM, ALWAYS)], False)
    assert end.wire.take() == ASKED


def test_what_the_protocol_cannot_ask_is_refused_and_costs_no_connection(flush_errors):
    class Picky(ToyClient):
        def head(self, request, length):
            if request.method == b"FLUSH":
                raise Abort("not this", CLIENT, 405)
            if request.method == b"BREAK":
                raise LookupError
            return super().head(request, length)

    end = ClientEnd(Picky)
    for method, named, expected in (
        (b"FLUSH", {}, (405, CLIENT, NEVER)),
        (b"BREAK", {}, (500, GATEWAY, NEVER)),
        (b"CONNECT", {"upgrade": CONNECT}, (501, CLIENT, NEVER)),
    ):
        giver = Giver([b"x"], 1)
        answers, errors = end.ask(method, giver.body, **named)
        assert (answers, why(errors), giver.body.attached) == ([], [expected], False)
        assert (end.said, end.link.capacity, end.link.busy) == (b"", 1, 0)
    assert len(flush_errors(LookupError)) == 1
    end.ask()
    assert end.said == ASKED


def test_bytes_that_nobody_asked_for_end_the_connection():
    end = ClientEnd()
    end.send(NONE)
    assert (end.wire.rst, end.link.capacity, end.counted) == (True, 0, ["unsolicited_bytes"])


def test_bytes_behind_an_answer_end_the_connection_but_not_the_answer():
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(whole(200, b"mine") + NONE)
    assert told(answers) == [(200, b"mine")]
    assert (end.wire.closing, end.link.capacity, end.rises) == (True, 0, 1)


# -- uploads


def test_an_upload_goes_as_fast_as_it_is_taken():
    end = ClientEnd()
    giver = Giver([b"x" * 10000] * 100, 1000000)
    answers, _ = end.ask(b"PUT", giver.body)
    got = b""
    while end.wire.size:
        assert giver.gave - len(got) <= 2 * 65536
        got += end.wire.take()
    assert got == b"PUT /x  1000000\n\n" + b"x" * 1000000 + b".\n"
    end.send(NONE)
    assert told(answers) == [(204, b"")]


def test_pieces_and_trailers():
    end = ClientEnd()
    giver = Giver([b"ab", b"c"], None, [(b"x-sum", b"7")])
    answers, _ = end.ask(b"PUT", giver.body)
    assert end.said == b"PUT /x  *\n\n2\nab1\nc0\n.;x-sum=7\n"
    end.send(b"200 *\n\n2\nhi0\n.;x-end=1\n")
    taker = Taker(answers[0].body)
    assert (taker.data, taker.finished, taker.trailers) == (b"hi", True, [(b"x-end", b"1")])


def test_an_answer_before_the_end_of_the_request_is_the_last_of_its_connection():
    end = ClientEnd()
    giver = Giver([b"abc"], 9, close=False)
    answers, _ = end.ask(b"PUT", giver.body)
    end.send(whole(413, b"no"))
    assert (told(answers), giver.stopped) == ([(413, b"no")], True)
    assert (end.link.capacity, end.wire.closing, end.rises) == (0, True, 1)


@pytest.mark.parametrize("pieces", [[b"12345"], [b"123"], [b"12", b"345"], []])
def test_an_upload_that_is_not_as_long_as_it_said_breaks_off(pieces):
    end = ClientEnd()
    answers, errors = end.ask(b"PUT", Giver(pieces, 4).body)
    assert (answers, why(errors)) == ([], [(500, GATEWAY, NEVER)])
    assert (end.wire.rst, end.link.capacity, end.counted) == (True, 0, ["body_length_mismatch"])


def test_an_upload_that_fails_breaks_off():
    end = ClientEnd()
    giver = Giver([b"abc"], 9, close=False)
    answers, errors = end.ask(b"PUT", giver.body)
    reason = Abort("lost", CLIENT, 499)
    giver.abort(reason)
    assert (answers, errors, end.wire.rst, end.link.busy) == ([], [reason], True, 0)


# -- answers


def test_an_answer_is_read_as_fast_as_it_is_taken():
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(b"200 *\n\n")
    taker = Taker(answers[0].body, 1)
    while end.wire.reading:
        end.send(b"1000\n" + b"x" * 1000)
    assert taker.size == 1000
    assert AHEAD < len(end.link.input) < AHEAD + 2000
    taker.limit = None
    taker.resume()
    end.send(b"0\n.\n")
    assert (taker.finished, end.link.capacity) == (True, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n\n.\n",
        b"x" * 20000,
        b"200 2\n\nabc.\n",
        b"200 -2\n\n.\n",
        b"200 *\n\n1\nab0\n.\n",
        b"200 0\nx=a\rb\n\n.\n",
        b"200 *\n\n0\n.;\r=x\n",
    ],
)
def test_what_is_no_answer_is_the_upstreams_fault(data):
    end = ClientEnd()
    answers, errors = end.ask()
    end.send(data)
    if not answers:
        assert why(errors) == [(502, UPSTREAM, NEVER)]
        assert errors[0].reason.startswith("bad response: ")
    else:
        assert Taker(answers[0].body).reason.status == 502
    assert (end.wire.rst, end.link.capacity, end.counted) == (True, 0, ["malformed_response"])


def test_two_heads_are_no_answer():
    class Twice(ToyClient):
        def read(self):
            for event in super().read():
                yield event
                if isinstance(event, tuple):
                    yield event

    end = ClientEnd(Twice)
    answers, errors = end.ask()
    end.send(NONE)
    assert (answers, why(errors)) == ([], [(502, UPSTREAM, NEVER)])


def test_content_that_ends_too_soon_is_no_answer():
    class Short(ToyClient):
        def read(self):
            yield from self.input.line(9, b"\n")
            yield self.message([b"200"], []), 5
            yield b"four"
            yield []

    end = ClientEnd(Short)
    answers, errors = end.ask()
    end.send(b"\n")
    assert (answers, why(errors)) == ([], [(502, UPSTREAM, NEVER)])


def test_a_head_over_the_limit_is_refused():
    end = ClientEnd(limits=Limits(response_headers=20))
    answers, errors = end.ask()
    end.send(whole(200, b"", b"abc=def\n" * 4))
    assert (answers, why(errors)) == ([], [(502, UPSTREAM, NEVER)])
    assert "response_headers_too_large" in end.counted


def test_a_parser_that_fails_is_logged_and_no_fault_of_the_upstream(flush_errors):
    class Broken(ToyClient):
        def read(self):
            raise KeyError("x")
            yield None

    end = ClientEnd(Broken)
    answers, errors = end.ask()
    end.send(b"x")
    assert (answers, why(errors), end.wire.rst) == ([], [(500, GATEWAY, NEVER)], True)
    assert len(flush_errors(KeyError)) == 1


# -- who gives up


def test_cancelling_ends_the_connection_and_frees_what_was_used():
    end = ClientEnd()
    giver = Giver([b"abc"], 9, close=False)
    answers, errors = end.ask(b"PUT", giver.body)
    end.answer.cancel()
    assert (answers, [type(error) for error in errors]) == ([], [CancelledError])
    assert (giver.stopped, end.wire.rst, end.link.busy, end.link.capacity) == (True, True, 0, 0)


def test_an_answer_that_nobody_wants_ends_the_connection():
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(b"200 9\n\nabc")
    answers[0].body.stopProducing()
    assert (end.wire.rst, end.link.busy, end.rises) == (True, 0, 1)


def test_the_next_request_may_be_made_inside_ready():
    class Eager(ToyClient):
        pass

    end = ClientEnd(Eager)
    answers = []

    def more(link):
        if len(answers) < 3:
            link.handle(Request(b"GET", b"/x")).addCallback(answers.append)

    end.link.ready = more
    more(end.link)
    for _ in range(3):
        end.send(NONE)
    assert [response.status for response in answers] == [204] * 3


# -- an upstream that leaves


def test_whether_to_ask_again_depends_on_what_was_heard():
    for data, retry in ((b"", IDEMPOTENT), (b"2", NEVER)):
        for how in (None, ConnectionLost()):
            end = ClientEnd()
            answers, errors = end.ask()
            if data:
                end.send(data)
            end.leave(how)
            assert (answers, why(errors)) == ([], [(502, UPSTREAM, retry)])
        end = ClientEnd()
        answers, errors = end.ask()
        if data:
            end.send(data)
        end.link.readConnectionLost()
        assert (answers, why(errors), end.wire.rst) == ([], [(502, UPSTREAM, retry)], True)


def test_an_answer_that_breaks_off_is_not_taken_for_whole():
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(b"200 *\n\n3\nabc0\n")
    taker = Taker(answers[0].body)
    end.leave()
    assert (taker.data, taker.finished, taker.reason.status) == (b"abc", False, 502)


@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
def test_what_was_read_before_an_upstream_left_is_not_lost_on_who_takes_his_time(how):
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(b"200 *\n\n")
    taker = Taker(answers[0].body, 1)
    for _ in range(3):
        end.send(b"1000\n" + b"x" * 1000)
    end.send(b"0\n.\n")
    assert taker.size == 1000
    if how == "half-close":
        end.link.readConnectionLost()
    end.leave(ConnectionLost() if how == "reset" else None)
    while not taker.ended:
        taker.resume()
    assert (taker.size, taker.finished) == (3000, True)
    assert (end.rises, end.link.capacity, end.link.busy) == (1, 0, 0)


def test_what_was_read_of_an_answer_that_broke_off_is_not_lost_either():
    end = ClientEnd()
    answers, _ = end.ask()
    end.send(b"200 *\n\n3\nabc")
    taker = Taker(answers[0].body, 1)
    end.send(b"3\ndef")
    end.leave()
    assert (taker.data, taker.reason.status) == (b"abc", 502)  # what broke off comes at once


def test_an_idle_connection_that_the_upstream_ends_is_let_go():
    end = ClientEnd()
    end.link.readConnectionLost()
    assert (end.wire.closing, end.link.capacity) == (True, 0)


# -- drain and abort


def test_drain_lets_the_answer_end():
    end = ClientEnd()
    answers, _ = end.ask()
    end.link.drain()
    assert (end.link.capacity, end.wire.closing) == (0, False)
    end.send(whole(200, b"last"))
    assert (told(answers), end.wire.closing, end.rises) == ([(200, b"last")], True, 1)


def test_drain_closes_at_once_what_is_idle():
    end = ClientEnd()
    end.link.drain()
    end.link.drain()
    assert (end.link.capacity, end.wire.closing) == (0, True)


def test_abort_ends_the_request_before_it_returns():
    end = ClientEnd()
    giver = Giver([b"abc"], 9, close=False)
    answers, errors = end.ask(b"PUT", giver.body)
    end.link.abort()
    assert (answers, why(errors), giver.stopped, end.wire.rst) == ([], [(502, UPSTREAM, IDEMPOTENT)], True, True)


# -- clocks


def test_an_answer_that_does_not_begin_is_given_up():
    end = ClientEnd(timeouts=Timeouts(response_head=5))
    answers, errors = end.ask()
    end.wire.clear()
    end.advance(4)
    assert errors == []
    end.advance(2)
    assert (answers, errors[0].phase, errors[0].status) == ([], Phase.RESPONSE_HEAD, 504)
    assert (end.wire.rst, end.counted) == (True, ["response_head_timeout"])


@pytest.mark.parametrize("stall", [0, 100])
def test_that_clock_starts_when_the_request_has_left(stall):
    for upload in (False, True):
        end = ClientEnd(timeouts=Timeouts(response_head=5, upstream_stall=stall))
        giver = Giver([b"x"], 2, close=False)
        request = Request(b"PUT", b"/x", body=giver.body if upload else None)
        request.ledger = Ledger(0.0)
        errors = []
        end.link.handle(request).addErrback(lambda failure, errors=errors: errors.append(failure.value))
        end.advance(60)
        if upload:
            end.wire.clear()
            end.advance(60)
            assert errors == []
            begun = end.clock.seconds()
            giver.write(b"x")
            giver.finish()
            assert request.ledger.sent == begun
        assert errors == []
        end.wire.clear()
        end.advance(4.75)
        assert errors == []
        end.advance(1.5)
        assert [error.phase for error in errors] == [Phase.RESPONSE_HEAD]


def test_an_upstream_that_takes_nothing_is_given_up():
    end = ClientEnd(timeouts=Timeouts(upstream_stall=10, response_head=5))
    giver = Giver([b"x" * 1000] * 1000)
    _, errors = end.ask(b"PUT", giver.body)
    for _ in range(3):
        end.advance(8)
        end.wire.take(10)
    assert errors == []
    end.advance(12)
    assert (errors[0].phase, giver.stopped, end.counted) == (Phase.UPSTREAM_STALL, True, ["upstream_stall_timeout"])


def test_an_answer_that_stands_still_is_given_up():
    end = ClientEnd(timeouts=Timeouts(response_stall=5, response_head=1))
    answers, _ = end.ask()
    end.wire.clear()
    end.send(b"200 *\n\n1\na")
    taker = Taker(answers[0].body)
    for _ in range(5):
        end.advance(4)
        end.send(b"1\nb")
    end.advance(6)
    assert (taker.data, taker.reason.phase, end.counted) == (
        b"abbbbb",
        Phase.RESPONSE_STALL,
        ["response_stall_timeout"],
    )


def test_an_answer_that_we_do_not_read_is_not_given_up():
    end = ClientEnd(timeouts=Timeouts(response_stall=5))
    answers, _ = end.ask()
    end.wire.clear()
    end.send(b"200 *\n\n1\na")
    taker = Taker(answers[0].body, 1)
    end.send(b"1\nb")
    end.advance(60)
    assert not taker.ended
    taker.resume()
    taker.resume()
    end.advance(4)
    assert not taker.ended
    end.advance(2)
    assert taker.reason.phase is Phase.RESPONSE_STALL


def test_an_idle_connection_has_no_clock():
    end = ClientEnd()
    end.ask()
    end.wire.clear()
    end.send(NONE)
    end.advance(400)
    assert (end.link.capacity, end.counted) == (1, [])
    end.leave()
    end.advance(1)
    assert end.clock.getDelayedCalls() == []
