"""cache: how long it is given (RFC 9111, 4.2 and 5.2.1; RFC 5861)."""

from __future__ import annotations

import pytest
from caches import REFUSED, Scene, date, kept, say
from twisted.internet.defer import Deferred

# -- 4.2: freshness


def test_s_maxage_wins_over_max_age_and_that_over_expires():
    scene = Scene()
    scene.keep(say("max-age=100, s-maxage=10", expires=date(1000)), say("max-age=5", b"2", expires=date(1000)), say())
    scene.wait(8.5)
    assert scene.get().told == "hit; ttl=1"
    scene.wait(2)
    assert scene.get().data == b"2"
    scene.wait(6)
    assert scene.get().told == "fwd=stale; fwd-status=200; stored"


@pytest.mark.parametrize(
    ("expires", "good"),
    [
        (60, True),
        (-60, False),
        ("0", False),
        ("-1", False),
        ("tomorrow", False),
        ("Sunday, 06-Nov-94 08:49:37 GMT", False),
        ("Fri Jan  1 00:00:00 2100", True),
        ("Friday, 01-Jan-60 00:00:00 GMT", True),
        ("Fri, 01 Jan 2100 00:00:00 GMT", True),
        ("Fri, 01 Jan 2100 00:00:00 UTC", False),
        ("Fri, 1 Jan 2100 00:00:00 GMT", False),
        ("Fri, 32 Jan 2100 00:00:00 GMT", False),
        ([60, 90], False),
    ],
)
def test_expires(expires, good):
    lines = expires if isinstance(expires, list) else [expires]
    found = [
        date(each) if isinstance(each, int) else each for each in lines
    ]  # not when the file is read: that is long ago
    assert kept(say(None, expires=found if isinstance(expires, list) else found[0])) is good


def test_expires_counts_from_the_origins_own_date():
    assert kept(say(None, date=date(-3600), expires=date(60), age="0")) is True
    assert not kept(say(None, date=date(7200), expires=date(3600)))


def test_age_of_what_came_counts():
    scene = Scene()
    scene.keep(say("max-age=60", age="50"), say())
    assert scene.get().field("age") == "50"
    scene.wait(8.5)
    assert scene.get().told == "hit; ttl=1"
    scene.wait(2)
    assert scene.get().told == "fwd=stale; fwd-status=200; stored"


@pytest.mark.parametrize(
    ("age", "shown"), [("7, 9", 7), (["7", "9"], 7), ("abc", 0), ("-1", 0), ("1.5", 0), ("99999999999999", None)]
)
def test_an_age_that_is_none_is_ignored(age, shown):
    scene = Scene()
    scene.answers = [say(age=age), say("no-store", b"again")]
    scene.get()
    second = scene.get()
    assert second.field("age") == (None if shown is None else str(shown))


def test_an_old_date_is_an_age():
    scene = Scene()
    scene.keep(say("max-age=60", date=date(-30)))
    assert 30 <= int(scene.get().field("age")) <= 32
    assert not kept(say("max-age=60", date=date(-61)))


def test_the_time_that_the_answer_took_counts_with_an_age():
    scene, late = Scene(), Deferred()
    scene.answers = [late]
    scene.get()
    scene.wait(3.5)
    late.callback(say("max-age=60", age="10"))
    assert scene.get().field("age") == "13"


def test_freshness_is_guessed_only_where_the_file_says_so():
    answer = {"last_modified": date(-1000)}
    assert not kept(say(None, **answer))
    assert kept(say(None, **answer), heuristic=10)
    assert not kept(say(None, **answer, status=302), heuristic=10)
    assert kept(say("public", **answer, status=302), heuristic=10)
    assert not kept(say(None, expires="0", **answer), heuristic=10)
    scene = Scene(heuristic=10, heuristicMax="50s")
    scene.keep(say(None, **answer))
    assert scene.get().told == "hit; ttl=50"


# -- 4.2.4, RFC 5861: stale


def test_stale_while_revalidate_asks_in_the_background():
    scene = Scene()
    scene.keep(say("max-age=1, stale-while-revalidate=10", etag='"a"'), say("max-age=60", b"new", etag='"b"'))
    scene.wait(5.5)
    second = scene.get("x-a: b")
    assert (second.data, second.told, second.field("age")) == (b"hello", "hit; ttl=-4", "5")
    background = scene.origin.requests[1]
    assert background.headers.get(b"if-none-match") == b'"a"'
    assert scene.get().data == b"new"
    assert scene.counted["asked_behind"] == 1


def test_the_client_is_answered_before_the_upstream_is_asked():
    scene = Scene()
    scene.keep(say("max-age=1, stale-while-revalidate=10"), say())
    scene.wait(2)
    asked = []
    scene.clock.callLater(0, lambda: asked.append(scene.asked))
    scene.get()
    assert (asked, scene.asked) == ([1], 2)


