"""
How long things took: log-linear bins, nine to a decade, the same in every process, so that histograms can be added up.

Rules
- One observation is one search and two additions: nothing is allocated.
- The bounds never change with the configuration: what was counted before a reload or in another worker still fits.
- All on one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from protogate.observe.snapshot import Bins

BOUNDS: Final[tuple[float, ...]] = (
    *(float(f"{digit}e{decade}") for decade in range(-5, 2) for digit in range(1, 10)),
    1e2,
)
"""Seconds: 10 µs, 20 µs … 90 µs, 100 µs, 200 µs … 90 s, 100 s.  A bin has what is above the bound before it, up to its
own."""


class Histogram:
    """
    @ivar bins: how many observations fell into each of L{BOUNDS}, and in the last one: above all of them.
    @ivar sum: of all observations, seconds.
    """

    __slots__ = ("bins", "sum")

    def __init__(self) -> None:
        self.bins = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more that took so long."""
        self.bins[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def snapshot(self) -> Bins:
        """As plain data, at this moment."""
        bins = self.bins
        used = len(bins)
        while used and not bins[used - 1]:
            used -= 1
        return {"bins": bins[:used], "sum": self.sum}
