"""
The endpoint that a key belongs to: C{balance: hash}.

Rules
- The same key goes to the same endpoint, in every process and after a restart, while the endpoints and their shares are
  the same; when they change, only those keys move that have to (L{Rendezvous}).
- Within a bound: no endpoint has more requests under way than C{bound} times what its share of all that this process
  has under way is, rounded up (V. Mirrokni et al., Consistent hashing with bounded loads, 2018).  Who is at it hands on
  to the next endpoint in the key's own order, so that the overflow of one does not fall on another one as a whole.
- Who is left so little that it is only being tried (L{TRY}) is tried by one request in so many of all its keys: the few
  keys that so little is may never come.  From there on its keys come back for good, one after the other.
- A request without a key, which an empty one is, goes by weight in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from random import Random
from typing import TYPE_CHECKING

from protogate.config import model
from protogate.config.faults import ConfigFaults, under
from protogate.errors import ConfigError
from protogate.expression import condition
from protogate.message import Request
from protogate.routing.rendezvous import Rendezvous
from protogate.upstream.breaker import TRY
from protogate.upstream.choice import Choice, Shares, Weighted
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.verdicts import where

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange


def keys(upstreams: Iterable[model.Upstream]) -> Mapping[str, Callable[[Exchange], str]]:
    """
    By the names of the upstreams that want one: what gives the key of a request.

    @raise ConfigFaults: some have none, or one for nothing, or it is no expression.
    """
    found: dict[str, Callable[[Exchange], str]] = {}
    faults: list[ConfigError] = []
    for index, upstream in enumerate(upstreams):
        at = ("upstreams", index)
        if upstream.hash is None:
            if upstream.balance == "hash":
                faults.append(ConfigError("hash needs to know of what: add hash: {key: ...}", (*at, "balance")))
            continue
        if upstream.balance != "hash":
            faults.append(ConfigError("says nothing while balance is not hash", (*at, "hash")))
        if 0 < upstream.hash.bound < 1:
            faults.append(
                ConfigError("less than its share for all is not enough: 0, or 1 and more", (*at, "hash", "bound"))
            )
        try:
            found[upstream.name] = condition.expression(upstream.hash.key)
        except ConfigError as fault:
            faults.append(under(fault, *at, "hash", "key"))
    if faults:
        raise ConfigFaults(faults)
    return found


class Hash(Choice):
    """
    @param bound: times its share that an endpoint may have under way; 0 = as much as comes.
    @param count: told C{hash_overflow}.
    """

    def __init__(self, shares: Shares, random: Random, bound: float, count: Callable[[str], None]) -> None:
        super().__init__(shares)
        self._bound, self._count = bound, count
        self._shares = {endpoint: share for endpoint, share in shares if share}
        self._total = sum(self._shares.values())
        self._pools = [endpoint.pool for endpoint in self._shares]
        self._weighted = Weighted(shares, random)
        self._chance = random.random
        tried = {each for each in self._shares if 0.0 < each.share <= TRY}
        self._tried = tried if len(tried) < len(self._shares) else set()
        firm = [(each, where(each), 0 if each in self._tried else share) for each, share in self._shares.items()]
        self._rendezvous = Rendezvous(firm)
        whole = [
            (each, where(each), share / (each.share if each in self._tried else 1.0))
            for each, share in self._shares.items()
        ]
        self._homes = Rendezvous(whole) if self._tried else None

    def pick(self, request: Request) -> Endpoint | None:
        """L{Choice}."""
        key = request.key
        if not key:
            return self._weighted.pick(request)
        endpoint: Endpoint | None = self._rendezvous.pick(key)
        if self._homes is not None:
            home: Endpoint = self._homes.pick(key)
            if home in self._tried and self._chance() < home.share:
                return home
        if endpoint is None or not self._bound or not endpoint.pool.load or len(self.those) < 2:
            return endpoint
        under_way = 1  # this one
        for pool in self._pools:
            under_way += pool.load
        most = self._bound * under_way / self._total
        if self._room(endpoint, most):
            return endpoint
        self._count("hash_overflow")
        for each in self._rendezvous.order(key):
            if self._room(each, most):
                endpoint = each
                break
        return endpoint

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """L{Choice}: the next one in the key's own order."""
        key = request.key
        if not key:
            return self._weighted.other(request, tried)
        for endpoint in self._rendezvous.order(key):
            if endpoint not in tried:
                found: Endpoint = endpoint
                return found
        return None

    def _room(self, endpoint: Endpoint, most: float) -> bool:
        """@param most: requests that each unit of share may have."""
        return endpoint.pool.load < ceil(most * self._shares[endpoint])
