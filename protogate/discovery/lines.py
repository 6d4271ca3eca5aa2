"""
The lines of an answer that goes on, as they come.

Rules
- Whoever reads is one turn behind at most: while nobody waits for lines, the body is paused.
- A line has a longest; one that goes beyond it ends the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field


class TooLong(ValueError):
    """A line of more bytes than one may have."""


@implementer(ISink)
class Lines:
    """
    @param body: not attached yet.
    @param most: bytes of a line.
    """

    def __init__(self, body: IBody, most: int) -> None:
        self._body: IBody | None = body
        self._most = most
        self._lines: list[bytes] = []
        self._rest = b""
        self._end: Failure | None = None
        self._waiting: Deferred[list[bytes]] | None = None
        body.attach(self)

    def take(self) -> Deferred[list[bytes]]:
        """
        What has come since, at least one line; an empty list when there will be none any more.

        @return: fails with an L{Abort} where the rest will never come, or with L{TooLong}.  It may be cancelled.
        """
        waiting: Deferred[list[bytes]] = Deferred(self._unwanted)
        self._waiting = waiting
        if self._lines or self._body is None:
            self._give()
        else:
            self._body.resumeProducing()
        return waiting

    def stop(self) -> None:
        """No more is wanted."""
        body, self._body = self._body, None
        if body is not None:
            body.stopProducing()

    # -- ISink

    def write(self, data: bytes) -> None:
        """L{ISink}."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += [line for line in lines if line.strip()]
        if len(self._rest) > self._most or any(len(line) > self._most for line in lines):
            self._rest, self._end = b"", Failure(TooLong(f"more than {self._most} bytes in a line"))
            self.stop()
        self._give()

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """L{ISink}."""
        self._body = None
        if self._rest.strip():
            self._lines.append(self._rest)
        self._give()

    def abort(self, reason: Abort) -> None:
        """L{ISink}."""
        self._body, self._end = None, Failure(reason)
        self._give()

    def _give(self) -> None:
        """Hand over what there is to whoever waits."""
        waiting = self._waiting
        if waiting is None:
            if self._body is not None:
                self._body.pauseProducing()
            return
        lines, self._lines = self._lines, []
        if not lines and self._body is not None:
            return  # half a line has come
        self._waiting = None
        if lines or self._end is None:
            waiting.callback(lines)
        else:
            waiting.errback(self._end)

    def _unwanted(self, _: object) -> None:
        self._waiting = None
