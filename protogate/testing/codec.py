"""
L{CodecContract}: what must hold for every codec.

    class Contract(CodecContract, SynchronousTestCase):
        codec = Mine                        # called without arguments

What the codec says that it lacks (L{protogate.interfaces.IDescribedCodec}) is not expected of it.  A suite for one that
does not tell says C{lacks = {"continue", "refuse"}}, with words of L{protogate.testing.matrix.LACKS}.

It is all of L{InteropContract}, with the codec in front and behind, and what only one connection shows: how it begins,
drains and ends, in each state and by each way to end; what it makes of its own bytes at every split, cut off at every
offset, and garbled; its limits.  The bytes are recorded from the codec's own client and server, so a codec brings none.
A mistake that both sides make alike does not show here: compare with somebody else's implementation, too.

Runs under trial and under pytest.
"""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SkipTest
from zope.interface.verify import verifyObject

from protogate.context import Limits
from protogate.errors import ALWAYS, CLIENT, Abort
from protogate.interfaces import (
    IClientConnection,
    IConnection,
    IDescribedCodec,
    IPingingCodec,
    IReadableCodec,
    IStreamCodec,
)
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Pair, ok, read_then
from protogate.testing.interop import BLOCK, InteropContract
from protogate.testing.replay import ReplayContract
from protogate.testing.states import ENDLESS, STATES, WAYS, Reach
from protogate.testing.telling import TellingTests
from protogate.testing.transport import ALL


class _Told:
    """What a suite takes its codec to lack unless it says so itself: what the codec tells."""

    def __get__(self, suite: object, kind: type[CodecContract]) -> Iterable[str]:
        codec = kind.codec()
        return frozenset(codec.lacks) if IDescribedCodec.providedBy(codec) else ()


