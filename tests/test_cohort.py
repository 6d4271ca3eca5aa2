"""protogate.cohort: one stable, even, nested order of keys."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.cohort import fraction, position


@pytest.mark.parametrize(
    ("key", "place"),
    [("", 86.66), ("192.0.2.1", 27.783), ("user-1", 44.523), ("上海", 93.165)],
)
def test_places_never_change(key: str, place: float) -> None:
    """As `printf KEY | b2sum -l 48` gives them."""
    assert position(key) == pytest.approx(place, abs=0.01)


def test_another_process_gives_the_same_place() -> None:
    code = "from protogate.cohort import position; print(repr(position('user-42')))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": "7"}
    )
    assert float(printed.stdout) == position("user-42")


@given(st.text())
def test_every_key_has_a_place(key: str) -> None:
    assert 0 <= position(key) < 100
    assert position(key) == fraction(key) * 100


def test_a_lone_surrogate_is_a_key_as_any_other() -> None:
    assert position("\ud800") != position("\udfff")


@pytest.mark.parametrize("shape", ["{}", "10.0.{}", "user-{:08}", "{:x}@example.test"])
def test_places_are_even(shape: str) -> None:
    """Chi-square over 100 buckets; 99 degrees of freedom, 148.2 is the 99.9 % quantile."""
    count = 20_000
    buckets = [0] * 100
    for number in range(count):
        buckets[int(position(shape.format(number)))] += 1
    expected = count / 100
    assert sum((seen - expected) ** 2 / expected for seen in buckets) < 148.2


def test_a_larger_ratio_keeps_everybody_who_was_gray() -> None:
    keys = [f"user-{number}" for number in range(2000)]
    cohorts = [{key for key in keys if position(key) < ratio} for ratio in (0, 5, 10, 50, 100)]
    assert all(smaller < larger for smaller, larger in pairwise(cohorts))
    assert cohorts[0] == set()
    assert cohorts[-1] == set(keys)
