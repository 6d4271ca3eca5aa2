"""
What both sides of an HTTP/1 connection share: the read loop, the framing of what is written, half-close.

Rules
- One request at a time.  All events of one read are fed into its body before the message is handed on.
- The read loop is never nested: what it calls may write, pause, resume or end the connection.
- A paused body does not pause the transport at once, but L{AHEAD} bytes later: who does not read never learns that the
  peer left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import IHalfCloseableProtocol
from zope.interface import classImplements

from protogate.connection import COPIED, Connection
from protogate.errors import GATEWAY, Abort
from protogate.halves import OPEN, Half
from protogate.interfaces import IConnection
from protogate.message import Field
from protogate_http.semantics import admitted, trailing
from protogate_http.wire1 import Bad, Head, Reader

if TYPE_CHECKING:
    from protogate.context import Context


AHEAD: Final = 65536
"""Bytes that are read ahead of what may be passed on."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Stream(Connection):
    """
    @ivar wire: the reading direction.
    @ivar fresh: its head was read, but it has not been handed on yet.
    @ivar deaf: what comes is not looked at any more.
    @ivar chunked: @ivar left: framing of the message being written: chunked, or bytes still due, or neither.
    """

    def __init__(self, context: Context, wire: Reader) -> None:
        super().__init__(context)
        self.wire = wire
        self.fresh = self.deaf = self.chunked = False
        self.left: int | None = None
        self._looping = False
        self._stalled = False  # the transport is paused
        self._held = False  # the body being read is paused
        self._read = 0.0  # when something was read last, or might have been again

    def halves(self) -> tuple[Half, ...]:
        half = self.current()
        return () if half is None else (half,)

    # -- for the sides to fill in

    def current(self) -> Half | None:
        """The request under way."""
        raise NotImplementedError

    def forget(self) -> None:
        """There is none any more."""
        raise NotImplementedError

    def wants(self) -> bool:
        """Whether to go on reading."""
        raise NotImplementedError

    def headed(self, head: Head) -> None:
        """A head was read."""
        raise NotImplementedError

    def got(self, data: bytes) -> None:
        """Some bytes of a body were read."""
        raise NotImplementedError

    def tail(self, trailers: list[Field] | None) -> None:
        """The message that was being read is complete."""
        raise NotImplementedError

    def fire(self) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def bad(self, error: Bad) -> None:
        """What was read is no HTTP."""
        raise NotImplementedError

    def eof(self) -> None:
        """The peer will send no more, and that is no half-close of a tunnel."""
        raise NotImplementedError

    def rest(self) -> None:
        """The read loop ends."""

    # -- reading

    def hold(self, on: bool) -> None:
        """The body pauses, or resumes, what we read."""
        if on:
            self._held = True
            return
        if self._held:
            self._held = False
            self._read = self.now()  # the peer's clock stood still meanwhile
        if not self._looping:
            self.loop()

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self._read = self.now()
        if self.deaf:
            self.ignored(data)
            return
        self.wire.feed(data)
        if not self._looping:
            self.loop()

    def ignored(self, data: bytes) -> None:
        """Something came that is not looked at any more."""

    def loop(self) -> None:
        """Turn what was read into events, until it is used up or must wait."""
        self._looping = True
        self._corks += 1
        wire = self.wire
        try:
            while not self.dead:
                event = wire.next() if (self.fresh or self.wants()) and not self.deaf else None
                if event is not None:
                    if isinstance(event, Head):
                        self.headed(event)
                    elif isinstance(event, bytes):
                        self.got(event)
                    else:
                        self.tail(admitted(event.trailers))
                    if wire.whole:
                        wire.whole = False
                        self.tail(None)
                elif self.fresh:
                    self.fresh = False
                    self.fire()
                else:
                    self.rest()
                    break
        except Bad as error:
            self.bad(error)
        finally:
            self._looping = False
            self.uncork()
        if (wire.pending() > AHEAD) is not self._stalled and not self.dead:
            self._stall()

    def _stall(self) -> None:
        """Too much is waiting, or no longer."""
        self._stalled = not self._stalled
        if self._stalled:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def drained(self) -> None:
        """The peer sends no more: what was read and waits goes into the body, which holds it (L{AHEAD} at most)."""
        for _ in range(2):  # the first write that cannot pass pauses us, once
            half = self.current()
            if half is not None and half.reading == OPEN and self.wire.pending() and not self._looping:
                self._held = False
                self.loop()

    # -- writing

    def body_out(self, half: Half, data: bytes) -> None:
        """Bytes of the body that is being written."""
        if self.chunked:
            if len(data) < COPIED:
                self.put(b"%x\r\n%b\r\n" % (len(data), data))
            else:
                self.cork()
                self.put(b"%x\r\n" % len(data))
                self.put(data)
                self.put(b"\r\n")
                self.uncork()
        else:
            left = self.left
            if left is not None:
                self.left = left = left - len(data)
                if left < 0:
                    self.mismatch(half)
                    return
            self.put(data)
        if self.full and half.outgoing is not None:
            half.outgoing.pauseProducing()

    def body_end(self, half: Half, trailers: Sequence[Field] | None) -> None:
        """Its end."""
        if self.chunked:
            self.put(b"".join((b"0\r\n", *trailing(trailers, self.context.count), b"\r\n")))
        elif half.tunnel:
            self.shut()
        elif self.left:
            half.writing = OPEN
            self.mismatch(half)

    def mismatch(self, half: Half) -> None:
        """A body that is not as long as it said (a faulty module): the peer must not take what follows for content."""
        self.context.count("body_length_mismatch")
        outgoing, half.outgoing = half.outgoing, None
        if outgoing is not None:
            outgoing.stopProducing()
        half.abort(Abort("a body was not as long as it said", GATEWAY, 500))

    # -- closing

    def shut(self) -> None:
        """Half-close, if the transport can."""
        lose = getattr(self.transport, "loseWriteConnection", None)
        if lose is None:
            self.close()
            return
        self.flush()
        self.send()
        self.transport.unregisterProducer()
        lose()

    def writeConnectionLost(self) -> None:
        """Our half is closed, as we wanted."""

    def readConnectionLost(self) -> None:
        if self.dead:
            if self.lingering:
                self._leave()
            return
        self.drained()
        half = self.current()
        if half is not None and half.tunnel and half.reading == OPEN:
            half.ended()
        elif not self.dead:
            self.eof()

    def end(self) -> None:
        half = self.current()
        self.forget()
        if half is not None:
            half.lost(self.gone(half))


classImplements(Stream, IConnection, IHalfCloseableProtocol)
