r"""
Frames of HTTP/2 as bytes, right ones and wrong ones alike (RFC 9113, 4 and 6; RFC 7541, 6).

    req(1)                                  GET / on stream 1, and no more of it
    req(1, b"/sink", b"POST", end=False)    a request whose content is to come
    raw(PING, payload=b"\0" * 7)            what no library would build

Rules
- Nothing is checked: whatever a test asks for is built.
- Fields are literals that leave no trace in the tables (RFC 7541, 6.2.2) unless a test brings a block of its own, so
  the frames of a case can be cut and shuffled.
- Nothing of protogate is used, and no library that it may be built on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
UNKNOWN = 0xBE
"""A type that nobody has registered."""
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITIES = 4, 8, 32

NAMES = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
    *("INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)
"""Error codes (RFC 9113, 7)."""
TABLE, PUSH, STREAMS, WINDOW, FRAME, LIST, EXTENDED = 1, 2, 3, 4, 5, 6, 8
"""Settings (RFC 9113, 6.5.2; RFC 8441, 3)."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TOP = 2**31 - 1
"""The largest window, and the highest number of a stream."""

Field = tuple[bytes, bytes]


def raw(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    """Any frame; C{length} is what it says, when that is not what it has."""
    said = len(payload) if length is None else length
    return said.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def padded(payload: bytes, pad: int | None) -> bytes:
    """With that many bytes of padding, which may be 0; None = the flag is not set."""
    return payload if pad is None else bytes((pad,)) + payload + bytes(pad)


def data(stream: int, content: bytes = b"", end: bool = False, pad: int | None = None) -> bytes:
    """DATA."""
    flags = END_STREAM * end | PADDED * (pad is not None)
    return raw(DATA, flags, stream, padded(content, pad))


def headers(
    stream: int,
    block: bytes,
    end: bool = True,
    last: bool = True,
    pad: int | None = None,
    priority: tuple[int, int] | None = None,
    flags: int = 0,
) -> bytes:
    """
    HEADERS.

    @param last: no CONTINUATION follows.
    @param priority: the stream it depends on, and the weight.
    """
    flags |= END_STREAM * end | END_HEADERS * last | PADDED * (pad is not None) | PRIORITIES * (priority is not None)
    before = b"" if priority is None else struct.pack(">IB", *priority)
    return raw(HEADERS, flags, stream, padded(before + block, pad))


def continuation(stream: int, block: bytes = b"", last: bool = True) -> bytes:
    """CONTINUATION."""
    return raw(CONTINUATION, END_HEADERS * last, stream, block)


def settings(*pairs: tuple[int, int], **named: int) -> bytes:
    """SETTINGS, in this order."""
    return raw(SETTINGS, payload=b"".join(struct.pack(">HI", *pair) for pair in pairs), **named)


ACKED = raw(SETTINGS, ACK)


def window(stream: int, more: int) -> bytes:
    """WINDOW_UPDATE."""
    return raw(WINDOW_UPDATE, 0, stream, struct.pack(">I", more))


def rst(stream: int, code: int = 8) -> bytes:
    """RST_STREAM, CANCEL unless said otherwise."""
    return raw(RST_STREAM, 0, stream, struct.pack(">I", code))


def ping(payload: bytes = b"12345678", flags: int = 0, stream: int = 0) -> bytes:
    """PING."""
    return raw(PING, flags, stream, payload)


def goaway(last: int = 0, code: int = 0, text: bytes = b"", stream: int = 0) -> bytes:
    """GOAWAY."""
    return raw(GOAWAY, 0, stream, struct.pack(">II", last, code) + text)


def priority(stream: int, depends: int = 0, weight: int = 15) -> bytes:
    """PRIORITY."""
    return raw(PRIORITY, 0, stream, struct.pack(">IB", depends, weight))


def promise(stream: int, promised: int, block: bytes) -> bytes:
    """PUSH_PROMISE."""
    return raw(PUSH_PROMISE, END_HEADERS, stream, struct.pack(">I", promised) + block)


# -- fields


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """With a prefix of so many bits, below those of C{first} (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out, value = bytearray((first | most,)), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: bytes) -> bytes:
    """Without Huffman's code (RFC 7541, 5.2)."""
    return integer(len(value), 7) + value


def literal(name: bytes, value: bytes, first: int = 0) -> bytes:
    """A literal with a new name; 0x40 also puts it into the table, 0x10 forbids that for ever (RFC 7541, 6.2)."""
    return bytes((first,)) + string(name) + string(value)


def fields(pairs: Iterable[Field]) -> bytes:
    """A block of literals."""
    return b"".join(literal(name, value) for name, value in pairs)


def request(
    path: bytes = b"/", method: bytes = b"GET", more: Iterable[Field] = (), **other: bytes | None
) -> list[Field]:
    """
    The fields of a request.

    @param other: C{scheme=} and C{authority=}; None leaves the field out, as it does for path and method.
    """
    pseudo: Mapping[bytes, bytes | None] = {
        b":method": method,
        b":scheme": other.get("scheme", b"http"),
        b":path": path,
        b":authority": other.get("authority", b"a.test"),
    }
    return [(name, value) for name, value in pseudo.items() if value is not None] + list(more)


def req(
    stream: int,
    path: bytes = b"/",
    method: bytes = b"GET",
    more: Iterable[Field] = (),
    end: bool = True,
    **other: bytes | None,
) -> bytes:
    """HEADERS of a request."""
    return headers(stream, fields(request(path, method, more, **other)), end)


def res(stream: int, status: bytes = b"200", more: Iterable[Field] = (), end: bool = True) -> bytes:
    """HEADERS of a response."""
    return headers(stream, fields([(b":status", status), *more]), end)


def many(size: int) -> list[Field]:
    """Fields with values of C{size} bytes together, none of them long."""
    return [(b"x-%d" % n, b"v" * min(4000, size - n * 4000)) for n in range(-(-size // 4000))]
