"""
The stories of C{protogate.testing.simulation.stories}, each over a few seeds; C{make simulate} tells many of each.
"""

from __future__ import annotations

import pytest

from protogate.testing.simulation import check
from protogate.testing.simulation.stories import STORIES
from protogate.testing.simulation.stories.anything import anything
from unwatched import unwatched

SEEDS = 2
MORE = {anything: 12}


@pytest.mark.parametrize("teller", STORIES, ids=lambda teller: teller.__name__)
def test_a_story_holds(teller):
    assert teller.__doc__, "the command lists what it is about"
    check(teller, 0)
    with unwatched():
        for seed in range(1, MORE.get(teller, SEEDS)):
            check(teller, seed)
