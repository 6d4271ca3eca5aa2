"""Asking a service something: whole answers, within limits, given up for good."""

from __future__ import annotations

import gc

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from protogate.body import Whole
from protogate.errors import UPSTREAM, Abort, ConfigError
from protogate.governance.asking import Answer, Question, ask
from protogate.message import Response
from protogate.testing.bodies import Giver
from protogate.testing.means import Service
from protogate.wheel import Wheel

HERE = Question.of_url("http://keys.test/jwks?v=2")


class Asked:
    """A question under way to a service that answers by C{answer}."""

    def __init__(self, answer, seconds=5.0, limit=10):
        self.clock = Clock()
        self.clock.advance(100)
        self.service = Service(answer)
        self.results = []
        self.deferred = ask(self.service, HERE.request(), Wheel(self.clock), seconds, limit)
        self.deferred.addBoth(self.results.append)

    @property
    def failure(self):
        (result,) = self.results
        assert isinstance(result, Failure)
        return result.value


def test_a_url_is_asked_by_its_own_name():
    asked = Asked(lambda request: Response(200, [(b"etag", b'"1"')], Whole(b"{}")))
    assert [(one.method, one.target, one.authority, one.scheme) for one in asked.service.requests] == [
        (b"GET", b"/jwks?v=2", b"keys.test", b"http")
    ]
    assert asked.results == [Answer(200, [(b"etag", b'"1"')], b"{}")]


@pytest.mark.parametrize(
    ("url", "service", "authority", "target"),
    [
        ("https://a.test", "https://a.test:443", b"a.test", b"/"),
        ("https://a.test:8443/x", "https://a.test:8443", b"a.test:8443", b"/x"),
        ("http://[2001:db8::1]:80/x?a=b?c", "http://[2001:db8::1]:80", b"[2001:db8::1]", b"/x?a=b?c"),
    ],
)
def test_urls(url, service, authority, target):
    assert Question.of_url(url) == Question(service, url.partition(":")[0].encode(), authority, target)


@pytest.mark.parametrize(
    "url", ["", "keys.test", "ftp://a.test/", "http://u:p@a.test/", "http://a.test/\nx", "http://a.test/?a b"]
)
def test_what_is_no_url(url):
    with pytest.raises(ConfigError):
        Question.of_url(url)


@pytest.mark.parametrize(("name", "path"), [("", "/"), (7, "/"), ("a", "x"), ("a", "/a b\n"), ("a", "/ä"), ("a", 7)])
def test_what_is_no_path_of_an_upstream(name, path):
    with pytest.raises(ConfigError):
        Question.of_upstream(name, path)


def test_an_answer_without_content_is_empty():
    assert Asked(lambda request: Response(204)).results == [Answer(204, [], b"")]


def test_an_answer_in_pieces_is_whole():
    giver = Giver([b"abc", b"def"], None)
    asked = Asked(lambda request: Response(200, body=giver.body))
    assert asked.results == [Answer(200, [], b"abcdef")]


def test_an_answer_that_says_it_is_too_long_is_not_read():
    giver = Giver([b"x" * 11], 11)
    asked = Asked(lambda request: Response(200, body=giver.body))
    assert asked.failure.status == 502
    assert "too long" in str(asked.failure)
    assert giver.stopped


def test_an_answer_that_gets_too_long_is_stopped():
    giver = Giver([b"x" * 6, b"x" * 6, b"x"], None)
    asked = Asked(lambda request: Response(200, body=giver.body))
    assert asked.failure.status == 502
    assert giver.stopped


def test_an_answer_that_is_cut_off_is_a_failure():
    giver = Giver([b"x"], None, close=False)
    asked = Asked(lambda request: Response(200, body=giver.body))
    assert asked.results == []
    reason = Abort("cut", UPSTREAM)
    giver.abort(reason)
    assert asked.failure is reason


def test_who_does_not_answer_in_time_is_given_up():
    gone = []
    asked = Asked(lambda request: Deferred(lambda _: gone.append(True)))
    asked.clock.advance(4.9)
    assert asked.results == []
    asked.clock.advance(0.2)
    assert asked.failure.status == 504
    assert gone == [True]
    asked.clock.advance(1)
    assert asked.clock.getDelayedCalls() == []


def test_cancelling_gives_up():
    gone = []
    asked = Asked(lambda request: Deferred(lambda _: gone.append(True)))
    asked.deferred.cancel()
    assert isinstance(asked.failure, CancelledError)
    assert gone == [True]
    asked.clock.advance(1)
    assert asked.clock.getDelayedCalls() == []


def test_an_answer_that_wins_against_the_cancelling_is_stopped():
    giver = Giver([b"x"], 1)
    waiting = Deferred(lambda deferred: deferred.callback(Response(200, body=giver.body)))
    asked = Asked(lambda request: waiting)
    asked.deferred.cancel()
    assert isinstance(asked.failure, CancelledError)
    assert giver.body.attached
    assert giver.stopped


def test_what_the_service_says_is_why():
    reason = Abort("no endpoint", UPSTREAM, 503)
    waiting = Deferred()
    asked = Asked(lambda request: waiting)
    waiting.errback(reason)
    assert asked.failure is reason


def test_nothing_is_left_for_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        for answer in (lambda request: Response(200, body=Whole(b"{}")), lambda request: Response(204)):
            Asked(answer).clock.advance(10)
        asked = Asked(lambda request: Deferred())
        asked.clock.advance(6)
        del asked
        assert gc.collect() == 0
    finally:
        gc.enable()
