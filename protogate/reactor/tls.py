"""
uvloop's TLS: the standard library's C{ssl} without a protocol of Python between the socket and the application's.

Rules
- connectionMade comes when the handshake is done, so that the protocol knows what was negotiated.  A handshake that
  fails has no protocol: a client's factory hears clientConnectionFailed(reason), a server's handshakeFailed(address,
  reason), if it has that method.
- A connection that the peer ends without saying so in TLS is C{ConnectionLost}, never C{ConnectionDone}: anybody on the
  way can send a FIN.
- There is no half close: uvloop answers the peer's close_notify with its own.
- While the protocol does not want to read, nothing is read from the socket either.  uvloop would read on, and forget it
  all when the end comes.  (It does so with what comes together with the last of the handshake and a FIN: nobody who
  leaves like that waits for an answer.)

Must not know: any protocol; how the connection came about.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ssl import MemoryBIO, SSLContext, SSLError, SSLObject, SSLSession, SSLWantReadError, SSLWantWriteError
from typing import Any, Final

from twisted.internet.error import ConnectionLost, TimeoutError  # noqa: A004 - Twisted's
from twisted.internet.interfaces import IHalfCloseableProtocol, IHandshakeListener
from twisted.internet.main import CONNECTION_LOST
from twisted.python.failure import Failure

from protogate.reactor.drive import drive
from protogate.reactor.transport import Transport


class Speaking(SSLObject):
    """
    Tells the peer why a handshake failed, which uvloop does not: it closes first.

    @ivar outgoing: what is to be sent.
    @ivar sent: called with it.
    """

    outgoing: MemoryBIO
    sent: Callable[[bytes], object] | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (SSLWantReadError, SSLWantWriteError):
            raise
        except SSLError:
            sent, self.sent = self.sent, None
            if sent is not None:
                sent(self.outgoing.read())
            raise
        self.sent = None


class Context(SSLContext):
    """
    A context whose handshakes end with an alert when they fail, and that can go on with an earlier session.

    uvloop has no way to be told which: it is left here in the very turn, and right before, uvloop begins with the next.
    """

    sslobject_class = Speaking
    _next: tuple[Callable[[bytes], object] | None, SSLSession | None] = None, None

    def prepare(self, sent: Callable[[bytes], object], session: SSLSession | None) -> None:
        """The next connection goes on with that session, or begins anew; its last words are sent by C{sent}."""
        self._next = sent, session

    def wrap_bio(
        self,
        incoming: MemoryBIO,
        outgoing: MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: SSLSession | None = None,
    ) -> SSLObject:
        (sent, following), self._next = self._next, (None, None)
        made: Any = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or following)
        made.outgoing, made.sent = outgoing, sent
        return made  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class TLS:
    """What uvloop's TLS is told; given wherever Twisted takes a context factory.  A bare C{SSLContext} will do, too."""

    context: SSLContext
    hostname: str | None = None
    """A client's: the name to ask for (SNI), and to verify; None = the host that was connected to."""
    handshake: float = 60.0
    """Seconds for the handshake."""
    shutdown: float = 30.0
    """Seconds for the peer to answer our close_notify; then the connection is lost."""
    session: SSLSession | None = None
    """A client's: to go on with, where its context is a L{Context}."""

    @classmethod
    def of(cls, given: object) -> TLS | None:
        """The same, or None if it is something of pyOpenSSL's."""
        return given if isinstance(given, TLS) else cls(given) if isinstance(given, SSLContext) else None


_LEFT: Final = ConnectionLost("the peer left during the TLS handshake")


def _reason(failure: Failure) -> Failure:
    """Why a handshake failed, in Twisted's words where it has any."""
    if failure.check(ConnectionAbortedError):
        return Failure(TimeoutError(string="the TLS handshake took too long"))
    return Failure(_LEFT) if failure.check(ConnectionError) else failure


