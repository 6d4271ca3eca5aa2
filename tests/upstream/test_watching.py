"""One gateway of several processes: what each sees is judged once, by the one that leads, whoever that is."""

from __future__ import annotations

from typing import Any

import pytest
from town import Process, Town, upstream

from protogate.config.model import CircuitBreaker, Outliers, Seconds
from protogate.upstream.breaker import RAMP, TRY, State
from protogate.upstream.circuit import UpstreamBreaker
from protogate.upstream.outcome import ERROR, FAILED, WELL
from protogate.upstream.watch import PAUSE, Watch

RULES = Outliers(ejection=Seconds(10), ramp=Seconds(4))
BREAKER = CircuitBreaker(min_requests=12, ramp=Seconds(4))


def town(count: int = 3, **more: Any) -> Town:
    return Town(upstream(3, **(more or {"outliers": RULES})), count)


def test_what_all_see_adds_up() -> None:
    made = town()
    one, two, three = made.processes
    one.see(1, ERROR, ERROR)
    two.see(1, ERROR)
    made.pass_by(PAUSE)
    assert made.shares == [[1.0] * 3] * 3
    three.see(1, FAILED, FAILED)
    made.pass_by(2 * PAUSE)
    assert made.shares == [[0.0, 1.0, 1.0]] * 3
    assert (one.counted["outlier_ejected"], two.counted["outlier_ejected"]) == (1, 0)


def test_one_that_does_well_in_between_breaks_the_row() -> None:
    made = town()
    one, two, _ = made.processes
    one.see(1, *[ERROR] * 4)
    two.see(1, WELL)
    made.pass_by(2 * PAUSE)
    assert one.see(1, *[ERROR] * 4) == 1.0
    assert one.see(1, ERROR) == 0.0


def test_failures_are_told_at_once_and_not_more_often_than_it_allows() -> None:
    made = town()
    two = made.processes[1]
    told: list[Any] = []
    tell = two.board.tell

    def listen(topic: str, observed: Any) -> None:
        told.append(observed)
        tell(topic, observed)

    two.board.tell = listen  # type: ignore[method-assign]
    made.pass_by(1.0)
    for _ in range(3):
        two.see(2, *[FAILED] * 2)
    made.time.clock.advance(0)
    assert len(told) == 1, "all of a turn at once"
    assert told == [[["10.0.0.2:80", 0, [0, 0, 6, 6]]]]
    told.clear()
    for _ in range(100):
        two.see(2, *[FAILED] * 10)
        two.see(3, *[WELL] * 10)
        made.time.clock.advance(0.01)
    made.pass_by(PAUSE)
    assert 5 <= len(told) <= 1.0 / (PAUSE / 2) + 2
    told.clear()
    made.pass_by(1.0)
    assert told == [], "nothing happens"


def test_all_hold_what_the_leader_holds_and_let_it_back_together() -> None:
    made = town()
    made.processes[1].see(2, *[ERROR] * 5)
    made.pass_by(0.2)
    assert made.shares == [[1.0, 0.0, 1.0]] * 3
    assert "5 failures in a row" in made.processes[2].why(2)
    made.pass_by(10.1)
    assert made.shares == [[1.0, RAMP[0], 1.0]] * 3
    made.pass_by(4.5)
    assert made.shares == [[1.0, 1.0, 1.0]] * 3


def test_who_comes_later_knows() -> None:
    made = town(2)
    made.processes[0].see(3, *[ERROR] * 5)
    made.pass_by(1.0)
    late = made.comes()
    assert late.shares == [1.0, 1.0, 0.0]
    late.see(1, *[ERROR] * 5)
    made.pass_by(0.2)
    assert late.shares == [1.0, 1.0, 0.0], "no more than one of three"
    assert made.processes[0].counted["outlier_spared"] == 1


def test_when_the_leader_is_lost_another_one_goes_on() -> None:
    made = town()
    one, two, three = made.processes
    one.see(1, *[ERROR] * 5)
    made.pass_by(10.5)
    one.see(1, *[ERROR] * 5)
    made.pass_by(5.0)
    assert two.see(1) == 0.0
    made.goes(one)
    assert two.cluster._watch.leads
    assert made.shares == [[0.0, 1.0, 1.0]] * 2
    made.pass_by(14.0)
    assert made.shares == [[0.0, 1.0, 1.0]] * 2, "it was for twenty seconds"
    made.pass_by(1.5)
    assert made.shares == [[RAMP[0], 1.0, 1.0]] * 2
    three.see(1, *[ERROR] * 5)
    made.pass_by(39.0)
    assert made.shares == [[0.0, 1.0, 1.0]] * 2, "the third time, forty"
    made.goes(two)
    made.pass_by(1.9)
    assert made.shares == [[RAMP[0], 1.0, 1.0]]
    made.pass_by(5.0)
    assert made.shares == [[1.0, 1.0, 1.0]]


