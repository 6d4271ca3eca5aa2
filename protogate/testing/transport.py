"""
Memory connections: transports with a bounded send buffer, joined in pairs, moved forward step by step.

    wire = Wire()                        one end alone: what was written stands in wire.value()
    link = Link(client, server)          two protocols, joined; link.step(7) carries 7 bytes each way
    net = Net(); net.link(a, b)          any number of links; net.run() goes on until all is quiet

Rules
- A L{Wire} does what C{twisted.internet.tcp} does, bad manners included.  It never refuses a write: beyond C{high}
  bytes it tells its producer to pause, at each write.  It resumes it when the buffer is empty.
- Who does not read learns nothing: neither bytes, nor FIN, nor RST cross a paused reader.
- loseConnection() stops reading, sends what is left, waits for a paused producer, then closes.  A peer that still has
  bytes on their way to a closed end gets a reset instead of a FIN (RFC 9293, 3.6.1).
- Two half-closes do not end a connection: somebody calls loseConnection(), or it stays for ever.
- After a half-close was read, resumeProducing() reads it again; after one was sent, loseConnection() ends at once.
- Else no call into a protocol is made inside its own calls to the transport, but pauseProducing() inside write().
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IProtocol,
    IPullProducer,
    IPushProducer,
    ITCPTransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

HIGH: Final = 65536
"""Bytes in the send buffer beyond which a producer is paused: what Twisted's own transports use."""
QUIET, FIN, RST = range(3)
ALL: Final = 1 << 62
"""As many bytes as there are."""
ROUNDS: Final = 1_000_000
"""Rounds after which L{Net.run} takes the connections for a machine that never stops."""

Address = IPv4Address | IPv6Address | UNIXAddress
"""Where an end of a connection is."""
CLIENT: Final = IPv4Address("TCP", "192.0.2.1", 54321)
SERVER: Final = IPv4Address("TCP", "198.51.100.1", 80)


