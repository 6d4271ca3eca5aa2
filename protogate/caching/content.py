"""
The content of an answer on its way into the memory: one source, any number of readers, each at its own pace.

Rules
- Pieces are kept as they came; nobody copies them.
- The source is read ahead, as far as there is room for the content.  What turns out to be too large is no longer kept:
  it flows on to the one reader that it has, at that reader's pace.
- Only content whose length is known beforehand has several readers before it is complete: it is known to fit.
- A reader that leaves harms no other; when the last one has left, the source is stopped, unless somebody wants the
  content for its own sake.
- Content that breaks off is never complete: everybody who has begun to read it is told, and it is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from zope.interface import implementer

from protogate.errors import GATEWAY, Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field

DESERTED: Final = Abort("nobody read the answer any more", GATEWAY, 503)
PIECE: Final = 64
"""Bytes that a piece takes besides those in it."""


class Content:
    """
    @ivar length: in bytes; None as long as only its end will tell.
    @ivar size: bytes that are there.
    @ivar pieces: what is there.
    @ivar complete: all of it is.
    @ivar trailers: those of complete content.
    """

    __slots__ = ("_readers", "complete", "fill", "length", "pieces", "reason", "size", "trailers")

    def __init__(self, length: int | None = None) -> None:
        self.length, self.size = length, 0
        self.pieces: list[bytes] = []
        self.complete = False
        self.trailers: Sequence[Field] | None = None
        self.reason: Abort | None = None
        self.fill: Fill | None = None
        self._readers: list[Copy] = []

    @classmethod
    def of(cls, pieces: list[bytes]) -> Content:
        """Complete content."""
        made = cls(sum(map(len, pieces)))
        made.pieces, made.complete, made.size = pieces, True, made.length or 0
        return made

    def copy(self) -> Copy:
        """A body for one more reader.  Only before anything was let go of."""
        copy = Copy(self)
        if not self.complete and self.reason is None:
            self._readers.append(copy)
        return copy

    @property
    def readers(self) -> int:
        """How many wait for more of it."""
        return len(self._readers)

    # -- for the fill

    def more(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)
        for reader in self._readers[:]:
            reader.go()

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.complete, self.trailers, self.fill = True, trailers, None
        self.length = self.size
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.go()

    def fail(self, reason: Abort) -> None:
        self.reason, self.fill = reason, None
        self.pieces = []
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.fail(reason)

    # -- for the readers

    def let_go(self, reader: Copy) -> None:
        """It has left before the end."""
        if reader in self._readers:
            self._readers.remove(reader)
            if self.fill is not None and not self._readers:
                self.fill.deserted()


@implementer(IBody)
class Copy:
    """A body that reads some content from its beginning on."""

    __slots__ = ("_at", "_busy", "_content", "_paused", "_sink", "attached", "length")

    def __init__(self, content: Content) -> None:
        self.length: int | None = content.length
        self.attached = self._paused = self._busy = False
        self._content: Content | None = content
        self._at = 0
        self._sink: ISink | None = None

    def attach(self, sink: ISink) -> None:
        if self.attached:
            raise RuntimeError("a body flows once")
        self.attached, self._sink = True, sink
        self.go()

    def pauseProducing(self) -> None:
        self._paused = True
        content = self._content
        if content is not None and content.fill is not None:
            content.fill.paused(self._sink is not None)

    def resumeProducing(self) -> None:
        self._paused = False
        self.go()

    def stopProducing(self) -> None:
        content, self._content = self._content, None
        self.attached, self._sink = True, None
        if content is not None:
            content.let_go(self)

    def go(self) -> None:
        """Give what may be given."""
        content = self._content
        if self._busy or content is None or self._sink is None:
            return
        self._busy = True
        while self._wanted() and self._at < len(content.pieces):
            data = content.pieces[self._at]
            self._at += 1
            if content.fill is not None and content.fill.passing:
                content.pieces[self._at - 1] = b""
            self._sink.write(data)
        self._busy = False
        if not self._wanted():
            return
        if content.reason is not None:
            self.fail(content.reason)
        elif content.complete:
            sink, self._content, self._sink = self._sink, None, None
            sink.finish(content.trailers)
        elif content.fill is not None:
            if content.fill.passing:
                content.pieces.clear()
                self._at = 0
            content.fill.resumed()

    def _wanted(self) -> bool:
        """Whether more may be given."""
        return self._sink is not None and not self._paused

    def fail(self, reason: Abort) -> None:
        """There will never be all of it."""
        sink = self._sink
        if sink is not None:
            self._content = self._sink = None
            sink.abort(reason)


@implementer(ISink)
class Fill:
    """
    Reads a body into content.

    @ivar passing: it is not kept any more.
    """

    __slots__ = ("_body", "_content", "_ended", "_held", "_room", "_wanted", "passing")

    def __init__(
        self,
        body: IBody,
        content: Content,
        room: Callable[[int], bool],
        wanted: Callable[[], bool],
        ended: Callable[[bool], None],
    ) -> None:
        """
        @param room: C{room(bytes)}: is there room for so many more of it?
        @param wanted: whether to go on when the last reader has left.
        @param ended: called once: C{ended(True)} when it is complete and kept, C{ended(False)} when it will not be.
        """
        self._body, self._content, self._room, self._wanted = body, content, room, wanted
        self._ended: Callable[[bool], None] | None = ended
        self._held = False  # the body is paused
        self.passing = False
        content.fill = self

    def begin(self) -> None:
        """Read."""
        self._body.attach(self)

    def stop(self) -> None:
        """Nobody wants it any more."""
        self._content.fail(DESERTED)
        self._body.stopProducing()
        self._over(False)

    # -- what readers do

    def deserted(self) -> None:
        """Nobody reads it any more."""
        if self.passing or not self._wanted():
            self.stop()

    def paused(self, reading: bool) -> None:
        """The reader wants no more for now."""
        if self.passing and reading and not self._held:
            self._held = True
            self._body.pauseProducing()

    def resumed(self) -> None:
        """The reader has taken all that there is."""
        if self._held:
            self._held = False
            self._body.resumeProducing()

    # -- the sink of the body

    def write(self, data: bytes) -> None:
        if not self.passing and not self._room(len(data)):
            self._pass()
            if self._content.fill is None:
                return
        self._content.more(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        kept = not self.passing
        self._content.end(trailers)
        self._over(kept)

    def abort(self, reason: Abort) -> None:
        self._content.fail(reason)
        self._over(False)

    def _pass(self) -> None:
        """It does not fit: from now on it only flows by."""
        self.passing = True
        self._over(False)
        if self._content.fill is None:
            return
        if not self._content.readers:
            self.stop()
            return
        # What its reader has not taken yet it takes before anything else is read.
        self._held = True
        self._body.pauseProducing()

    def _over(self, kept: bool) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(kept)