def test_who_leads_no_more_judges_no_more() -> None:
    made = town()
    one, two, _ = made.processes
    one.see(1, *[ERROR] * 5)
    made.pass_by(1.0)
    made.boards.lead(two.board)  # type: ignore[arg-type]
    one.see(2, *[ERROR] * 50)
    assert one.shares == [0.0, 1.0, 1.0]
    made.pass_by(10.0)
    assert made.shares == [[RAMP[0], 1.0, 1.0]] * 3
    assert one.counted["outlier_returned"] == 0
    assert two.counted["outlier_returned"] == 1


def test_what_was_on_its_way_when_it_was_judged_anew_is_dropped() -> None:
    made = town()
    one, two, _ = made.processes
    two.see(1, *[FAILED] * 4)
    made.time.clock.advance(0)  # told, and not carried yet
    one.see(1, *[FAILED] * 5)
    made.pass_by(10.5)
    assert made.shares == [[RAMP[0], 1.0, 1.0]] * 3
    assert one.see(1, FAILED) == RAMP[0]
    two.see(1, *[FAILED] * 10, seconds=11.0)
    made.pass_by(0.3)
    assert one.see(1) == RAMP[0], "they began before"
    two.see(1, *[FAILED] * 4)
    made.pass_by(0.3)
    assert made.shares == [[0.0, 1.0, 1.0]] * 3


def test_what_becomes_of_one_endpoint_does_not_make_others_be_forgotten() -> None:
    made = town()
    one, two, _ = made.processes
    two.see(2, *[FAILED] * 4)
    two.see(2, FAILED)
    one.see(1, *[FAILED] * 5)
    made.pass_by(0.3)
    assert one.counted["outlier_spared"] == 1, "they were heard, and one is left alone already"
    two.update(upstream(2, outliers=RULES))
    two.update(upstream(3, outliers=RULES))
    made.pass_by(10.3)
    two.see(1, *[FAILED] * 5)
    made.pass_by(0.3)
    assert made.shares == [[0.0, 1.0, 1.0]] * 3


def test_one_that_stood_still_is_heard_again_afterwards() -> None:
    made = town()
    one, two, three = made.processes
    still = made.boards.workers[0]
    made.boards.keeper.lead(made.boards.workers[1:])
    made.boards.run(still)
    for _ in range(3):
        one.see(1, *[FAILED] * 5)
        made.time.clock.advance(0.05)
        made.time.pass_by(15.0)
    made.boards.run()
    assert not one.cluster._watch.leads
    made.pass_by(0.2)
    one.see(2, *[FAILED] * 5)
    made.pass_by(0.3)
    assert two.shares[1] == three.shares[1] == 0.0


def test_the_breaker_of_an_upstream_is_one_for_all() -> None:
    made = town(circuit_breaker=CircuitBreaker(scope="upstream", min_requests=12, ramp=Seconds(4)))

    def states(processes: list[Process]) -> set[State]:
        found = set()
        for each in processes:
            guard = each.cluster._watch.breakers
            assert isinstance(guard, UpstreamBreaker)
            found.add(guard.circuit.breaker.state)
        return found

    for process in made.processes:
        process.see(1, *[FAILED] * 4)
    made.pass_by(0.2)
    assert states(made.processes) == {State.OPEN}
    made.pass_by(3.0)
    assert states([made.comes()]) == {State.OPEN}
    made.goes(made.processes[0])
    made.pass_by(2.1)
    assert states(made.processes) == {State.PROBING}
    made.processes[1].see(2, WELL, WELL, WELL)
    made.pass_by(0.2)
    assert states(made.processes) == {State.RAMPING}
    made.pass_by(4.5)
    assert states(made.processes) == {State.CLOSED}


def test_breakers_of_endpoints_are_probed_from_each_process() -> None:
    made = town(circuit_breaker=BREAKER)
    one, two, three = made.processes
    for process in made.processes:
        process.see(2, *[FAILED] * 4)
    made.pass_by(0.2)
    assert made.shares == [[1.0, 0.0, 1.0]] * 3
    made.pass_by(5.1)
    assert made.shares == [[1.0, TRY, 1.0]] * 3
    for _ in range(3):
        two.cluster._watch.began(two.at(2))
    assert made.shares == [[1.0, TRY, 1.0], [1.0, 0.0, 1.0], [1.0, TRY, 1.0]]
    three.see(2, FAILED)
    made.pass_by(0.2)
    assert made.shares == [[1.0, 0.0, 1.0]] * 3
    made.pass_by(10.1)
    assert made.shares == [[1.0, TRY, 1.0]] * 3, "those that were under way have nothing to do with it"
    assert one.counted["breaker_opened"] == 2