def test_stale_while_revalidate_ends():
    scene = Scene()
    scene.keep(say("max-age=1, stale-while-revalidate=10"), say(content=b"new"))
    scene.wait(12)
    assert scene.get().data == b"new"


@pytest.mark.parametrize("control", ["must-revalidate", "proxy-revalidate", "no-cache"])
def test_stale_never_where_it_must_be_revalidated(control):
    scene = Scene()
    scene.answers = [
        say(f"max-age=1, stale-while-revalidate=99, stale-if-error=99, {control}", etag='"a"'),
        REFUSED,
        REFUSED,
    ]
    scene.get()
    scene.wait(2)
    assert scene.get().status == 502
    assert scene.get("cache-control: max-stale").status == 502


@pytest.mark.parametrize("failure", [REFUSED, *(say("no-store", status=status) for status in (500, 502, 503, 504))])
def test_stale_if_error(failure):
    scene = Scene()
    scene.keep(say("max-age=1, stale-if-error=10"), failure, say("max-age=60", b"new"))
    scene.wait(5)
    second = scene.get()
    assert (second.status, second.data) == (200, b"hello")
    assert scene.get().data == b"hello"
    assert scene.asked == 2, "an origin that failed a moment ago is not asked again at once"
    scene.wait(2)
    assert scene.get().data == b"new"


def test_stale_if_error_ends_and_is_for_failures_only():
    scene = Scene()
    scene.keep(say("max-age=1, stale-if-error=10"), say("no-store", b"gone", 404), REFUSED)
    scene.wait(5)
    assert scene.get().data == b"gone"
    scene = Scene()
    scene.keep(say("max-age=1, stale-if-error=10"), REFUSED)
    scene.wait(12)
    assert scene.get().status == 502


def test_stale_if_error_of_the_file_and_of_the_client():
    scene = Scene(staleIfError="10s")
    scene.keep(say("max-age=1"), REFUSED)
    scene.wait(5)
    assert scene.get().data == b"hello"
    scene = Scene()
    scene.keep(say("max-age=1"), REFUSED, REFUSED)
    scene.wait(5)
    assert scene.get().status == 502
    assert scene.get("cache-control: stale-if-error=10").data == b"hello"


# -- 5.2.1: what clients say


@pytest.mark.parametrize(
    ("header", "hit"),
    [
        ("cache-control: no-cache", False),
        ("pragma: no-cache", False),
        ("cache-control: max-age=0", False),
        ("cache-control: max-age=5", False),
        ("cache-control: max-age=11", True),
        ("cache-control: max-age=abc", True),
        ("cache-control: min-fresh=40", True),
        ("cache-control: min-fresh=60", False),
        ("cache-control: no-store", False),
        ("cache-control: x, pragma=no-cache", True),
    ],
)
def test_directives_of_clients(header, hit):
    scene = Scene()
    scene.keep(say("max-age=60"), say("max-age=60"))
    scene.wait(10)
    assert scene.get(header).told.startswith("hit") is hit
    scene = Scene(requestDirectives=False)
    scene.keep(say("max-age=60"))
    scene.wait(10)
    assert scene.get(header).told.startswith("hit")


def test_pragma_says_nothing_next_to_cache_control():
    scene = Scene()
    scene.keep(say())
    assert scene.get("pragma: no-cache", "cache-control: max-age=60").told.startswith("hit")


def test_max_stale():
    scene = Scene()
    scene.keep(say("max-age=1"), say(content=b"new"))
    scene.wait(6.5)
    assert scene.get("cache-control: max-stale=10").told == "hit; ttl=-5"
    assert scene.get("cache-control: max-stale").data == b"hello"
    assert scene.get("cache-control: max-stale=3").data == b"new"


def test_max_stale_is_not_for_what_a_shared_cache_was_told():
    scene = Scene()
    scene.keep(say("s-maxage=1"), say(content=b"new"))
    scene.wait(2)
    assert scene.get("cache-control: max-stale").data == b"new"


def test_only_if_cached():
    scene = Scene()
    assert scene.get("cache-control: only-if-cached").status == 504
    assert scene.asked == 0
    scene.keep(say("max-age=5", etag='"a"'))
    assert scene.get("cache-control: only-if-cached").data == b"hello"
    scene.wait(6)
    assert scene.get("cache-control: only-if-cached").status == 504
    assert scene.asked == 1


def test_a_request_with_no_store_leaves_nothing():
    scene = Scene()
    scene.answers = [say(), say(content=b"new")]
    scene.get("cache-control: no-store")
    assert scene.get().data == b"new"
