"""
What both sides share: the read loop, and how content is framed.

Rules
- One request at a time; what follows waits, at most L{AHEAD} bytes of it.  So pipelined commands are answered in order.
- All events of one read go into a body, in one write, before the message is handed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from protogate.connection import Connection
from protogate.errors import GATEWAY, Abort
from protogate.halves import OPEN, Half
from protogate_resp.wire import END, Reader

if TYPE_CHECKING:
    from protogate.context import Context

AHEAD: Final = 65536
"""Bytes that are read ahead."""


class Link(Connection):
    """
    @ivar half: the request under way, or None.
    @ivar fresh: its head was read, but it was not handed on yet.
    @ivar held: the body that is being read is paused.
    @ivar pieces: content that was read and is not in a body yet.
    @ivar heard: when something was read last.
    @ivar due: bytes that the body being written still owes; None = it has a frame of its own.
    @ivar parts: that body is written in parts.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.reader = Reader()
        self.half: Any = None
        self.fresh = self.held = self.parts = False
        self.pieces: list[bytes] = []
        self.due: int | None = None
        self.heard = self.now()
        self._looping = self._choked = False

    def halves(self) -> tuple[Half, ...]:
        return () if self.half is None else (self.half,)

    # -- for the sides to fill in

    def wants(self) -> bool:
        """Whether to go on reading."""
        raise NotImplementedError

    def take(self, kind: bytes, size: int | None, raw: bytes) -> None:
        """One event."""
        raise NotImplementedError

    def fire(self) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def bad(self, reason: Abort | str) -> None:
        """What was read is not as it should be."""
        raise NotImplementedError

    # -- reading

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self.heard = self.now()
        self.reader.feed(data)
        self.loop()

    def hold(self, on: bool) -> None:
        """The body that is being read was paused, or resumed."""
        self.held = on
        if not on:
            self.heard = self.now()  # the peer's clock stood still meanwhile
            self.watch(self.look())
            self.loop()

    def loop(self) -> None:
        """Turn what was read into events, until it is used up or must wait."""
        if self._looping:
            return
        self._looping = True
        self.cork()
        try:
            while not self.dead:
                event = self.reader.next() if self.fresh or self.wants() else None
                if event is not None:
                    self.take(*event)
                elif self.pieces:
                    self.pour()
                elif self.fresh:
                    self.fresh = False
                    self.fire()
                else:
                    break
        except Abort as reason:
            self.bad(reason)
        except ValueError as error:
            self.bad(str(error))
        finally:
            self._looping = False
            self.uncork()
        if (len(self.reader) > AHEAD) is not self._choked and not self.dead:
            self._choked = not self._choked
            (self.transport.pauseProducing if self._choked else self.transport.resumeProducing)()

    def pour(self) -> None:
        """What was read goes into the body."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        if data and self.half is not None:
            self.half.received(data)

    # -- writing

    def frame(self, size: int | None) -> None:
        """A string of that size follows; None = of a size that nobody knows yet."""
        self.due, self.parts = size, size is None
        self.put(b"$?\r\n" if size is None else b"$%d\r\n" % size)

    def give(self, half: Any, data: bytes) -> None:
        """Some bytes of a body."""
        if self.parts:
            data = b";%d\r\n%b\r\n" % (len(data), data)
        elif self.due is not None:
            self.due -= len(data)
            if self.due < 0:
                self._mismatch(half)
                return
        self.put(data)
        if self.full and half.outgoing is not None:
            half.outgoing.pauseProducing()

    def given(self, half: Any) -> None:
        """Its end."""
        if self.due:
            half.writing = OPEN
            self._mismatch(half)
        elif self.parts or self.due == 0:
            self.put(b";0\r\n" if self.parts else END)

    def _mismatch(self, half: Any) -> None:
        self.context.count("body_length_mismatch")
        if half.outgoing is not None:
            half.outgoing.stopProducing()
        half.abort(Abort("a body was not as long as it said", GATEWAY, 500))

    def end(self) -> None:
        super().end()
        self.half = None
