"""
C{concurrencyLimit}: so many requests under way at a time, for each key; a number, or one that is learnt.

Rules
- A request has its place from here to its very end, however it ends, and gives it back exactly once.  With C{per:
  upstream} "here" is where its upstream is known and about to be asked: each upstream has places of its own.
- A number is divided among the workers.  What is learnt each worker learns for itself.
- Over a reload places stay taken, and what was learnt stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from protogate.config.scalar import shown
from protogate.context import uncounted
from protogate.errors import CLIENT, UPSTREAM, Abort
from protogate.governance import limits
from protogate.governance.gradient import Gradient
from protogate.governance.params import Params
from protogate.governance.slots import NOTHING, Slots
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Answer, Exchange
    from protogate.governance.means import Means

MOST: Final = 1_000_000
LEARNT_KEYS: Final = 1000
"""Keys whose limits are remembered, unless the configuration says another number."""


UPSTREAM_KEY: Final = "\0upstream"
"""What C{per: upstream} is told from every C{key} by."""


class Learning:
    """
    @ivar first: places to begin with.
    @ivar least: @ivar most: of all workers together.
    @ivar tolerance: how many times longer than usual is still as usual.
    """

    __slots__ = ("first", "least", "most", "tolerance")

    def __init__(self, first: int, least: int, most: int, tolerance: float) -> None:
        self.first, self.least, self.most, self.tolerance = first, least, most, tolerance

    def gradient(self, workers: int, now: float) -> Gradient:
        """For one worker."""
        least, most = max(self.least // workers, 1), max(self.most // workers, 1)
        return Gradient(self.first / workers, least, most, self.tolerance, now)


@implementer(ILiveModule)
class ConcurrencyLimit:
    """
    @param limit: places of all workers together; where they are learnt it says nothing.
    @param key: by what exchanges are counted; C{text} is how it is written.
    @param status: of a refusal.
    @param each: each upstream has places of its own, which are taken when it is asked; C{key} says nothing then.
    """

    asks: Mapping[str, tuple[str | int, ...]] = {}

    def __init__(
        self,
        limit: int,
        learning: Learning | None,
        key: limits.Key,
        text: str,
        queue: int,
        wait: float,
        most: int,
        status: int,
        each: bool = False,
    ) -> None:
        self._each = each
        self._limit, self._learning, self._key, self._text = limit, learning, key, text
        self._queue, self._wait, self._status = queue, wait, status
        self.waits = (wait, ("wait",)) if queue and not each else (0.0, ())
        self._count: Callable[[str], None] = uncounted
        self._workers = 1
        self._slots = Slots(limit, self._learn(), queue, wait, most)
        self._handed_on = False

    def _learn(self) -> Callable[[float], Gradient] | None:
        return None if self._learning is None else partial(self._learning.gradient, self._workers)

    # -- its life

    def start(self, means: Means, before: IModule | None) -> None:
        """L{ILiveModule}: take over who is under way, and what was learnt."""
        self._count, self._workers = means.count, means.workers
        old: Any = before
        if isinstance(old, ConcurrencyLimit) and self._like(old):
            old._handed_on, self._slots = True, old._slots
        limit = max(self._limit // self._workers, 1)
        means.gauge("busy", lambda: self._slots.busy)
        means.gauge("waiting", lambda: self._slots.waiting)
        if self._learning is not None:
            means.gauge("places", lambda: round(self._slots.learnt, 1))
        self._slots.change(limit, self._learn(), max(self._queue // self._workers, min(self._queue, 1)), self._wait)

    def _like(self, old: ConcurrencyLimit) -> bool:
        return old._text == self._text and (old._learning is None) == (self._learning is None)

    def stop(self) -> None:
        """L{ILiveModule}: nobody waits for a limit that is in force no more."""
        if not self._handed_on:
            self._slots.open()

    # -- exchanges

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let it pass, now or when there is a place, or raise the Abort that refuses it."""
        if self._each:
            exchange.through(self._ask)
            return None
        key = self._key(exchange)
        taken = self._slots.take(key, exchange.wheel)
        if isinstance(taken, Deferred):
            self._count("queued")
            return taken.addCallback(self._judge, exchange, key, waited=True)
        self._judge(taken, exchange, key)
        return None

    def _judge(self, taken: bool, exchange: Exchange, key: str, waited: bool = False) -> None:
        if not taken:
            raise self._refusal(waited)
        exchange.after(partial(_over, self._slots, key, exchange))

    def _ask(self, exchange: Exchange, ask: Callable[[], Answer]) -> Answer:
        """L{Exchange.through}: the upstream is known."""
        assert exchange.target is not None
        key = exchange.target.upstream
        taken = self._slots.take(key, exchange.wheel)
        if isinstance(taken, Deferred):
            self._count("queued")
            return taken.addCallback(self._asked, exchange, key, ask, waited=True)
        return self._asked(taken, exchange, key, ask)

    def _asked(
        self, taken: bool, exchange: Exchange, key: str, ask: Callable[[], Answer], waited: bool = False
    ) -> Answer:
        if not taken:
            return fail(self._refusal(waited))
        exchange.after(partial(_over, self._slots, key, exchange, exchange.wheel.now()))
        return ask()

    def _refusal(self, waited: bool) -> Abort:
        self._count("limited")
        if waited:
            self._count("queue_timeout")
        why = f"none was free within {self._wait:g} s" if waited else "all are taken"
        return Abort(
            f"concurrencyLimit: of the places {why}",
            CLIENT,
            self._status,
            error="http_request_denied",
            detail="too many requests at a time",
            headers=[(b"retry-after", b"1")],
        )


