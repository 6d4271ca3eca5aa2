"""Several attempts beside all else that an upstream has: who judges it, how it chooses, what the ledger keeps."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from fake_upstream import FakeBody, FakeConnection, Outcome, ask, lost
from test_cluster import Bench, upstream

from protogate.config import model
from protogate.errors import CLIENT_GONE
from protogate.message import Peer
from protogate.upstream.outcome import FAILED
from protogate.upstream.race import Race
from protogate.upstream.trial import Trial

ONE, TWO, THREE = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
ONCE: Any = {"attempts": 2, "budget": 0, "floor": 0}
"""Nothing is sent again for want of budget."""
BREAKER = model.CircuitBreaker(consecutive=1, error_ratio=0)


def retrying(*urls: str, upstream_: Any = None, **more: Any) -> Bench:
    return Bench(upstream(*urls, retry=model.Retry(**more), **(upstream_ or {})))


def hedging(*urls: str, upstream_: Any = None, **more: Any) -> Bench:
    hedge = model.Hedge(**{"after": model.Seconds(0.1), "floor": 10, **more})
    return Bench(upstream(*(urls or (ONE, TWO)), hedge=hedge, **(upstream_ or {})))


def busy(bench: Bench) -> list[Any]:
    return [connection for connection in bench.connections if connection.asked]


def past(request: Any) -> list[tuple[str, str, int]]:
    made = request.ledger.past
    return [] if made is None else [(each.address, each.why, each.status) for each in made.attempts]


# -- where nobody can be connected to


def test_who_can_be_reached_is_asked_again_and_not_who_cannot() -> None:
    """One resets, the other one is down: whichever was first, the former gets all attempts that there are."""
    seen = set()
    for seed in range(6):
        bench = Bench(upstream(ONE, TWO, retry=model.Retry(on=("reset",), attempts=4)), seed=seed)
        bench.down.add("10.0.0.1")
        request, outcome = bench.ask()
        dialed = bench.dialed[0]
        for _ in range(2):
            assert bench.where() == TWO
            bench.busy().refuse(lost())
            bench.time.pass_by(0.6)
        bench.busy().answer()
        assert outcome.status == 200
        assert bench.dialed.count(ONE) == 1
        assert request.ledger.attempts == 4
        seen.add(dialed)
    assert seen == {ONE, TWO}


def test_that_costs_budget_though_who_is_down_does_not() -> None:
    for seed in range(6):
        retry = model.Retry(on=("reset",), attempts=4, budget=0, floor=0.1)  # one in the purse
        bench = Bench(upstream(ONE, TWO, retry=retry), seed=seed)
        bench.down.add("10.0.0.1")
        _, outcome = bench.ask()
        bench.busy().refuse(lost())
        bench.time.pass_by(0.6)
        bench.busy().refuse(lost())
        bench.time.pass_by(0.6)
        assert not outcome.open
        assert bench.time.counted.count("retry_budget_empty") == 1
        assert sum(len(each.served) for each in bench.connections) == 2


# -- where connections are made, and closed before they can be used: a server that restarts


def greeted(bench: Bench, address: str) -> FakeConnection:
    """The newest connection there, which is made and says nothing yet."""
    return bench.at[address][-1]


def test_who_closes_a_connection_before_it_can_be_used_is_asked_again_with_any_method() -> None:
    bench = Bench(upstream(ONE))
    bench.codec.greets = True
    request, outcome = bench.ask(b"POST")
    greeted(bench, ONE).lose()
    assert len(bench.at[ONE]) == 2, "at once"
    greeted(bench, ONE).lose()
    assert len(bench.at[ONE]) == 2, "after a pause"
    bench.time.pass_by(0.6)
    connection = greeted(bench, ONE)
    connection.ready(connection)
    bench.busy().answer()
    assert outcome.status == 200
    assert request.ledger.attempts == 3
    assert bench.settled()


def test_another_one_is_asked_first_and_that_costs_nothing() -> None:
    bench = Bench(upstream(ONE, TWO, retry=model.Retry(budget=0, floor=0)))
    bench.codec.greets = True
    _, outcome = bench.ask()
    for address in (bench.dialed[0], ({ONE, TWO} - {bench.dialed[0]}).pop()):
        assert bench.dialed[-1] == address
        greeted(bench, address).lose()
    assert outcome.reason.error == "connection_terminated"
    assert bench.time.counted.count("retry_budget_empty") == 1, "the third attempt is not for nothing"


# -- whoever judges


@pytest.mark.parametrize("scope", ["endpoint", "upstream"])
def test_a_breaker_that_opens_ends_it(scope: Any) -> None:
    breaker = model.CircuitBreaker(scope=scope, consecutive=1, error_ratio=0)
    bench = retrying(ONE, upstream_={"circuit_breaker": breaker}, statuses="503")
    _, outcome = bench.ask()
    bench.busy().answer(503)
    assert outcome.status == 503
    assert len(bench.connections[0].served) == 1


def test_it_goes_where_no_breaker_is_open_and_no_further() -> None:
    bench = retrying(ONE, TWO, upstream_={"circuit_breaker": BREAKER}, statuses="503", attempts=5)
    _, outcome = bench.ask()
    first = bench.where()
    bench.busy().answer(503)
    bench.time.pass_by(0.4)
    assert bench.where() != first
    bench.busy().answer(503)
    assert outcome.status == 503
    assert sum(len(each.served) for each in bench.connections) == 2


def test_where_nobody_is_well_it_goes_to_whom_no_breaker_keeps() -> None:
    """One fails, one has an open breaker, one looks unwell: that one may be better than it looks."""
    firsts = set()
    for seed in range(9):
        retry = model.Retry(statuses="503", attempts=5)
        bench = Bench(upstream(ONE, TWO, THREE, retry=retry, circuit_breaker=BREAKER), seed=seed)
        one, two, three = bench.cluster.endpoints
        _, outcome = bench.ask()
        first = bench.where()
        firsts.add(first)
        others = [each for each in (one, two, three) if each.address != first]
        bench.cluster.ended(others[seed % 2], FAILED, 0.0)
        bench.cluster.hold(others[1 - seed % 2], "healthCheck", 0.0)
        bench.busy().answer(503)
        bench.time.pass_by(0.4)
        assert bench.where() == others[1 - seed % 2].address
        bench.busy().answer()
        assert outcome.status == 200
    assert len(firsts) == 3


def test_while_an_upstream_is_probed_a_request_is_one_attempt() -> None:
    """Nothing is sent again, whatever it says of the probe, and nothing is asked a second time meanwhile."""
    whole = model.CircuitBreaker(scope="upstream", consecutive=1, error_ratio=0, open=model.Seconds(1))
    bench = hedging(upstream_={"circuit_breaker": whole, "retry": model.Retry(on=("timeout",), statuses="404")})
    _, early = bench.ask(b"POST")
    bench.cluster.ended(bench.cluster.endpoints[0], FAILED, 0.0)
    bench.time.pass_by(1.2)
    _, probe = bench.ask()
    bench.time.pass_by(0.5)
    assert len(busy(bench)) == 2, "the probe is not asked twice"
    busy(bench)[1].answer(404)
    bench.time.pass_by(0.4)
    assert probe.status == 404
    assert len(busy(bench)) == 1, "nor sent again"
    bench.busy().answer()
    assert early.status == 200


def test_no_second_attempt_is_made_beside_the_first_where_a_breaker_is_open() -> None:
    bench = hedging(upstream_={"circuit_breaker": BREAKER})
    other = {bench.answered() for _ in range(2)}
    assert other == {ONE, TWO}
    _, held = bench.ask()
    where = bench.where()
    for endpoint in bench.cluster.endpoints:
        if endpoint.address != where:
            bench.cluster.ended(endpoint, FAILED, 0.0)
    bench.time.pass_by(0.5)
    assert len(busy(bench)) == 1
    bench.busy().answer()
    assert held.status == 200


def test_an_attempt_that_is_cut_off_counts_once() -> None:
    breaker = model.CircuitBreaker(consecutive=2, error_ratio=0)
    bench = retrying(ONE, upstream_={"circuit_breaker": breaker}, on=("timeout",), per_try=model.Seconds(1), **ONCE)
    (endpoint,) = bench.cluster.endpoints
    for count in (1, 2):
        _, outcome = bench.ask()
        bench.time.pass_by(1.2)
        assert outcome.reason.status == 504
        assert ("circuitBreaker" in endpoint.held) is (count == 2)


def test_an_answer_in_the_moment_in_which_it_is_cut_off_does_not_count() -> None:
    bench = retrying(ONE, upstream_={"circuit_breaker": BREAKER}, on=("timeout",), per_try=model.Seconds(1), **ONCE)
    _, outcome = bench.ask()
    connection = bench.busy()
    _, answer = connection.asked[0]
    answer._canceller = lambda _: connection.answer()
    bench.time.pass_by(1.2)
    assert outcome.status == 200
    assert not bench.cluster.endpoints[0].held


def test_who_only_waits_until_others_are_over_says_nothing_of_the_endpoint() -> None:
    pool = model.PoolSettings(max_per_endpoint=1)
    bench = retrying(
        ONE, upstream_={"circuit_breaker": BREAKER, "pool": pool}, on=("timeout",), per_try=model.Seconds(1), **ONCE
    )
    bench.ask(b"POST")  # for which there is no such clock
    _, outcome = bench.ask()
    bench.time.pass_by(1.2)
    assert outcome.reason.status == 504
    assert not bench.cluster.endpoints[0].held
    bench.busy().answer()


def test_a_connection_that_does_not_come_does() -> None:
    bench = retrying(ONE, upstream_={"circuit_breaker": BREAKER}, on=("timeout",), per_try=model.Seconds(1), **ONCE)
    bench.slow.add("10.0.0.1")
    _, outcome = bench.ask()
    bench.time.pass_by(1.2)
    assert outcome.reason.status == 504
    assert "circuitBreaker" in bench.cluster.endpoints[0].held


def test_behind_a_pause_it_goes_elsewhere_when_who_was_chosen_is_not_well_any_more() -> None:
    chosen = ""
    for held in (False, True):
        bench = retrying(ONE, TWO, THREE, statuses="503")
        _, outcome = bench.ask()
        first = bench.where()
        bench.busy().answer(503)
        for endpoint in bench.cluster.endpoints:
            if held and endpoint.address == chosen:
                bench.cluster.hold(endpoint, "healthCheck", 0.0)
        bench.time.pass_by(0.4)
        assert (bench.where() == chosen) is False
        chosen = bench.where()
        assert chosen != first
        bench.busy().answer()
        assert outcome.status == 200


# -- how it is chosen


@pytest.mark.parametrize("more", ["retry", "hedge"])
def test_a_key_has_the_same_second_place_each_time(more: str) -> None:
    config = {"balance": "hash", "hash": model.Hash(key="request.path")}
    if more == "retry":
        bench = retrying(ONE, TWO, THREE, upstream_=config, statuses="503")
    else:
        bench = hedging(ONE, TWO, THREE, upstream_=config, floor=100)
    ways = set()
    for _ in range(8):
        request = ask()
        request.key = "k"
        outcome = Outcome(bench.cluster.handle(request))
        first = bench.where()
        if more == "retry":
            bench.busy().answer(503)
            bench.time.pass_by(0.4)
            second = bench.where()
        else:
            bench.time.pass_by(0.2)
            (second,) = [at for at, all_ in bench.at.items() if at != first and any(each.asked for each in all_)]
        next(each for each in bench.at[second] if each.asked).answer()
        ways.add((first, second))
        assert outcome.status == 200
    assert len(ways) == 1


def test_both_attempts_come_from_the_same_client() -> None:
    """By which pools choose connections, where upstreams are told who it is."""
    bench = hedging()
    request = ask()
    request.peer = Peer("192.0.2.9", 4711, here=("192.0.2.1", 80))
    request.deadline = 1060.0
    outcome = Outcome(bench.cluster.handle(request))
    bench.time.pass_by(0.3)
    asked = [connection.asked[0][0] for connection in busy(bench)]
    assert [each.peer for each in asked] == [request.peer] * 2
    assert [each.deadline for each in asked] == [1060.0] * 2
    busy(bench)[1].answer()
    assert outcome.status == 200


def test_a_quantile_does_not_sink_because_slow_attempts_are_given_up() -> None:
    """One in ten takes a second wherever it is asked first, and is quick where it is asked then."""
    bench = hedging(after=model.Seconds(0), quantile=0.95, min_requests=50, budget=100)
    for number in range(600):
        _, outcome = bench.ask()
        first = bench.busy()
        bench.time.pass_by(0.05)
        if number % 10:
            first.answer()
        for _ in range(19):
            if outcome.open:
                bench.time.pass_by(0.05)
                for connection in busy(bench):
                    if connection is not first:
                        connection.answer()
        if outcome.open:
            first.answer()
    hedges = bench.cluster._hedges
    assert hedges is not None
    assert hedges.delay() > 0.5
    assert 10 <= bench.time.counted.count("hedge_sent") <= 60


# -- what is kept


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def lives() -> int:
    return sum(isinstance(each, Trial | Race) for each in gc.get_objects())


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("end", ["answer", "503", "lose", "late", "leave", "leave in a pause"])
@pytest.mark.parametrize("hedged", [False, True])
def test_nothing_waits_for_the_collector(end: str, hedged: bool) -> None:
    retry = model.Retry(on=("reset", "timeout"), statuses="503", per_try=model.Seconds(0.5), attempts=2)
    hedge = model.Hedge(after=model.Seconds(0.1), floor=10) if hedged else None
    bench = Bench(upstream(ONE, TWO, retry=retry, hedge=hedge))
    before = lives()
    request, outcome = bench.ask()
    bench.time.pass_by(0.2)
    if end.startswith("leave"):
        if end != "leave":
            for connection in busy(bench):
                connection.answer(503)
        request.gone = CLIENT_GONE
        outcome.cancel()
    for _ in range(3):
        for connection in busy(bench):
            if not connection.asked or end in ("late", "leave"):
                continue
            if end == "lose":
                connection.refuse(lost())
            else:
                connection.answer(503 if end == "503" else 200)
        bench.time.pass_by(0.6)
    assert outcome.times == 1
    assert bench.settled()
    del request, outcome
    assert lives() == before


@pytest.mark.parametrize("body", [False, True])
def test_the_ledger_keeps_what_came_of_each_attempt_but_the_last(body: bool) -> None:
    retry = model.Retry(on=("reset",), statuses="503", methods=("PUT", "GET"))
    bench = Bench(upstream(ONE, TWO, THREE, retry=retry))
    request, outcome = bench.ask(b"PUT" if body else b"GET", body=FakeBody(3) if body else None)
    began = request.ledger.chosen
    wheres = [bench.where()]
    bench.time.pass_by(0.2)
    bench.busy().answer(503)
    bench.time.pass_by(0.4)
    wheres.append(bench.where())
    bench.busy().refuse(lost())
    bench.time.pass_by(0.4)
    bench.busy().answer()
    assert outcome.status == 200
    assert past(request) == [(wheres[0], "", 503), (wheres[1], "connection lost", 0)]
    made = request.ledger.past
    assert made is not None
    assert made.asked == began
    assert made.attempts[0].seconds == pytest.approx(0.2)
    assert not made.hedged


def test_the_usual_case_keeps_nothing() -> None:
    bench = retrying(ONE, statuses="503")
    request, _ = bench.ask()
    bench.busy().answer()
    assert request.ledger.past is None
