"""A reader that wants nothing but that a body is read to its end, within a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zope.interface import implementer

from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field
from protogate.wheel import Wheel


@implementer(ISink)
class Drain:
    """Reads a body for its own sake."""

    __slots__ = ("_body", "_ended", "_timer")

    def __init__(self, body: IBody, wheel: Wheel, seconds: float, ended: Callable[[], object]) -> None:
        """
        @param seconds: after which it is stopped.
        @param ended: called once, when it has ended or was stopped.
        """
        self._body: IBody | None = body
        self._ended = ended
        self._timer = wheel.after(seconds, self.stop)

    def begin(self) -> None:
        """Read."""
        if self._body is not None:
            self._body.attach(self)

    def write(self, data: bytes) -> None:
        """L{ISink}."""

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """L{ISink}."""
        self._over()

    def abort(self, reason: Abort) -> None:
        """L{ISink}."""
        self._over()

    def stop(self) -> None:
        """It is not wanted any more."""
        body = self._body
        if body is not None:
            body.stopProducing()
            self._over()

    def _over(self) -> None:
        self._body = None
        self._timer.end()
        self._ended()
