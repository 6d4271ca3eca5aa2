"""
The stories that the gateway's own mechanisms are tried with; each seed tells another one of its kind.

Rules
- What a story expects is what the documentation says of the mechanism, no more.
- Where chance decides (whose share, which latency), the bounds are wide enough for a thousand seeds.
"""

from __future__ import annotations

from typing import Final

from protogate.testing.simulation.stories import (
    again,
    anything,
    balance,
    discovery,
    endpoints,
    fallbacks,
    judges,
    modules,
    overload,
    release,
)
from protogate.testing.simulation.story import Teller

STORIES: Final[tuple[Teller, ...]] = (
    *endpoints.STORIES,
    *discovery.STORIES,
    *judges.STORIES,
    *balance.STORIES,
    *again.STORIES,
    *modules.STORIES,
    *overload.STORIES,
    *release.STORIES,
    *fallbacks.STORIES,
    *anything.STORIES,
)
