"""A queue that has no end: the newest is served first, and nobody waits for what he will not get."""

from __future__ import annotations

import pytest
from fake_upstream import FakeConnection, FakeConnector, Outcome, Time, ask
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.config.model import PoolSettings, Seconds
from protogate.errors import GATEWAY, Abort, Phase
from protogate.upstream.pool import Pool

SPAN = 0.5
TURN = 0.05
"""A turn of the wheel: nothing is done sooner."""


class Queue:
    """A pool with one connection, which is busy."""

    def __init__(self, span: float = SPAN, limit: float = 5.0) -> None:
        self.time = Time(queue=limit)
        self._connector = FakeConnector()
        self.pool = Pool(self._connector, self.time.context, self.settings(span), "up")
        self.busy = Outcome(self.pool.handle(ask()))
        self.connection: FakeConnection = self._connector.attempts[0].up()

    @staticmethod
    def settings(span: float) -> PoolSettings:
        return PoolSettings(max_per_endpoint=1, standing=Seconds(span), idle=Seconds(0))

    def ask(self) -> Outcome:
        return Outcome(self.pool.handle(ask()))

    def served(self) -> None:
        """Whoever has the connection is answered; it takes the next one."""
        self.connection.answer()

    @property
    def stood(self) -> int:
        return self.time.counted.count("queue_standing")


def test_a_burst_that_is_over_in_time_is_served_in_order() -> None:
    queue = Queue()
    first, second = queue.ask(), queue.ask()
    queue.time.pass_by(SPAN - TURN)
    queue.served()
    queue.served()
    assert (first.status, second.open) == (200, True)
    queue.time.pass_by(SPAN)
    third = queue.ask()
    queue.time.pass_by(SPAN - TURN)
    queue.served()
    queue.served()
    assert (second.status, third.status, queue.stood) == (200, 200, 0)


def test_once_it_stands_the_newest_is_next_and_the_others_are_told_soon() -> None:
    queue = Queue()
    old = [queue.ask() for _ in range(3)]
    queue.time.pass_by(SPAN + 2 * TURN)
    assert queue.stood == 1
    newest = queue.ask()
    queue.served()
    queue.served()
    assert newest.status == 200
    assert all(outcome.open for outcome in old)
    queue.time.pass_by(SPAN + TURN)
    assert [outcome.open for outcome in old[:2]] == [False, False]
    reason = old[0].reason
    assert isinstance(reason, Abort)
    assert (reason.who, reason.status, reason.phase) == (GATEWAY, 503, Phase.QUEUE)
    assert "0.5 s" in reason.reason
    assert queue.time.counted.count("queue_timeout") == 2
    queue.served()
    assert old[2].status == 200, "it was the newest of those that were left"


def test_it_ends_when_nobody_waits() -> None:
    queue = Queue()
    queue.ask()
    queue.time.pass_by(SPAN + 2 * TURN)
    queue.served()
    queue.served()
    held = queue.ask()
    first, second = queue.ask(), queue.ask()
    queue.time.pass_by(SPAN / 2)
    queue.served()
    assert (held.status, queue.stood) == (200, 1)
    queue.served()
    assert first.status == 200, "in order again"
    queue.served()
    assert second.status == 200
    assert not queue.pool._waiting.clock.active


@pytest.mark.parametrize("limit", [0.0, 0.2])
def test_it_never_makes_anybody_wait_longer_than_the_clock_does(limit: float) -> None:
    queue = Queue(limit=limit)
    waiting = queue.ask()
    queue.time.pass_by(0.3)
    assert waiting.open is (limit == 0.0)
    queue.time.pass_by(2 * SPAN)
    assert not waiting.open
    later = queue.ask()
    queue.time.pass_by(2 * SPAN + 2 * TURN)
    assert not later.open


def test_it_is_off_by_default_and_a_reload_may_say_so() -> None:
    assert PoolSettings().standing == 0
    queue = Queue()
    first = queue.ask()
    queue.time.pass_by(SPAN + 2 * TURN)
    assert queue.stood == 1
    queue.pool.settings = queue.settings(0)
    second = queue.ask()
    queue.time.pass_by(4)
    assert not first.open, "it was told to wait for a span"
    assert second.open
    queue.served()
    queue.served()
    assert second.status == 200


def test_a_reload_may_switch_it_on_while_somebody_waits() -> None:
    queue = Queue(span=0.0, limit=0.0)
    first = queue.ask()
    queue.time.pass_by(1)
    queue.pool.settings = queue.settings(SPAN)
    second = queue.ask()
    queue.time.pass_by(3 * SPAN)
    assert [first.open, second.open] == [False, False]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["ask", "serve", "leave", "wait", "wait"]), max_size=60))
def test_everybody_is_told_once_and_nobody_waits_longer_than_two_spans(steps: list[str]) -> None:
    queue = Queue()
    asked: list[tuple[float, Outcome]] = []
    for step in steps:
        now = queue.time.wheel.now()
        if step == "ask":
            asked.append((now, queue.ask()))
        elif step == "serve" and queue.connection.asked:
            queue.served()
        elif step == "leave" and asked and asked[-1][1].open and len(queue.connection.asked) == 1:
            waiting = list(queue.pool._waiting.usual)
            if waiting:
                waiting[-1].cancel()
        elif step == "wait":
            queue.time.pass_by(0.15)
        waits = [gate.at for gate in queue.pool._waiting.usual]
        assert waits == sorted(waits), "the clock looks at the first only"
        if queue.pool._waiting.standing.on:
            assert waits
            assert all(at <= queue.time.wheel.now() + SPAN for at in waits)
        assert bool(waits) is queue.pool._waiting.clock.active
