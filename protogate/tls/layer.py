"""
TLS begins on a connection: one function, whichever the side and the library.

Rules
- Whoever begins it is told once: C{secured(transport, session)} gives the protocol that has the connection from then
  on, or C{unsecured(why)}, after which there is no connection.  After L{Layer.give_up} neither comes.
- What was read before belongs to TLS; what was written before goes first.
- The library is that of the reactor: the contexts must be, too (C{native}).
"""

from __future__ import annotations

import re
import ssl
from typing import Any, Final, NamedTuple, Protocol

from OpenSSL import SSL
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHandshakeListener, IProtocol, ISSLTransport, ITCPTransport
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as Base
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer

from protogate.reactor.overlay import Overlaid, overlay
from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport
from protogate.tls import native, openssl
from protogate.tls.client import Client
from protogate.tls.server import Server
from protogate.tls.session import Session
from protogate.wheel import Wheel


class Trouble(NamedTuple):
    """
    Why a handshake failed.

    @ivar text: for operators.
    @ivar certificate: whether it was about the peer's certificate.
    @ivar alert: what the peer said about it (RFC 8446, 6), in OpenSSL's words; empty if it said nothing.
    @ivar left: whether it just closed the connection.
    """

    text: str
    certificate: bool = False
    alert: str = ""
    left: bool = False


class Starter(Protocol):
    """Who begins TLS."""

    def secured(self, transport: Any, session: Session) -> IProtocol | None:
        """
        The handshake is done.

        @return: what is connected to C{transport} next; None drops the connection, and nobody hears of it.
        """

    def begun(self) -> None:
        """It is connected."""

    def unsecured(self, trouble: Trouble) -> None:
        """There is no connection any more, and never was one over TLS."""


class Layer(Protocol):
    """A handshake that is under way."""

    def give_up(self) -> None:
        """Drop the connection; nobody hears of it.  Harmless when the handshake is over."""


class Bare(Base):
    """
    The protocol of a connection that will speak TLS, or something else that is not known when it begins: afterwards a
    pipe to L{relay}'s.
    """

    def relay(self, protocol: Any) -> None:
        """From now on this one hears of everything."""
        # A transport looks these up each time.
        self.dataReceived = protocol.dataReceived  # type: ignore[method-assign]
        self.connectionLost = protocol.connectionLost  # type: ignore[method-assign]


def is_native(reactor: Any) -> bool:
    """Whether TLS on that reactor is that of C{ssl}."""
    return bool(getattr(reactor, "native_tls", False))


def prepare(side: Server | Client, of_ssl: bool) -> None:
    """
    Make its contexts, which takes a while; in any thread.

    @raise ConfigError: the library does not take something.
    """
    if isinstance(side, Server):
        (native if of_ssl else openssl).serving(side)
    else:
        (native if of_ssl else openssl).asking(side)


class Resumption:
    """
    The session of the latest connection to one endpoint.

    It is asked for when the next one is made: by then the server has sent its tickets (TLS 1.3).
    """

    __slots__ = ("_of", "_side")

    def __init__(self) -> None:
        self._side: Client | None = None
        self._of: Any = None

    def keep(self, side: Client, connection: Any) -> None:
        """This is the latest."""
        self._side, self._of = side, connection

    def session(self, side: Client) -> Any:
        """To go on with, or None."""
        if self._side is not side or self._of is None:
            return None
        if isinstance(self._of, SSL.Connection):
            return self._of.get_session()
        found = self._of.session
        return found if found is not None and (found.has_ticket or found.id) else None


def serve(bare: Bare, side: Server, starter: Starter, read: bytes, wheel: Wheel) -> Layer:
    """
    Be the server on a connection whose protocol is C{bare}.

    @param read: what was read of it, and belongs to TLS.
    """
    transport: Any = bare.transport
    if isinstance(transport, Transport):
        return _overlaid(transport, native.serving(side), None, starter, read)
    return Wrapped(bare, openssl.serving(side), starter).begin(False, wheel, read)


def ask(bare: Bare, side: Client, name: str, resumption: Resumption, starter: Starter, wheel: Wheel) -> Layer:
    """
    Be the client on a connection whose protocol is C{bare}.

    @param name: the server's: an address, or in lower case.
    """
    session = resumption.session(side)
    transport: Any = bare.transport
    if isinstance(transport, Transport):
        tls = TLS(native.asking(side), name, native.LONG, native.CLOSING, session)
        return _overlaid(transport, tls, name, starter, kept=(resumption, side))
    creator = openssl.Asking(openssl.asking(side), name, session)
    return Wrapped(bare, creator, starter, name if side.verify else "", (resumption, side)).begin(True, wheel)


_Kept = tuple[Resumption, Client] | None


