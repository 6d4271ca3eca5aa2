"""Part of L{protogate.testing.interop}: exchanges that end well."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from protogate.interfaces import IBody, IClientConnection, IConnection, IService, ISink, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.testing.bodies import Echo, Giver, Taker
from protogate.testing.cell import read_then
from protogate.testing.transport import ALL

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

from protogate.testing.matrix import BIG, BLOCK, Matrix

LARGE: Final = 10 * 1024 * 1024


class ExchangeTests(Matrix):
    """Messages arrive as they were sent, piece by piece, whoever is slow."""

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
            return Response(self.status(201), [(b"x-a", b"1"), (b"x-a", b"2")], Giver([b"hello"], 5).body)

        c.app.answer = read_then(answer)
        for _ in range(3):
            c.ask(b"PUT", Giver([b"ping"], 4).body, [(b"x-b", b"2")])
            c.run()
            request = c.app.requests[-1]
            self.assertEqual(request.target, b"/x" if "query" in self.lacks else b"/x?y=1")
            if "method" not in self.lacks:
                self.assertEqual(request.method, b"PUT")
            self.assertTrue(request.protocol, "a name for people and for Via")
            self.assertEqual([r.status for r in c.result], [self.status(201)], c.errors)
            if "fields" not in self.lacks:
                self.assertEqual(request.authority, b"a.test")
                self.assertIn((b"x-b", b"2"), request.headers)
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
        self.assertEqual([r.status for r in c.result], [self.status(204)], c.errors)
        if "status" not in self.lacks:
            self.assertIsNone(c.result[0].body)
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
        self.assertTrue(giver.body.attached, "stopped, or read and thrown away")
        c.again()

    def test_framing_is_the_codecs_own(self) -> None:
        """Length comes from the body alone; fields of one connection never cross."""
        c = self.cell()
        c.app.answer = read_then(lambda request, data: Response(200, [], Giver([data], len(data)).body))
        c.ask(b"PUT", Giver([b"abc"], 3).body)
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
        c.ask(b"PUT", up.body)
        c.run()
        self.assertTrue(c.app.requests)
        self.assertTrue(c.result)
        self.assertLess(up.gave, self.bound, "nobody reads the upload: it stands still")
        self.assertLess(down.gave, self.bound, "nobody reads the download: it stands still")
        request, response = Taker(c.app.requests[0].body, 1), Taker(c.result[0].body, 1)
        worst = rounds = 0
        while not request.ended or not response.ended:
            before = request.size + response.size
            # A response that ended before its request would end the exchange: not here.
            if not response.ended and (request.ended or response.size < BIG // 2):
                response.resume()
            request.resume()
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

    def test_ten_mebibytes_both_ways(self) -> None:
        for length in (LARGE, self.length(LARGE)):
            c = self.cell()
            c.app.answer = lambda request: Response(200, [], Echo(request.body).out)  # type: ignore[arg-type]
            c.ask(b"PUT", Giver(itertools.repeat(BLOCK, LARGE // len(BLOCK)), length).body)
            c.run(until=lambda c=c: bool(c.result or c.errors))  # type: ignore[misc]
            self.assertEqual([r.status for r in c.result], [200], c.errors)
            taker = Taker(c.result[0].body)
            c.run()
            self.assertEqual((taker.size, taker.finished), (LARGE, True))
            self.assertEqual(taker.data, BLOCK * (LARGE // len(BLOCK)))
            c.idle()
            self.assertEqual(c.app.closes + c.relay.closes, [[None], [None]])
            c.again()

    def test_each_piece_is_passed_on_at_once(self, most: int = ALL) -> None:
        c = self.cell(most)
        c.app.answer = lambda request: Response(200, [], Echo(request.body).out)  # type: ignore[arg-type]
        giver = Giver(length=self.length(11), close=False)
        c.ask(b"PUT", giver.body)
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
        c.ask(b"PUT", giver.body, [(b"expect", b"100-continue")])
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
        c.ask(b"PUT", giver.body, [(b"expect", b"100-continue")])
        c.run()
        self.assertEqual([r.status for r in c.result], [417], c.errors)
        self.assertEqual(giver.gave, 0)
        c.again()

    def test_early_response_ends_the_exchange(self) -> None:
        c = self.cell()
        c.app.answer = lambda request: Response(self.status(413), [], Giver([b"too much"], 8).body)
        giver = self.big()
        c.ask(b"PUT", giver.body)
        c.run()
        self.assertEqual([r.status for r in c.result], [self.status(413)], c.errors)
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, taker.finished), (b"too much", True))
        self.assertLess(giver.gave, BIG)
        self.assertTrue(giver.stopped)
        c.again()
