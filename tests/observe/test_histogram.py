from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.observe.histogram import BOUNDS, Histogram
from protogate.observe.snapshot import merge


def filled(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.observe(each)
    return histogram


def test_bounds_are_nine_to_a_decade_from_ten_microseconds_to_a_hundred_seconds() -> None:
    assert (BOUNDS[0], BOUNDS[-1], len(BOUNDS)) == (1e-5, 100.0, 64)
    assert {0.0001, 0.001, 0.005, 0.01, 0.25 * 4, 10.0} <= set(BOUNDS)
    assert list(BOUNDS) == sorted(BOUNDS)
    assert max(above / below for below, above in pairwise(BOUNDS)) == pytest.approx(2.0)


@pytest.mark.parametrize("at", range(len(BOUNDS)))
def test_a_bound_belongs_to_its_bin_and_what_is_above_it_to_the_next(at: int) -> None:
    bound = BOUNDS[at]
    assert filled(bound).bins.index(1) == at
    assert filled(math.nextafter(bound, math.inf)).bins.index(1) == at + 1


def test_what_is_below_and_above_all_bounds_is_counted() -> None:
    histogram = filled(0.0, 1e9)
    assert (histogram.bins[0], histogram.bins[-1], sum(histogram.bins)) == (1, 1, 2)


@given(st.lists(st.floats(0, 1000)), st.lists(st.floats(0, 1000)))
def test_histograms_of_two_processes_add_up_to_that_of_one(some: list[float], others: list[float]) -> None:
    parts = [{"counts": {}, "gauges": {}, "histograms": {"total": filled(*each).snapshot()}} for each in (some, others)]
    whole, one = merge(parts)["histograms"]["total"], filled(*some, *others).snapshot()  # type: ignore[arg-type]
    assert whole["bins"] == one["bins"]
    assert whole["sum"] == pytest.approx(one["sum"])


def test_a_snapshot_is_short_and_not_live() -> None:
    histogram = filled(1e-5, 3e-5)
    taken = histogram.snapshot()
    histogram.observe(1e-5)
    assert taken["bins"] == [1, 0, 1]
    assert taken["sum"] == pytest.approx(4e-5)
    assert Histogram().snapshot() == {"bins": [], "sum": 0.0}
