"""
One established connection: Twisted's transport on the one side, uvloop's protocol on the other.

uvloop calls the snake_case methods, Twisted's protocols call the camelCase ones.

Rules
- What is written in one turn of the loop is sent when the turn is over, in one system call, without asking the kernel
  first whether it would take it.  More than L{MOST} bytes do not wait.
- uvloop tells at the first byte that the kernel does not take, and when it has taken all.  So uvloop holds one lot at
  most, and what comes meanwhile waits here.
- A peer that takes nothing more may have said why.  uvloop ends a connection at the first write that fails, whatever
  is left to be read: that is read then.
- The protocol hears of the end when the descriptor is closed, and never within a call of its own.
- Whatever application code raises is logged, and costs its connection.

Must not know: any protocol; how the connection came about.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from struct import pack
from typing import Any, Final

from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import (
    IConsumer,
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    ILoggingContext,
    IPushProducer,
    ISystemHandle,
    ITransport,
)
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.reactor.handle import Handle

MOST: Final = 65536
"""Bytes written that do not wait for the end of the turn; up to here several pieces are joined."""
REST: Final = 1 << 20
"""Bytes that are read of a connection whose peer takes nothing more."""
RESET: Final = pack("ii", 1, 0)
"""SO_LINGER: on, no time.  close() sends RST then."""


@implementer(ITransport, IConsumer, IPushProducer, IHalfCloseableDescriptor, ISystemHandle, ILoggingContext)
class Transport:
    """
    See L{ITransport}.

    @ivar reactor: the L{protogate.reactor.uv.UVReactor} that it belongs to.
    @ivar bufferSize: a streaming producer is paused when more bytes than that are L{unsent}.
    @ivar flushed: if given, called at the end of each turn with something to send, and when the kernel has taken the
        rest (with TLS, not always): with whether nothing is L{unsent} now.
    @ivar connected: until uvloop says that it is over.
    @ivar disconnected: the protocol was told.
    """

    connected = disconnecting = disconnected = False
    protocol: Any = None
    producer: Any = None
    flushed: Callable[[bool], object] | None = None
    streamingProducer = producerPaused = False
    bufferSize = 65536
    TLS = False

    _high = 0  # bytes that uvloop may hold without saying so
    _uv: Any = None  # what takes the bytes
    _raw: Any = None  # what has the socket: the same, or what is below TLS
    _handle: Handle | None = None
    _reason: Failure | None = None  # why it is about to be lost
    _pending: list[bytes]  # written, not yet given to uvloop …
    _size = 0  # … and how many bytes that are
    _queued = False  # the reactor will call flush() at the end of this turn
    _blocked = False  # uvloop holds something that the kernel did not take
    _elsewhere = False  # full() looks at more than what waits here
    _paused = False
    _held = b""  # what uvloop read although the protocol had paused in connectionMade
    _eof = False
    _half = _halved = False  # loseWriteConnection() was called; the write side is closed
    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor

    # -- for a derived class

    def build(self) -> Any:
        """The protocol, or None if there is to be no connection.  uvloop has accepted or connected."""
        raise NotImplementedError

    def where(self, name: Any) -> Any:
        """Twisted's address for one of a socket."""
        raise NotImplementedError

    def getPeer(self) -> Any:
        raise NotImplementedError

    def getHost(self) -> Any:
        raise NotImplementedError

    def abandon(self) -> None:
        """Nobody wants this connection any more, which has no protocol yet."""

    def told(self, protocol: Any, reason: Failure) -> None:
        """Tell the protocol that it is over, and whoever else wants to know."""
        protocol.connectionLost(reason)

    # -- what uvloop calls

    def connection_made(self, uv: Any) -> None:
        self._uv, self._raw = uv, self._raw or uv
        uv.set_write_buffer_limits(self._high, 0)
        self._pending = []
        self.connected = True
        self.reactor.native.add(self)
        try:
            protocol = self.protocol = self.build()
            if protocol is None:
                self.protocol = Protocol()
                self.loseConnection()
            else:
                self.begin(protocol)
        except Exception:
            self.fail("connectionMade")

    def begin(self, protocol: Any) -> None:
        """The protocol was built."""
        protocol.makeConnection(self)

    def data_received(self, data: bytes) -> None:
        if self._paused:  # uvloop begins to read whatever connectionMade wanted
            self._held += data
            self._uv.pause_reading()
            return
        protocol = self.protocol
        if protocol is None:
            return  # given up during the handshake, whose end uvloop's TLS had read already
        current = self.reactor.current
        current.transport = self
        try:
            protocol.dataReceived(data)
        except Exception:
            self.fail("dataReceived")
        finally:
            current.transport = None

    def eof_received(self) -> bool:
        if self._paused:
            return True  # resuming meets the end again
        self._eof = True
        half: Any = IHalfCloseableProtocol(self.protocol, None)  # or None, which its types do not say
        if half is None:
            self._end(Failure(CONNECTION_DONE))  # Twisted does not flush to a peer that has gone
            return False
        try:
            half.readConnectionLost()
        except Exception:
            self.fail("readConnectionLost")
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.connected:
            if exc is not None and self._reason is None:
                self.rest()
            self.connected = False
            self._drop()
            if self._handle is not None:
                self._handle.detach()
            reason = self._reason or Failure(CONNECTION_DONE if exc is None else CONNECTION_LOST)
            # uvloop closes the descriptor when this returns.
            self.reactor.loop.call_soon(self.connectionLost, reason)

    def rest(self) -> None:
        """Read what has come before the connection broke; its descriptor is still open."""
        descriptor, left = self._uv.get_extra_info("socket").fileno(), REST
        while self.reading and left > 0:
            try:
                data = os.read(descriptor, MOST)
            except OSError:
                break
            if not data:
                break
            left -= len(data)
            self.data_received(data)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self.flush()

    # -- writing

    def write(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise TypeError("Data must be bytes")
        if self.connected and not self._halved and data:
            self._pending.append(data)
            self._size += len(data)
            self._wrote()

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        pieces = [piece for piece in iovec if piece]
        for piece in pieces:
            if not isinstance(piece, bytes):
                raise TypeError("Data must be bytes")
        if self.connected and not self._halved and pieces:
            self._pending += pieces
            self._size += sum(map(len, pieces))
            self._wrote()

    def _wrote(self) -> None:
        if not self._queued:
            self._queued = True
            self.reactor.soon(self)
        if self._size > MOST and not self._blocked:
            self._send()
        if self.producer is None or not self.streamingProducer:
            return
        if (self._size > self.bufferSize or self._blocked or self._elsewhere) and self.full():
            self.producerPaused = True
            self.producer.pauseProducing()

    def full(self) -> bool:
        """Whether a streaming producer is to wait."""
        return self.unsent() > self.bufferSize

    def unsent(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        return self._size + (int(self._uv.get_write_buffer_size()) if self._blocked else 0)

    def flush(self) -> None:
        """The turn is over, or the kernel has taken everything: send what is there, and see what comes next."""
        self._queued = False
        if self.connected and self._reason is None:
            if self._size and not self._blocked:
                self._send()
            if self.flushed is not None:
                try:
                    self.flushed(not (self._blocked or (self._elsewhere and self.unsent())))
                except Exception:
                    self.fail("flushed")
            if self.streamingProducer and not (self.producerPaused or self.disconnecting or self._half):
                return  # as nearly always
            if not self._blocked and self._reason is None:
                self._drained()

    def _send(self) -> None:
        pending, size, self._size = self._pending, self._size, 0
        if len(pending) == 1:
            self._uv.write(pending.pop())
        elif size <= MOST:
            data = b"".join(pending)
            pending.clear()
            self._uv.write(data)
        else:
            self._pending = []
            self._uv.writelines(pending)

    def _drained(self) -> None:
        if self.producer is not None and (self.producerPaused or not self.streamingProducer):
            self.producerPaused = False
            try:
                self.producer.resumeProducing()
            except Exception:
                self.fail("resumeProducing")
        elif self.disconnecting:
            self._uv.close()
        elif self._half and not self._halved:
            self._halve()

    def _drop(self) -> None:
        self._pending, self._size, self._held, self._blocked = [], 0, b"", False

    # -- IConsumer

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self.producer is not None:
            raise RuntimeError(
                f"Cannot register producer {producer}, because producer {self.producer} was never unregistered."
            )
        if self.disconnected:
            producer.stopProducing()
            return
        self.producer, self.streamingProducer = producer, streaming
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        self.producer = None
        if self.connected and self.disconnecting:
            self._soon()

    def stopConsuming(self) -> None:
        self.unregisterProducer()
        self.loseConnection()

    # -- IPushProducer: what is read

    def pauseProducing(self) -> None:
        self._paused = True
        if self.connected:
            self._uv.pause_reading()

    def resumeProducing(self) -> None:
        self._paused = False
        if self.reading:
            if self._held:
                self.reactor.loop.call_soon(self._release)  # never within a call of the protocol's
            else:
                self._uv.resume_reading()

    def stopProducing(self) -> None:
        self.loseConnection()

    stopReading, startReading = pauseProducing, resumeProducing

    def _release(self) -> None:
        if self.reading and self._held:
            data, self._held = self._held, b""
            self.data_received(data)
            if self.reading:
                self._uv.resume_reading()

    # -- ends

    def detach(self) -> Any:
        """Give uvloop's transport away, after what was written; this one is over, and its protocol hears of nothing."""
        if not self.connected:
            raise RuntimeError("the connection is lost")
        if self._size:
            self._send()
        uv, self.connected, self.disconnected, self.protocol = self._uv, False, True, None
        self.reactor.native.discard(self)
        if self._handle is not None:
            self._handle.detach()
        return uv

    def loseConnection(self) -> None:
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            self._held = b""
            self._uv.pause_reading()
            self._soon()

    def loseWriteConnection(self) -> None:
        if self.connected and not self._half:
            self._half = True
            self._soon()

    def _halve(self) -> None:
        self._halved = True
        self._uv.write_eof()
        half = IHalfCloseableProtocol(self.protocol, None)
        if half is not None:
            try:
                half.writeConnectionLost()
            except Exception:
                self.fail("writeConnectionLost")

    def abortConnection(self) -> None:
        if self.connected and self._reason is None:
            self._drop()
            self.option(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._end(Failure(ConnectionAborted()))

    def readConnectionLost(self, reason: Failure) -> None:
        self.connectionLost(reason)

    def writeConnectionLost(self, reason: Failure) -> None:
        self.connectionLost(reason)

    def connectionLost(self, reason: Failure) -> None:
        """It is over: said by uvloop, or by a reactor that stops.  The protocol is told once."""
        if self.disconnected:
            return
        self.connected, self.disconnected = False, True
        self._drop()
        self.reactor.native.discard(self)
        self._uv.abort()
        producer, protocol, self.producer, self.protocol = self.producer, self.protocol, None, None
        self.flushed = None
        try:
            if producer is not None:
                producer.stopProducing()
        except Exception:
            self._log.failure("stopProducing of {producer}", producer=producer)
        try:
            self.told(protocol, reason)
        except Exception:
            self._log.failure("connectionLost of {protocol}", protocol=protocol)

    def fail(self, what: str) -> None:
        """Application code raised: log it, and close with it as the reason."""
        reason = Failure()
        self._log.failure("{what} of {protocol}", reason, what=what, protocol=self.protocol)
        if self.protocol is None:
            self.protocol = Protocol()
        self._end(reason)

    def _end(self, reason: Failure) -> None:
        self._reason = self._reason or reason
        self._uv.abort()

    def _soon(self) -> None:
        if not self._queued:
            self._queued = True
            self.reactor.soon(self)

    # -- what the reactor asks

    @property
    def reading(self) -> bool:
        return self.connected and not (self._paused or self._eof or self.disconnecting)

    @property
    def writing(self) -> bool:
        return self.connected and (self._queued or self._blocked)

    # -- ISystemHandle, ILoggingContext

    def getHandle(self) -> Handle:
        if not self.connected:
            raise AttributeError("the connection is lost, and its socket gone")
        if self._handle is None:
            self._handle = Handle.of(self._uv)
        return self._handle

    socket = property(getHandle)

    def fileno(self) -> int:
        return int(self.socket.fileno()) if self.connected else -1

    def option(self, level: int, name: int, value: int | bytes) -> None:
        """Set an option of the socket, where there is a socket, and such an option."""
        if self.connected:
            with suppress(OSError):
                self.socket.setsockopt(level, name, value)

    def prefix(self) -> str:
        """What the protocol is called in the log."""
        protocol = self.protocol
        return str(protocol.logPrefix()) if ILoggingContext.providedBy(protocol) else type(protocol).__name__

    def logPrefix(self) -> str:
        return self.prefix()
