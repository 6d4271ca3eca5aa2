"""
L{InteropContract}: what must hold between any codec in front and any codec behind.

    class Http1ToMine(InteropContract, SynchronousTestCase):
        down, up = Http1, Mine
        lacks = {"continue"}

Every request, answer and way to end travels from the client of C{down} through a small gateway and a real pool to a
server of C{up}, and back; each test ends by proving that the next request works, that every request was closed once,
and that no deadline is left.

Runs under trial and under pytest.
"""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SkipTest
from zope.interface.verify import verifyObject

from protogate.body import Replay
from protogate.config.model import PoolSettings
from protogate.errors import ALWAYS, CLIENT, IDEMPOTENT, UPSTREAM, Abort
from protogate.interfaces import IBody, IClientConnection, IConnection, IService, ISink, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.testing.bodies import Echo, Giver, Taker
from protogate.testing.cell import Cell, read_then
from protogate.testing.transport import ALL

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

BLOCK: Final = bytes(range(256)) * 64
BIG: Final = 4 * 1024 * 1024
LACKS: Final = frozenset(
    (
        "trailers",  # fields behind a body
        "interim",  # 1xx
        "continue",  # 100 Continue
        "upgrade",  # tunnels
        "halfclose",  # one direction of a tunnel ends alone
        "head",  # HEAD is answered without content
        "refuse",  # "I have not looked at this request"
        "multiplex",  # several requests at once
        "goaway",  # the peer learns that a connection drains
        "malformed",  # what is left of a broken request reaches the service
    )
)
"""What a protocol may be unable to say."""


