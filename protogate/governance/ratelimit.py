"""
C{rateLimit}: so many requests in a time, for each key.

Rules
- What is allowed is exact: L{protogate.governance.gcra}.  Each worker has its part of the limit; with C{redis} all
  workers of all gateways have one, and take what they need of it in portions (L{protogate.governance.leases}).
- A request waits for Redis at most as long as C{redis.timeout}, and never when it is known to be gone.  Without it
  C{whenStoreFails} says what holds, from the next request on, and until it is back.
- What was used is kept over a reload, also when the numbers change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from zope.interface import classImplements, implementer

from protogate.errors import ConfigError
from protogate.expression.template import Template
from protogate.governance import limits
from protogate.governance.gcra import Buckets, Rate
from protogate.governance.gcrascript import GCRA
from protogate.governance.leases import HORIZON, Leases
from protogate.governance.limits import Frame
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

PREFIX: Final = "protogate:rate:"
"""Of keys in Redis: prefix, name, colon, key."""


class RateLimit(limits.Limit):
    """@param burst: units that may come at once."""

    def __init__(self, rate: Rate, burst: int, frame: Frame) -> None:
        super().__init__("rateLimit", frame)
        self._rate, self._burst, self._cost = rate, burst, frame.cost
        self._price = min(frame.cost, burst) if isinstance(frame.cost, int) else 0
        self._told = limits.Told(frame.name, rate.count, rate.period)
        self._buckets = Buckets(rate.each, burst, frame.most)
        self._leases: Leases | None = None

    def start(self, means: Means, before: IModule | None) -> None:
        """L{ILiveModule}: take over what was used."""
        redis, now = self._begin(means), means.wheel.now
        old: Any = before
        if isinstance(old, RateLimit) and self._succeeds(old):
            self._buckets = old._buckets
        each, burst, most = self._rate.each, float(self._burst), self._frame.most
        self._buckets.change(each / self._workers, burst / self._workers, most, now())
        if redis is not None:
            prefix, numbers = f"{means.apart(PREFIX)}{self._name}:", (f"{1e6 / each:.9g}", self._burst)
            self._leases = Leases(redis, GCRA, prefix, each, numbers, most, now, min(HORIZON, burst / each / 4))

    # -- exchanges

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let it pass, or raise the Abort that refuses it."""
        cost = self._price or min(limits.price(self._cost, exchange), self._burst)
        if not cost:
            return None
        key = self._key(exchange)
        if self._leases is None:
            buckets = self._buckets
            known = buckets.take(key, cost, exchange.wheel.now())
            if known < 0.0 or self._always or buckets.crowded:  # else there is nothing to say
                self._judge(known, exchange, cost)
            return None
        left = self._leases.take(key, cost)
        if isinstance(left, Deferred):
            return left.addCallback(self._answered, exchange, key, cost)
        self._answered(left, exchange, key, cost)
        return None

    def _answered(self, left: float | None, exchange: Exchange, key: str, cost: int) -> None:
        """What the store says; None = nothing."""
        if left is not None:
            self._judge(left, exchange, cost, shared=True)
            return
        self._count("store_failed")
        if self._fails == limits.LOCAL:
            now = exchange.wheel.now()
            assert self._leases is not None
            known = self._leases.left(key)
            if known is not None:
                self._buckets.fill(key, known / self._workers, now)
            self._judge(self._buckets.take(key, cost, now), exchange, cost)
        elif self._fails == limits.CLOSED:
            raise self._closed(self._told, 1.0)

    def _judge(self, left: float, exchange: Exchange, cost: int, shared: bool = False) -> None:
        """
        @param left: see L{Buckets.take}.
        @param shared: of the limit of all, not of this worker's.
        """
        buckets = self._buckets
        if buckets.crowded:
            buckets.crowded = 0
            self._crowd()
        if left < 0.0:
            self._count("limited")
            rate = self._rate.each if shared else buckets.rate
            reset = ((self._burst if shared else buckets.burst) - cost - left) / rate
            raise self._told.refusal(f"rateLimit {self._name}: too much", -left / rate, reset)
        if self._always:
            reset = (self._burst - left) / self._rate.each if shared else (buckets.burst - left) / buckets.rate
            exchange.fields.extend(self._told.fields(left, reset))


classImplements(RateLimit, ILiveModule)


@implementer(IModuleFactory)
class RateLimitFactory:
    """Makes L{RateLimit}."""

    name = "rateLimit"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> RateLimit:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "limit", "burst", *limits.FRAME)
        rate = _rate(reader)
        burst = reader.integer("burst", rate.count, 1, limits.HIGHEST)
        frame = Frame.read(reader, burst, "burst")
        reader.done()
        return RateLimit(rate, burst, frame)


def _rate(reader: Params) -> Rate:
    given = reader.given("limit")
    try:
        if isinstance(given, Template):
            raise ConfigError("expected a rate such as 100/s: ${…} is not evaluated here")
        return Rate.of(given)
    except ConfigError as error:
        reader.fault("limit is missing: a rate such as 100/s" if "limit" not in reader else error.message, "limit")
    return Rate(1, 1)
