"""Circuit breakers of endpoints and of upstreams: who is asked, who is probed, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest
from fake_upstream import Outcome as Got
from fake_upstream import Time, ask
from town import Process, Town, upstream
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from protogate.config.model import CircuitBreaker, Seconds
from protogate.message import Request, Response
from protogate.upstream.breaker import RAMP, TRY, State
from protogate.upstream.circuit import UpstreamBreaker
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.judge import Probes
from protogate.upstream.outcome import ERROR, FAILED, NOTHING, WELL, Outcome
from protogate.upstream.watch import Watch


def breaker(**more: Any) -> CircuitBreaker:
    given: dict[str, Any] = {"min_requests": 10, "ramp": Seconds(4), **more}
    return CircuitBreaker(**{name: Seconds(each) if name == "open" else each for name, each in given.items()})


class Scene(Process):
    """One process, with its time; whoever is asked, waits."""

    def __init__(self, count: int = 2, **more: Any) -> None:
        super().__init__(upstream(count, circuit_breaker=breaker(**more)), Time())
        self.asked: list[Deferred[Response]] = []

    def pass_by(self, seconds: float) -> None:
        self.time.pass_by(seconds)

    def ask(self) -> Got:
        """What guards the upstream says to one more request."""
        guard = self.cluster._watch.breakers
        assert guard is not None

        def let(request: Request) -> Deferred[Response]:
            self.asked.append(Deferred())
            return self.asked[-1]

        return Got(guard.handle(ask(), let))

    @property
    def state(self) -> State:
        guard = self.cluster._watch.breakers
        assert isinstance(guard, UpstreamBreaker)
        return guard.circuit.breaker.state


def probe(watch: Watch, endpoint: Endpoint) -> Probes:
    """One more begins."""
    probes = watch.began(endpoint)
    assert probes is not None
    return probes


def end(watch: Watch, endpoint: Endpoint, outcome: Outcome, probes: Probes) -> None:
    """One that is under way comes to that."""
    watch.ended(endpoint, outcome, 0.01)
    watch.over(endpoint, probes)


# -- of endpoints


def test_an_endpoint_whose_breaker_is_open_gets_nothing() -> None:
    scene = Scene()
    with capturedLogs() as logged:
        assert scene.see(1, *[FAILED] * 10) == 0.0
    assert scene.shares == [0.0, 1.0]
    assert scene.why(1, "circuitBreaker") == "10 of 10 failed within 10 s (10 gave no answer)"
    (told,) = [formatEvent(event) for event in logged]
    assert told.startswith("upstream shop: the circuit breaker of 10.0.0.1:80 is open for 5 s: 10 of 10 failed")
    assert {scene.cluster._election.pick(ask()) for _ in range(20)} == {scene.at(2)}
    assert not scene.ask().reason
    assert scene.counted["breaker_opened"] == 1


def test_it_is_probed_by_so_many_at_a_time_and_comes_back() -> None:
    scene = Scene()
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    one, watch = scene.at(1), scene.cluster._watch
    assert one.share == TRY
    for _ in range(3):
        assert one.up
        probes = probe(watch, one)
    assert not one.up, "three probes are under way"
    end(watch, one, NOTHING, probes)
    assert one.up, "a client left"
    assert probe(watch, one) is probes
    assert not one.up
    end(watch, one, WELL, probes)
    end(watch, one, WELL, probes)
    assert one.share == TRY
    end(watch, one, WELL, probes)
    assert one.share == RAMP[0]
    assert "probes" not in one.held
    scene.pass_by(4.5)
    assert scene.shares == [1.0, 1.0]
    assert {name: scene.counted[f"breaker_{name}"] for name in ("opened", "probing", "closed")} == {
        "opened": 1,
        "probing": 1,
        "closed": 1,
    }


def test_one_that_is_told_of_twice_is_one() -> None:
    """It was given up after a time of its own, or its answer broke off."""
    scene = Scene()
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    one, watch = scene.at(1), scene.cluster._watch
    for _ in range(3):
        probes = probe(watch, one)
    watch.ended(one, WELL, 0.01)
    assert not one.up
    watch.over(one, probes)
    assert one.up
    probe(watch, one)
    assert not one.up


def test_probes_that_fail_while_others_are_under_way() -> None:
    scene = Scene()
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    one, watch = scene.at(1), scene.cluster._watch
    for _ in range(3):
        probes = probe(watch, one)
    end(watch, one, ERROR, probes)
    assert one.share == 0.0
    assert "probes" not in one.held
    end(watch, one, WELL, probes)
    scene.pass_by(10.3)
    assert one.share == TRY
    for _ in range(3):
        again = probe(watch, one)
    end(watch, one, NOTHING, probes)
    assert not one.up, "the last one of those before makes no room among these"
    for _ in range(3):
        end(watch, one, WELL, again)
    assert one.share == RAMP[0]


def test_one_that_leaves_while_it_is_probed() -> None:
    scene = Scene()
    scene.see(2, *[FAILED] * 10)
    scene.pass_by(5.3)
    two = scene.at(2)
    for _ in range(3):
        probes = probe(scene.cluster._watch, two)
    scene.update(upstream(1, circuit_breaker=breaker()))
    for _ in range(3):
        end(scene.cluster._watch, two, WELL, probes)
    scene.update(upstream(2, circuit_breaker=breaker()))
    assert scene.at(2) is not two
    assert scene.shares == [1.0, TRY]
    assert scene.see(2, WELL, WELL, WELL) == RAMP[0]


def test_when_breakers_leave_nobody_it_is_refused() -> None:
    """envoy#2671: to ask those nevertheless is what a breaker is there against."""
    scene = Scene()
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(2.0)
    scene.see(2, *[FAILED] * 10)
    got = scene.ask()
    assert got.reason is not None
    assert got.reason.detail == "the circuit breaker is open"
    assert dict(got.reason.headers) == {b"retry-after": b"3"}
    assert got.reason.reason.startswith("upstream shop, every endpoint: the circuit breaker is open: 10 of 10")
    assert scene.counted["breaker_refused"] == 1
    scene.pass_by(3.3)
    for _ in range(3):
        assert not scene.ask().reason
        probes = probe(scene.cluster._watch, scene.at(1))
    assert scene.ask().reason, "as many probes as may be are under way"
    for _ in range(3):
        end(scene.cluster._watch, scene.at(1), WELL, probes)
    assert not scene.ask().reason


