"""
Rates, and buckets that hold to them: the generic cell rate algorithm (ITU-T I.371), one number for each key.

A bucket has room for C{burst} units and regains C{rate} units a second.  In any time of C{t} seconds it lets
C{burst + rate × t} units through, and not one more.

Rules
- What stands for a key is when, on a clock that advances by one for each unit regained, its bucket is full again.  So
  another rate changes nothing of what was used so far, whatever the number of keys.
- A bucket that is full again is forgotten: nothing distinguishes it from one that was never touched.
- There are C{most} keys at a time.  Beyond these, keys that are not known yet share one bucket: who fills the table
  shuts out others who are new, and neither forgets himself nor shuts out those who are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protogate.config.scalar import shown
from protogate.errors import ConfigError
from protogate.governance.tables import Tables

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds."""
SLACK: Final = 1e-4
"""Units by which sums of fractions may be wrong: after a month at 100,000 units a second they are, by a third of it."""

_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,3})?([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """
    @ivar count: units …
    @ivar period: … in so many seconds.
    """

    count: int
    period: int

    @classmethod
    def of(cls, text: object) -> Rate:
        """
        C{100/s}, C{5000/h}, C{20/10s}.

        @raise ConfigError: it is none.
        """
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ConfigError(f"expected a rate such as 100/s, 20/10s, 5000/h or 100000/d, got {shown(text)}")
        return cls(int(match[1]), int(match[2] or 1) * PERIODS[match[3]])

    @property
    def each(self) -> float:
        """Units a second."""
        return self.count / self.period


class Buckets:
    """
    @ivar rate: units a second that a bucket regains.
    @ivar burst: units that it has room for; 1 at least.
    @ivar crowded: how often a key had to share one.
    """

    __slots__ = ("_base", "_full", "_since", "burst", "crowded", "rate")

    def __init__(self, rate: float, burst: float, most: int) -> None:
        """@param most: keys that have a bucket of their own."""
        self.rate, self.burst = rate, max(burst, 1.0)
        self.crowded = 0
        self._full: Tables[float] = Tables(most)
        self._base, self._since = 0.0, 0.0  # what the clock of units was when

    def __len__(self) -> int:
        return len(self._full)

    def take(self, key: str, cost: int, now: float) -> float:
        """
        Take units out of a bucket, if they are in it.

        @param cost: in units; more than C{burst} is as much as that.
        @param now: seconds; not earlier than the last time.
        @return: units left, 0 or more; or, below 0, those that are missing: then nothing was taken.
        """
        clock = self._base + (now - self._since) * self.rate
        tables = self._full
        table = tables.small[hash(key) & tables.mask]  # of(), without a call: each request comes through here
        full = table.get(key)
        if full is None:
            return self._first(key, cost, clock)
        used = full - clock if full > clock else 0.0
        burst = self.burst
        if used > burst:  # which was larger before
            used, table[key] = burst, clock + burst
        left = burst - used - (cost if cost < burst else burst)
        if left < 0.0:
            if left < -SLACK:
                return left
            left = 0.0
        table[key] = clock + burst - left
        table.move_to_end(key)
        return left

    def _first(self, key: str | None, cost: int, clock: float) -> float:
        full = self._full.of(key)
        for _ in range(2):  # so that the table shrinks as long as some of it is not needed
            if full and next(iter(full.values())) <= clock:
                full.popitem(last=False)
        if len(full) >= self._full.each and key is not None:
            self.crowded += 1
            key, full = None, self._full.of(None)
        used = max(full.get(key, clock) - clock, 0.0)
        left = self.burst - min(used, self.burst) - min(cost, self.burst)
        if left < -SLACK:
            return left
        full[key] = clock + self.burst - max(left, 0.0)
        full.move_to_end(key)
        return max(left, 0.0)

    def fill(self, key: str, left: float, now: float) -> None:
        """Say how much is left in the bucket of a key that is not known yet."""
        clock = self._base + (now - self._since) * self.rate
        full = self._full.of(key)
        if key not in full and left < self.burst and len(full) < self._full.each:
            full[key] = clock + self.burst - max(left, 0.0)

    def change(self, rate: float, burst: float, most: int, now: float) -> None:
        """Hold to other numbers from now on; what was used so far stays used."""
        self._base = self._base + (now - self._since) * self.rate if self._full else 0.0
        self._since = now
        self.rate, self.burst = rate, max(burst, 1.0)
        self._full.limit(most)
