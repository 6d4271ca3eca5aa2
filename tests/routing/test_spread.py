"""protogate.routing.spread: exact, in time, and as cheap as it says."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.routing.balance import Smooth
from protogate.routing.spread import Spread

WEIGHTS = st.lists(st.integers(1, 40), min_size=2, max_size=20)


class Zero(Random):
    """Starts everything at the beginning."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


def turns(weights: list[int], count: int, random: Random) -> list[int]:
    spread = Spread(range(len(weights)), weights, random)
    return [spread.pick() for _ in range(count)]


@settings(max_examples=60)
@given(WEIGHTS, st.integers(), st.integers(0, 60))
def test_any_window_of_the_sum_of_weights_is_exact(weights: list[int], seed: int, start: int) -> None:
    total = sum(weights)
    assert Counter(turns(weights, start + total, Random(seed))[start:]) == dict(enumerate(weights))


@settings(max_examples=60)
@given(WEIGHTS)
def test_nobody_is_a_turn_ahead_or_behind(weights: list[int]) -> None:
    total, seen = sum(weights), [0] * len(weights)
    for turn, index in enumerate(turns(weights, 2 * total, Zero()), 1):
        seen[index] += 1
        for weight, had in zip(weights, seen, strict=True):
            assert abs(had * total - turn * weight) < total


@settings(max_examples=40)
@given(WEIGHTS, st.integers())
def test_nobody_waits_longer_than_two_shares(weights: list[int], seed: int) -> None:
    total = sum(weights)
    sequence = turns(weights, 3 * total, Random(seed))
    for index, weight in enumerate(weights):
        places = [place for place, item in enumerate(sequence) if item == index]
        assert max(after - before for before, after in pairwise(places)) < 2 * total / weight + 1


def test_one_that_is_heavy_is_not_asked_in_a_row() -> None:
    sequence = turns([99, *[1] * 99], 198, Zero())
    assert all(0 in pair for pair in pairwise(sequence[:-1])), "each second one"


def test_processes_begin_in_different_places() -> None:
    weights = [100 + 7 * number for number in range(40)]
    firsts = Counter(turns(weights, 1, Random(seed))[0] for seed in range(400))
    assert len(firsts) > 30
    assert max(firsts.values()) < 40


@pytest.mark.parametrize("many", [8, 200])
def test_many_items_without_a_short_cycle_have_their_turns_so(many: int) -> None:
    weights = [10_007 - 3 * number for number in range(many)]
    smooth = Smooth(enumerate(weights), Random(5))
    assert smooth._spread is not None
    seen = Counter(smooth.pick() for _ in range(10 * many))
    assert set(seen.values()) <= {8, 9, 10, 11, 12}
    assert len(seen) == many
