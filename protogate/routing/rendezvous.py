"""
Who is next by a key: weighted rendezvous hashing over a fixed number of slots.

Rules
- The same key has the same order of items in every process, on every machine: a slot by L{protogate.cohort}, and in
  each slot an order of its own.
- In each slot every item draws a number from slot and name, exponentially distributed with its weight as the rate; the
  smallest draw is first.  So each item is first in proportion to its weight, and second to those that are first, too.
- When an item comes, goes, or weighs more or less, only those slots change their first that it wins or loses.
- Whose turn it is in a slot is worked out when a key of that slot comes for the first time, and kept: a choice is a
  hash and a look-up.

Not L{protogate.routing.balance.Sticky}: that asks a cryptographic hash for each item, so that no two keys share a
place; it is for the few targets of a route.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import log
from typing import Any, Final

from protogate.cohort import fraction

SLOTS: Final = 1 << 16
"""
How many groups of keys there are.  An item's share of them is off by the square root of what it has: of a hundred
items of one weight, each has 1 % give or take 0.04 %.
"""
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_UNIT: Final = 2.0**-53


class Rendezvous:
    """Frozen: other items or weights make another one."""

    __slots__ = ("_firsts", "_items", "_seeds", "_weights")

    def __init__(self, items: Iterable[tuple[Any, str, float]]) -> None:
        """
        @param items: each with a name that stays the same when configurations change and that no other one has, and
            its weight; those of weight 0 are left out.
        """
        self._items: list[Any] = []
        self._seeds: list[int] = []
        self._weights: list[float] = []
        for item, name, weight in items:
            if weight > 0:
                self._items.append(item)
                self._seeds.append(int.from_bytes(blake2b(name.encode("utf-8"), digest_size=8).digest(), "big"))
                self._weights.append(weight)
        self._firsts: list[Any] = []  # by slot; made when there is the first key

    def __len__(self) -> int:
        """How many items there are to choose from."""
        return len(self._items)

    def pick(self, key: str) -> Any:
        """The item for key, or None when no weight is above 0."""
        if len(self._items) < 2:
            return self._items[0] if self._items else None
        if not self._firsts:
            self._firsts = [None] * SLOTS
        slot = int(fraction(key) * SLOTS)
        first = self._firsts[slot]
        if first is None:
            draws = self._draws(slot)
            first = self._firsts[slot] = self._items[draws.index(min(draws))]
        return first

    def order(self, key: str) -> list[Any]:
        """All items, beginning with the one for key: who is next where those before cannot be had."""
        draws = self._draws(int(fraction(key) * SLOTS))
        items = self._items
        return [items[index] for index in sorted(range(len(items)), key=draws.__getitem__)]

    def _draws(self, slot: int) -> list[float]:
        place, weights = slot * _GOLDEN, self._weights
        return [-log(_uniform(place + seed)) / weights[index] for index, seed in enumerate(self._seeds)]


def _uniform(number: int) -> float:
    """What SplitMix64 makes of it, in (0, 1)."""
    number &= _MASK
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return ((number ^ (number >> 31)) >> 11) * _UNIT + _UNIT / 2
