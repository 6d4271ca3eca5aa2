"""A circuit breaker: each transition of its table, what it grows by, and that it does not flap."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.config import model
from protogate.config.model import Seconds
from protogate.upstream.breaker import (
    RAMP,
    STATES,
    TABLE,
    TRANSITIONS,
    TRY,
    Breaker,
    Event,
    State,
    Terms,
    wrong,
)
from protogate.upstream.outcome import ERROR, FAILED, WELL, Outcome
from protogate.upstream.seen import one

TERMS = Terms(
    ratio=0.5,
    consecutive=0,
    latency=0.0,
    quantile=0.9,
    window=10.0,
    least=10,
    open=5.0,
    most=20.0,
    probes=3,
    ramp=4.0,
)


class Line:
    """A breaker and its time; trips where the terms are broken."""

    def __init__(self, terms: Terms = TERMS) -> None:
        self.now = 1000.0
        self.breaker = Breaker(terms)
        self.why: list[str] = []

    def see(self, *outcomes: Outcome, seconds: float = 0.01) -> State:
        for outcome in outcomes:
            why = self.breaker.observe(one(outcome, seconds), self.now)
            if why:
                self.why.append(why)
                self.breaker.trip(why, self.now)
        return self.breaker.state

    def wait(self, seconds: float) -> State:
        end = self.now + seconds
        while self.breaker.due <= end:
            self.now = self.breaker.due
            self.breaker.turn(self.now)
        self.now = end
        return self.breaker.state

    def open(self) -> None:
        assert self.see(*[FAILED] * 10) is State.OPEN

    def probing(self) -> None:
        self.open()
        assert self.wait(self.breaker.due - self.now) is State.PROBING


def test_the_table_is_whole() -> None:
    assert len(STATES) == len(State)
    assert list(TABLE) == list(State)
    reached = {State.CLOSED}
    for _ in State:
        reached |= {after for state in reached for after in TABLE[state].values()}
    assert reached == set(State)
    assert TRANSITIONS[State.PROBING] == (State.OPEN, State.RAMPING)
    assert {event for following in TABLE.values() for event in following} == set(Event)


def test_it_opens_when_enough_fail() -> None:
    line = Line()
    assert line.see(*[FAILED] * 9) is State.CLOSED, "fewer than say anything"
    assert line.breaker.share == 1.0
    assert line.see(ERROR) is State.OPEN
    assert line.breaker.share == 0.0
    assert line.why == ["10 of 10 failed within 10 s (1 answered 5xx, 9 gave no answer)"]


def test_it_stays_closed_below_the_ratio_and_as_what_fails_grows_old() -> None:
    line = Line()
    assert line.see(*[WELL] * 100, *[ERROR] * 90) is State.CLOSED
    line.wait(11.0)
    assert line.see(*[ERROR] * 9) is State.CLOSED
    line.wait(11.0)
    assert line.see(*[WELL] * 6, *[ERROR] * 5) is State.CLOSED
    assert line.see(ERROR) is State.OPEN


def test_it_opens_after_failures_in_a_row() -> None:
    line = Line(replace(TERMS, ratio=0.0, consecutive=3))
    assert line.see(ERROR, FAILED, WELL, ERROR, FAILED) is State.CLOSED
    assert line.see(ERROR) is State.OPEN
    assert line.why == ["3 failures in a row"]


def test_it_opens_when_answers_take_too_long() -> None:
    line = Line(replace(TERMS, ratio=0.0, latency=0.5))
    assert line.see(*[WELL] * 89) is State.CLOSED
    assert line.see(*[WELL] * 9, seconds=2.0) is State.CLOSED
    assert line.see(*[WELL] * 3, seconds=2.0) is State.OPEN
    assert line.why[0].startswith("0.9 of 99 answers took up to ")


def test_a_failure_is_no_quick_answer() -> None:
    line = Line(replace(TERMS, ratio=0.0, latency=0.5))
    line.see(*[FAILED] * 500)
    assert line.see(*[WELL] * 10, seconds=2.0) is State.OPEN


def test_while_it_is_open_nothing_counts() -> None:
    line = Line()
    line.open()
    assert line.see(*[WELL] * 50) is State.OPEN
    assert line.breaker.left(line.now) == 5.0
    assert line.wait(4.9) is State.OPEN
    assert line.wait(0.2) is State.PROBING
    assert line.breaker.share == TRY
    assert line.breaker.due == inf
    assert line.breaker.left(line.now) == 0.0


def test_probes_that_do_well_lead_to_a_ramp_and_it_closes() -> None:
    line = Line()
    line.probing()
    assert line.see(WELL, WELL) is State.PROBING
    assert line.see(WELL) is State.RAMPING
    shares = [line.breaker.share]
    for _ in range(3):
        assert line.wait(1.0) is State.RAMPING
        shares.append(line.breaker.share)
    assert tuple(shares) == RAMP
    assert line.wait(1.0) is State.CLOSED
    assert line.breaker.share == 1.0


@pytest.mark.parametrize("before", [(), (WELL,), (WELL, WELL)])
def test_one_probe_that_fails_opens_it(before: Any) -> None:
    line = Line()
    line.probing()
    line.see(*before)
    assert line.see(FAILED) is State.OPEN
    assert line.why[-1] == "a probe failed (1 gave no answer)"


def test_a_probe_that_takes_too_long_has_failed() -> None:
    line = Line(replace(TERMS, latency=0.5))
    line.probing()
    line.see(WELL)
    assert line.see(WELL, seconds=2.0) is State.OPEN
    assert line.why[-1] == "a probe took more than 0.5 s"


def test_it_opens_again_on_the_ramp() -> None:
    line = Line()
    line.probing()
    line.see(*[WELL] * 3)
    line.wait(1.0)
    assert line.see(WELL, ERROR) is State.RAMPING, "fewer than say anything"
    assert line.see(ERROR) is State.OPEN
    assert line.breaker.times == 2


def test_without_a_ramp_it_closes_after_the_probes() -> None:
    line = Line(replace(TERMS, ramp=0.0))
    line.probing()
    assert line.see(*[WELL] * 3) is State.CLOSED


def test_without_probes_the_ramp_begins_at_once() -> None:
    line = Line(replace(TERMS, probes=0))
    line.open()
    assert line.wait(5.0) is State.RAMPING
    line = Line(replace(TERMS, probes=0, ramp=0.0))
    line.open()
    assert line.wait(5.0) is State.CLOSED


def test_it_is_open_for_twice_as_long_each_time_up_to_a_bound() -> None:
    line = Line()
    line.open()
    lengths = []
    for _ in range(4):
        lengths.append(line.breaker.due - line.now)
        line.wait(lengths[-1])
        assert line.see(ERROR) is State.OPEN
    assert lengths == [5.0, 10.0, 20.0, 20.0]


def test_that_is_forgotten_after_it_was_closed_for_long_enough() -> None:
    line = Line()

    def mended() -> None:
        line.wait(line.breaker.due - line.now)
        line.see(*[WELL] * 3)
        assert line.wait(4.0) is State.CLOSED

    line.open()
    mended()
    line.wait(9.9)
    assert line.breaker.remembers(line.now)
    line.open()
    assert line.breaker.left(line.now) == pytest.approx(10.0)
    mended()
    line.wait(20.0)
    assert not line.breaker.remembers(line.now)
    line.open()
    assert line.breaker.left(line.now) == pytest.approx(5.0)


def test_many_openings_are_no_large_number() -> None:
    line = Line()
    line.breaker.times, line.breaker.since = 100_000, line.now
    line.breaker.trip("again", line.now)
    assert line.breaker.due == line.now + 20.0


def test_what_alternates_does_not_flap() -> None:
    """rubyist/circuitbreaker#31."""
    line = Line()
    opened, outcome = 0, WELL
    for _ in range(6000):  # ten minutes of ten requests a second
        line.wait(0.1)
        if line.breaker.share:
            before = line.breaker.state
            outcome = ERROR if outcome is WELL else WELL
            line.see(outcome)
            assert line.breaker.state is not State.CLOSED or before is State.CLOSED
            opened += line.breaker.state is State.OPEN
    assert opened <= 4 + 600 / 20.0
    line = Line(replace(TERMS, ratio=0.6))
    for _ in range(3000):
        line.wait(0.1)
        assert line.see(WELL, ERROR) is State.CLOSED


