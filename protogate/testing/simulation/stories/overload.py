"""More work than a process can do: who is refused, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import errors, latency
from protogate.testing.simulation.servers import Conduct
from protogate.testing.simulation.story import Hold, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Spread

EFFORT: Final = 0.008
"""Seconds of the loop for each request: 125 a second are all that it can do."""
CLASSES: Final = [
    {"name": "critical", "when": "request.path.startsWith('/7/pay')"},
    {"name": "default"},
    {"name": "bulk", "when": "request.path.startsWith('/7/bulk')"},
]
OFF: Final = {"memory": {"full": 0}, "descriptors": {"full": 0}}
"""What the kernel is asked for is this process's own: no seed repeats it."""


def served(name: str, least: float, begin: float) -> Hold:
    """Of the asks of a class at least such a share is answered well."""

    def hold(tale: Tale) -> Iterator[str]:
        asks = [ask for ask in tale.asked(begin) if ask.agent.startswith(f"{name}-")]
        well = sum(ask.well for ask in asks)
        if well < least * len(asks):
            yield f"{well} of {len(asks)} of {name} were answered well, less than {least:g}"

    return hold


def goodput(least: float, begin: float, end: float) -> Hold:
    """So many asks a second are answered well."""

    def hold(tale: Tale) -> Iterator[str]:
        well = sum(ask.well for ask in tale.asked(begin, end)) / (end - begin)
        if well < least:
            yield f"{well:.1f} a second were answered well from {begin:g} s on, less than {least:g}"

    return hold


def too_much_to_do(dice: Random) -> Story:
    """Twice what the gateway can do: the least important are refused, and soon, and it does nearly all that it can."""
    servers = farm(dice, 1, 3, Conduct(latency=Spread(0.02, 0.4)))
    clients = [
        Clients(rate=25, name="critical", targets=("/7/pay",)),
        Clients(rate=dice.uniform(40, 60), name="default", targets=("/7/shop",)),
        Clients(rate=dice.uniform(120, 190), name="bulk", targets=("/7/bulk",), begin=2.0, end=10.0),
    ]
    config = gateway(servers, settings={"overload": {"priorities": CLASSES, **OFF}})
    holds = (
        errors(0, end=2.0),
        errors(0, which=lambda ask: ask.status not in (200, 503)),
        served("critical", 1.0, 0.0),
        served("default", 0.9, 0.0),
        goodput(0.7 / EFFORT, 4.0, 10.0),
        latency(100, 2.0),  # without: up to nine seconds, and half of all five
        latency(99, 1.0, begin=4.0),
        latency(50, 0.5, begin=4.0),
        errors(0, begin=12.0),
    )
    return Story(config, servers, clients, holds=holds, seconds=16, effort=EFFORT)


STORIES: Final = (too_much_to_do,)
