"""protogate.routing.balance: exact, smooth, and sticky."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import gcd
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.routing import balance
from protogate.routing.balance import Smooth, Sticky

WEIGHTS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


class Zero(Random):
    """Starts everything at the beginning."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


def picks(weights: list[int], count: int, random: Random) -> list[int | None]:
    smooth = Smooth(enumerate(weights), random)
    return [smooth.pick() for _ in range(count)]


@given(st.sampled_from([balance._STEPS, 1]), WEIGHTS, st.integers(), st.integers(0, 40))
def test_any_window_of_the_sum_of_weights_is_exact(steps: int, weights: list[int], seed: int, start: int) -> None:
    if not any(weights):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balance, "_STEPS", steps)
        window = sum(weights) // gcd(*weights)
        seen = Counter(picks(weights, start + window, Random(seed))[start:])
    assert seen == {index: weight // gcd(*weights) for index, weight in enumerate(weights) if weight}


@given(weights=WEIGHTS, seed=st.integers())
def test_nobody_waits_much_longer_than_its_share(weights: list[int], seed: int) -> None:
    total = sum(weights)
    sequence = picks(weights, 3 * total, Random(seed))
    for index, weight in enumerate(weights):
        if weight:
            places = [place for place, item in enumerate(sequence) if item == index]
            # At most twice the even distance, and one place for each neighbour that wants the same turn.
            assert max(after - before for before, after in pairwise(places)) <= 2 * total / weight + len(weights)


def test_the_sequences_of_the_known_cases() -> None:
    assert picks([5, 1, 1], 7, Zero()) == [0, 0, 1, 0, 2, 0, 0]
    assert picks([100, 100, 25], 9, Zero()) == [0, 1, 0, 1, 2, 0, 1, 0, 1]
    sequence = picks([100, 100, 66], 133, Zero())
    assert Counter(sequence) == {0: 50, 1: 50, 2: 33}
    places = [place for place, item in enumerate(sequence) if item == 2]
    assert {after - before for before, after in pairwise(places)} <= {3, 4, 5}


@pytest.mark.parametrize("steps", [balance._STEPS, 40])
def test_restarts_begin_in_different_places(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_STEPS", steps)
    first = Counter(Smooth([("a", 1), ("b", 1)], Random(seed)).pick() for seed in range(200))
    assert 60 < first["a"] < 140
    assert first["a"] + first["b"] == 200
    assert len({Smooth([("a", 100), ("b", 99), ("c", 25)]).pick() for _ in range(200)}) == 3


def test_zero_is_never_and_all_is_always() -> None:
    assert set(picks([100, 0], 500, Random(1))) == {0}
    assert set(picks([0, 1], 500, Random(1))) == {1}


@pytest.mark.parametrize("items", [[], [("a", 0)], [("a", 0), ("b", 0)]])
def test_no_weight_means_nobody(items: list[tuple[str, int]]) -> None:
    assert Smooth(items).pick() is None
    assert Sticky([(item, item, weight) for item, weight in items]).pick("key") is None


def test_many_items_with_large_weights_are_stepped_through() -> None:
    weights = [1000 - index for index in range(200)]
    smooth = Smooth(enumerate(weights), Random(3))
    assert smooth._cycle is None
    seen = Counter(smooth.pick() for _ in range(1000))
    assert max(seen.values()) <= 7
    assert len(seen) == 200


KEYS = [f"user-{number}" for number in range(3000)]


def chosen(**weights: int) -> dict[str, str | None]:
    sticky = Sticky([(name, name, weight) for name, weight in weights.items()])
    return {key: sticky.pick(key) for key in KEYS}


def test_the_same_key_has_the_same_item_in_any_order_of_items() -> None:
    assert chosen(a=3, b=2, c=1) == chosen(c=1, b=2, a=3)


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 90, "b": 10}, {"a": 1000, "b": 500, "c": 1, "d": 0}])
def test_shares_follow_the_weights(weights: dict[str, int]) -> None:
    seen = Counter(chosen(**weights).values())
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(seen[name] / len(KEYS) - share) <= 4 * (share * (1 - share) / len(KEYS)) ** 0.5
    assert seen["d"] == 0


def test_only_keys_move_that_have_to() -> None:
    before, more, fewer, new = chosen(a=50, b=50), chosen(a=50, b=60), chosen(a=50, b=0), chosen(a=50, b=50, c=25)
    assert {(before[key], more[key]) for key in KEYS if before[key] != more[key]} == {("a", "b")}
    assert {(before[key], fewer[key]) for key in KEYS if before[key] != fewer[key]} == {("b", "a")}
    assert {new[key] for key in KEYS if before[key] != new[key]} == {"c"}
    assert sum(before[key] != more[key] for key in KEYS) < 0.08 * len(KEYS)


@settings(max_examples=30)
@given(st.text())
def test_any_text_is_a_key(key: str) -> None:
    sticky = Sticky([("a", "a", 1), ("b", "b", 1000)])
    assert sticky.pick(key) == sticky.pick(key)
    assert Sticky([("only", "x", 7)]).pick(key) == "only"


def test_the_same_name_twice_gets_two_shares() -> None:
    sticky = Sticky([(1, "same", 1), (2, "same", 1)])
    seen = Counter(sticky.pick(key) for key in KEYS)
    assert 1300 < seen[1] < 1700
