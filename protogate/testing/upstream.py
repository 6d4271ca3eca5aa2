r"""
Ends that know no protocol: they send the bytes they are told to and record the bytes they get.

    upstream = Upstream([Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
    reactor.listenTCP(80, upstream)             # afterwards: upstream.received, upstream.connections

A script is a sequence of bytes to send, L{Expect}, and of one L{Do}, as the last.  One that ran to its end starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.testing.transport import Wire


class Do(Enum):
    """How a script ends a connection."""

    CLOSE = "close"
    FIN = "fin"
    """Half-close: no more is sent, but all is read."""
    RESET = "reset"
    SILENCE = "silence"
    """Stay, and never say anything again."""


class Expect:
    """Go on when these bytes have come, behind those that were expected before."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker


Script = Sequence[bytes | Expect | Do]


@implementer(IHalfCloseableProtocol)
class Raw(Protocol):
    """
    One end of a connection.

    @ivar received: every byte that came.
    @ivar eof: the other end has half-closed or closed.
    @ivar lost: why the connection is gone, or None while it stands.
    """

    transport: Wire

    def __init__(self, script: Script = ()) -> None:
        self.received = b""
        self.eof = False
        self.lost: BaseException | None = None
        self._script = script
        self._at = 0  # in the script
        self._seen = 0  # bytes of received that were expected

    def send(self, data: bytes) -> None:
        """Write."""
        self.transport.write(data)

    def finish(self) -> None:
        """Half-close."""
        self.transport.loseWriteConnection()

    def close(self) -> None:
        """Close well."""
        self.transport.loseConnection()

    def reset(self) -> None:
        """Close badly."""
        self.transport.abortConnection()

    def take(self) -> bytes:
        """What came since this was called last."""
        data, self.received, self._seen = self.received, b"", 0
        return data

    # -- Twisted

    def connectionMade(self) -> None:
        """Twisted."""
        self._play()

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        self.received += data
        self._play()

    def readConnectionLost(self) -> None:
        """Twisted."""
        self.eof = True

    def writeConnectionLost(self) -> None:
        """Twisted."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self.eof, self.lost = True, reason.value

    def _play(self) -> None:
        script = self._script
        while script:
            step = script[self._at]
            if isinstance(step, Expect):
                found = self.received.find(step.marker, self._seen)
                if found < 0:
                    return
                self._seen = found + len(step.marker)
            elif isinstance(step, Do):
                self._script = ()
                self._end(step)
                return
            else:
                self.send(step)
            self._at += 1
            if self._at == len(script):
                self._at = 0

    def _end(self, how: Do) -> None:
        if how is Do.CLOSE:
            self.close()
        elif how is Do.FIN:
            self.finish()
        elif how is Do.RESET:
            self.reset()


class Upstream(Factory):
    """
    Listens, plays scripts, records.

    @ivar connections: one L{Raw} for each connection, in the order they came.
    """

    noisy = False

    def __init__(self, *scripts: Script) -> None:
        """The n-th connection plays the n-th script, all further ones the last."""
        for script in scripts:
            if script and not any(isinstance(step, Expect | Do) for step in script):
                raise ValueError("a script that waits for nothing would never end: it wants an Expect, or a Do")
        self.scripts: tuple[Script, ...] = scripts or ((),)
        self.connections: list[Raw] = []

    @property
    def received(self) -> list[bytes]:
        """Every byte of each connection."""
        return [connection.received for connection in self.connections]

    def buildProtocol(self, addr: IAddress | None) -> Raw:
        """Twisted."""
        connection = Raw(self.scripts[min(len(self.connections), len(self.scripts) - 1)])
        self.connections.append(connection)
        return connection