def test_what_is_nearly_bad_enough_does_not_close_it_nor_open_it() -> None:
    line = Line(replace(TERMS, probes=1))
    line.probing()
    line.see(WELL)
    moves = line.breaker.moves
    for _ in range(200):
        line.wait(0.5)
        assert line.see(WELL, WELL, WELL, ERROR, WELL, ERROR) is State.RAMPING
    assert line.breaker.moves == moves + len(RAMP) - 1
    for _ in range(40):
        line.see(*[WELL] * 4)
        line.wait(0.5)
    assert line.breaker.state is State.CLOSED


def test_a_quick_probe_is_no_quantile() -> None:
    line = Line(replace(TERMS, ratio=0.0, latency=0.5, probes=10, ramp=0.0))
    assert line.see(*[WELL] * 10, seconds=2.0) is State.OPEN
    line.wait(5.0)
    assert line.see(*[WELL] * 10) is State.CLOSED
    assert line.see(*[WELL] * 9, seconds=2.0) is State.CLOSED
    assert line.see(WELL, seconds=2.0) is State.OPEN, "ten probes that were quick are not among these ten"


def test_who_is_nearly_too_slow_does_not_close_it() -> None:
    line = Line(replace(TERMS, ratio=0.0, latency=0.5, probes=1))
    line.see(*[WELL] * 10, seconds=2.0)
    line.wait(5.0)
    line.see(WELL)
    for _ in range(100):
        line.see(*[WELL] * 3, seconds=0.5)
        assert line.wait(0.5) is State.RAMPING
    for _ in range(40):
        line.see(*[WELL] * 3, seconds=0.1)
        line.wait(0.5)
    assert line.breaker.state is State.CLOSED


