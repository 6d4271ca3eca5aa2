"""Buckets: never more than they hold, never less than they should."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.governance.gcra import Buckets, Rate
from protogate.governance.tables import SMALL

NOW = 1000.0


@pytest.mark.parametrize(
    ("text", "count", "period", "each"),
    [("100/s", 100, 1, 100.0), ("20/10s", 20, 10, 2.0), ("60/m", 60, 60, 1.0), ("1/d", 1, 86400, 1 / 86400)],
)
def test_a_rate_is_a_number_and_a_time(text, count, period, each):
    made = Rate.of(text)
    assert (made.count, made.period, made.each) == (count, period, each)


@pytest.mark.parametrize(
    "text", ["", "100", "100/", "/s", "0/s", "1.5/s", "100/S", "100 /s", "-1/s", "1/0s", "1/y", "١/s"]
)
def test_what_is_no_rate(text):
    with pytest.raises(ConfigError, match="expected a rate such as 100/s"):
        Rate.of(text)


def test_a_burst_at_once_then_by_the_rate():
    buckets = Buckets(10.0, 5, 100)
    assert [buckets.take("a", 1, NOW) for _ in range(5)] == pytest.approx([4, 3, 2, 1, 0])
    assert buckets.take("a", 1, NOW) == pytest.approx(-1)
    assert buckets.take("a", 1, NOW + 0.09) == pytest.approx(-0.1)
    assert buckets.take("a", 1, NOW + 0.1) == pytest.approx(0)
    assert buckets.take("a", 1, NOW + 0.15) < 0, "a refusal costs nothing, and gains nothing"
    assert buckets.take("a", 1, NOW + 0.2) == pytest.approx(0)
    assert buckets.take("b", 1, NOW + 0.2) == pytest.approx(4), "another key is another bucket"
    assert buckets.take("a", 1, NOW + 100) == pytest.approx(4), "it never holds more than the burst"


def test_what_costs_more_than_the_burst_costs_all_of_it():
    buckets = Buckets(10.0, 5, 100)
    assert buckets.take("a", 50, NOW) == pytest.approx(0)
    assert buckets.take("a", 50, NOW + 0.4) < 0
    assert buckets.take("a", 50, NOW + 0.5) == pytest.approx(0)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 1000),
    st.integers(1, 3600),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 60)), max_size=60),
)
def test_it_is_the_model_of_a_bucket(count, period, burst, steps):
    """The model is the naive one, in exact fractions: what is there grows by the rate, up to the burst."""
    rate = Rate(count, period)
    buckets = Buckets(rate.each, burst, 100)
    held, at = Fraction(burst), Fraction(0)
    now = Fraction(0)
    for wait, cost in steps:
        now += Fraction(wait, 10**9) * 5 * period / count
        held, at = min(held + (now - at) * Fraction(count, period), Fraction(burst)), now
        left = buckets.take("a", cost, float(now))
        rest = held - min(cost, burst)
        assert float(rest) == pytest.approx(left, abs=2e-4)
        if left >= 0:
            held = max(rest, Fraction(0))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 100), st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_no_window_lets_more_through_than_burst_and_rate(each, burst, waits):
    buckets = Buckets(float(each), burst, 100)
    now, passed = NOW, []
    for wait in waits:
        now += wait
        if buckets.take("a", 1, now) >= 0:
            passed.append(now)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + each * (passed[last] - passed[first]) + 0.02


def test_full_buckets_are_forgotten():
    buckets = Buckets(10.0, 5, 1000)
    for n in range(1000):
        buckets.take(f"k{n}", 1, NOW)
    assert len(buckets) == 1000
    for n in range(500):
        buckets.take(f"n{n}", 1, NOW + 1)
    assert len(buckets) <= 501
    assert buckets.crowded == 0


def test_beyond_the_most_keys_those_who_are_new_share_one_bucket():
    buckets = Buckets(1.0, 2, 3)
    for key in "abc":
        assert buckets.take(key, 2, NOW) >= 0
    assert [buckets.take(key, 1, NOW) >= 0 for key in "defg"] == [True, True, False, False]
    assert buckets.crowded == 4
    assert len(buckets) == 4
    assert [buckets.take(key, 1, NOW) >= 0 for key in "abc"] == [False] * 3, "nobody was forgotten"
    assert buckets.take("a", 1, NOW + 1) >= 0, "who is known keeps a bucket of his own"
    assert buckets.take("d", 2, NOW + 2) >= 0


def test_whoever_changes_keys_all_the_time_stays_within_bounds():
    buckets = Buckets(1.0, 10, 1000)
    passed = sum(buckets.take(f"k{n}", 10, NOW) >= 0 for n in range(100_000))
    assert passed == 1001
    assert len(buckets) == 1001


@pytest.mark.unwatched
def test_a_large_table_never_grows_all_at_once():
    """Its parts are small, and nearly equal; together they have room for all."""
    buckets = Buckets(1.0, 10, 400_000)
    passed = sum(buckets.take(f"192.0.{n >> 8}.{n & 255}", 10, NOW) >= 0 for n in range(420_000))
    assert 390_000 <= passed <= 400_001
    sizes = [len(table) for table in buckets._full.small]
    assert len(sizes) == 8
    assert max(sizes) <= SMALL + 1
    assert buckets.crowded == 420_000 - (passed - 1)


def test_another_rate_keeps_what_was_used():
    buckets = Buckets(10.0, 100, 10)
    buckets.take("a", 80, NOW)
    buckets.change(1.0, 100, 10, NOW + 2)  # 60 are used by now
    assert buckets.take("a", 40, NOW + 2) == pytest.approx(0)
    assert buckets.take("a", 1, NOW + 2.9) < 0
    assert buckets.take("a", 1, NOW + 3) == pytest.approx(0)


def test_a_smaller_burst_is_used_up_at_most():
    buckets = Buckets(1.0, 1000, 10)
    buckets.take("a", 1000, NOW)
    buckets.change(1.0, 10, 10, NOW)
    assert buckets.take("a", 1, NOW) == pytest.approx(-1)
    assert buckets.take("a", 1, NOW + 1) == pytest.approx(0), "it does not take a thousand seconds"


def test_a_larger_burst_gives_what_it_has_more():
    buckets = Buckets(1.0, 10, 10)
    buckets.take("a", 10, NOW)
    buckets.change(1.0, 30, 10, NOW)
    assert buckets.take("a", 20, NOW) == pytest.approx(0)


def test_a_bucket_can_be_filled_by_who_knows_what_is_left():
    buckets = Buckets(1.0, 10, 2)
    buckets.fill("a", 3.0, NOW)
    buckets.fill("a", 9.0, NOW)
    buckets.fill("b", 70.0, NOW)
    buckets.fill("c", -5.0, NOW)
    assert buckets.take("a", 3, NOW) == pytest.approx(0)
    assert buckets.take("b", 10, NOW) == pytest.approx(0)
    assert buckets.take("c", 1, NOW) < 0


def test_large_numbers_stay_exact_enough():
    """A month at a hundred thousand a second."""
    buckets = Buckets(100_000.0, 1, 10)
    now = 86400.0 * 30
    least = inf
    for n in range(1000):
        least = min(least, buckets.take("a", 1, now + n / 100_000))
    assert least >= 0
