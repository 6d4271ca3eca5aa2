"""
RESP2, the way Redis writes values: each begins with a line, and its first byte says what it is.

    +text  -error  :number     all of it is in the line
    $5 hello                   a string of so many bytes; $-1 is none
    *2 …                       so many values; *-1 is none
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from protogate.ordered.input import Input

CRLF: Final = b"\r\n"
LINE: Final = 65536
"""Bytes that a line may have."""

_VALUE: Final = re.compile(rb"[+:-][^\r\n]*|[$*](?:-1|0|[1-9][0-9]{0,11})").fullmatch


def line(source: Input) -> Generator[None, None, tuple[bytes, int, bytes]]:
    """The first byte of a line, the number behind it where it is $ or *, and all of the line."""
    text = yield from source.line(LINE)
    if not _VALUE(text):
        raise ValueError("not RESP")
    kind = text[:1]
    return kind, int(text[1:]) if kind in (b"$", b"*") else 0, text


def string(source: Input, size: int) -> Generator[bytes | None, None, None]:
    """The bytes of a string, as they come, and what must stand behind them."""
    yield from source.pieces(size)
    if (yield from source.exactly(2)) != CRLF:
        raise ValueError("a string that is longer than it said")


def array(count: int, *words: bytes) -> bytes:
    """The start of an array, and its first strings."""
    return b"*%d\r\n" % count + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
