"""What is asked on top never gets beyond its share, whatever is done in whatever order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.upstream.budget import WINDOW, Budget


def test_little_traffic_has_the_floor_to_begin_with() -> None:
    budget = Budget(0.2, 10.0, 0, 100.0)
    assert sum(budget.take(0, 100.0) for _ in range(1000)) == 100
    assert sum(budget.take(0, 101.0) for _ in range(1000)) == 10


def test_the_share_is_of_the_requests_since() -> None:
    budget = Budget(0.2, 0.0, 50, 100.0)
    assert not budget.take(50, 100.0)
    assert sum(budget.take(1050, 100.5) for _ in range(1000)) == 200


def test_what_nobody_takes_is_kept_for_a_while_only() -> None:
    budget = Budget(0.1, 0.0, 0, 0.0)
    asked = 0
    for second in range(1, 101):
        asked += 100
        budget.left(asked, float(second))
    assert 60 <= budget.left(asked, 100.0) <= 100  # of the last ten seconds, not of a hundred
    assert budget.left(asked, 100.0 + WINDOW) == 0.0
    assert Budget(0.1, 0.0, 0, 0.0).left(1000, 100.0) == 10.0


@settings(max_examples=100)
@given(
    share=st.floats(0, 1),
    floor=st.floats(0, 50),
    steps=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30), st.integers(0, 40)), max_size=40),
)
def test_no_more_is_taken_than_the_share_and_the_floor(
    share: float, floor: float, steps: list[tuple[int, float, int]]
) -> None:
    budget = Budget(share, floor, 0, 0.0)
    asked, now, taken = 0, 0.0, 0
    for requests, passed, wanted in steps:
        asked, now = asked + requests, now + passed
        taken += sum(budget.take(asked, now) for _ in range(wanted))
        assert taken <= asked * share + (now + WINDOW) * floor + 1e-6
