"""
RESP2, sans-I/O: bytes in, events out.  A value is never built: a string of a gigabyte is passed on as it comes.

    +text  -error  :number     a line
    $5 hello                   a string of so many bytes; $-1 is none
    *2 …                       so many values; *-1 is none
    $? ;3 abc ;0               a string in parts, as RESP3 has it: its length is not known yet
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

LINE: Final = 65536
"""Bytes of a line."""
END: Final = b"\r\n"
CONTENT: Final = b""
DONE: Final = b"\r"

_SIZED: Final = re.compile(rb"([$*;])([0-9]{1,12}|-1|\?)").fullmatch
_PLAIN: Final = re.compile(rb"[+:-][^\r\n]*").fullmatch

Event = tuple[bytes, int | None, bytes]
"""
Type byte, number behind it, and the bytes as they came.  C{CONTENT} is a piece of a string, C{DONE} its end, None for
the number a string in parts.
"""


class Reader:
    """@ivar left: values that are still to come before the message is complete."""

    def __init__(self) -> None:
        self.left = 0
        self._data, self._at = b"", 0
        self._size: int | None = None  # bytes of the string that are still to come
        self._parts = False  # it comes in parts

    def __len__(self) -> int:
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Something was read."""
        self._data, self._at = self._data[self._at :] + data, 0

    def next(self) -> Event | None:
        """The next event, or None when more must be read.  ValueError: this is no RESP."""
        data, at = self._data, self._at
        if self._size:
            piece = data[at : at + self._size]
            self._at, self._size = at + len(piece), self._size - len(piece)
            return (CONTENT, len(piece), piece) if piece else None
        stop = data.find(END, at, at + LINE)
        if stop < 0:
            if len(data) - at >= LINE:
                raise ValueError("a line without an end")
            if self._size == 0 and not END.startswith(data[at:]):
                _bad()
            return None
        line, raw = data[at:stop], data[at : stop + 2]
        self._at = stop + 2
        if self._size == 0:
            if line:
                _bad()
            self._size = None
            self.left -= not self._parts
            return DONE, None, raw
        return self._line(line, raw)

    def _line(self, line: bytes, raw: bytes) -> Event:
        match = _SIZED(line)
        self.left = self.left or 1
        if match is None:
            if self._parts or not _PLAIN(line):
                _bad()
            self.left -= 1
            return line[:1], None, raw
        kind = match[1]
        if (kind == b";") is not self._parts or (match[2] == b"?" and kind != b"$"):
            _bad()
        if match[2] == b"?":
            self._parts = True
            return kind, None, raw
        size = int(match[2])
        if kind == b"*":
            self.left += max(size, 0) - 1
        elif size > 0 or (size == 0 and kind == b"$"):
            self._size = size
        elif size < 0 and kind == b";":
            _bad()
        else:
            self._parts = False
            self.left -= 1
        return kind, size, raw


def _bad() -> NoReturn:
    raise ValueError("not RESP")


def string(data: bytes) -> bytes:
    """A string that is whole."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(size: int, *words: bytes) -> bytes:
    """The start of an array, and its first words."""
    return b"*%d\r\n" % size + b"".join(map(string, words))
