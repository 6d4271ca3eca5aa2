"""What a file holds, and what tells one state of it from another."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int, int]
"""Device, inode, size, time of change in ns."""


def stamp(status: os.stat_result) -> Stamp:
    """The state of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read(path: str, most: int) -> tuple[bytes, Stamp]:
    """
    What a file holds, and its state; not blocked by a FIFO that nobody writes.

    @param most: bytes that it may have.
    @raise ValueError: it cannot be read, or is larger; the message says so, and not which it is.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            state = stamp(os.fstat(file.fileno()))
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(error.strerror) from None
    if len(data) > most:
        raise ValueError(f"larger than {most} bytes")
    return data, state


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """The state of the file at that path, links followed; None if there is none."""
    try:
        return stamp(os.stat(path))
    except OSError:
        return None
