"""
Codecs wired up without sockets, for the contract suites.

    Pair    client codec ── memory ── server codec ─ App
    Cell    client codec ── memory ── server codec ─ Relay ─ Pool ─ client codec ── memory ── server codec ─ App

Every request that reaches an L{App} or a L{Relay} is watched: C{request.closed} must be called once, no more, no less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config.model import PoolSettings
from protogate.context import Context, Limits, Timeouts
from protogate.errors import CLIENT, Abort
from protogate.interfaces import IBody, IClientConnection, IConnection, IService, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.reactor import START
from protogate.testing.transport import ALL, Link, Net, Wire
from protogate.upstream.pool import Pool, Times
from protogate.wheel import Wheel

Answer = Callable[[Request], Response | Deferred[Response]]
AGES = 400.0
"""Seconds after which no clock of a codec can still be running."""


def ok(request: Request) -> Response:
    """204 for a request; its status for what is left of a malformed one."""
    if request.body is not None:
        request.body.stopProducing()
    return Response(request.malformed.status if request.malformed is not None else 204)


class Watched:
    """
    Requests, and how often each was closed.

    @ivar requests: as they came.
    @ivar closes: for each of them, what C{closed(reason)} was called with.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closes: list[list[Abort | None]] = []

    def watch(self, request: Request) -> None:
        """One more."""
        ends: list[Abort | None] = []
        self.requests.append(request)
        self.closes.append(ends)
        request.closed = ends.append

    def check(self) -> None:
        """All were closed exactly once."""
        for request, ends in zip(self.requests, self.closes, strict=True):
            assert len(ends) == 1, f"closed() of {request.method!r} {request.target!r} was called with {ends}"


@implementer(IService)
class App(Watched):
    """
    The origin.

    @ivar answer: what handle() does; each test sets its own.
    """

    def __init__(self, answer: Answer = ok) -> None:
        super().__init__()
        self.answer = answer

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        self.watch(request)
        return self.answer(request)


@implementer(IService)
class Relay(Watched):
    """
    The smallest gateway: asks a service, and answers for its failures.

    @ivar ends: the failures.
    """

    def __init__(self, service: IService) -> None:
        super().__init__()
        self.service = service
        self.ends: list[BaseException] = []

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        self.watch(request)
        answer = self.service.handle(request)
        if isinstance(answer, Deferred):
            answer.addErrback(self._failed)
        return answer

    def _failed(self, failure: Failure) -> Response | Failure:
        reason: Any = failure.value
        self.ends.append(reason)
        if failure.check(CancelledError) or reason.who == CLIENT:
            return failure
        return Response(reason.status, [(b"x-retry", b"%d" % reason.retry)])