def test_one_that_is_spared_begins_anew() -> None:
    line = Line()
    for _ in range(3):
        why = [line.breaker.observe(one(FAILED, 0.0), line.now) for _ in range(10)]
        assert [bool(each) for each in why] == [False] * 9 + [True]
        line.breaker.spare()
    assert line.breaker.state is State.CLOSED


def test_other_terms_keep_what_was_found_out() -> None:
    line = Line()
    line.see(*[FAILED] * 8)
    line.breaker.change(replace(TERMS, least=9))
    assert line.see(FAILED) is State.OPEN
    line.breaker.change(replace(TERMS, open=1.0, window=20.0))
    assert line.breaker.left(line.now) == 5.0
    line.wait(5.0)
    assert line.see(FAILED) is State.OPEN
    assert line.breaker.left(line.now) == 2.0


def test_another_process_goes_on() -> None:
    line = Line()
    for advance in (0.0, 2.0, 3.0):
        if not advance:
            line.open()
        line.wait(advance)
        other = Breaker(TERMS)
        other.take(line.breaker.plain(line.now), 70.0)
        assert (other.state, other.share, other.times) == (line.breaker.state, line.breaker.share, 1)
        assert other.left(70.0) == line.breaker.left(line.now)
        assert other.why == line.breaker.why
    line.see(*[WELL] * 3)
    line.wait(1.5)
    other.take(line.breaker.plain(line.now), 71.0)
    assert (other.share, other.due) == (0.25, 71.5)
    assert other.since == 71.0
    other.take(line.breaker.plain(line.now), 72.0)
    assert other.since == 71.0, "that is no other state"
    with pytest.raises(ValueError, match="step"):
        other.take([3, 9, 0.0, 1, 5.0, ""], 72.0)
    with pytest.raises(ValueError, match="State"):
        other.take([7, 0, 0.0, 1, 5.0, ""], 72.0)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([WELL, ERROR, FAILED]), st.floats(0, 8), st.floats(0, 4)), max_size=80))
def test_whatever_happens_it_follows_its_table(steps: list[tuple[Outcome, float, float]]) -> None:
    line = Line(replace(TERMS, least=2, latency=1.0))
    for outcome, seconds, wait in steps:
        before = line.breaker.state
        line.see(outcome, seconds=seconds)
        between = line.breaker.state
        assert between is before or between in TRANSITIONS[before]
        line.now += wait
        line.breaker.turn(line.now)
        assert line.breaker.state is between or line.breaker.state in TRANSITIONS[between]
        assert (line.breaker.due == inf) is (line.breaker.state in (State.CLOSED, State.PROBING))
        assert 0.0 <= line.breaker.left(line.now) <= TERMS.most + 1e-6


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"error_ratio": 0.0}, ""),
        ({"latency": Seconds(1), "latency_quantile": 1.0}, "latencyQuantile"),
        ({"latency": Seconds(1), "latency_quantile": 0.0}, "latencyQuantile"),
        ({"max_open": Seconds(1)}, "maxOpen"),
    ],
)
def test_what_settings_cannot_mean(given: dict[str, Any], key: str) -> None:
    assert [at for at, _ in wrong(model.CircuitBreaker(**given))] == [key]
    assert not [*wrong(model.CircuitBreaker())]


def test_one_of_several_who_do_not_tell_each_other_needs_less_to_see() -> None:
    assert Terms.of(model.CircuitBreaker(min_requests=20), 3).least == 7
    assert Terms.of(model.CircuitBreaker(min_requests=2), 8).least == 1
    assert Terms.of(model.CircuitBreaker()).least == 20
