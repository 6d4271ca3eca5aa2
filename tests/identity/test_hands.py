"""Work in threads, a little at a time."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError

from protogate.identity.hands import Busy, Hands
from protogate.testing.reactor import MemoryReactor


@pytest.fixture
def reactor():
    return MemoryReactor()


def test_jobs_are_done_in_order_and_failures_are_told(reactor):
    hands, done, failed = Hands(reactor, 2, 8), [], []

    def job(number):
        if number == 2:
            raise KeyError
        return number

    for number in range(5):
        hands.do(lambda number=number: job(number)).addCallbacks(
            done.append, lambda failure: failed.append(failure.type)
        )
    assert (done, len(hands.waiting)) == ([], 3)
    reactor.run()
    assert (done, failed, len(hands.waiting)) == ([0, 1, 3, 4], [KeyError], 0)


def test_who_finds_no_room_is_turned_away(reactor):
    hands, done = Hands(reactor, 1, 2), []
    for _ in range(3):
        hands.do(lambda: 1).addCallback(done.append)
    with pytest.raises(Busy):
        hands.do(lambda: 1)
    reactor.run()
    assert done == [1, 1, 1]
    hands.do(lambda: 2).addCallback(done.append)
    reactor.run()
    assert done[-1] == 2


def test_what_nobody_waits_for_is_not_begun(reactor):
    hands, begun, failed = Hands(reactor, 1, 2), [], []
    jobs = [hands.do(lambda number=number: begun.append(number)) for number in range(3)]
    for job in jobs:
        job.addErrback(lambda failure: failed.append(failure.type))
    jobs[1].cancel()
    jobs[0].cancel()  # at work: it goes on
    reactor.run()
    assert (begun, failed, len(hands.waiting)) == ([0, 2], [CancelledError, CancelledError], 0)


def test_what_was_begun_is_told_of_also_when_nobody_waits_for_it(reactor):
    hands, told = Hands(reactor, 1, 2), []
    waits = [hands.do(lambda number=number: number, told.append) for number in range(2)]

    def fails():
        raise KeyError

    waits.append(hands.do(fails, told.append))
    for wait in waits:
        wait.addErrback(lambda failure: None)
    waits[0].cancel()
    reactor.run()
    assert told == [0, 1]
