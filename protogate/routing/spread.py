"""
Turns by weight where there are many items and no short cycle: exact, at a cost that grows with the logarithm of the
items.

Rules
- The k-th turn of an item that weighs w of W falls into the turns from (k - 1) W/w on and before k W/w, rounded
  outward: of those whose time has come, the one whose time is over first is next (earliest deadline first; that all can
  be in time is known of proportionate-progress schedules: S. Baruah et al., Proportionate progress, 1996).
- So at no time is an item a whole turn ahead of its share or behind it, and it waits no longer than 2 W/w.
- After W turns each has had exactly w, and all begins anew: any window of W turns is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final

_AHEAD: Final = 256
"""Turns that are passed over at the most, so that not every process begins with the heaviest."""


class Spread:
    """@param weights: of the items, each above 0.  @param random: decides where it starts."""

    __slots__ = ("_counts", "_items", "_many", "_ready", "_total", "_turn", "_waiting", "_weights")

    def __init__(self, items: Sequence[Any], weights: Sequence[int], random: Random) -> None:
        many = self._many = len(items)
        first = random.randrange(many)
        self._items = [*items[first:], *items[:first]]
        self._weights = [*weights[first:], *weights[:first]]
        self._total = sum(weights)
        self._turn = 0
        self._counts: list[int] = []
        # an entry is a time and an item, in one number
        self._ready: list[int] = []  # the last turn for it
        self._waiting: list[int] = []  # the first one
        self._begin()
        for _ in range(random.randrange(min(2 * many, self._total, _AHEAD))):
            self.pick()

    def pick(self) -> Any:
        """The next item."""
        turn, total, many = self._turn, self._total, self._many
        if turn == total:
            self._begin()
            turn = 0
        ready, waiting, counts, weights = self._ready, self._waiting, self._counts, self._weights
        late = (turn + 1) * many
        while waiting and waiting[0] < late:
            index = heappop(waiting) % many
            heappush(ready, -(-(counts[index] + 1) * total // weights[index]) * many + index)
        index = heappop(ready) % many
        count = counts[index] = counts[index] + 1
        heappush(waiting, count * total // weights[index] * many + index)
        self._turn = turn + 1
        return self._items[index]

    def _begin(self) -> None:
        total, many = self._total, self._many
        self._turn = 0
        self._counts = [0] * many
        self._waiting = []
        self._ready = [-(-total // weight) * many + index for index, weight in enumerate(self._weights)]
        heapify(self._ready)
