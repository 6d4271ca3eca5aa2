"""Part of L{protogate.testing.interop}: how long somebody waits."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.errors import GATEWAY, Abort
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.matrix import Matrix
from protogate.testing.transport import ALL
from protogate.wheel import Wheel

WAITS = 7.5
"""Seconds."""


@implementer(IService)
class Hurried:
    """
    Waits for a service until the deadline of a request, as a gateway does.

    @param service: what it asks.
    """

    def __init__(self, service: IService, wheel: Wheel) -> None:
        self._service, self._wheel = service, wheel

    def handle(self, request: Request) -> Any:
        """L{IService}."""
        if request.deadline is None:
            request.deadline = self._wheel.now() + WAITS
        answer: Any = self._service.handle(request)
        timer = self._wheel.after(request.deadline - self._wheel.now(), answer.cancel)

        def ended(result: Any) -> Any:
            timer.close()
            if isinstance(result, Failure) and result.check(CancelledError):
                raise Abort("the deadline is over", GATEWAY, 504)
            return result

        return answer.addBoth(ended)


class DeadlineTests(Matrix):
    """Deadlines arrive where they can be said, and whoever gives up tells both sides."""

    def test_deadlines(self, most: int = ALL) -> None:
        self.needs("deadline")
        c = self.cell(most)
        c.app.answer = lambda request: Response(204)
        begun = c.clock.seconds()
        for deadline in (None, begun + 7.5):
            request = Request(b"PUT", b"/x", (), None, b"a.test")
            request.deadline = deadline
            c.send(request)
            c.run()
        late = c.clock.seconds() - begun
        self.assertEqual([r.status for r in c.result], [204, 204], c.errors)
        none, seen = (request.deadline for request in c.app.requests)
        self.assertIsNone(none)
        self.assertAlmostEqual(seen, begun + 7.5, delta=0.1 + late, msg="a deadline does not arrive")
        c.again()

    def test_a_deadline_stands_in_the_field_that_is_named_for_it(self, most: int = ALL) -> None:
        self.needs("fields")
        c = self.cell(most)
        c.context.deadline = b"x-within"
        c.relay.service = Hurried(c.pool, c.context.wheel)
        c.app.answer = lambda request: Response(204)
        begun = c.clock.seconds()
        c.ask(b"PUT")
        c.run()
        late = c.clock.seconds() - begun
        self.assertEqual([r.status for r in c.result], [204], c.errors)
        (field,) = c.app.requests[0].headers.all(b"x-within")
        self.assertAlmostEqual(int(field), WAITS * 1000, delta=1000 * late + 1)
        c.relay.service = c.pool
        c.again()

    def test_a_deadline_that_is_over_is_told_to_both_sides(self, most: int = ALL) -> None:
        c = self.cell(most)
        c.relay.service = Hurried(c.pool, c.context.wheel)
        cancelled: list[object] = []
        c.app.answer = lambda request: Deferred(cancelled.append)
        giver = Giver([b"x" * 10], self.length(99), close=False)
        c.ask(b"PUT", giver.body)
        c.run()
        taker = Taker(c.app.requests[0].body)
        c.advance(WAITS - 1)
        self.assertEqual((taker.data, c.result, cancelled), (b"x" * 10, [], []))
        c.advance(1.1)
        self.assertEqual([r.status for r in c.result], [504], c.errors)
        self.assertEqual(len(cancelled), 1, "the origin is cancelled")
        self.assertFalse(taker.finished, "and its upload is not complete")
        self.assertIsNotNone(taker.reason)
        self.assertIsNotNone(c.app.closes[0][0])
        self.assertTrue(giver.stopped, "nobody wants the rest of it")
        c.relay.service = c.pool
        c.again()
