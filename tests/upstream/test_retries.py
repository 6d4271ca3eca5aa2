"""When a request is sent again: by reason, status and method, after a pause, within a budget."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from fake_upstream import Blunt, FakeBody, FakeSink, ask, lost
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cluster import GATEWAY, Bench, upstream
from twisted.internet.defer import CancelledError

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ALWAYS, CLIENT_GONE, NEVER, UPSTREAM, Abort, Phase, timeout
from protogate.message import Response
from protogate.upstream.retries import Retries, verify

TWO = ("10.0.0.1:80", "10.0.0.2:80")
LATE = timeout(Phase.RESPONSE_HEAD, UPSTREAM, 30.0)


def retrying(*urls: str, **more: Any) -> Bench:
    return Bench(upstream(*(urls or TWO), retry=model.Retry(**more)))


def wait(bench: Bench) -> None:
    """As long as any pause is by default."""
    bench.time.pass_by(0.35)


# -- reasons


@pytest.mark.parametrize(("on", "reason"), [("reset", lost()), ("timeout", LATE)])
def test_a_reason_of_the_configuration_leads_to_another_endpoint_after_a_pause(on: str, reason: Abort) -> None:
    bench = retrying(on=(on,))
    request, outcome = bench.ask()
    first = bench.where()
    bench.busy().refuse(reason)
    assert outcome.open
    assert not any(connection.asked for connection in bench.connections)
    wait(bench)
    assert bench.where() != first
    bench.busy().answer()
    assert outcome.status == 200
    assert request.ledger.attempts == 2
    assert bench.time.counted.count("retry_sent") == 1
    assert bench.settled()


@pytest.mark.parametrize("reason", [lost(), LATE])
def test_it_is_none_where_the_configuration_does_not_say_so(reason: Abort) -> None:
    bench = retrying()
    _, outcome = bench.ask()
    bench.busy().refuse(reason)
    assert outcome.reason is reason


@pytest.mark.parametrize("reason", [lost(NEVER), Abort("ours", retry=NEVER), Abort("theirs", UPSTREAM, retry=NEVER)])
def test_what_nobody_can_tell_of_is_never_sent_again(reason: Abort) -> None:
    bench = retrying(on=("reset", "timeout"), statuses="500-599")
    _, outcome = bench.ask()
    bench.busy().refuse(reason)
    assert outcome.reason is reason


def test_a_status_leads_to_another_endpoint_and_its_body_is_stopped() -> None:
    bench = retrying(statuses="502-504")
    _, outcome = bench.ask()
    first = bench.where()
    body = FakeBody()
    _, answer = bench.busy().asked[0]
    refused = Response(503, body=body)
    answers(bench, refused)
    assert outcome.open
    assert body.stopped
    assert refused.body is None
    wait(bench)
    assert bench.where() != first
    bench.busy().answer(404)
    assert outcome.status == 404
    assert answer.called


def answers(bench: Bench, response: Response) -> None:
    """Give a certain answer to the one request."""
    connection = bench.busy()
    _, answer = connection.asked.pop(0)
    answer.callback(response)
    connection._freed()


def test_the_last_answer_is_passed_on_whatever_it_is() -> None:
    bench = retrying(statuses="503", attempts=2)
    _, outcome = bench.ask()
    bench.busy().answer(503)
    wait(bench)
    bench.busy().answer(503)
    assert outcome.status == 503
    assert len(bench.connections) == 2


@pytest.mark.parametrize(("after", "again"), [("0", True), ("1", False), ("Wed, 21 Oct 2026 07:28:00 GMT", False)])
def test_who_wants_to_be_left_alone_is_asked_again_only_when_that_is_soon(after: str, again: bool) -> None:
    bench = retrying("10.0.0.1:80", statuses="503")
    _, outcome = bench.ask()
    answers(bench, Response(503, [(b"retry-after", after.encode())]))
    assert outcome.open is again
    if again:
        wait(bench)
        bench.busy().answer()
        assert outcome.status == 200


def test_it_says_nothing_of_another_endpoint() -> None:
    bench = retrying(statuses="503")
    _, outcome = bench.ask()
    answers(bench, Response(503, [(b"retry-after", b"3600")]))
    wait(bench)
    bench.busy().answer()
    assert outcome.status == 200


# -- what may be sent again


@pytest.mark.parametrize("said", [False, True])
def test_post_is_sent_again_only_when_told_so(said: bool) -> None:
    bench = retrying(on=("reset",), statuses="503", methods=("GET", "POST") if said else ("GET",))
    _, outcome = bench.ask(b"POST")
    bench.busy().refuse(lost())
    assert outcome.open is said
    if said:
        wait(bench)
        bench.busy().answer(503)
        wait(bench)
        bench.busy().answer()
        assert outcome.status == 200


def test_a_body_that_was_kept_is_sent_again_whole() -> None:
    bench = retrying(statuses="503", methods=("POST",))
    body = FakeBody(3)
    _, outcome = bench.ask(b"POST", body=body)
    first = FakeSink()
    sent, _ = bench.busy().asked[0]
    sent.body.attach(first)
    body.sink.write(b"abc")
    body.sink.finish()
    assert first.data == b"abc"
    bench.busy().answer(503)
    wait(bench)
    second = FakeSink()
    sent, _ = bench.busy().asked[0]
    sent.body.attach(second)
    assert second.data == b"abc"
    bench.busy().answer()
    assert outcome.status == 200


def test_an_answer_before_the_end_of_the_upload_is_passed_on() -> None:
    bench = retrying(statuses="503", methods=("POST",))
    body = FakeBody()
    _, outcome = bench.ask(b"POST", body=body)
    sent, _ = bench.busy().asked[0]
    sent.body.attach(FakeSink())
    body.sink.write(b"abc")
    bench.busy().answer(503)
    assert outcome.status == 503


def test_more_than_the_buffer_is_sent_once() -> None:
    bench = retrying(statuses="503", methods=("POST",), buffer=model.Bytes(2))
    body = FakeBody(3)
    request, outcome = bench.ask(b"POST", body=body)
    assert request.body is body
    bench.busy().answer(503)
    assert outcome.status == 503


def test_a_client_that_left_is_not_followed() -> None:
    bench = retrying(on=("reset",))
    request, outcome = bench.ask()
    bench.busy().refuse(lost())
    request.gone = CLIENT_GONE
    outcome.cancel()
    assert isinstance(outcome.reason, CancelledError)
    wait(bench)
    assert not any(connection.asked for connection in bench.connections)
    assert bench.time.idle or bench.settled()


def test_one_attempt_means_one() -> None:
    bench = retrying(on=("reset", "timeout"), statuses="500-599", attempts=1)
    _, outcome = bench.ask()
    bench.busy().refuse(Abort("refused stream", UPSTREAM, 502, ALWAYS))
    assert not outcome.open
    assert len(bench.connections) == 1


# -- clocks


def test_an_attempt_that_takes_too_long_is_given_up_for_another() -> None:
    bench = retrying(on=("timeout",), per_try=model.Seconds(1))
    _, outcome = bench.ask()
    first = bench.busy()
    bench.time.pass_by(1.1)
    assert not first.asked
    wait(bench)
    second = bench.busy()
    assert second is not first
    second.answer()
    assert outcome.status == 200


def test_the_last_one_that_takes_too_long_is_a_timeout() -> None:
    bench = retrying(on=("timeout",), per_try=model.Seconds(1), attempts=2)
    _, outcome = bench.ask()
    bench.time.pass_by(3)
    assert outcome.reason.status == 504
    assert outcome.reason.phase is Phase.RESPONSE_HEAD
    assert outcome.reason.who is UPSTREAM
    assert bench.settled()


def test_an_answer_in_time_leaves_no_clock_behind() -> None:
    bench = retrying(on=("timeout",), per_try=model.Seconds(1))
    _, outcome = bench.ask()
    bench.busy().answer()
    assert outcome.status == 200
    bench.cluster.drain()
    bench.time.pass_by(40)  # of an idle connection
    assert bench.time.idle


def test_pauses_are_at_random_and_grow_to_a_bound() -> None:
    retries = Retries(model.Retry(backoff=model.Seconds(0.1), max_backoff=model.Seconds(1)))
    random = Random(7)
    for failures, most in ((1, 0.1), (2, 0.2), (3, 0.4), (5, 1.0), (5000, 1.0)):
        pauses = [retries.pause(failures, random) for _ in range(300)]
        assert 0.0 <= min(pauses) < 0.1 * most
        assert 0.9 * most < max(pauses) <= most


# -- the budget


def storm(bench: Bench, requests: int, fail: Any) -> int:
    """So many requests, 100 a second, each attempt of which fails: how many attempts there were."""
    outcomes = []
    for _ in range(requests):
        outcomes.append(bench.ask()[1])
        bench.time.pass_by(0.05)
        for connection in bench.connections:
            while connection.asked:
                fail(connection)
    for _ in range(40):
        bench.time.pass_by(0.05)
        for connection in bench.connections:
            while connection.asked:
                fail(connection)
    assert all(not outcome.open for outcome in outcomes)
    return sum(len(connection.served) for connection in bench.connections)


@pytest.mark.parametrize(
    "fail",
    [
        lambda connection: connection.answer(503),
        lambda connection: connection.refuse(lost()),
        lambda connection: connection.refuse(LATE),
        lambda connection: connection.refuse(Abort("refused stream", UPSTREAM, 502, ALWAYS)),
    ],
    ids=["status", "reset", "timeout", "unread"],
)
def test_an_upstream_that_always_fails_is_asked_no_more_than_the_budget_on_top(fail: Any) -> None:
    bench = Bench(
        upstream(*TWO, retry=model.Retry(on=("reset", "timeout"), statuses="503", attempts=10, budget=20, floor=0))
    )
    sent = storm(bench, 500, fail)
    assert 500 < sent <= 600
    assert bench.time.counted.count("retry_budget_empty") > 100
    assert bench.time.counted.count("retry_sent") == sent - 500


def test_other_endpoints_than_one_that_is_down_cost_no_budget() -> None:
    bench = Bench(upstream(*TWO, retry=model.Retry(budget=0, floor=0)))
    bench.down.add("10.0.0.1")
    outcomes = []
    for _ in range(50):
        outcomes.append(bench.ask()[1])
        bench.busy().answer()
    assert [outcome.status for outcome in outcomes] == [200] * 50


# -- configuration


def test_faults_name_what_and_where() -> None:
    strange = model.Retry(
        backoff=model.Seconds(2), statuses="200-299", methods=("get", "P OST"), per_try=model.Seconds(1)
    )
    with pytest.raises(ConfigFaults) as caught:
        verify([upstream(*TWO), upstream(*TWO, retry=strange)])
    assert [(fault.path, fault.message) for fault in caught.value.faults] == [
        (("upstreams", 1, "retry", "perTry"), "an attempt that is cut off is sent again only with on: [timeout]"),
        (("upstreams", 1, "retry", "backoff"), "the first pause may be no longer than maxBackoff"),
        (("upstreams", 1, "retry", "statuses"), "only what tells of a failure, 400 to 599, can be tried again"),
        (("upstreams", 1, "retry", "methods", 0), "expected a method in capitals, such as POST"),
        (("upstreams", 1, "retry", "methods", 1), "expected a method in capitals, such as POST"),
    ]


def test_a_reload_changes_what_is_sent_again() -> None:
    bench = retrying()
    bench.cluster.update(upstream(*TWO, retry=model.Retry(statuses="503")), GATEWAY, bench.codec)
    _, outcome = bench.ask()
    bench.busy().answer(503)
    assert outcome.open
    wait(bench)
    bench.busy().answer()
    assert outcome.status == 200


# -- whatever happens


@settings(max_examples=60)
@given(data=st.data(), per_try=st.booleans(), hedged=st.booleans())
def test_every_request_ends_once_and_nothing_is_left(data: st.DataObject, per_try: bool, hedged: bool) -> None:
    """And what came of every attempt is told, whoever judges endpoints, and whatever pools have room for."""
    retry = model.Retry(
        on=("reset", "timeout"),
        statuses="503",
        attempts=data.draw(st.integers(1, 4)),
        per_try=model.Seconds(0.3 if per_try else 0),
        floor=data.draw(st.sampled_from([0, 10])),
    )
    hedge = model.Hedge(after=model.Seconds(0.1), floor=10) if hedged else None
    urls = [f"10.0.0.{number}:80" for number in range(1, data.draw(st.integers(1, 3)) + 1)]
    scope = data.draw(st.sampled_from(["endpoint", "upstream", None]))
    breaker = None if scope is None else model.CircuitBreaker(scope=scope, consecutive=3, open=model.Seconds(0.5))
    pool = model.PoolSettings(max_per_endpoint=data.draw(st.sampled_from([1, 100])))
    config = upstream(*urls, retry=retry, hedge=hedge, pool=pool, circuit_breaker=breaker)
    bench = Bench(config, seed=data.draw(st.integers(0, 99)))
    asked = []
    steps = [
        "get",
        "get",
        "put",
        "post",
        "answer",
        "answer",
        "503",
        "lose",
        "never",
        "refuse",
        "cancel",
        "wait",
        "down",
    ]
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=30)):
        busy = [connection for connection in bench.connections if connection.asked]
        if step in ("get", "put", "post"):
            asked.append(bench.ask(step.upper().encode(), body=FakeBody(3) if step == "put" else None))
        elif step == "wait":
            bench.time.pass_by(data.draw(st.sampled_from([0.05, 0.2, 0.5])))
        elif step == "cancel" and asked:
            request, outcome = data.draw(st.sampled_from(asked))
            request.gone = CLIENT_GONE
            outcome.cancel()
        elif step == "down":
            bench.down ^= {data.draw(st.sampled_from([url.partition(":")[0] for url in urls]))}
        elif busy:
            connection = data.draw(st.sampled_from(busy))
            if step in ("answer", "503"):
                connection.answer(503 if step == "503" else 200)
            elif step == "refuse":
                connection.refuse(Abort("refused", UPSTREAM, 502, ALWAYS))
            else:
                connection.lose(lost(NEVER) if step == "never" else None)
    for _ in range(60):
        bench.time.pass_by(0.05)
        for connection in bench.connections:
            while connection.asked:
                connection.answer()
    for request, outcome in asked:
        assert outcome.times == 1
        attempts, past = request.ledger.attempts, request.ledger.past
        given_up = 0 if past is None else len(past.attempts)
        assert attempts <= retry.attempts + (1 if hedged else 0)
        # The last one is the answer, or the failure; unless it ended in a pause.
        assert given_up == attempts - 1 or (outcome.response is None and given_up == attempts)
        made = [each for connection in bench.connections for each in connection.served if each is request]
        assert len(made) <= attempts
    assert bench.settled()
    told: list[None] = []
    bench.cluster.drain().addCallback(told.append)
    assert told == [None]
    bench.time.pass_by(40)
    assert bench.time.idle


def test_a_plain_request_is_left_alone() -> None:
    bench = Bench(upstream(*TWO), codec=Blunt())
    request = ask(b"POST", FakeBody())
    body = request.body
    bench.cluster.handle(request)
    assert request.body is body
    bench.busy().answer()
