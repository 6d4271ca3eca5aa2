"""
The stories that the gateway's own mechanisms are tried with; each seed tells another one of its kind.

Rules
- What a story expects is what the documentation says of the mechanism, no more.
- Where chance decides (whose share, which latency), the bounds are wide enough for a thousand seeds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import asked, balanced, errors, judged, left_alone
from protogate.testing.simulation.story import Story, Teller, dying, farm, gateway

HEALTH: Final = {"path": "/health", "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3}
FOUND: Final = 4.7
"""Seconds in which L{HEALTH} finds out: the rest of an interval, two more, a timeout, and the wheel."""
PROTOCOLS: Final = ("http1", "http2", "sotp")


def crowd(dice: Random, rate: float, **named: object) -> tuple[Clients, ...]:
    """Clients of one to three protocols, who ask so often together."""
    protocols = dice.sample(PROTOCOLS, dice.randint(1, 3))
    return tuple(
        Clients(rate=rate / len(protocols), name=name, protocol=name, targets=("/7/simulated",), **named)  # type: ignore[arg-type]
        for name in protocols
    )


def weighted_shares(dice: Random) -> Story:
    """Each endpoint gets its weight's share, exactly as smooth as the sequence is."""
    servers = [replace(server, weight=dice.randint(1, 10) * 10) for server in farm(dice, 2, 8)]
    return Story(gateway(servers), servers, crowd(dice, 40), holds=(errors(0), balanced(0.1)))


def a_dead_endpoint(dice: Random) -> Story:
    """A process dies: nobody notices, for a refused connection is tried elsewhere; and soon it is left alone."""
    servers = farm(dice, 2, 6)
    dead, at, back = dice.choice(servers).name, dice.uniform(3, 6), dice.uniform(16, 20)
    # What it worked on when it died cannot be sent again.
    holds = (
        errors(0, end=at - 1),
        errors(0, begin=at),
        asked(dead, 0, begin=at + FOUND, end=back),
        judged(dead, within=(at, at + FOUND), well=False),
        judged(dead, within=(back, back + FOUND), well=True),
        left_alone(),
    )
    config = gateway(servers, upstream={"healthCheck": HEALTH})
    return Story(config, servers, crowd(dice, 30), dying(dead, at, back), holds, seconds=30)


STORIES: Final[tuple[Teller, ...]] = (weighted_shares, a_dead_endpoint)
