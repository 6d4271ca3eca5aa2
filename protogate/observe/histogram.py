"""
How long things took: log-linear bins, nine to a decade, the same in every process, so that histograms can be added up.

Rules
- An observation is only noted; L{MANY} at a time are sorted into the bins, which costs a fraction of one search each.
- The bounds never change with the configuration: what was counted before a reload or in another worker still fits.
- All on one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from protogate.observe.snapshot import Bins

BOUNDS: Final[tuple[float, ...]] = (
    *(float(f"{digit}e{decade}") for decade in range(-5, 2) for digit in range(1, 10)),
    1e2,
)
"""Seconds: 10 µs, 20 µs … 90 µs, 100 µs, 200 µs … 90 s, 100 s.  A bin has what is above the bound before it, up to its
own."""
MANY: Final = 1024


class Histogram:
    """
    @ivar sum: of all observations, seconds.
    """

    __slots__ = ("_bins", "_noted", "sum")

    def __init__(self) -> None:
        self._bins = [0] * (len(BOUNDS) + 1)
        self._noted: list[float] = []  # not in a bin yet
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more that took so long."""
        noted = self._noted
        noted.append(seconds)
        self.sum += seconds
        if len(noted) >= MANY:
            self._sort()

    @property
    def bins(self) -> list[int]:
        """How many observations fell into each of L{BOUNDS}, and in the last one: above all of them."""
        if self._noted:
            self._sort()
        return self._bins

    def _sort(self) -> None:
        noted, self._noted = self._noted, []
        noted.sort()
        bins, begin = self._bins, 0
        for at, bound in enumerate(BOUNDS):
            end = bisect_right(noted, bound, begin)
            bins[at] += end - begin
            begin = end
        bins[-1] += len(noted) - begin

    def snapshot(self) -> Bins:
        """As plain data, at this moment."""
        bins = self.bins
        used = len(bins)
        while used and not bins[used - 1]:
            used -= 1
        return {"bins": bins[:used], "sum": self.sum}
