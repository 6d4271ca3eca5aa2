"""protogate.cohort: one stable, even, nested order of keys."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.cohort import fraction, place, position
from protogate.message import Peer


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


@pytest.mark.unwatched
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


class Asking:
    """As much of an exchange as has a place."""

    def __init__(self, ip: str = "192.0.2.1", id_: str = "0af7651916cd43dd8448eb211c80319c") -> None:
        self.source, self.id = Peer(ip, 1), id_


@pytest.mark.parametrize(
    ("key", "ip", "by"),
    [
        ("alice", "192.0.2.1", "alice"),
        ("", "192.0.2.1", "192.0.2.1"),
        ("", "", "0af7651916cd43dd8448eb211c80319c"),
    ],
)
def test_who_has_no_key_goes_by_the_address_and_then_by_the_request(key: str, ip: str, by: str) -> None:
    exchange: Any = Asking(ip)
    assert place(exchange, key) == position(by)


def test_the_share_of_a_hundred_thousand_users_is_the_ratio() -> None:
    """Give or take four standard deviations of a draw; it is the same each time."""
    places = [position(f"user-{number}") for number in range(100_000)]
    for ratio in (0.1, 1.0, 5.0, 10.0, 50.0, 99.0):
        share = ratio / 100
        got = sum(each < ratio for each in places)
        assert abs(got - 100_000 * share) < 4 * (100_000 * share * (1 - share)) ** 0.5


@given(st.text(), st.floats(0, 100), st.floats(0, 100))
def test_who_is_gray_stays_so_when_the_ratio_grows(key: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert (position(key) < small) <= (position(key) < large)
    assert not position(key) < 0
    assert position(key) < 100
