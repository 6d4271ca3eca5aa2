"""
L{ReplayContract}: a codec's own bytes, recorded once, then read again in pieces, cut off, and garbled.

Recorded are whole exchanges between the codec's client and its server.  What the client said is then read by a server,
and what the server said by a client, each on a wire of its own.
"""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol

from protogate.context import Limits
from protogate.errors import UPSTREAM, Abort
from protogate.message import Field, Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Bench, Pair, Reader, ok, read_then
from protogate.testing.transport import Wire

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

SEED: Final = 20_26
GARBLED: Final = 150
"""Garbled inputs of each kind."""


@dataclass(frozen=True, slots=True)
class Message:
    """The content of one message, in pieces; C{pieces=None} is no body at all."""

    pieces: tuple[bytes, ...] | None = None
    length: int | None = None
    trailers: tuple[Field, ...] = ()

    def giver(self) -> Giver | None:
        """A new source of it."""
        if self.pieces is None:
            return None
        return Giver(self.pieces, self.length, list(self.trailers) or None)

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces or ())


@dataclass(frozen=True, slots=True)
class Sample:
    """One exchange."""

    method: bytes = b"GET"
    request: Message = Message()
    status: int = 200
    response: Message = Message()
    headers: tuple[Field, ...] = ((b"x-a", b"1"), (b"x-b", b""))
    interim: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What went over the wire in one exchange; C{greeting} is what the server said before it was asked."""

    client: bytes
    server: bytes
    greeting: bytes


@dataclass(slots=True)
class Seen:
    """What one end made of what it read."""

    heads: list[tuple[Any, ...]] = field(default_factory=list)
    takers: list[Taker] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    """For each of the takers, whether all was there when the message was handed over."""

    def state(self) -> list[Any]:
        """To compare with another."""
        return [self.heads, [(taker.data, taker.finished, list(taker.trailers or ())) for taker in self.takers]]


class Lone(Bench):
    """One end, on a wire that leads nowhere; its context and its requests are watched as on any bench."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits=limits)
        self.wire = Wire()
        self.end: Any = None
        self.seen = Seen()

    def start(self, end: Any) -> None:
        """Connect it."""
        self.end = end
        self._watch(end)
        end.makeConnection(self.wire)

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Have it read them, as long as it reads."""
        for piece in pieces:
            if not self.wire.reading or self.wire.dead:
                return
            if piece:
                self.end.dataReceived(piece)

    def lose(self, well: bool) -> None:
        """Its connection ends, by a FIN or badly."""
        if well and self.wire.reading and IHalfCloseableProtocol.providedBy(self.end):
            self.end.readConnectionLost()
        self.wire.lost(self.end, ConnectionDone() if well else ConnectionLost())

    def ends(self) -> Sequence[Any]:
        """Only this one."""
        return [self.end]

    def finish(self) -> None:
        """As any bench."""
        self.wire.lost(self.end, ConnectionDone())
        super().finish()


class ReplayContract(Base):
    """See L{protogate.testing.codec.CodecContract}, which is what a codec's tests subclass."""

    codec: ClassVar[Callable[[], Any]]
    lacks: ClassVar[Iterable[str]]
    _greeting = b""  # of the recording that is replayed

    # -- recording

    def samples(self) -> list[Sample]:
        """The exchanges to record.  Add what is special to the codec."""
        trailers: tuple[Field, ...] = () if "trailers" in self.lacks else ((b"x-sum", b"7"), (b"x-end", b"z"))
        six, nine = (size if "length" in self.lacks else None for size in (6, 8))
        made = [
            self._small(),
            Sample(b"PUT", Message((b"one", b"two"), six, trailers), 200, Message((b"four", b"five"), nine, trailers)),
        ]
        if "status" in self.lacks:
            made += [Sample(response=Message((b"found",), 5)), Sample(b"DELETE", response=Message((b"1",), 1))]
        else:
            made += [Sample(), Sample(b"DELETE", status=204)]
        if "head" not in self.lacks:
            made.append(Sample(b"HEAD", status=200))
        if "interim" not in self.lacks:
            made.append(Sample(interim=True, response=Message((b"x" * 40,), 40)))
        return made

    def _small(self) -> Sample:
        method, status = b"PUT" if "method" in self.lacks else b"POST", 200 if "status" in self.lacks else 201
        return Sample(method, Message((b"ping",), 4), status, Message((b"hello",), 5))

    def request(self, sample: Sample) -> Request:
        """A new Request."""
        giver = sample.request.giver()
        body = None if giver is None else giver.body
        return Request(sample.method, b"/path?q=%20&r", sample.headers, body, b"a.test:8080")

    def answer(self, sample: Sample, request: Request) -> Response:
        """A new Response."""
        if sample.interim:
            request.interim(Response(103, [(b"link", b"</a>")]))
        giver = sample.response.giver()
        return Response(sample.status, sample.headers, None if giver is None else giver.body)

    def recorded(self, sample: Sample) -> Recorded:
        """The bytes of one exchange."""
        p = Pair(type(self).codec())
        p.app.answer = read_then(lambda request, data: self.answer(sample, request))
        p.run()
        greeting = p.tapes[1]
        p.send(self.request(sample))
        p.run()
        self.assertEqual([response.status for response in p.result], [sample.status], p.errors)
        taker = Taker(p.result[0].body)
        p.run()
        self.assertTrue(taker.finished)
        client, server = p.tapes
        p.finish()
        return Recorded(client, server, greeting)

    # -- replaying

    def serve(self, sample: Sample, pieces: Iterable[bytes], limits: Limits | None = None) -> Lone:
        """A server that read them, and answers as in the recording."""
        lone = Lone(limits)
        seen = lone.seen

        def answer(request: Request) -> Response | Deferred[Response]:
            if request.malformed is not None:
                return ok(request)
            seen.heads.append((request.method, request.target, request.authority, list(request.headers)))
            if request.body is None or request.upgrade is not None:
                return self.answer(sample, request)
            whole: Deferred[bytes] = Deferred()
            later = whole.addCallback(lambda data: self.answer(sample, request))
            seen.takers.append(Reader(request.body, whole))
            seen.whole.append(seen.takers[-1].finished)
            return later

        lone.app.answer = answer
        lone.start(type(self).codec().server(lone.app, lone.context))
        lone.feed(pieces)
        return lone

    def call(self, sample: Sample, pieces: Iterable[bytes], limits: Limits | None = None) -> Lone:
        """A client that made the request of the recording, and read them."""
        lone = Lone(limits)
        seen = lone.seen

        def arrived(response: Response) -> None:
            seen.heads.append((response.status, list(response.headers)))
            seen.takers.append(Taker(response.body))
            seen.whole.append(seen.takers[-1].finished)

        lone.start(type(self).codec().client(lone._rose, lone.context))
        lone.feed([self._greeting])
        request = self.request(sample)
        request.interim = lambda response: seen.heads.append((response.status, list(response.headers)))
        lone.end.handle(request).addCallbacks(arrived, lambda failure: seen.errors.append(failure.value))
        lone.feed(pieces)
        return lone

    def both(self, sample: Sample) -> Iterable[tuple[Callable[..., Lone], bytes, int]]:
        """Who reads what, and how many messages with content that has."""
        recorded = self.recorded(sample)
        yield self.serve, recorded.client, 0 if sample.request.pieces is None else 1
        self._greeting = recorded.greeting
        yield self.call, recorded.server[len(recorded.greeting) :], 1

    def over(self, lone: Lone) -> None:
        """It is over, and nothing is left."""
        lone.finish()
        for taker in lone.seen.takers:
            self.assertTrue(taker.ended, "a reader was left alone")

    def test_every_split(self) -> None:
        for sample in self.samples():
            for replay, data, _ in self.both(sample):
                whole = replay(sample, [data])
                self.assertEqual(whole.seen.errors, [])
                self.assertTrue(whole.seen.heads, f"{replay.__name__} made nothing of {data!r}")
                self.assertTrue(all(taker.finished for taker in whole.seen.takers), "the recording is complete")
                for at in range(1, len(data)):
                    part = replay(sample, [data[:at], data[at:]])
                    self.assertEqual(part.seen.state(), whole.seen.state(), f"split at {at}: {data[:at]!r}")
                    self.over(part)
                self.over(whole)

    def test_what_came_in_one_read_is_whole_when_it_is_handed_over(self) -> None:
        """All of a read is fed into a body first: so small messages can be sent again, and leave in one write."""
        for sample in self.samples():
            for replay, data, bodies in self.both(sample):
                lone = replay(sample, [data])
                self.assertEqual(lone.seen.whole, [True] * bodies)
                self.over(lone)

    def test_byte_by_byte(self) -> None:
        for sample in self.samples():
            for replay, data, _ in self.both(sample):
                whole = replay(sample, [data])
                single = replay(sample, [data[at : at + 1] for at in range(len(data))])
                self.assertEqual(single.seen.state(), whole.seen.state())
                self.over(whole)
                self.over(single)

    def test_cut_off_at_every_offset(self) -> None:
        """A message that broke off is never taken for a complete one."""
        for sample in self.samples():
            for replay, data, bodies in self.both(sample):
                whole = replay(sample, [data])
                content = sample.request if replay == self.serve else sample.response
                for at in range(len(data)):
                    for well in (True, False):
                        lone = replay(sample, [data[:at]])
                        lone.lose(well)
                        for taker in lone.seen.takers[:bodies]:
                            if taker.finished:
                                got = (taker.data, tuple(taker.trailers or ()))
                                self.assertEqual(got, (content.data, content.trailers), f"cut off at {at}")
                        for error in lone.seen.errors:
                            self.assertIsInstance(error, Abort)
                            self.assertEqual(error.who, UPSTREAM)
                        self.answered(replay, lone, f"cut off at {at}")
                        self.over(lone)
                self.over(whole)

    def test_garbage(self) -> None:
        """Whatever comes, nothing is raised, everything ends, and what is wrong is an Abort."""
        dice = random.Random(SEED)
        for sample in self.samples():
            for replay, data, _ in self.both(sample):
                for garbled in (*self.noise(dice), *self.garbled(dice, data)):
                    for pieces in ([garbled], _pieces(dice, garbled)):
                        lone = replay(sample, pieces)
                        for error in lone.seen.errors:
                            self.assertIsInstance(error, Abort, f"{garbled!r}")
                        lone.lose(dice.random() < 0.5)
                        self.answered(replay, lone, f"{garbled!r}")
                        self.over(lone)

    def test_what_is_wrong_behind_a_message_does_not_undo_it(self) -> None:
        """In the read that brought it as in the next one: a request reaches the service, and an answer who asked."""
        for sample in self.samples():
            for replay, data, _ in self.both(sample):
                whole = replay(sample, [data])
                for wrong in (b"\xff" * 300, b"\0" * 300):
                    for pieces in ([data + wrong], [data, wrong]):
                        lone = replay(sample, pieces)
                        self.assertEqual(lone.seen.state(), whole.seen.state(), f"{len(pieces)} reads, {wrong[:1]!r}")
                        self.answered(replay, lone, f"{len(pieces)} reads, {wrong[:1]!r}")
                        self.over(lone)
                self.over(whole)

    def answered(self, replay: Callable[..., Lone], lone: Lone, where: str) -> None:
        """Whoever asked was told how it went, once; for a connection that is over."""
        if replay == self.call:
            final = [head for head in lone.seen.heads if head[0] >= 200]
            self.assertEqual(len(final) + len(lone.seen.errors), 1, where)

    def noise(self, dice: random.Random) -> Iterable[bytes]:
        """Bytes that mean nothing."""
        for _ in range(GARBLED // 10):
            yield dice.randbytes(dice.randrange(1, 400))
        for byte in (b"\x00", b"\xff", b"\n", b" "):
            yield byte * 300

    def garbled(self, dice: random.Random, data: bytes) -> Iterable[bytes]:
        """A recording with a few bytes changed, taken out or put in."""
        for _ in range(GARBLED):
            broken = bytearray(data)
            for _ in range(dice.randrange(1, 4)):
                at = dice.randrange(len(broken) + 1)
                kind = dice.randrange(3)
                if kind == 0:
                    broken[at : at + 1] = dice.randbytes(1)
                elif kind == 1:
                    del broken[at : at + dice.randrange(1, 4)]
                else:
                    broken[at:at] = dice.choice((dice.randbytes(2), b"\r\n", b"\n", b"\x00", bytes(broken[:at])[-9:]))
            yield bytes(broken)

    def test_what_follows_a_message_is_not_part_of_it(self) -> None:
        """Two exchanges in one read: the second starts where the first ends, or the connection ends."""
        sample = self._small()
        recorded = self.recorded(sample)
        lone = self.serve(sample, [recorded.client + recorded.client])
        for taker in lone.seen.takers:
            self.assertIn((taker.data, taker.finished), [(b"ping", True), (b"", False)])
        self.over(lone)


def _pieces(dice: random.Random, data: bytes) -> list[bytes]:
    """Cut somewhere, a few times."""
    cuts = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(4))})
    return [data[a:b] for a, b in pairwise(cuts)]
