"""
Accept a connection, and find out which codec it speaks.

Rules
- One L{Listener} owns one address.  Its connections share one L{Context}, which a reload may change under them.
- With one protocol its codec gets the connection at once.  With several, the first bytes decide (L{Sniffer}): nothing
  of the connection is lost, and a client that says nothing is not waited for longer than for a request head.
- One connection over the limit is closed at once, before anything of it is read.
- While it drains, what is accepted already is still served: its first request may be on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer

from protogate.context import Context
from protogate.interfaces import IConnection, IService, IStreamCodec
from protogate.wheel import Timer

PREFIX: Final = 256
"""Bytes after which a protocol that no codec has recognised is given up."""
QUIET: Final = 3.0
"""Seconds that the first bytes of a connection may take when its listener drains."""

_log = Logger()


class Listener(Factory):
    """
    The server side of one address.

    @ivar connections: the connections now open.
    @ivar refused: how many were closed at once because there were too many.
    """

    noisy = False

    def __init__(self, name: str, codecs: Sequence[IStreamCodec], service: IService, context: Context) -> None:
        self.name, self.codecs, self.service, self.context = name, list(codecs), service, context
        self.connections: set[IConnection] = set()
        self.draining = False
        self._empty: list[Deferred[None]] = []

    def buildProtocol(self, addr: IAddress | None) -> IProtocol | None:  # type: ignore[override]
        """Twisted: a connection was accepted.  None closes it."""
        if len(self.connections) >= self.context.limits.connections:
            self.context.count("connections_refused")
            return None
        if self.draining:
            return None
        self.context.count("connections_accepted")
        if len(self.codecs) == 1:
            return self.serve(self.codecs[0])
        return Sniffer(self)

    def serve(self, codec: IStreamCodec) -> IProtocol:
        """A protocol of that codec, under our eyes until it is closed."""
        protocol = codec.server(self.service, self.context)
        self.watch(cast("IConnection", protocol))  # it is both: L{IStreamCodec}
        return protocol

    def watch(self, connection: IConnection) -> None:
        """Count a connection until it is closed."""
        self.connections.add(connection)
        connection.closed.addCallback(self._gone, connection)

    def _gone(self, result: None, connection: IConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            waiting, self._empty = self._empty, []
            for deferred in waiting:
                deferred.callback(None)
        return result

    def drain(self) -> Deferred[None]:
        """Let every connection end when its requests have ended; fires when none is left."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        if not self.connections:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._empty.append(done)
        return done

    def abort(self) -> None:
        """Drop every connection now."""
        for connection in list(self.connections):
            connection.abort()


@implementer(IConnection)
class Sniffer(Protocol):
    """The first bytes of a connection whose protocol is not known yet; afterwards nothing but a pipe to its codec."""

    busy = 0

    def __init__(self, listener: Listener) -> None:
        self.closed: Deferred[None] = Deferred()
        self._listener = listener
        self._prefix = b""
        self._timer: Timer | None = None
        self._inner: Any = None
        listener.watch(self)

    def connectionMade(self) -> None:
        """Twisted."""
        context = self._listener.context
        if context.timeouts.client_header:
            self._timer = context.wheel.after(context.timeouts.client_header, self._silent)

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        prefix = self._prefix = self._prefix + data
        undecided = False
        for codec in self._listener.codecs:
            verdict = codec.sniff(prefix)
            if verdict:
                return self._choose(codec)
            undecided = undecided or verdict is None
        if undecided and len(prefix) < PREFIX:
            return None
        # Nobody knows it: the first codec says so, in its own words.
        self._listener.context.count("protocol_unknown")
        return self._choose(self._listener.codecs[0])

    def _choose(self, codec: IStreamCodec) -> None:
        self._done()
        prefix, self._prefix = self._prefix, b""
        inner: Any = self._listener.serve(codec)
        self._inner = inner
        if IHalfCloseableProtocol.providedBy(inner):
            directlyProvides(self, IHalfCloseableProtocol, IConnection)
            self.readConnectionLost = inner.readConnectionLost
            self.writeConnectionLost = inner.writeConnectionLost
        assert self.transport is not None
        # A transport looks this up at each read: from now on it finds the codec's.
        self.dataReceived = inner.dataReceived  # type: ignore[method-assign]
        inner.makeConnection(self.transport)
        self._finish()
        if self._listener.draining:
            inner.drain()
        inner.dataReceived(prefix)

    readConnectionLost: Callable[[], None]
    writeConnectionLost: Callable[[], None]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self._done()
        if self._inner is not None:
            inner, self._inner = self._inner, None
            inner.connectionLost(reason)
        else:
            self._finish()

    def _finish(self) -> None:
        """From here on the codec's own connection counts."""
        closed = self.closed
        if not closed.called:
            closed.callback(None)

    def _done(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _silent(self) -> None:
        self._listener.context.count("client_header_timeout")
        self.abort()

    def drain(self) -> None:
        """Nothing was asked yet: close, if nothing comes soon."""
        if self._inner is None:
            self._done()
            self._timer = self._listener.context.wheel.after(QUIET, self._leave)

    def _leave(self) -> None:
        transport: Any = self.transport
        if transport is not None:
            transport.loseConnection()

    def abort(self) -> None:
        """Drop it."""
        self._done()
        transport: Any = self.transport
        if transport is not None:
            transport.abortConnection()
