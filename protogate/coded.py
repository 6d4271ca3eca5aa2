"""
Bodies that are packed or unpacked on their way (L{protogate.codings}).

Rules
- However much comes out of a few bytes, a reader that pauses pauses the unpacking.
- What came in one turn of the event loop goes out, packed, at its end: nobody waits for a block to be full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from protogate.body import Body
from protogate.codings import Coder, Packer
from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field


@implementer(IBody)
class _Coded:
    """A body that becomes another one as it is read; nobody knows how long that is."""

    __slots__ = ("_out", "body", "length")

    def __init__(self, body: IBody) -> None:
        self.body, self.length = body, None
        self._out: Body | None = None

    def _flow(self) -> _Flow:
        raise NotImplementedError

    @property
    def attached(self) -> bool:
        return self.body.attached

    def attach(self, sink: ISink) -> None:
        if self.body.attached:
            raise RuntimeError("a body flows once")
        self._out = self._flow().out
        self._out.attach(sink)

    def pauseProducing(self) -> None:
        if self._out is not None:
            self._out.pauseProducing()

    def resumeProducing(self) -> None:
        if self._out is not None:
            self._out.resumeProducing()

    def stopProducing(self) -> None:
        if self._out is None:
            self.body.stopProducing()
        else:
            self._out.stopProducing()


class Unpacked(_Coded):
    """
    A body, unpacked as it is read.

    @param make: an unpacker.
    @param broken: how it ends when it is not what it should be.
    """

    __slots__ = ("_broken", "_make")

    def __init__(self, body: IBody, make: Callable[[], Coder], broken: Abort) -> None:
        super().__init__(body)
        self._make, self._broken = make, broken

    def _flow(self) -> _Flow:
        return _Flow(self.body, self._make(), self._broken)


class Packed(_Coded):
    """
    A body, packed as it is read.

    @param make: a packer.
    @param soon: has a function called at the end of the turn, see L{protogate.wheel.Wheel.soon}.
    """

    __slots__ = ("_make", "_soon")

    def __init__(self, body: IBody, make: Callable[[], Packer], soon: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(body)
        self._make, self._soon = make, soon

    def _flow(self) -> _Flow:
        return _Packing(self.body, self._make(), self._soon)


@implementer(ISink, IPushProducer)
class _Flow:
    """The sink of the body inside, and the source of the other."""

    __slots__ = ("_begun", "_broken", "_busy", "_coder", "_end", "_flows", "body", "out")

    def __init__(self, body: IBody, coder: Coder, broken: Abort | None) -> None:
        self.body: IBody | None = body
        self.out = Body(self)
        self._coder, self._broken = coder, broken
        self._begun = self._flows = self._busy = False
        self._end: tuple[Sequence[Field] | None] | None = None

    # -- the sink

    def write(self, data: bytes) -> None:
        self._coder.give(data)
        self._pump()

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self.body = None
        self._end = (trailers,)
        self._pump()

    def abort(self, reason: Abort) -> None:
        self.body = self._end = None
        self.out.abort(reason)

    # -- the source

    def pauseProducing(self) -> None:
        self._flows = False
        if self.body is not None:
            self.body.pauseProducing()

    def resumeProducing(self) -> None:
        self._flows = True
        if not self._begun:
            self._begun = True
            if self.body is not None:
                self.body.attach(self)
            return
        self._pump()
        if self._flows and self.body is not None:
            self.body.resumeProducing()

    def stopProducing(self) -> None:
        self._flows, self._end = False, None
        body, self.body = self.body, None
        if body is not None:
            body.stopProducing()

    def _pump(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._flows:
                data = self._coder.take()
                if not data:
                    break
                self.out.write(data)
        except ValueError:
            self._break()
        self._busy = False
        end = self._end
        if self._flows and end is not None:
            self._end = None
            if self._coder.ended:
                self.out.finish(end[0])
            else:
                self._break()

    def _break(self) -> None:
        assert self._broken is not None
        self.stopProducing()
        self.out.abort(self._broken)


class _Packing(_Flow):
    """One that lets out at the end of each turn what came in it."""

    __slots__ = ("_due", "_packer", "_soon")

    def __init__(self, body: IBody, packer: Packer, soon: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(body, packer, None)
        self._packer, self._soon = packer, soon
        self._due = False

    def write(self, data: bytes) -> None:
        if not self._due:
            self._due = True
            self._soon(self._over)
        super().write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._packer.end()
        super().finish(trailers)

    def _over(self) -> None:
        """The turn is over."""
        self._due = False
        if self.body is not None:
            self._packer.flush()
            self._pump()
