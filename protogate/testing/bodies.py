"""
Bodies without connections: L{Taker} takes one, L{Giver} gives one, L{Echo} hands one on.

All three hold their peer to the contract: bytes after the end, an empty write, or two ends are failed assertions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from protogate.body import Body
from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field


@implementer(ISink)
class Taker:
    """
    A sink that collects.

    @ivar got: the pieces, as they came.
    @ivar size: bytes so far.
    @ivar limit: pause at each write from that many bytes on; None = never.
    @ivar finished: the body is complete.
    @ivar trailers: those of a complete body.
    @ivar reason: why the body will never be complete.
    """

    def __init__(self, body: IBody | None, limit: int | None = None) -> None:
        """Attach to C{body}; None is a body that has ended."""
        self.body, self.limit = body, limit
        self.got: list[bytes] = []
        self.size = 0
        self.finished = body is None
        self.trailers: Sequence[Field] | None = None
        self.reason: Abort | None = None
        self._writing = False
        if body is not None:
            body.attach(self)

    @property
    def data(self) -> bytes:
        """All that came."""
        return b"".join(self.got)

    @property
    def ended(self) -> bool:
        """Whether it ended, one way or the other."""
        return self.finished or self.reason is not None

    def pause(self) -> None:
        """Take no more for now."""
        if self.body is not None:
            self.body.pauseProducing()

    def resume(self) -> None:
        """Take more."""
        if self.body is not None:
            self.body.resumeProducing()

    def stop(self) -> None:
        """The rest is not wanted."""
        if self.body is not None:
            self.body.stopProducing()

    # -- ISink

    def write(self, data: bytes) -> None:
        """Some bytes."""
        assert type(data) is bytes, f"a sink takes bytes, got {type(data).__name__}"
        assert data, "write() is never called with nothing"
        assert not self.ended, f"write({data[:40]!r}) after the end"
        assert not self._writing, "write() inside write()"
        self.got.append(data)
        self.size += len(data)
        self._writing = True
        if self.limit is not None and self.size >= self.limit:
            self.pause()
        self._writing = False

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """Complete."""
        assert not self.ended, "finish() after the end"
        self.finished, self.trailers = True, trailers

    def abort(self, reason: Abort) -> None:
        """Never complete."""
        assert isinstance(reason, Abort), f"abort() takes an Abort, got {reason!r}"
        assert not self.ended, f"abort({reason!r}) after the end"
        self.reason = reason


@implementer(IPushProducer)
class Giver:
    """
    A source with a L{Body} of its own: gives pieces while it may.

    @ivar body: for a Request or a Response.
    @ivar gave: bytes given so far.
    @ivar stopped: nobody wants the rest.
    """

    def __init__(
        self,
        pieces: Iterable[bytes] = (),
        length: int | None = None,
        trailers: Sequence[Field] | None = None,
        close: bool = True,
    ) -> None:
        """
        Give C{pieces} (an endless iterator is fine), then the end.

        @param close: False leaves it open behind the last piece: L{write}, L{finish} and L{abort} go on by hand.
        """
        self._pieces, self._trailers, self._close = iter(pieces), trailers, close
        self._go = self._busy = False
        self.stopped = False
        self.gave = 0
        self.body = Body(self, length)

    def write(self, data: bytes) -> None:
        """Give a piece, whether it is wanted now or not."""
        self.gave += len(data)
        self.body.write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """End well."""
        self.body.finish(trailers)

    def abort(self, reason: Abort) -> None:
        """End badly."""
        self.body.abort(reason)

    # -- IPushProducer, for the body

    def pauseProducing(self) -> None:
        """Give no more for now."""
        self._go = False

    def resumeProducing(self) -> None:
        """Give what may be given."""
        self._go = True
        if self._busy:
            return
        self._busy = True
        while self._go and not self.stopped:
            piece = next(self._pieces, None)
            if piece is not None:
                self.write(piece)
                continue
            self._go = False
            if self._close:
                self.finish(self._trailers)
        self._busy = False

    def stopProducing(self) -> None:
        """Nobody wants the rest."""
        self._go, self.stopped = False, True


@implementer(ISink, IPushProducer)
class Echo:
    """
    What comes in goes out: the smallest body filter.

    @ivar out: the body that comes out, as long as the one that comes in.
    """

    def __init__(self, body: IBody) -> None:
        self.body = body
        self.out = Body(self, body.length)
        body.attach(self)

    def write(self, data: bytes) -> None:
        """Some bytes."""
        self.out.write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """Complete."""
        self.out.finish(trailers)

    def abort(self, reason: Abort) -> None:
        """Never complete."""
        self.out.abort(reason)

    def pauseProducing(self) -> None:
        """The reader wants no more for now."""
        self.body.pauseProducing()

    def resumeProducing(self) -> None:
        """The reader goes on."""
        self.body.resumeProducing()

    def stopProducing(self) -> None:
        """The reader does not want the rest."""
        self.body.stopProducing()
