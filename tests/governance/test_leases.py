"""Portions of a shared limit: few questions, and never more than there is."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from protogate.governance.gcrascript import GCRA
from protogate.governance.leases import HORIZON, IDLE, LIFE, Leases
from protogate.governance.redis import Redises
from protogate.governance.redissettings import RedisSettings
from protogate.testing.reactor import MemoryReactor
from protogate.testing.redis import RedisServer, gcra
from protogate.wheel import Wheel

HOST = "192.0.2.9"


class Stand:
    """A Redis and processes that share a limit in it."""

    def __init__(self, each=1000.0, burst=1000, processes=1, most=1000):
        self.reactor = MemoryReactor()
        self.server = RedisServer(self.reactor.seconds, {GCRA: gcra})
        self.reactor.listenTCP(6379, self.server, interface=HOST)
        self.wheel = Wheel(self.reactor)
        self.redises = [Redises(self.reactor, self.wheel) for _ in range(processes)]
        args = (f"{1e6 / each:.9g}", burst)
        self.leases = [
            Leases(
                redises.take(RedisSettings(host=HOST)),
                GCRA,
                "t:",
                each,
                args,
                most,
                self.reactor.seconds,
                min(HORIZON, burst / each / 4),
            )
            for redises in self.redises
        ]
        self.reactor.run()

    def take(self, key="a", cost=1, process=0):
        """What becomes of one request."""
        left = self.leases[process].take(key, cost)
        if isinstance(left, Deferred):
            found = []
            left.addCallback(found.append)
            self.reactor.run()
            (left,) = found
        return left

    @property
    def questions(self):
        return sum(command[0] in {b"EVALSHA", b"EVAL"} for command in self.server.asked)

    def close(self):
        for redises in self.redises:
            redises.stop()
        self.reactor.run()
        self.wheel.stop()
        assert self.reactor.getDelayedCalls() == []


@pytest.fixture
def stand():
    made = Stand()
    yield made
    made.close()


def test_the_first_request_of_a_key_waits_for_the_answer(stand):
    left = stand.leases[0].take("a", 1)
    assert isinstance(left, Deferred)
    found = []
    left.addCallback(found.append)
    assert found == []
    stand.reactor.run()
    assert found == [999]


def test_a_busy_key_asks_about_twenty_times_a_second_and_seldom_waits(stand):
    for _ in range(200):  # warm
        assert stand.take() >= 0
        stand.reactor.advance(0.0025)
    before, waited = stand.questions, 0
    for _ in range(400):
        left = stand.leases[0].take("a", 1)
        waited += isinstance(left, Deferred)
        stand.reactor.advance(0.0025)
    assert stand.questions - before <= 1.5 / HORIZON
    assert waited <= 4


def test_a_portion_is_lost_when_its_time_is_over(stand):
    for _ in range(100):
        stand.take()
    stand.reactor.advance(0.01)
    held = stand.leases[0]._portions.get("a").units
    if not held:
        stand.take()
    stand.reactor.advance(LIFE + 0.001)
    before = stand.questions
    assert stand.take() >= 0
    assert stand.questions == before + 1


def test_requests_that_wait_are_served_in_turn_and_as_one_question(stand):
    stand = Stand(burst=10)
    order = []
    for n in range(15):
        stand.leases[0].take("a", 1).addCallback(lambda left, n=n: order.append((n, left >= 0)))
    stand.reactor.run()
    assert [n for n, _ in order] == list(range(15))
    assert [passed for _, passed in order] == [True] * 10 + [False] * 5
    assert stand.questions == 3, "EVALSHA, EVAL for the first; one for all others"
    stand.close()


def test_when_there_is_nothing_nobody_waits_and_nobody_is_asked(stand):
    stand = Stand(each=10.0, burst=10)
    while stand.take() >= 0:
        pass
    before = stand.questions
    for _ in range(100):
        left = stand.leases[0].take("a", 1)
        assert not isinstance(left, Deferred)
        assert -1.01 <= left < 0
    assert stand.questions == before
    stand.reactor.advance(0.11)
    assert stand.take() >= 0
    stand.close()


def test_a_costly_request_gets_all_or_nothing(stand):
    stand = Stand(each=10.0, burst=10)
    assert stand.take(cost=8) >= 0
    assert stand.take(cost=4) < 0
    stand.reactor.advance(0.25)
    assert stand.take(cost=4) >= 0, "what it could not use was not taken"
    stand.close()


def test_without_redis_it_does_not_know_and_nobody_waits(stand):
    assert stand.take() >= 0
    stand.server.drop()
    stand.reactor.run()
    assert stand.leases[0].take("a", 1) is None
    stand.reactor.advance(1)
    assert stand.take() >= 0


def test_who_waits_when_redis_goes_silent_is_told_after_the_timeout(stand):
    stand.server.silent = True
    found = []
    for _ in range(3):
        stand.leases[0].take("a", 1).addCallback(found.append)
    stand.reactor.advance(0.06)
    assert found == [None] * 3
    assert stand.leases[0].take("a", 1) is None
    stand.server.speak()
    stand.reactor.run()
    assert stand.take() >= 0


def test_an_answer_that_makes_no_sense_is_no_answer(stand, flush_errors):
    stand.server._twins[GCRA.sha] = (GCRA, lambda server, keys, args: b"what?")
    assert stand.take() is None
    stand.server._twins[GCRA.sha] = (GCRA, lambda server, keys, args: [1])
    assert stand.take() is None


def test_who_left_while_waiting_takes_nothing(stand):
    stand = Stand(burst=2)
    first, second, third = (stand.leases[0].take("a", 1) for _ in range(3))
    found = []
    second.addErrback(lambda _: None)
    for each in (first, third):
        each.addCallback(found.append)
    second.cancel()
    stand.reactor.run()
    assert [left >= 0 for left in found] == [True, True]
    stand.close()


def test_a_waiter_that_cancels_another_one_when_it_is_told(stand):
    stand.server.silent = True
    first, second = stand.leases[0].take("a", 1), stand.leases[0].take("a", 1)
    second.addErrback(lambda _: None)
    first.addCallback(lambda _: second.cancel())
    stand.reactor.advance(0.06)
    assert second.called


def test_what_redis_should_have_left_is_known_for_a_while(stand):
    assert stand.leases[0].left("a") is None
    stand.take(cost=400)
    assert stand.leases[0].left("a") == pytest.approx(600)
    stand.reactor.advance(0.1)
    assert stand.leases[0].left("a") == pytest.approx(700)


def test_keys_are_bounded_and_forgotten():
    stand = Stand(most=10)
    for n in range(30):
        assert stand.take(f"k{n}") >= 0
    assert len(stand.leases[0]._portions) <= 10
    stand.reactor.advance(IDLE + 1)
    for n in range(5):
        stand.take(f"n{n}")
    assert len(stand.leases[0]._portions) == 5
    stand.close()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([20.0, 100.0, 1000.0]),
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.sampled_from([0.0, 0.004, 0.05, 0.3])), max_size=60),
)
def test_all_processes_together_never_let_through_more_than_documented(processes, each, burst, steps):
    stand = Stand(each=each, burst=burst, processes=processes)
    begin, passed = stand.reactor.seconds(), []
    for process, requests, wait in steps:
        for _ in range(requests):
            if stand.take(process=process % processes) >= 0:
                passed.append(stand.reactor.seconds())
        stand.reactor.advance(wait)
    for index, at in enumerate(passed):
        assert index + 1 <= burst + each * (at - begin) + 0.01, "in all"
    for first in range(0, len(passed), 7):
        for last in range(first, len(passed), 5):
            seconds = passed[last] - passed[first]
            assert last - first + 1 <= burst + each * (seconds + 2 * LIFE) + 1, "in any time"
    stand.close()


@pytest.mark.unwatched
@pytest.mark.parametrize("over", [1.1, 1.5, 5])
@pytest.mark.parametrize(("each", "burst"), [(100.0, 10), (1000.0, 1000), (1000.0, 50), (50.0, 5)])
def test_two_gateways_of_four_workers_keep_to_the_limit(each, burst, over):
    """The burst is spent first; then, over ten seconds, within two percent."""
    processes, seconds, step = 8, 10.0, 0.01
    stand, chance = Stand(each=each, burst=burst, processes=processes), Random(7)

    def load(steps):
        passed, owed = 0, 0.0
        for _ in range(steps):
            owed += each * over * step * chance.uniform(0.5, 1.5)
            while owed >= 1:
                owed -= 1
                passed += stand.take(process=chance.randrange(processes)) >= 0
            stand.reactor.advance(step)
        return passed

    while stand.take() >= 0:
        pass
    load(round(1 / step))
    passed = load(round(seconds / step))
    assert passed == pytest.approx(each * seconds, rel=0.02)
    stand.close()
