"""Who is next: exact by weight while endpoints come and go, and what holds whatever the way to choose."""

from __future__ import annotations

from collections import Counter
from math import gcd, log
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import Poll, endpoint, endpoints, holding, request, short

from protogate.config import model
from protogate.routing.balance import Smooth
from protogate.upstream.election import STEPS

WAYS: list[dict[str, Any]] = [
    {"balance": "weighted"},
    {"balance": "leastRequest"},
    {"balance": "peakEwma"},
    {"balance": "hash", "hash": model.Hash(key="source.ip")},
]


ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way["balance"])


def keyed(poll: Poll, times: int) -> Counter[str]:
    """Who is chosen, each time with another key."""
    return Counter(short(poll.pick(f"key-{number}")) for number in range(times))


# -- whatever the way


@ways
def test_nobody_is_nobody_and_one_gets_all(way: dict[str, Any]) -> None:
    assert keyed(Poll([], **way), 3) == {"nobody": 3}
    assert keyed(Poll(endpoints(0, 0), **way), 3) == {"nobody": 3}
    assert keyed(Poll(endpoints(7), **way), 10) == {"1": 10}
    assert keyed(Poll(endpoints(0, 7), **way), 10) == {"2": 10}


@ways
def test_shares_follow_the_weights_where_there_is_no_load(way: dict[str, Any]) -> None:
    seen = keyed(Poll(endpoints(100, 300, 0), **way), 4000)
    if way["balance"] != "peakEwma":  # that has no answer yet to go by
        assert 850 < seen["1"] < 1150
    assert seen["3"] == 0


@ways
def test_who_is_held_gets_nothing_and_who_is_held_a_little_less(way: dict[str, Any]) -> None:
    among = endpoints(100, 100, 100)
    holding(among[0], 0.0)
    one = Poll(among, **way)
    assert set(keyed(one, 500)) == {"2", "3"}
    holding(among[0], 0.25)
    one.arrange()
    seen = keyed(one, 4500)
    assert 400 < seen["1"] < 600, "a quarter of what the others get"


@ways
def test_when_none_is_well_all_get_their_weights(way: dict[str, Any]) -> None:
    among = endpoints(100, 300, 0)
    one = Poll(among, **way)
    for each in among:
        holding(each, 0.0)
        one.arrange()
    seen = keyed(one, 4000)
    assert 850 < seen["1"] < 1150
    assert seen["3"] == 0
    assert one.counted.count("nobody_well") == 1
    one.arrange()
    assert one.counted.count("nobody_well") == 1, "it is still so"
    holding(among[1], 1.0)
    one.arrange()
    assert set(keyed(one, 100)) == {"2"}
    holding(among[1], 0.0)
    one.arrange()
    assert one.counted.count("nobody_well") == 2


@ways
def test_another_one_is_never_one_that_was_tried_or_may_not(way: dict[str, Any]) -> None:
    among = endpoints(1000, 1, 0, 100)
    holding(among[3], 0.0)
    one = Poll(among, **way)
    asked = request("a key")
    assert short(one.election.other(asked, [among[0]])) == "2"
    assert short(one.election.other(asked, [among[1]])) == "1"
    assert one.election.other(asked, among[:2]) is None
    assert Poll([], **way).election.other(asked, []) is None


@ways
def test_the_first_choice_differs_between_processes(way: dict[str, Any]) -> None:
    among = endpoints(100, 100, 100, 100)
    firsts = Counter(short(Poll(among, **way, seed=seed).pick()) for seed in range(200))
    assert len(firsts) == 4
    assert max(firsts.values()) < 90


@ways
def test_another_way_is_taken_at_once_and_the_same_way_goes_on(way: dict[str, Any]) -> None:
    one = Poll(endpoints(1, 1), balance="weighted")
    before = one.pick()
    one.settle()
    assert one.pick() is not before, "the sequence did not begin anew"
    other = Poll(endpoints(1, 1), **way)
    choice = other.election._choice
    other.settle(**way)
    assert other.election._choice is choice
    other.settle()
    assert (other.election._choice is choice) is (way["balance"] == "weighted")
    assert other.election.latencies is None


# -- in turn


def lag(many: int) -> float:
    """By how many choices an item of so many can be off at the most, in a run of any length; L{Smooth}."""
    return 1 + log(many)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers())
def test_no_run_is_off_by_more_than_the_bound(weights: list[int], seed: int) -> None:
    smooth = Smooth(enumerate(weights), Random(seed))
    total = sum(weights)
    most, least, seen = [0.0] * len(weights), [0.0] * len(weights), [0] * len(weights)
    for turn in range(1, 2 * total // gcd(*weights) + 1):
        seen[smooth.pick()] += 1
        for index, weight in enumerate(weights):
            ahead = seen[index] - turn * weight / total
            most[index], least[index] = max(most[index], ahead), min(least[index], ahead)
    # The greatest difference between two moments is that of a run between them.
    assert max(most[index] - least[index] for index in range(len(weights))) < lag(len(weights))


def test_a_hundred_thousand_requests_while_endpoints_come_and_go() -> None:
    random = Random(7)
    among = [endpoint(number, random.randint(1, 1000)) for number in range(1, 9)]
    one = Poll(among)
    seen: Counter[str] = Counter()
    expected: dict[str, float] = {}
    number, asked, changes, off = 9, 0, 0, 0.0
    while asked < 100_000:
        turn = random.randrange(4)
        if turn == 0 and len(among) > 2:
            among.remove(random.choice(among))
        elif turn == 1 and len(among) < 16:
            among.append(endpoint(number, random.randint(1, 1000)))
            number += 1
        else:
            holding(random.choice(among), random.choice([0.0, 0.05, 0.3, 0.5, 0.77, 1.0]))
        one.arrange(among)
        changes += 1
        many = min(random.randint(1, 4000), 100_000 - asked)
        asked += many
        seen.update(one.counts(many))
        parts = {short(each): round(each.place.weight * each.share * STEPS) for each in among}
        if not any(parts.values()):
            parts = {short(each): each.place.weight for each in among}
        for name, part in parts.items():
            expected[name] = expected.get(name, 0.0) + many * part / sum(parts.values())
        off += lag(len(among))
    assert sum(seen.values()) == asked
    assert changes > 40
    worst = max(abs(seen[name] - expected[name]) for name in expected)
    assert worst <= off
    assert worst <= 3 * off**0.5, "each change is off by itself: they do not add up"


@pytest.mark.parametrize("share", [0.05, 0.25, 0.333, 0.5, 0.9])
def test_what_is_left_of_a_weight_is_exact(share: float) -> None:
    among = endpoints(1000, 10, 3)
    holding(among[0], share)
    parts = {"1": 1000 * share, "2": 10.0, "3": 3.0}
    seen = Poll(among).counts(10_000)
    for name, part in parts.items():
        assert abs(seen[name] - 10_000 * part / sum(parts.values())) < lag(3)


def test_a_change_of_one_is_no_change_of_the_others() -> None:
    among = endpoints(*[100] * 10)
    one = Poll(among)
    before = one.counts(1000)
    assert set(before.values()) == {100}
    holding(among[0], 0.0)
    one.arrange()
    after = one.counts(900)
    assert after == {str(number): 100 for number in range(2, 11)}