class CodecContract(TellingTests, ReplayContract, InteropContract):
    """
    @cvar codec: makes the codec, called without arguments.
    @cvar lacks: what its protocol cannot say; by default what the codec tells.
    """

    codec: ClassVar[Callable[[], Any]]
    lacks: ClassVar[Any] = _Told()

    def made(self) -> tuple[IStreamCodec, IStreamCodec]:
        """Both are the same kind."""
        return type(self).codec(), type(self).codec()

    def pair(self, most: int = ALL, **named: Any) -> Pair:
        """A pair that is looked over when the test has ended."""
        pair = Pair(type(self).codec(), most, **named)
        pair.lacks = self.lacks
        self.addCleanup(pair.finish)
        return pair

    # -- the codec

    def test_sniffing_knows_its_own_first_bytes(self) -> None:
        codec = type(self).codec()
        for sample in self.samples():
            prefix = self.recorded(sample).client[:256]
            for at in range(len(prefix)):
                self.assertIn(codec.sniff(prefix[:at]), (None, True), f"{at} bytes: {prefix[:at]!r}")
            self.assertIs(codec.sniff(prefix), True)

    def test_sniffing_refuses_strangers(self) -> None:
        codec = type(self).codec()
        for prefix in (b"\xff" * 256, bytes(range(128, 256)) * 2):
            self.assertIs(codec.sniff(prefix), False)

    def test_what_was_said_can_be_read(self) -> None:
        """By a codec that shows frames: of every sample, on both sides, whole and cut off; anything else is refused."""
        codec = type(self).codec()
        if not IReadableCodec.providedBy(codec):
            raise SkipTest("the codec does not show what was said")
        verifyObject(IReadableCodec, codec)
        for sample in self.samples():
            recorded = self.recorded(sample)
            for client, data in ((True, recorded.client), (False, recorded.server)):
                lines = list(codec.dissect(data, client, Limits()))
                self.assertTrue(lines)
                self.assertEqual([line for line in lines if not line.isascii()], [])
                offsets = [int(line.partition(":")[0]) for line in lines]
                self.assertEqual((offsets[0], offsets), (0, sorted(set(offsets))))
                self.assertLess(offsets[-1], len(data))
                for at in range(1, len(data), 7):
                    found = []
                    with suppress(ValueError):
                        for line in codec.dissect(data[:at], client, Limits()):
                            found.append(line)
                    self.assertEqual(found[:-1], lines[: max(len(found) - 1, 0)], f"cut off after {at} bytes")
        for client in (True, False):
            with self.assertRaises(ValueError):  # noqa: PT027
                list(codec.dissect(b"\xff" * 256, client, Limits()))

    # -- connections

    def test_connections(self) -> None:
        p = self.pair()
        verifyObject(IClientConnection, p.client)
        verifyObject(IConnection, p.server)
        self.assertGreater(p.client.capacity, 0)
        self.assertEqual((p.client.busy, p.server.busy), (0, 0))

    def test_a_sign_of_life_comes_or_fails_and_is_no_request(self) -> None:
        codec = type(self).codec()
        if not IPingingCodec.providedBy(codec):
            raise SkipTest("the protocol has none, or the codec does not offer it")
        verifyObject(IPingingCodec, codec)
        p = self.pair()
        first, second = codec.ping(p.client), codec.ping(p.client)
        forgotten = codec.ping(p.client)
        forgotten.cancel()
        self.failureResultOf(forgotten, CancelledError)
        self.assertNoResult(first)
        p.run()
        self.assertIs(self.successResultOf(first), None)
        self.assertIs(self.successResultOf(second), None)
        self.assertEqual((p.client.busy, p.server.busy, len(p.app.requests)), (0, 0, 0))
        lost = codec.ping(p.client)
        p.client.abort()
        self.failureResultOf(lost, Abort)
        self.failureResultOf(codec.ping(p.client), Abort)

    def test_capacity_is_counted_by_the_connection(self) -> None:
        p = self.pair()
        held: list[Deferred[Response]] = []

        def hold(request: Request) -> Deferred[Response]:
            held.append(Deferred())
            return held[-1]

        p.app.answer = hold
        most = p.client.capacity
        self.assertEqual(most > 1, "multiplex" not in self.lacks, f"capacity is {most}")
        for n in range(most):
            self.assertEqual((p.client.capacity, p.client.busy), (most - n, n))
            p.send(Request(b"GET", b"/%d" % n, authority=b"a.test"))
        self.assertEqual((p.client.capacity, p.client.busy), (0, most))
        p.run()
        self.assertEqual(p.server.busy, most)
        with_body = Giver([b"x"], 1)
        refused = p.client.handle(Request(b"PUT", b"/more", body=with_body.body, authority=b"a.test"))
        reason: Any = self.failureResultOf(refused, Abort).value
        self.assertEqual(reason.retry, ALWAYS)
        self.assertFalse(with_body.body.attached, "it may be sent elsewhere")
        p.rises.clear()
        held.pop(0).callback(Response(204))
        p.run()
        self.assertEqual(p.rises, [p.client], "ready() on the rise from 0")
        self.assertEqual(p.client.capacity, 1)
        for deferred in held:
            deferred.callback(Response(204))
        p.run()
        self.assertEqual(p.rises, [p.client], "and on no other")
        self.assertEqual((p.client.capacity, p.client.busy, p.server.busy), (most, 0, 0))
        self.assertEqual(len(p.result), most)

    def test_the_next_request_may_be_made_inside_ready(self) -> None:
        if "multiplex" not in self.lacks:
            raise SkipTest("ready() is for connections that were full")
        p = self.pair()
        p.app.answer = lambda request: Response(200, [], Giver([request.target], p.length(2)).body)
        todo = iter((b"/0", b"/1", b"/2"))

        def more(connection: Any) -> None:
            target = next(todo, None)
            if target is not None:
                self.assertEqual(connection.capacity, 1)
                p.send(Request(b"GET", target, authority=b"a.test"))

        p.on_ready = more
        more(p.client)
        p.run()
        self.assertEqual([response.status for response in p.result], [200] * 3, p.errors)
        self.assertEqual([Taker(response.body).data for response in p.result], [b"/0", b"/1", b"/2"])

    def test_drain_of_an_idle_connection_closes_it(self) -> None:
        for end in ("client", "server"):
            p = self.pair()
            connection = getattr(p, end)
            connection.drain()
            connection.drain()
            p.run()
            p.advance(10)
            self.assertEqual(len(p.closed), 2, f"drain() of the {end}")
            self.assertEqual(p.client.capacity, 0)

    def test_drain_lets_a_request_end(self) -> None:
        for end in ("client", "server"):
            p = self.pair()
            held: Deferred[Response] = Deferred()
            p.app.answer = lambda request, held=held: held  # type: ignore[misc]
            p.ask()
            p.run()
            getattr(p, end).drain()
            p.run()
            if end == "client" or "goaway" not in self.lacks:
                self.assertEqual(p.client.capacity, 0)
            self.assertEqual(p.closed, [])
            held.callback(Response(200, [], Giver([b"last ", b"words"], 10).body))
            p.run()
            taker = Taker(p.result[0].body)
            p.run()
            self.assertEqual((taker.data, taker.finished), (b"last words", True))
            p.advance(10)
            self.assertEqual(len(p.closed), 2, f"drain() of the {end}")
            self.assertEqual(p.app.closes, [[None]], "it ended well")

    def test_nothing_is_taken_after_abort(self) -> None:
        p = self.pair()
        p.client.abort()
        p.client.abort()
        self.assertEqual(p.client.capacity, 0)
        reason: Any = self.failureResultOf(p.client.handle(Request(b"GET", b"/", authority=b"a")), Abort).value
        self.assertEqual(reason.retry, ALWAYS)

    # -- ends, in each state

    def states(self) -> dict[str, Reach]:
        """How to get somewhere; what is then being given and taken."""
        states = dict(STATES)
        if "upgrade" in self.lacks:
            del states["tunnel"]
        return states

    def test_every_way_to_end_in_every_state(self) -> None:
        for (state, reach), (way, end) in itertools.product(self.states().items(), WAYS.items()):
            p = Pair(type(self).codec())
            p.lacks = self.lacks
            givers, takers = reach(p)
            where = f"{state}, then {way}"
            end(p)
            p.run()
            if way in ("the client closes", "the server closes", "the client loses it", "the server loses it"):
                p.advance(200)  # who does not read, or write, is told by a clock alone
            with self.at(where):
                p.finish()
            for taker in takers:
                self.assertTrue(taker.ended, f"{where}: a reader was left alone")
                if state != "tunnel":  # where a FIN is a clean end
                    self.assertFalse(taker.finished, f"{where}: a body that broke off is never complete")
            for giver in givers:
                if giver.body.attached:
                    self.assertTrue(giver.stopped, f"{where}: a source was left running")
            self.assertLessEqual(len(p.result) + len(p.errors), 1, where)
            if state not in ("fresh", "used"):
                self.assertEqual(len(p.result) + len(p.errors), 1, f"{where}: the answer must fire")

    def test_abort_ends_every_request_before_it_returns(self) -> None:
        for state, reach in self.states().items():
            for side in ("client", "server"):
                p = self.pair()
                _, takers = reach(p)
                getattr(p, side).abort()
                self.assertEqual(getattr(p, side).busy, 0, state)
                mine = {id(request.body) for request in p.app.requests}
                for taker in takers:
                    if (id(taker.body) in mine) is (side == "server"):
                        self.assertIsNotNone(taker.reason, f"{state}: {side}.abort()")

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Say where an assertion failed."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error

    # -- memory

    def test_nobody_reads(self) -> None:
        """Both directions stand still within a bound, and go on."""
        p = self.pair()
        up, down = self.big(), self.big(length=False)
        p.app.answer = lambda request: Response(200, [], down.body)
        p.ask(b"PUT", up.body)
        p.run()
        self.assertLess(up.gave, self.bound // 2)
        self.assertLess(down.gave, self.bound // 2)
        for _, wire in p.link.ends:
            self.assertLess(wire.peak, self.bound // 2)
        at_app = Taker(p.app.requests[0].body)
        p.run()
        at_client = Taker(p.result[0].body)
        p.run()
        self.assertEqual((at_app.finished, at_client.finished), (True, True))
        self.assertEqual(at_app.size, at_client.size)

    def test_a_peer_whose_host_reads_nothing(self) -> None:
        p = self.pair()
        down = Giver(itertools.repeat(BLOCK), p.length(ENDLESS))
        p.app.answer = lambda request: Response(200, [], down.body)
        p.client.transport.pauseProducing()
        p.ask()
        p.run()
        self.assertLess(down.gave, self.bound // 2)

    def test_no_cycles_are_left_for_the_collector(self) -> None:
        p = self.pair()
        p.app.answer = read_then(lambda request, data: Response(200, [(b"a", b"b")], Giver([data], len(data)).body))

        def exchange() -> None:
            p.ask(b"PUT", Giver([b"abc"], 3).body)
            p.run()
            Taker(p.result.pop().body)
            p.run()
            p.app.requests.clear()
            p.app.closes.clear()
            del p.answer

        exchange()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                exchange()
            left = gc.collect()
        finally:
            gc.enable()
        self.assertEqual(left, 0)

    # -- limits

    def test_each_limit_of_a_request_head(self) -> None:
        """A head over a limit never reaches the service as a request in good order; the client sees an error."""
        for limit, target, headers in (
            (Limits(request_line=100), b"/" + b"x" * 200, []),
            (Limits(header_line=100), b"/", [(b"x-long", b"v" * 200)]),
            (Limits(headers=100), b"/", [(b"x-%d" % n, b"v" * 20) for n in range(20)]),
            (Limits(header_count=10), b"/", [(b"x-%d" % n, b"v") for n in range(20)]),
        ):
            if headers and "fields" in self.lacks:
                continue
            for most in (1, ALL):
                p = self.pair(most, limits=limit)
                p.ask(b"GET", None, headers, target=target)
                p.run()
                self.assertEqual([r for r in p.app.requests if r.malformed is None], [], limit)
                if "malformed" not in self.lacks:
                    self.assertEqual(len(p.app.requests), 1, "modules and record see it")
                if p.result:
                    self.assertGreaterEqual(p.result[0].status, 400)
                else:
                    self.assertEqual(len(p.errors), 1)

    def test_limit_of_a_request_body(self) -> None:
        for length in (2000, self.length(2000)):
            p = self.pair(limits=Limits(body=1000))
            takers: list[Taker] = []

            def answer(request: Request, takers: list[Taker] = takers) -> Response | Deferred[Response]:
                if request.malformed is not None:
                    return ok(request)
                takers.append(Taker(request.body))
                return Deferred()

            p.app.answer = answer
            p.ask(b"PUT", Giver([b"x" * 500] * 4, length).body)
            p.run()
            self.assertLessEqual(sum(taker.size for taker in takers), 1000)
            self.assertFalse(any(taker.finished for taker in takers))
            self.assertEqual([taker for taker in takers if taker.reason is None], [], "the reader is told")

    def test_limit_of_a_response_head(self) -> None:
        self.needs("fields")
        p = self.pair(limits=Limits(response_headers=500))
        p.app.answer = lambda request: Response(200, [(b"x-%d" % n, b"v" * 50) for n in range(20)])
        p.ask()
        p.run()
        self.assertEqual(p.result, [])
        self.assertEqual([(error.status, error.who != CLIENT) for error in p.errors], [(502, True)])

    # -- several at once

    def test_a_paused_stream_does_not_stall_the_others(self) -> None:
        self.needs("multiplex")
        p = self.pair()
        givers: list[Giver] = []
        size = 64 * len(BLOCK)

        def answer(request: Request) -> Response:
            givers.append(self.big(size))
            return Response(200, [], givers[-1].body)

        p.app.answer = answer
        many = min(p.client.capacity, 100) - 1
        for n in range(many + 1):
            p.send(Request(b"GET", b"/%d" % n, authority=b"a.test"))
        p.run()
        for response in p.result[:many]:
            Taker(response.body, 1)
        last = Taker(p.result[many].body)
        p.run()
        self.assertEqual((last.size, last.finished), (size, True), f"beside {many} that stand still")
        self.assertTrue(all(giver.gave < size for giver in givers[:many]))
        p.client.abort()
        p.run()
        self.assertTrue(all(giver.stopped for giver in givers[:many]))
