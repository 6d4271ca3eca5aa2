"""
Content codings (RFC 9110, 8.4.1): packing and unpacking in pieces.  Bodies that do it are in L{protogate.coded}.

Rules
- However much comes out of a few bytes, it comes in pieces of about L{MOST}.
- What breaks off in the middle, or is followed by something else, is never taken for complete.
- A coding whose library is not installed is not in L{PACKERS} or L{UNPACKERS}.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol

MOST: Final = 65536
"""Bytes that are unpacked at once."""
RATIO_FROM: Final = 1 << 20
"""Bytes that may come out of whatever: from there on the ratio is looked at."""
GZIP: Final = 31
"""What zlib calls the window and format of gzip."""
WINDOW: Final = 1 << 20
"""Bytes of the window that is packed with; unpackers grant others up to 8 MiB (RFC 8878, 3.1.1.1.2)."""


def _library(*names: str) -> Any:
    """The first of these modules that is installed, or None."""
    for name in names:
        with suppress(ImportError):
            return import_module(name)
    return None


zstd: Any = _library("compression.zstd", "backports.zstd")  # of Python 3.14, and of the extra "zstd"
brotli: Any = _library("brotli")  # of the extra "brotli"


class Coder(Protocol):
    """Something that is fed and emptied."""

    @property
    def ended(self) -> bool:
        """Whether all that was fed is complete."""

    def give(self, data: bytes) -> None:
        """More of it."""

    def take(self) -> bytes:
        """What is ready; nothing when it must be fed first.  ValueError when it is not what it should be."""


class Packer(Coder, Protocol):
    """One that makes something shorter."""

    def flush(self) -> None:
        """What was given can be taken."""

    def end(self) -> None:
        """There is no more."""


# -- unpacking


class Inflate:
    """gzip (RFC 1952), one member or several; or deflate (RFC 1950, and RFC 1951 as some send it)."""

    def __init__(self, gzip: bool = True) -> None:
        self._wbits = GZIP if gzip else 0
        self._inner = zlib.decompressobj(GZIP) if gzip else None
        self._name = "gzip" if gzip else "deflate"
        self._rest = b""

    @property
    def ended(self) -> bool:
        return self._inner is not None and self._inner.eof and not self._rest

    def give(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        if self._inner is None:
            if len(self._rest) < 2:
                return b""
            head = int.from_bytes(self._rest[:2])
            self._inner = zlib.decompressobj(15 if head & 0xF00 == 0x800 and not head % 31 else -15)
        while self._rest:  # behind what has not come out yet stands the checksum
            if self._inner.eof:
                if not self._wbits:
                    raise ValueError("something follows what was deflated")
                self._inner = zlib.decompressobj(self._wbits)
            try:
                out = self._inner.decompress(self._rest, MOST)
            except zlib.error as error:
                raise ValueError(f"not {self._name}: {error}") from None
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


class Unbrotli:
    """Brotli (RFC 7932)."""

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()
        self._rest = b""
        self._more = False  # it may have something left, also where it would take more

    @property
    def ended(self) -> bool:
        return bool(self._inner.is_finished()) and not self._rest

    def give(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        inner = self._inner
        while self._rest or self._more:
            if inner.is_finished():
                self._more = False
                if self._rest:
                    raise ValueError("something follows what was packed with Brotli")
                break
            data = b""
            if inner.can_accept_more_data():
                data, self._rest = self._rest, b""
            try:
                out: bytes = inner.process(data, output_buffer_limit=MOST)
            except brotli.error:
                raise ValueError("not br") from None
            self._more = bool(out) or not inner.can_accept_more_data()
            if out:
                return out
        return b""


class Bounded:
    """
    An unpacker that holds what comes out to a multiple of what went in.

    @param ratio: how many times as much may come out, from L{RATIO_FROM} bytes on.
    """

    def __init__(self, inner: Coder, ratio: int) -> None:
        self._inner, self._ratio = inner, ratio
        self._fed = self._came = 0

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def give(self, data: bytes) -> None:
        self._fed += len(data)
        self._inner.give(data)

    def take(self) -> bytes:
        out = self._inner.take()
        self._came += len(out)
        if self._came > max(self._fed * self._ratio, RATIO_FROM):
            raise ValueError(f"more than {self._ratio} times as much came out as went in")
        return out


# -- packing


class _Collecting:
    """What all packers have in common: what comes out is kept until it is taken."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._out: list[bytes] = []
        self.ended = False

    def take(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def _put(self, data: bytes) -> None:
        if data:
            self._out.append(data)


class Deflate(_Collecting):
    """gzip."""

    def __init__(self, level: int) -> None:
        super().__init__(zlib.compressobj(level, wbits=GZIP))

    def give(self, data: bytes) -> None:
        self._put(self._inner.compress(data))

    def flush(self) -> None:
        self._put(self._inner.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> None:
        self.ended = True
        self._put(self._inner.flush())


class Zstd(_Collecting):
    """Zstandard, with a window of L{WINDOW}."""

    def __init__(self, level: int) -> None:
        parameter = zstd.CompressionParameter
        options = {parameter.compression_level: level, parameter.window_log: WINDOW.bit_length() - 1}
        super().__init__(zstd.ZstdCompressor(options=options))

    def give(self, data: bytes) -> None:
        self._put(self._inner.compress(data))

    def flush(self) -> None:
        self._put(self._inner.flush(self._inner.FLUSH_BLOCK))

    def end(self) -> None:
        self.ended = True
        self._put(self._inner.flush(self._inner.FLUSH_FRAME))


class Brotli(_Collecting):
    """Brotli, with a window of L{WINDOW}."""

    def __init__(self, level: int) -> None:
        super().__init__(brotli.Compressor(quality=level, lgwin=WINDOW.bit_length() - 1))

    def give(self, data: bytes) -> None:
        self._put(self._inner.process(data))

    def flush(self) -> None:
        self._put(self._inner.flush())

    def end(self) -> None:
        self.ended = True
        self._put(self._inner.finish())


UNPACKERS: Final[Mapping[bytes, Callable[[], Coder]]] = {
    b"gzip": Inflate,
    b"x-gzip": Inflate,
    b"deflate": lambda: Inflate(gzip=False),
    **({} if zstd is None else {b"zstd": Unzstd}),
    **({} if brotli is None else {b"br": Unbrotli}),
}
"""By the name of the coding."""
PACKERS: Final[Mapping[bytes, Callable[[int], Packer]]] = {
    b"gzip": Deflate,
    **({} if zstd is None else {b"zstd": Zstd}),
    **({} if brotli is None else {b"br": Brotli}),
}
"""By the name of the coding: of a level."""


def pack(coding: bytes, data: bytes) -> bytes:
    """All of a message, packed with gzip or zstd."""
    if coding == b"gzip":
        return zlib.compress(data, wbits=GZIP)
    packed: bytes = zstd.compress(data)
    return packed
