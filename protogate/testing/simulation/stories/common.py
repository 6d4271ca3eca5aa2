"""What several stories are made of."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from protogate.testing.simulation.clients import Clients

HEALTH: Final = {"path": "/health", "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3}
FOUND: Final = 4.7
"""Seconds in which L{HEALTH} finds out: the rest of an interval, three looks, a timeout, and the wheel."""
PROTOCOLS: Final = ("http1", "http2", "sotp")
QUICK: Final = {"connect": "500ms", "responseHead": "2s", "responseStall": "2s", "queue": "1s"}
"""Clocks of an upstream that run out within a story."""


def crowd(dice: Random, rate: float, **named: Any) -> tuple[Clients, ...]:
    """Clients of one to three protocols, who ask so often together; more fields of L{Clients} as named."""
    protocols = dice.sample(PROTOCOLS, dice.randint(1, 3))
    usual = {"targets": ("/7/simulated",), **named}
    return tuple(Clients(rate=rate / len(protocols), name=name, protocol=name, **usual) for name in protocols)
