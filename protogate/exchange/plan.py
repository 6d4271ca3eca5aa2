"""What one configuration says about every exchange that begins under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from protogate.exchange.forwarding import Forwarding
from protogate.interfaces import IRouter, IService
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.exchange.pipeline import IBound
    from protogate.message import Request
    from protogate.routing.rules import Route, Target


@mypyc_attr(native_class=False)
class Life:
    """Ends with its plan: for a weak reference, which no compiled object can have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """
    Frozen: a reload makes another one, and exchanges under way keep the one they began with.

    @ivar name: of the gateway, in C{Via}, C{Proxy-Status} and records.
    @ivar zone: of the gateway.
    @ivar rewrite: the request target that a Target is to be sent.
    @ivar clusters: upstreams by name.
    @ivar keys: by upstream: what a request belongs to an endpoint by, for those that choose by that.
    @ivar total: seconds that a whole exchange may take; 0 = off.
    @ivar deadlines: by listener: the field in which its clients say how many milliseconds they wait.
    @ivar body: bytes that a request body may have; 0 = off.
    @ivar reserve: takes out of each request what only the gateway's modules may say, before anybody has seen it; None
        where there is nothing of the kind.
    @ivar hide: a target, as it may stand in a record; None where every one may.
    @ivar record: called once per exchange, when it is over and its POST_RESPONSE modules have run.
    """

    name: str
    zone: str
    wheel: Wheel
    router: IRouter
    rewrite: Callable[[Request, Route, Target], bytes]
    clusters: Mapping[str, IService]
    forwarding: Forwarding
    record: Callable[[Exchange], None]
    count: Callable[[str], None]
    total: float = 0.0
    deadlines: Mapping[str, bytes] = field(default_factory=dict)
    body: int = 0
    reject: bool = False
    """pathPolicy: reject."""
    keys: Mapping[str, Callable[[Exchange], str]] = field(default_factory=dict)
    reserve: Callable[[Exchange], None] | None = None
    hide: Callable[[bytes], bytes] | None = None
    pre_request: Sequence[IBound] = ()
    pre_upstream: Sequence[IBound] = ()
    pre_response: Sequence[IBound] = ()
    error: Sequence[IBound] = ()
    post_response: Sequence[IBound] = ()
    life: Life = field(default_factory=Life)

    def key(self, exchange: Exchange, upstream: str) -> str:
        """What a request of that exchange belongs to an endpoint of that upstream by; empty = nothing."""
        key = self.keys.get(upstream)
        return "" if key is None else key(exchange)
