"""
Asking an upstream in the background whether what is kept is still good, while clients are given it (RFC 5861, 3).

It is an exchange of its own: the modules behind the cache run for it, for the upstream may need what they add; those in
front of it have had their say, and the answer goes to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.caching.asked import PLAIN, Asked
from protogate.caching.conditions import CONDITIONS
from protogate.caching.drain import Drain
from protogate.caching.stored import Stored
from protogate.exchange.exchange import Exchange
from protogate.governance.cachevisit import DRAINED, Visit
from protogate.interfaces import IRouter
from protogate.message import Headers, Response, ignore
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from protogate.exchange.plan import Plan
    from protogate.governance.cache import Cache
    from protogate.routing.rules import Route

PAUSE: Final = 1.0
"""Seconds between two questions about the same answer."""
_DROPPED: Final = CONDITIONS | {b"cache-control", b"pragma", b"range", b"if-range"}


@implementer(IRouter)
@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Finds what was found already."""

    chosen: Route

    def route(self, exchange: Exchange) -> Route:
        """L{IRouter}."""
        return self.chosen


def again(cache: Cache, exchange: Exchange, stored: Stored, asked: Asked) -> None:
    """
    Ask.

    @param exchange: of a client that is given what is kept.  Who that is the upstream is told only where its answer
        may be kept for others even so.
    """
    first, dropped = exchange.request, _DROPPED
    if not stored.control.shared:
        dropped = _DROPPED | cache.credentials
    headers = Headers([field for field in first.headers if field[0] not in dropped])
    request = first.again(headers)
    request.method = b"GET"
    assert exchange.route is not None
    other = Exchange(request, _plan(cache, exchange.plan, exchange.route), exchange.listener)
    said = PLAIN
    if stored.control.shared:
        other.identity, said = exchange.identity, Asked(somebody=asked.somebody)
    stored.hold = exchange.wheel.now() + DRAINED
    other.after(partial(_over, stored, exchange.wheel))
    Visit(cache, other, stored.uri, stored.place, said, stored, "stale").go(other)
    answer = other.begin()
    if isinstance(answer, Deferred):
        answer.addCallbacks(_read, _failed, callbackArgs=(other,), errbackArgs=(other,))
    else:
        _read(answer, other)


def _read(response: Response, exchange: Exchange) -> None:
    body = response.body
    if body is None:
        _close(exchange)
    else:
        Drain(body, exchange.wheel, DRAINED, partial(_close, exchange)).begin()


def _failed(failure: Failure, exchange: Exchange) -> None:
    _close(exchange)


def _close(exchange: Exchange) -> None:
    request = exchange.request
    closed, request.closed = request.closed, ignore  # the two refer to each other
    closed(None)


def _over(stored: Stored, wheel: Wheel) -> None:
    stored.hold = wheel.now() + PAUSE


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
