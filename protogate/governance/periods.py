"""
Days and months of a calendar in some time zone: when one ends, and how much was used in it, for each key.

Rules
- A day begins at midnight where the zone is, and has 23 or 25 hours where clocks are changed in it.
- Nothing is cleared when a day is over: what is known of a key says of which period it is.
- There are C{most} keys at a time.  Beyond these, keys that are not known yet are counted together.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protogate.config.nearest import nearest
from protogate.config.scalar import shown
from protogate.errors import ConfigError
from protogate.governance.tables import Tables

DAY: Final = "day"
MONTH: Final = "month"

_BITS: Final = 40
_USED: Final = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True)
class Period:
    """
    @ivar number: that it has among all of its kind; later ones have higher ones.
    @ivar label: C{2026-11-30} or C{2026-11}.
    @ivar begin: @ivar end: seconds of the epoch.
    """

    number: int
    label: str
    begin: float
    end: float


class Calendar:
    """
    @param per: L{DAY} or L{MONTH}.
    @param now: seconds of the epoch.
    """

    def __init__(self, per: str, zone: datetime.tzinfo, now: Callable[[], float]) -> None:
        self._per, self._zone, self._now = per, zone, now
        self._period = Period(0, "", 0.0, 0.0)

    def period(self) -> tuple[Period, float]:
        """That of now, and for how many seconds it lasts yet."""
        now, period = self._now(), self._period
        if not period.begin <= now < period.end:
            period = self._period = self._find(now)
        return period, period.end - now

    def _find(self, now: float) -> Period:
        date = datetime.datetime.fromtimestamp(now, self._zone).date()
        if self._per == DAY:
            first, number, label = date, date.toordinal(), date.isoformat()
            after = date + datetime.timedelta(days=1)
        else:
            first, number, label = date.replace(day=1), date.year * 12 + date.month, f"{date:%Y-%m}"
            after = (first + datetime.timedelta(days=31)).replace(day=1)
        return Period(number, label, self._midnight(first), self._midnight(after))

    def _midnight(self, date: datetime.date) -> float:
        return datetime.datetime.combine(date, datetime.time(), self._zone).timestamp()


def zone_of(name: str) -> datetime.tzinfo:
    """
    A time zone by its name, C{Europe/Berlin}.

    @raise ConfigError: there is none, or the machine knows of no zones.
    """
    if name == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    zones = sorted(zoneinfo.available_timezones())
    if not zones:
        raise ConfigError("this machine knows no time zones: pip install tzdata, or install the package of the system")
    meant = nearest(name, zones)
    advice = f'; did you mean "{meant}"?' if meant else ""
    raise ConfigError(f"expected a time zone such as UTC, Europe/Berlin or Asia/Shanghai, got {shown(name)}{advice}")


class Counts:
    """
    @ivar limit: units in a period.
    @ivar crowded: how often a key was counted with others.
    """

    __slots__ = ("_used", "crowded", "limit")

    def __init__(self, limit: int, most: int) -> None:
        """@param most: keys that are counted by themselves."""
        self.limit = limit
        self.crowded = 0
        self._used: Tables[int] = Tables(most)  # period and units

    def __len__(self) -> int:
        return len(self._used)

    def take(self, key: str | None, cost: int, period: int) -> int:
        """
        Take units, if there are enough.

        @param period: its number.
        @return: units left, 0 or more; or, below 0, those that are missing: then nothing was taken.
        """
        counts = self._used.of(key)
        known = counts.get(key)
        if known is None:
            key = self._room(key, period)
            counts = self._used.of(key)
            known = counts.get(key, 0)
        used = known & _USED if known >> _BITS == period else 0
        left = self.limit - used - cost
        if left >= 0:
            counts[key] = period << _BITS | (used + cost)
            counts.move_to_end(key)
        return left

    def fill(self, key: str, left: float, period: int) -> None:
        """Say how much is left for a key that is not known yet in this period."""
        known = self._used.get(key)
        if known is None or known >> _BITS != period:
            used = min(max(self.limit - int(left), 0), self.limit)
            room = self._room(key, period)
            self._used.of(room)[room] = period << _BITS | used

    def change(self, limit: int, most: int) -> None:
        """Hold to other numbers from now on; what was used stays used."""
        self.limit = limit
        self._used.limit(most)

    def _room(self, key: str | None, period: int) -> str | None:
        """Make room for a key; None: there is none, it is counted with others."""
        counts = self._used.of(key)
        for _ in range(2):
            if counts and next(iter(counts.values())) >> _BITS != period:
                counts.popitem(last=False)
        if len(counts) < self._used.each or key in counts:
            return key
        self.crowded += 1
        return None
