"""
What tells answers to one URI apart, whatever their fields say: which upstream is asked, and for what.

Rules
- Two requests are in one place only when the upstream would be sent the same target by both.
- Where that cannot be told before the upstream is chosen, there is no place.
- A route is known by what it says, not by where it stands: another rule before it makes it no other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protogate.caching.stored import Place
from protogate.errors import Abort
from protogate.expression.template import Template

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.routing.rules import Target


class Places:
    """@param by: a template whose text tells answers apart, too."""

    def __init__(self, by: Template | None) -> None:
        self._by = by
        self._routes: dict[Any, tuple[str, bool]] = {}

    def of(self, exchange: Exchange, told: tuple[str, ...]) -> Place | None:
        """
        Where answers to this request belong; None = nowhere.

        @param told: what a proxy in front says; of anybody else it goes no further than here.
        """
        route = exchange.route
        if route is None:
            return None
        known = self._routes.get(route)
        if known is None:
            known = self._routes[route] = _of(route)
        name, plain = known
        more = told if told and exchange.plan.forwarding.trusts(exchange.request.peer.ip) else ()
        if not plain:
            special = self._special(exchange, route)
            if special is None:
                return None
            more = (*special, *more)
        if self._by is not None:
            more = (self._by(exchange), *more)
        return (name, *more)

    def _special(self, exchange: Exchange, route: Any) -> Place | None:
        """Where the request has a say in which target is asked, or in what it is asked."""
        target: Target | None = route.sure(exchange)
        if target is None:
            # One of several is taken in turn: nobody knows yet which.
            return ("",) if all(each.rewrite is None for each in route.targets) else None
        if target.rewrite is None:
            return (target.name,)
        request = exchange.request
        try:
            method, sent = target.rewrite(exchange, exchange.plan.rewrite(request, route, target))
        except Abort:
            return None  # whoever asks the upstream will say why
        return (target.name, sent.decode("latin-1")) if method == request.method else None


def _of(route: Any) -> tuple[str, bool]:
    """The name of a route, and whether all its requests are in one place."""
    rule, targets = route.rule, route.targets
    kind = rule.matcher.kind.name
    name = repr((rule.type, kind, rule.value, rule.hosts, rule.methods, route.zone, route.text))
    name += "".join(f" {target.name}" for target in targets)
    return name, all(target.rewrite is None for target in targets) and route.alike
