"""The coarse clock: when deadlines fire, and that they do not when they were cleared or put forward."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from protogate.wheel import RESOLUTION, Wheel


class Bench:
    """A wheel that notes when its timers fire."""

    def __init__(self, start=0.0, resolution=RESOLUTION):
        self.clock = Clock()
        self.clock.advance(start)
        self.wheel = Wheel(self.clock, resolution)
        self.fired = []

    def timer(self):
        return self.wheel.timer(lambda: self.fired.append(self.clock.seconds()))

    def advance(self, seconds, step=0.01):
        for _ in range(round(seconds / step)):
            self.clock.advance(step)


@pytest.mark.parametrize("start", [0.0, 0.049, 1234567.891])
@pytest.mark.parametrize("delay", [0.001, 0.05, 0.1, 1.0, 3.21])
def test_a_timer_fires_at_its_deadline_or_one_resolution_later(start, delay):
    bench = Bench(start)
    bench.timer().set(delay)
    bench.advance(delay + 1)
    assert len(bench.fired) == 1
    assert start + delay <= bench.fired[0] <= start + delay + RESOLUTION + 0.011


@pytest.mark.parametrize("delay", [0.0, -5.0])
@pytest.mark.parametrize("start", [0.0, 100.0])
def test_a_deadline_that_has_passed_fires_at_the_next_look(delay, start):
    bench = Bench(start)
    timer = bench.timer()
    timer.set(delay)
    assert timer.active
    assert bench.fired == []
    bench.advance(0.1)
    assert len(bench.fired) == 1
    assert not timer.active


def test_setting_again_replaces_the_deadline():
    bench = Bench()
    timer = bench.timer()
    timer.set(1)
    for _ in range(10):
        bench.advance(0.5)
        timer.set(1)
    assert bench.fired == []
    bench.advance(1.1)
    assert len(bench.fired) == 1
    timer.set(100)
    timer.set(1)
    bench.advance(1.2)
    assert len(bench.fired) == 2


def test_clear_and_close():
    bench = Bench()
    one, other = bench.timer(), bench.timer()
    one.set(1)
    other.set(1)
    one.clear()
    other.close()
    other.close()
    assert not one.active
    assert not other.active
    bench.advance(2)
    assert bench.fired == []
    one.set(1)
    other.set(1)
    bench.advance(2)
    assert len(bench.fired) == 2


def test_a_timer_that_has_ended_refers_to_nobody():
    bench = Bench()

    class Owner:
        def __init__(self):
            self.timer = bench.wheel.timer(self.late)

        def late(self):
            bench.fired.append(self)

    owner = Owner()
    owner.timer.set(1)
    owner.timer.end()
    owner.timer.end()
    bench.advance(2)
    owner.timer.set(1)
    bench.advance(2)
    assert bench.fired == []
    seen = weakref.ref(owner)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del owner
        assert seen() is None
    finally:
        if enabled:
            gc.enable()


def test_no_reactor_timer_while_nothing_is_armed():
    bench = Bench()
    assert bench.clock.getDelayedCalls() == []
    timer = bench.timer()
    timer.set(1)
    assert len(bench.clock.getDelayedCalls()) == 1
    bench.advance(1.2)
    assert bench.clock.getDelayedCalls() == []
    timer.set(1)
    timer.close()
    bench.advance(0.1)
    assert bench.clock.getDelayedCalls() == []
    timer.set(1)
    timer.clear()
    bench.advance(1.2)
    assert bench.clock.getDelayedCalls() == []


def test_one_reactor_timer_serves_all():
    bench = Bench()
    for n in range(1000):
        bench.timer().set(n / 100)
    assert len(bench.clock.getDelayedCalls()) == 1
    bench.advance(11)
    assert len(bench.fired) == 1000


def test_a_long_sleep_fires_everything_once():
    bench = Bench()
    for n in range(100):
        bench.timer().set(n)
    bench.clock.advance(3600)
    assert len(bench.fired) == 100


@pytest.mark.parametrize("seconds", [0.04, 0.1, 0.3, 2.0])
def test_what_takes_long_within_a_turn_loses_no_deadline_of_others(seconds):
    clock, fired = Clock(), []
    wheel = Wheel(clock)

    def slow():
        clock.rightNow += seconds
        wheel.after(0.02, lambda: fired.append("soon"))
        wheel.after(5.0, lambda: fired.append("late"))

    wheel.after(1.0, slow)
    for number in range(30):
        wheel.after(1.0 + number * 0.05, lambda number=number: fired.append(number))
    clock.pump([0.05] * 200)
    assert [each for each in fired if isinstance(each, int)] == list(range(30))
    assert [each for each in fired if isinstance(each, str)] == ["soon", "late"]
    assert not clock.getDelayedCalls()


def test_a_timer_may_be_armed_again_by_its_own_function():
    bench = Bench()
    seen = []

    def again():
        seen.append(bench.clock.seconds())
        if len(seen) < 3:
            timer.set(1)

    timer = bench.wheel.after(1, again)
    bench.advance(5)
    assert len(seen) == 3


def test_timers_of_one_slot_may_clear_close_and_arm_each_other():
    bench = Bench()
    seen = []

    def fire(name, others):
        def function():
            seen.append(name)
            for other, verb in others:
                verb(timers[other])

        return function

    timers = {}
    for verb in (lambda timer: timer.clear(), lambda timer: timer.close(), lambda timer: timer.set(1)):
        seen.clear()
        for name, other in (("a", "b"), ("b", "a")):
            timers[name] = bench.wheel.timer(fire(name, [(other, verb)]))
        for timer in timers.values():
            timer.set(0.5)
        bench.advance(0.7)
        assert len(seen) == 1, "whoever came first took the other off, or put it forward"
        for timer in timers.values():
            timer.close()


def test_a_function_that_raises_harms_no_other(flush_errors):
    bench = Bench()
    bench.wheel.after(1, lambda: 1 / 0)
    bench.timer().set(1)
    bench.timer().set(2)
    bench.advance(3)
    assert len(bench.fired) == 2
    assert len(flush_errors(ZeroDivisionError)) == 1


def test_stop_forgets_everything():
    bench = Bench()
    timer = bench.timer()
    timer.set(1)
    bench.wheel.stop()
    assert not timer.active
    assert bench.clock.getDelayedCalls() == []
    bench.advance(2)
    assert bench.fired == []
    bench.wheel.stop()
    timer.set(1)
    bench.advance(2)
    assert len(bench.fired) == 1


def test_a_clock_of_its_own():
    clock, now = Clock(), [500.0]
    wheel, fired = Wheel(clock, now=lambda: now[0]), []
    wheel.after(10, lambda: fired.append(now[0]))
    for _ in range(300):
        clock.advance(0.05)
        now[0] += 0.05
    assert len(fired) == 1
    assert 510 <= fired[0] <= 510.11


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.sampled_from(["set", "set", "clear", "close"]), st.floats(0, 5)), max_size=20
    )
)
def test_it_does_what_a_list_of_deadlines_would(steps):
    bench = Bench()
    timer, due = bench.timer(), None
    for wait, verb, delay in steps:
        before = len(bench.fired)
        end = bench.clock.seconds() + wait
        while bench.clock.seconds() < end:
            bench.clock.advance(min(0.05, end - bench.clock.seconds()))
        fired = bench.fired[before:]
        if due is not None and fired:
            assert len(fired) == 1
            assert due - 1e-9 <= fired[0] <= due + 2 * 0.05 + 1e-9
            due = None
        elif due is not None:
            assert bench.clock.seconds() <= due + 2 * 0.05 + 1e-9
        else:
            assert fired == []
        if verb == "set":
            timer.set(delay)
            due = bench.clock.seconds() + delay
        else:
            getattr(timer, verb)()
            due = None
        assert timer.active is (due is not None)


def test_the_end_of_a_turn_is_one_call_however_many_ask_for_it():
    clock, seen = Clock(), []
    wheel = Wheel(clock)
    wheel.soon(lambda: seen.append(1))
    wheel.soon(lambda: wheel.soon(lambda: seen.append(3)))
    wheel.soon(lambda: seen.append(2))
    assert len(clock.getDelayedCalls()) == 1
    assert seen == []
    clock.advance(0)
    assert seen == [1, 2, 3]
    assert clock.getDelayedCalls() == []


def test_a_failure_at_the_end_of_a_turn_harms_no_other(flush_errors):
    clock, seen = Clock(), []
    wheel = Wheel(clock)
    wheel.soon(lambda: 1 / 0)
    wheel.soon(lambda: seen.append(1))
    clock.advance(0)
    assert seen == [1]
    assert len(flush_errors(ZeroDivisionError)) == 1


def test_a_stopped_wheel_has_no_end_of_turn():
    clock, seen = Clock(), []
    wheel = Wheel(clock)
    wheel.soon(lambda: seen.append(1))
    wheel.stop()
    assert clock.getDelayedCalls() == []
    clock.advance(1)
    assert seen == []
