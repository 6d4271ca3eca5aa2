"""
The wire format, sans-I/O.

    frame   length (4) | type (1) | stream (4) | payload
    HEAD    fields, each: length (2) name | length (4) value
    DATA    bytes
    END     trailers, as fields
    CANCEL  reason (1)
    CREDIT  bytes (4)

Each stream starts with WINDOW bytes of credit each way; credit comes back when bytes were passed on.  Names that begin
with a colon are the protocol's own.  A HEAD with a status under 200 is interim, but for 101.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final

HEAD, DATA, END, CANCEL, CREDIT = range(5)
REFUSED, UNWANTED, BROKEN = range(3)
WINDOW: Final = 65536
LARGEST: Final = 1 << 20
"""Bytes of one frame."""
NUMBER: Final = re.compile(rb"[0-9]{1,15}").fullmatch
NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
VALUE: Final = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t \x21-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?").fullmatch
TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
TARGET: Final = re.compile(rb"[\x21-\x7e]*").fullmatch

Field = tuple[bytes, bytes]
Frame = tuple[int, int, bytes]
"""Type, stream, payload."""

_FRAME: Final = struct.Struct("!IBI")
_FIELD: Final = struct.Struct("!HI")
_LONG: Final = struct.Struct("!I")


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _FRAME.pack(len(payload), kind, stream) + payload


def frames(data: bytes) -> tuple[list[Frame], bytes, str]:
    """The frames in C{data}, what is left, and what is wrong with that, if anything."""
    out, at, end = [], 0, len(data)
    while end - at >= _FRAME.size:
        size, kind, stream = _FRAME.unpack_from(data, at)
        if size > LARGEST or kind > CREDIT or not stream:
            return out, b"", "not a frame"
        start = at + _FRAME.size
        if end - start < size:
            break
        at = start + size
        out.append((kind, stream, data[start:at]))
    return out, data[at:], ""


def pack(fields: Iterable[Field]) -> bytes:
    """The payload of a HEAD or END."""
    return b"".join([_FIELD.pack(len(name), len(value)) + name + value for name, value in fields])


def unpack(data: bytes) -> list[Field]:
    """The fields of a HEAD or END.  ValueError when they are none."""
    out, at, end = [], 0, len(data)
    while at < end:
        if end - at < _FIELD.size:
            raise ValueError("a field is cut off")
        a, b = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        if end - at < a + b:
            raise ValueError("a field is cut off")
        name, value = data[at : at + a], data[at + a : at + a + b]
        at += a + b
        if NAME(name) is None or VALUE(value) is None:
            raise ValueError("not a field")
        out.append((name, value))
    return out


def credit(data: bytes) -> int:
    """The bytes of a CREDIT."""
    if len(data) != _LONG.size:
        raise ValueError("not a credit")
    return int(_LONG.unpack(data)[0])


def credited(number: int, size: int) -> bytes:
    """A CREDIT."""
    return frame(CREDIT, number, _LONG.pack(size))


def shown(item: Frame) -> str:
    """A frame, for people."""
    kind, stream, payload = item
    name = ("HEAD", "DATA", "END", "CANCEL", "CREDIT")[kind]
    if kind not in (HEAD, END):
        return f"{name} stream {stream}: {len(payload)} bytes"
    lines = [f"{name} stream {stream}"]
    lines += [ascii(f"{field.decode('latin-1')}: {value.decode('latin-1')}")[1:-1] for field, value in unpack(payload)]
    return "\n    ".join(lines)
