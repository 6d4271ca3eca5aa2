"""
Configurations of protogate that the benches run: plain, governed, and with any number of rules and modules.

Rules
- What a bench calls *governed* is said here, once: the rows of other gateways are built to the same list.
- A rule that cannot match stands before the one that does; a module always applies.  Neither may be optimised away.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from identity import Identity

RULES: Final = 3_000
NETWORKS: Final = 10_000
POOL: Final = 1_000
"""Connections to the upstream, at most."""
KINDS: Final = (
    ("prefix", "/service-{}/api"),
    ("exact", "/exact/{}/x"),
    ("template", "/shop-{}/users/{{id}}/orders"),
)
"""Of the rules that do not match, as many of each."""
SHARED: Final = KINDS[:2]
"""What every gateway has a fast way for: governed rows are made of these."""
DENIED: Final = "127.0.0.9"
"""Who is on the deny list, so that a bench can see that it is in force."""
CONDITION: Final = "request.method == 'GET' && !request.path.startsWith('/internal/')"
SCHEMES: Final = {"http1": "http", "http2": "h2c", "sotp": "sotp"}
"""Of an upstream's URL, by what it speaks."""
TARGETS: Final = [{"targets": [{"upstream": "up"}]}]


def networks(count: int) -> list[str]:
    """So many networks: one of loopback, L{DENIED}, and others of four addresses each, none beside another."""
    return [f"{DENIED}/32", *(f"10.{at >> 13}.{at >> 5 & 255}.{(at & 31) << 3}/30" for at in range(count - 1))]


def paths(count: int, kinds: Sequence[tuple[str, str]] = KINDS) -> list[tuple[str, str]]:
    """So many kinds and paths of rules, none of which matches what a bench asks for."""
    return [(kinds[at % len(kinds)][0], kinds[at % len(kinds)][1].format(at)) for at in range(count)]


def rules(count: int, kinds: Sequence[tuple[str, str]] = KINDS) -> list[dict[str, Any]]:
    """So many rules; the last one takes everything."""
    every = [*paths(count - 1, kinds), ("prefix", "/")]
    return [{"type": "uri", "value": path, "matcherType": kind, "routes": TARGETS} for kind, path in every]


def modules(count: int) -> list[dict[str, Any]]:
    """So many modules that all apply: each adds a field, every other one from a template."""
    return [
        {
            "name": "addResponseHeader",
            "ruleOrder": at,
            "condition": "request.method == 'GET'",
            "actionParam": {f"x-bench-{at}": "${request.func.remoteCost}" if at % 2 else "constant"},
        }
        for at in range(count)
    ]


def governing() -> list[dict[str, Any]]:
    """The modules of a governed row: a list of addresses, and a field from a template each way, under a condition."""
    return [
        {"name": "accessList", "actionParam": {"deny": networks(NETWORKS)}},
        {
            "name": "setRequestHeader",
            "condition": CONDITION,
            "actionParam": {"x-request-id": "${func.requestId}", "x-client": "${source.ip}"},
        },
        {
            "name": "addResponseHeader",
            "condition": CONDITION,
            "actionParam": {"x-service-call": "${request.func.remoteCost}", "x-route": "${route.name}"},
        },
    ]


def plain(
    port: int,
    upstream: int,
    *,
    log: Path | None = None,
    routes: list[dict[str, Any]] | None = None,
    modules: list[dict[str, Any]] | None = None,
    front: str = "http1",
    back: str = "http1",
    identity: Identity | None = None,
    more: dict[str, Any] | None = None,
    **gateway: Any,
) -> dict[str, Any]:
    """
    One listener on a port of loopback, one upstream on another.

    @param log: the access log; None = none.
    @param routes: None = the one rule that takes everything.
    @param front: what clients speak, and over TLS if there is an C{identity}.
    @param back: what the upstream speaks.
    @param more: settings of the upstream.
    @param gateway: more settings of C{gateway}.
    """
    made: dict[str, Any] = {
        "gateway": {"name": "bench", "watch": False, **gateway},
        "listeners": [{"name": "web", "address": f"127.0.0.1:{port}", "protocols": [front]}],
        "upstreams": [
            {
                "name": "up",
                "protocol": back,
                "endpoints": [{"url": f"{SCHEMES[back]}://127.0.0.1:{upstream}"}],
                "pool": {"maxPerEndpoint": POOL, "queue": 20_000},
                "timeouts": {"queue": "60s"},  # of 10,000 at a time, nine in ten wait for their turn
                **(more or {}),
            }
        ],
        "routes": rules(1) if routes is None else routes,
        "modules": modules or [],
    }
    if identity is not None:
        certificate = {"cert": str(identity.cert), "key": str(identity.key)}
        made["listeners"][0]["tls"] = {"certificates": [certificate]}
    if log is not None:
        made["accessLog"] = {"file": str(log)}
    return made


def governed(port: int, upstream: int, admin: int, *, log: Path | None = None, **more: Any) -> dict[str, Any]:
    """
    L{plain}, with everything that a gateway is there for.

    @param admin: port of loopback where operators are answered.
    @param more: what else L{plain} takes.
    """
    made = plain(port, upstream, log=log, routes=rules(RULES, SHARED), modules=governing(), **more)
    return {**made, "admin": {"address": f"127.0.0.1:{admin}"}}
