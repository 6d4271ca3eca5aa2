"""How late the loop is, as a level: where it rests, what is no load, and how it goes on after a reload."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.overload.lag import FOLLOW, LEAD, MOST, Lag


def fed(*lates: float, looks: int = 1, seconds: float = 0.1) -> Lag:
    lag = Lag(0.02, 0.1)
    for late in lates:
        for _ in range(looks):
            lag.look(late, seconds)
    return lag


@pytest.mark.parametrize(
    ("late", "wanted"), [(0.0, 0.0), (0.02, 0.0), (0.04, 0.25), (0.06, 0.5), (0.1, 1.0), (9.0, 1.0)]
)
def test_at_rest_it_is_in_proportion_between_its_marks(late: float, wanted: float) -> None:
    assert fed(late, looks=400).level == pytest.approx(wanted, abs=1e-3)


def test_one_long_call_is_no_load_and_two_are() -> None:
    lag = fed(*[5.0, 0.0, 0.0, 0.0, 0.01] * 20)
    assert lag.level == lag.value == 0.0
    assert fed(0.2, 0.01).level == 0.0
    assert fed(0.2, 0.01, 0.2).level > 0.1, "work comes in bursts"


def test_it_gives_way_at_once_when_the_loop_has_caught_up() -> None:
    lag = fed(0.26, looks=3)
    before = lag.level
    for _ in range(2):
        lag.look(0.0, 0.1)
    assert lag.level < before - 2 * LEAD
    for _ in range(200):
        lag.look(0.0, 0.1)
    assert lag.level == 0.0


def test_a_burst_alone_sheds_no_more_than_half() -> None:
    lag = fed(60.0, 60.0, seconds=0.0)
    assert lag.level == LEAD * MOST == 0.5


def test_time_counts_and_not_looks() -> None:
    often, seldom = fed(0.06, looks=40, seconds=0.05), fed(0.06, looks=10, seconds=0.2)
    assert often.level == pytest.approx(seldom.level, abs=FOLLOW * 0.1)


def test_it_goes_on_where_another_one_was() -> None:
    before, after = fed(0.2, looks=9), Lag(0.02, 0.1)
    after.succeed(before)
    assert (after.level, after.value) == (before.level, before.value)
    assert after.look(0.05, 0.1) == before.look(0.05, 0.1)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=40))
def test_it_is_always_from_0_to_1(looks: list[tuple[float, float]]) -> None:
    lag = Lag(0.02, 0.1)
    for late, seconds in looks:
        assert 0.0 <= lag.look(late, seconds) <= 1.0
