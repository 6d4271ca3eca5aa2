"""
Which endpoint of an upstream is next.

Rules
- What an endpoint gets is its weight, times the share that those who judge it leave to it (L{Endpoint.share}).
- When nothing is left of any, all get what their weights say: some may be better than they look.
- Endpoints of weight 0 get nothing, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from protogate.message import Request
from protogate.routing.balance import Smooth
from protogate.upstream.endpoint import Endpoint

STEPS: Final = 20
"""Into how many parts a weight is divided where less than all of it counts."""


class Election:
    """
    @param random: decides where the sequence of choices starts.
    @param count: told C{nobody_well}.
    """

    def __init__(self, random: Random, count: Callable[[str], None]) -> None:
        self._random, self._count = random, count
        self._endpoints: tuple[Endpoint, ...] = ()
        self._balance = Smooth(())

    def arrange(self, endpoints: Sequence[Endpoint]) -> None:
        """From now on it is between these, as they are judged now."""
        self._endpoints = tuple(endpoints)
        shares = [(endpoint, _share(endpoint)) for endpoint in endpoints]
        if not any(share for _, share in shares) and any(endpoint.place.weight for endpoint in endpoints):
            self._count("nobody_well")
            shares = [(endpoint, endpoint.place.weight) for endpoint in endpoints]
        self._balance = Smooth(shares, self._random)

    def pick(self, request: Request) -> Endpoint | None:
        """Who is next; None when there is nobody."""
        endpoint: Endpoint | None = self._balance.pick()
        return endpoint

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Who is next of those that were not tried, or None."""
        for _ in self._endpoints:
            endpoint = self.pick(request)
            if endpoint is not None and endpoint not in tried:
                return endpoint
        for endpoint in self._endpoints:  # those of little weight come rarely
            if endpoint.place.weight and endpoint.up and endpoint not in tried:
                return endpoint
        return None


def _share(endpoint: Endpoint) -> int:
    weight, share = endpoint.place.weight, endpoint.share
    if not weight or not share:
        return 0
    return max(round(weight * STEPS * share), 1)
