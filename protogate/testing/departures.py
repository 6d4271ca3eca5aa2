"""Part of L{protogate.testing.interop}: one side leaves before its time."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Replay
from protogate.errors import ALWAYS, CLIENT, IDEMPOTENT, UPSTREAM, Abort
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import read_then
from protogate.testing.transport import ALL

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

from protogate.testing.matrix import BIG, Matrix


@implementer(IService)
class Again:
    """Keeps the body of each request while it is small, and sends a request again that certainly did not arrive."""

    def __init__(self, service: IService) -> None:
        self._service = service

    def handle(self, request: Request) -> Any:
        """L{IService}."""
        assert request.body is not None
        request.body = Replay(request.body, 100)
        return self._attempt(request)

    def _attempt(self, request: Request) -> Any:
        answer: Any = self._service.handle(request)
        return answer.addErrback(self._again, request)

    def _again(self, failure: Any, request: Request) -> Any:
        if failure.value.retry == ALWAYS and request.body is not None and not request.body.attached:
            return self._attempt(request)
        return failure


def unseen() -> Failure:
    """What a service says of a request that it has not looked at."""
    return Failure(Abort("not looked at", CLIENT, 502, ALWAYS))


class DepartureTests(Matrix):
    """Whoever leaves, in whatever phase: everybody else learns it, and nothing is left."""

    # -- the client leaves

    def test_client_gone_before_the_head(self, most: int = ALL) -> None:
        c = self.cell(most)
        cancelled: list[object] = []
        c.app.answer = lambda request: Deferred(cancelled.append)
        giver = Giver([b"x" * 10], self.length(99), close=False)
        c.ask(b"PUT", giver.body)
        c.run()
        taker = Taker(c.app.requests[0].body)
        c.run()
        self.assertEqual(taker.data, b"x" * 10)
        c.answer.cancel()
        self.assertTrue(giver.stopped, "before cancel() returns")
        c.run()
        self.assertEqual(len(cancelled), 1, "the origin is cancelled")
        self.assertIsNotNone(taker.reason, "and its upload is not complete")
        self.assertIsInstance(c.relay.ends[0], CancelledError)
        self.assertIsNotNone(c.relay.closes[0][0])
        c.again()

    def test_client_gone_within_the_response(self) -> None:
        c = self.cell()
        giver = self.big(length=False)
        c.app.answer = lambda request: Response(200, [], giver.body)
        c.ask()
        c.run()
        taker = Taker(c.result[0].body, 1)
        c.run()
        taker.stop()
        c.run()
        self.assertTrue(giver.stopped)
        self.assertLess(giver.gave, BIG)
        self.assertFalse(taker.ended, "who stopped a body hears no more of it")
        c.again()

    def test_client_connection_lost(self) -> None:
        c = self.cell()
        giver = self.big(length=False)
        c.app.answer = lambda request: Response(200, [], giver.body)
        c.ask()
        c.run()
        taker = Taker(c.result[0].body)
        c.client.abort()
        self.assertIsNotNone(taker.reason, "before abort() returns")
        c.run()
        self.assertTrue(giver.stopped)
        c.again()

    def test_client_lost_while_its_request_is_handed_over(self) -> None:
        c = self.cell()
        handle = c.relay.handle
        cancelled: list[object] = []

        def abort(request: Request) -> Deferred[Response]:
            c.relay.watch(request)
            c.server.abort()
            return Deferred(cancelled.append)

        c.relay.handle = abort  # type: ignore[method-assign]
        c.ask()
        c.run()
        self.assertEqual(len(cancelled), 1)
        c.relay.handle = handle  # type: ignore[method-assign]
        c.again()

    def test_an_answer_wins_over_a_cancel(self) -> None:
        c = self.cell()
        giver = Giver([b"late"], 4)
        held: Deferred[Response] = Deferred(lambda deferred: deferred.callback(Response(200, [], giver.body)))
        c.app.answer = lambda request: held
        c.ask()
        c.run()
        c.answer.cancel()
        c.run()
        self.assertTrue(giver.stopped)
        c.again()

    # -- the upstream leaves

    def test_upstream_lost_before_the_head(self, most: int = ALL) -> None:
        c = self.cell(most)
        c.app.answer = lambda request: Deferred()
        c.ask()
        c.run()
        c.origin.abort()
        c.run()
        reason: Any = c.relay.ends[0]
        self.assertEqual((reason.retry, reason.who), (IDEMPOTENT, UPSTREAM))
        self.assertEqual([r.status for r in c.result], [502], c.errors)
        c.again()

    def test_truncation_is_seen_by_the_client(self, most: int = ALL) -> None:
        for length in (5000, self.length(6000)):
            c = self.cell(most)
            giver = Giver([b"x" * 1000], length, close=False)
            c.app.answer = lambda request, giver=giver: Response(200, [], giver.body)  # type: ignore[misc]
            c.ask()
            c.run()
            taker = Taker(c.result[0].body)
            c.run()
            self.assertEqual(taker.size, 1000)
            giver.abort(Abort("disk error", UPSTREAM))
            c.run()
            self.assertFalse(taker.finished, "never a clean end")
            self.assertIsNotNone(taker.reason)
            self.assertIsNotNone(c.relay.closes[0][0], "the exchange did not end well")
            c.again()

    def test_upload_broken_off_by_the_client(self) -> None:
        c = self.cell()
        c.app.answer = lambda request: Deferred()
        giver = Giver([b"x"], 10, close=False)
        c.ask(b"PUT", giver.body)
        c.run()
        taker = Taker(c.app.requests[0].body)
        c.run()
        giver.abort(Abort("file vanished", CLIENT))
        c.run()
        self.assertEqual([error.reason for error in c.errors], ["file vanished"])
        self.assertFalse(taker.finished, "never a clean end")
        self.assertIsNotNone(taker.reason)
        c.again()

    def test_refused_requests_may_always_be_sent_again(self) -> None:
        self.needs("refuse")
        c = self.cell()
        held: Deferred[Response] = Deferred()
        c.app.answer = lambda request: held
        c.ask(b"PUT", Giver([b"a"], self.length(2), close=False).body)
        c.run()
        held.errback(unseen())
        c.run()
        self.assertEqual([getattr(end, "retry", None) for end in c.relay.ends], [ALWAYS])
        self.assertEqual([r.status for r in c.result], [502], c.errors)
        c.again()

    def test_a_request_that_was_kept_whole_is_sent_again(self) -> None:
        self.needs("refuse")
        c = self.cell()
        c.relay.service = Again(c.pool)
        takers: list[Taker] = []
        held: Deferred[Response] = Deferred()

        def hold(request: Request) -> Deferred[Response]:
            takers.append(Taker(request.body))
            return held

        c.app.answer = hold
        giver = Giver(length=self.length(12), close=False)
        c.ask(b"PUT", giver.body)
        giver.write(b"first ")
        c.run()
        self.assertEqual(takers[0].data, b"first ")
        seen: list[bytes] = []

        def answer(request: Request, data: bytes) -> Response:
            seen.append(data)
            return Response(200)

        c.app.answer = read_then(answer)
        held.errback(unseen())
        c.run()
        giver.write(b"second")
        giver.finish()
        c.run()
        self.assertEqual([r.status for r in c.result], [200], c.errors)
        self.assertEqual(seen, [b"first second"])
        c.relay.service = c.pool
        c.again()

    def test_a_body_nobody_wants_is_stopped(self) -> None:
        c = self.cell()
        giver = self.big(length=False)
        c.app.answer = lambda request: Response(200, [], giver.body)
        handle = c.relay.handle

        def other(response: Response) -> Response:
            response.body.stopProducing()  # type: ignore[union-attr]
            return Response(200, [], Giver([b"cached"], 6).body)

        c.relay.handle = lambda request: handle(request).addCallback(other)  # type: ignore[method-assign,union-attr]
        c.ask()
        c.run()
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, taker.finished), (b"cached", True))
        self.assertTrue(giver.stopped)
        c.relay.handle = handle  # type: ignore[method-assign]
        c.again()