@pytest.mark.parametrize("first", [0, 1])
def test_a_reload_that_comes_one_after_the_other(first: int) -> None:
    made = town()
    one, two, _ = made.processes
    one.see(1, *[ERROR] * 5)
    made.pass_by(0.5)
    for process in sorted(made.processes, key=lambda each: each is not made.processes[first]):
        process.update(upstream(3))
        made.pass_by(0.2)
    assert made.shares == [[1.0] * 3] * 3
    for process in made.processes:
        process.update(upstream(3, circuit_breaker=BREAKER))
        made.pass_by(0.2)
    two.see(1, *[FAILED] * 12)
    made.pass_by(0.3)
    assert made.shares == [[0.0, 1.0, 1.0]] * 3


def test_a_kind_of_breaker_that_one_process_does_not_have_yet() -> None:
    made = town(circuit_breaker=BREAKER)
    one, two, _ = made.processes
    one.update(upstream(3, circuit_breaker=CircuitBreaker(scope="upstream", min_requests=12)))
    one.see(1, *[FAILED] * 12)
    made.pass_by(0.3)
    assert isinstance(two.cluster._watch, Watch)
    assert two.shares == [1.0] * 3
    two.update(upstream(3, circuit_breaker=CircuitBreaker(scope="upstream", min_requests=12)))
    guard = two.cluster._watch.breakers
    assert isinstance(guard, UpstreamBreaker)
    one.see(1, *[WELL] * 3)
    made.pass_by(5.3)
    assert guard.circuit.breaker.state is State.PROBING


def test_an_endpoint_that_only_some_processes_know() -> None:
    made = town()
    one, two, three = made.processes
    one.update(upstream(2, outliers=RULES))
    two.see(3, *[ERROR] * 50)
    made.pass_by(0.3)
    assert three.shares == [1.0] * 3
    one.update(upstream(3, outliers=RULES))
    two.see(3, *[ERROR] * 5)
    made.pass_by(0.3)
    assert made.shares == [[1.0, 1.0, 0.0]] * 3
    two.update(upstream(2, outliers=RULES))
    two.update(upstream(3, outliers=RULES))
    assert two.shares == [1.0, 1.0, 0.0]


def test_what_another_version_says_is_left_out(flush_errors: Any) -> None:
    made = town()
    one, two, _ = made.processes
    two.board.tell("watch/shop", [["10.0.0.1:80", 0, [1]]])
    two.board.tell("watch/shop", [["10.9.9.9:80", 0, [1, 0, 0, 0]]])
    made.pass_by(0.2)
    assert len(flush_errors(ValueError)) == 1
    assert one.see(1, *[ERROR] * 5) == 0.0


def test_who_learns_of_an_endpoint_later_than_of_what_is_judged_of_it() -> None:
    made = town(1)
    (one,) = made.processes
    one.see(3, *[ERROR] * 5)
    made.pass_by(1.0)
    late = Process(upstream(2, outliers=RULES), made.time, made.boards.join())
    made.processes.append(late)
    made.boards.run()
    assert late.shares == [1.0, 1.0]
    late.update(upstream(3, outliers=RULES))
    assert late.shares == [1.0, 1.0, 0.0]
    made.goes(one)
    made.pass_by(9.5)
    assert late.shares == [1.0, 1.0, 0.0], "it counts from when it was told"
    made.pass_by(1.0)
    assert late.shares == [1.0, 1.0, RAMP[0]]


def test_what_is_known_of_an_address_that_nobody_has_any_more_is_forgotten_by_all() -> None:
    made = town(2)
    one, two = made.processes
    one.see(3, *[ERROR] * 5)
    made.pass_by(0.5)
    for process in made.processes:
        process.update(upstream(2, outliers=RULES))
    made.pass_by(15.0)
    for seconds in (1.0, 60.0):
        made.pass_by(seconds)
        for process in made.processes:
            process.cluster._watch.take(process.cluster.endpoints)
        made.boards.run()
        judges = [process.cluster._watch.outliers for process in made.processes]
        known = [sorted(judge.entries) for judge in judges if judge is not None]
        there = ["10.0.0.1:80", "10.0.0.2:80"]
        assert known == ([[*there, "10.0.0.3:80"]] if seconds < 20 else [there]) * 2
    late = made.comes()
    assert late.shares == [1.0] * 3
    assert two.counted["outlier_ejected"] == 0
