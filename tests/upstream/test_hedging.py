"""A second attempt beside the first: when, where, how often; and what becomes of the loser."""

from __future__ import annotations

from typing import Any

import pytest
from fake_upstream import FakeBody, lost
from test_cluster import GATEWAY, Bench, upstream

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ALWAYS, CLIENT_GONE, UPSTREAM, Abort
from protogate.message import Response
from protogate.upstream.hedges import verify

TWO = ("10.0.0.1:80", "10.0.0.2:80")


def hedging(*urls: str, **more: Any) -> Bench:
    hedge = model.Hedge(**{"after": model.Seconds(0.1), "floor": 10, **more})
    return Bench(upstream(*(urls or TWO), hedge=hedge))


def busy(bench: Bench) -> list[Any]:
    return [connection for connection in bench.connections if connection.asked]


def test_a_quick_answer_is_the_only_one_asked_for() -> None:
    bench = hedging()
    _, outcome = bench.ask()
    bench.time.pass_by(0.05)
    bench.busy().answer()
    bench.time.pass_by(1)
    assert outcome.status == 200
    assert len(bench.connections) == 1


@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_attempts_the_first_head_is_the_answer_and_the_other_is_cancelled(winner: int) -> None:
    bench = hedging()
    request, outcome = bench.ask()
    first = bench.busy()
    bench.time.pass_by(0.2)
    (second,) = [connection for connection in busy(bench) if connection is not first]
    pair = (first, second)
    asked = [connection.asked[0][0] for connection in pair]
    pair[winner].answer()
    assert outcome.status == 200
    assert pair[1 - winner].cancelled == [asked[1 - winner]]
    assert request.ledger.attempts == 2
    assert request.ledger.address in TWO
    assert bench.time.counted.count("hedge_sent") == 1
    assert bench.time.counted.count("hedge_won") == winner
    assert bench.settled()
    bench.cluster.drain()
    bench.time.pass_by(40)
    assert bench.time.idle


def test_the_record_names_who_answered() -> None:
    bench = hedging()
    request, _ = bench.ask()
    first = bench.where()
    bench.time.pass_by(0.2)
    other = next(address for address in TWO if address != first)
    bench.at[other][0].answer()
    assert request.ledger.address == other
    assert request.ledger.connected > 0.0


@pytest.mark.parametrize("which", [0, 1])
def test_a_failure_of_one_leaves_it_to_the_other(which: int) -> None:
    bench = hedging()
    _, outcome = bench.ask()
    first = bench.busy()
    bench.time.pass_by(0.2)
    (second,) = [connection for connection in busy(bench) if connection is not first]
    pair = (first, second)
    pair[which].refuse(lost())
    assert outcome.open
    pair[1 - which].answer()
    assert outcome.status == 200


def test_what_fails_at_once_is_no_reason_to_wait_for_a_second_attempt() -> None:
    bench = hedging()
    bench.down |= {"10.0.0.1", "10.0.0.2"}
    _, outcome = bench.ask()
    assert outcome.reason.error == "connection_refused"
    dialed = len(bench.dialed)
    bench.time.pass_by(1)
    assert len(bench.dialed) == dialed
    assert "hedge_sent" not in bench.time.counted
    assert bench.settled()


def test_when_both_fail_the_failure_of_the_first_is_told() -> None:
    bench = hedging()
    request, outcome = bench.ask()
    first = bench.busy()
    bench.time.pass_by(0.2)
    (second,) = [connection for connection in busy(bench) if connection is not first]
    reason = Abort("reset", UPSTREAM, 502)
    first.refuse(reason)
    second.refuse(lost())
    assert outcome.reason is reason
    assert request.ledger.attempts == 2


def test_a_client_that_leaves_leaves_both() -> None:
    bench = hedging()
    request, outcome = bench.ask()
    bench.time.pass_by(0.2)
    assert len(busy(bench)) == 2
    request.gone = CLIENT_GONE
    outcome.cancel()
    assert not busy(bench)
    assert outcome.times == 1
    assert request.ledger.attempts == 2
    assert sum(len(connection.cancelled) for connection in bench.connections) == 2


