"""
The stories of C{protogate.testing.simulation.stories}, each over a few seeds; the command tells a thousand of each.
"""

from __future__ import annotations

import pytest

from protogate.testing.simulation import check
from protogate.testing.simulation.stories import STORIES

SEEDS = 20


@pytest.mark.parametrize("teller", STORIES, ids=lambda teller: teller.__name__)
def test_a_story_holds(teller):
    for seed in range(SEEDS):
        check(teller, seed)