def _overlaid(
    transport: Transport, tls: TLS, name: str | None, starter: Starter, read: bytes = b"", kept: _Kept = None
) -> Overlaid:
    def made(over: Overlaid) -> IProtocol | None:
        connection = over.connection()
        if kept is not None:
            kept[0].keep(kept[1], connection)
        return starter.secured(over, native.session(connection))

    def failed(failure: Failure) -> None:
        starter.unsecured(trouble(failure.value))

    return overlay(transport, tls, name, made, starter.begun, failed, read)


class Closing(TLSMemoryBIOProtocol):
    """
    Twisted's, which waits for the peer's close_notify for ever: here it has L{native.CLOSING} seconds, once everything
    is with the kernel.
    """

    def __init__(self, factory: TLSMemoryBIOFactory, protocol: Any, wheel: Wheel) -> None:
        super().__init__(factory, protocol)
        self._last = wheel.timer(self._waited)

    def loseConnection(self) -> None:
        """Twisted."""
        super().loseConnection()
        if self.disconnecting and self.connected and not self._last.active:
            self._last.set(native.CLOSING)

    def unsent(self) -> int:
        """Bytes written that the kernel has not taken yet; how many they are is not known before they are encrypted."""
        transport: Any = self.transport
        held = sum(map(len, self._appSendBuffer))
        if hasattr(transport, "unsent"):
            return held + int(transport.unsent())
        return held + int(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)

    def _waited(self) -> None:
        if self.unsent() or self._producer is not None:
            self._last.set(native.CLOSING)  # who takes nothing is given up by whoever writes
        else:
            transport: Any = self.transport
            transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self._last.end()
        super().connectionLost(reason)


@implementer(IHandshakeListener)
class Wrapped(Base):
    """
    TLS of pyOpenSSL, laid by Twisted between a connection and whoever speaks on it; this speaks until the handshake is
    done.

    @param name: which the peer must prove to have; empty = none.
    """

    def __init__(self, bare: Bare, creator: Any, starter: Starter, name: str = "", kept: _Kept = None) -> None:
        self._bare, self._creator, self._name, self._kept = bare, creator, name, kept
        self._starter: Starter | None = starter

    def begin(self, client: bool, wheel: Wheel, read: bytes = b"") -> Layer:
        """Say hello, or hear it."""
        factory = TLSMemoryBIOFactory(self._creator, client, _NOBODY, _CLOCK)
        layer = Closing(factory, self, wheel)
        bare, transport = self._bare, self._bare.transport
        bare.relay(layer)
        layer.makeConnection(transport)
        # It provides whatever comes last of what the connection provides.
        also = (ITCPTransport,) if ITCPTransport.providedBy(transport) else ()
        directlyProvides(layer, ISSLTransport, *also)
        if read:
            layer.dataReceived(read)
        return self

    def give_up(self) -> None:
        """L{Layer}."""
        if self._starter is not None:
            self._starter = None
            transport: Any = self._bare.transport
            transport.abortConnection()

    def handshakeCompleted(self) -> None:
        """Twisted."""
        starter, self._starter = self._starter, None
        if starter is None:
            return
        layer: Any = self.transport
        connection = layer.getHandle()
        why = openssl.identify(connection, self._name) if self._name else ""
        if why:
            layer.abortConnection()
            starter.unsecured(Trouble(why, True))
            return
        if self._kept is not None:
            self._kept[0].keep(self._kept[1], connection)
        protocol = starter.secured(layer, openssl.session(connection))
        if protocol is None:
            layer.abortConnection()
            return
        layer.wrappedProtocol = protocol
        protocol.makeConnection(layer)
        starter.begun()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        starter, self._starter = self._starter, None
        if starter is None:
            return
        layer: Any = self.transport
        doubt = openssl.doubt(layer.getHandle())
        starter.unsecured(Trouble(f"certificate verify failed: {doubt}", True) if doubt else trouble(reason.value))


class _Nobody(Factory):
    """Twisted wants a factory to wrap; we give it protocols."""

    noisy = False


_NOBODY: Final = _Nobody()
_CLOCK: Final = Clock()
"""Twisted wants one, for a kind of layer that is not used here; without it, it would install a reactor."""
_CERTIFICATE: Final = ("certificate verify failed", "bad certificate", "peer did not return a certificate")
_ALERT: Final = re.compile(r"(?:ssl[0-9v/]*|tls[0-9v/]*) alert (?:ssl[0-9]* )?([a-z ]+[a-z])", re.IGNORECASE)


def trouble(problem: BaseException | None) -> Trouble:
    """What a handshake failed of."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return Trouble(f"certificate verify failed: {problem.verify_message}", True)
    if isinstance(problem, ssl.SSLError):
        text = (problem.reason or str(problem)).lower().replace("_", " ")
    elif isinstance(problem, SSL.Error):
        text = openssl.told(problem)
    elif problem is None or isinstance(problem, ConnectionDone | ConnectionLost):
        return Trouble("the peer left during the handshake", left=True)
    else:
        text = str(problem) or type(problem).__name__
    alert = _ALERT.search(text)
    return Trouble(text, any(sign in text for sign in _CERTIFICATE), alert[1] if alert else "")
