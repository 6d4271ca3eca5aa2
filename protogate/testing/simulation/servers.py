"""
Simulated endpoints: what the gateway asks, well or in any of the ways in which such a thing is not well.

    Server("a", "http://10.0.0.1:80", Conduct(latency=Spread(0.03), slots=8))

Rules
- A server speaks the codec of its URL, the codec's own server; it tells who it is in C{x-server}.
- What becomes of a request is drawn when it begins to be served; how long that takes, too.
- A server that is at work on as many as it has slots lets others wait, in the order they came: so latency grows with
  load.  Work that nobody waits for any more goes on where C{notices} is false.
- What asks for C{health} is answered at once, by C{well}, as long as the server answers anything at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort
from twisted.internet.protocol import Factory
from zope.interface import implementer

from protogate.config import address
from protogate.context import Context
from protogate.errors import NEVER, UPSTREAM, Abort, Phase
from protogate.interfaces import IService, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver, Taker
from protogate.testing.reactor import MemoryReactor
from protogate.testing.simulation.waits import Spread, Wait

WHO: Final = b"x-server"
"""The field in which a server tells its name."""
USUAL: Final = Spread(0.02)
"""How long a server takes that is well."""


class Reach(Enum):
    """How far somebody gets who connects."""

    UP = "up"
    REFUSES = "refuses"
    """The process is gone: its connections are reset, new ones refused."""
    SILENT = "silent"
    """Nothing comes back, not even for a SYN."""
    MUTE = "mute"
    """It accepts connections and requests, and never answers."""
    LEAVES = "leaves"
    """It ends well: what it works on is answered, connections are closed, new ones refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """
    How a server behaves; the fractions are 0.0 to 1.0, of all requests.

    @ivar latency: from when a request is begun to its answer.
    @ivar slots: requests that are worked on at once; 0 = any number.
    @ivar errors: answered with C{status}.
    @ivar hangs: never answered.
    @ivar stalls: answered with a head and half of the content, and then nothing.
    @ivar breaks: not answered: the connection breaks.
    @ivar well: what health checks are told, whatever becomes of other requests.
    @ivar notices: whether work is given up that nobody waits for.
    @ivar size: bytes of an answer.
    @ivar fields: of an answer with content.
    """

    reach: Reach = Reach.UP
    latency: Wait = USUAL
    slots: int = 0
    errors: float = 0.0
    status: int = 503
    hangs: float = 0.0
    stalls: float = 0.0
    breaks: float = 0.0
    well: bool = True
    notices: bool = True
    size: int = 100
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """
    One endpoint.

    @ivar url: as in the configuration; the scheme says which protocol, unless C{protocol} names a codec.
    @ivar conduct: at first; the timeline changes it.
    @ivar weight: @ivar zone: for L{protogate.testing.simulation.config.gateway}.
    """

    name: str
    url: str
    conduct: Conduct = Conduct()
    weight: int = 100
    zone: str = ""
    protocol: str = ""


@dataclass(slots=True)
class Seen:
    """
    A request that reached a server.

    @ivar at: seconds since the story began.
    @ivar agent: whose it was: the C{User-Agent}.
    @ivar share: what the gateway gave this endpoint in that moment, 0.0 to 1.0; and C{others}, the most that it gave
        another one.
    @ivar since: when that share became what it is.
    @ivar check: it was a health check.
    @ivar copied: what C{x-protogate-copy} said: it is no client's.
    """

    at: float
    server: str
    agent: str
    target: str
    share: float = 1.0
    others: float = 1.0
    since: float = 0.0
    check: bool = False
    copied: str = ""


