"""
What was seen already, and must not come again: in this process.

Rules
- Bounded: when there is no room nothing new is let in, rather than something old forgotten.
- Everything is kept for the same time, so the oldest is the first to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ROOM: Final = 200_000
"""Things that are remembered."""


class Full(Exception):
    """There is no room."""


class Replays:
    """
    @param now: the clock, in seconds.
    @param seconds: that something is remembered.
    @param room: how much is.
    """

    __slots__ = ("_now", "_room", "_seconds", "_seen")

    def __init__(self, now: Callable[[], float], seconds: float, room: int = ROOM) -> None:
        self._now, self._seconds, self._room = now, seconds, room
        self._seen: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def lengthen(self, seconds: float) -> None:
        """Remember for longer from now on, also what was seen already."""
        more = seconds - self._seconds
        if more > 0:
            self._seconds = seconds
            self._seen = {thing: until + more for thing, until in self._seen.items()}

    def add(self, thing: bytes) -> bool:
        """
        See something; whether it is new.

        @raise Full: it may be new, but there is no room for it.
        """
        now, seen = self._now(), self._seen
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] > now:
                break
            del seen[oldest]
        if thing in seen:
            return False
        if len(seen) >= self._room:
            raise Full
        seen[thing] = now + self._seconds
        return True
