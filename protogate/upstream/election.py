"""
Which endpoint of an upstream is next.

Rules
- What an endpoint gets is its weight, times the share that those who judge it leave to it (L{Endpoint.share}), or that
  it has come to by now where it started slowly (L{Warming}): the lesser of the two.
- Zones share out first, where there is something to say of them (L{protogate.upstream.zones}); then it is chosen in the
  way that C{balance} names.
- When nothing is left of any, all get what their weights say: some may be better than they look.
- Endpoints of weight 0 get nothing, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from protogate.config import model
from protogate.message import Request
from protogate.routing.balance import Smooth
from protogate.upstream.choice import Choice, Shares, Weighted
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.hashing import Hash
from protogate.upstream.latency import Latencies
from protogate.upstream.pairs import LeastRequest, PeakEwma
from protogate.upstream.warming import Warming
from protogate.upstream.zones import Tiers, flat, tiers
from protogate.wheel import Wheel

STEPS: Final = 100
"""Into how many parts a weight is divided where less than all of it counts."""


class Election:
    """
    By weight in turn, until L{settle} says otherwise.

    @param random: decides where the sequence of choices starts.
    @param count: told C{nobody_well}, and what choices tell of.
    @ivar latencies: wants to be told how attempts go; None = nobody wants to.
    """

    def __init__(self, random: Random, count: Callable[[str], None], wheel: Wheel) -> None:
        self._random, self._count, self._wheel = random, count, wheel
        self._endpoints: tuple[Endpoint, ...] = ()
        self._balance, self._bound = "weighted", 0.0
        self._zones: model.Zones | None = None
        self._own = ""
        self._warming: Warming | None = None
        self.latencies: Latencies | None = None
        self._quick: Random | None = None
        self._somebody = True
        self._choice: Choice = Weighted((), random)
        self._smooth: Smooth | None = Smooth(())  # of a choice that is nothing else

    def settle(self, config: model.Upstream, zone: str) -> None:
        """
        Choose as a configuration says from now on; what it does not change goes on.

        @param zone: of the gateway.
        """
        bound = 0.0 if config.hash is None else config.hash.bound
        own = zone if config.zones is not None else ""
        same = (config.balance, bound, config.zones, own) == (self._balance, self._bound, self._zones, self._own)
        self._balance, self._bound, self._zones, self._own = config.balance, bound, config.zones, own
        if (self.latencies is not None) != (config.balance == "peakEwma"):
            self.latencies = Latencies(self._wheel.now) if self.latencies is None else None
        warming, seconds = self._warming, float(config.slow_start)
        if warming is not None and seconds != warming.seconds:
            same = False
            if seconds:
                warming.seconds = seconds
            else:
                warming.stop()
                self._warming = None
        elif warming is None and seconds:
            self._warming = Warming(self._wheel, seconds, self._again)
            self._warming.look(self._endpoints)
        if not same:
            self._again()

    def arrange(self, endpoints: Sequence[Endpoint]) -> None:
        """From now on it is between these, as they are judged now."""
        self._endpoints = tuple(endpoints)
        weights = [(endpoint, endpoint.place.weight if self._may(endpoint) else 0) for endpoint in endpoints]
        warming = self._warming
        if warming is None:
            shares = [(endpoint, _share(weight, endpoint.share)) for endpoint, weight in weights]
        else:
            may = warming.look(endpoints)
            shares = [(each, _share(weight, min(each.share, may[i]))) for i, (each, weight) in enumerate(weights)]
        somebody = any(share for _, share in shares) or not any(weight for _, weight in weights)
        if not somebody:
            if self._somebody:
                self._count("nobody_well")
            shares = [(endpoint, weight * STEPS) for endpoint, weight in weights]
        self._somebody = somebody
        if self.latencies is not None:
            self.latencies.take(endpoints)
        choice = self._made(shares) if self._zones is None else self._shared(shares, self._zones)
        self._choice = choice
        self._smooth = choice.smooth if isinstance(choice, Weighted) else None

    def pick(self, request: Request) -> Endpoint | None:
        """Who is next; None when there is nobody."""
        smooth = self._smooth
        if smooth is None:
            return self._choice.pick(request)
        endpoint: Endpoint | None = smooth.pick()
        return endpoint

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Who is next of those that were not tried, or None."""
        return self._choice.other(request, tried)

    def stop(self) -> None:
        """Nobody is next any more."""
        if self._warming is not None:
            self._warming.stop()
            self._warming = None
        self.arrange(())

    def _again(self) -> None:
        self.arrange(self._endpoints)

    def _may(self, endpoint: Endpoint) -> bool:
        """Whether its zone gets anything at all."""
        zones = self._zones
        return zones is None or not zones.schedule or bool(zones.schedule.get(endpoint.place.zone))

    def _shared(self, shares: Shares, zones: model.Zones) -> Choice:
        found = tiers(zones, self._own, shares, STEPS)
        # A key must not go to another zone with each turn.
        whole = self._made(flat(found)) if self._balance == "hash" else None
        return Tiers(found, self._made, whole, self._random, self._count)

    def _made(self, shares: Shares) -> Choice:
        balance = self._balance
        if balance == "weighted":
            return Weighted(shares, self._random)
        if balance == "hash":
            return Hash(shares, self._random, self._bound, self._count)
        quick = self._quick
        if quick is None:  # it is asked twice for each request: the system's own would be a call of the kernel
            quick = self._quick = Random(self._random.getrandbits(64))
        if self.latencies is not None:
            return PeakEwma(shares, quick, self.latencies)
        return LeastRequest(shares, quick)


def _share(weight: int, share: float) -> int:
    if not weight or not share:
        return 0
    return max(round(weight * STEPS * share), 1)
