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
_ORDERS: Final = 1024
"""Slots whose whole order is kept: all are forgotten when there are more."""
_BITS: Final = 30
"""Of a number that is drawn: as many as a small integer has, for the interpreter and for compiled code."""
_MASK: Final = (1 << _BITS) - 1
_SCALE: Final = 2.0**-_BITS


class Rendezvous:
    """Frozen: other items or weights make another one."""

    __slots__ = ("_firsts", "_groups", "_only", "_orders")

    def __init__(self, items: Iterable[tuple[Any, str, float]]) -> None:
        """
        @param items: each with a name that stays the same when configurations change and that no other one has, and
            its weight; those of weight 0 are left out.
        """
        groups: dict[float, Group] = {}
        for item, name, weight in items:
            if weight > 0:
                group = groups.get(weight)
                if group is None:
                    group = groups[weight] = Group(weight)
                group.add(item, name)
        self._groups = list(groups.values())
        first = self._groups[0] if self._groups else None
        self._only: Any = first.items[0] if first is not None and len(self) == 1 else None
        self._firsts: list[Any] = []  # by slot; made when there is the first key
        self._orders: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        """How many items there are to choose from."""
        return sum([len(group.items) for group in self._groups])

    def pick(self, key: str) -> Any:
        """The item for key, or None when no weight is above 0."""
        if self._only is not None or not self._groups:
            return self._only
        firsts = self._firsts
        if not firsts:
            firsts = self._firsts = [None] * SLOTS
        slot = int(fraction(key) * SLOTS)
        first = firsts[slot]
        if first is None:
            first = firsts[slot] = self._first(slot)
        return first

    def order(self, key: str) -> list[Any]:
        """
        All items, beginning with the one for key: who is next where those before cannot be had.

        @return: not to be changed.
        """
        slot = int(fraction(key) * SLOTS)
        order = self._orders.get(slot)
        if order is None:
            draws = [draw for group in self._groups for draw in group.draws(slot)]
            draws.sort(key=_drawn)
            order = [item for _, item in draws]
            if len(self._orders) >= _ORDERS:
                self._orders.clear()
            self._orders[slot] = order
        return order

    def _first(self, slot: int) -> Any:
        least, first = 0.0, None
        for group in self._groups:
            draw, item = group.first(slot)
            if first is None or draw < least:
                least, first = draw, item
        return first


class Group:
    """Items of one weight: among them, who draws the greatest number is first, whatever the weight."""

    __slots__ = ("_ones", "_twos", "items", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.items: list[Any] = []
        self._ones: list[int] = []
        self._twos: list[int] = []

    def add(self, item: Any, name: str) -> None:
        """One more."""
        seed = int.from_bytes(blake2b(name.encode("utf-8"), digest_size=8).digest(), "big")
        self.items.append(item)
        self._ones.append(seed & _MASK)
        self._twos.append(seed >> 32 & _MASK)

    def first(self, slot: int) -> tuple[float, Any]:
        """What the first one has drawn in a slot, and which one it is."""
        numbers = self._numbers(slot)
        most = max(numbers)
        return self._draw(most), self.items[numbers.index(most)]

    def draws(self, slot: int) -> list[tuple[float, Any]]:
        """What each one has drawn in a slot."""
        return [(self._draw(number), self.items[index]) for index, number in enumerate(self._numbers(slot))]

    def _draw(self, number: int) -> float:
        return -log((number + 0.5) * _SCALE) / self.weight

    def _numbers(self, slot: int) -> list[int]:
        """For each one: slot and name, spread evenly over all numbers."""
        begin, twos, numbers = (slot + 1) * 0x1E3779B1 & _MASK, self._twos, []
        for index, one in enumerate(self._ones):
            mixed = begin ^ one
            mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & _MASK
            mixed = (mixed ^ mixed >> 12) + twos[index] & _MASK
            mixed = (mixed ^ mixed >> 15) * 0x297A2D39 & _MASK
            numbers.append(mixed ^ mixed >> 14)
        return numbers


def _drawn(draw: tuple[float, Any]) -> float:
    return draw[0]
