"""cache: whether it is still good, for the upstream and for clients (RFC 9111, 4.3; RFC 9110, 13 and 14)."""

from __future__ import annotations

import pytest
from caches import Scene, date, good, say

from protogate.testing.bodies import Giver

# -- 4.3: validation


def test_an_entity_tag_is_asked_with_and_304_freshens():
    scene = Scene()
    scene.keep(say("max-age=10", etag='"a"', last_modified=date(-100), x_a="old", content_type="text/plain"))
    scene.wait(11)
    scene.answers = [good(etag='"a"', cache_control="max-age=20", x_a="new")]
    second = scene.get()
    assert (second.status, second.data, second.field("x-a")) == (200, b"hello", "new")
    assert second.field("content-type") == "text/plain"
    assert second.told == "fwd=stale; fwd-status=304; ttl=20"
    sent = scene.origin.requests[1].headers
    assert sent.get(b"if-none-match") == b'"a"'
    assert sent.get(b"if-modified-since") is not None
    scene.wait(14.5)
    assert scene.get().told == "hit; ttl=5"
    assert (scene.asked, scene.counted["revalidated"]) == (2, 1)


def test_without_a_validator_all_is_asked_for():
    scene = Scene()
    scene.keep(say("max-age=1", etag="not-quoted"), say(content=b"new"))
    scene.wait(2)
    assert scene.get().data == b"new"
    assert scene.origin.requests[1].headers.get(b"if-none-match") is None


def test_no_cache_is_asked_each_time():
    scene = Scene()
    scene.keep(say("no-cache", etag='W/"a"'))
    for _ in range(3):
        scene.answers = [good()]
        assert scene.get().data == b"hello"
    assert scene.asked == 4


def test_a_304_about_something_else_changes_nothing_of_what_is_kept():
    scene = Scene()
    scene.keep(say("max-age=1", etag='"a"', x_a="old"))
    scene.wait(2)
    scene.answers = [good(etag='"b"', x_a="new"), say(content=b"new")]
    second = scene.get()
    assert (second.data, second.field("etag"), second.field("x-a")) == (b"hello", '"a"', "old")
    assert scene.get().data == b"new"


def test_a_304_that_makes_it_private_is_the_last_use():
    scene = Scene()
    scene.keep(
        say("max-age=1", etag='"a"'),
        good(cache_control="private"),
        say(content=b"2"),
    )
    scene.wait(2)
    assert scene.get().data == b"hello"
    assert scene.get().data == b"2"


def test_a_newer_answer_takes_the_place_even_if_it_is_not_kept():
    scene = Scene()
    scene.keep(say("max-age=1"), say("no-store", b"new"), say("no-store", b"newer"))
    scene.wait(2)
    assert scene.get().data == b"new"
    assert scene.get("cache-control: max-stale").data == b"newer"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (['if-none-match: "a"'], 304),
        (['if-none-match: W/"a"'], 304),
        (['if-none-match: "x", W/"a" ,"y"'], 304),
        (['if-none-match: "x"', 'if-none-match: "a"'], 304),
        (["if-none-match: *"], 304),
        (['if-none-match: "b"'], 200),
        (["if-none-match: a"], 200),
        (['if-none-match: "a'], 200),
        (['if-none-match: "b"', "if-modified-since: Sat, 01 Jan 2022 00:00:00 GMT"], 200),
        (["if-modified-since: Sat, 01 Jan 2022 00:00:00 GMT"], 304),
        (["if-modified-since: Wed, 01 Jan 2020 00:00:00 GMT"], 200),
        (["if-modified-since: yesterday"], 200),
    ],
)
def test_conditions_of_clients_are_answered(headers, status):
    scene = Scene()
    modified = "Fri, 01 Jan 2021 00:00:00 GMT"
    scene.keep(say(etag='"a"', last_modified=modified, content_type="text/plain", vary="x-a"))
    second = scene.get(*headers)
    assert second.status == status
    assert second.field("etag") == '"a"'
    if status == 304:
        assert second.response.body is None
        assert second.field("content-type") is None
        assert (second.field("vary"), second.field("age")) == ("x-a", "0")
    assert scene.asked == 1


def test_a_condition_does_not_keep_others_from_the_content():
    scene = Scene()
    giver = Giver([b"hel"], 5, close=False)
    scene.answers = [say(etag='"a"', body=giver.body)]
    first = scene.get('if-none-match: "a"')
    assert (first.status, first.response.body) == (304, None)
    assert scene.origin.requests[0].headers.get(b"if-none-match") is None
    giver.write(b"lo")
    giver.finish()
    assert scene.get().data == b"hello"
    assert scene.asked == 1


