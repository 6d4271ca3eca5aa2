"""What a pool says of how much it has to do: whatever happened, what it was given and is not over."""

from __future__ import annotations

from random import Random

import pytest
from fake_upstream import FakeConnection, Outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pool import Bench


class Given:
    """A pool that was given things."""

    def __init__(self, room: int, most: int, reuse: int = 0) -> None:
        self.bench, self.most = Bench(most=room, reuse=reuse), most
        self.outcomes: list[Outcome] = []
        self.connections: list[FakeConnection] = []

    def ask(self, fresh: bool = False) -> None:
        self.outcomes.append(self.bench.ask(fresh))

    def up(self) -> None:
        for attempt in self.bench.attempts:
            if not attempt.deferred.called and not attempt.cancelled:
                self.connections.append(attempt.up(self.most))
                return

    def down(self) -> None:
        for attempt in self.bench.attempts:
            if not attempt.deferred.called and not attempt.cancelled:
                attempt.down()
                return

    @property
    def open(self) -> int:
        return sum(1 for outcome in self.outcomes if outcome.open)

    @property
    def load(self) -> int:
        return self.bench.pool.load


@settings(max_examples=60)
@given(
    st.sampled_from([1, 3]), st.integers(1, 4), st.sampled_from([0, 2]), st.lists(st.integers(0, 9), max_size=60),
    st.integers(),
)  # fmt: skip
def test_it_is_what_is_not_over(most: int, room: int, reuse: int, steps: list[int], seed: int) -> None:
    one, random = Given(room, most, reuse), Random(seed)
    for step in steps:
        busy = [each for each in one.connections if each.asked]
        waiting = [each for each in one.outcomes if each.open]
        if step < 4:
            one.ask(fresh=step == 0)
        elif step == 4:
            one.up()
        elif step == 5:
            one.down()
        elif step < 8 and busy:
            random.choice(busy).answer()
        elif step == 8 and busy:
            random.choice(busy).lose()
        elif step == 9 and waiting:
            random.choice(waiting).cancel()
        assert one.load == one.open


@pytest.mark.parametrize("most", [1, 3])
def test_it_is_full_when_one_more_would_wait_for_others(most: int) -> None:
    one = Given(2, most)
    assert not one.bench.pool.full
    one.ask()
    assert not one.bench.pool.full, "there may be another connection"
    one.up()
    for _ in range(2 * most - 1):
        assert not one.bench.pool.full
        one.ask()
        one.up()
    assert one.bench.pool.full
    assert one.load == 2 * most
    one.connections[0].answer()
    assert not one.bench.pool.full
