"""
The only back-pressure code: a codec writes in, whoever attaches reads out.

Rules
- The source is paused by the first write that cannot be passed on, not before: a body that arrives whole with its
  head costs no pause.
- Nothing crosses a pause but abort, and abort drops what was held.
- Delivery is never nested: resume inside a sink's write() only takes effect when that write() has returned.
- stopProducing() wins over everything, and is told to the source once, unless the source had already ended.
- A body that has ended refers to neither its source nor its sink.
"""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import IPushProducer
from zope.interface import classImplements

from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field

End = tuple[Sequence[Field] | None, Abort | None]
"""How a body ended: trailers of a clean end, or the reason of a broken one."""


def deliver(sink: ISink, end: End) -> None:
    """Tell a sink how its body ended."""
    trailers, reason = end
    if reason is None:
        sink.finish(trailers)
    else:
        sink.abort(reason)


class Body:
    """
    What every codec makes for a message with content.

    @ivar held: pieces that wait to be delivered, or None.
    """

    __slots__ = ("_busy", "_end", "_flowing", "_paused", "_sink", "_source", "_told", "attached", "held", "length")

    def __init__(self, source: IPushProducer, length: int | None = None) -> None:
        self.length = length
        self.attached = False
        self.held: list[bytes] | None = None
        self._source: IPushProducer | None = source
        self._sink: ISink | None = None
        self._flowing = False  # write() may go straight to the sink
        self._paused = False  # by the sink
        self._told = False  # the source knows it is paused
        self._busy = False  # inside a write() of the sink
        self._end: End | None = None  # not yet delivered

    @property
    def trailers(self) -> Sequence[Field]:
        """Those of a body that came whole, and whose end nobody has read yet; else none."""
        return () if self._end is None else self._end[0] or ()

    # -- the codec's side: an ISink

    def write(self, data: bytes) -> None:
        if self._flowing:
            self._flowing, self._busy = False, True
            self._sink.write(data)  # type: ignore[union-attr]
            self._busy = False
            if self._paused or self._source is None or self.held is not None:
                self._deliver()
            else:
                self._flowing = True
        elif self._source is not None:
            if self.held is None:
                self.held = [data]
            else:
                self.held.append(data)
            self._tell()

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        if self._source is None:
            return
        self._source = None
        if self._flowing:
            self._flowing, sink, self._sink = False, self._sink, None
            sink.finish(trailers)  # type: ignore[union-attr]
        else:
            self._end = (trailers, None)

    def abort(self, reason: Abort) -> None:
        if self._source is None and self._end is None:
            return
        self._source, self.held, self._flowing = None, None, False
        if self._sink is None:
            self._end = (None, reason)
        else:
            self._end, sink, self._sink = None, self._sink, None
            sink.abort(reason)

    # -- the reader's side: an IBody

    def attach(self, sink: ISink) -> None:
        if self.attached:
            raise RuntimeError("a body flows once")
        self.attached, self._sink = True, sink
        self._told = True  # so that the source learns that somebody wants it
        self._deliver()

    def pauseProducing(self) -> None:
        if self._sink is not None:
            self._paused, self._flowing = True, False
            if not self._busy:
                self._tell()

    def resumeProducing(self) -> None:
        if self._paused:
            self._paused = False
            if not self._busy:
                self._deliver()

    def stopProducing(self) -> None:
        self.attached, self._sink, self.held, self._end, self._flowing = True, None, None, None, False
        source, self._source = self._source, None
        if source is not None:
            source.stopProducing()

    def _tell(self) -> None:
        if not self._told and self._source is not None:
            self._told = True
            self._source.pauseProducing()

    def _deliver(self) -> None:
        self._busy = True
        while self.held and not self._paused and self._sink is not None:
            held, self.held = self.held, None
            self._sink.write(held[0] if len(held) == 1 else b"".join(held))
        self._busy = False
        sink = self._sink
        if sink is None:
            return
        if self._paused:
            self._tell()
        elif self._end is not None:
            end, self._end, self._sink = self._end, None, None
            deliver(sink, end)
        else:
            self._flowing = True
            if self._told and self._source is not None:
                self._told = False
                self._source.resumeProducing()


classImplements(Body, IBody, ISink)


