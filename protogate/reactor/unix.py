"""
UNIX sockets: the same as TCP, and descriptors beside the bytes.

Rules
- Descriptors are sent by every connection.
- They are received by a protocol that provides C{IFileDescriptorReceiver}, and by no other: uvloop reads with C{read},
  and the kernel closes what comes along.  Such a protocol gets Twisted's own transport, on uvloop's polls.  With TLS
  there are no descriptors.

Must not know: any protocol.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Final

from twisted.internet import unix
from twisted.internet.address import UNIXAddress
from twisted.internet.error import FileDescriptorOverrun
from twisted.internet.interfaces import IFileDescriptorReceiver, INegotiated, ITLSTransport, IUNIXTransport
from twisted.internet.main import CONNECTION_LOST
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.reactor.attempts import HandsOver
from protogate.reactor.openssl import StartTLS
from protogate.reactor.ports import Accepting
from protogate.reactor.streams import TCP, Accepted, Dialled, SecuredAccepted, SecuredDialled
from protogate.reactor.tls import TLS

DESCRIPTORS: Final = 64
"""That wait to be sent before a streaming producer is paused; as in Twisted."""


class UNIX(TCP):
    """What is particular about UNIX sockets; to Twisted they are TCP in all else."""

    def where(self, name: Any) -> Any:
        return UNIXAddress(name or None)

    def getHost(self) -> Any:
        return self.where(self._raw.get_extra_info("sockname"))

    @property
    def hostname(self) -> Any:
        return self._raw.get_extra_info("sockname") or None

    def getTcpNoDelay(self) -> bool:
        return False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is no such thing; Twisted ignores it, too."""


@implementer(IUNIXTransport)
class Descriptors(UNIX):
    """A connection that can send descriptors."""

    _descriptors: list[int]
    _waiting: int | None = None  # a duplicate, while the kernel takes no more
    _elsewhere = True

    def connection_made(self, uv: Any) -> None:
        self._descriptors = []
        super().connection_made(uv)

    def sendFileDescriptor(self, fileno: int) -> None:
        if self.connected and not self._halved:
            self._descriptors.append(fileno)
            self._wrote()

    def full(self) -> bool:
        return len(self._descriptors) > DESCRIPTORS or super().full()

    def flush(self) -> None:
        if self._descriptors and self.connected and not self._blocked and self._reason is None:
            self._queued = False
            self._pass()
        super().flush()

    def _pass(self) -> None:
        """
        Send each descriptor with a byte of its own, as Twisted does.  uvloop holds nothing now, or we would be blocked.
        """
        data, at = b"".join(self._pending), 0
        if len(self._descriptors) > len(data):
            self._drop()
            self._end(Failure(FileDescriptorOverrun()))
            return
        try:
            for descriptor in self._descriptors:
                socket.send_fds(self.socket, [data[at : at + 1]], [descriptor])
                at += 1
        except BlockingIOError:
            self._wait()
        except OSError:
            self._end(Failure(CONNECTION_LOST))
        del self._descriptors[:at]
        self._pending, self._size = [data[at:]], len(data) - at

    def _wait(self) -> None:
        self._blocked = True
        self._waiting = os.dup(self.fileno())  # uvloop polls no descriptor that it reads
        self.reactor.loop.add_writer(self._waiting, self._writable)

    def _writable(self) -> None:
        self._forget()
        self.resume_writing()

    def _forget(self) -> None:
        if self._waiting is not None:
            self.reactor.loop.remove_writer(self._waiting)
            os.close(self._waiting)
            self._waiting = None

    def _drop(self) -> None:
        self._descriptors = []
        self._forget()
        super()._drop()


@implementer(ITLSTransport)
class Server(Descriptors, Accepted, StartTLS):
    """A server's."""

    def begin(self, protocol: Any) -> None:
        if IFileDescriptorReceiver.providedBy(protocol):
            self._yield(protocol)
        else:
            super().begin(protocol)

    def _yield(self, protocol: Any) -> None:
        """Make way for Twisted's own transport."""
        sock = socket.socket(fileno=os.dup(self.fileno()))
        self.disconnected = True
        self.reactor.native.discard(self)
        self._uv.abort()
        protocol.makeConnection(unix.Server(sock, protocol, self._name, self.server, self.sessionno, self.reactor))

    def __repr__(self) -> str:
        return f"<{type(self.protocol).__name__} #{self.sessionno} on {self.hostname}>"


@implementer(ITLSTransport)
class Client(Dialled, Descriptors, StartTLS):
    """A client's; its attempt has built the protocol."""

    _tlsClientDefault = True

    def build(self) -> Any:
        protocol = self._attempt.built
        self._attempt.connected, self._attempt = True, None
        self.connector.transport = self
        return protocol

    def getHost(self) -> Any:
        return UNIXAddress(None)


@implementer(INegotiated)
class TLSServer(UNIX, SecuredAccepted):
    """A server's, with TLS."""


@implementer(INegotiated)
class TLSClient(SecuredDialled, UNIX):
    """A client's, with TLS."""


class Port(Accepting, unix.Port):  # type: ignore[misc]
    """A listening UNIX socket."""

    plain = Server
    secured = TLSServer


class Attempt(HandsOver, unix.Client):
    """
    To connect to a UNIX socket.

    @ivar built: the protocol, where there is no TLS to come before it.
    """

    plain = Client
    secured = TLSClient
    built: Any = None

    def _connectDone(self) -> None:
        if self.connector.tls is None:
            self.built = self.connector.buildProtocol(self.getPeer())
            if IFileDescriptorReceiver.providedBy(self.built):
                self._keep(self.built)
                return
        super()._connectDone()

    def _keep(self, protocol: Any) -> None:
        """What Twisted's does when it is connected."""
        self.protocol, self.connected = protocol, 1
        self.logstr = f"{self._getLogPrefix(protocol)},client"
        self.startReading()
        protocol.makeConnection(self)


class Connector(unix.Connector):
    """
    Twisted's, for L{Attempt}.

    @ivar tls: given for TLS of uvloop's.
    """

    tls: TLS | None = None
    name = ""

    def _makeTransport(self) -> Any:
        return Attempt(self.address, self, self.reactor, self.checkPID)
