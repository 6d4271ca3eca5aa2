"""
Simulated clients: who asks the gateway, how often, how patiently, and what they do when it does not go well.

    Clients(rate=30, patience=Always(2.0), retries=1)

Rules
- Arrivals are a Poisson process: what one client does is no matter to the others, and nobody waits for answers before
  the next one asks.  So a gateway that gets slow gets no fewer requests.
- They speak a codec, the codec's own client, on as many connections as are needed at once.
- Who waited for C{patience} leaves.  Who has C{retries} left asks again, after having left or having been answered with
  C{status} 5xx, which makes another L{Ask}.
- Each ask has a C{User-Agent} of its own, by which records and what servers saw are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.context import Context
from protogate.errors import Abort
from protogate.interfaces import ISink, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver
from protogate.testing.gateway import Once
from protogate.testing.reactor import MemoryReactor
from protogate.testing.simulation.servers import WHO
from protogate.testing.simulation.waits import Always, Wait

SOON: Final = Always(0.1)
"""Seconds after which a client asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """
    Clients that are alike.

    @ivar rate: requests per second, on average.
    @ivar name: of theirs; begins their C{User-Agent}.
    @ivar protocol: name of a codec.
    @ivar listener: that they connect to; empty = the one named like C{protocol}.
    @ivar begin: @ivar end: seconds between which they come; None = till the end of the story.
    @ivar patience: how long each waits for the end of an answer; None = as long as it takes.
    @ivar retries: how often each asks again.
    @ivar backoff: before that.
    @ivar targets: any of these is asked for.
    @ivar size: bytes of content; 0 = none.
    @ivar addresses: they have so many.
    """

    rate: float
    name: str = "client"
    protocol: str = "http1"
    listener: str = ""
    begin: float = 0.0
    end: float | None = None
    patience: Wait | None = None
    retries: int = 0
    backoff: Wait = SOON
    method: str = "GET"
    targets: Sequence[str] = ("/",)
    headers: tuple[Field, ...] = ()
    size: int = 0
    addresses: int = 1


@dataclass(slots=True)
class Ask:
    """
    One request of a client, and what came of it.

    @ivar began: @ivar ended: seconds since the story began; C{ended} is negative while it is under way.
    @ivar first: agent of the ask that this one is a retry of, at last; its own when it is none.
    @ivar turn: 0, or which retry it is.
    @ivar status: of the answer; 0 = there was none.
    @ivar whole: all of the answer came.
    @ivar left: the client was out of patience.
    @ivar error: why there is no answer, or no whole one; in words, for people.
    @ivar server: who answered, by C{x-server}; empty = the gateway.
    """

    agent: str
    target: str
    began: float
    first: str
    turn: int = 0
    ended: float = -1.0
    status: int = 0
    whole: bool = False
    left: bool = False
    error: str = ""
    server: str = ""
    fields: Sequence[Field] = field(default=(), repr=False)

    @property
    def latency(self) -> float:
        """Seconds."""
        return self.ended - self.began

    @property
    def well(self) -> bool:
        """Whether the client got what it wanted."""
        return self.whole and 200 <= self.status < 400


class Crowd:
    """L{Clients} at work."""

    def __init__(
        self,
        clients: Clients,
        reactor: MemoryReactor,
        context: Context,
        dice: Random,
        address: tuple[str, int],
        asks: list[Ask],
        end: float,
        origin: float,
    ) -> None:
        """
        @param address: of the listener.
        @param asks: where all are put.
        @param end: of the story, in seconds.
        @param origin: when it began, on the reactor's clock.
        """
        self.clients, self.reactor, self.dice, self.asks = clients, reactor, dice, asks
        self._zero = origin
        self._end = end if clients.end is None else min(clients.end, end)
        self.soon = 0  # who will ask again
        self._number = 0
        self.lines = [
            Lines(clients.protocol, reactor, context, address, f"192.0.2.{number + 1}")
            for number in range(clients.addresses)
        ]
        self._next = clients.begin
        reactor.callLater(clients.begin, self._wait)

    def now(self) -> float:
        """Seconds since the story began."""
        return self.reactor.seconds() - self._zero

    def _wait(self) -> None:
        if self.clients.rate > 0:
            self._next += self.dice.expovariate(self.clients.rate)
            # Also where the loop is late they come when they come.
            self.reactor.callLater(max(self._next - self.now(), 0.0), self._arrive)

    def _arrive(self) -> None:
        if self._next >= self._end:
            return
        self._number += 1
        agent = f"{self.clients.name}-{self._number}"
        targets = self.clients.targets
        target = targets[0] if len(targets) == 1 else self.dice.choice(targets)
        self.ask(Ask(agent, target, self._next, agent))
        self._wait()

    def ask(self, ask: Ask) -> None:
        """One goes out."""
        clients = self.clients
        self.asks.append(ask)
        fields = [(b"user-agent", ask.agent.encode("ascii")), *clients.headers]
        content = Giver([b"q" * clients.size], clients.size).body if clients.size else None
        request = Request(clients.method.encode("ascii"), ask.target.encode("ascii"), fields, content, b"a.test")
        lines = self.lines[0] if len(self.lines) == 1 else self.dice.choice(self.lines)
        asking = Asking(self, ask)
        if clients.patience is not None:
            asking.late = self.reactor.callLater(clients.patience(self.dice), asking.leave)
        asking.begin(lines.ask(request))

    def over(self, ask: Ask) -> None:
        """One has ended."""
        if ask.ended >= 0:
            raise AssertionError(f"{ask.agent} ended twice")
        ask.ended = self.now()
        clients = self.clients
        if (ask.left or not ask.whole or ask.status >= 500) and ask.turn < clients.retries:
            self.soon += 1
            self.reactor.callLater(clients.backoff(self.dice), self._again, ask)

    def _again(self, before: Ask) -> None:
        self.soon -= 1
        turn = before.turn + 1
        self.ask(Ask(f"{before.first}.{turn}", before.target, self.now(), before.first, turn))

    def close(self) -> None:
        """The story is over."""
        for lines in self.lines:
            lines.close()