@implementer(ITCPTransport, IPushProducer)
class Wire:
    """
    One end of a memory connection.

    @ivar peak: the most bytes that ever waited in the send buffer.
    @ivar writes: how often something was written.
    @ivar reading: whether the protocol wants to read.
    @ivar held: the producer was told to pause, and not yet to resume.
    @ivar closing: loseConnection() was called.
    @ivar fin: loseWriteConnection() was called.
    @ivar rst: abortConnection() was called.
    @ivar dead: connectionLost() was called: nothing comes in or goes out any more.
    @ivar on_lost: called with the Failure after the protocol's connectionLost(): for who counts connections.
    """

    def __init__(self, host: Address = SERVER, peer: Address = CLIENT, *, high: int = HIGH) -> None:
        self.host, self.peer, self.high = host, peer, high
        self.producer: IPushProducer | IPullProducer | None = None
        self.streaming = False
        self.size = self.peak = self.writes = 0
        self.reading = True
        self.held = self.closing = self.fin = self.rst = self.dead = False
        self.connected = True
        self.on_lost: Callable[[Failure], object] | None = None
        self._out: deque[memoryview] = deque()
        self._finish: Callable[[], object] | None = None  # set when the FIN is out: what loseConnection() is then
        self._nodelay = self._keepalive = False

    # -- for tests

    def unsent(self) -> int:
        """Bytes written that did not leave yet."""
        return self.size

    def value(self) -> bytes:
        """What was written and did not leave yet."""
        return b"".join(self._out)

    def pieces(self) -> list[bytes]:
        """The same, one item for each write."""
        return [bytes(piece) for piece in self._out]

    def take(self, most: int = ALL) -> bytes:
        """Up to C{most} bytes leave; an empty buffer resumes the producer."""
        parts: list[memoryview] = []
        while most and self._out:
            piece = self._out.popleft()
            if len(piece) > most:
                self._out.appendleft(piece[most:])
                piece = piece[:most]
            most -= len(piece)
            self.size -= len(piece)
            parts.append(piece)
        if not self._out:
            self._emptied()
        return b"".join(parts)

    def clear(self) -> None:
        """All bytes leave."""
        self.take()

    def lost(self, protocol: IProtocol, why: Exception) -> None:
        """The connection is gone: tell the producer, then the protocol; once."""
        if self.dead:
            return
        self.dead, self.connected, self.reading, self._finish = True, False, False, None
        self._drop()
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.stopProducing()
        failure = Failure(why)
        protocol.connectionLost(failure)
        if self.on_lost is not None:
            self.on_lost(failure)

    def _emptied(self) -> None:
        if self.producer is not None and (self.held or not self.streaming) and not self.dead:
            self.held = False
            self.producer.resumeProducing()

    def _drop(self) -> None:
        self._out.clear()
        self.size = 0

    # -- ITransport, ITCPTransport

    def write(self, data: bytes) -> None:
        """Take some bytes.  Does nothing after the end, like Twisted's."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a transport takes bytes, got {type(data).__name__}")
        if self.dead or self.fin or self.rst or not data:
            return
        self._out.append(memoryview(bytes(data)))
        self.writes += 1
        self.size += len(data)
        self.peak = max(self.peak, self.size)
        if self.size > self.high and self.producer is not None and self.streaming:
            self.held = True
            self.producer.pauseProducing()  # type: ignore[union-attr]

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Take some pieces."""
        self.write(b"".join(data))

    @property
    def disconnecting(self) -> bool:
        """As Twisted's own have it; L{LineReceiver} looks at it."""
        return self.closing

    def loseConnection(self) -> None:
        """Close once all is sent and the producer is not paused."""
        self.closing, self.reading = True, False
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()

    def loseWriteConnection(self) -> None:
        """Send what there is, then FIN."""
        self.fin = True

    def abortConnection(self) -> None:
        """Drop what there is; the peer sees a reset."""
        self.rst, self.reading = True, False
        self._drop()

    def getHost(self) -> Address:  # type: ignore[override]
        """Address of this end."""
        return self.host

    def getPeer(self) -> Address:  # type: ignore[override]
        """Address of the other end."""
        return self.peer

    def getTcpNoDelay(self) -> bool:
        """What setTcpNoDelay() set."""
        return self._nodelay

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Remembered only."""
        self._nodelay = bool(enabled)

    def getTcpKeepAlive(self) -> bool:
        """What setTcpKeepAlive() set."""
        return self._keepalive

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Remembered only."""
        self._keepalive = bool(enabled)

    # -- IConsumer

    def registerProducer(self, producer: IPushProducer | IPullProducer, streaming: bool) -> None:
        """One at a time; on a dead connection it is stopped at once."""
        if self.producer is not None:
            raise RuntimeError(
                f"cannot register {producer!r}: {self.producer!r} is registered and was never unregistered"
            )
        if self.dead:
            producer.stopProducing()
            return
        self.producer, self.streaming = producer, streaming
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """No producer; what it wrote is sent."""
        self.producer, self.held = None, False

    # -- IPushProducer: the protocol pauses its own reading

    def pauseProducing(self) -> None:
        """Deliver nothing for now."""
        self.reading = False

    def resumeProducing(self) -> None:
        """Deliver again."""
        if not (self.dead or self.closing or self.rst):
            self.reading = True

    def stopProducing(self) -> None:
        """What Twisted's do: close."""
        self.loseConnection()


