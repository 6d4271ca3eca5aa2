"""Rules of a pool, on connections that a test opens, answers and breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_upstream import FakeAttempt, FakeConnection, FakeConnector, Outcome, Time, ask, lost, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail
from zope.interface.verify import verifyObject

from protogate.config.model import PoolSettings, Seconds
from protogate.errors import ALWAYS, GATEWAY, NEVER, UPSTREAM, Abort, Phase
from protogate.interfaces import IService
from protogate.upstream.pool import Pool, Stats


class Bench:
    """A pool with everything around it."""

    def __init__(self, most: int = 10, queue: int = 100, idle: float = 30.0, reuse: int = 0, **timeouts: float) -> None:
        self.time = Time(**timeouts)
        self.connector = FakeConnector()
        settings = PoolSettings(idle=Seconds(idle), max_per_endpoint=most, max_reuse=reuse, queue=queue)
        self.pool = Pool(self.connector, self.time.context, settings, "up.test:80")

    @property
    def attempts(self) -> list[FakeAttempt]:
        return self.connector.attempts

    def ask(self, fresh: bool = False) -> Outcome:
        return Outcome(self.pool.fresh(ask()) if fresh else self.pool.handle(ask()))

    def connected(self, most: int = 1) -> FakeConnection:
        """A pool with one idle connection that served a request."""
        outcome = self.ask()
        connection = self.attempts[-1].up(most)
        connection.answer()
        assert outcome.status == 200
        return connection


def test_it_is_a_service() -> None:
    verifyObject(IService, Bench().pool)


# -- connections and requests


def test_the_first_request_makes_a_connection_and_the_next_uses_it() -> None:
    bench = Bench()
    first = bench.ask()
    assert first.open
    connection = bench.attempts[0].up()
    connection.answer(201)
    assert first.status == 201
    second = bench.ask()
    connection.answer(202)
    assert second.status == 202
    assert len(bench.attempts) == 1


def test_a_connection_that_raises_is_not_trusted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(most=1)
    connection = bench.connected()
    monkeypatch.setattr(connection, "handle", lambda request: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.ask()
    assert connection.dead
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    assert bench.connected().served, "its place is free"


def test_the_connection_used_last_is_used_next() -> None:
    bench = Bench()
    old = bench.connected()
    busy, also = bench.ask(), bench.ask()
    new = bench.attempts[-1].up()
    old.answer()
    new.answer()
    outcome = bench.ask()
    assert (len(old.asked), len(new.asked)) == (0, 1)
    new.answer()
    assert [busy.status, also.status, outcome.status] == [200] * 3


def test_only_one_attempt_until_capacity_is_known_then_as_many_as_the_queue_needs() -> None:
    bench = Bench(most=4)
    outcomes = [bench.ask() for _ in range(10)]
    assert len(bench.attempts) == 1
    bench.attempts[0].up()
    assert len(bench.attempts) == 4
    assert bench.pool.stats() == Stats(open=1, idle=0, waiting=9, connecting=3)
    assert all(outcome.open for outcome in outcomes)


def test_one_connection_that_carries_many_takes_the_whole_queue() -> None:
    bench = Bench()
    outcomes = [bench.ask() for _ in range(10)]
    connection = bench.attempts[0].up(most=8)
    assert len(connection.asked) == 8
    assert len(bench.attempts) == 2
    while connection.asked:
        connection.answer()
    assert all(outcome.status == 200 for outcome in outcomes)


def test_requests_are_served_in_the_order_they_came() -> None:
    bench = Bench(most=1)
    requests = [ask() for _ in range(5)]
    for request in requests:
        Outcome(bench.pool.handle(request))
    connection = bench.attempts[0].up()
    while connection.asked:
        connection.answer()
    assert connection.served == requests


def test_a_connection_without_capacity_is_passed_over() -> None:
    bench = Bench()
    connection = bench.connected()
    connection.draining = True  # GOAWAY: nobody was told
    outcome = bench.ask()
    assert not connection.asked
    bench.attempts[-1].up().answer()
    assert outcome.status == 200


def test_a_connection_that_died_while_idle_is_forgotten() -> None:
    bench = Bench()
    bench.connected().lose()
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    outcome = bench.ask()
    bench.attempts[-1].up().answer()
    assert outcome.status == 200


def test_an_answer_at_once_is_handed_through() -> None:
    bench = Bench()
    connection = bench.connected()
    from protogate.message import Response

    connection.handle = lambda request: Response(204)  # type: ignore[method-assign, assignment, return-value]
    answer = bench.pool.handle(ask())
    assert isinstance(answer, Response)
    assert answer.status == 204


def test_a_connection_is_not_used_more_often_than_allowed() -> None:
    bench = Bench(reuse=2)
    first = bench.connected()
    outcome = bench.ask()
    assert first.draining
    first.answer()
    assert outcome.status == 200
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    bench.connected()
    assert len(bench.attempts) == 2


def test_a_request_that_waits_takes_the_place_of_a_closed_connection() -> None:
    bench = Bench(most=1)
    bench.connected()
    first, second = bench.ask(), bench.ask()
    connection = bench.pool._links
    assert len(connection) == 1
    next(iter(connection)).connection.lose()  # type: ignore[union-attr]
    assert first.reason.retry is lost().retry
    bench.attempts[-1].up().answer()
    assert second.status == 200


# -- ledger


def test_the_ledger_says_when_a_connection_took_the_request_and_what_making_it_took() -> None:
    bench = Bench()
    request = ask()
    Outcome(bench.pool.handle(request))
    bench.attempts[0].times.dns, bench.attempts[0].times.connect = 0.25, 0.5
    bench.time.clock.advance(2)
    connection = bench.attempts[0].up()
    assert request.ledger is not None
    ledger = request.ledger
    assert (ledger.connected, ledger.dns, ledger.connect, ledger.reused) == (1002.0, 0.25, 0.5, False)
    connection.answer()
    again = ask()
    Outcome(bench.pool.handle(again))
    assert again.ledger is not None
    assert (again.ledger.connected, again.ledger.dns, again.ledger.reused) == (1002.0, 0.0, True)


def test_the_ledger_says_how_long_a_failed_attempt_took() -> None:
    bench = Bench()
    request = ask()
    outcome = Outcome(bench.pool.handle(request))
    bench.attempts[0].times.connect = 3.0
    bench.attempts[0].down()
    assert outcome.reason.error == "connection_refused"
    assert request.ledger is not None
    assert (request.ledger.connect, request.ledger.connected) == (3.0, 0.0)


def test_a_request_without_a_ledger_is_served_all_the_same() -> None:
    bench = Bench()
    request = ask()
    request.ledger = None
    outcome, failed = Outcome(bench.pool.handle(request)), ask()
    failed.ledger = None
    bench.attempts[0].up().answer()
    assert outcome.status == 200


# -- failures of attempts


def test_a_failed_attempt_fails_all_that_wait_when_there_is_no_other_hope() -> None:
    bench = Bench()
    outcomes = [bench.ask() for _ in range(5)]
    bench.attempts[0].down()
    assert [outcome.reason.error for outcome in outcomes] == ["connection_refused"] * 5
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def test_a_failed_attempt_fails_one_that_waits_while_something_is_up_or_coming() -> None:
    bench = Bench(most=3)
    outcomes = [bench.ask() for _ in range(6)]
    connection = bench.attempts[0].up()
    bench.attempts[1].down()
    assert [outcome.open for outcome in outcomes] == [True, False, True, True, True, True]
    assert len(bench.attempts) == 4  # there is one for the next
    connection.answer()
    assert outcomes[2].open
    assert connection.served[1] is not None


def test_a_dead_upstream_is_not_stormed() -> None:
    bench = Bench(most=50)
    connection = bench.connected()
    connection.lose()
    for _ in range(200):
        bench.ask()
    under_way = len(bench.attempts) - 1
    assert under_way == 50
    for attempt in bench.attempts[1:51]:
        attempt.down()
    assert len(bench.attempts) - 1 <= 51  # the last failure took everybody with it, or one new attempt is made
    for attempt in bench.attempts[51:]:
        attempt.down()
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def test_an_attempt_that_breaks_is_logged_and_reported_as_ours(flush_errors: Callable[..., list[Any]]) -> None:
    bench = Bench()
    outcome = bench.ask()
    bench.attempts[0].down(ValueError("no such thing"))
    assert (outcome.reason.who, outcome.reason.error) == (GATEWAY, "proxy_internal_error")
    assert len(flush_errors(ValueError)) == 1


def test_a_connector_that_fails_at_once_fails_the_request_at_once() -> None:
    bench = Bench()
    bench.connector.connect = lambda ready, times: fail(refused())  # type: ignore[method-assign]
    assert bench.ask().reason.error == "connection_refused"
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def test_a_connector_that_is_ready_at_once_is_used_at_once() -> None:
    bench = Bench()
    made: list[FakeConnection] = []

    def connect(ready: Any, times: Any) -> Deferred[None]:
        made.append(FakeConnection(ready))
        ready(made[0])
        return Deferred()

    bench.connector.connect = connect  # type: ignore[method-assign]
    outcome = bench.ask()
    made[0].answer()
    assert outcome.status == 200
    assert bench.pool.stats() == Stats(1, 1, 0, 0)


# -- cancelling


def test_a_cancelled_request_leaves_the_queue_and_the_connection_serves_the_next() -> None:
    bench = Bench()
    first, second = bench.ask(), bench.ask()
    first.cancel()
    connection = bench.attempts[0].up()
    assert len(connection.served) == 1
    connection.answer()
    assert second.status == 200
    assert first.times == 1


def test_a_connection_made_for_a_request_that_left_is_kept() -> None:
    bench = Bench()
    bench.ask().cancel()
    connection = bench.attempts[0].up()
    assert bench.pool.stats() == Stats(1, 1, 0, 0)
    outcome = bench.ask()
    connection.answer()
    assert outcome.status == 200


def test_cancelling_reaches_the_connection_that_took_the_request_from_the_queue() -> None:
    bench = Bench()
    outcome = bench.ask()
    connection = bench.attempts[0].up()
    outcome.cancel()
    assert len(connection.cancelled) == 1
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def _raise_before(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    outcome.cancel()  # what an exchange does when a module raises, a deadline passes or the client leaves


def _answer(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.answer()


def _server_error(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.answer(500)


def _lost(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.lose()


def _refused_unread(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.refuse(Abort("refused stream", UPSTREAM, 502, ALWAYS))


def _goes_away(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.drain()
    connection.answer()


def _tunnel(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.draining = True
    connection.answer(101)


def _interim_then_close(bench: Bench, connection: FakeConnection, outcome: Outcome) -> None:
    connection.asked[0][0].interim(outcome.response)  # type: ignore[arg-type]
    connection.lose(lost(NEVER))


@pytest.mark.parametrize(
    "leave",
    [_raise_before, _answer, _server_error, _lost, _refused_unread, _goes_away, _tunnel, _interim_then_close],
)
@pytest.mark.parametrize("waits", [False, True])
def test_with_one_connection_every_exit_leaves_room_for_the_next_request(leave: Any, waits: bool) -> None:
    bench = Bench(most=1)
    outcome = bench.ask()
    connection = bench.attempts[0].up()
    following = bench.ask() if waits else None
    leave(bench, connection, outcome)
    assert outcome.times == 1
    if following is None:
        following = bench.ask()
    if len(bench.attempts) > 1:
        connection = bench.attempts[-1].up()
    connection.answer()
    assert following.status == 200
    assert bench.pool.stats() == Stats(open=1, idle=1, waiting=0, connecting=0)


# -- the queue


def test_the_queue_is_bounded() -> None:
    bench = Bench(most=1, queue=2)
    outcomes = [bench.ask() for _ in range(3)]
    assert [outcome.open for outcome in outcomes] == [True, True, False]
    reason = outcomes[2].reason
    assert (reason.status, reason.who, reason.error, reason.retry) == (503, GATEWAY, "connection_limit_reached", ALWAYS)
    assert (b"retry-after", b"1") in reason.headers
    assert reason.phase is None
    assert bench.time.counted == ["queue_full"]


def test_who_waits_too_long_gets_503() -> None:
    bench = Bench(most=1, queue=10, idle=0)
    bench.connected()
    busy = bench.ask()
    late = bench.ask()
    bench.time.pass_by(3)
    later = bench.ask()
    bench.time.pass_by(2.1)
    reason = late.reason
    assert (reason.status, reason.who, reason.phase, reason.error) == (
        503, GATEWAY, Phase.QUEUE, "connection_limit_reached",
    )  # fmt: skip
    assert (b"retry-after", b"1") in reason.headers
    assert busy.open
    assert later.open
    bench.time.pass_by(3)
    assert later.reason.phase is Phase.QUEUE
    assert busy.open
    assert bench.time.counted == ["queue_timeout", "queue_timeout"]


def test_no_queue_clock_when_it_is_off() -> None:
    bench = Bench(most=1, queue=10, idle=0)
    bench.time.context.timeouts = Time(queue=0.0).context.timeouts
    bench.connected()
    bench.ask()
    waits = bench.ask()
    bench.time.pass_by(60)
    assert waits.open


def test_a_request_for_which_a_connection_is_made_waits_for_that_attempt() -> None:
    bench = Bench(queue=10)
    outcome, behind = bench.ask(), bench.ask()
    bench.time.pass_by(6)
    assert outcome.open
    assert behind.reason.phase is Phase.QUEUE
    bench.attempts[0].up().answer()
    assert outcome.status == 200


def test_who_was_spared_is_late_when_its_attempt_is_over() -> None:
    bench = Bench(most=3)
    bench.connected()
    outcomes = [bench.ask() for _ in range(3)]  # one is served, two wait for two attempts
    assert len(bench.attempts) == 3
    bench.pool.settings = PoolSettings(max_per_endpoint=1)
    bench.time.pass_by(6)
    assert all(outcome.open for outcome in outcomes)
    bench.attempts[1].down()
    assert [outcome.open for outcome in outcomes] == [True, False, True]
    bench.attempts[2].down()
    assert outcomes[2].reason.error == "connection_refused"
    assert outcomes[0].open


@pytest.mark.parametrize("works", [False, True])
def test_who_was_spared_for_more_than_the_attempt_brings_is_late_at_once(works: bool) -> None:
    bench = Bench(most=2, idle=0)
    bench.connected(most=3)
    served = [bench.ask() for _ in range(3)]
    outcomes = [bench.ask() for _ in range(3)]  # one attempt, which is thought to carry three
    bench.time.pass_by(6)
    assert all(outcome.open for outcome in outcomes)
    if works:
        bench.attempts[1].up(most=1)
    else:
        bench.attempts[1].down()
    assert outcomes[0].open is works
    assert [outcome.reason.phase for outcome in outcomes[1:]] == [Phase.QUEUE] * 2
    assert all(outcome.open for outcome in served)


def test_the_clock_stands_still_when_nobody_waits() -> None:
    bench = Bench(idle=0)
    outcome = bench.ask()
    assert bench.pool._waiting.clock.active
    bench.attempts[0].up().answer()
    assert outcome.status == 200
    assert not bench.pool._waiting.clock.active
    assert not bench.pool._reaper.active


def test_the_clock_stands_still_when_who_waited_left() -> None:
    bench = Bench()
    bench.ask().cancel()
    assert not bench.pool._waiting.clock.active


def test_telling_one_that_it_is_late_may_cancel_another() -> None:
    bench = Bench(most=1, idle=0)
    bench.connected()
    bench.ask()
    first = bench.pool.handle(ask())
    second = Outcome(bench.pool.handle(ask()))
    assert isinstance(first, Deferred)
    first.addErrback(lambda failure: second.cancel())
    bench.time.pass_by(6)
    assert second.times == 1


# -- idle connections


def test_idle_connections_are_closed_after_a_while() -> None:
    bench = Bench(idle=30)
    old = bench.connected()
    bench.time.pass_by(20)
    keep = bench.ask()
    other = bench.ask()
    new = bench.attempts[-1].up()
    new.answer()
    bench.time.pass_by(20)
    assert not new.dead
    old.answer()
    assert [keep.status, other.status] == [200, 200]
    bench.time.pass_by(11)
    assert new.dead
    assert not old.dead
    bench.time.pass_by(20)
    assert old.dead
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    bench.time.pass_by(1)
    assert bench.time.idle


def test_a_connection_in_use_is_never_reaped() -> None:
    bench = Bench(idle=1)
    bench.connected()
    outcome = bench.ask()
    bench.time.pass_by(10)
    assert outcome.open
    assert bench.pool.stats().open == 1


def test_a_connection_that_carries_several_is_reaped_only_when_it_carries_none() -> None:
    bench = Bench(idle=1)
    connection = bench.connected(most=3)
    outcome = bench.ask()
    bench.time.pass_by(5)
    assert not connection.draining
    connection.answer()
    assert outcome.status == 200
    bench.time.pass_by(2.2)
    assert connection.dead


# -- fresh connections


def test_fresh_never_uses_an_old_connection() -> None:
    bench = Bench()
    old = bench.connected()
    outcome = bench.ask(fresh=True)
    assert not old.asked
    new = bench.attempts[-1].up()
    new.answer()
    assert outcome.status == 200


def test_fresh_closes_an_idle_connection_when_there_is_no_room() -> None:
    bench = Bench(most=1)
    old = bench.connected()
    outcome = bench.ask(fresh=True)
    assert old.dead
    bench.attempts[-1].up().answer()
    assert outcome.status == 200


def test_fresh_waits_for_a_place_and_takes_that_of_the_first_that_falls_idle() -> None:
    bench = Bench(most=1)
    old = bench.connected()
    busy = bench.ask()
    outcome = bench.ask(fresh=True)
    assert bench.pool.stats().waiting == 1
    old.answer()
    assert busy.status == 200
    assert old.dead
    bench.attempts[-1].up().answer()
    assert outcome.status == 200


def test_fresh_waits_for_a_connection_that_is_about_to_close() -> None:
    bench = Bench(most=1)
    old = bench.connected()
    old.lazy = True
    busy = bench.ask()
    old.lose()
    outcome = bench.ask(fresh=True)
    assert len(bench.attempts) == 1
    old.end()
    bench.attempts[1].up().answer()
    assert outcome.status == 200
    assert busy.reason.retry is lost().retry


@pytest.mark.parametrize("first", [1, 2])
def test_fresh_takes_the_place_of_a_connection_that_carries_several_when_that_has_finished(first: int) -> None:
    bench = Bench(most=1)
    outcomes = [bench.ask() for _ in range(first)]
    old = bench.attempts[0].up(most=2)
    outcome = bench.ask(fresh=True)
    for _ in range(first):
        assert not old.dead
        old.answer()
    assert old.dead
    bench.attempts[1].up(most=2).answer()
    assert [each.status for each in (*outcomes, outcome)] == [200] * (first + 1)


def test_no_more_connections_are_replaced_than_needed() -> None:
    bench = Bench(most=2)
    for _ in range(2):
        bench.ask()
    one = bench.attempts[0].up()
    other = bench.attempts[1].up()
    one.lazy = other.lazy = True
    outcome = bench.ask(fresh=True)
    one.answer()
    other.answer()
    assert one.draining
    assert not other.draining
    one.end()
    new = bench.attempts[2].up()
    new.answer()
    assert outcome.status == 200
    for _ in range(2):  # both are busy again
        bench.ask()
    again = bench.ask(fresh=True)
    new.answer()
    assert new.draining
    bench.attempts[3].up().answer()
    assert again.status == 200


def test_fresh_has_the_queue_clock_too() -> None:
    bench = Bench(most=1, idle=0)
    bench.connected()
    bench.ask()
    outcome = bench.ask(fresh=True)
    bench.time.pass_by(6)
    assert outcome.reason.phase is Phase.QUEUE


def test_those_who_need_a_fresh_connection_share_it_as_far_as_it_carries_them() -> None:
    bench = Bench()
    bench.ask()
    bench.attempts[0].up(most=4)
    outcomes = [bench.ask(fresh=True) for _ in range(6)]
    assert len(bench.attempts) == 3, "6 on connections that carry 4"
    assert bench.pool.stats().waiting == 6
    one, other = (attempt.up(most=4) for attempt in bench.attempts[1:])
    assert (len(one.asked), len(other.asked)) == (4, 2)
    for connection in (one, other):
        while connection.asked:
            connection.answer()
    assert [each.status for each in outcomes] == [200] * 6


def test_no_more_room_is_made_for_them_than_they_need() -> None:
    bench = Bench(most=2)
    outcomes = [bench.ask() for _ in range(5)]
    old = bench.attempts[0].up(most=4)
    other = bench.attempts[1].up(most=4)
    fresh = [bench.ask(fresh=True) for _ in range(3)]
    assert [old.draining, other.draining].count(True) == 1
    for connection in (old, other):
        while connection.asked:
            connection.answer()
    new = bench.attempts[2].up(most=4)
    while new.asked:
        new.answer()
    assert [each.status for each in (*outcomes, *fresh)] == [200] * 8


def test_whose_shared_fresh_connection_fails_gets_one_of_its_own() -> None:
    bench = Bench()
    bench.ask()
    bench.attempts[0].up(most=4)
    first, *others = [bench.ask(fresh=True) for _ in range(3)]
    assert len(bench.attempts) == 2
    bench.attempts[1].down()
    assert first.reason.error == "connection_refused"
    assert len(bench.attempts) == 3
    third = bench.attempts[2].up(most=4)
    third.answer()
    third.answer()
    assert [each.status for each in others] == [200] * 2


def test_a_shared_fresh_connection_goes_on_for_the_others_when_its_first_request_is_given_up() -> None:
    bench = Bench()
    bench.ask()
    bench.attempts[0].up(most=4)
    first, other = (bench.ask(fresh=True) for _ in range(2))
    first.cancel()
    bench.attempts[1].up(most=4).answer()
    assert other.status == 200


def test_who_waits_for_a_shared_fresh_connection_waits_as_long_as_that_takes() -> None:
    bench = Bench()
    bench.ask()
    bench.attempts[0].up(most=4)
    outcomes = [bench.ask(fresh=True) for _ in range(2)]
    bench.time.pass_by(6)
    connection = bench.attempts[1].up(most=4)
    connection.answer()
    connection.answer()
    assert [each.status for each in outcomes] == [200] * 2


def test_a_failed_attempt_for_a_fresh_connection_fails_that_request_alone() -> None:
    bench = Bench()
    plain = bench.ask()
    fresh = bench.ask(fresh=True)
    assert len(bench.attempts) == 2
    bench.attempts[1].down()
    assert fresh.reason.error == "connection_refused"
    assert plain.open
    bench.attempts[0].down()
    assert not plain.open


def test_a_fresh_connection_nobody_wants_any_more_serves_who_waits() -> None:
    bench = Bench(most=1)
    fresh = bench.ask(fresh=True)
    plain = bench.ask()
    fresh.cancel()
    bench.attempts[0].up().answer()
    assert plain.status == 200
    assert fresh.times == 1


# -- drain


def test_drain_closes_the_idle_and_finishes_the_rest() -> None:
    bench = Bench()
    idle = bench.connected()
    busy = bench.ask()
    other = bench.ask()
    new = bench.attempts[-1].up()
    new.answer()
    drained: list[None] = []
    bench.pool.drain().addCallback(drained.append)
    assert new.dead
    assert not idle.dead
    assert not drained
    refused_now = bench.ask()
    assert (refused_now.reason.status, refused_now.reason.retry) == (503, ALWAYS)
    idle.answer()
    assert [busy.status, other.status] == [200, 200]
    assert idle.dead
    assert drained == [None]
    bench.time.pass_by(0.1)
    assert bench.time.idle


def test_drain_serves_who_waits() -> None:
    bench = Bench(most=1)
    connection = bench.connected()
    first, second = bench.ask(), bench.ask()
    drained: list[None] = []
    bench.pool.drain().addCallback(drained.append)
    connection.answer()
    assert second.open
    connection.answer()
    assert [first.status, second.status] == [200, 200]
    assert drained == [None]


def test_drain_makes_a_connection_for_who_waits() -> None:
    bench = Bench(most=1)
    outcome = bench.ask()
    drained: list[None] = []
    bench.pool.drain().addCallback(drained.append)
    connection = bench.attempts[0].up()
    connection.answer()
    assert outcome.status == 200
    assert drained == [None]


def test_drain_with_a_reason_sends_who_waits_away() -> None:
    bench = Bench(most=1)
    connection = bench.connected()
    busy, waits, fresh = bench.ask(), bench.ask(), bench.ask(fresh=True)
    bench.pool.drain(refused())
    assert waits.reason.error == fresh.reason.error == "connection_refused"
    connection.answer()
    assert busy.status == 200
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def test_drain_with_a_reason_gives_up_attempts_made_for_one_request() -> None:
    bench = Bench()
    fresh = bench.ask(fresh=True)
    bench.pool.drain(refused())
    assert not fresh.open
    assert bench.attempts[0].cancelled


def test_who_waits_can_be_sent_away_and_the_pool_goes_on() -> None:
    bench = Bench(most=2, queue=5)
    first = bench.ask()
    connection = bench.attempts[0].up()
    waiting, fresh = bench.ask(), bench.ask(fresh=True)
    reason = Abort("not well", GATEWAY, 503, ALWAYS)
    bench.pool.shed(reason)
    assert (waiting.reason, fresh.reason, first.open) == (reason, reason, True)
    assert bench.pool.stats() == Stats(open=1, idle=0, waiting=0, connecting=1)
    assert not bench.attempts[1].cancelled
    bench.attempts[1].up()
    connection.answer()
    assert first.status == 200
    later = bench.ask()
    assert bench.pool.stats() == Stats(open=2, idle=1, waiting=0, connecting=0)
    assert later.open
    bench.pool.shed(reason)
    assert later.open, "it has its connection"


def test_drain_gives_up_attempts_nobody_needs() -> None:
    bench = Bench()
    bench.ask().cancel()
    drained: list[None] = []
    bench.pool.drain().addCallback(drained.append)
    assert bench.attempts[0].cancelled
    assert drained == [None]
    late = FakeConnection(bench.attempts[0].ready)
    bench.attempts[0].ready(late)  # a connector that breaks its promise
    assert late.dead


def test_an_attempt_that_is_given_up_while_it_begins_is_cancelled() -> None:
    bench = Bench()
    plain = bench.connector.connect

    def connect(ready: Any, times: Any) -> Deferred[None]:
        bench.pool.drain(refused())
        return plain(ready, times)

    bench.connector.connect = connect  # type: ignore[method-assign]
    assert bench.ask().reason.error == "connection_refused"
    assert bench.attempts[0].cancelled
    assert bench.pool.stats() == Stats(0, 0, 0, 0)


def test_draining_twice_and_cancelling_one_wait_harms_nobody() -> None:
    bench = Bench()
    bench.connected()
    busy = bench.ask()
    told: list[str] = []
    first = bench.pool.drain().addCallback(lambda _: told.append("first"))
    bench.pool.drain().addCallback(lambda _: told.append("second"))
    first.cancel()
    assert told == ["first"]
    bench.pool._links.copy().popitem()[0].connection.answer()  # type: ignore[union-attr]
    assert busy.status == 200
    assert told == ["first", "second"]


def test_abort_ends_everything() -> None:
    bench = Bench(most=2)
    bench.connected()
    busy, waits, late = bench.ask(), bench.ask(), bench.ask()
    bench.pool.abort()
    assert busy.reason.retry is lost().retry
    assert waits.reason.status == late.reason.status == 503
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    bench.time.pass_by(0.1)
    assert bench.time.idle


def test_a_pool_that_is_gone_is_not_held_by_its_connections() -> None:
    bench = Bench()
    connection = bench.connected()
    link = next(iter(bench.pool._links))
    bench.pool.drain()
    assert connection.dead
    assert link.connection is None


# -- whatever happens, in whatever order


@settings(max_examples=150)
@given(
    data=st.data(),
    most=st.integers(1, 3),
    queue=st.integers(1, 6),
    carries=st.integers(1, 3),
    reuse=st.integers(0, 3),
    lazy=st.booleans(),
)
def test_no_request_is_lost_or_answered_twice(
    data: st.DataObject, most: int, queue: int, carries: int, reuse: int, lazy: bool
) -> None:
    bench = Bench(most=most, queue=queue, reuse=reuse, idle=4)
    pool, outcomes, connections = bench.pool, [], []

    def pending() -> list[FakeAttempt]:
        return [attempt for attempt in bench.attempts if not attempt.deferred.called]

    def act(step: str) -> None:
        if step in ("ask", "fresh"):
            outcomes.append(bench.ask(step == "fresh"))
        elif step in ("up", "down") and pending():
            attempt = data.draw(st.sampled_from(pending()))
            if step == "up":
                connections.append(attempt.up(carries))
                connections[-1].lazy = lazy
            else:
                attempt.down()
        elif step == "cancel" and outcomes:
            data.draw(st.sampled_from(outcomes)).cancel()
        elif step == "time":
            bench.time.pass_by(data.draw(st.sampled_from([0.1, 2.0, 6.0])))
        elif connections:
            connection = data.draw(st.sampled_from(connections))
            if step == "answer" and connection.asked:
                connection.answer(index=data.draw(st.integers(0, len(connection.asked) - 1)))
            elif step == "lose" and not connection.dead:
                connection.lose()
            elif step == "goaway" and not connection.dead:
                connection.drain()
            elif step == "end" and connection.dead:
                connection.end()

    steps = ["ask", "ask", "fresh", "up", "up", "down", "cancel", "answer", "answer", "lose", "goaway", "end", "time"]
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=40)):
        act(step)
        stats = pool.stats()
        assert stats.open + stats.connecting <= most
        assert pool._waiting.number <= queue
        assert all(outcome.times <= 1 for outcome in outcomes)
        if pool._waiting.usual and not any(c.dead and not c.closed.called for c in connections):
            # somebody is at work for who waits, or everything allowed is
            assert stats.connecting or stats.open == most or stats.open - stats.idle > 0

    drained: list[None] = []
    pool.drain().addCallback(drained.append)
    for _ in range(200):
        if drained:
            break
        for attempt in pending():
            if not attempt.deferred.called:  # given up while another one came up
                connections.append(attempt.up(carries))
        for connection in connections:
            while connection.asked:
                connection.answer()
            if connection.dead:
                connection.end()
    assert drained == [None]
    assert all(outcome.times == 1 for outcome in outcomes)
    assert pool.stats() == Stats(0, 0, 0, 0)
    bench.time.pass_by(0.2)
    assert bench.time.idle
