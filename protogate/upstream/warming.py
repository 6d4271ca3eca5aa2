"""
The slow start of endpoints that are new, or well again: what they get grows with the time they have been there.

Rules
- It grows linearly from L{FLOOR} of their weight to all of it, in L{STEPS} steps; what else is held against an endpoint
  counts as before: the least decides.
- Those that an upstream begins with are warm.  Where all that get anything came at the same time, none waits for
  another: shares are in proportion, and an endpoint that is alone gets all.
- Each process goes by the moment at which it heard of the endpoint: they need not agree.
- One timer, armed while any endpoint is cold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from protogate.upstream.endpoint import Endpoint
from protogate.wheel import Wheel

FLOOR: Final = 0.1
STEPS: Final = 18
"""From there to all: of a twentieth each."""


class Warming:
    """
    @param changed: called when an endpoint has come one step further.
    @ivar seconds: how long it takes; may be replaced at any time.
    """

    def __init__(self, wheel: Wheel, seconds: float, changed: Callable[[], None]) -> None:
        self.seconds = seconds
        self._now, self._timer = wheel.now, wheel.timer(changed)
        self._known: dict[Endpoint, float] = {}  # those that get anything, and since when; 0.0 = warm
        self._begun = False

    def look(self, endpoints: Sequence[Endpoint]) -> None:
        """Notice who is new, well again, or gone."""
        now, before = self._now(), self._known
        known: dict[Endpoint, float] = {}
        step = self.seconds / STEPS
        next_ = inf
        for endpoint in endpoints:
            if not endpoint.up:
                continue
            since = before.get(endpoint, now if self._begun else 0.0)
            if since and now - since >= self.seconds:
                since = 0.0
            if since:
                next_ = min(next_, step - (now - since) % step)
            known[endpoint] = since
        self._known = known
        self._begun = self._begun or bool(endpoints)
        if next_ < inf:
            self._timer.set(next_)
        else:
            self._timer.clear()

    def share(self, endpoint: Endpoint) -> float:
        """What an endpoint may get, from 0.0 to 1.0."""
        since = self._known.get(endpoint, 0.0)
        if not since:
            return 1.0
        return FLOOR + (1.0 - FLOOR) * min(int((self._now() - since) * STEPS / self.seconds) / STEPS, 1.0)

    def stop(self) -> None:
        """There will be no change any more."""
        self._timer.end()
