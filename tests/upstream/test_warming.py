"""The slow start: what endpoints get that are new, or well again."""

from __future__ import annotations

import pytest
from polls import Poll, endpoint, endpoints, holding

from protogate.upstream.warming import FLOOR


def share(one: Poll, name: str, times: int = 2000) -> float:
    """What an endpoint gets."""
    return one.counts(times).get(name, 0) / times


def test_those_that_an_upstream_begins_with_are_warm() -> None:
    one = Poll(endpoints(100, 100), slow_start=30.0)
    assert share(one, "1") == share(one, "2") == 0.5
    assert one.time.idle


def test_found_endpoints_are_no_newer_than_the_upstream() -> None:
    one = Poll([], slow_start=30.0)
    one.arrange(endpoints(100, 100, 100, 100))
    assert share(one, "1") == 0.25
    assert one.time.idle


@pytest.mark.parametrize("balance", ["weighted", "leastRequest"])
def test_one_that_comes_later_gets_its_share_bit_by_bit(balance: str) -> None:
    one = Poll(endpoints(100, 100), slow_start=30.0, balance=balance)
    one.arrange([*one.among, endpoint(3)])
    near = 0.005 if balance == "weighted" else 0.03
    for passed, part in ((0.0, FLOOR), (9.1, 0.35), (6.0, 0.55), (7.5, 0.75), (7.6, 1.0)):
        one.time.pass_by(passed)
        assert share(one, "3") == pytest.approx(part / (2 + part), abs=near)
    assert one.time.idle, "nothing is left to wait for"


def test_so_does_one_that_is_well_again() -> None:
    one = Poll(endpoints(100, 100), slow_start=10.0)
    holding(one.among[0], 0.0)
    one.arrange()
    assert share(one, "1") == 0.0
    one.time.pass_by(20)
    holding(one.among[0], 1.0)
    one.arrange()
    assert share(one, "1") == pytest.approx(FLOOR / (1 + FLOOR), abs=0.005)
    one.time.pass_by(10.1)
    assert share(one, "1") == 0.5


def test_the_strictest_decides() -> None:
    one = Poll(endpoints(100, 100), slow_start=10.0)
    holding(one.among[0], 0.0)
    one.arrange()
    holding(one.among[0], 0.5)
    one.arrange()
    assert share(one, "1") == pytest.approx(FLOOR / (1 + FLOOR), abs=0.005)
    one.time.pass_by(9)
    assert share(one, "1") == pytest.approx(0.5 / 1.5, abs=0.005)
    one.time.pass_by(2)
    assert share(one, "1") == pytest.approx(0.5 / 1.5, abs=0.005)


def test_one_that_is_held_in_part_is_not_new_when_it_is_held_no_more() -> None:
    one = Poll(endpoints(100, 100), slow_start=10.0)
    for part in (0.5, 1.0):
        holding(one.among[0], part)
        one.arrange()
        assert share(one, "1") == pytest.approx(part / (1 + part), abs=0.005)


def test_one_that_is_alone_gets_all_and_those_that_come_together_get_the_same() -> None:
    one = Poll(endpoints(100, 100, 100), slow_start=10.0)
    for each in one.among:
        holding(each, 0.0)
    one.arrange()
    holding(one.among[0], 1.0)
    one.arrange()
    assert share(one, "1") == 1.0
    one.time.pass_by(5.1)
    for each in one.among[1:]:
        holding(each, 1.0)
    one.arrange()
    for name in ("2", "3"):
        assert share(one, name) == pytest.approx(0.1 / 0.75, abs=0.005)


def test_a_change_in_between_does_not_begin_anew() -> None:
    one = Poll(endpoints(100, 100), slow_start=10.0)
    one.arrange([*one.among, endpoint(3)])
    one.time.pass_by(5.1)
    before = share(one, "3")
    one.arrange(one.among[1:])
    assert share(one, "3") == pytest.approx(before * (2 + 0.55) / 1.55, abs=0.01)
    one.time.pass_by(5.1)
    assert share(one, "3") == 0.5


def test_a_reload_may_set_another_time_or_none() -> None:
    one = Poll(endpoints(100, 100), slow_start=10.0)
    one.arrange([*one.among, endpoint(3)])
    one.time.pass_by(5.1)
    one.settle(slow_start=20.0)
    assert share(one, "3") == pytest.approx(0.3 / 2.3, abs=0.01)
    one.settle(slow_start=0.0)
    assert share(one, "3", 3000) == pytest.approx(1 / 3)
    one.time.pass_by(1)
    assert one.time.idle
    one.settle(slow_start=20.0)
    assert share(one, "3", 3000) == pytest.approx(1 / 3), "all were there before"


def test_nothing_is_left_on_the_wheel_at_the_end() -> None:
    one = Poll(endpoints(100), slow_start=10.0)
    one.arrange([*one.among, endpoint(3)])
    before = one.time.idle
    one.election.stop()
    assert (before, one.time.idle) == (False, True)
    assert one.pick() is None
