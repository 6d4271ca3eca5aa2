"""protogate.routing.comparison: worse is what is surely worse, and by enough."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.config.model import Hold as Terms
from protogate.routing.comparison import ALPHA, Comparison, Counts, bin_of, chance, edge, worse

DICE = 1000
"""Seeds of the tests of what must hardly ever happen."""


def counts(requests: int, errors: int = 0, seconds: float = 0.02, left: tuple[float, ...] = ()) -> Counts:
    made = Counts()
    for number in range(requests):
        if number < errors:
            made.failed()
        else:
            made.well(seconds)
    for each in left:
        made.gone(each)
    return made


def terms(**more: Any) -> Terms:
    return Terms(**more)


# -- the test


@settings(max_examples=60)
@given(st.data())
def test_the_chance_is_what_counting_all_ways_gives(data: st.DataObject) -> None:
    first, second = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    mine, theirs = data.draw(st.integers(0, first)), data.draw(st.integers(0, second))
    marked = mine + theirs
    ways = sum(
        comb(first, number) * comb(second, marked - number)
        for number in range(mine, min(first, marked) + 1)
        if marked - number <= second
    )
    assert chance(mine, first, theirs, second) == pytest.approx(float(Fraction(ways, comb(first + second, marked))))


def test_large_numbers_are_no_matter() -> None:
    assert chance(5_000, 1_000_000, 5_000, 1_000_000) == pytest.approx(0.5, abs=0.01)
    assert chance(10_000, 1_000_000, 5_000, 1_000_000) < 1e-200


# -- errors


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((50, 50), (1000, 0), "50 of 50 requests failed, and 0 of 1000 beside it"),
        ((50, 10), (1000, 0), "10 of 50 requests failed, and 0 of 1000 beside it"),
        ((49, 49), (1000, 0), ""),  # too few
        ((1000, 1000), (49, 0), ""),  # nothing to compare with
        ((50, 2), (1000, 0), ""),  # that may be chance
        ((100, 50), (100, 50), ""),  # so does the other one
        ((100, 0), (100, 50), ""),  # it is better
        ((100_000, 1_000), (200_000, 200), ""),  # surely, but of no importance
        ((100_000, 1_200), (200_000, 200), "1200 of 100000 requests failed, and 200 of 200000 beside it"),
    ],
)  # fmt: skip
def test_a_larger_share_of_failures(mine: tuple[int, int], theirs: tuple[int, int], expected: str) -> None:
    assert worse(counts(*mine), counts(*theirs), terms()) == expected


def test_failures_may_be_left_out_of_it() -> None:
    assert worse(counts(100, 100), counts(100), terms(error_margin=1.0)) == ""


def test_what_breaks_off_later_is_no_more_than_there_was() -> None:
    mine = Counts()
    for _ in range(200):
        mine.broke()
    mine.add(counts(60))
    assert worse(mine, counts(1000), terms()).startswith("60 of 60 requests failed")


# -- latency


@pytest.mark.parametrize(
    ("mine", "expected"),
    [
        (0.2, "100 of 100 answers took longer than 0.121 s, and 0 of 1000 beside it"),
        (0.1, ""),  # five times as long, and not by enough
        (0.02, ""),
    ],
)
def test_answers_that_take_longer(mine: float, expected: str) -> None:
    assert worse(counts(100, seconds=mine), counts(1000), terms()) == expected


def test_the_factor_counts_where_answers_take_long() -> None:
    slow, slower = counts(100, seconds=1.5), counts(100, seconds=2.5)
    others = counts(1000, seconds=1.0)
    assert worse(slow, others, terms()) == ""
    assert "took longer than" in worse(slower, others, terms())
    assert worse(slower, others, terms(latency_factor=0.0)) == ""
    assert worse(slower, others, terms(latency_floor=2.0)) == ""


def test_a_few_slow_answers_are_what_the_others_have_as_well() -> None:
    mine, others = counts(92), counts(1000)
    mine.add(counts(8, seconds=5.0))
    assert worse(mine, others, terms()) == ""  # nine of ten are quick
    mine.add(counts(8, seconds=5.0))
    assert worse(mine, others, terms()) != ""
    others.add(counts(170, seconds=5.0))
    assert worse(mine, others, terms()) == ""


def test_who_left_after_a_long_time_waited_as_long() -> None:
    assert worse(counts(0, left=(2.0,) * 60), counts(1000), terms()).startswith("60 of 60 answers took longer")
    assert worse(counts(0, left=(0.01,) * 60), counts(1000), terms()) == ""  # nobody knows
    assert worse(counts(0, left=(2.0,) * 60), counts(0, left=(2.0,) * 1000), terms()) == ""


# -- plain data


@given(st.floats(0, 1000, allow_nan=False))
def test_a_time_is_in_its_bin(seconds: float) -> None:
    at = bin_of(seconds)
    assert edge(at) <= seconds * (1 + 1e-9)
    assert seconds <= edge(at + 1) * (1 + 1e-9) or at == 256
    assert at >= 0


def test_counts_pass_from_process_to_process() -> None:
    made = counts(10, 3, left=(1.0, 2.0))
    assert Counts.told(made.plain()).plain() == made.plain()
    twice = Counts()
    twice.add(made)
    twice.add(made)
    assert (twice.requests, twice.errors, sum(twice.times.values()), sum(twice.left.values())) == (20, 6, 14, 4)


# -- the window


def test_a_window_moves_on_and_is_looked_at_once_a_second() -> None:
    comparison = Comparison(terms(window=60.0))
    comparison.see(True, counts(50, 50), 0.0)
    assert comparison.look(0.1) == ""  # nothing to compare with
    comparison.see(False, counts(1000), 0.5)
    assert comparison.look(1.0) == ""  # there was a look just now
    assert comparison.look(1.1).startswith("50 of 50")
    assert comparison.look(59.0).startswith("50 of 50")
    assert comparison.look(60.0) == ""  # that was long ago
    comparison.see(True, counts(50, 50), 70.0)
    comparison.see(False, counts(1000), 70.0)
    comparison.clear()
    assert comparison.look(71.0) == ""


def test_both_sides_are_of_the_same_time() -> None:
    """A bad minute of both, of which one has seen less by now, is no reason."""
    comparison = Comparison(terms(window=60.0))
    for second in range(0, 120, 5):
        bad = second >= 90
        comparison.see(True, counts(20, 10 if bad else 0), float(second))
        comparison.see(False, counts(400, 200 if bad else 0), float(second))
        assert comparison.look(float(second)) == ""


@pytest.mark.unwatched
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3])
def test_equals_are_hardly_ever_told_apart(rate: float) -> None:
    """
    A thousand releases, each watched for sixty looks.  By L{ALPHA} there is a false alarm in one of 1,600 of such
    tests; that it is none here, and that a bound a million times as generous is not passed more often than it says, is
    what is held.
    """
    alarms, near = 0, 0
    for seed in range(DICE):
        dice = Random(seed)
        comparison = Comparison(terms(window=60.0))
        whole, others = Counts(), Counts()
        for second in range(60):
            mine, theirs = Counts(), Counts()
            mine.requests, theirs.requests = 4, 20
            mine.errors, theirs.errors = drawn(dice, 4, rate), drawn(dice, 20, rate)
            comparison.see(True, mine, float(second))
            comparison.see(False, theirs, float(second))
            alarms += bool(comparison.look(float(second)))
            whole.add(mine)
            others.add(theirs)
        near += chance(whole.errors, whole.requests, others.errors, others.requests) < ALPHA * 1_000_000
    assert alarms == 0
    assert near < DICE * 0.01 * 2


def drawn(dice: Random, number: int, rate: float) -> int:
    """How many of them fail."""
    return sum([dice.random() < rate for _ in range(number)]) if rate else 0


def test_equals_of_any_shape_of_latency_are_not_told_apart() -> None:
    """Two kinds of answers, of which the slow ones are about as many as nine of ten leave: the worst that there is."""
    for seed in range(DICE):
        dice = Random(seed)
        mine, theirs = Counts(), Counts()
        for side, requests in ((mine, 100), (theirs, 300)):
            for _ in range(requests):
                side.well(1.0 if dice.random() < 0.1 else 0.01)
        assert worse(mine, theirs, terms()) == ""


@pytest.mark.parametrize(("rate", "seconds"), [(1.0, 13), (0.5, 13), (0.2, 13), (0.1, 20)])
def test_who_is_worse_is_found_in_time(rate: float, seconds: int) -> None:
    """At four requests a second, beside 76 of which one in a thousand fails: half of the time by then, and always."""
    found = []
    for seed in range(50):
        dice = Random(seed)
        comparison = Comparison(terms(window=60.0))
        for second in range(1, 181):
            comparison.see(True, counts(4, drawn(dice, 4, rate)), float(second))
            comparison.see(False, counts(76, drawn(dice, 76, 0.001)), float(second))
            if comparison.look(float(second)):
                found.append(second)
                break
    assert len(found) == 50
    assert sorted(found)[25] <= seconds
