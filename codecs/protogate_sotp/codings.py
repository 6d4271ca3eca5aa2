"""
Compressed messages: what they are called, and a body that unpacks itself.

Rules
- A message is passed on as it came; it is unpacked only for a peer that has not said it could.
- However much comes out of a few bytes, no more than L{MOST} of it is held: a reader that pauses pauses the unpacking.
- What breaks off in the middle, or is followed by something else, is never taken for complete.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from protogate.body import Body
from protogate.errors import Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field

zstd: Any = None
for _name in ("compression.zstd", "backports.zstd"):  # of Python 3.14, and of the extra "zstd"
    with suppress(ImportError):
        zstd = import_module(_name)
        break

MOST: Final = 65536
"""Bytes that are unpacked at once."""
CODINGS: Final = {1: b"gzip"} | ({} if zstd is None else {2: b"zstd"})
"""Compressions that are known, by the number that is also their capability."""
IDS: Final = {name: number for number, name in CODINGS.items()}
CAPABILITIES: Final = sum(CODINGS)


class Unpacker(Protocol):
    """A decompressor that is fed and emptied."""

    @property
    def ended(self) -> bool:
        """Whether all that was fed was one complete message, or several."""

    def give(self, data: bytes) -> None:
        """More of it."""

    def take(self) -> bytes:
        """Up to L{MOST} bytes; nothing when it must be fed first.  ValueError when it is not what it should be."""


class Gunzip:
    """gzip (RFC 1952), one member or several."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self._rest = b""

    @property
    def ended(self) -> bool:
        return self._inner.eof and not self._rest

    def give(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        while self._rest:  # behind what has not come out yet stands the checksum
            if self._inner.eof:
                self._inner = zlib.decompressobj(31)
            try:
                out = self._inner.decompress(self._rest, MOST)
            except zlib.error as error:
                raise ValueError(f"not gzip: {error}") from None
            self._rest = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if out:
                return out
        return b""


class Unzstd:
    """Zstandard (RFC 8878), one frame or several."""

    def __init__(self) -> None:
        self._inner = zstd.ZstdDecompressor()
        self._rest = b""

    @property
    def ended(self) -> bool:
        return bool(self._inner.eof) and not self._rest

    def give(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        while self._rest or not (self._inner.needs_input or self._inner.eof):
            if self._inner.eof:
                self._inner = zstd.ZstdDecompressor()
            try:
                out: bytes = self._inner.decompress(self._rest, MOST)
            except zstd.ZstdError as error:
                raise ValueError(f"not zstd: {error}") from None
            self._rest = self._inner.unused_data if self._inner.eof else b""
            if out:
                return out
        return b""


def unpacker(coding: bytes) -> Unpacker:
    """For one of the names of L{CODINGS}."""
    return Gunzip() if coding == b"gzip" else Unzstd()


def pack(coding: bytes, data: bytes) -> bytes:
    """All of a message, compressed."""
    if coding == b"gzip":
        return zlib.compress(data, wbits=31)
    packed: bytes = zstd.compress(data)
    return packed


@implementer(IBody)
class Unpacked:
    """
    A body, unpacked as it is read.

    @param broken: how it ends when it is not what C{coding} says.
    """

    __slots__ = ("_broken", "_coding", "_out", "body", "length")

    def __init__(self, body: IBody, coding: bytes, broken: Abort) -> None:
        self.body, self.length = body, None
        self._coding, self._broken = coding, broken
        self._out: Body | None = None

    @property
    def attached(self) -> bool:
        return self.body.attached

    def attach(self, sink: ISink) -> None:
        if self.body.attached:
            raise RuntimeError("a body flows once")
        self._out = _Flow(self.body, unpacker(self._coding), self._broken).out
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


@implementer(ISink, IPushProducer)
class _Flow:
    """The sink of the packed body, and the source of the other."""

    __slots__ = ("_begun", "_broken", "_busy", "_end", "_flows", "_unpacker", "body", "out")

    def __init__(self, body: IBody, unpacker: Unpacker, broken: Abort) -> None:
        self.body: IBody | None = body
        self.out = Body(self)
        self._unpacker, self._broken = unpacker, broken
        self._begun = self._flows = self._busy = False
        self._end: tuple[Sequence[Field] | None] | None = None

    # -- the sink

    def write(self, data: bytes) -> None:
        self._unpacker.give(data)
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
                data = self._unpacker.take()
                if not data:
                    break
                self.out.write(data)
        except ValueError:
            self._break()
        self._busy = False
        end = self._end
        if self._flows and end is not None:
            self._end = None
            if self._unpacker.ended:
                self.out.finish(end[0])
            else:
                self._break()

    def _break(self) -> None:
        self.stopProducing()
        self.out.abort(self._broken)