class Work:
    """A request at a server."""

    __slots__ = ("answer", "begun", "fate", "over", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.begun = self.over = False
        self.fate = ""
        self.answer: Deferred[Response] | None = None


@implementer(IService)
@dataclass
class Origin:
    """
    A L{Server} at work.

    @ivar pause: until when nothing moves: what a garbage collector does.
    @ivar busy: requests that take a slot.
    @ivar most: the most that did at once.
    """

    server: Server
    reactor: MemoryReactor
    context: Context
    dice: Random
    seen: Callable[[Origin, Request], Seen]
    health: str = "/health"
    conduct: Conduct = field(init=False)
    pause: float = 0.0
    busy: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        self.conduct = replace(self.server.conduct, reach=Reach.UP)
        self.answered = 0
        self._waiting: deque[Work] = deque()
        self._calls: dict[Work, IDelayedCall] = {}
        where = address.origin(self.server.url, scheme=self.server.url.partition("://")[0])
        self._key = (where.host, where.port)
        self._port: IListeningPort | None = None
        self._body = b"x" * 65536
        self._mark = self.server.name.encode("ascii")
        known = address.SCHEMES.get(where.scheme)
        self._door = Door(
            self, find(IStreamCodec, self.server.protocol or (where.scheme if known is None else known.codec))
        )
        self._listen()
        if self.server.conduct.reach is not Reach.UP:
            self.become(self.server.conduct)

    @property
    def address(self) -> str:
        """As the gateway spells it."""
        return address.spelled(*self._key)

    # -- the timeline

    def become(self, conduct: Conduct) -> None:
        """Behave like this from now on; what is under way ends as it was to."""
        before, self.conduct = self.conduct.reach, conduct
        reach = conduct.reach
        if reach is before:
            return
        (self.reactor.silent.add if reach is Reach.SILENT else self.reactor.silent.discard)(self._key)
        if reach in (Reach.REFUSES, Reach.LEAVES):
            if self._port is not None:
                self._port.stopListening()
                self._port = None
        elif self._port is None:
            self._listen()
        if reach is Reach.LEAVES:
            self._door.drain()
        elif reach is Reach.REFUSES or before is not Reach.UP:
            self._door.abort()

    def rest(self, seconds: float) -> None:
        """Stop for so long, and go on as if nothing had been."""
        self.pause = max(self.pause, self.context.wheel.now() + seconds)

    def rests(self) -> None:
        """Work no more: what is still worked on is what nobody waits for."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()

    def close(self) -> None:
        """The story is over."""
        self.rests()
        self.become(replace(self.conduct, reach=Reach.REFUSES))
        self._waiting.clear()

    # -- requests

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        seen = self.seen(self, request)
        if request.body is not None:
            Taker(request.body)
        conduct = self.conduct
        work = Work(request)
        work.answer = Deferred(lambda _: self._forsaken(work))
        seen.check = request.path == self.health
        if conduct.reach in (Reach.SILENT, Reach.MUTE):
            return work.answer
        if seen.check:
            work.fate = "health"
            self._soon(0.0, work)
        elif conduct.slots and self.busy >= conduct.slots:
            self._waiting.append(work)
        else:
            self._begin(work)
        return work.answer

    def _begin(self, work: Work) -> None:
        conduct, dice = self.conduct, self.dice
        work.begun = True
        self.busy += 1
        self.most = max(self.most, self.busy)
        draw = dice.random()
        for fate in ("hangs", "errors", "stalls", "breaks"):
            draw -= getattr(conduct, fate)
            if draw < 0:
                work.fate = fate
                break
        seconds = conduct.latency(dice)
        if work.fate != "hangs":
            self._soon(seconds, work)

    def _soon(self, seconds: float, work: Work) -> None:
        held = self.pause - self.context.wheel.now()
        self._calls[work] = self.reactor.callLater(seconds + max(held, 0.0), self._due, work)

    def _due(self, work: Work) -> None:
        del self._calls[work]
        if self.pause > self.context.wheel.now():
            self._soon(0.0, work)
            return
        answer, work.answer = work.answer, None
        if answer is not None and self.conduct.reach not in (Reach.SILENT, Reach.MUTE):
            if work.fate == "breaks":
                answer.errback(Abort("broken off by the story", UPSTREAM, 502, NEVER, phase=Phase.RESPONSE_HEAD))
            else:
                self.answered += 1
                answer.callback(self._answer(work))
        self._over(work)

    def _answer(self, work: Work) -> Response:
        fields = [(WHO, self._mark)]
        if work.fate == "health":
            return Response(200 if self.conduct.well else 503, fields)
        if work.fate == "errors":
            return Response(self.conduct.status, fields)
        size = self.conduct.size
        fields += self.conduct.fields
        if not size or work.request.method == b"HEAD":
            return Response(200, fields)
        if work.fate == "stalls":
            return Response(200, fields, Giver([self._body[: size // 2]] if size > 1 else [], size, close=False).body)
        return Response(200, fields, Giver([self._body[:size]], size).body)

    def _forsaken(self, work: Work) -> None:
        work.answer = None
        if not work.begun:
            if work in self._waiting:
                self._waiting.remove(work)
        elif self.conduct.notices or work.fate == "hangs":
            self._over(work)

    def _over(self, work: Work) -> None:
        if work.over or not work.begun:
            return
        work.over = True
        self.busy -= 1
        if self._waiting and (not self.conduct.slots or self.busy < self.conduct.slots):
            self._begin(self._waiting.popleft())

    # -- connections

    def _listen(self) -> None:
        host, port = self._key
        self._port = self.reactor.listenTCP(port, self._door, interface=host)


class Door(Factory):
    """Where a server's connections come from."""

    noisy = False

    def __init__(self, origin: Origin, codec: IStreamCodec) -> None:
        self._origin, self._codec = origin, codec
        self._connections: dict[Any, None] = {}

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Twisted."""
        made: Any = self._codec.server(self._origin, self._origin.context)
        self._connections[made] = None
        made.closed.addCallback(self._closed, made)
        return made

    def abort(self) -> None:
        """Break all off."""
        for each in list(self._connections):
            each.abort()

    def drain(self) -> None:
        """Have all end well."""
        for each in list(self._connections):
            each.drain()

    def _closed(self, result: None, made: Any) -> None:
        self._connections.pop(made, None)
        return result
