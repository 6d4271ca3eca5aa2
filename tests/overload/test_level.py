"""How near to its end something is: marks, and a number that does not jump."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.overload.level import LEAST, Level


def settled(value: float) -> float:
    level = Level(50.0, 250.0)
    for _ in range(200):
        level.look(value)
    return level.level


@pytest.mark.parametrize(("value", "wanted"), [(0, 0), (50, 0), (100, 0.25), (150, 0.5), (250, 1), (10_000, 1)])
def test_it_is_in_proportion_between_its_marks(value: float, wanted: float) -> None:
    assert settled(value) == pytest.approx(wanted, abs=1e-6)


def test_one_look_is_no_trouble_and_several_are() -> None:
    level = Level(50.0, 250.0)
    assert level.look(1000.0) == 0.15
    assert level.over
    for _ in range(10):
        level.look(1000.0)
    assert level.level > 0.8


def test_it_falls_more_slowly_than_it_rises_and_ends_at_nothing() -> None:
    level = Level(50.0, 250.0)
    looks = 0
    while level.level < 0.9:
        level.look(300.0)
        looks += 1
    falls = 0
    while level.level > 0.1:
        level.look(0.0)
        falls += 1
    assert falls > 2 * looks
    assert level.under
    for _ in range(120):
        level.look(0.0)
    assert level.level == 0.0


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_it_is_always_from_0_to_1_and_never_jumps(values: list[float]) -> None:
    level, before = Level(85.0, 95.0), 0.0
    for value in values:
        now = level.look(value)
        assert 0.0 <= now <= 1.0
        assert now == 0.0 or now >= LEAST or value > 85.0
        assert abs(now - before) <= 0.15 + 1e-9
        before = now
