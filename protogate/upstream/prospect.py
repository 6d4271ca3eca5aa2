"""
Which endpoint of an upstream a request would be given to, in words: for C{protogate explain}.

Rules
- All endpoints are taken for well, for warm and for idle: what they really are only a running gateway knows.
- Nothing is decided a second time here: zones share out, and keys find their endpoint, by what does it for requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from protogate.config import model
from protogate.routing.rendezvous import Rendezvous
from protogate.upstream.election import STEPS
from protogate.upstream.endpoint import Place, layout
from protogate.upstream.verdicts import where
from protogate.upstream.zones import flat, tiers

SHOWN: Final = 10
"""Endpoints that are named; of more the rest is counted."""
_WAYS: Final = {
    "weighted": "each in turn",
    "leastRequest": "of two that are drawn the one with less to do",
    "peakEwma": "of two that are drawn the one that is likely to answer sooner",
}


@dataclass(frozen=True, slots=True, eq=False)
class _Well:
    """Stands for an endpoint of which all is left."""

    place: Place

    @property
    def address(self) -> str:
        return self.place.address


def prospect(upstream: model.Upstream, zone: str, key: Callable[[], str]) -> str:
    """
    How it is chosen; empty where there is nothing to choose.

    @param zone: of the gateway.
    @param key: gives the key that an endpoint is chosen by, where one is.
    """
    found: dict[tuple[str, int, str], Place] = {}
    for each in layout(upstream):
        known = found.get(each.key)
        found[each.key] = each if known is None else replace(known, weight=known.weight + each.weight)
    shares: Sequence[tuple[Any, int]] = [(_Well(each), each.weight * STEPS) for each in found.values()]
    if upstream.discovery is None and len(shares) < 2:
        return ""
    by, named = _by(upstream, key)
    if named is None:
        return by
    if upstream.discovery is not None:
        return f"{by}; which there are it is told while it runs"
    if upstream.zones is not None:
        shares = flat(tiers(upstream.zones, zone, shares, STEPS))
    total = sum(share for _, share in shares)
    if not total:
        return f"{by}; none has a weight"
    if named:
        chosen = Rendezvous([(each, where(each), share) for each, share in shares]).pick(named)
        return f"{by}: {_told(chosen.place)}"
    parts = [f"{share * 100 / total:.1f} % {_told(each.place)}" for each, share in shares if share]
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return f"{by}: {', '.join(parts[:SHOWN])}{more}"


def _by(upstream: model.Upstream, key: Callable[[], str]) -> tuple[str, str | None]:
    """How it is chosen, and the key: empty where that says nothing, None where no request gets that far."""
    settings = upstream.hash
    if upstream.balance != "hash" or settings is None:
        return f"{upstream.balance}, {_WAYS.get(upstream.balance, 'in turn')}", ""
    try:
        named = key()
    except Exception as error:  # what it asks for is not there
        return f"none, for the key {settings.key} cannot be told: {error}", None
    if not named:
        return f"hash of {settings.key}, which is empty, so each in turn", ""
    bound = f", unless that has more than {settings.bound:g} times its share under way" if settings.bound else ""
    return f"hash of {settings.key}, which is {named!r}{bound}", named


def _told(place: Place) -> str:
    return f"{place.address} in zone {place.zone}" if place.zone else place.address