def _over(slots: Slots, key: str, exchange: Exchange, since: float = 0.0) -> None:
    """An exchange that had a place is over."""
    slots.give(key, took(exchange, since), exchange.wheel)


def took(exchange: Exchange, since: float = 0.0) -> float:
    """
    How long the upstream took for its answer, the wait for a connection included, for who learns of it; L{NOTHING} when
    that says nothing: it was not asked, it failed at once, or the client left.

    @param since: when it was asked, where others were waited for before that.
    """
    ledger, reason, response = exchange.ledger, exchange.reason, exchange.response
    if ledger.answered:
        failed = response is None or response.status >= 500
        return NOTHING if failed else max(ledger.answered - (since or ledger.chosen), 0.0)
    if ledger.chosen and reason is not None and reason.who is UPSTREAM and reason.status == 504:
        return max(ledger.end - (since or ledger.chosen), 0.0)
    return NOTHING


@implementer(IModuleFactory)
class ConcurrencyLimitFactory:
    """Makes L{ConcurrencyLimit}."""

    name = "concurrencyLimit"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> ConcurrencyLimit:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "limit", "adaptive", "per", "key", "keys", "queue", "wait", "status")
        if ("limit" in reader) == ("adaptive" in reader):
            reader.fault("expected exactly one of limit, a number, and adaptive, which learns one")
        limit = reader.integer("limit", 1, 1, MOST)
        learning = _learning(reader) if "adaptive" in reader else None
        each = "per" in reader
        if each and reader.choice("per", "upstream", "upstream") and "key" in reader:
            reader.fault("each upstream has places of its own: remove this, or per", "key")
        key, text = limits.read_key(reader, everybody=True)
        most = reader.integer("keys", LEARNT_KEYS, 1, limits.MOST_KEYS)
        if "keys" in reader and learning is None:
            reader.fault("only what is learnt needs to be remembered: remove this", "keys")
        queue = reader.integer("queue", 0, 0, MOST)
        wait = reader.seconds("wait", 0.1, 0.001, 60.0)
        if "wait" in reader and not queue:
            reader.fault("nobody waits where there is no queue: say queue, or remove this", "wait")
        status = reader.integer("status", 429 if "key" in reader else 503, 400, 599)
        reader.done()
        if each:
            text = UPSTREAM_KEY
        return ConcurrencyLimit(limit, learning, key, text, queue, wait, most, status, each)


def _learning(reader: Params) -> Learning | None:
    given = reader.given("adaptive")
    if not isinstance(given, Mapping):
        reader.fault(f"expected {{min: …, max: …}}, got {shown(given)}", "adaptive")
        return None
    inner = Params(given, "min", "max", "initial", "tolerance")
    least = inner.integer("min", 10, 1, MOST)
    most = inner.integer("max", 1000, 1, MOST)
    first = inner.integer("initial", min(max(20, least), max(most, least)), 1, MOST)
    if least > most and not inner.faults:
        inner.fault(f"less than min, which is {least}", "max")
    elif not least <= first <= most and not inner.faults:
        inner.fault(f"not between min and max, which are {least} and {most}", "initial")
    tolerance = inner.given("tolerance") if "tolerance" in inner else 1.5
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 1 <= tolerance <= 10:
        inner.fault(f"expected a number from 1 to 10, got {shown(tolerance)}", "tolerance")
        tolerance = 1.5
    for fault in inner.faults:
        reader.fault(fault.message, "adaptive", *fault.path)
    return Learning(first, least, most, float(tolerance))
