"""
Who is next: smooth weighted round robin, and the sticky choice by a stable hash.  Used for targets and for endpoints.

Rules
- Weights are whole numbers from 0.  Who weighs 0 is never chosen; who alone weighs more is always chosen.
- L{Smooth}: any window of Σw choices (w divided by their greatest common divisor) holds each item exactly w times, and
  the choices of one item are spread over the window.  In a run of any other length no item has 1 + ln n choices more or
  fewer than its share, n being the number of items; so k changes of items or weights cost k + 1 times that at most, and
  mostly far less, for each sequence begins by itself.  Where it starts is random, so that many workers that start at
  once do not all turn to the same item first.
- L{Sticky}: the same key gives the same item in every process.  When weights or items change, only keys move that have
  to: to what gained, or from what lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, log
from random import Random, SystemRandom
from typing import Any, Final

from protogate.cohort import fraction
from protogate.routing.spread import Spread

_SYSTEM: Final = SystemRandom()
_STEPS: Final = 1 << 15
"""Comparisons that building a Smooth may cost, about 2 ms: more are left to the choices."""
_MANY: Final = 8
"""Items from which on looking at each of them is dearer than L{Spread}."""
_HALF: Final = 2.0**-49
"""Half a step of L{fraction}: keeps it off 0, which has no logarithm."""


class Smooth:
    """
    Smooth weighted round robin: at each choice every item gains its weight, the one that has most is chosen and pays
    the sum of all weights (the algorithm of nginx).  That repeats itself after Σw choices, so a short cycle is worked
    out once and a choice is one look-up; a long one is stepped through, of many items by L{Spread}.
    """

    __slots__ = ("_cycle", "_gains", "_index", "_items", "_spread", "_total", "_weights")

    def __init__(self, items: Iterable[tuple[Any, int]], random: Random = _SYSTEM) -> None:
        """
        @param items: each with its weight; in the order in which equals are chosen.
        @param random: decides where the sequence starts.
        """
        kept = [(item, weight) for item, weight in items if weight > 0]
        divisor = gcd(*(weight for _, weight in kept))
        self._items = [item for item, _ in kept]
        self._weights = [weight // divisor for _, weight in kept]
        self._total = sum(self._weights)
        self._gains = [0] * len(kept)
        self._index = 0
        self._cycle: tuple[Any, ...] | None = None
        self._spread: Spread | None = None
        steps = _STEPS // max(len(kept), 1)
        if self._total <= steps:
            self._cycle = tuple([self._step() for _ in range(self._total)])
            self._index = random.randrange(self._total) if self._total > 1 else 0
        elif len(kept) >= _MANY:
            self._spread = Spread(self._items, self._weights, random)
        else:
            for _ in range(random.randrange(max(steps, 1))):
                self._step()

    def pick(self) -> Any:
        """The next item, or None when no weight is above 0."""
        cycle = self._cycle
        if cycle is None:
            return self._step() if self._spread is None else self._spread.pick()
        if not cycle:
            return None
        index = self._index
        self._index = index + 1 if index + 1 < len(cycle) else 0
        return cycle[index]

    def _step(self) -> Any:
        gains, best = self._gains, 0
        for index, weight in enumerate(self._weights):
            gains[index] += weight
            if gains[index] > gains[best]:
                best = index
        gains[best] -= self._total
        return self._items[best]


class Sticky:
    """
    Weighted rendezvous hashing: each item draws a number from key and name, and the best draw wins.  A draw is
    exponentially distributed with the weight as its rate, so each item wins in proportion to its weight.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[Any, str, int]]) -> None:
        """
        @param items: each with a name that stays the same when configurations change, and its weight.
        """
        seen: dict[str, int] = {}
        kept: list[tuple[Any, str, int]] = []
        for item, name, weight in items:
            # The same name twice would draw the same number twice.
            seen[name] = seen.get(name, 0) + 1
            if weight > 0:
                kept.append((item, name if seen[name] == 1 else f"{name}#{seen[name]}", weight))
        self._items = tuple(kept)

    def pick(self, key: str) -> Any:
        """The item for key, or None when no weight is above 0."""
        items = self._items
        if len(items) < 2:
            return items[0][0] if items else None
        chosen, best = items[0][0], 0.0
        for item, name, weight in items:
            draw = weight / -log(fraction(f"{key}\0{name}") + _HALF)
            if draw > best:
                chosen, best = item, draw
        return chosen
