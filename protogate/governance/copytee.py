"""
A request body that is read twice: by the original's upstream, and by a copy that must not hold it up.

Rules
- The original is given each piece first.  Its pace is the only one: the copy never pauses the source.
- What the copy has not taken yet is held, up to a number of bytes.  A copy that lags further is told so: it is dropped.
- Pieces are shared, not copied.
- An upload that the original has no use for any more, or that breaks off, ends the copy's as broken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from protogate.body import Body, Valve
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.interfaces import IBody
from protogate.message import Field

LAGS: Final = Abort("the copy lags too far behind the original", GATEWAY, 503)
UNWANTED: Final = Abort("the original's upload ended before it was complete", CLIENT, 499)


@implementer(IPushProducer)
class Trail:
    """
    Where the copy's body comes from.

    @ivar body: of the copy's request.
    @ivar broken: why it will never be complete, once that is known.
    """

    __slots__ = ("_lag", "_lost", "_open", "_size", "body", "broken")

    def __init__(self, length: int | None, lag: int, lost: Callable[[], None]) -> None:
        """
        @param lag: bytes that may be held.
        @param lost: called when it breaks off, once, and never after C{body} was stopped.
        """
        self.body = Body(self, length)
        self.broken: Abort | None = None
        self._lag, self._size, self._open = lag, 0, True
        self._lost: Callable[[], None] | None = lost

    def more(self, data: bytes) -> None:
        """The original has been given it."""
        if not self._open:
            return
        body = self.body
        if body.held is None:
            self._size = 0  # what was held has been taken
        body.write(data)
        if body.held is not None:
            self._size += len(data)
            if self._size > self._lag:
                self.lose(LAGS)

    def end(self, trailers: Sequence[Field] | None) -> None:
        """The original has been given all."""
        if self._open:
            self._open, self._lost = False, None
            self.body.finish(trailers)

    def lose(self, reason: Abort) -> None:
        """It will never be complete."""
        if self._open:
            self._open, self.broken = False, reason
            lost, self._lost = self._lost, None
            if lost is not None:
                lost()
            self.body.abort(reason)  # whoever reads it still

    # -- IPushProducer, for the copy's body

    def pauseProducing(self) -> None:
        """It is the original's pace that counts."""

    def resumeProducing(self) -> None:
        """It is the original's pace that counts."""

    def stopProducing(self) -> None:
        """The copy wants no more of it."""
        self._open, self._lost = False, None


class Tee(Valve):
    """The original's body."""

    __slots__ = ("_trail",)

    def __init__(self, body: IBody, trail: Trail) -> None:
        super().__init__(body)
        self._trail = trail

    def write(self, data: bytes) -> None:
        super().write(data)
        self._trail.more(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        super().finish(trailers)
        self._trail.end(trailers)

    def abort(self, reason: Abort) -> None:
        super().abort(reason)
        self._trail.lose(UNWANTED)

    def stopProducing(self) -> None:
        super().stopProducing()
        self._trail.lose(UNWANTED)
