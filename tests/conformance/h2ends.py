"""
Plays a case against one end in memory: a server or a client of protogate's codec, on either engine.

    found = play(case, engine="ngh2", client=False, most=ALL)
    found.seen, found.faults

The application behind a server is described in L{h2server_cases}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from h2case import Case, Item
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from h2frames import PREFACE, ping, req, res, settings
from h2peer import Peer
from protogate.context import Context, Limits, Timeouts
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.testing import Giver, Link, Net, Taker
from protogate.testing.reactor import START
from protogate.wheel import Wheel
from protogate_http.http2 import Http2

PROBE = b"conforms"
NEXT = 100_001
"""The stream on which a client tries whether the connection still works; cases stay below."""
BIG = 1 << 20


class Wired(Protocol):
    """A L{Peer} on a transport; C{first} is what it says unasked."""

    def __init__(self, peer: Peer, first: bytes) -> None:
        self.peer, self.first = peer, first

    def connectionMade(self) -> None:
        self.peer.send = self.send
        self.send(self.first)

    def send(self, data: bytes) -> None:
        self.peer.said(data)
        self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        self.peer.feed(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.peer.lost()


class Counting(Taker):
    """Reads all, then says how much that was."""

    def __init__(self, body: Any, told: Deferred[Response]) -> None:
        self.told = told
        super().__init__(body)

    def finish(self, trailers: Any = None) -> None:
        super().finish(trailers)
        size = b"%d" % self.size
        self.told.callback(Response(200, [], Giver([size], len(size)).body))


@implementer(IService)
class Site:
    """
    The application.

    @ivar whole: targets of requests that it got whole, as if all were well.
    @ivar malformed: of those that were marked.
    """

    def __init__(self) -> None:
        self.whole: list[bytes] = []
        self.malformed: list[bytes] = []
        self.taken: list[Taker] = []
        self.bodies: list[Giver] = []

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        body = request.body
        if request.malformed is not None:
            self.malformed.append(request.target)
            if body is not None:
                body.stopProducing()
            return Response(request.malformed.status)
        if request.upgrade is not None:
            self.whole.append(request.target)
            self.taken.append(Taker(body))
            return Response(101, [], Giver(close=False).body)
        path = request.target.partition(b"?")[0]
        if path == b"/hold":
            return Deferred()
        if path == b"/sink" and body is not None:
            told: Deferred[Response] = Deferred()
            self.taken.append(Counting(body, told))
            return told
        self.whole.append(path)
        if body is not None:
            body.stopProducing()
        if path == b"/big":
            return Response(200, [], Giver([bytes(16384)] * 64, BIG).body)
        return Response(200, [], Giver([b"ok"], 2).body)

    @property
    def fooled(self) -> bool:
        """Whether it holds something for a whole request."""
        return bool(self.whole) or any(taker.finished for taker in self.taken)


class Found:
    """
    What came of a case.

    @ivar seen: in the words of L{Peer.seen}.
    @ivar fooled: an application was handed a message as if all were well.
    """

    def __init__(self, peer: Peer, seen: str, fooled: bool) -> None:
        self.peer, self.seen, self.fooled = peer, seen, fooled


def quiet(net: Net, clock: Clock) -> None:
    """Let everything that does not wait for time happen."""
    moved = True
    while moved:
        due = any(call.getTime() <= clock.seconds() for call in clock.getDelayedCalls())
        clock.advance(0)
        moved = net.step() or due


class Play:
    """
    What both roles share.

    @ivar most: bytes that each step carries.
    """

    def __init__(self, case: Case, engine: str, most: int) -> None:
        self.case = case
        self.clock = Clock()
        self.clock.advance(START)
        self.counted: list[str] = []
        self.context = Context(Wheel(self.clock), Limits(), Timeouts(), self.counted.append)
        self.codec = Http2(engine)
        self.net = Net(most)

    def join(self, client: Any, server: Any) -> None:
        """Connect both."""
        self.net.add(Link(client, server))
        self.quiet()

    def quiet(self) -> None:
        """See L{quiet}."""
        quiet(self.net, self.clock)

    def give(self, items: Sequence[Item]) -> None:
        """Send, one after the other."""
        for item in items:
            data = item(self.peer) if callable(item) else item
            if data and not self.peer.closed:
                self.peer.send(data)
            self.quiet()

    def rest(self) -> None:
        """Time passes in which a connection that is being left gets closed; nothing else may be waiting."""
        for _ in range(40):
            self.clock.advance(0.05)
            self.quiet()

    peer: Peer


class ServerPlay(Play):
    """The peer is a client."""

    def run(self) -> Found:
        case, site = self.case, Site()
        self.peer = peer = Peer(True, case.said)
        end = self.codec.server(site, self.context)
        first = PREFACE + settings(*case.said.items()) if case.preface is None else case.preface
        self.join(Wired(peer, first), end)
        self.give(case.send)
        seen = peer.seen(case.stream)
        fooled = site.fooled
        if not peer.closed and not seen.startswith("closed"):
            self.give([ping(PROBE)])
            if not peer.closed:
                assert PROBE in peer.pongs, "it does not answer a PING"
                if case.then and not peer.goaways:
                    self.give([req(NEXT, b"/", b"HEAD")])  # which needs no window
                    assert peer.seen(NEXT) == "answer 200", f"the next request: {peer.seen(NEXT)}"
        if peer.goaways and not peer.closed:
            self.rest()
        if peer.goaways:
            seen = peer.seen(case.stream)
        if case.look is not None:
            case.look(peer)
        end.abort()
        self.quiet()
        return Found(peer, seen, fooled)


class ClientPlay(Play):
    """The peer is a server."""

    def run(self) -> Found:
        case = self.case
        self.ready: list[Any] = []
        self.peer = peer = Peer(False, case.said)
        self.end: Any = self.codec.client(self.rose, self.context)
        self.waiting: dict[str, Any] = {}
        self.results: list[Any] = []
        self.takers: list[Taker] = []
        first = settings(*case.said.items()) if case.preface is None else case.preface
        self.join(self.end, Wired(peer, first))
        self.waiting = dict(case.ask or {"method": b"GET", "target": b"/"})
        if self.end.capacity:
            self.rose(self.end)
        self.give([b"", *case.send])
        self.take()
        seen = self.seen()
        fooled = any(taker.finished for taker in self.takers)
        if not peer.closed and not seen.startswith("closed"):
            self.give([ping(PROBE)])
            if not peer.closed:
                assert PROBE in peer.pongs, "it does not answer a PING"
                if case.then and not peer.goaways and self.end.capacity:
                    self.again()
        if peer.goaways and not peer.closed:
            self.rest()
        if peer.goaways and peer.goaways[-1][1]:
            seen = self.seen()
        if case.look is not None:
            case.look(peer)
        self.end.abort()
        self.quiet()
        return Found(peer, seen, fooled)

    def rose(self, connection: Any) -> None:
        """There is room for a request: the one that the case is about goes first."""
        if self.waiting:
            ask, self.waiting = self.waiting, {}
            size = ask.get("content")
            body = None
            if ask.get("open"):
                body = Giver(close=False).body
            elif size:
                body = Giver([bytes(10_000)] * (size // 10_000), size).body
            self.ask(Request(ask["method"], ask["target"], [], body, b"a.test"))

    def ask(self, request: Request) -> None:
        """Ask."""
        self.end.handle(request).addBoth(self.results.append)

    def take(self) -> None:
        """Read what came."""
        for result in self.results:
            if isinstance(result, Response):
                self.takers.append(Taker(result.body))
        self.quiet()

    def seen(self) -> str:
        """Of the request, once it has ended; else of the stream."""
        frames = self.peer.seen(1)
        if frames.startswith(("closed", "reset")) and not any(taker.finished for taker in self.takers):
            return frames
        if self.takers and self.takers[0].finished:
            return frames if frames.startswith("closed ") else f"answer {self.results[0].status}"
        return "refused" if self.results and frames == "open" and not self.going else frames

    @property
    def going(self) -> bool:
        """Whether the request has not failed."""
        return not any(isinstance(result, Failure) for result in self.results) and not any(
            taker.reason for taker in self.takers
        )

    def again(self) -> None:
        """Another request is answered."""
        before = set(self.peer.messages)
        self.results, self.takers = [], []
        self.ask(Request(b"GET", b"/again", [], None, b"a.test"))
        self.quiet()
        [stream] = set(self.peer.messages) - before
        self.give([res(stream)])
        self.take()
        assert [taker.finished for taker in self.takers] == [True], f"the next request: {self.results}"


def play(case: Case, engine: str, client: bool, most: int) -> Found:
    """Play it."""
    return (ClientPlay if client else ServerPlay)(case, engine, most).run()


def server_of(engine: str, service: Any, peer: Wired) -> tuple[Any, Callable[[], None]]:
    """A server that is connected to C{peer}, and what lets everything happen."""
    context, clock, net = made()
    end = Http2(engine).server(service, context)
    net.add(Link(peer, end))
    go = partial(quiet, net, clock)
    go()
    return end, go


def client_of(engine: str, peer: Wired) -> tuple[Any, Callable[[], None]]:
    """The same for a client."""
    context, clock, net = made()
    end = Http2(engine).client(lambda connection: None, context)
    net.add(Link(end, peer))
    go = partial(quiet, net, clock)
    go()
    return end, go


def made() -> tuple[Context, Clock, Net]:
    """What a connection is made with."""
    clock = Clock()
    clock.advance(START)
    return Context(Wheel(clock), Limits(), Timeouts()), clock, Net()
