"""Part of L{protogate.testing.interop}: more requests than connections."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SkipTest

from protogate.config.model import PoolSettings
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import read_then

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

from protogate.testing.matrix import Matrix


class QueueTests(Matrix):
    """Whoever waits is served in turn, or leaves without a trace."""

    def test_more_requests_than_connections_wait_their_turn(self) -> None:
        c = self.cell(settings=PoolSettings(max_per_endpoint=1))
        length = self.length(2)
        c.app.answer = read_then(lambda request, data: Response(200, [], Giver([request.target], length).body))
        asked = [Request(b"GET", b"/%d" % n, authority=b"a.test") for n in range(5)]
        answers: list[Any] = [c.pool.handle(request) for request in asked]
        bodies: list[Taker] = []
        for answer in answers:
            answer.addCallback(lambda response: bodies.append(Taker(response.body)))
        c.run()
        self.assertEqual([taker.data for taker in bodies], [request.target for request in asked])
        self.assertEqual(len(c.upstream), 1)
        c.again()

    def test_one_cancelled_in_the_queue_costs_the_others_nothing(self) -> None:
        self.skip_multiplexed()
        c = self.cell(settings=PoolSettings(max_per_endpoint=1))
        held: list[Deferred[Response]] = []

        def hold(request: Request) -> Deferred[Response]:
            held.append(Deferred())
            return held[-1]

        c.app.answer = hold
        one, two, three = (c.pool.handle(Request(b"GET", b"/%d" % n, authority=b"a.test")) for n in range(3))
        c.run()
        two.cancel()  # type: ignore[union-attr]
        self.failureResultOf(two, CancelledError)
        held[0].callback(Response(204))
        c.run()
        held[1].callback(Response(204))
        c.run()
        self.assertEqual([request.target for request in c.app.requests], [b"/0", b"/2"])
        for answer in (one, three):  # of the pool itself: the codec in front, and what it cannot say, had no part in it
            self.assertIn(self.successResultOf(answer).status, (204, self.status(204)))  # type: ignore[arg-type]
        c.again()

    def skip_multiplexed(self) -> None:
        """Skip a test that is about connections of one request at a time."""
        if "multiplex" not in self.lacks:
            raise SkipTest("several requests at once need no queue")
