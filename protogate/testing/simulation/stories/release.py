"""A new version for a part of the users: the same ones all the time, and taken back when it does worse."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import counted, errors
from protogate.testing.simulation.servers import Conduct, Server
from protogate.testing.simulation.story import Become, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Spread

ADDRESSES: Final = 60
HELD: Final = 12.0
"""Seconds in which a target is taken back that is clearly worse: enough requests, a look, and what is told."""


def _story(
    dice: Random, old: Conduct, new: Conduct, percent: int, hold: dict[str, Any]
) -> tuple[dict[str, Any], list[Server], list[Clients]]:
    servers = farm(dice, 2, 4, old)
    next_ones = [
        Server(f"next{number}", f"http://10.8.0.{number}:8000", new) for number in range(1, dice.randint(1, 2) + 1)
    ]
    targets = [{"upstream": "farm"}, {"upstream": "next", "gray": percent, "hold": hold}]
    everything = {"name": "all", "value": "/", "matcherType": "prefix", "routes": [{"targets": targets}]}
    config = gateway(
        servers,
        upstreams=[{"name": "next", "endpoints": [{"url": server.url} for server in next_ones]}],
        routes=[everything],
    )
    return config, [*servers, *next_ones], [Clients(rate=80, addresses=ADDRESSES)]


def _sides(tale: Tale, begin: float, end: float) -> dict[str, set[bool]]:
    """By the address of a client, whether it was sent to the new version."""
    client = {record.agent: record.client for record in tale.records}
    found: dict[str, set[bool]] = {}
    for each in tale.served(begin, end):
        found.setdefault(client[each.agent], set()).add(each.server.startswith("next"))
    return found


def a_bad_release(dice: Random) -> Story:
    """A new version fails, or is slow, from some moment on: it is taken back, and nobody is sent there any more."""
    at, percent = dice.uniform(8, 10), dice.choice((20, 30, 50))
    worse = dice.choice(
        ({"errors": 0.5}, {"errors": 1.0, "status": 500}, {"breaks": 1.0}, {"latency": Spread(0.3, 0.3)})
    )
    hold = {"window": "12s", "minRequests": 30, "errorMargin": 0.01, "latencyFactor": 2, "latencyFloor": "50ms"}
    config, servers, clients = _story(dice, Conduct(), Conduct(), percent, hold)
    events = [Become(at, server.name, **worse) for server in servers if server.name.startswith("next")]

    def the_same_ones(tale: Tale) -> Iterator[str]:
        for client, sides in _sides(tale, 0.0, at).items():
            if len(sides) > 1:
                yield f"{client} was sent to both versions"
        late = [each for each in tale.served(at + HELD) if each.server.startswith("next")]
        if late:
            yield f"{len(late)} requests were sent to a version that should have been taken back"

    holds = (
        errors(0, end=at - 0.5),
        errors(0, begin=at + HELD),
        counted("release_held", 1, 1),
        the_same_ones,
    )
    return Story(config, servers, clients, events, holds, seconds=at + HELD + 4)


def a_good_release(dice: Random) -> Story:
    """A new version does as the old one does, errors included: it stays, for the same part of the users."""
    conduct = Conduct(latency=Spread(0.02, dice.uniform(0.3, 0.9)), errors=dice.choice((0.0, 0.01, 0.05, 0.2)))
    percent = dice.choice((20, 50))
    hold = {"window": "10s", "minRequests": 30, "errorMargin": 0, "latencyFactor": 1.5, "latencyFloor": "0s"}
    config, servers, clients = _story(dice, conduct, conduct, percent, hold)

    def the_same_ones(tale: Tale) -> Iterator[str]:
        sides = _sides(tale, 0.0, 1e9)
        for client, its in sides.items():
            if len(its) > 1:
                yield f"{client} was sent to both versions"
        gray = sum(its == {True} for its in sides.values())
        if not 0 < gray < len(sides):
            yield f"{gray} of {len(sides)} clients were gray, not about {percent} %"

    return Story(config, servers, clients, holds=(counted("release_held", 0, 0), the_same_ones), seconds=20)


STORIES: Final = (a_bad_release, a_good_release)
