"""
Accept a connection, and find out which codec it speaks.

Rules
- One L{Listener} owns one address.  Its connections share one L{Context}, which a reload may change under them.
- With one protocol its codec gets the connection at once.  With several, the first bytes decide (L{Sniffer}): nothing
  of the connection is lost, and a client that says nothing is not waited for longer than for a request head.
- Who comes from a proxy that tells whose connection it is tells that first (L{Announced}), whatever follows.
- With TLS a L{Door} comes before that: a handshake, and ALPN says which codec it is; a client that knows no ALPN is
  told by its first bytes, as without TLS.  Who speaks without TLS is refused in the words of the protocol he speaks.
- One connection over the limit is closed at once, before anything of it is read.
- While it drains, what is accepted already is still served: its first request may be on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IProtocol
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer

from protogate.context import Context
from protogate.downstream.proxies import Proxies
from protogate.downstream.refusing import Refusing
from protogate.errors import Phase
from protogate.interfaces import IConnection, IService, IStreamCodec
from protogate.message import NOBODY, Peer, peer_at, peer_of
from protogate.observe.events import Limited
from protogate.proxyprotocol import Malformed, Reader
from protogate.tls import layer
from protogate.tls.layer import Bare, Layer, Trouble
from protogate.tls.server import Server
from protogate.tls.session import Session
from protogate.wheel import Timer

PREFIX: Final = 256
"""Bytes after which a protocol that no codec has recognised is given up."""
QUIET: Final = 3.0
"""Seconds that the first bytes of a connection may take when its listener drains."""

HANDSHAKE: Final = b"\x16"
"""What a connection with TLS begins with (RFC 8446, 5.1)."""

_log = Logger()


def _nothing() -> None:
    """Where nobody wants to know."""


class Listener(Factory):
    """
    The server side of one address.

    @ivar tls: what is offered over TLS; None = there is none.
    @ivar proxies: who may tell by the PROXY protocol whose a connection is; None = nobody.
    @ivar connections: the connections now open.
    @ivar most: as many of them are enough: C{enough()} is called at each one more; 0 = never.
    """

    noisy = False

    def __init__(self, name: str, codecs: Sequence[IStreamCodec], service: IService, context: Context) -> None:
        self.name, self.codecs, self.service, self.context = name, list(codecs), service, context
        self.tls: Server | None = None
        self.proxies: Proxies | None = None
        self.connections: set[IConnection] = set()
        self.draining = False
        self.complain, self.distrust = Limited(_log.warn), Limited(_log.warn)
        self._empty: list[Deferred[None]] = []
        self._eased: set[IConnection] = set()
        self.most = 0
        self.enough: Callable[[], object] = _nothing

    def buildProtocol(self, addr: IAddress | None) -> IProtocol | None:  # type: ignore[override]
        """Twisted: a connection was accepted.  None closes it."""
        if len(self.connections) >= self.context.limits.connections:
            self.context.count("connections_refused")
            return None
        if self.draining:
            return None
        proxies = self.proxies
        announced = proxies is not None and proxies.trusts(addr)
        if not announced and proxies is not None and proxies.required:
            self.context.count("proxy_untrusted")
            self.distrusted(peer_at(addr), "it is not trusted")
            return None
        self.context.count("connections_accepted")
        if 0 < self.most <= len(self.connections) + 1:
            self.enough()
        if announced:
            return Announced(self) if self.tls is None else AnnouncedDoor(self, self.tls)
        return self.speaker() if self.tls is None else Door(self, self.tls)

    def distrusted(self, peer: Peer, why: str) -> None:
        """Tell of a connection that was closed because of its PROXY header."""
        self.distrust(
            "listener {name}: no PROXY header is taken from {peer}: {why} ({suppressed} more like it were not logged)",
            name=self.name,
            peer=peer.ip or "a UNIX socket",
            why=why,
        )

    def speaker(self, alpn: bytes | None = None) -> IProtocol:
        """
        Whoever speaks on a connection.

        @param alpn: the protocol that was agreed on, if any was.
        """
        if len(self.codecs) == 1:
            return self.serve(self.codecs[0])
        for codec in self.codecs:
            if alpn is not None and alpn in codec.alpn:
                return self.serve(codec)
        return Sniffer(self)

    def serve(self, codec: IStreamCodec, service: IService | None = None) -> IProtocol:
        """
        A protocol of that codec, under our eyes until it is closed.

        @param service: what handles its requests; None = our own.
        """
        protocol = codec.server(self.service if service is None else service, self.context)
        self.watch(cast("IConnection", protocol))  # it is both: L{IStreamCodec}
        return protocol

    def watch(self, connection: IConnection) -> None:
        """Count a connection until it is closed."""
        self.connections.add(connection)
        connection.closed.addCallback(self._gone, connection)

    def _gone(self, result: None, connection: IConnection) -> None:
        self.connections.discard(connection)
        self._eased.discard(connection)
        if not self.connections:
            waiting, self._empty = self._empty, []
            for deferred in waiting:
                deferred.callback(None)
        return result

    def ease(self, most: int) -> None:
        """Let so many idle connections end, as at a stop: others are in need of what they have."""
        for connection in list(self.connections):
            if most <= 0:
                return
            if not connection.busy and connection not in self._eased:
                self._eased.add(connection)
                self.context.count("connections_eased")
                connection.drain()
                most -= 1

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
class Sniffer(Bare):
    """The first bytes of a connection whose protocol is not known yet; afterwards nothing but a pipe to its codec."""

    busy = 0

    def __init__(self, listener: Listener) -> None:
        self.closed: Deferred[None] = Deferred()
        self._listener = listener
        self._service: IService | None = None
        self._prefix = b""
        self._timer: Timer | None = None
        self._inner: Any = None
        listener.watch(self)

    def connectionMade(self) -> None:
        """Twisted."""
        context, codecs = self._listener.context, self._listener.codecs
        if len(codecs) == 1:
            self._choose(codecs[0])
        elif context.timeouts.client_header:
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
        inner: Any = self._listener.serve(codec, self._service)
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
        if prefix:
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


@implementer(IConnection)
class Door(Sniffer):
    """
    A connection from the first byte to the end of its handshake; L{layer.Starter}.

    @param tls: what is offered.
    """

    def __init__(self, listener: Listener, tls: Server) -> None:
        super().__init__(listener)
        self._tls = tls
        self._layer: Layer | None = None
        self._peer = NOBODY

    def connectionMade(self) -> None:
        """Twisted."""
        context = self._listener.context
        if context.timeouts.tls:
            self._timer = context.wheel.after(context.timeouts.tls, self._silent)

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        assert self.transport is not None
        if self._prefix or not data.startswith(HANDSHAKE):
            if self._service is None:
                self._listener.context.count("tls_missing")
                self._service = Refusing(self._listener.service)
            super().dataReceived(data)
            return
        self._peer = peer_of(self.transport)
        self._layer = layer.serve(self, self._tls, self, data, self._listener.context.wheel)

    # -- layer.Starter

    def secured(self, transport: Any, session: Session) -> IProtocol | None:
        """L{layer.Starter}."""
        listener = self._listener
        self._done()
        count = listener.context.count
        count("tls_handshakes")
        if session.resumed:
            count("tls_resumed")
        if not session.known:
            count("tls_name_unknown")
        peer = self._peer
        transport.peer = Peer(peer.ip, peer.port, True, session, peer.here)
        self._inner = listener.speaker(session.alpn)
        return cast("IProtocol", self._inner)

    def begun(self) -> None:
        """L{layer.Starter}."""
        inner, self._inner = self._inner, None
        self._finish()
        if self._listener.draining:
            inner.drain()

    def unsecured(self, trouble: Trouble) -> None:
        """L{layer.Starter}."""
        listener = self._listener
        self._done()
        listener.context.count("tls_failed")
        listener.complain(
            "listener {name}: TLS handshake with {peer} failed: {why} ({suppressed} more like it were not logged)",
            name=listener.name,
            peer=self._peer.ip,
            why=trouble.text,
        )
        self._finish()

    # -- ends

    def _silent(self) -> None:
        listener = self._listener
        listener.context.count(f"{Phase.TLS}_timeout")
        self.abort()

    def _leave(self) -> None:
        if self._layer is None:
            super()._leave()
        else:
            self.abort()

    def abort(self) -> None:
        """Drop it."""
        if self._layer is None:
            super().abort()
        else:
            self._done()
            self._layer.give_up()
            self._finish()


class Announced(Sniffer):
    """
    A connection from a proxy, up to the end of the header that tells whose it is; then what comes next in the bases.

    What was told is the transport's C{peer} (L{peer_of}).  A header that is wrong, missing or late costs the
    connection: nobody is there to be answered.  Where it is optional and there is none, all goes on without.
    """

    def connectionMade(self) -> None:
        """Twisted."""
        self._reader: Reader | None = Reader()
        context = self._listener.context
        if context.timeouts.client_header:
            self._timer = context.wheel.after(context.timeouts.client_header, self._unannounced)

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        if self._reader is None:
            super().dataReceived(data)
            return
        listener, transport = self._listener, cast("Any", self.transport)
        try:
            header = self._reader.feed(data)
        except Malformed as error:
            listener.context.count("proxy_header_invalid")
            self._refuse(str(error))
            return
        if header is None:
            return
        if header.found:
            listener.context.count("proxy_headers")
        elif listener.proxies is not None and listener.proxies.required:
            listener.context.count("proxy_header_missing")
            self._refuse("there is none")
            return
        self._reader = None
        self._done()
        if header.peer is not None:
            transport.peer = header.peer
        super().connectionMade()
        if listener.draining:
            self.drain()
        if header.rest:
            self.dataReceived(header.rest)

    def _refuse(self, why: str) -> None:
        self._listener.distrusted(peer_of(self.transport), why)
        self.abort()

    def _unannounced(self) -> None:
        self._listener.context.count("proxy_header_timeout")
        self.abort()


class AnnouncedDoor(Announced, Door):
    """The same before TLS."""
