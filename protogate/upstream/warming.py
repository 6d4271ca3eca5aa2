"""
The slow start of endpoints that are new, or well again: what they get grows with the time they have been there.

Rules
- It grows linearly from L{FLOOR} of their weight to all of it, in L{STEPS} steps; what else is held against an endpoint
  counts as before: the least decides.
- Those that an upstream begins with are warm.  Where all are cold, none waits for another: the warmest one counts as
  warm, and the others in proportion.  So an endpoint that is alone gets all.
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

    def look(self, endpoints: Sequence[Endpoint]) -> list[float]:
        """
        Notice who is new, well again, or gone.

        @return: what each of them may get, from 0.0 to 1.0; 1.0 for the warmest.
        """
        now, before, step = self._now(), self._known, self.seconds / STEPS
        known: dict[Endpoint, float] = {}
        shares: list[float] = []
        following, warmest = inf, 0.0
        for endpoint in endpoints:
            share = 1.0
            if endpoint.up:
                since = before.get(endpoint, now if self._begun else 0.0)
                if since:
                    passed = now - since
                    if passed >= self.seconds:
                        since = 0.0
                    else:
                        share = FLOOR + (1.0 - FLOOR) * int(passed / step) / STEPS
                        following = min(following, step - passed % step)
                known[endpoint] = since
                warmest = max(warmest, share)
            shares.append(share)
        self._known = known
        self._begun = self._begun or bool(endpoints)
        if following < inf:
            self._timer.set(following)
        else:
            self._timer.clear()
        return [min(share / warmest, 1.0) for share in shares] if 0.0 < warmest < 1.0 else shares

    def stop(self) -> None:
        """There will be no change any more."""
        self._timer.end()
