"""
From an endpoint's name to a connection that speaks its protocol: DNS, TCP, TLS, then the codec, each with its own
clock.

Rules
- Nothing was sent yet, so every failure says C{retry=ALWAYS}.
- The addresses of a name are tried in turn, the next one after a failure; each has the whole C{connect} clock.  IPv4
  comes first, and each attempt begins with another address, so that a name with several is shared out.
- What a connection begins with (C{times.preface}) is sent as soon as TCP is up, before TLS.
- With TLS the codec must be what was agreed on, where its protocol wants that (L{INegotiated}).
- Either ready(connection) is called or the Deferred fails, never both: also when the connection dies before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IConnector,
    IHalfCloseableProtocol,
    IProtocol,
    IReactorTCP,
    ITCPTransport,
)
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides

from protogate.config.address import spelled
from protogate.context import Context
from protogate.errors import ALWAYS, UPSTREAM, Abort, Phase
from protogate.interfaces import IClientConnection, INegotiated, IStreamCodec
from protogate.tls import layer
from protogate.tls.client import Client
from protogate.tls.layer import Bare, Layer, Resumption, Trouble
from protogate.tls.session import Session
from protogate.upstream.pool import Times
from protogate.upstream.refusal import TERMINATED, late, not_agreed, refusal, unresolved, unsecured
from protogate.upstream.resolver import Resolver, literal

MOST_ADDRESSES: Final = 4
"""Of one name that one attempt tries."""


class State(Enum):
    """Where an attempt stands."""

    RESOLVING = "resolving"
    CONNECTING = "connecting"
    SECURING = "securing"
    """TCP is up, TLS is not."""
    GREETING = "greeting"
    """TCP is up, and TLS where there is any; the codec is not ready."""
    READY = "ready"
    OVER = "over"
    """Failed or given up."""


class Trust:
    """
    How one upstream is secured; each new connection asks for it.

    @ivar client: None while none of its endpoints has TLS.
    """

    __slots__ = ("client",)

    def __init__(self, client: Client | None = None) -> None:
        self.client = client


class Connector:
    """
    Makes connections to one endpoint.

    @ivar host: a name or an address literal (IPv6 without brackets).
    @ivar trust: for TLS; None = without.
    @ivar identity: the name of the endpoint's that TLS verifies, unless the upstream has one for all; empty = the host.
    """

    def __init__(
        self,
        reactor: IReactorTCP,
        resolver: Resolver,
        codec: IStreamCodec,
        context: Context,
        host: str,
        port: int,
        trust: Trust | None = None,
        identity: str = "",
    ) -> None:
        self.reactor, self.resolver, self.codec, self.context = reactor, resolver, codec, context
        self.host, self.port, self.trust, self.identity = host, port, trust, identity or host
        self.name = spelled(host, port)
        self.resumption = Resumption()
        self._turn = 0

    def connect(self, ready: Callable[[IClientConnection], None], times: Times) -> Deferred[None]:
        """See L{protogate.upstream.pool.Connect}; the Deferred fires with None when the connection is ready."""
        return Attempt(self, ready, times).start()

    def order(self, addresses: Sequence[str]) -> list[str]:
        """In which order this attempt tries them."""
        four = [address for address in addresses if ":" not in address]
        if four:
            at = self._turn % len(four)
            four = four[at:] + four[:at]
            self._turn += 1
        return [*four, *(address for address in addresses if ":" in address)][:MOST_ADDRESSES]


class Attempt:
    """One attempt, from the name to the first ready()."""

    def __init__(self, connector: Connector, ready: Callable[[IClientConnection], None], times: Times) -> None:
        self.connector, self.times = connector, times
        self._forward = ready
        self._state = State.RESOLVING
        self._done: Deferred[None] = Deferred(self._cancelled)
        self._query: Deferred[Sequence[str]] | None = None
        self._left: list[str] = []
        self._dial: Dial | None = None
        self._layer: Layer | None = None
        self._connection: IClientConnection | None = None
        self._began = connector.context.wheel.now()
        self._clock = connector.context.wheel.timer(self._late)

    def start(self) -> Deferred[None]:
        """Begin; the Deferred is what Connector.connect() returns."""
        connector = self.connector
        if literal(connector.host):
            self._resolved((connector.host,))
            return self._done
        found = connector.resolver.addresses(connector.host)
        if isinstance(found, Deferred):
            self._arm(connector.context.timeouts.dns)
            self._query = found
            found.addCallbacks(self._resolved, self._unresolved)
        else:
            self._resolved(found)
        return self._done

    def ready(self, connection: IClientConnection) -> None:
        """What the codec calls each time there is capacity."""
        if self._state is State.READY:
            self._forward(connection)
        elif self._state is not State.OVER:
            self._arrived(connection)

    # -- DNS

    def _resolved(self, addresses: Sequence[str]) -> None:
        self._query = None
        if self._state is State.RESOLVING:
            self.times.dns = self._lap()
            self._state = State.CONNECTING
            self._left = self.connector.order(addresses)
            self._next()

    def _unresolved(self, failure: Failure) -> None:
        self._query = None
        if self._state is State.RESOLVING:
            self.times.dns = self._lap()
            reason = failure.value
            if not isinstance(reason, Abort):
                reason = unresolved(self.connector.host, repr(reason))
            self._fail(reason)

    # -- TCP

    def _next(self) -> None:
        """Dial the next address."""
        connector, address = self.connector, self._left.pop(0)
        self._arm(connector.context.timeouts.connect)
        dial = self._dial = Dial(self, address)
        # Our wheel watches the time, not a timer of the reactor: hence None, which Twisted takes for 'no timeout'.
        made: Any = connector.reactor.connectTCP(address, connector.port, dial, timeout=None)  # type: ignore[arg-type]
        dial.handle = made
        if dial is not self._dial and self._state is State.OVER:
            dial.give_up()

    def dialed(self, dial: Dial) -> IProtocol | None:
        """TCP is up: make the protocol, unless it came too late."""
        if dial is not self._dial or self._state is not State.CONNECTING:
            return None
        if self.connector.trust is None:
            return Hello(self) if self.times.preface else self._greet()
        self.times.connect = self._lap()
        self._state = State.SECURING
        self._arm(self.connector.context.timeouts.tls)
        return Hello(self)

    def _greet(self) -> IProtocol:
        """Everything below the codec is up."""
        self._state = State.GREETING
        self._arm(self.connector.context.timeouts.connect)
        protocol = self.connector.codec.client(self.ready, self.connector.context)
        connection: Any = protocol
        self._connection = connection
        connection.closed.addCallback(self._closed)
        return protocol

    def refused(self, dial: Dial, problem: BaseException | None) -> None:
        """TCP failed: on to the next address."""
        if dial is self._dial and self._state is State.CONNECTING:
            self._dial = None
            self.connector.context.count("connect_failed")
            self._missed(refusal(problem, self.connector.name, self.connector.host, dial.address))

    def _missed(self, reason: Abort) -> None:
        connector = self.connector
        connector.resolver.doubt(connector.host)
        if self._left:
            self._next()
        else:
            self.times.connect = self._lap()
            self._fail(reason)

    def begin(self, hello: Hello) -> None:
        """TCP is up, and the codec is not what comes first."""
        transport: Any = hello.transport
        if self.times.preface:
            transport.write(self.times.preface)
        if self.connector.trust is not None:
            self._secure(hello)
        else:
            hello.pass_to(self._greet())

    # -- TLS, layer.Starter

    def _secure(self, hello: Hello) -> None:
        connector = self.connector
        client = None if connector.trust is None else connector.trust.client
        if self._state is not State.SECURING or client is None:
            hello.drop()
            return
        self._dial = None
        self._layer = layer.ask(
            hello, client, client.name or connector.identity, connector.resumption, self, connector.context.wheel
        )

    def secured(self, transport: Any, session: Session) -> IProtocol | None:
        """L{layer.Starter}."""
        connector = self.connector
        self._layer = None
        if self._state is not State.SECURING:
            return None
        self.times.tls = self._lap()
        connector.context.count("tls_handshakes")
        if session.resumed:
            connector.context.count("tls_resumed")
        codec = connector.codec
        if session.alpn is None and INegotiated.providedBy(codec):
            connector.context.count("tls_not_agreed")
            self._fail(not_agreed(connector.name, codec.name))
            return None
        return self._greet()

    def begun(self) -> None:
        """L{layer.Starter}."""

    def unsecured(self, trouble: Trouble) -> None:
        """L{layer.Starter}."""
        self._layer = None
        if self._state is State.SECURING:
            self.times.tls = self._lap()
            self.connector.context.count("tls_failed")
            self._fail(unsecured(self.connector.name, trouble))

    # -- the codec

    def _arrived(self, connection: IClientConnection) -> None:
        self._state = State.READY
        self._connection = self._dial = None
        self._clock.end()
        self._greeted()
        transport = getattr(connection, "transport", None)
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
        self._forward(connection)
        self._done.callback(None)

    def _closed(self, result: None) -> None:
        if self._state is State.GREETING:
            self._greeted()
            why = getattr(self._connection, "why", None)  # an Abort, of codecs that know
            name, error = self.connector.name, TERMINATED
            text = f"{name} closed the connection before it could be used"
            if isinstance(why, Abort):
                text, error = f"{name} cannot be used: {why.reason}", why.error or error
            self._fail(
                Abort(
                    text,
                    UPSTREAM,
                    502,
                    ALWAYS,
                    error=error,
                    phase=Phase.CONNECT,
                    detail="the upstream closed the connection",
                )
            )
        return result

    # -- clocks and ends

    def _greeted(self) -> None:
        """What the codec took belongs to connecting, as TCP's part does."""
        self.times.connect += self._lap()

    def _arm(self, seconds: float) -> None:
        if seconds:
            self._clock.set(seconds)
        else:
            self._clock.clear()

    def _lap(self) -> float:
        now = self.connector.context.wheel.now()
        spent, self._began = now - self._began, now
        return spent

    def _late(self) -> None:
        timeouts = self.connector.context.timeouts
        if self._state is State.RESOLVING:
            self.times.dns = self._lap()
            self._fail(self._timeout(Phase.DNS, timeouts.dns))
        elif self._state is State.CONNECTING:
            dial, self._dial = self._dial, None
            if dial is not None:
                dial.give_up()
            self._missed(self._timeout(Phase.CONNECT, timeouts.connect))
        elif self._state is State.SECURING:
            self.times.tls = self._lap()
            self._fail(self._timeout(Phase.TLS, timeouts.tls))
        else:
            self._greeted()
            self._fail(self._timeout(Phase.CONNECT, timeouts.connect))

    def _timeout(self, phase: Phase, seconds: float) -> Abort:
        self.connector.context.count(f"{phase}_timeout")
        return late(self.connector.name, phase, UPSTREAM, seconds)

    def _fail(self, reason: Abort) -> None:
        self._release()
        self._done.errback(reason)

    def _cancelled(self, _: Deferred[None]) -> None:
        self._release()

    def _release(self) -> None:
        """Let go of whatever is under way; nothing that still comes is listened to."""
        self._state = State.OVER
        self._clock.end()
        query, self._query = self._query, None
        dial, self._dial = self._dial, None
        connection, self._connection = self._connection, None
        shaking, self._layer = self._layer, None
        if query is not None:
            query.cancel()
        if shaking is not None:
            shaking.give_up()
        if connection is not None:
            connection.abort()
        elif dial is not None:
            dial.give_up()


