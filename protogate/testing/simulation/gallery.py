"""The drawings of the documentation: which story, which seed, under which title."""

from __future__ import annotations

from typing import Final

from protogate.testing.simulation.picture import picture
from protogate.testing.simulation.stories import balance, endpoints, judges, overload
from protogate.testing.simulation.story import Teller
from protogate.testing.simulation.world import tell

PICTURES: Final[dict[str, tuple[Teller, int, str]]] = {
    "dead-endpoint": (endpoints.a_dead_endpoint, 3, "An endpoint dies; health checks find out"),
    "gray-failure": (judges.a_gray_failure, 2, "An endpoint answers 503, and is well to health checks: outliers"),
    "breaker": (judges.a_breaker_of_an_upstream, 1, "All of an upstream fails: circuitBreaker, scope upstream"),
    "slow-start": (balance.a_new_endpoint, 1, "A new endpoint: slowStart of 10 s"),
    "overload": (overload.too_much_to_do, 0, "Twice what the gateway can do: overload"),
    "zones": (balance.the_own_zone_first, 2, "Endpoints of the own zone die: zones, with spill 1.4"),
}


def draw(name: str) -> str:
    """The SVG."""
    teller, seed, title = PICTURES[name]
    return picture(tell(teller, seed), title)
