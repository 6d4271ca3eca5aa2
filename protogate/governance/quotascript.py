"""Units of a day or a month that are counted in a Redis, and taken out by portions; what is not needed is put back."""

from __future__ import annotations

from typing import Any, Final

from protogate.governance.leases import Leases, Portion
from protogate.governance.redis import Script, ignored
from protogate.wheel import Wheel

QUOTA: Final = Script(
    "quota",
    """
-- KEYS[1]: units used.
-- ARGV: units in all, when to forget (seconds of the epoch), units wanted, units that are of use at least.
-- Fewer than none are put back.
-- Answers units given, microseconds until it makes sense to ask again, units left.
local limit, wanted, least = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
local left = math.max(limit - used, 0)
local given
if wanted < 0 then
  given = -math.min(-wanted, used)
else
  given = math.min(wanted, left)
  if given < least then
    given = 0
  end
end
if given ~= 0 then
  redis.call('INCRBY', KEYS[1], given)
  redis.call('EXPIREAT', KEYS[1], ARGV[2])
end
left = math.max(left - given, 0)
local wait = 0
if left == 0 then
  wait = 1000000
end
return {given, wait, left}
""",
)
"""See L{protogate.governance.leases.Leases} for what it answers: after a second an operator may have given more."""
SHARE: Final = 50
"""A portion is at most this part of what is left: workers that hold some must not keep the last ones from others."""
KEEP: Final = 1.0
"""Seconds after which what is held and not needed is put back."""


class Quotas(Leases):
    """Portions that are not lost when nobody needs them.  L{close} it in the end."""

    life = 86_400.0 * 32

    def __init__(self, wheel: Wheel, *more: Any) -> None:
        super().__init__(*more)
        self._timer = wheel.timer(self._look)
        self._held: dict[str, Portion] = {}
        self._closed = False

    def left(self, key: str) -> float | None:
        """See L{Leases}: nothing comes back by itself."""
        portion = self._portions.get(key)
        return None if portion is None else portion.left

    def most_of(self, portion: Portion) -> float:
        """See L{Leases}."""
        return (portion.left or 0.0) / SHARE

    def _given(self, key: str, portion: Portion, wanted: int, answer: Any) -> None:
        super()._given(key, portion, wanted, answer)
        if not portion.units:
            return
        if self._closed:
            self._put_back(key, portion)
            return
        known = self._held.get(key, portion)
        if known is not portion:  # of a time when there were fewer keys
            self._put_back(key, known)
        self._held[key] = portion
        if not self._timer.active:
            self._timer.set(KEEP)

    def _look(self) -> None:
        """Put back what was held for too long."""
        due = self._now() - KEEP
        for key, portion in list(self._held.items()):
            if not portion.units:
                del self._held[key]
            elif portion.at <= due and not portion.asking:
                del self._held[key]
                self._put_back(key, portion)
        if self._held:
            self._timer.set(KEEP)

    def _put_back(self, key: str, portion: Portion) -> None:
        units, portion.units = portion.units, 0
        self.redis.script(self._script, [self._prefix + key], [*self.args, -units, 0]).addErrback(ignored)

    def close(self) -> None:
        """Put all back, and hold nothing any more."""
        self._closed = True
        self._timer.end()
        held, self._held = self._held, {}
        for key, portion in held.items():
            if portion.units:
                self._put_back(key, portion)
