"""How much an event loop has to do."""

from __future__ import annotations

import time

import pytest
from twisted.internet.task import Clock

from protogate.observe.load import EVERY, LATE, Load


class Loop:
    """A loop of which each look finds the thread to have been busy for so long, and itself to be so late."""

    def __init__(self):
        self.clock, self.used = Clock(), 0.0
        self.load = Load(self.clock, lambda: self.used)

    def looks(self, count, busy=0.0, late=0.0):
        for _ in range(count):
            self.used += busy * (EVERY + late)
            self.clock.advance(EVERY + late)
        return self.load()


def test_nobody_looks_before_somebody_asks():
    loop = Loop()
    loop.clock.advance(10)
    assert loop.clock.getDelayedCalls() == []
    assert loop.load() == 0.0
    assert len(loop.clock.getDelayedCalls()) == 1
    loop.load.stop()
    loop.load.stop()
    assert loop.clock.getDelayedCalls() == []


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.9])
def test_it_is_the_share_of_time_on_a_cpu(busy):
    loop = Loop()
    loop.load()
    assert loop.looks(40, busy) == pytest.approx(100 * busy, abs=1)


def test_or_how_late_it_is_where_that_is_more():
    loop = Loop()
    loop.load()
    assert loop.looks(40, 0.5, LATE) == pytest.approx(100, abs=1)
    assert loop.looks(40, 0.5, 2 * LATE) == pytest.approx(200, abs=1)
    assert loop.looks(40, 0.2) == pytest.approx(20, abs=1)


def test_one_long_call_is_no_load_and_a_second_of_it_is():
    loop = Loop()
    loop.load()
    assert loop.looks(1, 1.0) == 25.0
    assert loop.looks(3, 1.0) > 65
    assert loop.looks(8, 0.0) < 10


def test_it_is_real_time_that_is_measured():
    clock = Clock()
    load = Load(clock)
    load()
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    clock.advance(EVERY)
    assert 1.5 < load() < 25
