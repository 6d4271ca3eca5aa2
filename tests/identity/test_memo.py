"""What is remembered of credentials, and who waits for it."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from protogate.identity.memo import Memo


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def memo(clock):
    return Memo(clock.seconds, 3)


def test_an_answer_holds_for_its_time(memo, clock):
    assert memo.known(b"a") is None
    memo.keep(b"a", True, 5)
    memo.keep(b"never", True, 0)
    clock.advance(4.9)
    assert (memo.known(b"a"), memo.known(b"never")) == (True, None)
    clock.advance(0.1)
    assert memo.known(b"a") is None


def test_bad_news_takes_the_place_of_good_news(memo):
    memo.keep(b"a", True, 5)
    memo.keep(b"a", False, 5, good=False)
    assert memo.known(b"a") is False
    memo.keep(b"a", True, 5)
    assert memo.known(b"a") is True
    assert len(memo) == 1


def test_the_oldest_goes_and_guesses_drive_out_nobody(memo):
    for key in (b"a", b"b", b"c"):
        memo.keep(key, True, 60)
    for number in range(100):
        memo.keep(b"%d" % number, False, 60, good=False)
    assert [memo.known(key) for key in (b"a", b"b", b"c")] == [True] * 3
    assert len(memo) == 6
    memo.keep(b"d", True, 60)
    assert [memo.known(key) for key in (b"a", b"b", b"c", b"d")] == [None, True, True, True]


def test_the_same_question_is_asked_once(memo):
    asked, got = [], []

    def begin():
        asked.append(Deferred())
        return asked[-1]

    for _ in range(3):
        memo.ask(b"a", begin).addCallback(got.append)
    memo.ask(b"b", begin)
    assert len(asked) == 2
    asked[0].callback("yes")
    assert got == ["yes"] * 3
    memo.ask(b"a", begin)
    assert len(asked) == 3


def test_an_answer_at_once_is_an_answer(memo):
    got = []
    memo.ask(b"a", lambda: succeed(1)).addCallback(got.append)
    memo.ask(b"a", lambda: succeed(2)).addCallback(got.append)
    assert got == [1, 2]


def test_a_failure_is_told_to_all_and_not_remembered(memo):
    asked, failed = Deferred(), []
    for _ in range(2):
        memo.ask(b"a", lambda: asked).addErrback(lambda failure: failed.append(failure.type))
    asked.errback(KeyError())
    assert failed == [KeyError, KeyError]
    got = []
    memo.ask(b"a", lambda: succeed(1)).addCallback(got.append)
    assert got == [1]


def test_who_cannot_ask_leaves_nothing_behind(memo):
    def begin():
        raise KeyError

    with pytest.raises(KeyError):
        memo.ask(b"a", begin)
    got = []
    memo.ask(b"a", lambda: succeed(1)).addCallback(got.append)
    assert got == [1]


def test_a_question_is_given_up_when_all_have_left(memo):
    cancelled, failed = [], []
    asked = Deferred(cancelled.append)
    first, second = (memo.ask(b"a", lambda: asked) for _ in range(2))
    for each in (first, second):
        each.addErrback(lambda failure: failed.append(failure.type))
    first.cancel()
    assert (cancelled, failed) == ([], [CancelledError])
    second.cancel()
    assert (cancelled, failed) == ([asked], [CancelledError] * 2)
    got = []
    memo.ask(b"a", lambda: succeed(1)).addCallback(got.append)
    assert got == [1]


def test_one_that_left_hears_nothing_and_the_others_do(memo):
    asked, got = Deferred(), []
    first, second = (memo.ask(b"a", lambda: asked) for _ in range(2))
    first.addErrback(lambda failure: None)
    second.addCallback(got.append)
    first.cancel()
    asked.callback(1)
    assert got == [1]


def test_it_can_be_taken_over_and_forgotten(memo, clock):
    memo.keep(b"a", True, 5)
    other = Memo(clock.seconds, 3)
    other.inherit(memo)
    memo.forget()
    assert (memo.known(b"a"), other.known(b"a")) == (None, True)


def test_no_more_is_taken_over_than_there_is_room_for(memo, clock):
    for name in (b"a", b"b", b"c"):
        memo.keep(name, True, 5)
    small, none = Memo(clock.seconds, 2), Memo(clock.seconds, 0)
    small.inherit(memo)
    none.inherit(memo)
    assert [small.known(name) for name in (b"a", b"b", b"c")] == [None, True, True]
    assert len(none) == 0