class Secured(Transport):
    """
    The transport of a TLS connection.

    @ivar tls: what to do.
    @ivar name: the server's, to ask for and to verify; None = this is the server.
    """

    tls: TLS
    name: str | None = None

    _high = 1  # 0 would mean "always full" to uvloop's TLS
    _elsewhere = True
    _handshaking = False
    _notified = False  # by the peer's close_notify

    def connection_made(self, uv: Any) -> None:
        self._raw = uv
        self._handshaking = True
        self.reactor.native.add(self)
        if isinstance(self.tls.context, Context):  # uvloop begins right after that
            self.reactor.loop.call_soon(self.tls.context.prepare, self._last_words, self.tls.session)
        handshake = self.reactor.loop.start_tls(
            uv,
            self,
            self.tls.context,
            server_side=self.name is None,
            server_hostname=self.name,
            ssl_handshake_timeout=self.tls.handshake,
            ssl_shutdown_timeout=self.tls.shutdown,
        )
        drive(handshake, self._shaken)

    def _shaken(self, result: Any) -> None:
        if not self._handshaking:
            return
        self._handshaking = False
        if isinstance(result, Failure):
            self._refuse(_reason(result))
        elif result.get_extra_info("ssl_object") is None:  # the connection is gone
            self._refuse(Failure(_LEFT))
        else:
            result.writelines(())  # send what the handshake left, which would count as not taken by the kernel
            # Else it would write when the turn is over, after flushed(), and hold 64 KiB without a word.
            self._raw.set_write_buffer_limits(0, 0)
            super().connection_made(result)

    def _refuse(self, reason: Failure) -> None:
        self.abandon()
        self.refused(reason)

    def _last_words(self, data: bytes) -> None:
        """uvloop is about to close: what it would write now is lost, and so is what it holds."""
        if data and not self._raw.get_write_buffer_size():
            with suppress(OSError):
                os.write(self._raw.get_extra_info("socket").fileno(), data)

    @property
    def shaking(self) -> bool:
        """Whether the handshake is not over."""
        return self._handshaking

    def begin(self, protocol: Any) -> None:
        super().begin(protocol)
        if IHandshakeListener.providedBy(protocol):
            protocol.handshakeCompleted()

    def refused(self, reason: Failure) -> None:
        """The handshake failed."""
        raise NotImplementedError

    def eof_received(self) -> bool:
        self._notified = self._eof = True
        half = None if self.disconnecting else IHalfCloseableProtocol(self.protocol, None)
        if half is not None:
            try:
                half.readConnectionLost()
            except Exception:
                self.fail("readConnectionLost")
        if self._size and not self._blocked:
            self._send()
        self._halved = True  # uvloop closes now, after what it has
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is None and not (self._notified or self.disconnecting):
            exc = CONNECTION_LOST
        super().connection_lost(exc)

    def connectionLost(self, reason: Failure) -> None:
        if self._handshaking:
            self.disconnected = True
            self.abandon()
        else:
            super().connectionLost(reason)

    # -- reading

    def rest(self) -> None:
        """What is left on the socket is ciphertext, and uvloop's TLS has ended."""

    def pauseProducing(self) -> None:
        super().pauseProducing()
        if self.connected:
            self._raw.pause_reading()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.reading:
            self._raw.resume_reading()

    stopReading, startReading = pauseProducing, resumeProducing

    @property
    def reading(self) -> bool:
        return self._handshaking or super().reading

    # -- writing

    def unsent(self) -> int:
        return super().unsent() + (int(self._raw.get_write_buffer_size()) if self.connected else 0)

    def loseWriteConnection(self) -> None:
        """TLS of uvloop's has no half close."""

    # -- ends

    def loseConnection(self) -> None:
        super().loseConnection()
        if self.connected:
            self._raw.resume_reading()  # for the peer's close_notify; data is dropped

    def abandon(self) -> None:
        self._handshaking = False
        self.reactor.native.discard(self)
        if self._raw is not None:
            self._raw.abort()

    # -- INegotiated, ISSLTransport

    @property
    def negotiatedProtocol(self) -> bytes | None:
        name: str | None = self._uv.get_extra_info("ssl_object").selected_alpn_protocol()
        return None if name is None else name.encode("ascii")

    def getPeerCertificate(self) -> bytes | None:
        """In DER; None if the peer gave none."""
        certificate: bytes | None = self._uv.get_extra_info("ssl_object").getpeercert(True)
        return certificate
