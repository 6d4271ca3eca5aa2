"""
A way to choose among endpoints: what C{balance} names.

Rules
- A choice is between endpoints whose shares are fixed; when one changes, another choice is made.  What is to outlive
  that is kept elsewhere and handed to it.
- Shares are whole numbers and say what an endpoint gets in proportion to the others; who has none is never chosen.
- It knows no protocol: of an endpoint it asks how much its pool is given to do, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from protogate.message import Request
from protogate.routing.balance import Smooth
from protogate.upstream.endpoint import Endpoint

Shares = Sequence[tuple[Endpoint, int]]


class Choice:
    """
    @param shares: what each endpoint gets.
    @ivar those: the endpoints that get anything.
    """

    def __init__(self, shares: Shares) -> None:
        self.those = [endpoint for endpoint, share in shares if share]

    def pick(self, request: Request) -> Endpoint | None:
        """Who is next; None when nobody has a share."""
        raise NotImplementedError

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Who is next of those that were not tried; None when there is none."""
        for _ in self.those:
            endpoint = self.pick(request)
            if endpoint is not None and endpoint not in tried:
                return endpoint
        for each in self.those:  # those of little weight come rarely
            if each not in tried:
                return each
        return None


class Weighted(Choice):
    """In turn, exactly by share: L{Smooth}.  @ivar smooth: for who asks often."""

    def __init__(self, shares: Shares, random: Random) -> None:
        super().__init__(shares)
        self.smooth = Smooth(shares, random)

    def pick(self, request: Request) -> Endpoint | None:
        """L{Choice}."""
        endpoint: Endpoint | None = self.smooth.pick()
        return endpoint
