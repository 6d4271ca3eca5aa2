"""
How the requests of an upstream are shared out between the zones of its endpoints, before any of them is chosen.

Rules
- Zones stand in tiers: the gateway's own (C{prefer: own}), then each of C{order}, then all others together.  A tier
  gets what those before it leave, but no more than it is well: what is left of its weight, times C{spill}.  So a tier
  of which less than 1/C{spill} is well gives some away, and one of which nothing is well gives all away.
- With C{schedule} each zone gets its number, in proportion, and less where it is less well in that sense; a zone whose
  number is 0, or that has none, gets nothing, whatever happens.
- An endpoint that would let a request wait, for all its connections are taken, hands on to the next tier with room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final

from protogate.config import model
from protogate.config.faults import ConfigFaults, under
from protogate.errors import ConfigError
from protogate.message import Request
from protogate.routing.balance import Smooth
from protogate.upstream.choice import Choice, Shares
from protogate.upstream.endpoint import Endpoint

PARTS: Final = 1000
"""Into how many parts the requests are divided between tiers."""
FINE: Final = 1 << 20
"""Into how many each of them where endpoints of all tiers are compared."""


def verify(upstreams: Iterable[model.Upstream], zone: str) -> None:
    """
    Whether zones can be treated as a configuration says.

    @param zone: of the gateway.
    @raise ConfigFaults: some cannot.
    """
    faults = [
        under(fault, "upstreams", index)
        for index, upstream in enumerate(upstreams)
        if upstream.zones is not None
        for fault in _faults(upstream, upstream.zones, zone)
    ]
    if faults:
        raise ConfigFaults(faults)


def _faults(upstream: model.Upstream, zones: model.Zones, zone: str) -> Iterator[ConfigError]:
    if zones.schedule:
        if zones.order:
            yield ConfigError("a schedule says what each zone gets: remove one of the two", ("zones", "order"))
        if not any(zones.schedule.values()):
            yield ConfigError("no zone gets anything", ("zones", "schedule"))
        for place, endpoint in enumerate(upstream.endpoints):
            if endpoint.zone not in zones.schedule:
                told = f'zone "{endpoint.zone}"' if endpoint.zone else "an endpoint without a zone"
                yield ConfigError(f"{told} is not in the schedule; 0 there means nothing", ("endpoints", place, "zone"))
    elif zones.prefer == "own" and not zone:
        yield ConfigError("which zone is the gateway's own? set gateway.zone", ("zones", "prefer"))
    if len(set(zones.order)) < len(zones.order):
        yield ConfigError("a zone stands there twice", ("zones", "order"))
    if upstream.discovery is None:
        there = {endpoint.zone for endpoint in upstream.endpoints}
        for key, names in (("order", zones.order), ("schedule", tuple(zones.schedule))):
            for name in names:
                if name not in there:
                    yield ConfigError(f'no endpoint is in zone "{name}"', ("zones", key))


class Tier:
    """
    Endpoints that get requests together.

    @ivar shares: what each of them gets of that, in proportion.
    @ivar part: what they get together, in proportion to other tiers.
    """

    __slots__ = ("number", "part", "shares", "well")

    def __init__(self, number: int) -> None:
        self.number = number
        self.shares: list[tuple[Any, int]] = []
        self.well = 0.0
        self.part = 0


def tiers(zones: model.Zones, own: str, shares: Sequence[tuple[Any, int]], full: int) -> list[Tier]:
    """
    Share out.

    @param own: zone of the gateway.
    @param shares: what each endpoint, or what stands for one and has a C{place}, would get without zones.
    @param full: times its weight that the share of an endpoint is which is all well.
    @return: those that may get something, in their order.
    """
    found: dict[str, Tier] = {}
    for endpoint, share in shares:
        zone = endpoint.place.zone
        name, number = zone, zones.schedule.get(zone, 0)
        if not zones.schedule:
            number = 1
            if not (zone == own and zones.prefer == "own") and zone not in zones.order:
                name = "*"
        if number:
            tier = found.get(name)
            if tier is None:
                tier = found[name] = Tier(number)
            tier.shares.append((endpoint, share))
    for tier in found.values():
        whole = sum([endpoint.place.weight for endpoint, _ in tier.shares]) * full
        left = sum([share for _, share in tier.shares])
        tier.well = min(zones.spill * left / whole, 1.0) if whole else 0.0
    if zones.schedule:
        for tier in found.values():
            tier.part = round(tier.number * tier.well * PARTS)
        return list(found.values())
    names = [own] if zones.prefer == "own" else []
    ordered = [found[name] for name in dict.fromkeys((*names, *zones.order, "*")) if name in found]
    remaining = PARTS
    for tier in ordered:
        tier.part = min(round(tier.well * PARTS), remaining)
        remaining -= tier.part
    return ordered


class Tiers(Choice):
    """
    A choice of tiers, and in each a choice of endpoints.

    @param made: a choice among endpoints.
    @param whole: a choice among all endpoints, by their share of all; None = the tiers have their turns.
    @param count: told C{zone_spilled}.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        made: Callable[[Shares], Choice],
        whole: Choice | None,
        random: Random,
        count: Callable[[str], None],
    ) -> None:
        super().__init__([share for tier in tiers for share in tier.shares])
        self._tiers = [(tier, made(tier.shares)) for tier in tiers if any(share for _, share in tier.shares)]
        self._of = {endpoint: choice for tier, choice in self._tiers for endpoint, _ in tier.shares}
        self._turns = Smooth([(choice, tier.part) for tier, choice in self._tiers], random)
        self._whole, self._count = whole, count

    def pick(self, request: Request) -> Endpoint | None:
        """L{Choice}."""
        choice: Choice | None = self._turns.pick() if self._whole is None else self._whole
        endpoint = None if choice is None else choice.pick(request)
        if endpoint is not None and endpoint.pool.full:
            return self._spilled(request, endpoint)
        return endpoint

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """L{Choice}: one of the tier that was tried last, then of the others in their order."""
        first = self._of.get(tried[-1]) if tried else None
        if first is not None:
            endpoint = first.other(request, tried)
            if endpoint is not None:
                return endpoint
        for _, choice in self._tiers:
            if choice is not first:
                endpoint = choice.other(request, tried)
                if endpoint is not None:
                    return endpoint
        return None

    def _spilled(self, request: Request, full: Endpoint) -> Endpoint:
        """Who is to take what would have to wait there."""
        first = self._of[full]
        for _, choice in self._tiers:
            if choice is not first:
                endpoint = choice.pick(request)
                if endpoint is not None and not endpoint.pool.full:
                    self._count("zone_spilled")
                    return endpoint
        return full


def flat(tiers: Sequence[Tier]) -> list[tuple[Any, int]]:
    """What each endpoint gets of all, in proportion: for choices that cannot take turns between tiers."""
    found: list[tuple[Any, int]] = []
    for tier in tiers:
        left = sum([share for _, share in tier.shares])
        if left and tier.part:
            part = tier.part * FINE / left
            found += [(each, max(round(share * part), 1)) for each, share in tier.shares if share]
    return found
