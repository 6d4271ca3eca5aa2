"""
Bytes that were read and not yet understood, for codecs whose parser is a generator.

Such a parser is written as if all of a connection had come already: where it has not, it yields None, and goes on from
there when more was read.  So it needs no states, and cannot tell where one read ended and the next began.

    def lines(input):
        while True:
            size = yield from input.line(100)
            yield from input.pieces(int(size))

Rules
- Sans-I/O: it is fed bytes, and knows no transport and no clock.
- Nothing is kept but what was not understood, and whoever asks for something whole says how much that may be.
"""

from __future__ import annotations

from collections.abc import Generator


class Input:
    """C{len()} of it is what waits."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes = b"") -> None:
        self._data, self._at = data, 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Something was read."""
        self._data, self._at = self._data[self._at :] + data, 0

    def line(self, most: int, end: bytes = b"\r\n") -> Generator[None, None, bytes]:
        """
        What comes before the next C{end}.

        @raise ValueError: that is more than C{most} bytes.
        """
        looked = 0  # bytes in which no end begins
        while True:
            data, at = self._data, self._at
            stop = data.find(end, at + looked, at + most + len(end))
            if stop >= 0:
                self._at = stop + len(end)
                return data[at:stop]
            if len(data) - at >= most + len(end):
                raise ValueError("a line that is too long")
            looked = max(len(data) - at - len(end) + 1, 0)
            yield None

    def exactly(self, size: int) -> Generator[None, None, bytes]:
        """The next C{size} bytes, whole."""
        parts = []  # taken out at once: what waits is copied with each read
        for piece in self.pieces(size):
            if piece is None:
                yield None
            else:
                parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self, size: int) -> Generator[bytes | None, None, None]:
        """The next C{size} bytes, as they come."""
        if size < 0:
            raise ValueError("a size below zero")
        while size:
            at = self._at
            piece = self._data[at : at + size]
            if piece:
                self._at, size = at + len(piece), size - len(piece)
                yield piece
            else:
                yield None