class Hello(Bare):
    """A connection on which something comes before the codec."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt: Attempt | None = attempt

    def connectionMade(self) -> None:
        """Twisted."""
        attempt, self._attempt = self._attempt, None
        assert attempt is not None
        attempt.begin(self)

    def pass_to(self, protocol: Any) -> None:
        """The codec's turn."""
        self.relay(protocol)
        if IHalfCloseableProtocol.providedBy(protocol):
            directlyProvides(self, IHalfCloseableProtocol)
            self.readConnectionLost = protocol.readConnectionLost
            self.writeConnectionLost = protocol.writeConnectionLost
        protocol.makeConnection(self.transport)

    readConnectionLost: Callable[[], None]
    writeConnectionLost: Callable[[], None]

    def drop(self) -> None:
        """Nobody wants it any more."""
        transport: Any = self.transport
        transport.abortConnection()


class Dial(ClientFactory):
    """One address of an attempt."""

    noisy = False

    def __init__(self, attempt: Attempt, address: str) -> None:
        self.attempt, self.address = attempt, address
        self.handle: IConnector | None = None

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:  # type: ignore[override]
        """Called by the reactor: connected."""
        return self.attempt.dialed(self)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        """Called by the reactor: not connected."""
        self.handle = None
        self.attempt.refused(self, reason.value)

    def clientConnectionLost(self, connector: Any, reason: Failure) -> None:
        """Called by the reactor: it was connected.  Twisted's connector and its transport refer to each other."""
        self.handle = connector.transport = None

    def give_up(self) -> None:
        """Stop dialing.  The reactor reports it as a failure, to which nobody listens any more."""
        if self.handle is not None:
            self.handle.disconnect()
