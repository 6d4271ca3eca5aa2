"""
How many requests somebody can take at a time, learnt from how long they take: the gradient of Netflix'
concurrency-limits (C{Gradient2Limit}), with the headroom of Envoy's adaptive concurrency.

After each window of at least L{WINDOW} seconds and L{SAMPLES} answers, with C{short} their mean time and C{long} its
average over the last L{LONG} windows:

    gradient = tolerance × long ÷ short, between 0.5 and 1
    wanted   = limit × gradient + √limit
    limit    = 0.8 × limit + 0.2 × wanted, between least and most

So it grows as long as answers take no longer than usual, and shrinks when they do.  It stays as it is while less than
half of it is used: then nothing is learnt of it.  When answers are twice as quick as usual, what is usual follows
faster.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

WINDOW: Final = 1.0
"""Seconds."""
SAMPLES: Final = 10
LONG: Final = 600
"""Windows."""
WARM: Final = 10
"""Windows after whose plain mean the average begins to forget."""
SMOOTH: Final = 0.2


class Gradient:
    """
    @ivar limit: how many it takes now.
    @ivar least: @ivar most: what the limit stays between.
    @ivar tolerance: how many times longer than usual is still as usual.
    @ivar short: @ivar long: seconds, see above; 0 = not known yet.
    """

    __slots__ = (
        "_begun",
        "_count",
        "_peak",
        "_sum",
        "_windows",
        "least",
        "limit",
        "long",
        "most",
        "short",
        "tolerance",
    )

    def __init__(self, first: float, least: float, most: float, tolerance: float, now: float) -> None:
        self.least, self.most, self.tolerance = least, most, tolerance
        self.limit = min(max(first, least), most)
        self.short = self.long = 0.0
        self._windows, self._count, self._sum, self._peak, self._begun = 0, 0, 0.0, 0, now

    def sample(self, seconds: float, busy: int, now: float) -> None:
        """
        One answer.

        @param seconds: that it took.
        @param busy: how many were under way with it.
        """
        self._count += 1
        self._sum += seconds
        self._peak = max(self._peak, busy)
        if self._count >= SAMPLES and now - self._begun >= WINDOW:
            short, peak = max(self._sum / self._count, 1e-6), self._peak
            self._count, self._sum, self._peak, self._begun = 0, 0.0, 0, now
            self._window(short, peak)

    def _window(self, short: float, peak: int) -> None:
        self.short = short
        self._windows += 1
        weight = 1 / self._windows if self._windows <= WARM else 2 / (LONG + 1)
        self.long += (short - self.long) * weight
        if self.long > 2 * short:
            self.long *= 0.95
        if peak * 2 < self.limit:
            return
        gradient = min(max(self.tolerance * self.long / short, 0.5), 1.0)
        wanted = self.limit * gradient + sqrt(self.limit)
        self.limit = min(max(self.limit + (wanted - self.limit) * SMOOTH, self.least), self.most)
