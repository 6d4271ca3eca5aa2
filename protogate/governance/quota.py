"""
C{quota}: so many requests in a day or a month of the calendar, for each key.

Rules
- Each worker has its part; with C{redis} all workers of all gateways have one quota, and take of it in portions.
- What was used is kept over a reload, also when the number changes.  Without Redis a restart forgets it.
- As C{rateLimit}, nobody waits for a Redis that is gone; C{whenStoreFails} says what holds then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from protogate.errors import ConfigError
from protogate.governance import limits
from protogate.governance.limits import CLOSED, LOCAL, Frame, Told
from protogate.governance.params import Params
from protogate.governance.periods import DAY, MONTH, Calendar, Counts, Period, zone_of
from protogate.governance.quotascript import QUOTA, Quotas
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

PREFIX: Final = "protogate:quota:"
"""Of keys in Redis: prefix, name, period and key, with colons between."""
AFTER: Final = 86_400
"""Seconds after the end of a period in which Redis still has it, for whoever counts what was used."""


@implementer(ILiveModule)
class Quota(limits.Limit):
    """
    @param limit: units in a period.
    @param kind: what makes a period another one: with another kind it is another quota.
    """

    def __init__(self, limit: int, calendar: Calendar, kind: tuple[str, str], frame: Frame) -> None:
        super().__init__("quota", frame)
        self._limit, self._calendar, self._periods, self._cost = limit, calendar, kind, frame.cost
        self._counts = Counts(limit, frame.most)
        self._quotas: Quotas | None = None
        self._said: tuple[int, Told] | None = None

    def start(self, means: Means, before: IModule | None) -> None:
        """L{ILiveModule}: take over what was used."""
        redis, most = self._begin(means), self._frame.most
        old: Any = before
        if isinstance(old, Quota) and self._succeeds(old) and old._periods == self._periods:
            self._counts = old._counts
        self._counts.change(max(self._limit // self._workers, 1), most)
        if redis is not None:
            prefix, now = f"{means.apart(PREFIX)}{self._name}:", means.wheel.now
            self._quotas = Quotas(means.wheel, redis, QUOTA, prefix, 1.0, (), most, now)

    def stop(self) -> None:
        """L{ILiveModule}: what was taken out and not needed is put back."""
        if self._quotas is not None:
            self._quotas.close()
        super().stop()

    # -- exchanges

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let it pass, or raise the Abort that refuses it."""
        cost = limits.price(self._cost, exchange)
        if not cost:
            return None
        key = self._key(exchange)
        period, seconds = self._calendar.period()
        if self._quotas is None:
            self._judge(self._counts.take(key, cost, period.number), exchange, period, seconds)
            return None
        self._quotas.args = (self._limit, int(period.end) + AFTER)
        left = self._quotas.take(f"{period.label}:{key}", cost)
        if isinstance(left, Deferred):
            return left.addCallback(self._answered, exchange, key, cost, period, seconds)
        self._answered(left, exchange, key, cost, period, seconds)
        return None

    def _answered(
        self, left: float | None, exchange: Exchange, key: str, cost: int, period: Period, seconds: float
    ) -> None:
        """What the store says; None = nothing."""
        if left is not None:
            self._judge(left, exchange, period, seconds)
            return
        self._count("store_failed")
        if self._fails == LOCAL:
            assert self._quotas is not None
            known = self._quotas.left(f"{period.label}:{key}")
            if known is not None:
                self._counts.fill(key, known / self._workers, period.number)
            self._judge(self._counts.take(key, cost, period.number), exchange, period, seconds)
        elif self._fails == CLOSED:
            raise self._closed(self._tell(period), seconds)

    def _judge(self, left: float, exchange: Exchange, period: Period, seconds: float) -> None:
        if self._counts.crowded:
            self._counts.crowded = 0
            self._crowd()
        if left < 0:
            self._count("limited")
            raise self._tell(period).refusal(f"quota {self._name}: used up", seconds, seconds)
        if self._always:
            exchange.fields.extend(self._tell(period).fields(left, seconds))

    def _tell(self, period: Period) -> Told:
        """What clients are told; months are not all equally long."""
        said = self._said
        if said is None or said[0] != period.number:
            told = Told(self._name, self._limit, round(period.end - period.begin))
            said = self._said = (period.number, told)
        return said[1]


@implementer(IModuleFactory)
class QuotaFactory:
    """
    Makes L{Quota}.

    @param now: seconds of the epoch.
    """

    name = "quota"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now

    def build(self, params: Mapping[str, object]) -> Quota:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "limit", "per", "timeZone", *limits.FRAME)
        if "limit" not in reader:
            reader.fault("limit is missing", "limit")
        limit = reader.integer("limit", 1, 1, 1 << 39)
        per = reader.choice("per", "", DAY, MONTH) if "per" in reader else ""
        if "per" not in reader:
            reader.fault(f"per is missing: {DAY} or {MONTH}", "per")
        zone = _zone(reader)
        frame = Frame.read(reader, limit, "limit")
        reader.done()
        return Quota(limit, Calendar(per, zone, self._now), (per, str(zone)), frame)


def _zone(reader: Params) -> tzinfo:
    try:
        return zone_of(reader.literal("timeZone", "UTC"))
    except ConfigError as error:
        reader.fault(error.message, "timeZone")
    return zone_of("UTC")