class Link:
    """
    Two protocols, each on a L{Wire} of its own.

    @ivar ends: C{((protocol, wire), (protocol, wire))}, in the order given.
    """

    def __init__(
        self,
        a: IProtocol,
        b: IProtocol,
        *,
        client: Address = CLIENT,
        server: Address = SERVER,
        high: int = HIGH,
        wire: Callable[..., Wire] = Wire,
    ) -> None:
        """
        Connect C{a}, at address C{client}, to C{b}, at address C{server}.

        @param wire: makes a Wire from host, peer and C{high}.
        """
        self.ends = ((a, wire(client, server, high=high)), (b, wire(server, client, high=high)))
        self._owed = [QUIET, QUIET]  # what the other end must still hear of this one
        self._said = [False, False]  # its FIN is on the way
        for protocol, end in self.ends:
            protocol.makeConnection(end)

    @property
    def dead(self) -> bool:
        """Whether both ends know that it is over."""
        return self.ends[0][1].dead and self.ends[1][1].dead

    def step(self, most: int = ALL) -> bool:
        """Carry up to C{most} bytes each way, then FIN or RST; whether anything moved."""
        moved = self._carry(0, most)
        return self._carry(1, most) or moved

    def reset(self) -> None:
        """The network breaks: both ends lose the connection, at once."""
        for i in (0, 1):
            self._lose(i, ConnectionLost(), QUIET)

    def cut(self, end: int) -> None:
        """Only that end loses the connection, as when a host vanished: the other hears of it when it writes."""
        self._lose(end, ConnectionLost(), QUIET)

    def _lose(self, i: int, why: Exception, owed: int) -> None:
        protocol, wire = self.ends[i]
        if not wire.dead:
            self._owed[i] = owed
            wire.lost(protocol, why)

    def _carry(self, i: int, most: int) -> bool:
        (_, wire), (other, far) = self.ends[i], self.ends[1 - i]
        if wire.dead:
            return self._tell(i)
        if far.dead and wire.size:
            # The host of a closed socket answers a segment with RST (RFC 9293, 3.10.7.1); a FIN that came first is
            # read first.
            if not self._tell(1 - i):
                self._lose(i, ConnectionLost(), QUIET)
            return True
        moved = False
        if wire.size and far.reading:
            other.dataReceived(wire.take(most))
            moved = True
        return self._end(i) or self._tell(i) or moved

    def _end(self, i: int) -> bool:
        """What this end asked for is due: a reset at once, a close when all has left."""
        (protocol, wire), (_, far) = self.ends[i], self.ends[1 - i]
        if wire.dead:
            return False
        if wire.rst:
            self._lose(i, ConnectionAborted(), RST)
        elif wire.closing and not wire.size and not wire.held:
            self._lose(i, ConnectionDone(), RST if far.size else FIN)
        elif wire.fin and not wire.size and not self._said[i]:
            self._said[i], self._owed[i] = True, FIN
            wire._finish = partial(self._end, i)
            if IHalfCloseableProtocol.providedBy(protocol):
                protocol.writeConnectionLost()
        else:
            return False
        return True

    def _tell(self, i: int) -> bool:
        """The other end hears what it must still hear of this one, if it listens."""
        owed, (protocol, wire) = self._owed[i], self.ends[1 - i]
        if owed == QUIET or wire.dead or not (wire.reading or (owed == RST and wire.size)):
            return False
        if owed == RST:
            self._lose(1 - i, ConnectionLost(), QUIET)
        elif IHalfCloseableProtocol.providedBy(protocol):
            wire.reading = False
            protocol.readConnectionLost()
        else:
            self._lose(1 - i, ConnectionDone(), FIN)
        return True


class Net:
    """
    Any number of links, moved together.

    @ivar links: the links that are not dead.
    @ivar most: bytes that each step carries each way.
    """

    def __init__(self, most: int = ALL) -> None:
        self.most = most
        self.links: list[Link] = []
        self._later: list[Callable[[], object]] = []

    def link(self, a: IProtocol, b: IProtocol, *, client: Address = CLIENT, server: Address = SERVER) -> Link:
        """Connect two protocols."""
        return self.add(Link(a, b, client=client, server=server))

    def add(self, link: Link) -> Link:
        """One more link to move."""
        self.links.append(link)
        return link

    def turn(self, function: Callable[[], object]) -> None:
        """Call C{function} at the next turn, as C{callLater(0, function)} would."""
        self._later.append(function)

    def step(self) -> bool:
        """One turn: what waits for it, then one step of each link; whether anything happened."""
        later, self._later = self._later, []
        for function in later:
            function()
        moved = bool(later)
        for link in list(self.links):
            moved = link.step(self.most) or moved
        self.links = [link for link in self.links if not link.dead]
        return moved

    def run(self, rounds: int | None = None, until: Callable[[], bool] | None = None) -> None:
        """
        Step until nothing moves, until C{until()} is true, or C{rounds} times.

        Raises C{AssertionError} when no C{rounds} were given and it never comes to rest.
        """
        for _ in range(ROUNDS if rounds is None else rounds):
            moved = self.step()
            if not moved or (until is not None and until()):
                return
        if rounds is None:
            raise AssertionError(f"the links still move after {ROUNDS} rounds")
