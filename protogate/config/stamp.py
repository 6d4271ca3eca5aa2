"""What tells one state of a file from another."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int, int]
"""Device, inode, size, time of change in ns."""


def stamp(status: os.stat_result) -> Stamp:
    """The state of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """The state of the file at that path, links followed; None if there is none."""
    try:
        return stamp(os.stat(path))
    except OSError:
        return None
