"""
The frames of SOTP/1 (docs/sotp.md), sans-I/O: bytes in, frames out.

    magic (2) | version (1) | type (1) | flags (1) | length (3) | stream (4) | payload

Rules
- One C{unpack_from} a frame.  DATA is passed on as it comes; every other frame is short, and waits until it is whole.
- What is no frame is a L{Fault}.  The frames before it still count: they are given first.
- Knows where a frame begins and ends and what size it may have; what it means, and when it may come, is for others.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from protogate_sotp.faults import Fault

MAGIC: Final = 0xD550
"""Begins each frame: no byte of a text, and 'P' for everybody who looks at a dump."""
VERSION: Final = 1

HELLO: Final = 0
REQUEST: Final = 1
RESPONSE: Final = 2
DATA: Final = 3
TRAILERS: Final = 4
CREDIT: Final = 5
CANCEL: Final = 6
PING: Final = 7
PONG: Final = 8
GOAWAY: Final = 9
NAMES: Final = (
    "HELLO",
    "REQUEST",
    "RESPONSE",
    "DATA",
    "TRAILERS",
    "CREDIT",
    "CANCEL",
    "PING",
    "PONG",
    "GOAWAY",
)
EXTENSION: Final = 0x80
"""Frames of this type and above may be ignored by whoever does not know them."""

END: Final = 1
"""Flag of REQUEST, RESPONSE and DATA: this direction of the stream ends here."""
INTERIM: Final = 2
"""Flag of RESPONSE: another one follows."""

HEAD: Final = 12
"""Bytes before the payload."""
TEXT: Final = 255
"""Bytes of the text of a CANCEL or GOAWAY."""
SMALL: Final = 1024
"""Bytes of the payload of a HELLO, and of a frame that is not known."""
MOST_STREAM: Final = 0x7FFFFFFF
"""The highest number of a stream."""

GZIP: Final = 1
"""Capability: reads messages that are compressed with gzip."""
ZSTD: Final = 2
"""The same with zstd."""

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream, payload."""

_HEAD: Final = struct.Struct("!III")
_FIRST: Final = MAGIC << 16 | VERSION << 8
_PACK: Final = _HEAD.pack
_LONG: Final = struct.Struct("!I")
_CANCEL: Final = struct.Struct("!H")
_GOAWAY: Final = struct.Struct("!IH")
_HELLO: Final = struct.Struct("!BBHIIIIII")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _PACK(_FIRST | kind, flags << 24 | len(payload), stream) + payload


def head(kind: int, flags: int, stream: int, size: int) -> bytes:
    """What stands before a payload of that size."""
    return _PACK(_FIRST | kind, flags << 24 | size, stream)


class Reader:
    """
    Bytes of one direction of a connection, as frames.

    @ivar fault: what was wrong behind the last frame, or None.  Nothing is read after it.
    @param sizes: bytes that the payload may have, by type: L{Hello.sizes}.
    """

    __slots__ = ("_data", "_flags", "_left", "_most", "_stream", "fault")

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.fault: Fault | None = None
        self._data = b""  # the beginning of a frame
        self._left = self._flags = self._stream = 0  # of a DATA that has not come whole
        self._most = sizes

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not complete; those of a DATA are not among them."""
        return len(self._data)

    def clear(self) -> None:
        """Forget what was not read."""
        self._data, self._left = b"", 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now, and pieces of a DATA that is not.  May set L{fault}."""
        out: list[Frame] = []
        at = 0
        if self._data:
            data, self._data = self._data + data, b""
        elif self._left:
            left = self._left
            if len(data) < left:
                self._left = left - len(data)
                out.append((DATA, 0, self._stream, data))
                return out
            self._left, at = 0, left
            out.append((DATA, self._flags, self._stream, data[:left]))
        end, most = len(data), self._most
        while end - at >= HEAD:
            first, size, stream = _HEAD.unpack_from(data, at)
            kind = first ^ _FIRST
            if kind > GOAWAY and not self._known(kind, first):
                return out
            flags = size >> 24
            size &= 0xFFFFFF
            if size > (most[kind] if kind <= GOAWAY else SMALL):
                self._bad("frame_too_large")
                return out
            start = at + HEAD
            if end - start >= size:
                at = start + size
                out.append((kind, flags, stream, data[start:at]))
            elif kind == DATA and stream:
                self._left, self._flags, self._stream = size - (end - start), flags, stream
                if start < end:
                    out.append((DATA, 0, stream, data[start:]))
                return out
            else:
                break
        if at < end:
            self._data = data[at:] if at else data
        return out

    def _known(self, kind: int, first: int) -> bool:
        """Whether a frame may be read on that is none of this version's."""
        if EXTENSION <= kind < 256:
            return True
        if first >> 16 != MAGIC:
            self._bad("no_magic")
        elif kind >= 256:
            self._bad("other_version")
        else:
            self._bad("unknown_type")
        return False

    def _bad(self, name: str) -> None:
        self.fault = Fault(name)


