"""
A reactor without sockets: its clock is a L{task.Clock}, its connections are memory links.

Whatever runs on a reactor handed to it runs on this one unchanged: Twisted's endpoints, and the whole gateway.

Rules
- Nothing happens by itself.  L{MemoryReactor.run} carries bytes until all is quiet, L{MemoryReactor.advance} moves the
  clock, in small steps.
- A connection is made, or refused, in the turn after connectTCP(); one to an address in C{silent} is neither.
- callInThread() runs its function in the next turn, on the one thread there is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectionRefusedError,  # noqa: A004 - Twisted's
    DNSLookupError,
    NotConnectingError,
    TimeoutError,  # noqa: A004 - Twisted's
    UserError,
)
from twisted.internet.interfaces import (
    IConnector,
    IDelayedCall,
    IListeningPort,
    IProtocolFactory,
    IReactorFromThreads,
    IReactorTCP,
    IReactorTime,
    IReactorUNIX,
)
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.testing.transport import ALL, HIGH, ROUNDS, Address, Link, Net, Wire

START: Final = 1000.0
"""Seconds on a clock that was just made: as on a machine's own, 0.0 lies in the past."""
STEP: Final = 0.05
"""Seconds by which the clock moves at once: about what a wheel turns."""
EPHEMERAL: Final = 49152
"""The first port that is given away (RFC 6335, 6)."""


def _address(host: str, port: int) -> IPv4Address | IPv6Address:
    return (IPv6Address if ":" in host else IPv4Address)("TCP", host, port)


@implementer(IListeningPort)
class Port:
    """One listening address."""

    def __init__(self, reactor: MemoryReactor, key: Key, address: Address, factory: IProtocolFactory) -> None:
        self.reactor, self.key, self.address, self.factory = reactor, key, address, factory
        self._paused = False
        self._waiting: list[Callable[[], None]] = []

    def stopReading(self) -> None:
        """Twisted: who connects from now on waits."""
        self._paused = True

    def startReading(self) -> None:
        """Twisted: go on with them."""
        self._paused = False
        waiting, self._waiting = self._waiting, []
        for arrive in waiting:
            self.reactor.net.turn(arrive)

    def queued(self, arrive: Callable[[], None]) -> bool:
        """Whether C{arrive()} will be called when this port goes on."""
        if self._paused:
            self._waiting.append(arrive)
        return self._paused

    def startListening(self) -> None:
        """Twisted."""
        if self.key in self.reactor.ports:
            raise CannotListenError(self.key[0], self.key[1], OSError(98, "Address already in use"))
        self.reactor.ports[self.key] = self
        self.factory.doStart()

    def stopListening(self) -> Deferred[None]:
        """Twisted.  Connections go on."""
        if self.reactor.ports.get(self.key) is self:
            del self.reactor.ports[self.key]
            self.factory.doStop()
        return succeed(None)

    def getHost(self) -> Address:
        """Twisted."""
        return self.address


@implementer(IConnector)
class Dial:
    """One attempt to connect, and the connection it led to."""

    def __init__(
        self,
        reactor: MemoryReactor,
        key: Key,
        factory: ClientFactory[Any],
        timeout: float | None,
        here: Address,
        there: Address,
    ) -> None:
        self.reactor, self.key, self.factory, self.timeout = reactor, key, factory, timeout
        self.here, self.there = here, there
        self.state = "disconnected"
        self._wire: Wire | None = None
        self._late: IDelayedCall | None = None
        self._started = False

    def connect(self) -> None:
        """Twisted: try, or try again."""
        if self.state != "disconnected":
            raise RuntimeError("can't connect in this state")
        self.state = "connecting"
        if not self._started:
            self._started = True
            self.factory.doStart()
        self.factory.startedConnecting(self)
        if self.timeout is not None:
            self._late = self.reactor.callLater(self.timeout, self._fail, TimeoutError())
        if self.key not in self.reactor.silent:
            self.reactor.net.turn(self._arrive)

    def stopConnecting(self) -> None:
        """Twisted."""
        if self.state != "connecting":
            raise NotConnectingError("we're not trying to connect")
        self._fail(UserError())

    def disconnect(self) -> None:
        """Twisted."""
        if self.state == "connecting":
            self.stopConnecting()
        elif self._wire is not None:
            self._wire.loseConnection()

    def getDestination(self) -> Address:
        """Twisted."""
        return self.there

    def _arrive(self) -> None:
        if self.state != "connecting":
            return
        port = self.reactor.find(self.key)
        if port is None:
            self._fail(ConnectionRefusedError())
            return
        if port.queued(self._arrive):
            return
        self._clear()
        self.state = "connected"
        ours = self.factory.buildProtocol(self.there)
        theirs = port.factory.buildProtocol(self.here)
        if ours is None:
            self.state = "disconnected"
            return
        if theirs is None:
            theirs = _Refusing()  # accepted by the host, then closed: what Twisted's own ports do
        link = self.reactor.join(ours, theirs, self.here, self.there)
        self._wire = link.ends[0][1]
        self._wire.on_lost = self._lost

    def _fail(self, why: Exception) -> None:
        if self.state == "connecting":
            self._clear()
            self.state = "disconnected"
            self.factory.clientConnectionFailed(self, Failure(why))
            self._end()

    def _lost(self, failure: Failure) -> None:
        self.state, self._wire = "disconnected", None
        self.factory.clientConnectionLost(self, failure)
        self._end()

    def _end(self) -> None:
        if self.state == "disconnected" and self._started:
            self._started = False
            self.factory.doStop()

    def _clear(self) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = None


class _Refusing(Protocol):
    """Stands for a connection that its factory did not want."""

    def connectionMade(self) -> None:
        self.transport.loseConnection()  # type: ignore[union-attr]


