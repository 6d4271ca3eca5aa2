"""
What a process saw of an endpoint in a while, or of one attempt: numbers that can be added up, and told to others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from protogate.observe.histogram import BOUNDS
from protogate.upstream.outcome import FAILED, WELL, Outcome

FIELDS: Final = 4


class Seen:
    """
    @ivar well: attempts that were answered well.
    @ivar errors: that were answered with 5xx.
    @ivar failed: that came to no answer.
    @ivar row: how many were not well since the last one that was.
    @ivar bins: of the time that good answers took: how many are in which of the bins of L{protogate.observe.histogram}.
        How long bad ones took says nothing: some fail at once.
    """

    __slots__ = ("bins", "errors", "failed", "row", "well")

    def __init__(self) -> None:
        self.well = self.errors = self.failed = self.row = 0
        self.bins: dict[int, int] = {}

    @property
    def bad(self) -> int:
        """Attempts that were not well."""
        return self.errors + self.failed

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One more attempt, which says something."""
        if outcome is WELL:
            self.well += 1
            self.row = 0
            place = bisect_left(BOUNDS, seconds)
            self.bins[place] = self.bins.get(place, 0) + 1
            return
        self.row += 1
        if outcome is FAILED:
            self.failed += 1
        else:
            self.errors += 1

    def merge(self, other: Seen) -> None:
        """What was seen after this."""
        self.row = other.row if other.well else self.row + other.row
        self.well += other.well
        self.errors += other.errors
        self.failed += other.failed
        for place, count in other.bins.items():
            self.bins[place] = self.bins.get(place, 0) + count

    def slow(self, seconds: float) -> int:
        """How many good answers surely took longer than that."""
        return sum(count for place, count in self.bins.items() if place and BOUNDS[place - 1] >= seconds)

    def plain(self) -> list[int]:
        """As another process is told."""
        told = [self.well, self.errors, self.failed, self.row]
        for item in self.bins.items():
            told += item
        return told

    @classmethod
    def told(cls, plain: Sequence[Any]) -> Seen:
        """What another process told.  @raise ValueError: it is something else."""
        seen = cls()
        if len(plain) < FIELDS or len(plain) % 2 or not all(type(each) is int and each >= 0 for each in plain):
            raise ValueError(f"no sight: {plain!r}")
        seen.well, seen.errors, seen.failed, seen.row = plain[:FIELDS]
        for place, count in zip(plain[FIELDS::2], plain[FIELDS + 1 :: 2], strict=True):
            if place > len(BOUNDS):
                raise ValueError(f"no bin: {place}")
            seen.bins[place] = count
        return seen


def one(outcome: Outcome, seconds: float) -> Seen:
    """A single attempt."""
    seen = Seen()
    seen.add(outcome, seconds)
    return seen
