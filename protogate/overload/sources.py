"""
How much memory and how many descriptors are in use, as shares of what may be.

Rules
- A look reads a few lines that the kernel makes up: tens of microseconds, and no disk is waited for.
- Who has no limit has no share: there is no source then.
- Memory of a control group is counted without what the kernel can drop at once (files that were read): it would be
  full most of the time.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

Source = Callable[[], float]
"""Gives a percentage."""

GROUPS: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
STATM: Final = Path("/proc/self/statm")
DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")
UNLIMITED: Final = 1 << 60
"""Bytes; the first version of control groups says no limit by a number that is about the largest one."""


def memory(limit: int, workers: int, groups: Path = GROUPS, own: Path = OWN, statm: Path = STATM) -> Source | None:
    """
    Of what may be used.

    @param limit: bytes of so many workers together; 0 = what the control group may use.
    @return: None where nobody says how much that is.
    """
    if limit:
        return _Resident(limit / workers, statm) if statm.exists() else None
    return _group(groups, own)


def descriptors() -> Source | None:
    """Of those that this process may have.  None where nobody counts them."""
    for name in DESCRIPTORS:
        if os.path.isdir(name):
            return _Descriptors(name)
    return None


class _Resident:
    """What this process has in memory."""

    def __init__(self, limit: float, statm: Path) -> None:
        self._limit, self._statm = limit, statm
        self._page = resource.getpagesize()

    def __call__(self) -> float:
        return 100.0 * int(self._statm.read_bytes().split()[1]) * self._page / self._limit


class _Group:
    """
    What a control group has.

    @param used: the file that says it; C{stat} has what of it can be dropped, as C{inactive}.
    """

    def __init__(self, limit: int, used: Path, stat: Path, inactive: bytes) -> None:
        self._limit, self._used, self._stat, self._inactive = limit, used, stat, inactive

    def __call__(self) -> float:
        used = int(self._used.read_bytes())
        for line in self._stat.read_bytes().splitlines():
            if line.startswith(self._inactive):
                used -= int(line.split()[1])
        return 100.0 * max(used, 0) / self._limit


class _Descriptors:
    """
    Linux says it in the size of the folder from 6.2 on; before, and elsewhere, it is read.

    @ivar quick: nothing has to be read.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.quick = os.stat(folder).st_size > 0

    def __call__(self) -> float:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most == resource.RLIM_INFINITY:
            return 0.0
        return 100.0 * (os.stat(self._folder).st_size or len(os.listdir(self._folder))) / most


def _group(groups: Path, own: Path) -> _Group | None:
    """Of the control groups that this process is in, the one with the least limit."""
    found: list[tuple[int, _Group]] = []
    try:
        lines = own.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        number, kinds, path = line.split(":", 2)
        if number == "0":
            root, names = groups, ("memory.max", "memory.current", b"inactive_file ")
        elif "memory" in kinds.split(","):
            root = groups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file ")
        else:
            continue
        folder = root / path.lstrip("/")
        for place in (folder, *folder.parents):
            limit = _limit(place / names[0])
            if limit and (place / names[1]).exists():
                found.append((limit, _Group(limit, place / names[1], place / "memory.stat", names[2])))
            if place == root:
                break
    return min(found, key=lambda each: each[0])[1] if found else None


def _limit(file: Path) -> int:
    """Bytes; 0 = none."""
    try:
        limit = int(file.read_bytes())
    except (OSError, ValueError):  # it is not there, or says max
        return 0
    return limit if limit < UNLIMITED else 0