def test_conditions_go_to_the_origin_where_nothing_is_kept():
    scene = Scene()
    scene.answers = [say("no-store", etag='"a"'), good()]
    scene.get()
    assert scene.get('if-none-match: "a"').status == 304
    assert scene.origin.requests[1].headers.get(b"if-none-match") == b'"a"'


def test_head():
    scene = Scene()
    scene.keep(say(etag='"a"'))
    second = scene.ask(method=b"HEAD")
    assert (second.status, second.response.body, second.field("content-length")) == (200, None, "5")
    assert scene.asked == 1


def test_head_is_not_kept_and_tells_whether_what_is_kept_is_the_same():
    scene = Scene()
    scene.answers = [say(content=b""), say(etag='"a"')]
    assert scene.ask(method=b"HEAD").told == "fwd=uri-miss; fwd-status=200"
    scene.get()
    scene.wait(61)
    scene.answers = [say("max-age=60", content=b"", etag='"a"', content_length="5", x_a="new")]
    scene.ask(method=b"HEAD")
    assert (scene.get().data, scene.get().field("x-a")) == (b"hello", "new")
    scene.wait(61)
    scene.answers = [say("max-age=60", content=b"", etag='"b"'), say(content=b"new")]
    scene.ask(method=b"HEAD")
    assert scene.get().data == b"new"


def test_head_of_somebody_says_nothing_of_what_others_are_given():
    scene = Scene()
    scene.keep(say("max-age=10", etag='"a"'))
    scene.wait(11)
    scene.answers = [say("max-age=60", content=b"", etag='"b"'), good()]
    scene.get("authorization: a", method=b"HEAD")
    assert scene.get().told == "fwd=stale; fwd-status=304; ttl=10"


# -- ranges


@pytest.mark.parametrize(
    ("value", "content", "said"),
    [
        ("bytes=0-0", b"h", "bytes 0-0/5"),
        ("bytes=1-3", b"ell", "bytes 1-3/5"),
        ("bytes=2-", b"llo", "bytes 2-4/5"),
        ("bytes=3-99", b"lo", "bytes 3-4/5"),
        ("bytes=-2", b"lo", "bytes 3-4/5"),
        ("bytes=-99", b"hello", "bytes 0-4/5"),
    ],
)
def test_a_part_of_what_is_kept(value, content, said):
    scene = Scene()
    scene.keep(say(body=Giver([b"he", b"l", b"lo"], 5).body))
    part = scene.get(f"range: {value}")
    assert (part.status, part.data, part.field("content-range")) == (206, content, said)
    assert part.response.body.length == len(content)
    assert scene.asked == 1


@pytest.mark.parametrize("value", ["bytes=5-", "bytes=9-10", "bytes=-0"])
def test_no_such_part(value):
    scene = Scene()
    scene.keep(say())
    part = scene.get(f"range: {value}")
    assert (part.status, part.field("content-range"), part.data) == (416, "bytes */5", b"")


@pytest.mark.parametrize("value", ["bytes=3-1", "bytes=0-1,3-4", "lines=1-2", "bytes", "bytes=a-b"])
def test_what_is_no_single_range_is_given_all(value):
    scene = Scene()
    scene.keep(say())
    assert (scene.get(f"range: {value}").status, scene.asked) == (200, 1)


def test_if_range():
    scene = Scene()
    scene.keep(say(etag='"a"', last_modified=date(-100)))
    assert scene.get("range: bytes=0-1", 'if-range: "a"').status == 206
    assert scene.get("range: bytes=0-1", 'if-range: "b"').status == 200
    assert scene.get("range: bytes=0-1", 'if-range: W/"a"').status == 200
    assert scene.get("range: bytes=0-1", f"if-range: {date(-100)}").status in (206, 200)
    assert scene.get("range: bytes=0-1", "if-range: x").status == 200


def test_a_part_that_is_not_kept_is_asked_for_and_not_kept():
    scene = Scene()
    scene.answers = [say(status=206, content=b"el", content_range="bytes 1-2/5"), say()]
    assert scene.get("range: bytes=1-2").data == b"el"
    assert scene.origin.requests[0].headers.get(b"range") == b"bytes=1-2"
    assert scene.get().data == b"hello"
