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

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import classImplements, implementer

from protogate.context import uncounted
from protogate.errors import ConfigError
from protogate.expression.template import Template
from protogate.governance import limits
from protogate.governance.gcra import Buckets, Rate
from protogate.governance.gcrascript import GCRA
from protogate.governance.leases import HORIZON, Leases
from protogate.governance.params import Params
from protogate.governance.redis import Redis
from protogate.governance.redissettings import RedisSettings
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModule, IModuleFactory
from protogate.observe.events import Limited

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

PREFIX: Final = "protogate:rate:"
"""Of keys in Redis: prefix, name, colon, key."""

_log = Logger()


class RateLimit:
    """
    @param key: by what exchanges are counted; C{text} is how it is written.
    @param most: keys.
    @param always: whether every answer tells what is left, not only a refusal.
    @param store: where the limit is shared; None = nowhere.
    @param fails: C{local}, C{open} or C{closed}: what holds without the store.
    """

    asks: Mapping[str, tuple[str | int, ...]] = {}

    def __init__(
        self,
        rate: Rate,
        burst: int,
        key: limits.Key,
        text: str,
        cost: int | Template,
        name: str,
        most: int,
        always: bool,
        store: RedisSettings | None,
        fails: str,
    ) -> None:
        self._rate, self._burst, self._key, self._text, self._cost = rate, burst, key, text, cost
        self._name, self._most, self._always, self._store, self._fails = name, most, always, store, fails
        self.waits = (0.0, ()) if store is None else store.waits
        self._price = min(cost, burst) if isinstance(cost, int) else 0
        self._told = limits.Told(name, rate.count, rate.period)
        self._buckets = Buckets(rate.each, burst, most)
        self._workers = 1
        self._leases: Leases | None = None
        self._redis: Redis | None = None
        self._count: Callable[[str], None] = uncounted
        self._warn = Limited(_log.warn)

    # -- its life

    def start(self, means: Means, before: IModule | None) -> None:
        """L{ILiveModule}: take over what was used."""
        self._count, self._workers = means.count, means.workers
        old: Any = before
        if isinstance(old, RateLimit) and (old._text, old._name) == (self._text, self._name):
            self._buckets = old._buckets
        each, burst = self._rate.each, float(self._burst)
        self._buckets.change(each / self._workers, burst / self._workers, self._most, means.wheel.now())
        if self._store is not None:
            self._redis = means.redis(self._store)
            self._leases = Leases(
                self._redis,
                GCRA,
                f"{PREFIX}{self._name}:",
                each,
                (f"{1e6 / each:.9g}", self._burst),
                self._most,
                means.wheel.now,
                min(HORIZON, burst / each / 4),
            )

    def stop(self) -> None:
        """L{ILiveModule}."""
        redis, self._redis = self._redis, None
        if redis is not None:
            redis.release()

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
            self._count("limited")
            raise self._told.refusal("rateLimit: the store is gone, and without it nobody is let in", 1.0, 1.0)

    def _judge(self, left: float, exchange: Exchange, cost: int, shared: bool = False) -> None:
        """
        @param left: see L{Buckets.take}.
        @param shared: of the limit of all, not of this worker's.
        """
        buckets = self._buckets
        if buckets.crowded:
            self._crowd()
        if left < 0.0:
            self._count("limited")
            rate = self._rate.each if shared else buckets.rate
            reset = ((self._burst if shared else buckets.burst) - cost - left) / rate
            raise self._told.refusal(f"rateLimit {self._name}: too much", -left / rate, reset)
        if self._always:
            reset = (self._burst - left) / self._rate.each if shared else (buckets.burst - left) / buckets.rate
            exchange.fields.extend(self._told.fields(left, reset))

    def _crowd(self) -> None:
        self._buckets.crowded = 0
        self._count("keys_shared")
        text = "rateLimit {name}: more than {most} keys: those that are new share one bucket"
        self._warn(text, name=self._name, most=self._most)


classImplements(RateLimit, ILiveModule)


@implementer(IModuleFactory)
class RateLimitFactory:
    """Makes L{RateLimit}."""

    name = "rateLimit"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> RateLimit:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "limit", "burst", "key", "cost", "name", "keys", "headers", "redis", "whenStoreFails")
        rate = _rate(reader)
        burst = reader.integer("burst", rate.count, 1, limits.HIGHEST)
        key, text = limits.read_key(reader)
        cost = limits.read_cost(reader)
        if isinstance(cost, int) and cost > burst and not reader.faults:
            reader.fault(f"more than the burst, which is {burst}: no request would ever pass", "cost")
        name = limits.read_name(reader)
        most = reader.integer("keys", limits.KEYS, 1, limits.MOST_KEYS)
        always = reader.flag("headers")
        store = reader.redis("redis")
        fails = limits.read_fails(reader)
        reader.done()
        return RateLimit(rate, burst, key, text, cost, name, most, always, store, fails)


def _rate(reader: Params) -> Rate:
    given = reader.given("limit")
    try:
        if isinstance(given, Template):
            raise ConfigError("expected a rate such as 100/s: ${…} is not evaluated here")
        return Rate.of(given)
    except ConfigError as error:
        reader.fault("limit is missing: a rate such as 100/s" if "limit" not in reader else error.message, "limit")
    return Rate(1, 1)