class Hello:
    """
    What one end tells the other of itself.

    @ivar low: @ivar high: lowest and highest version that it speaks.
    @ivar heartbeat: seconds between two signs of life that it asks for; 0 = none.
    @ivar capabilities: bits, L{GZIP} and L{ZSTD}.
    @ivar streams: requests that it serves at once.
    @ivar window: credit that each stream towards it begins with.
    @ivar total: credit that the connection begins with.
    @ivar data: bytes of a DATA.
    @ivar heads: bytes of a REQUEST, RESPONSE or TRAILERS.
    @ivar sizes: bytes of the payload that each type of frame may have.
    """

    __slots__ = ("capabilities", "data", "heads", "heartbeat", "high", "low", "sizes", "streams", "total", "window")

    def __init__(
        self,
        low: int = VERSION,
        high: int = VERSION,
        heartbeat: int = 60,
        capabilities: int = 0,
        streams: int = 100,
        window: int = 65536,
        total: int = 1 << 23,
        data: int = 65536,
        heads: int = 65536,
    ) -> None:
        self.low, self.high, self.heartbeat, self.capabilities = low, high, heartbeat, capabilities
        self.streams, self.window, self.total, self.data, self.heads = streams, window, total, data, heads
        self.sizes = (SMALL, heads, heads, data, heads, 4, 2 + TEXT, 8, 8, 6 + TEXT)

    def pack(self) -> bytes:
        """The frame."""
        payload = _HELLO.pack(
            self.low,
            self.high,
            self.heartbeat,
            self.capabilities,
            self.streams,
            self.window,
            self.total,
            self.data,
            self.heads,
        )
        return frame(HELLO, 0, 0, payload)


LEAST: Final = Hello(heartbeat=0, streams=100, window=65536, total=1 << 20, data=16384, heads=16384)
"""
What holds until the peer's HELLO was read.  Of C{window}, C{total}, C{data} and C{heads} it is also the least that a
HELLO may say, so that nobody must take back what was sent before.
"""
LARGEST: Final = 0x7FFFFFFF
"""Credit never grows beyond it."""


@lru_cache(maxsize=256)
def hello(payload: bytes) -> Hello:
    """
    Read a HELLO.  What is longer than it must be is of a later version, and is not looked at.  Most say the same: kept.

    @raise Fault: too short, or a value out of its bounds.
    """
    if len(payload) < _HELLO.size:
        raise Fault("wrong_size")
    made = Hello(*_HELLO.unpack_from(payload))
    if (
        made.low > made.high
        or not LEAST.window <= made.window <= LARGEST
        or not LEAST.total <= made.total <= LARGEST
        or made.data < LEAST.data
        or made.heads < LEAST.heads
    ):
        raise Fault("hello_values")
    return made


def credit(payload: bytes) -> int:
    """
    The bytes of a CREDIT.

    @raise Fault: none, or no number.
    """
    if len(payload) != _LONG.size:
        raise Fault("wrong_size")
    size: int = _LONG.unpack(payload)[0]
    if not 0 < size <= LARGEST:
        raise Fault("credit_value")
    return size


def credited(stream: int, size: int) -> bytes:
    """A CREDIT; stream 0 is the connection."""
    return frame(CREDIT, 0, stream, _LONG.pack(size))


def cancel(stream: int, code: int, text: str = "") -> bytes:
    """A CANCEL."""
    return frame(CANCEL, 0, stream, _CANCEL.pack(code) + text.encode()[:TEXT])


def cancelled(payload: bytes) -> tuple[int, str]:
    """
    Code and text of a CANCEL.

    @raise Fault: too short.
    """
    if len(payload) < _CANCEL.size:
        raise Fault("wrong_size")
    return _CANCEL.unpack_from(payload)[0], _text(payload[_CANCEL.size :])


def goaway(last: int, code: int, text: str = "") -> bytes:
    """A GOAWAY: streams above C{last} were not looked at, and will not be."""
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last, code) + text.encode()[:TEXT])


def going(payload: bytes) -> tuple[int, int, str]:
    """
    Last stream, code and text of a GOAWAY.

    @raise Fault: too short.
    """
    if len(payload) < _GOAWAY.size:
        raise Fault("wrong_size")
    last, code = _GOAWAY.unpack_from(payload)
    return last, code, _text(payload[_GOAWAY.size :])


def _text(data: bytes) -> str:
    """For people; what is not printable is shown as such."""
    return ascii(data.decode("utf-8", "replace"))[1:-1]
