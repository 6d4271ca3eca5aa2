"""
What the connections of all codecs share: collected writes, pausing in both directions, clocks, and the ways to end.

Rules
- Writes are collected between cork() and uncork(), so that a message goes out in one system call.  Each read is handled
  corked, and so are the first bytes of each message.
- On a TCP transport of Twisted's own, what all connections write in one turn of the loop is sent when the turn is over:
  L{send}.  A peer that is woken once takes all that is for it, instead of being woken for each.
- One L{protogate.wheel.Timer} a connection.  watch() arms it only when it would fire too late, and tick() looks at
  every clock when it does: what starts a clock costs a comparison.
- Every end has a deadline: a peer that does not take the rest is aborted when it took nothing for the stall time.
- Whoever closes while the peer may still be sending lingers: a reset would destroy what it has not read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import update_wrapper
from inspect import getattr_static
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ILoggingContext, IProtocol, IPushProducer, ISSLTransport
from twisted.internet.tcp import Client, Server
from twisted.python.failure import Failure
from zope.interface import classImplements

from protogate.context import Context
from protogate.errors import Abort

if TYPE_CHECKING:
    from protogate.halves import Half

MOST: Final = 65536
"""Collected bytes that are written without waiting for uncork()."""
COPIED: Final = 16384
"""Bytes from which on a piece is not joined to others but handed on by itself: that costs less than to copy it."""
PATIENCE: Final = 30.0
"""Seconds until a closing connection is aborted where the stall clock is off."""
LINGER: Final = 5.0
"""Seconds without a byte after which a closed connection stops reading."""
LINGER_MOST: Final = 30.0
"""Seconds after which it does so in any case."""
LINGER_BYTES: Final = 1 << 25
"""Bytes that it reads and throws away meanwhile."""
LOOKS: Final = 8
"""How often within a stall time somebody looks whether bytes moved."""


def _nowhere(data: bytes | list[bytes]) -> None:
    """Where a connection that is lost writes to."""


def small(pieces: list[bytes], size: int) -> bool:
    """Whether pieces, of so many bytes together, are mostly so small that they are better joined."""
    return size <= COPIED * (len(pieces) - 1)


Kind = TypeVar("Kind", bound=type)


def specialised(kind: Kind) -> Kind:
    """
    Decorate the most derived class of a connection, or of a half: what it inherits becomes code of its own.

    CPython adapts bytecode to the types that it sees at each place.  In a method that a server's and a client's class
    share it sees two, and adapts to neither: that costs a gateway 5 % of its time.
    """
    own = vars(kind)
    for name in {name for base in kind.__mro__ for name in vars(base)} - set(own):
        found = getattr_static(kind, name)
        if type(found) is FunctionType and not found.__module__.startswith("twisted."):
            code = found.__code__.replace()
            copy = FunctionType(code, found.__globals__, found.__name__, found.__defaults__, found.__closure__)
            copy.__kwdefaults__ = found.__kwdefaults__
            setattr(kind, name, update_wrapper(copy, found))
    return kind


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """
    @ivar context: clocks, limits and counters.
    @ivar closed: fires with None when the connection is gone.
    @ivar full: the transport does not want more for now.
    @ivar draining: no new requests.
    @ivar dead: nothing can be written any more.
    @ivar lingering: all was said, only reading goes on.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.transport: Any = None
        self.factory: Any = None  # for Twisted's Factory to set
        self._write: Callable[[bytes], None] = _nowhere
        self._writes: Callable[[list[bytes]], None] = _nowhere
        self.full = self.draining = self.dead = self.lingering = False
        self.now = context.wheel.now
        self.closed: Deferred[None] = Deferred()
        self.timer = context.wheel.timer(self._rings)
        self._due = inf  # when the timer fires
        self._corks = self._size = 0
        self._out: list[bytes] = []
        self._turn: list[bytes] = []  # to be sent when this turn of the loop is over …
        self._waiting = 0  # … and how many bytes that are
        self._hears = False  # flushed() is called after each write
        self._written = 0  # bytes given to the transport
        self._flushed: int | None = None  # of these, flushed when somebody looked last; None = nothing was waiting
        self._moved = 0.0  # when that number changed last
        self._left = 0  # while lingering: bytes that may still be thrown away,
        self._until = self._heard_at = 0.0  # when that ends, and when something was read last
        self._broken = False  # dead, and dropped as soon as this turn's bytes have left
        self._doubted = -1.0  # since when nothing was heard, when that was found to be too long

    @property
    def busy(self) -> int:
        """Requests under way."""
        return len(self.halves())

    # -- for the codec to fill in

    def dataReceived(self, data: bytes) -> None:
        """Twisted: something was read."""
        raise NotImplementedError

    def halves(self) -> Collection[Half]:
        """The requests under way."""
        raise NotImplementedError

    def gone(self, half: Half) -> Abort:
        """The Abort for a half whose connection is lost."""
        raise NotImplementedError

    def drain(self) -> None:
        """Take no new request; close when the current ones have ended."""
        raise NotImplementedError

    def late(self, now: float) -> float:
        """Look at every clock; returns seconds until somebody must look again, C{inf} when no clock runs."""
        raise NotImplementedError

    def patience(self) -> float:
        """Seconds without a flushed byte after which the peer is given up; 0 = off."""
        raise NotImplementedError

    # -- writing

    def makeConnection(self, transport: Any) -> None:
        """Twisted."""
        self.transport = transport
        self.connectionMade()

    def logPrefix(self) -> str:
        """Twisted."""
        return type(self).__name__

    def connectionMade(self) -> None:
        transport = self.transport
        # Exactly these: what else is derived from them (TLS, UNIX sockets) writes in a way of its own.
        own = type(transport) in (Client, Server) and not transport.TLS
        self._write, self._writes = (
            (self._collect, self._collects) if own else (transport.write, transport.writeSequence)
        )
        if hasattr(transport, "flushed"):  # that of protogate.reactor collects by itself, and tells
            transport.flushed = self.flushed
            self._hears = True
        transport.registerProducer(self, True)

    def _collect(self, data: bytes) -> None:
        late = self._turn
        late.append(data)
        self._waiting += len(data)
        if self._waiting > MOST:
            self.send()
        elif len(late) == 1:
            self.context.wheel.soon(self.send)

    def _collects(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._collect(piece)

    def send(self) -> None:
        """
        Give what waits for the end of the turn to the kernel, now.  The transport would register for writing, wait for
        a turn of the loop, write, and deregister, which costs more than the write: it gets what the kernel left.
        """
        late, size = self._turn, self._waiting
        if not late:
            return
        self._turn, self._waiting = [], 0
        if len(late) > 1 and small(late, size):
            late = [b"".join(late)]
        sent, transport = 0, self.transport
        if not (transport.dataBuffer or transport._tempDataLen or transport.disconnecting) and transport.connected:
            try:
                sent = transport.socket.send(late[0]) if len(late) == 1 else transport.socket.sendmsg(late)
            except OSError:
                sent = 0  # full, or lost: the transport finds out by itself, and tells in its own time
        if sent != size:
            transport.write((late[0] if len(late) == 1 else b"".join(late))[sent:])
        self.flushed(sent == size)

    def flushed(self, whole: bool) -> None:
        """For the codec: what was written in this turn is with the kernel, or part of it still with the transport."""

    def put(self, data: bytes) -> None:
        """Write, now or when uncorked."""
        if self._corks:
            self._out.append(data)
            self._size += len(data)
            if self._size > MOST:
                self.flush()
        elif not self.dead:
            self._written += len(data)
            self._write(data)

    def cork(self) -> None:
        """Collect what is written until as many uncork()."""
        self._corks += 1

    def uncork(self) -> None:
        """See cork()."""
        self._corks -= 1
        if not self._corks:
            self.flush()

    def flush(self) -> None:
        """Give what was collected to the transport."""
        out = self._out
        if out:
            size, self._out, self._size = self._size, [], 0
            if not self.dead:
                self._written += size
                if len(out) == 1:
                    self._write(out[0])
                elif small(out, size):
                    self._write(b"".join(out))
                else:
                    self._writes(out)

    def unsent(self) -> int:
        """Bytes written to the transport that the kernel has not taken yet."""
        transport = self.transport
        unsent = getattr(transport, "unsent", None)
        if unsent is not None:
            return self._waiting + int(unsent())
        buffer = getattr(transport, "dataBuffer", None)
        if buffer is not None:  # twisted.internet.abstract.FileDescriptor
            return self._waiting + int(len(buffer) - transport.offset + transport._tempDataLen)
        return 1 if self.full else 0

    def stalled(self, now: float) -> float:
        """Seconds for which the peer took nothing although something was waiting."""
        unsent = self.unsent()
        flushed = self._written - unsent if unsent else None
        if flushed is None or flushed != self._flushed:
            self._flushed, self._moved = flushed, now
        return now - self._moved

    # -- the transport's producer

    def pauseProducing(self) -> None:
        self.full = True
        for half in list(self.halves()):
            if half.outgoing is not None:
                half.outgoing.pauseProducing()
        self.stalled(self.now())
        self.watch(self.look())

    def resumeProducing(self) -> None:
        self.full = False
        for half in list(self.halves()):
            if not self.full and half.outgoing is not None:
                half.outgoing.resumeProducing()

    def stopProducing(self) -> None:
        """connectionLost says the same."""

    # -- clocks

    def look(self) -> float:
        """Seconds between two looks at a stall; C{inf} where that clock is off."""
        return (self.patience() or inf) / LOOKS

    def watch(self, delay: float) -> None:
        """Have late() called in at most so many seconds."""
        if delay != inf:
            due = self.now() + delay
            if due < self._due:
                self._due = due
                self.timer.set(delay)

    def silent(self, since: float) -> bool:
        """
        Whether the peer, who has been silent since then for as long as he may be, really is: a loop that is far behind
        has not read yet what came in time.  No at first; yes when somebody looks again, for a turn of the loop lies
        between two looks, and it reads all there is.
        """
        before, self._doubted = self._doubted, since
        return before == since

    def _rings(self) -> None:
        self._due = inf
        now, dead = self.now(), self.dead
        if not dead:
            delay = self.late(now)
            if self.dead:  # then its end has set the timer
                return
        elif self.lingering:
            delay = min(self._heard_at + LINGER, self._until) - now
            if delay <= 0:
                self._leave()
                return
        else:
            patience = self.patience() or PATIENCE
            if self._broken or self.stalled(now) >= patience:
                self.transport.abortConnection()
                return
            delay = patience / LOOKS
        self.watch(max(delay, 0.0))

    # -- ends

    def close(self) -> None:
        """Everything was said: send it, then close."""
        if not self.dead:
            self.flush()
            self.send()
            self.dead = True
            self.transport.unregisterProducer()
            self._leave()

    def linger(self) -> None:
        """Everything was said, but the peer may not have stopped: send it, read on for a while, then close."""
        if self.dead:
            return
        transport = self.transport
        lose = None if ISSLTransport.providedBy(transport) else getattr(transport, "loseWriteConnection", None)
        self.flush()
        self.send()
        self.dead = self.lingering = True
        self._left, self._heard_at = LINGER_BYTES, self.now()
        self._until = self._heard_at + LINGER_MOST
        transport.unregisterProducer()
        transport.resumeProducing()
        if lose is not None:
            lose()
        self._due = inf
        self.watch(LINGER)

    def discard(self, data: bytes) -> None:
        """Something was read on a dead connection."""
        if self.lingering:
            self._left, self._heard_at = self._left - len(data), self.now()
            if self._left < 0:
                self.lingering = False
                self.transport.abortConnection()

    def _leave(self) -> None:
        """Close for good, and see to it that this comes to an end."""
        self.lingering = False
        self.stalled(self.now())
        self._due = inf
        self.watch((self.patience() or PATIENCE) / LOOKS)
        self.transport.loseConnection()

    def abort(self) -> None:
        """Drop everything now."""
        if not self.dead or self.lingering:
            self.dead, self.lingering = True, False
            self._drop()
            self.transport.unregisterProducer()
            self.transport.abortConnection()
        elif self.unsent():  # closed, but the peer takes its time
            self.transport.abortConnection()
        self.end()

    def break_off(self) -> None:
        """
        As abort(), behind what was written in this turn, if the peer takes it at once: the last words of a tunnel are
        seen before its reset.
        """
        if not self.dead:
            self.flush()
            self.send()
            if self.unsent():
                self.dead = self._broken = True
                self.transport.unregisterProducer()
                self.transport.pauseProducing()
                self._due = inf
                self.watch(0.0)
                self.end()
                return
        self.abort()

    def _drop(self) -> None:
        self._out, self._waiting = [], 0
        self._turn.clear()

    def end(self) -> None:
        """Every request under way ends here."""
        for half in list(self.halves()):
            half.lost(self.gone(half))

    def connectionLost(self, reason: Failure) -> None:
        self.dead, self.lingering = True, False
        self._drop()
        self._write = self._writes = _nowhere
        self.timer.end()  # with these two nothing of it refers to itself
        self.end()
        if not self.closed.called:
            self.closed.callback(None)


classImplements(Connection, IProtocol, ILoggingContext, IPushProducer)