class Tape(Wire):
    """A wire that remembers all that was ever written."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._pieces: list[bytes] = []

    @property
    def tape(self) -> bytes:
        """All of it."""
        return b"".join(self._pieces)

    def write(self, data: bytes) -> None:
        """Twisted."""
        self._pieces.append(bytes(data))
        super().write(data)


class Bench:
    """
    What Pair and Cell share.

    @ivar clock: C{task.Clock}.
    @ivar counted: protocol events counted by the codecs.
    @ivar client: the asking end, a L{IClientConnection}.
    @ivar server: the serving end.
    @ivar link: between them.
    @ivar rises: the arguments of every ready(connection) so far.
    @ivar on_ready: called inside ready(connection), or None.
    @ivar closed: the connections whose C{closed} fired.
    @ivar result: @ivar errors: what the last L{ask} came to.
    @ivar lacks: what one of the codecs cannot say.
    """

    client: Any
    server: Any
    link: Link

    def __init__(self, most: int = ALL, limits: Limits | None = None, timeouts: Timeouts | None = None) -> None:
        self.net = Net(most)
        self.clock = Clock()
        self.clock.advance(START)
        self.counted: list[str] = []
        self.context = Context(Wheel(self.clock), limits, timeouts, self.counted.append)
        self.app = App()
        self.result: list[Response] = []
        self.errors: list[Any] = []
        self.rises: list[IClientConnection] = []
        self.on_ready: Callable[[Any], None] | None = None
        self.closed: list[IConnection] = []
        self.lacks: Collection[str] = ()

    def length(self, size: int) -> int | None:
        """The length of a body that best does not say it: None, where that can be said."""
        return size if "length" in self.lacks else None

    def join(self, codec: IStreamCodec, service: IService) -> None:
        """A new client and server of one codec."""
        self.rises = []
        self.client = codec.client(self._rose, self.context)
        self.server = codec.server(service, self.context)
        self.link = self.net.add(Link(self.client, self.server, wire=Tape))
        for end in (self.client, self.server):
            self._watch(end)
        self.net.run()
        assert self.rises == [self.client], f"ready() of a new connection was called {len(self.rises)} times"

    def _watch(self, end: Any) -> None:
        # By name, not by a closure over self: no cycle for the garbage collector to find.
        end.closed.addCallback(self._gone, end, self.closed)

    @staticmethod
    def _gone(result: None, end: IConnection, closed: list[IConnection]) -> None:
        closed.append(end)
        return result

    def _rose(self, connection: IClientConnection) -> None:
        self.rises.append(connection)
        if self.on_ready is not None:
            self.on_ready(connection)

    def ask(
        self, method: bytes = b"GET", body: IBody | None = None, headers: Iterable[Field] = (), **named: Any
    ) -> Deferred[Response]:
        """Ask; C{result} or C{errors} will have what comes of it."""
        target = named.pop("target", b"/x?y=1")
        request = Request(method, target, headers, body, b"a.test", **named)
        self.result, self.errors = [], []
        self.answer = self.send(request)
        return self.answer

    def send(self, request: Request) -> Deferred[Response]:
        """The same for a Request."""
        answer: Any = self.client.handle(request)
        if not isinstance(answer, Deferred):
            self.result.append(answer)
            raise AssertionError("a client connection answers with a Deferred")
        answer.addCallbacks(self.result.append, self._error)
        return answer

    def _error(self, failure: Failure) -> None:
        self.errors.append(failure.value)

    def run(self, rounds: int | None = None, until: Callable[[], bool] | None = None) -> None:
        """Until all is quiet; the clock stands still."""
        self.net.run(rounds, until)

    def advance(self, seconds: float) -> None:
        """Let time pass: in small steps, as long as anybody waits for anything."""
        end = self.clock.seconds() + seconds
        self.run()
        while (left := end - self.clock.seconds()) > 1e-9:
            waited_for = self.clock.getDelayedCalls()
            self.clock.advance(min(left, 0.05 if left <= 2 else left / 8) if waited_for else left)
            self.run()

    def ends(self) -> Sequence[Any]:
        """Every connection now in use."""
        return [self.client, self.server]

    def idle(self) -> None:
        """Nothing of a finished exchange is left anywhere."""
        for end in self.ends():
            assert end.busy == 0, f"{end!r} still has {end.busy} requests under way"

    def finish(self) -> None:
        """Everything ends: what was handed over must be closed, and no deadline may be left."""
        for end in self.ends():
            end.abort()
        self.run()
        self.idle()
        self.app.check()
        for end in self.ends():
            assert end in self.closed, f"{end!r}.closed did not fire"
        assert len(self.closed) == len(set(map(id, self.closed))), "closed fires once"
        self.advance(AGES)
        left = self.clock.getDelayedCalls()
        assert not left, f"deadlines are left: {left}"


class Pair(Bench):
    """One codec against itself."""

    def __init__(
        self, codec: IStreamCodec, most: int = ALL, limits: Limits | None = None, timeouts: Timeouts | None = None
    ) -> None:
        super().__init__(most, limits, timeouts)
        self.codec = codec
        self.join(codec, self.app)

    @property
    def tapes(self) -> tuple[bytes, bytes]:
        """All that the client, and all that the server ever wrote."""
        (_, client), (_, server) = self.link.ends
        return client.tape, server.tape  # type: ignore[attr-defined]


class Cell(Bench):
    """
    One codec in front, one behind.

    @ivar upstream: each connection behind, as C{(client, link)}.
    """

    def __init__(
        self,
        down: IStreamCodec,
        up: IStreamCodec,
        most: int = ALL,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        settings: PoolSettings | None = None,
    ) -> None:
        super().__init__(most, limits, timeouts)
        self.down, self.up = down, up
        self.upstream: list[tuple[Any, Link]] = []
        self.pool = Pool(self, self.context, settings)
        self.relay = Relay(self.pool)
        self.join(down, self.relay)

    def connect(self, ready: Callable[[IClientConnection], None], times: Times) -> Deferred[None]:
        """What the pool asks for: one attempt."""
        times.connect = 0.001
        made: Deferred[None] = Deferred()

        def opened(connection: IClientConnection) -> None:
            ready(connection)
            if not made.called:
                made.callback(None)

        client: Any = self.up.client(opened, self.context)
        server: Any = self.up.server(self.app, self.context)
        link = Link(client, server)
        self.net.add(link)
        self.upstream.append((client, link))
        self._watch(client)
        self._watch(server)
        return made

    @property
    def origin(self) -> Any:
        """The serving end of the newest connection behind."""
        return self.upstream[-1][1].ends[1][0]

    def ends(self) -> Sequence[Any]:
        """Every connection."""
        behind = [end for _, link in self.upstream for end, _ in link.ends]
        return [self.client, self.server, *behind]

    def again(self) -> None:
        """The next request works, whatever came before."""
        if not self.client.capacity:
            self.client.abort()
            self.run()
            self.join(self.down, self.relay)
        self.app.answer = _fine
        self.ask()
        self.run()
        assert [response.status for response in self.result] == [200], self.errors
        taker = Taker(self.result[0].body)
        self.run()
        assert (taker.data, taker.finished) == (b"fine", True)
        self.idle()

    def finish(self) -> None:
        """As for a Bench; the pool is drained."""
        self.pool.drain()
        super().finish()
        self.relay.check()


def _fine(request: Request) -> Response:
    return Response(200, [], Giver([b"fine"], 4).body)


class Reader(Taker):
    """Takes a whole body, then fires a Deferred with all of it."""

    def __init__(self, body: IBody, whole: Deferred[bytes]) -> None:
        self._whole = whole
        super().__init__(body)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """Complete."""
        super().finish(trailers)
        self._whole.callback(self.data)


def read_then(answer: Callable[[Request, bytes], Response]) -> Answer:
    """An C{App.answer} that reads the whole request first; then C{answer(request, data)}."""

    def handle(request: Request) -> Response | Deferred[Response]:
        if request.body is None:
            return answer(request, b"")
        whole: Deferred[bytes] = Deferred()
        later = whole.addCallback(lambda data: answer(request, data))
        Reader(request.body, whole)
        return later

    return handle
