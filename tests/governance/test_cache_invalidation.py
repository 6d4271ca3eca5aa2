"""cache: what is forgotten (RFC 9111, 4.4; RFC 9875)."""

from __future__ import annotations

import pytest
from caches import Scene, say
from twisted.internet.defer import Deferred

from protogate.governance.news import MISSED
from protogate.testing.boards import Boards
from protogate.testing.means import FakeMeans

# -- 4.4: invalidation


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"FOO"])
def test_what_was_changed_is_forgotten(method):
    scene = Scene()
    scene.keep(say(), say("no-store", b"", 204), say(content=b"new"))
    scene.ask(method=method)
    assert scene.get().data == b"new"
    assert scene.counted["invalidated"] == 1


@pytest.mark.parametrize(
    ("name", "value", "gone"),
    [
        ("location", "/b?x=1", True),
        ("location", "http://a.test/b?x=1", True),
        ("content_location", "b?x=1", True),
        ("location", "http://b.test/b?x=1", False),
        ("location", "https://a.test/b?x=1", False),
        ("location", "http://a.test.evil/b?x=1", False),
        ("location", "http://[", False),
    ],
)
def test_so_is_what_its_answer_names_of_the_same_origin(name, value, gone):
    scene = Scene()
    scene.keep(say(), say(status=201, **{name: value}), say("no-store", b"new"), target=b"/b?x=1")
    scene.ask(method=b"POST")
    assert (scene.get(target=b"/b?x=1").data == b"new") is gone


@pytest.mark.parametrize("status", [400, 404, 500, 502])
def test_what_failed_has_changed_nothing(status):
    scene = Scene()
    scene.keep(say(), say(status=status))
    scene.ask(method=b"POST")
    assert scene.get().told.startswith("hit")


def test_safe_methods_change_nothing():
    scene = Scene()
    scene.keep(say(), say(), say())
    scene.ask(method=b"OPTIONS")
    scene.ask(method=b"PROPFIND")
    assert scene.get().told.startswith("hit")


def test_what_was_asked_before_a_change_is_not_kept_after_it():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say("no-store", b"", 204), say(content=b"new")]
    scene.get()
    scene.ask(method=b"PUT")
    late.callback(say(content=b"old"))
    assert scene.get().data == b"new"


def test_groups_are_forgotten_together():
    scene = Scene()
    scene.keep(say(cache_groups='"shoes", "a\\"b"'), target=b"/a")
    scene.keep(say(cache_groups='"shoes";x=1'), target=b"/b")
    scene.keep(say(cache_groups="shoes"), target=b"/c")
    scene.keep(say(), target=b"/d")
    scene.answers = [say("no-store", b"", 204, cache_group_invalidation='"shoes"')]
    scene.ask(b"/e", method=b"POST")
    scene.answers = [say("no-store", b"new") for _ in range(4)]
    new = [scene.get(target=target).told.startswith("fwd") for target in (b"/a", b"/b", b"/c", b"/d")]
    assert new == [True, True, False, False]


def test_groups_of_another_origin_and_of_safe_methods_are_not():
    scene = Scene()
    scene.keep(say(cache_groups='"g"'))
    scene.answers = [say("no-store", b"", 204, cache_group_invalidation='"g"')] * 2
    scene.ask(b"/e", method=b"POST", authority=b"b.test")
    scene.ask(b"/f")
    assert scene.get().told.startswith("hit")


# -- in other processes


class Workers:
    """Caches of two workers of one gateway."""

    def __init__(self):
        self.boards = Boards()
        lines = [self.boards.join() for _ in range(2)]
        self.here = Scene(board=lines[0])
        self.there = Scene(board=lines[1], clock=self.here.clock)
        self.boards.run()
        self.boards.lead(*lines)

    def run(self):
        self.here.clock.advance(0.1)
        self.boards.run()


@pytest.mark.parametrize("leads", [True, False])
def test_what_was_changed_all_workers_forget(leads):
    workers = Workers()
    one, other = (workers.here, workers.there) if leads else (workers.there, workers.here)
    for scene in (one, other):
        scene.keep(say(), target=b"/a?x=%20\xff")
        scene.keep(say(), target=b"/b")
        scene.keep(say(cache_groups='"shoes"'), target=b"/c")
        scene.keep(say(), target=b"/d")
    one.answers = [say("no-store", b"", 201, location="/b", cache_group_invalidation='"shoes"')]
    one.ask(b"/a?x=%20\xff", method=b"POST")
    workers.run()
    assert (one.counted["invalidated"], other.counted["invalidated"]) == (3, 3)
    assert other.get(target=b"/d").told.startswith("hit")
    other.answers = [say(content=b"new")]
    assert other.get(target=b"/a?x=%20\xff").data == b"new"


def test_what_another_worker_changed_while_it_was_asked_for_is_not_kept():
    workers, late = Workers(), Deferred()
    workers.there.answers = [late, say(content=b"new")]
    workers.there.get()
    workers.here.answers = [say("no-store", b"", 204)]
    workers.here.ask(method=b"PUT")
    workers.run()
    late.callback(say(content=b"old"))
    assert workers.there.get().data == b"new"


def test_who_missed_something_forgets_everything():
    workers = Workers()
    workers.there.keep(say())
    workers.there.cache._heard(MISSED)
    assert workers.there.counted["invalidated"] == 1
    workers.there.answers = [say(content=b"new")]
    assert workers.there.get().data == b"new"


def test_what_changed_nothing_is_told_nobody():
    workers = Workers()
    workers.here.answers = [say("no-store", b"", 404)]
    workers.here.ask(method=b"POST")
    workers.run()
    assert workers.boards.keeper.posts == {}


def test_after_a_reload_it_is_heard_once_and_after_the_end_no_more():
    workers = Workers()
    second = Scene(before=workers.there)
    means = FakeMeans(wheel=workers.there.plan.wheel, counted=second.counted, news=workers.there.news)
    second.cache.start(means, workers.there.cache)
    workers.there.cache.stop()
    second.keep(say())
    workers.here.answers = [say("no-store", b"", 204), say("no-store", b"", 204)]
    workers.here.ask(method=b"PUT")
    workers.run()
    assert second.counted["invalidated"] == 1
    second.cache.stop()
    workers.here.ask(method=b"PUT")
    workers.run()
    assert second.counted["invalidated"] == 1
