"""
Limits that are kept in a Redis, by portions: what a process has taken out there it spends without asking again.

Rules
- Redis has the truth: a portion is taken out of it before any of it is spent.  What is not spent within L{LIFE} seconds
  is lost.  So in any C{t} seconds all processes together let no more through than Redis gives in C{t + 2 × LIFE}.
- A portion is what was needed in the last L{HORIZON} seconds: a key is asked for about twenty times a second by each
  process, however many requests there are.  A request that finds nothing waits for the answer; it seldom does where
  there are many, since the next portion is asked for before the last one is spent.
- When Redis gives less than was asked for, there is nothing: requests are refused here until there can be more.
- Without Redis nobody waits and nobody is told: C{take} says that it does not know.
- There is room for so many keys; the one that was used longest ago is forgotten.  Nothing is lost by that but what is
  left of its portion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.governance.redis import Redis, RedisError, Script, Word
from protogate.governance.tables import Tables

HORIZON: Final = 0.05
"""Seconds that a portion is for."""
LIFE: Final = 0.1
"""Seconds that it is good for."""
IDLE: Final = 10.0
"""Seconds after which a key that nobody uses is forgotten."""


_log = Logger()


class Portion:
    """
    What is known of one key.

    @ivar units: in hand.
    @ivar until: when they are lost.
    @ivar dry: until when there are no more.
    @ivar left: what Redis had left at the last answer; None = there was none yet.
    @ivar at: when that was, or the key was first seen.
    @ivar needed: units, since C{since}.
    @ivar pace: units a second before that.
    @ivar waiting: who waits for the answer, with what each wants.
    """

    __slots__ = ("asking", "at", "dry", "left", "needed", "pace", "since", "size", "units", "until", "waiting")

    def __init__(self, now: float) -> None:
        self.units = self.size = 0
        self.until = self.dry = 0.0
        self.left: float | None = None
        self.at = self.since = now
        self.needed, self.pace = 0, 0.0
        self.asking = False
        self.waiting: dict[Deferred[float | None], int] = {}

    def left_by(self, waiter: Deferred[float | None]) -> None:
        """Somebody does not wait any more."""
        self.waiting.pop(waiter, None)


class Leases:
    """
    @param redis: whom to ask.
    @param script: C{[given, microseconds until there is more, left]} for C{[*args, wanted, least]}.
    @param prefix: of its keys.
    @ivar rate: units a second, all processes together.
    @ivar args: for the script.
    @ivar pause: seconds between two questions when there is nothing: a bucket must not be full by then.
    """

    life = LIFE

    def __init__(
        self,
        redis: Redis,
        script: Script,
        prefix: str,
        rate: float,
        args: Sequence[Word],
        most: int,
        now: Callable[[], float],
        pause: float = HORIZON,
    ) -> None:
        self.pause = pause
        self.redis, self.rate, self.args = redis, rate, args
        self._script, self._prefix, self._now = script, prefix, now
        self._portions: Tables[Portion] = Tables(most)

    def take(self, key: str, cost: int) -> float | Deferred[float | None] | None:
        """
        Take units.

        @return: as L{protogate.governance.gcra.Buckets.take}, as far as that is known here; None when Redis cannot be
            asked; or a Deferred of the same, which never fails and may be cancelled.
        """
        now, portions = self._now(), self._portions.of(key)
        portion = portions.get(key)
        if portion is None:
            portion = self._first(key, now)
        else:
            portions.move_to_end(key)
        portion.needed += cost
        if portion.units >= cost and now < portion.until and not portion.waiting:
            portion.units -= cost
            if portion.units * 4 <= portion.size and portion.size >= 4 and not portion.asking and now >= portion.dry:
                self._ask(key, portion, now)
            return portion.units + (portion.left or 0.0)
        if now < portion.dry:
            return (now - portion.dry) * self.rate
        if not portion.asking and not self.redis.ready:
            return None
        waiter: Deferred[float | None] = Deferred(portion.left_by)
        portion.waiting[waiter] = cost
        if not portion.asking:
            self._ask(key, portion, now)
        return waiter

    def left(self, key: str) -> float | None:
        """How much Redis should have left by now; None = who knows."""
        portion = self._portions.get(key)
        if portion is None or portion.left is None:
            return None
        return portion.left + (self._now() - portion.at) * self.rate

    def _first(self, key: str, now: float) -> Portion:
        portions = self._portions.of(key)
        for _ in range(2):
            if portions:
                oldest, known = next(iter(portions.items()))
                if not known.asking and (len(portions) >= self._portions.each or now - known.since > IDLE):
                    del portions[oldest]
        portion = portions[key] = Portion(now)
        return portion

    def _ask(self, key: str, portion: Portion, now: float) -> None:
        """Take the next portion out of Redis."""
        wanted = self._wanted(portion, now)
        least = next(iter(portion.waiting.values()), 1)
        portion.asking = True
        answer = self.redis.script(self._script, [self._prefix + key], [*self.args, wanted, least])
        answer.addCallbacks(partial(self._given, key, portion, wanted), partial(self._failed, portion))

    def _wanted(self, portion: Portion, now: float) -> int:
        """As much as the next L{HORIZON} needs, if it is like the last; not more than may be held."""
        seconds = now - portion.since
        if seconds >= HORIZON:
            portion.pace = portion.needed / seconds
            portion.needed, portion.since = 0, now
        usual = max(portion.pace * HORIZON, portion.needed / 2)
        return max(int(min(usual, self.most_of(portion))), sum(portion.waiting.values()), 1)

    def most_of(self, portion: Portion) -> float:
        """Units that may be held without being needed yet: what all processes together may have in that time."""
        return self.rate * HORIZON

    def _given(self, key: str, portion: Portion, wanted: int, answer: Any) -> None:
        try:
            given, wait, left = (int(number) for number in answer)
        except (TypeError, ValueError):
            _log.error("Redis answers the script {name} with {answer!r}", name=self._script.name, answer=answer)
            self._failed(portion)
            return
        now = self._now()
        portion.asking = False
        if now >= portion.until:
            portion.units = 0
        portion.units += given
        portion.size, portion.until = given, now + self.life
        portion.left, portion.at = left, now
        if given < wanted:
            portion.dry = now + max(wait / 1e6, self.pause)
        self._serve(portion, now)
        if portion.waiting and not portion.asking:
            self._ask(key, portion, now)

    def _serve(self, portion: Portion, now: float) -> None:
        """Give to those who wait, in turn; when there are no more units, tell the others so."""
        waiting = portion.waiting
        while waiting:
            waiter, cost = next(iter(waiting.items()))
            if cost <= portion.units:
                del waiting[waiter]
                portion.units -= cost
                waiter.callback(portion.units + (portion.left or 0.0))
            elif now < portion.dry:
                del waiting[waiter]
                waiter.callback((now - portion.dry) * self.rate)
            else:
                return

    def _failed(self, portion: Portion, failure: Failure | None = None) -> None:
        """Nobody knows: who waits is told so."""
        if failure is not None:
            failure.trap(RedisError)
        portion.asking = False
        waiting, portion.waiting = portion.waiting, {}
        for waiter in waiting:
            if not waiter.called:  # cancelled by what became of another one
                waiter.callback(None)
