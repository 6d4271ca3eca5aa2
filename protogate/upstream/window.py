"""
What was seen within the last seconds: a ring of L{SLICES} parts.  The oldest is forgotten when a new one begins.

So it tells of at least nine tenths of the time that it is for, and never of more.  Sums are kept: to ask costs nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from protogate.observe.histogram import BOUNDS
from protogate.upstream.seen import Seen

SLICES: Final = 10


class Window:
    """
    @param seconds: how far back it goes.
    @param latencies: whether it is asked for quantiles.
    @ivar well: @ivar errors: @ivar failed: how many attempts within it, see L{Seen}.
    """

    __slots__ = ("_bins", "_latencies", "_slices", "_span", "errors", "failed", "well")

    def __init__(self, seconds: float, latencies: bool = False) -> None:
        self._span, self._latencies = seconds / SLICES, latencies
        self._slices: deque[tuple[int, Seen]] = deque()
        self._bins = [0] * (len(BOUNDS) + 1) if latencies else []
        self.well = self.errors = self.failed = 0

    @property
    def total(self) -> int:
        """All attempts within it."""
        return self.well + self.errors + self.failed

    @property
    def bad(self) -> int:
        """Those that were not well."""
        return self.errors + self.failed

    @property
    def ratio(self) -> float:
        """The share of those, 0.0 to 1.0."""
        total = self.total
        return self.bad / total if total else 0.0

    def add(self, seen: Seen, now: float) -> None:
        """More was seen, at this time or just before."""
        self.turn(now)
        number = int(now / self._span)
        slices = self._slices
        if not slices or slices[-1][0] != number:
            slices.append((number, Seen()))
        slices[-1][1].merge(seen)
        self._count(seen, 1)

    def turn(self, now: float) -> None:
        """Forget what is too long ago."""
        oldest = int(now / self._span) - SLICES
        slices = self._slices
        while slices and slices[0][0] <= oldest:
            self._count(slices.popleft()[1], -1)

    def clear(self) -> None:
        """Forget all."""
        while self._slices:
            self._count(self._slices.popleft()[1], -1)

    def quantile(self, share: float) -> float:
        """
        How long this share of good answers took at most, in seconds; as exact as bins are, about a tenth of it.  0.0 =
        there are none.
        """
        wanted, below = self.well * share, 0
        if not self.well:
            return 0.0
        for place, count in enumerate(self._bins):
            if count and below + count >= wanted:
                low = BOUNDS[place - 1] if place else 0.0
                high = BOUNDS[min(place, len(BOUNDS) - 1)]
                return low + (high - low) * max(wanted - below, 0.0) / count
            below += count
        return BOUNDS[-1]

    def _count(self, seen: Seen, sign: int) -> None:
        self.well += sign * seen.well
        self.errors += sign * seen.errors
        self.failed += sign * seen.failed
        if self._latencies:
            bins = self._bins
            for place, count in seen.bins.items():
                bins[place] += sign * count
