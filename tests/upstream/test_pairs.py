"""Of two, the one with less to do, or the one that is likely to be sooner."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import Poll, endpoints, holding, load, request, short

from protogate.upstream.endpoint import Endpoint
from protogate.upstream.latency import DECAY, PENALTY, Latencies
from protogate.upstream.outcome import ERROR, FAILED, NOTHING, WELL
from protogate.upstream.pairs import LeastRequest, PeakEwma


def loaded(among: list[Endpoint], *loads: int) -> list[Endpoint]:
    for each, many in zip(among, loads, strict=True):
        load(each, many)
    return among


def held(poll: Poll, turns: int, under_way: int) -> dict[str, float]:
    """What each endpoint has under way on the average, when so many requests always are, and the oldest ends first."""
    queue: list[Endpoint] = []
    seen: Counter[str] = Counter()
    for turn in range(turns):
        chosen = poll.pick()
        assert chosen is not None
        load(chosen, chosen.pool.load + 1)
        queue.append(chosen)
        if len(queue) > under_way:
            first = queue.pop(0)
            load(first, first.pool.load - 1)
        if turn > under_way:
            seen.update({short(each): each.pool.load for each in poll.among})
    return {name: count / (turns - under_way - 1) for name, count in seen.items()}


# -- leastRequest


def test_of_two_the_one_with_less_load_gets_all() -> None:
    one = Poll(loaded(endpoints(100, 100), 3, 2), balance="leastRequest")
    assert one.counts(100) == {"2": 100}


def test_load_counts_by_weight() -> None:
    one = Poll(loaded(endpoints(100, 300), 2, 5), balance="leastRequest")
    assert one.counts(100) == {"2": 100}, "2 of 1 part are more than 5 of 3"
    loaded(one.among, 2, 7)
    assert one.counts(100) == {"1": 100}


def test_the_one_with_most_load_gets_nothing_and_the_one_with_least_twice_its_share() -> None:
    seen = Poll(loaded(endpoints(*[100] * 5), 5, 4, 3, 2, 0), balance="leastRequest").counts(5000)
    assert seen["1"] == 0
    assert 1800 < seen["5"] < 2200, "it is one of the two in two of five cases"


def test_what_is_under_way_follows_the_weights() -> None:
    seen = held(Poll(endpoints(100, 200, 300), balance="leastRequest"), 3000, 60)
    assert abs(seen["1"] - 10) < 1.5
    assert abs(seen["2"] - 20) < 1.5
    assert abs(seen["3"] - 30) < 1.5


@pytest.mark.interpreted
@settings(max_examples=30)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9), st.integers())
def test_two_are_drawn_by_weight_and_differ(weights: list[int], seed: int) -> None:
    shares = list(zip(endpoints(*weights), weights, strict=True))
    pairs = LeastRequest(shares, Random(seed))
    drawn: list[tuple[int, int]] = []
    better = pairs.better

    def watched(one: int, two: int) -> int:
        drawn.append((one, two))
        return better(one, two)

    pairs.better = watched  # type: ignore[method-assign]
    for _ in range(50):
        chosen = pairs.pick(request())
        assert (chosen is None) == (not any(weights))
        assert chosen is None or chosen.place.weight
    assert all(one != two for one, two in drawn)
    assert len(drawn) == (50 if sum(1 for weight in weights if weight) > 1 else 0)


@pytest.mark.interpreted
def test_both_are_drawn_in_proportion() -> None:
    shares = list(zip(endpoints(1, 2, 7), (1, 2, 7), strict=True))
    drawn: Counter[tuple[int, int]] = Counter()
    pairs = LeastRequest(shares, Random(3))
    pairs.better = lambda one, two: drawn.update([(one, two)]) or one  # type: ignore[method-assign]
    for _ in range(10_000):
        pairs.pick(request())
    for (one, two), weights in {(0, 2): (1, 7, 9), (2, 0): (7, 1, 3), (2, 1): (7, 2, 3), (1, 2): (2, 7, 8)}.items():
        first, second, rest = weights
        assert abs(drawn[one, two] - 10_000 * first / 10 * second / rest) < 160


# -- peakEwma


@pytest.fixture
def latencies() -> Latencies:
    return Latencies(Clock())


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_average_rises_at_once_and_falls_slowly() -> None:
    clock = Clock()
    latencies = Latencies(clock)
    (one,) = among = endpoints(1)
    latencies.take(among)
    assert latencies.cost(one, 0) == 0.0
    assert latencies.cost(one, 1) > 1e6, "it is asked for the first time"
    latencies.ended(one, WELL, 0.1)
    assert latencies.cost(one, 0) == pytest.approx(0.1)
    assert latencies.cost(one, 3) == pytest.approx(0.4)
    latencies.ended(one, WELL, 2.0)
    assert latencies.cost(one, 0) == pytest.approx(2.0)
    clock.now += DECAY
    assert latencies.cost(one, 0) == pytest.approx(2.0 / 2.71828, rel=1e-4), "while nobody asks"
    latencies.ended(one, WELL, 0.1)
    assert latencies.cost(one, 0) == pytest.approx(2.0 * 0.36788 + 0.1 * 0.63212, rel=1e-3)
    for _ in range(20):
        clock.now += DECAY / 2
        latencies.ended(one, WELL, 0.1)
    assert latencies.cost(one, 0) == pytest.approx(0.1, rel=0.01)


def test_who_fails_soon_is_not_fast(latencies: Latencies) -> None:
    one, two, three = among = endpoints(1, 1, 1)
    latencies.take(among)
    latencies.ended(one, FAILED, 0.0)
    assert latencies.cost(one, 0) == pytest.approx(PENALTY)
    latencies.ended(two, WELL, 0.2)
    latencies.ended(two, ERROR, 0.001)
    assert latencies.cost(two, 0) == pytest.approx(0.2)
    latencies.ended(two, ERROR, 0.5)
    assert latencies.cost(two, 0) == pytest.approx(0.5)
    latencies.ended(three, NOTHING, 5.0)
    assert latencies.cost(three, 0) == 0.0, "nobody knows"
    latencies.ended(two, NOTHING, 0.1)
    assert latencies.cost(two, 0) == pytest.approx(0.5)
    latencies.ended(two, NOTHING, 3.0)
    assert latencies.cost(two, 0) == pytest.approx(3.0), "a client waited so long at least"


def test_what_is_no_endpoint_any_more_is_forgotten(latencies: Latencies) -> None:
    one, two = among = endpoints(1, 1)
    latencies.take(among)
    for each in (one, two):
        latencies.ended(each, WELL, 0.3)
    latencies.take([two])
    latencies.ended(one, WELL, 0.3)
    assert latencies.cost(one, 0) == 0.0
    assert latencies.cost(two, 0) == pytest.approx(0.3)


def test_one_to_which_nothing_was_left_is_asked_once_when_it_comes_back() -> None:
    one = Poll(endpoints(100, 100), balance="peakEwma")
    latencies = one.election.latencies
    assert latencies is not None
    latencies.ended(one.among[0], WELL, 0.01)
    latencies.ended(one.among[1], FAILED, 0.0)
    assert one.counts(10) == {"1": 10}
    for share in (0.0, 0.5):
        holding(one.among[1], share)
        one.arrange()
        latencies.ended(one.among[1], FAILED, 5.0) if not share else None
    assert one.counts(10) == {"2": 10}
    latencies.ended(one.among[1], WELL, 0.02)
    assert one.counts(10) == {"1": 10}


def test_the_one_likely_to_be_sooner_is_chosen() -> None:
    one = Poll(endpoints(100, 100), balance="peakEwma")
    latencies = one.election.latencies
    assert latencies is not None
    latencies.ended(one.among[0], WELL, 0.1)
    latencies.ended(one.among[1], WELL, 0.25)
    assert one.counts(50) == {"1": 50}
    loaded(one.among, 2, 0)
    assert one.counts(50) == {"2": 50}, "0.1 times three are more than 0.25"
    loaded(one.among, 1, 0)
    assert one.counts(50) == {"1": 50}


def test_one_that_nobody_knows_is_asked_once_first() -> None:
    one = Poll(endpoints(100, 100), balance="peakEwma")
    latencies = one.election.latencies
    assert latencies is not None
    latencies.ended(one.among[0], WELL, 0.1)
    assert one.counts(10) == {"2": 10}
    loaded(one.among, 40, 1)
    assert one.counts(10) == {"1": 10}


def test_load_counts_for_more_where_the_weight_is_less(latencies: Latencies) -> None:
    among = loaded(endpoints(100, 300), 2, 2)
    latencies.take(among)
    pairs = PeakEwma([(among[0], 100), (among[1], 300)], Random(1), latencies)
    for each in among:
        latencies.ended(each, WELL, 0.1)
    assert {short(pairs.pick(request())) for _ in range(50)} == {"2"}


def test_what_is_known_outlives_a_change() -> None:
    one = Poll(endpoints(100, 100, 100), balance="peakEwma")
    latencies = one.election.latencies
    assert latencies is not None
    for each in one.among:
        latencies.ended(each, WELL, 0.1 if each is one.among[1] else 0.9)
    one.arrange(one.among[:2])
    assert one.counts(20) == {"2": 20}
    one.settle(balance="peakEwma", slow_start=30.0)
    assert one.counts(20) == {"2": 20}
