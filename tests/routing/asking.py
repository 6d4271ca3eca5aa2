"""What the tests of routing share: rules in few words, and an exchange that has what routing looks at."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, cast

from protogate.config import model
from protogate.exchange.exchange import Exchange
from protogate.message import Peer, Request
from protogate.routing.table import Router
from protogate.uri import canonical


class Asking:
    """The part of an exchange that rules see."""

    def __init__(self, request: Request) -> None:
        self.request, self.source, self.route, self.target = request, request.peer, None, None


def ask(
    target: str = "/",
    method: str = "GET",
    host: str = "a.test",
    headers: Mapping[str, str] | None = None,
    protocol: str = "HTTP/1.1",
    service: str = "",
) -> Exchange:
    """An exchange with its path in the canonical form, as it comes to the router."""
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    request = Request(method.encode(), target.encode(), fields, authority=host.encode(), peer=Peer("192.0.2.1", 1))
    request.protocol, request.service = protocol, service
    path = target.encode().partition(b"?")[0]
    request.path = canonical(path).path if path[:1] == b"/" else path.decode()
    return cast("Exchange", Asking(request))


def entry(*targets: Any, **more: Any) -> model.Entry:
    """An entry; a target is the name of an upstream, a URL, or a model.Target."""
    made = [
        target
        if isinstance(target, model.Target)
        else model.Target(url=target)
        if "://" in target
        else model.Target(upstream=target)
        for target in targets or ("up",)
    ]
    if "sticky" in more:
        more["sticky"] = model.Sticky(key=more["sticky"])
    return model.Entry(targets=tuple(made), **more)


def rule(value: str = "/", kind: str = "exact", type: str = "uri", *entries: model.Entry, **more: Any) -> model.Rule:  # noqa: A002
    """A rule."""
    return model.Rule(
        value=value, matcher_type=cast("Any", kind), type=cast("Any", type), routes=entries or (entry(),), **more
    )


def router(*rules: model.Rule, zone: str = "", policy: Any = "canonical", **more: Any) -> Router:
    """A router over these rules."""
    return Router(rules, model.Gateway(zone=zone, path_policy=policy), random=Random(1), **more)


def chosen(table: Router, exchange: Exchange) -> int | None:
    """Index of the rule that gives the route."""
    route = table.route(exchange)
    return None if route is None else route.rule.index