@implementer(ISink)
class Asking:
    """An L{Ask} that is under way; the sink of its answer."""

    __slots__ = ("_answer", "_body", "_over", "ask", "crowd", "late")

    def __init__(self, crowd: Crowd, ask: Ask) -> None:
        self.crowd, self.ask = crowd, ask
        self.late: IDelayedCall | None = None
        self._answer: Deferred[Response] | None = None
        self._body: Any = None
        self._over = False

    def begin(self, answer: Deferred[Response]) -> None:
        """It is on its way."""
        self._answer = answer
        answer.addCallbacks(self._head, self._failed)

    def leave(self) -> None:
        """Nobody waits any more."""
        self.late = None
        self.ask.left = True
        answer, self._answer = self._answer, None
        body, self._body = self._body, None
        if answer is not None:
            answer.cancel()
        elif body is not None:
            body.stopProducing()
        self._end("left")

    def _head(self, response: Response) -> None:
        self._answer = None
        ask = self.ask
        ask.status, ask.fields = response.status, list(response.headers)
        ask.server = (response.headers.get(WHO) or b"").decode("latin-1")
        if response.body is None:
            self.finish()
        else:
            self._body = response.body
            response.body.attach(self)

    def _failed(self, failure: Failure) -> None:
        self._answer = None
        self._end("left" if failure.check(CancelledError) else str(failure.value))

    def _end(self, error: str) -> None:
        if self._over:
            return
        self._over = True
        if self.late is not None:
            self.late.cancel()
            self.late = None
        self.ask.error = error
        self.crowd.over(self.ask)

    # -- ISink

    def write(self, data: bytes) -> None:
        """Some bytes."""

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """Complete."""
        self._body = None
        self.ask.whole = True
        self._end("")

    def abort(self, reason: Abort) -> None:
        """Never complete."""
        self._body = None
        self._end(str(reason))


class Lines:
    """The connections of clients with one address."""

    def __init__(
        self, codec: str, reactor: MemoryReactor, context: Context, address: tuple[str, int], host: str
    ) -> None:
        self._codec: IStreamCodec = find(IStreamCodec, codec)
        self._reactor, self._context, self._address, self._host = reactor, context, address, host
        self._free: dict[Any, None] = {}
        self._all: dict[Any, None] = {}
        self._dialing = 0
        self._each = 1
        self._waiting: dict[Deferred[Any], None] = {}

    def ask(self, request: Request) -> Deferred[Response]:
        """On a connection that has room for it, or on a new one."""
        free = self._free
        while free:
            connection = free.popitem()[0]
            if connection.capacity > 0:
                answer: Deferred[Response] = connection.handle(request)
                if connection.capacity > 0:
                    free[connection] = None
                return answer
        waits: Deferred[Any] = Deferred(self._forget)
        waits.addCallback(lambda connection: connection.handle(request))
        self._waiting[waits] = None
        if len(self._waiting) > self._dialing * self._each:
            self._dial()
        return waits

    def close(self) -> None:
        """Break all off."""
        for connection in list(self._all):
            connection.abort()

    def _dial(self) -> None:
        self._dialing += 1
        fresh = [True]

        def ready(connection: Any) -> None:
            if fresh:
                fresh.clear()
                self._dialing -= 1
                self._each = max(connection.capacity, 1)
            self._ready(connection)

        made: Any = self._codec.client(ready, self._context)
        self._all[made] = None
        made.closed.addCallback(self._closed, made, fresh)
        host, port = self._address
        self._reactor.connectTCP(host, port, Line(made, self._refused), bindAddress=(self._host, 0))

    def _ready(self, connection: Any) -> None:
        waiting = self._waiting
        while waiting and connection.capacity > 0:
            waits = next(iter(waiting))
            del waiting[waits]
            waits.callback(connection)
        if connection.capacity > 0:
            self._free[connection] = None

    def _closed(self, result: None, made: Any, fresh: list[bool]) -> None:
        self._all.pop(made, None)
        self._free.pop(made, None)
        if fresh:  # it never was ready
            self._refused(Failure(ConnectionError("the gateway closed the connection")))
        return result

    def _refused(self, failure: Failure) -> None:
        self._dialing -= 1
        if self._waiting:
            waits = next(iter(self._waiting))
            del self._waiting[waits]
            waits.errback(failure)

    def _forget(self, waits: Deferred[Any]) -> None:
        self._waiting.pop(waits, None)


class Line(Once):
    """Connects a client, or says that it could not."""

    def __init__(self, protocol: Any, refused: Callable[[Failure], None]) -> None:
        super().__init__(protocol)
        self._refused = refused

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        """Twisted."""
        self._refused(reason)
