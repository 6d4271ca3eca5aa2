"""
How near something is to its end, as a number from 0 to 1 that does not jump.

Rules
- Up to C{begin} it goes to 0, from C{full} on to 1, and in between in proportion.
- It rises faster than it falls, and neither in one step: one look is no trouble, and what was too much a moment ago
  will soon be again.
"""

from __future__ import annotations

from typing import Final

UP: Final = 0.15
"""Of the way, at each look."""
DOWN: Final = 0.05
"""Likewise."""
LEAST: Final = 0.01
"""Below it there is nothing left of it."""


class Level:
    """
    @ivar begin: @ivar full: the marks, in the unit of what is looked at; C{begin < full}.
    @ivar value: what was seen last.
    @ivar level: from 0 to 1.
    """

    __slots__ = ("begin", "full", "level", "value")

    def __init__(self, begin: float, full: float) -> None:
        self.begin, self.full = begin, full
        self.level = self.value = 0.0

    def look(self, value: float) -> float:
        """It is so much now; returns the level."""
        self.value = value
        there = self.part(value)
        level = self.level
        level += (UP if there > level else DOWN) * (there - level)
        self.level = level = 0.0 if not there and level < LEAST else level
        return level

    def succeed(self, before: Level) -> None:
        """Go on where that one was: its marks were others, perhaps."""
        self.level, self.value = before.level, before.value

    def part(self, value: float) -> float:
        """How much of the way between the marks that is, from 0 to 1."""
        return min(max((value - self.begin) / (self.full - self.begin), 0.0), 1.0)

    @property
    def over(self) -> bool:
        """What was seen last is at its end."""
        return self.value >= self.full

    @property
    def under(self) -> bool:
        """All was well at the last look."""
        return self.value <= self.begin
