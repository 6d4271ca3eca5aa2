"""The drawings of the documentation: which story, which seed, under which title."""

from __future__ import annotations

from typing import Final

from protogate.testing.simulation.picture import picture
from protogate.testing.simulation.stories.endpoints import a_dead_endpoint
from protogate.testing.simulation.story import Teller
from protogate.testing.simulation.world import tell

PICTURES: Final[dict[str, tuple[Teller, int, str]]] = {
    "dead-endpoint": (a_dead_endpoint, 3, "An endpoint dies; health checks find out"),
}


def draw(name: str) -> str:
    """The SVG."""
    teller, seed, title = PICTURES[name]
    return picture(tell(teller, seed), title)
