"""
Places for requests under way, by key, and a short queue before them.

Rules
- Who takes a place gives it back by calling what he was handed, once.
- A place that becomes free goes to who has waited longest.  Who has waited for C{wait} seconds goes without.
- A key is remembered while somebody has a place, or waits for one; where limits are learnt, the last C{most} keys are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred

from protogate.governance.gradient import Gradient
from protogate.wheel import Timer, Wheel

NOTHING: Final = -1.0
"""Seconds of an answer that says nothing about how busy somebody is."""


class Place:
    """
    All places of one key.

    @ivar busy: that are taken.
    @ivar waiting: who wants one, with the timer that ends it.
    @ivar learnt: how many there are; None = as many as is configured.
    @ivar serving: free places are being handed on: what that leads to hands none on itself, or a long queue would be a
        deep stack.
    """

    __slots__ = ("busy", "learnt", "serving", "waiting")

    def __init__(self, learnt: Gradient | None) -> None:
        self.busy, self.learnt, self.serving = 0, learnt, False
        self.waiting: OrderedDict[Deferred[bool], Timer] = OrderedDict()


class Slots:
    """
    @ivar limit: places for each key, where they are not learnt.
    @ivar learn: makes the L{Gradient} of a key; None = nothing is learnt.
    @ivar queue: how many may wait for each key.
    @ivar wait: seconds that they may.
    @ivar most: keys that are remembered where limits are learnt.
    @ivar busy: places that are taken, of all keys.
    @ivar waiting: how many wait, for all keys.
    @ivar learnt: places that there are, of all keys whose limits were learnt.
    """

    def __init__(
        self,
        limit: int,
        learn: Callable[[float], Gradient] | None = None,
        queue: int = 0,
        wait: float = 0.1,
        most: int = 1000,
    ) -> None:
        self.limit, self.learn, self.queue, self.wait, self.most = limit, learn, queue, wait, most
        self._places: OrderedDict[str, Place] = OrderedDict()
        self.busy = self.waiting = 0  # kept up to date: there may be very many keys
        self.learnt = 0.0

    def __len__(self) -> int:
        return len(self._places)

    def take(self, key: str, wheel: Wheel) -> bool | Deferred[bool]:
        """
        Take a place.

        @return: whether there was one, or a Deferred of that, which never fails and may be cancelled.
        """
        place = self._places.get(key)
        if place is None:
            place = self._first(key, wheel)
        elif self.learn is not None:
            self._places.move_to_end(key)
        if place.busy < self._limit(place):
            place.busy += 1
            self.busy += 1
            return True
        if len(place.waiting) >= self.queue:
            return False
        waiter: Deferred[bool] = Deferred(partial(self._left, key, place))
        self.waiting += 1
        place.waiting[waiter] = wheel.after(self.wait, partial(self._late, key, place, waiter))
        return waiter

    def give(self, key: str, sample: float, wheel: Wheel) -> None:
        """
        Give a place back.

        @param sample: seconds that an answer took, or L{NOTHING}.
        """
        place = self._places[key]
        learnt = place.learnt
        if sample >= 0.0 and learnt is not None:
            before = learnt.limit
            learnt.sample(sample, place.busy, wheel.now())
            self.learnt += learnt.limit - before
        place.busy -= 1
        self.busy -= 1
        self._serve(key, place)

    def change(self, limit: int, learn: Callable[[float], Gradient] | None, queue: int, wait: float) -> None:
        """Have other numbers from now on; who has a place keeps it.  What was learnt stays, within new bounds."""
        self.limit, self.learn, self.queue, self.wait = limit, learn, queue, wait
        for key, place in list(self._places.items()):
            if learn is not None and place.learnt is not None:
                bounds = learn(0.0)
                known = place.learnt
                known.least, known.most, known.tolerance = bounds.least, bounds.most, bounds.tolerance
                before = known.limit
                known.limit = min(max(before, known.least), known.most)
                self.learnt += known.limit - before
            self._serve(key, place)

    def open(self) -> None:
        """There is no limit any more: who waits goes on."""
        self.limit, self.learn, self.learnt = 1 << 30, None, 0.0
        for key, place in list(self._places.items()):
            place.learnt = None
            self._serve(key, place)

    def _limit(self, place: Place) -> float:
        return self.limit if place.learnt is None else int(place.learnt.limit)

    def _first(self, key: str, wheel: Wheel) -> Place:
        places = self._places
        if self.learn is not None and len(places) >= self.most:
            oldest, place = next(iter(places.items()))
            if not place.busy and not place.waiting:
                del places[oldest]
                self.learnt -= 0.0 if place.learnt is None else place.learnt.limit
        made = places[key] = Place(None if self.learn is None else self.learn(wheel.now()))
        self.learnt += 0.0 if made.learnt is None else made.learnt.limit
        return made

    def _serve(self, key: str, place: Place) -> None:
        """Hand free places on; forget a key that nobody needs."""
        if place.serving:
            return
        place.serving = True
        while place.waiting and place.busy < self._limit(place):
            waiter, timer = place.waiting.popitem(last=False)
            timer.close()
            place.busy += 1
            self.busy += 1
            self.waiting -= 1
            waiter.callback(True)
        place.serving = False
        self._forget(key, place)

    def _forget(self, key: str, place: Place) -> None:
        if place.busy or place.waiting or place.serving or self.learn is not None:
            return
        if self._places.get(key) is place:
            del self._places[key]

    def _late(self, key: str, place: Place, waiter: Deferred[bool]) -> None:
        if place.waiting.pop(waiter, None) is not None:
            self.waiting -= 1
            waiter.callback(False)
            self._forget(key, place)

    def _left(self, key: str, place: Place, waiter: Deferred[bool]) -> None:
        """Who waited does not want it any more."""
        timer = place.waiting.pop(waiter, None)
        if timer is not None:
            timer.close()
            self.waiting -= 1
        self._forget(key, place)