class InteropContract(Base):
    """
    @cvar down: makes the codec in front, called without arguments.
    @cvar up: makes the codec behind.
    @cvar lacks: which of L{LACKS} one of the two cannot say.
    @cvar bound: bytes of one body that may be under way while nobody reads: all buffers of both hops.
    """

    down: ClassVar[Callable[[], Any]]
    up: ClassVar[Callable[[], Any]]
    lacks: ClassVar[Iterable[str]] = ()
    bound: ClassVar[int] = 1 << 20

    # -- for the tests

    def made(self) -> tuple[IStreamCodec, IStreamCodec]:
        """Both codecs."""
        return type(self).down(), type(self).up()

    def cell(self, most: int = ALL, **named: Any) -> Cell:
        """A cell that is looked over when the test has ended."""
        cell = Cell(*self.made(), most, **named)
        self.addCleanup(cell.finish)
        return cell

    def needs(self, *words: str) -> None:
        """Skip the test unless both can say that."""
        unknown = set(self.lacks) - LACKS
        assert not unknown, f"lacks says {sorted(unknown)}; it may say {sorted(LACKS)}"
        for word in words:
            if word in self.lacks:
                raise SkipTest(f"the protocol cannot say: {word}")

    def refuse(self, server: IConnection) -> None:
        """Have a server say of its newest request that it was not looked at.  Codecs that can say so override this."""
        raise SkipTest("this codec does not show how to refuse")

    def big(self, size: int = BIG, length: bool = True, **named: Any) -> Giver:
        """A large body."""
        return Giver(itertools.repeat(BLOCK, size // len(BLOCK)), size if length else None, **named)

    # -- plain exchanges

    def test_interfaces(self) -> None:
        c = self.cell()
        for codec in (c.down, c.up):
            verifyObject(IStreamCodec, codec)
        for connection in (c.client, c.upstream[0][0] if c.upstream else c.client):
            verifyObject(IClientConnection, connection)
        verifyObject(IConnection, c.server)
        verifyObject(IService, c.pool)
        body = Giver([b"x"]).body
        verifyObject(IBody, body)
        verifyObject(ISink, Taker(body))

    def test_small_messages_arrive_whole_and_connections_are_reused(self, most: int = ALL) -> None:
        c = self.cell(most)
        seen: list[bytes] = []

        def answer(request: Request, data: bytes) -> Response:
            seen.append(data)
            return Response(201, [(b"x-a", b"1"), (b"x-a", b"2")], Giver([b"hello"], 5).body)

        c.app.answer = read_then(answer)
        for _ in range(3):
            c.ask(b"POST", Giver([b"ping"], 4).body, [(b"x-b", b"2")])
            c.run()
            request = c.app.requests[-1]
            self.assertEqual((request.method, request.target, request.authority), (b"POST", b"/x?y=1", b"a.test"))
            self.assertIn((b"x-b", b"2"), request.headers)
            self.assertTrue(request.protocol, "a name for people and for Via")
            self.assertEqual([r.status for r in c.result], [201], c.errors)
            self.assertEqual(c.result[0].headers.all(b"x-a"), [b"1", b"2"])
            taker = Taker(c.result[0].body)
            c.run()
            self.assertEqual((taker.data, taker.finished), (b"hello", True))
            c.idle()
        self.assertEqual(seen, [b"ping"] * 3)
        self.assertEqual(len(c.upstream), 1, "one connection behind is enough")
        self.assertEqual([ends for ends in c.app.closes + c.relay.closes if ends != [None]], [], "all ended well")

    def test_no_content(self, most: int = ALL) -> None:
        c = self.cell(most)
        c.app.answer = lambda request: Response(204)
        c.ask()
        c.run()
        self.assertEqual([(r.status, r.body) for r in c.result], [(204, None)], c.errors)
        self.assertIsNone(c.app.requests[0].body)
        c.again()

    def test_head(self, most: int = ALL) -> None:
        self.needs("head")
        c = self.cell(most)
        giver = Giver([b"five!"], 5)
        c.app.answer = lambda request: Response(200, [], giver.body)
        c.ask(b"HEAD")
        c.run()
        self.assertEqual([(r.status, r.body) for r in c.result], [(200, None)], c.errors)
        self.assertTrue(giver.stopped, "nobody wants the content")
        c.again()

    def test_framing_is_the_codecs_own(self) -> None:
        """Length comes from the body alone; fields of one connection never cross."""
        c = self.cell()
        c.app.answer = read_then(lambda request, data: Response(200, [], Giver([data], len(data)).body))
        c.ask(b"POST", Giver([b"abc"], 3).body)
        c.run()
        request, response = c.app.requests[0], c.result[0]
        for headers in (request.headers, response.headers):
            names = {name for name, _ in headers}
            self.assertFalse(names & {b"content-length", b"transfer-encoding", b"connection", b"host"}, names)
        self.assertEqual((request.body.length, response.body.length), (3, 3))  # type: ignore[union-attr]
        self.assertEqual(Taker(response.body).data, b"abc")
        c.run()
        c.again()

    # -- streaming

    def test_large_bodies_both_ways_with_slow_readers(self) -> None:
        c = self.cell()
        down, up = self.big(length=False), self.big()
        c.app.answer = lambda request: Response(200, [], down.body)
        c.ask(b"POST", up.body)
        c.run()
        self.assertTrue(c.app.requests)
        self.assertTrue(c.result)
        self.assertLess(up.gave, self.bound, "nobody reads the upload: it stands still")
        self.assertLess(down.gave, self.bound, "nobody reads the download: it stands still")
        request, response = Taker(c.app.requests[0].body, 1), Taker(c.result[0].body, 1)
        worst = rounds = 0
        while not request.ended or not response.ended:
            # A response that ended before its request would end the exchange: not here.
            if not response.ended and (request.ended or response.size < BIG // 2):
                response.resume()
            request.resume()
            before = request.size + response.size
            c.run(20)
            worst = max(worst, up.gave - request.size, down.gave - response.size)
            rounds = 0 if request.size + response.size > before else rounds + 1
            self.assertLess(rounds, 100, f"stuck at {request.size} and {response.size} bytes")
        c.run()
        self.assertLess(worst, self.bound)
        self.assertEqual((request.finished, response.finished), (True, True))
        self.assertEqual(request.data, BLOCK * (BIG // len(BLOCK)))
        self.assertEqual(response.data, request.data)
        c.again()

    def test_each_piece_is_passed_on_at_once(self, most: int = ALL) -> None:
        c = self.cell(most)
        c.app.answer = lambda request: Response(200, [], Echo(request.body).out)  # type: ignore[arg-type]
        giver = Giver(close=False)
        c.ask(b"POST", giver.body)
        c.run()
        self.assertEqual([r.status for r in c.result], [200], c.errors)
        taker = Taker(c.result[0].body)
        for word in (b"one", b"two", b"three"):
            giver.write(word)
            c.run()
            self.assertTrue(taker.data.endswith(word))
        trailers: list[Field] | None = None if "trailers" in self.lacks else [(b"x-sum", b"7")]
        giver.finish(trailers)
        c.run()
        self.assertEqual((taker.data, taker.finished), (b"onetwothree", True))
        self.assertEqual(list(taker.trailers or ()), trailers or [])
        c.again()

    def test_trailers_without_content(self, most: int = ALL) -> None:
        self.needs("trailers")
        c = self.cell(most)
        c.app.answer = lambda request: Response(200, [], Giver(trailers=[(b"grpc-status", b"0")]).body)
        c.ask()
        c.run()
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, taker.finished, taker.trailers), (b"", True, [(b"grpc-status", b"0")]))
        c.again()

    def test_interim_responses(self, most: int = ALL) -> None:
        self.needs("interim")
        c = self.cell(most)
        later: Deferred[Response] = Deferred()
        c.app.answer = lambda request: later
        seen: list[Response] = []
        c.ask(interim=seen.append)
        c.run()
        passes = c.app.requests[0].interim
        for link in (b"</a>", b"</b>"):
            passes(Response(103, [(b"link", link)]))
            c.run()
        self.assertEqual([r.status for r in seen], [103, 103])
        self.assertEqual([r.headers.get(b"link") for r in seen], [b"</a>", b"</b>"])
        later.callback(Response(204))
        c.run()
        self.assertEqual([r.status for r in c.result], [204], c.errors)
        passes(Response(103))
        c.run()
        self.assertEqual(len(seen), 2, "too late is harmless")
        c.again()

    def test_expect_continue(self, most: int = ALL) -> None:
        self.needs("continue")
        c = self.cell(most)
        c.app.answer = lambda request: Deferred()
        giver = Giver([b"body"], 4)
        c.ask(b"POST", giver.body, [(b"expect", b"100-continue")])
        c.run()
        self.assertEqual(len(c.app.requests), 1)
        self.assertFalse(giver.body.attached, "nobody has asked for it yet")
        taker = Taker(c.app.requests[0].body)
        c.run()
        self.assertEqual((taker.data, taker.finished), (b"body", True))
        c.answer.cancel()
        c.run()
        c.again()

    def test_expect_continue_refused(self, most: int = ALL) -> None:
        self.needs("continue")
        c = self.cell(most)
        c.app.answer = lambda request: Response(417)
        giver = Giver([b"body"], 4)
        c.ask(b"POST", giver.body, [(b"expect", b"100-continue")])
        c.run()
        self.assertEqual([r.status for r in c.result], [417], c.errors)
        self.assertEqual(giver.gave, 0)
        c.again()

    def test_early_response_ends_the_exchange(self) -> None:
        c = self.cell()
        c.app.answer = lambda request: Response(413, [], Giver([b"too much"], 8).body)
        giver = self.big()
        c.ask(b"POST", giver.body)
        c.run()
        self.assertEqual([r.status for r in c.result], [413], c.errors)
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, taker.finished), (b"too much", True))
        self.assertLess(giver.gave, BIG)
        self.assertTrue(giver.stopped)
        c.again()

    # -- the client leaves

    def test_client_gone_before_the_head(self, most: int = ALL) -> None:
        c = self.cell(most)
        cancelled: list[object] = []
        c.app.answer = lambda request: Deferred(cancelled.append)
        giver = Giver([b"x" * 10], close=False)
        c.ask(b"POST", giver.body)
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
        handle, cancelled = c.relay.handle, []

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
        for length in (5000, None):
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
        c.ask(b"POST", giver.body)
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
        c.app.answer = lambda request: Deferred()
        c.ask(b"POST", Giver([b"a"], close=False).body)
        c.run()
        self.refuse(c.origin)
        c.run()
        self.assertEqual([getattr(end, "retry", None) for end in c.relay.ends], [ALWAYS])
        self.assertEqual([r.status for r in c.result], [502], c.errors)
        c.again()

    def test_a_request_that_was_kept_whole_is_sent_again(self) -> None:
        self.needs("refuse")
        c = self.cell()
        handle = c.pool.handle

        def attempt(request: Request) -> Any:
            return handle(request).addErrback(again, request)  # type: ignore[union-attr]

        def again(failure: Any, request: Request) -> Any:
            if failure.value.retry == ALWAYS and request.body is not None and not request.body.attached:
                return attempt(request)
            return failure

        def wrap(request: Request) -> Any:
            request.body = Replay(request.body, 100)  # type: ignore[arg-type]
            return attempt(request)

        c.pool.handle = wrap  # type: ignore[method-assign]
        takers: list[Taker] = []

        def hold(request: Request) -> Deferred[Response]:
            takers.append(Taker(request.body))
            return Deferred()

        c.app.answer = hold
        giver = Giver(close=False)
        c.ask(b"POST", giver.body)
        giver.write(b"first ")
        c.run()
        self.assertEqual(takers[0].data, b"first ")
        seen: list[bytes] = []

        def answer(request: Request, data: bytes) -> Response:
            seen.append(data)
            return Response(200)

        c.app.answer = read_then(answer)
        self.refuse(c.origin)
        c.run()
        giver.write(b"second")
        giver.finish()
        c.run()
        self.assertEqual([r.status for r in c.result], [200], c.errors)
        self.assertEqual(seen, [b"first second"])
        del c.pool.handle  # type: ignore[method-assign]
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

    # -- tunnels

    def test_tunnel(self, most: int = ALL) -> None:
        self.needs("upgrade", "halfclose")
        for first in ("client", "origin"):
            c = self.cell(most)
            origin, client = Giver(close=False), Giver([b"early "], close=False)
            c.app.answer = lambda request, origin=origin: Response(101, [], origin.body)  # type: ignore[misc]
            c.ask(b"GET", client.body, upgrade=b"websocket")
            c.run()
            self.assertEqual([r.status for r in c.result], [101], c.errors)
            self.assertEqual(c.app.requests[0].upgrade, b"websocket")
            at_origin, at_client = Taker(c.app.requests[0].body), Taker(c.result[0].body)
            c.run()
            client.write(b"hello")
            origin.write(b"welcome")
            c.run()
            self.assertEqual((at_origin.data, at_client.data), (b"early hello", b"welcome"))
            one, at_one, other, at_other = client, at_client, origin, at_origin
            if first == "origin":
                one, at_one, other, at_other = origin, at_origin, client, at_client
            one.finish()
            c.run()
            self.assertTrue(at_other.finished)
            self.assertFalse(at_one.ended, "half closed: the other way still flows")
            other.write(b" more")
            c.run()
            self.assertTrue(at_one.data.endswith(b" more"))
            other.finish()
            c.run()
            self.assertTrue(at_one.finished)
            c.again()

    def test_tunnel_refused(self, most: int = ALL) -> None:
        self.needs("upgrade")
        c = self.cell(most)
        c.app.answer = lambda request: Response(403, [], Giver([b"no"], 2).body)
        client = Giver([b"early"], close=False)
        c.ask(b"GET", client.body, upgrade=b"websocket")
        c.run()
        self.assertEqual([r.status for r in c.result], [403], c.errors)
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, client.gave), (b"no", 0))
        c.again()

    def test_tunnel_broken(self) -> None:
        self.needs("upgrade")
        c = self.cell()
        origin, client = Giver(close=False), Giver(close=False)
        c.app.answer = lambda request: Response(101, [], origin.body)
        c.ask(b"GET", client.body, upgrade=b"websocket")
        c.run()
        at_origin, at_client = Taker(c.app.requests[0].body), Taker(c.result[0].body)
        c.run()
        c.client.abort()
        c.run()
        self.assertTrue(origin.stopped)
        self.assertIsNotNone(at_origin.reason)
        self.assertIsNotNone(at_client.reason)
        c.again()

    # -- the pool

    def test_more_requests_than_connections_wait_their_turn(self) -> None:
        c = self.cell(settings=PoolSettings(max_per_endpoint=1))
        c.app.answer = read_then(lambda request, data: Response(200, [], Giver([request.target], None).body))
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
        c.app.answer = lambda request: held.append(Deferred()) or held[-1]  # type: ignore[func-returns-value]
        one, two, three = (c.pool.handle(Request(b"GET", b"/%d" % n, authority=b"a.test")) for n in range(3))
        c.run()
        two.cancel()  # type: ignore[union-attr]
        self.failureResultOf(two, CancelledError)  # type: ignore[arg-type]
        held[0].callback(Response(204))
        c.run()
        held[1].callback(Response(204))
        c.run()
        self.assertEqual([request.target for request in c.app.requests], [b"/0", b"/2"])
        for answer in (one, three):
            self.assertEqual(self.successResultOf(answer).status, 204)  # type: ignore[arg-type]
        c.again()

    def skip_multiplexed(self) -> None:
        """Skip a test that is about connections of one request at a time."""
        if "multiplex" not in self.lacks:
            raise SkipTest("several requests at once need no queue")

    # -- byte by byte

    def test_one_byte_at_a_time(self) -> None:
        for name in (
            "small_messages_arrive_whole_and_connections_are_reused",
            "no_content",
            "head",
            "each_piece_is_passed_on_at_once",
            "trailers_without_content",
            "interim_responses",
            "expect_continue",
            "expect_continue_refused",
            "client_gone_before_the_head",
            "upstream_lost_before_the_head",
            "truncation_is_seen_by_the_client",
            "tunnel",
            "tunnel_refused",
        ):
            try:
                getattr(self, f"test_{name}")(most=1)
            except SkipTest:
                continue


__all__ = ["BIG", "BLOCK", "LACKS", "InteropContract"]