class Replay:
    """
    A body that can be sent again: it keeps what it delivered, as long as that fits in limit bytes.

    While it is whole, attached stays False.  Then stopProducing() only takes the sink off (the attempt failed, not the
    request): the body inside is ended by who made it, since an exchange that is over ends its request body.
    """

    __slots__ = ("_begun", "_end", "_kept", "_limit", "_paused", "_sink", "_size", "body", "length")

    def __init__(self, body: IBody, limit: int) -> None:
        self.body, self.length, self._limit = body, body.length, limit
        self._kept: list[bytes] | None = []  # None = too much to keep, or no use
        self._size = 0
        self._sink: ISink | None = None
        self._end: End | None = None
        self._begun = self._paused = False

    @property
    def attached(self) -> bool:
        return self._begun and self._kept is None

    @property
    def free(self) -> bool:
        """Whether it can be sent (again) right now: it is whole, and nobody reads it any more."""
        return self._sink is None and not self.attached

    def release(self) -> None:
        """There will be no other attempt: keep nothing more."""
        self._kept = None

    # -- the reader's side: an IBody

    def attach(self, sink: ISink) -> None:
        if self.attached or self._sink is not None:
            raise RuntimeError("this body cannot be sent again")
        self._sink = sink
        if not self._begun:
            self._begun = True
            self.body.attach(self)
            return
        again = b"".join(self._kept or ())
        if again:
            sink.write(again)
        if self._sink is sink and not self._paused:
            self.resumeProducing()

    def pauseProducing(self) -> None:
        self._paused = True
        self.body.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._end is not None:
            self._deliver()
        else:
            self.body.resumeProducing()

    def stopProducing(self) -> None:
        self._sink, self._paused = None, False
        if self._kept is None:
            self.body.stopProducing()
        else:
            self.body.pauseProducing()

    # -- the sink of the body inside

    def write(self, data: bytes) -> None:
        if self._kept is not None:
            self._size += len(data)
            if self._size <= self._limit:
                self._kept.append(data)
            else:
                self._kept = None
        if self._sink is not None:
            self._sink.write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._end = (trailers, None)
        self._deliver()

    def abort(self, reason: Abort) -> None:
        self._kept, self._end = None, (None, reason)
        self._deliver()

    def _deliver(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None and self._end is not None:
            deliver(sink, self._end)


classImplements(Replay, IBody, ISink)


@mypyc_attr(allow_interpreted_subclasses=True)
class Valve:
    """A body that whoever holds it can break off: L{cut}.  Nothing else is different from the body inside."""

    __slots__ = ("_sink", "body", "length")

    def __init__(self, body: IBody) -> None:
        self.body, self.length = body, body.length
        self._sink: ISink | None = None

    def cut(self, reason: Abort) -> None:
        """
        Nothing more of it is wanted, and it will never be complete.  Does nothing before somebody reads it, nor once it
        has ended.
        """
        if self._sink is not None:
            self.body.stopProducing()
            self._deliver((None, reason))

    @property
    def attached(self) -> bool:
        return self.body.attached

    def attach(self, sink: ISink) -> None:
        if self.body.attached:
            raise RuntimeError("a body flows once")
        self._sink = sink
        self.body.attach(self)

    def pauseProducing(self) -> None:
        self.body.pauseProducing()

    def resumeProducing(self) -> None:
        self.body.resumeProducing()

    def stopProducing(self) -> None:
        self._sink = None
        self.body.stopProducing()

    def write(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._deliver((trailers, None))

    def abort(self, reason: Abort) -> None:
        self._deliver((None, reason))

    def _deliver(self, end: End) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            deliver(sink, end)


classImplements(Valve, IBody, ISink)


class Limit(Valve):
    """
    A body that breaks off with C{reason}, e.g. an Abort with status 413, as soon as more than C{limit} bytes come.

    What exceeds the limit is never passed on; a body whose known length exceeds it is not even asked for.
    """

    __slots__ = ("_left", "_reason")

    def __init__(self, body: IBody, limit: int, reason: Abort) -> None:
        super().__init__(body)
        self._left, self._reason = limit, reason

    def attach(self, sink: ISink) -> None:
        if self.length is not None and self.length > self._left and not self.body.attached:
            self._sink = sink
            self.cut(self._reason)
        else:
            super().attach(sink)

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.cut(self._reason)
        else:
            super().write(data)


class Whole:
    """A body that is already there: what the gateway itself answers with.  It needs no source."""

    __slots__ = ("_data", "_paused", "_sink", "attached", "length")

    def __init__(self, data: bytes) -> None:
        self.length: int | None = len(data)
        self.attached = self._paused = False
        self._data = data
        self._sink: ISink | None = None

    def attach(self, sink: ISink) -> None:
        if self.attached:
            raise RuntimeError("a body flows once")
        self.attached, self._sink = True, sink
        if self._data:
            sink.write(self._data)
            self._data = b""
        if not self._paused:
            self.resumeProducing()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        if self._data:  # inside write(): the end waits until that has returned
            return
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.finish()

    def stopProducing(self) -> None:
        self.attached, self._sink, self._data = True, None, b""


classImplements(Whole, IBody)
