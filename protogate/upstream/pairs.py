"""
The better one of two: C{leastRequest} and C{peakEwma}.

Rules
- Two different endpoints are drawn by share, and the one that costs less is taken; of two that cost the same the first
  one drawn, so that a gateway without load follows the shares.
- Two are enough: looking at all would send every gateway, and every worker, to the same one at the same time
  (M. Mitzenmacher, The power of two choices in randomized load balancing, 2001).
- Load is what this process gave an endpoint's pool to do and is not over: under way or waiting, whatever the protocol.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from random import Random

from protogate.message import Request
from protogate.upstream.choice import Choice, Shares
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.latency import Latencies


class Pairs(Choice):
    """What the two have in common: how two are drawn."""

    def __init__(self, shares: Shares, random: Random) -> None:
        super().__init__(shares)
        self._draw = random.random
        self._shares = [share for _, share in shares if share]
        self._bounds = list(accumulate(self._shares))

    def pick(self, request: Request) -> Endpoint | None:
        """L{Choice}."""
        endpoints = self.those
        if len(endpoints) < 2:
            return endpoints[0] if endpoints else None
        bounds, last = self._bounds, len(endpoints) - 1
        total = bounds[last]
        one = min(bisect_right(bounds, self._draw() * total), last)
        own = self._shares[one]
        at = self._draw() * (total - own)
        if at >= bounds[one] - own:
            at += own  # as if the first one were not there
        two = min(bisect_right(bounds, at), last)
        return endpoints[one if two == one else self.better(one, two)]

    def better(self, one: int, two: int) -> int:
        """Which of the endpoints with these indexes costs less; C{one} when they cost the same."""
        raise NotImplementedError


class LeastRequest(Pairs):
    """Which has less load, for its share."""

    def better(self, one: int, two: int) -> int:
        """L{Pairs}."""
        endpoints, shares = self.those, self._shares
        load = endpoints[one].pool.load
        if not load or endpoints[two].pool.load * shares[one] >= load * shares[two]:
            return one
        return two


class PeakEwma(Pairs):
    """
    Which is likely to answer sooner: what its answers take by now, times the load that comes before this request and
    with it.  An endpoint with less than the usual share counts each request under way for as many more.
    """

    def __init__(self, shares: Shares, random: Random, latencies: Latencies) -> None:
        super().__init__(shares, random)
        self._latencies = latencies
        self._usual = self._bounds[-1] / len(self._bounds) if self._bounds else 0.0

    def better(self, one: int, two: int) -> int:
        """L{Pairs}."""
        return two if self._cost(two) < self._cost(one) else one

    def _cost(self, index: int) -> float:
        endpoint = self.those[index]
        load = endpoint.pool.load * self._usual / self._shares[index]
        return self._latencies.cost(endpoint, load)
