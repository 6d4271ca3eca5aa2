"""
Exchanges for the tests of modules: real ones, as they stand when a stage begins.

    made = exchange("PRE_RESPONSE", headers=[(b"accept", b"*/*")], status=404)
    module.process(made)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twisted.internet.task import Clock

from protogate.config.load import loads
from protogate.errors import UPSTREAM, Abort
from protogate.exchange.exchange import Exchange
from protogate.exchange.forwarding import Forwarding
from protogate.exchange.plan import Plan
from protogate.governance.stages import ERROR, POST_RESPONSE, PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM, STAGES
from protogate.interfaces import IBody
from protogate.message import Field, Headers, Peer, Request, Response
from protogate.routing.rules import forwarded
from protogate.routing.table import Router
from protogate.testing.bodies import Giver
from protogate.testing.reactor import START
from protogate.wheel import Wheel

_LOADED: Final = loads(
    b"""
gateway: {name: testing, zone: zone-a}
listeners: [{name: testing, address: "127.0.0.1:80"}]
upstreams: [{name: origin, endpoints: [{url: "http://192.0.2.7:8080"}]}]
routes:
  - name: everything
    value: /
    matcherType: prefix
    tags: [testing]
    routes: [{targets: [{upstream: origin}]}]
""",
    "testing.yaml",
)
FAILURE: Final = Abort("the upstream refused the connection", UPSTREAM, 502, error="connection_refused")
"""What leads to the ERROR stage here."""


def exchange(
    stage: str = PRE_REQUEST,
    *,
    method: bytes = b"GET",
    target: bytes = b"/path?q=1",
    headers: Iterable[Field] = (),
    body: bytes | None = None,
    authority: bytes = b"a.test",
    ip: str = "192.0.2.1",
    tls: bool = False,
    status: int = 200,
    response_headers: Iterable[Field] = (),
    response_body: bytes | None = None,
    error: BaseException = FAILURE,
    clock: Clock | None = None,
) -> Exchange:
    """
    An exchange as a stage finds it: routed from PRE_UPSTREAM on, answered from PRE_RESPONSE on, failed in ERROR.

    The gateway is called C{testing}, the zone C{zone-a}, the route C{everything}, the upstream C{origin}.

    @param ip: of the client, and thus C{source.ip}.
    @param clock: of the wheel that deadlines are put on.
    """
    if stage not in STAGES:
        raise ValueError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    if clock is None:
        clock = Clock()
        clock.advance(START)
    peer, scheme = Peer(ip, 54321, tls), b"https" if tls else b"http"
    request = Request(method, target, Headers(headers), _body(body), authority, scheme, protocol="TEST/1", peer=peer)
    made = Exchange(request, _plan(clock), "testing")
    if stage != PRE_REQUEST:
        made.route = made.plan.router.route(made)  # type: ignore[assignment]  # ours answers at once
        if made.route is not None:
            made.target = made.route.pick(made)
    if stage in (PRE_RESPONSE, POST_RESPONSE):
        made.response = Response(status, Headers(response_headers), _body(response_body))
    if stage == ERROR:
        made.error = error
        made.reason = error if isinstance(error, Abort) else FAILURE
    return made


def _body(data: bytes | None) -> IBody | None:
    return None if data is None else Giver([data] if data else [], len(data)).body


def _plan(clock: Clock) -> Plan:
    config = _LOADED.config
    return Plan(
        name=config.gateway.name,
        zone=config.gateway.zone,
        wheel=Wheel(clock),
        router=Router(config.routes, config.gateway),
        rewrite=forwarded,
        clusters={},
        forwarding=Forwarding(config.gateway.name),
        record=_nothing,
        count=_nothing,
    )


def _nothing(_: object) -> None:
    """Nobody asks."""


__all__ = ["FAILURE", "PRE_UPSTREAM", "exchange"]
