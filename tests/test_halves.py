"""The rules of a request served and a request called, with a codec that only notes what it is told."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock

from protogate.body import Body
from protogate.connection import Connection
from protogate.context import Context
from protogate.errors import CLIENT, CLIENT_GONE, GATEWAY, IDEMPOTENT, UPSTREAM, Abort
from protogate.halves import CUT, OPEN, Calling, Half, Serving
from protogate.message import CONNECT, Request, Response, ignore
from protogate.wheel import Wheel

LOST = Abort("lost", UPSTREAM, 502, IDEMPOTENT)


class Line(Connection):
    """A connection of any protocol."""

    def __init__(self):
        self.clock = Clock()
        self.clock.advance(50)
        super().__init__(Context(Wheel(self.clock)))

    def flush(self):
        pass


class Noting:
    """What a codec adds to a half: here, a log."""

    def setup(self):
        self.log = []
        return self

    def write(self, data):
        self.log.append(data)

    def end(self, trailers):
        self.log.append(("end", trailers))

    def reset(self, reason):
        self.log.append(("reset", reason))
        self.lost(Abort("the connection is gone", GATEWAY))

    def over(self):
        self.log.append("over")

    def pauseProducing(self):
        self.log.append("pause")

    def resumeProducing(self):
        self.log.append("resume")


class Answer(Noting, Serving):
    def head(self, response, last):
        self.log.append((response.status, last))


class Ask(Noting, Calling):
    def ask(self, request, last):
        self.log.append((request.method, last))


class Source:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def pauseProducing(self):
        pass

    def resumeProducing(self):
        pass

    def stopProducing(self):
        self.log.append(f"{self.name} stopped")


class Sink:
    def __init__(self, log, body):
        self.log = log
        body.attach(self)

    def write(self, data):
        self.log.append(data)

    def finish(self, trailers=None):
        self.log.append("finish")

    def abort(self, reason):
        self.log.append(("abort", reason))


class Served:
    """One request, opened; the events of everybody in one log."""

    def __init__(self, answer, body=True, upgrade=None, method=b"POST", kind=Answer):
        self.half = kind(Line()).setup()
        self.log = self.half.log
        self.answer = answer
        self.request = Request(method, b"/", [], Body(self.half) if body else None, upgrade=upgrade)
        self.half.open(self.request)

    def begin(self):
        self.half.begin(self)
        return self

    def handle(self, request):
        request.closed = lambda reason: self.log.append(("closed", reason))
        return self.answer(request)


def response_body(log):
    return Body(Source(log, "response"))


def test_a_plain_exchange():
    served = Served(lambda request: Response(204), body=False).begin()
    assert served.log == [(204, True), ("closed", None), "over"]
    assert served.half.request is None
    assert served.half.response is None
    assert served.request.closed is ignore
    assert served.request.interim is ignore


def test_closed_comes_before_the_connection_is_used_again():
    served = Served(lambda request: Response(204), body=False).begin()
    assert served.log.index(("closed", None)) < served.log.index("over")


def test_the_ledger_is_there_before_the_service():
    seen = []
    served = Served(lambda request: seen.append(request.ledger) or Deferred(), body=False)
    ledger = served.request.ledger
    served.begin()
    assert seen == [ledger]
    assert (ledger.first, ledger.head, ledger.uploaded) == (50, 50, 50)
    served = Served(lambda request: Deferred())
    served.half.received(b"abc")
    served.half.connection.clock.advance(2)
    served.half.ended()
    ledger = served.request.ledger
    assert (ledger.received, ledger.uploaded) == (3, 52)


def test_the_first_byte_may_have_come_earlier():
    half = Answer(Line()).setup()
    request = Request(b"GET", b"/")
    half.open(request, 40)
    assert (request.ledger.first, request.ledger.head) == (40, 50)


@pytest.mark.parametrize("how", [lambda response: response, succeed])
def test_answers_with_and_without_waiting(how):
    served = Served(lambda request: how(Response(200, [], Body(Source([], ""), None))), body=False).begin()
    assert served.log == [(200, False)]
    assert served.half.answer is None


def test_client_gone_cancels_then_aborts_then_closes():
    served = Served(
        lambda request: Sink(served.log, request.body) and Deferred(lambda _: served.log.append("cancelled"))
    )
    served.begin()
    served.log.clear()
    served.half.lost(CLIENT_GONE)
    assert served.log == ["cancelled", ("abort", CLIENT_GONE), ("closed", CLIENT_GONE)]
    assert served.request.gone is CLIENT_GONE
    served.half.lost(CLIENT_GONE)
    assert len(served.log) == 3


def test_client_gone_stops_the_response_then_aborts_the_upload():
    served = Served(lambda request: Sink(served.log, request.body) and Response(200, [], response_body(served.log)))
    served.begin()
    served.log.clear()
    served.half.lost(CLIENT_GONE)
    assert served.log == ["response stopped", ("abort", CLIENT_GONE), ("closed", CLIENT_GONE)]


def test_lost_before_it_was_handed_on():
    served = Served(lambda request: 1 / 0)
    served.half.lost(CLIENT_GONE)
    served.begin()
    assert served.log == []


def test_the_reason_of_a_broken_response_is_the_one_that_counts():
    served = Served(lambda request: Response(200, [], response_body(served.log)), body=False)
    served.begin()
    served.half.outgoing.abort(LOST)
    assert served.log == [(200, False), ("reset", LOST), ("closed", LOST)]
    assert served.request.gone is None


def test_failures_reset():
    for failure, reason in ((LOST, LOST), (CancelledError(), None)):
        served = Served(lambda request, failure=failure: fail(failure), body=False).begin()
        (_, told), (_, closed) = served.log
        assert told is closed
        assert told is reason or reason is None
        assert isinstance(told, Abort)


def test_an_upload_nobody_wants_is_read_and_thrown_away():
    served = Served(lambda request: request.body.stopProducing() or Deferred()).begin()
    assert served.log == ["resume"]
    assert served.half.reading == CUT
    served.half.received(b"x")
    served.half.ended()
    assert served.log == ["resume"]


def test_an_early_response_ends_the_exchange():
    served = Served(lambda request: Sink(served.log, request.body) and Response(413))
    served.begin()
    assert [entry if isinstance(entry, str) else entry[0] for entry in served.log] == [
        "resume",
        413,
        "abort",
        "closed",
        "over",
    ]
    assert served.log[2][1].who is GATEWAY
    assert served.log[3] == ("closed", None)


def test_a_broken_upload_leaves_the_answer_owed():
    later = Deferred()
    served = Served(lambda request: Sink(served.log, request.body) and later)
    served.begin()
    served.half.broken(LOST)
    served.half.broken(LOST)
    assert served.log == ["resume", ("abort", LOST)]
    assert (served.half.reading, served.half.writing) == (CUT, OPEN)
    later.callback(Response(400))
    assert served.log[2:] == [(400, True), ("closed", None), "over"]


def test_a_broken_upload_that_nobody_took():
    served = Served(lambda request: request.body.stopProducing() or Deferred()).begin()
    served.half.broken(LOST)
    assert served.half.reading == CUT


@pytest.fixture
def tunnel():
    served = Served(lambda request: Response(101, [], response_body(served.log)), upgrade=b"x", method=b"GET")
    served.begin()
    assert served.half.tunnel
    Sink(served.log, served.request.body)
    served.log.clear()
    return served


def test_a_tunnel_whose_client_ends_first(tunnel):
    body = tunnel.half.outgoing
    tunnel.half.ended()
    assert tunnel.log == ["finish"]
    body.finish()
    assert tunnel.log == ["finish", ("end", None), ("closed", None), "over"]


def test_a_tunnel_whose_client_ends_last(tunnel):
    tunnel.half.outgoing.finish()
    assert tunnel.log == [("end", None)]
    tunnel.half.ended()
    assert tunnel.log == [("end", None), ("closed", None), "over", "finish"]


def test_a_refused_tunnel_has_no_content():
    served = Served(lambda request: Response(403), upgrade=CONNECT, method=b"CONNECT").begin()
    assert served.log == ["resume", (403, True), ("closed", None), "over"]


def test_what_is_wrong_with_a_service_is_told_also_when_nobody_waits_for_it(flush_errors):
    answer = Deferred(lambda answer: answer.errback(ZeroDivisionError()))
    served = Served(lambda request: answer).begin()
    served.half.lost(CLIENT_GONE)
    assert served.log[-1] == ("closed", CLIENT_GONE)
    assert len(flush_errors(ZeroDivisionError)) == 1


def test_a_head_that_cannot_be_written(flush_errors):
    class Faulty(Answer):
        def head(self, response, last):
            raise ZeroDivisionError

    served = Served(lambda request: Response(200, [], response_body(served.log)), body=False, kind=Faulty)
    served.begin()
    assert [entry if isinstance(entry, str) else entry[0] for entry in served.log] == [
        "response stopped",
        "reset",
        "closed",
    ]
    assert len(flush_errors(ZeroDivisionError)) == 1


def test_every_verb_is_for_the_codec_to_fill_in():
    half = Half(Line())
    for call in (
        lambda: half.write(b"x"),
        lambda: half.end(None),
        lambda: half.reset(LOST),
        half.over,
        half.settle,
        lambda: half.abort(LOST),
        half.pauseProducing,
        half.resumeProducing,
        half.stopProducing,
        lambda: half.lost(LOST),
        lambda: Serving(Line()).head(Response(200), True),
        lambda: Calling(Line()).ask(Request(b"GET", b"/"), True),
    ):
        with pytest.raises(NotImplementedError):
            call()


# -- Calling


class Called:
    def __init__(self, body=None, upgrade=None, method=b"POST"):
        self.half = Ask(Line()).setup()
        self.log = self.half.log
        self.request = Request(method, b"/", [], body, upgrade=upgrade)
        self.half.begin(self.request).addBoth(lambda result: self.log.append(getattr(result, "value", result)))

    def respond(self, status=200, body=False):
        response = Response(status, [], Body(self.half) if body else None)
        self.half.headed(response)
        if not body:
            self.half.ended()
        self.half.fire()
        return response


def upload(log, *chunks, ends=True):
    body = Body(Source(log, "request"))
    for chunk in chunks:
        body.write(chunk)
    if ends:
        body.finish()
    return body


def test_a_plain_call():
    called = Called()
    assert called.log == [(b"POST", True)]
    response = called.respond()
    assert called.log[1:] == ["over", response]


def test_an_upload_leaves_with_its_head():
    called = Called(upload([], b"a", b"b"))
    assert called.log == [(b"POST", False), b"ab", ("end", None)]


def test_whoever_waits_for_100_uploads_later():
    class Patient(Ask):
        def waits(self):
            return True

    half = Patient(Line()).setup()
    half.begin(Request(b"POST", b"/", [], upload([], b"x")))
    assert half.log == [(b"POST", False)]
    half.upload()
    half.upload()
    assert half.log == [(b"POST", False), b"x", ("end", None)]


def test_cancelling_resets_and_stops_what_was_attached():
    log = []
    called = Called(upload(log, b"a", ends=False))
    called.half.answer.cancel()
    assert log == ["request stopped"]
    assert called.log[2][0] == "reset"
    assert isinstance(called.log[3], CancelledError)
    assert (called.half.reading, called.half.writing) == (CUT, CUT)


def test_a_lost_call_fails_with_its_reason():
    called = Called()
    called.half.lost(LOST)
    called.half.lost(LOST)
    assert called.log == [(b"POST", True), LOST]


def test_a_response_that_was_whole_before_the_loss_counts():
    called = Called()
    response = Response(200, [], None)
    called.half.headed(response)
    called.half.ended()
    called.half.lost(LOST)
    called.half.fire()
    assert called.log[-1] is response


def test_an_upload_that_breaks_is_the_answer():
    body = upload([], b"a", ends=False)
    called = Called(body)
    reason = Abort("too large", CLIENT, 413)
    body.abort(reason)
    assert called.log[2:] == [("reset", reason), reason] or called.log[2] == ("reset", reason)
    assert isinstance(called.log[-1], Abort)


def test_an_early_response_stops_the_upload():
    log = []
    called = Called(upload(log, b"a", ends=False))
    called.respond(413)
    assert log == ["request stopped"]
    assert called.log[2] == "over"
    assert called.half.writing == CUT


def test_a_response_nobody_wants_is_reset():
    called = Called()
    response = called.respond(body=True)
    response.body.stopProducing()
    assert called.log[-1][0] == "reset"


def test_a_tunnel_uploads_when_it_is_accepted():
    log = []
    called = Called(upload(log, b"early", ends=False), upgrade=b"x", method=b"GET")
    assert called.log == [(b"GET", False)]
    called.respond(101, body=True)
    assert called.half.tunnel
    assert b"early" in called.log
    called.half.ended()
    assert "over" not in called.log
    called.half.outgoing.finish()
    assert called.log[-1] == "over"


def test_a_body_that_was_taken_meanwhile_is_left_alone():
    body = upload([], b"x", ends=False)
    called = Called(body, upgrade=b"x", method=b"GET")
    body.stopProducing()
    called.half.upload()
    assert called.log == [(b"GET", False)]
    called = Called(None)
    called.half.writing = OPEN
    called.half.upload()
    assert called.half.writing == OPEN
