"""Content from files and URLs that stays up to date, whatever becomes of where it comes from."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from protogate.body import Whole
from protogate.config.forgiven import forgiving
from protogate.errors import UPSTREAM, Abort, ConfigError
from protogate.governance.asking import Question
from protogate.governance.sources import Followed, Source
from protogate.message import Response
from protogate.testing.means import FakeMeans, Service
from protogate.testing.reactor import MemoryReactor

URL = Question.of_url("http://lists.test/blocked")


def parse(data):
    return json.loads(data)


class Scene:
    """A followed source with all around it."""

    def __init__(self, source, answer=None, limit=100):
        self.reactor, self.counted = MemoryReactor(), Counter()
        self.service = Service(answer)
        services = {"http://lists.test:80": self.service}
        self.means = FakeMeans(services, reactor=self.reactor, counted=self.counted)
        self.followed = Followed(source, parse, limit)
        self.told = []

    def start(self, before=None):
        self.followed.start(self.means, before, self.told.append)
        self.reactor.run()
        return self

    def stop(self):
        self.followed.stop()
        self.reactor.advance(1)
        assert list(self.reactor.getDelayedCalls()) == []


@pytest.fixture
def logged():
    events = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def write(path, text):
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


# -- files


def test_a_file_is_read_at_load(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    followed = Followed(Source(file=str(path)), parse)
    assert followed.value is None
    followed.load()
    assert followed.value == [1]


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), ("[", "Expecting value"), ("[" + "1," * 60 + "1]", "larger than 100 bytes")],
)
def test_what_is_wrong_with_a_file_names_it(tmp_path, content, why):
    path = tmp_path / "list.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=f"{path}: .*{why}"):
        Followed(Source(file=str(path)), parse, 100).load()


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(tmp_path, logged):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    scene = Scene(Source(file=str(path)))
    scene.followed.load()
    scene.start()
    write(path, "[1, 2]")
    scene.reactor.advance(3)
    assert (scene.followed.value, scene.told) == ([1, 2], [[1, 2]])
    write(path, "[1, 2")
    scene.reactor.advance(3)
    assert scene.followed.value == [1, 2]
    assert scene.counted == {"source_refreshed": 1, "source_failed": 1}
    (event,) = [event for event in logged if event.get("kept")]
    assert (event["source"], event["kept"]) == (str(path), "what was there before stays in use")
    assert str(path) not in event["why"], "it is told once"
    write(path, "[3]")
    scene.reactor.advance(3)
    assert scene.followed.value == [3]
    scene.stop()


def test_a_file_that_was_written_anew_with_the_same_content_changes_nothing(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    scene = Scene(Source(file=str(path)))
    scene.followed.load()
    known = scene.followed.value
    scene.start()
    write(path, "[1]")
    scene.reactor.advance(3)
    assert scene.followed.value is known
    assert (scene.told, scene.counted) == ([], {"source_refreshed": 1})
    write(path, "[2]")
    scene.reactor.advance(3)
    assert (scene.followed.value, scene.told) == ([2], [[2]])
    scene.stop()


def test_where_it_was_in_force_already_a_broken_file_is_as_a_url_that_has_not_answered(tmp_path, logged):
    path = tmp_path / "list.json"
    for broken in (None, "[1"):
        path.unlink(missing_ok=True)
        if broken is not None:
            path.write_text(broken)
        scene = Scene(Source(file=str(path)))
        with pytest.raises(ConfigError):
            scene.followed.load()
        with forgiving():
            scene.followed.load()
        with pytest.raises(ConfigError):
            Followed(Source(file=str(path)), parse).load()
        logged.clear()
        scene.start()
        assert (scene.followed.value, scene.told) == (None, [])
        assert [event["kept"] for event in logged if "kept" in event] == ["there is nothing to use yet"]
        write(path, "[2]")
        for _ in range(3):
            scene.reactor.advance(1)
        assert (scene.followed.value, scene.told) == ([2], [[2]])
        scene.stop()


def test_of_a_file_that_did_not_change_over_a_reload_there_is_one_value(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    first, same, changed = (Scene(Source(file=str(path))) for _ in range(3))
    for scene in (first, same):
        scene.followed.load()
    first.start()
    same.start(first.followed)
    assert same.followed.value is first.followed.value
    write(path, "[2]")
    changed.followed.load()
    changed.start(same.followed)
    assert changed.followed.value == [2]
    for scene in (first, same, changed):
        scene.stop()


def test_after_the_stop_nothing_is_taken_over(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    scene = Scene(Source(file=str(path)))
    scene.followed.load()
    scene.start().stop()
    write(path, "[2]")
    scene.reactor.advance(3)
    assert (scene.followed.value, scene.told) == ([1], [])


# -- URLs


def test_a_url_is_asked_at_the_start_and_each_interval_again():
    values = iter(([1], [2], [3]))
    source = Source(url=URL, interval=60.0)
    scene = Scene(source, lambda request: Response(200, body=Whole(json.dumps(next(values)).encode())))
    scene.start()
    assert scene.followed.value == [1]
    scene.reactor.advance(53)
    assert scene.followed.value == [1]
    scene.reactor.advance(14)
    assert scene.followed.value == [2]
    scene.reactor.advance(67)
    assert scene.told == [[1], [2], [3]]
    scene.stop()


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: Response(503),
        lambda request: Response(200, body=Whole(b"no json")),
        lambda request: Response(200, body=Whole(b"1" * 101)),
        lambda request: fails(Abort("no endpoint", UPSTREAM, 503)),
    ],
    ids=["its status", "its content", "its length", "its absence"],
)
def test_a_url_that_fails_is_asked_again_sooner_and_told_of_once(answer, logged):
    answers = [answer, answer, lambda request: Response(200, body=Whole(b"[1]"))]

    def next_of_them(request):
        return answers.pop(0)(request)

    scene = Scene(Source(url=URL, interval=60.0), next_of_them)
    scene.start()
    assert scene.followed.value is None
    scene.reactor.advance(1.2)
    assert len(answers) == 1
    scene.reactor.advance(2.4)
    assert (scene.followed.value, scene.told) == ([1], [[1]])
    assert scene.counted == {"source_failed": 2, "source_refreshed": 1}
    events = [event for event in logged if "kept" in event]
    assert [event["source"] for event in events] == ["http://lists.test:80/blocked"]
    assert "nothing to use yet" in events[0]["kept"]
    scene.stop()


def fails(reason):
    deferred = Deferred()
    deferred.errback(reason)
    return deferred


def test_a_failure_that_nobody_expected_is_told_with_its_traceback(flush_errors):
    scene = Scene(Source(url=URL, interval=60.0), lambda request: Response(200, body=Whole(b"1")))
    scene.followed._parse = lambda data: 1 / 0
    scene.start()
    (failure,) = flush_errors(ZeroDivisionError)
    assert failure.getTraceback()
    scene.stop()


def test_the_wait_grows_up_to_the_interval():
    scene = Scene(Source(url=URL, interval=8.0), lambda request: Response(503))
    scene.start()
    scene.reactor.advance(1.2 + 2.3 + 4.5)
    asked = len(scene.service.requests)
    assert asked == 4
    scene.reactor.advance(80)
    assert 9 <= len(scene.service.requests) - asked <= 12
    scene.stop()


def test_only_one_question_is_under_way():
    waiting = Deferred()
    answers = [waiting, Deferred()]
    scene = Scene(Source(url=URL, interval=60.0), lambda request: answers.pop(0))
    scene.start()
    scene.followed.refresh()
    assert len(scene.service.requests) == 1
    waiting.callback(Response(200, body=Whole(b"[1]")))
    scene.reactor.run()
    assert scene.followed.value == [1]
    scene.followed.refresh()
    assert len(scene.service.requests) == 2
    scene.stop()


def test_what_was_known_before_a_reload_counts_until_there_is_something_newer():
    first = Scene(Source(url=URL, interval=60.0), lambda request: Response(200, body=Whole(b"[1]"))).start()
    waiting = Deferred()
    second = Scene(Source(url=URL, interval=60.0), lambda request: waiting).start(first.followed)
    assert second.followed.value == [1]
    waiting.callback(Response(200, body=Whole(b"[2]")))
    second.reactor.run()
    assert second.followed.value == [2]
    elsewhere = Source(url=Question.of_url("http://lists.test/other"))
    third = Scene(elsewhere, lambda request: Deferred()).start(first.followed)
    assert third.followed.value is None
    for scene in (first, second, third):
        scene.stop()


def test_a_url_that_says_the_same_again_changes_nothing():
    scene = Scene(Source(url=URL, interval=60.0), lambda request: Response(200, body=Whole(b"[1]"))).start()
    known = scene.followed.value
    for _ in range(5):
        scene.reactor.advance(30)
    assert len(scene.service.requests) > 2
    assert scene.followed.value is known
    assert (scene.told, scene.counted["source_refreshed"]) == ([[1]], len(scene.service.requests))
    scene.stop()


def test_what_something_else_is_made_of_is_not_taken_over():
    first = Scene(Source(url=URL, interval=60.0), lambda request: Response(200, body=Whole(b"[1]"))).start()
    second = Scene(Source(url=URL, interval=60.0), lambda request: Deferred())
    second.followed = Followed(Source(url=URL, interval=60.0), len)
    second.start(first.followed)
    assert second.followed.value is None
    for scene in (first, second):
        scene.stop()