class _Threads:
    """A thread pool with one thread: ours."""

    def __init__(self, reactor: MemoryReactor) -> None:
        self._reactor = reactor

    def callInThread(self, function: Callable[..., object], *args: object, **named: object) -> None:
        self._reactor.callInThread(function, *args, **named)

    def callInThreadWithCallback(
        self, result: Callable[[bool, Any], object] | None, function: Callable[..., Any], *args: object, **named: object
    ) -> None:
        def work() -> None:
            try:
                value, well = function(*args, **named), True
            except Exception:
                value, well = Failure(), False
            if result is not None:
                result(well, value)

        self._reactor.callInThread(work)


Key = tuple[str, int]


@implementer(IReactorTime, IReactorTCP, IReactorUNIX, IReactorFromThreads)
class MemoryReactor:
    """
    @ivar clock: moves when L{advance} says so.
    @ivar net: the links; C{net.most} is how many bytes each step carries each way.
    @ivar links: every link ever made, in order: C{links[n].ends[0]} dialed, C{ends[1]} listens.
    @ivar silent: C{(host, port)} where nobody answers, not even with a refusal; add to it.
    @ivar names: addresses of host names, for resolvers; add to it.
    """

    def __init__(self, most: int = ALL, high: int = HIGH) -> None:
        self.clock = Clock()
        self.clock.advance(START)
        self.net = Net(most)
        self.high = high
        self.links: list[Link] = []
        self.ports: dict[Key, Port] = {}
        self.silent: set[Key] = set()
        self.names: dict[str, str] = {"localhost": "127.0.0.1"}
        self._next = count(EPHEMERAL)

    # -- for tests

    def run(self, rounds: int | None = None, until: Callable[[], bool] | None = None) -> None:
        """
        Carry bytes, and call what is due, until nothing moves, C{until()} is true, or C{rounds} times.

        Raises C{AssertionError} when no C{rounds} were given and it never comes to rest.
        """
        for _ in range(ROUNDS if rounds is None else rounds):
            before = len(self.clock.calls)
            self.clock.advance(0)
            moved = self.net.step() or len(self.clock.calls) != before
            if not moved or (until is not None and until()):
                return
        if rounds is None:
            raise AssertionError(f"the reactor is still busy after {ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Move the clock, L{STEP} by step, and all that this sets off."""
        end = self.clock.seconds() + seconds
        self.run()
        while (left := end - self.clock.seconds()) > 1e-9:
            self.clock.advance(min(STEP, left))
            self.run()

    def join(self, a: Any, b: Any, here: Address, there: Address) -> Link:
        """Connect two protocols: C{a} at address C{here} to C{b} at C{there}."""
        link = self.net.add(Link(a, b, client=here, server=there, high=self.high))
        self.links.append(link)
        return link

    def find(self, key: Key) -> Port | None:
        """Who listens there, perhaps on any address."""
        host, port = key
        anywhere = ("::", "") if ":" in host else ("0.0.0.0", "")
        keys = [key, *((each, port) for each in anywhere if port)]
        return next((self.ports[each] for each in keys if each in self.ports), None)

    # -- IReactorTCP, IReactorUNIX

    def listenTCP(self, port: int, factory: IProtocolFactory, backlog: int = 50, interface: str = "") -> IListeningPort:
        """Twisted.  Port 0 is replaced by a free one."""
        port = port or next(self._next)
        made = Port(self, (interface, port), _address(interface or "0.0.0.0", port), factory)
        made.startListening()
        return made

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: ClientFactory[Any],
        timeout: float | None = 30,
        bindAddress: tuple[str, int] | None = None,  # noqa: N803
    ) -> IConnector:
        """Twisted.  A name must be known to L{names}."""
        host = self.names.get(host, host)
        here, own = bindAddress or ("", 0)
        here = here or ("::1" if ":" in host else "127.0.0.1")
        dial = Dial(self, (host, port), factory, timeout, _address(here, own or next(self._next)), _address(host, port))
        dial.connect()
        return dial

    def listenUNIX(
        self,
        address: str,
        factory: IProtocolFactory,
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: bool = False,  # noqa: N803
    ) -> IListeningPort:
        """Twisted.  No file is made."""
        made = Port(self, (address, 0), UNIXAddress(address), factory)
        made.startListening()
        return made

    def connectUNIX(
        self,
        address: str,
        factory: ClientFactory[Any],
        timeout: float | None = 30,
        checkPID: bool = False,  # noqa: N803
    ) -> IConnector:
        """Twisted."""
        dial = Dial(self, (address, 0), factory, timeout, UNIXAddress(None), UNIXAddress(address))
        dial.connect()
        return dial

    # -- IReactorTime

    def seconds(self) -> float:
        """Twisted."""
        return float(self.clock.seconds())

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> IDelayedCall:  # noqa: A002 - Twisted's name
        """Twisted."""
        return self.clock.callLater(delay, callable, *args, **kwargs)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Twisted: what still waits for the clock."""
        return self.clock.getDelayedCalls()

    # -- IReactorFromThreads, and the pool

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        """Twisted."""
        self.net.turn(lambda: callable(*args, **kwargs))

    def callInThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        """Twisted."""
        self.net.turn(lambda: callable(*args, **kwargs))

    def getThreadPool(self) -> _Threads:
        """Twisted."""
        return _Threads(self)

    # -- names

    def resolve(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:
        """Twisted."""
        try:
            return succeed(str(ipaddress.ip_address(self.names.get(name, name))))
        except ValueError:
            return fail(DNSLookupError(f"MemoryReactor.names does not know {name!r}"))
