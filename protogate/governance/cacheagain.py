"""
Asking an upstream in the background whether what is kept is still good, while clients are given it (RFC 5861, 3).

It is an exchange of its own: the modules behind the cache run for it, for the upstream may need what they add; those in
front of it have had their say, and the answer goes to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.caching.asked import Asked
from protogate.caching.conditions import CONDITIONS
from protogate.caching.drain import Drain
from protogate.caching.flight import Flight
from protogate.caching.stored import Stored
from protogate.exchange.exchange import Exchange
from protogate.governance.cachevisit import DRAINED, Visit
from protogate.interfaces import IRouter
from protogate.message import Headers, Request, Response

if TYPE_CHECKING:
    from protogate.exchange.plan import Plan
    from protogate.governance.cache import Cache
    from protogate.routing.rules import Route

_DROPPED = CONDITIONS | {b"cache-control", b"pragma", b"range", b"if-range"}


@implementer(IRouter)
@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Finds what was found already."""

    chosen: Route

    def route(self, exchange: Exchange) -> Route:
        """L{IRouter}."""
        return self.chosen


def again(cache: Cache, exchange: Exchange, stored: Stored, asked: Asked, flight: Flight) -> None:
    """
    Ask.

    @param exchange: of a client that is given what is kept.
    @param flight: ends with the answer.
    """
    first = exchange.request
    headers = Headers([field for field in first.headers if field[0] not in _DROPPED])
    request = Request(
        b"GET", first.target, headers, None, first.authority, first.scheme, protocol=first.protocol, peer=first.peer
    )
    request.service = first.service
    assert exchange.route is not None
    other = Exchange(request, _plan(cache, exchange.plan, exchange.route), exchange.listener)
    other.identity = exchange.identity
    said = Asked(somebody=asked.somebody, extra=asked.extra)
    Visit(cache, other, stored.uri, stored.place, said, stored, "stale").lead(flight)
    answer = other.begin()
    if isinstance(answer, Deferred):
        answer.addCallbacks(_read, _over, callbackArgs=(other,), errbackArgs=(other,))
    else:
        _read(answer, other)


def _read(response: Response, exchange: Exchange) -> None:
    body = response.body
    if body is None:
        exchange.request.closed(None)
    else:
        Drain(body, exchange.wheel, DRAINED, lambda: exchange.request.closed(None)).begin()


def _over(failure: Failure, exchange: Exchange) -> None:
    exchange.request.closed(None)


def _plan(cache: Cache, plan: Plan, route: Route) -> Plan:
    """What is done with the question: what comes behind the cache, and nothing else."""
    modules = [getattr(bound, "module", None) for bound in plan.pre_upstream]
    behind = tuple(plan.pre_upstream[modules.index(cache) + 1 :]) if cache in modules else ()
    return replace(
        plan,
        router=_Same(route),
        pre_request=(),
        pre_upstream=behind,
        pre_response=(),
        error=(),
        post_response=(),
        reserve=None,
        deadlines={},
        record=_nobody,
    )


def _nobody(exchange: Exchange) -> None:
    """It stands in no record."""