def test_those_that_others_hold_are_asked_when_there_is_nobody_else() -> None:
    scene = Scene()
    for number in (1, 2):
        scene.cluster.hold(scene.at(number), "healthCheck", 0.0, "unwell")
    assert not scene.ask().reason
    scene.see(1, *[FAILED] * 10)
    assert scene.ask().reason
    assert Scene(1).ask().reason is None


# -- of an upstream


def test_an_upstream_that_fails_is_not_asked() -> None:
    scene = Scene(scope="upstream")
    scene.see(1, *[WELL] * 4, *[FAILED] * 3)
    assert not scene.ask().reason
    with capturedLogs() as logged:
        scene.see(2, *[ERROR] * 3)
    assert scene.shares == [1.0, 1.0], "it is about no endpoint"
    got = scene.ask()
    assert got.reason.detail == "the circuit breaker is open"
    assert dict(got.reason.headers) == {b"retry-after": b"5"}
    (told,) = [formatEvent(event) for event in logged]
    assert told.startswith("upstream shop: its circuit breaker is open for 5 s: ")
    assert len(scene.asked) == 1


def test_probes_of_an_upstream_and_its_way_back() -> None:
    scene = Scene(scope="upstream")
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    assert scene.state is State.PROBING
    got = [scene.ask() for _ in range(5)]
    assert [bool(each.reason) for each in got] == [False] * 3 + [True] * 2
    scene.asked[0].callback(Response(204))
    assert not scene.ask().reason, "the next one may be tried"
    scene.asked[1].addErrback(lambda _: None)
    scene.asked[1].cancel()
    assert not scene.ask().reason, "a client that leaves keeps no place"
    scene.see(1, WELL, WELL)
    scene.see(2, WELL)
    assert scene.state is State.RAMPING
    let = [not scene.ask().reason for _ in range(100)]
    assert sum(let) == 10
    scene.pass_by(1.1)
    assert sum(not scene.ask().reason for _ in range(100)) == 25
    scene.pass_by(3.5)
    assert scene.state is State.CLOSED
    assert all(not scene.ask().reason for _ in range(100))


def test_a_probe_of_an_upstream_is_one_attempt_in_every_process() -> None:
    """Who does not lead knows last that a probe has failed."""
    town = Town(upstream(2, circuit_breaker=breaker(scope="upstream")), 2)
    leader, other = town.processes
    leader.see(1, *[FAILED] * 10)
    town.pass_by(0.2)
    assert not other.cluster.may(other.at(2))
    town.pass_by(5.1)
    other.cluster.ended(other.at(1), FAILED, 0.01)
    assert not other.cluster.may(other.at(2)), "it has not been told yet"
    town.pass_by(10.3)
    leader.see(1, WELL, WELL, WELL)
    town.pass_by(0.2)
    assert other.cluster.may(other.at(2)), "on the way back"


def test_a_probe_that_is_answered_at_once() -> None:
    scene = Scene(scope="upstream")
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    guard = scene.cluster._watch.breakers
    assert guard is not None
    for _ in range(10):
        response = Response(204)
        assert guard.handle(ask(), lambda request, response=response: response) is response


def test_late_failures_open_it_no_second_time() -> None:
    scene = Scene(scope="upstream")
    scene.see(1, *[FAILED] * 10)
    scene.pass_by(5.3)
    assert scene.state is State.PROBING
    scene.see(1, *[FAILED] * 10, seconds=9.0)
    assert scene.state is State.PROBING
    scene.see(1, FAILED)
    assert scene.state is State.OPEN


@pytest.mark.parametrize("scope", ["endpoint", "upstream"])
def test_a_reload_keeps_what_it_does_not_change(scope: str) -> None:
    scene = Scene(scope=scope)
    for number in (1, 2):
        scene.see(number, *[FAILED] * 10)
    rules = breaker(scope=scope)
    scene.update(upstream(2, circuit_breaker=rules))
    assert scene.ask().reason
    scene.update(upstream(2, circuit_breaker=breaker(scope=scope, open=1, probes=1)))
    assert scene.ask().reason, "it was opened for five seconds"
    scene.pass_by(5.3)
    assert [bool(scene.ask().reason) for _ in range(3)] == ([False, True, True] if scope == "upstream" else [False] * 3)
    scene.update(upstream(2, circuit_breaker=breaker(scope="upstream" if scope == "endpoint" else "endpoint")))
    assert scene.shares == [1.0, 1.0]
    assert not scene.ask().reason
    scene.update(upstream(2))
    assert scene.cluster._watch.breakers is None
    assert scene.cluster._watchers == ()
    scene.cluster.stop()
    scene.pass_by(1.0)
    assert scene.time.idle


def test_an_upstream_without_one_costs_nothing() -> None:
    process = Process(upstream(2), Time())
    assert process.cluster._watchers == ()
    assert process.cluster._watch.breakers is None
