"""protogate.routing.rendezvous: the same everywhere, by weight, and moving no more than it must."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.routing.rendezvous import SLOTS, Rendezvous

KEYS = [f"user-{number}" for number in range(4000)]


def made(**weights: float) -> Rendezvous:
    return Rendezvous([(name, name, weight) for name, weight in weights.items()])


def chosen(**weights: float) -> dict[str, str]:
    rendezvous = made(**weights)
    return {key: rendezvous.pick(key) for key in KEYS}


def test_the_same_key_has_the_same_item_in_every_version() -> None:
    rendezvous = made(a=1, b=1, c=2)
    assert [rendezvous.pick(key) for key in KEYS[:12]] == list("cccccccccaab")
    assert rendezvous.order("user-0") == ["c", "b", "a"]


def test_the_order_of_the_items_does_not_matter() -> None:
    assert chosen(a=3, b=2, c=1) == chosen(c=1, b=2, a=3)


@pytest.mark.parametrize(
    "weights", [{"a": 1, "b": 1}, {"a": 90, "b": 10}, {"a": 1000, "b": 500, "c": 1, "d": 0}, {"a": 0.7, "b": 0.3}]
)
def test_shares_follow_the_weights(weights: dict[str, float]) -> None:
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


def test_whose_item_goes_moves_to_the_next_in_its_own_order() -> None:
    all_, without = made(a=1, b=1, c=1, d=1), made(a=1, c=1, d=1)
    heirs: Counter[str] = Counter()
    for key in KEYS:
        order = all_.order(key)
        assert order[0] == all_.pick(key)
        assert sorted(order) == list("abcd")
        assert without.order(key) == [name for name in order if name != "b"]
        if order[0] == "b":
            heirs[without.pick(key)] += 1
    assert len(heirs) == 3
    assert max(heirs.values()) < 1.3 * min(heirs.values()), "what one loses is shared by all"


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1000), max_size=8), st.text())
def test_order_and_choice_agree(weights: dict[str, int], key: str) -> None:
    rendezvous = made(**weights)
    order = rendezvous.order(key)
    assert sorted(order) == sorted(name for name, weight in weights.items() if weight)
    assert len(rendezvous) == len(order)
    for _ in range(2):
        assert rendezvous.pick(key) == (order[0] if order else None)


def test_orders_are_kept_and_not_too_many_of_them() -> None:
    rendezvous = made(a=1, b=2, c=2)
    kept = rendezvous.order("user-1")
    assert rendezvous.order("user-1") is kept
    for key in KEYS:
        rendezvous.order(key)
        assert len(rendezvous._orders) <= 1024
    assert rendezvous.order("user-1") == kept


def test_a_hundred_items_have_their_share_of_the_slots() -> None:
    rendezvous = Rendezvous([(number, f"10.0.0.{number}:80", 100) for number in range(100)])
    (group,) = rendezvous._groups
    seen = Counter(group.first(slot)[1] for slot in range(0, SLOTS, 8))
    assert len(seen) == 100
    assert all(45 < many < 125 for many in seen.values()), "82 on the average, with a deviation of 9"
    assert not any(after == before for before, after in pairwise([rendezvous.order(key) for key in KEYS[:50]]))