def test_an_answer_that_was_on_its_way_when_it_was_cancelled_has_its_body_stopped() -> None:
    bench = hedging()
    request, outcome = bench.ask()
    connection = bench.busy()
    _, answer = connection.asked[0]
    connection._cancelled = lambda _: None  # it does not hear of it
    answer._canceller = lambda _: answer.callback(late)
    body = FakeBody()
    late = Response(200, body=body)
    request.gone = CLIENT_GONE
    outcome.cancel()
    assert outcome.times == 1
    assert body.stopped


def test_what_has_content_or_is_no_request_of_its_own_is_asked_once() -> None:
    bench = hedging()
    for method, body in ((b"POST", None), (b"GET", FakeBody())):
        bench.ask(method, body=body)
    bench.time.pass_by(1)
    assert len(busy(bench)) == 2
    assert not bench.time.counted.count("hedge_sent")


def test_one_endpoint_alone_is_asked_once() -> None:
    bench = hedging("10.0.0.1:80")
    bench.ask()
    bench.time.pass_by(1)
    assert len(busy(bench)) == 1


def test_the_second_attempt_comes_after_the_quantile_once_there_are_answers_enough() -> None:
    bench = hedging(after=model.Seconds(0), quantile=0.9, min_requests=20)
    for number in range(20):
        bench.ask()
        bench.time.pass_by(0.5 if number % 10 == 0 else 0.1)
        assert len(busy(bench)) == 1
        bench.busy().answer()
    bench.time.pass_by(0.2)
    bench.ask()
    bench.time.pass_by(0.05)
    assert len(busy(bench)) == 1
    bench.time.pass_by(0.5)
    assert len(busy(bench)) == 2


def test_hedges_never_get_beyond_their_budget() -> None:
    """Every answer takes longer than it is waited: all want a second attempt, and one in ten gets it."""
    bench = hedging(floor=0, budget=10)
    for _ in range(500):
        _, outcome = bench.ask()
        bench.time.pass_by(0.15)
        for connection in busy(bench):
            while connection.asked:
                connection.answer()
        assert outcome.times == 1
    sent = bench.time.counted.count("hedge_sent")
    assert 40 <= sent <= 50
    assert sum(len(each.served) for each in bench.connections) == 500 + sent
    assert bench.time.counted.count("hedge_budget_empty") > 400


def test_retries_and_hedges_together_are_bounded_by_their_budgets() -> None:
    retry = model.Retry(on=("reset",), attempts=10, budget=20, floor=0)
    hedge = model.Hedge(after=model.Seconds(0.1), budget=10, floor=0)
    bench = Bench(upstream(*TWO, retry=retry, hedge=hedge))
    outcomes = []
    for _ in range(300):
        outcomes.append(bench.ask()[1])
        bench.time.pass_by(0.15)
        for connection in busy(bench):
            while connection.asked:
                connection.refuse(lost())
    for _ in range(20):
        bench.time.pass_by(0.1)
        for connection in busy(bench):
            while connection.asked:
                connection.refuse(Abort("refused", UPSTREAM, 502, ALWAYS))
    assert all(outcome.times == 1 for outcome in outcomes)
    assert bench.time.counted.count("retry_sent") + bench.time.counted.count("hedge_sent") <= 90


def test_a_reload_keeps_what_was_learnt_while_the_words_stay() -> None:
    bench = hedging()
    before = bench.cluster._hedges
    bench.cluster.update(upstream(*TWO, hedge=model.Hedge(after=model.Seconds(0.1), floor=10)), GATEWAY, bench.codec)
    assert bench.cluster._hedges is before
    bench.cluster.update(upstream(*TWO), GATEWAY, bench.codec)
    bench.ask()
    bench.time.pass_by(1)
    assert len(busy(bench)) == 1


def test_only_idempotent_methods_may_be_asked_twice() -> None:
    with pytest.raises(ConfigFaults) as caught:
        verify([upstream(*TWO, hedge=model.Hedge(methods=("GET", "POST")))])
    assert [(fault.path, fault.message) for fault in caught.value.faults] == [
        (("upstreams", 0, "hedge", "methods", 1), "POST may not be sent twice: it is not idempotent")
    ]
