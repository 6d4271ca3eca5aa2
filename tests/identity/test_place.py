"""Where credentials stand: found once, refused when twice, taken out."""

from __future__ import annotations

import pytest

from protogate.errors import Abort
from protogate.identity.place import Authorization, Cookie, Header, Query, find, headers, parameters
from protogate.message import Request


def request(*fields, target=b"/a"):
    return Request(b"GET", target, fields)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer abc", b"abc"),
        (b"BEARER   abc", b"abc"),
        (b"Bearer", b""),
        (b"Bearer a b", b"a b"),
        (b"Basic abc", None),
        (b"Bearerx abc", None),
        (b"Bearer\tabc", None),
        (b"Bear abc", None),
        (b"", None),
    ],
)
def test_what_stands_behind_a_scheme(value, found):
    made = request((b"authorization", value), (b"x", b"1"))
    assert Authorization("Bearer").find(made) == found
    if found is not None:
        Authorization("Bearer").remove(made)
        assert made.headers == [(b"x", b"1")]


@pytest.mark.parametrize(
    ("lines", "found", "left"),
    [
        ([b"sid=a"], b"a", []),
        ([b"x=1; sid=a; y=2"], b"a", [b"x=1; y=2"]),
        ([b"x=1", b"sid=a;y=2"], b"a", [b"x=1", b"y=2"]),
        ([b"xsid=1; sid2=2"], None, [b"xsid=1; sid2=2"]),
        ([b"sid=a=b"], b"a=b", []),
        ([b"sid="], b"", []),
        ([b"sid"], None, [b"sid"]),
        ([b'x="sid=1"'], None, [b'x="sid=1"']),
    ],
)
def test_a_cookie(lines, found, left):
    made = request(*[(b"cookie", line) for line in lines])
    place = Cookie(b"sid")
    assert place.find(made) == found
    place.remove(made)
    assert made.headers.all(b"cookie") == left
    assert "sid" not in made.cookies


@pytest.mark.parametrize(
    ("target", "found", "left"),
    [
        (b"/a?key=s", b"s", b"/a"),
        (b"/a?x=1&key=s&y=%20", b"s", b"/a?x=1&y=%20"),
        (b"/a?%6bey=s%2Bt+u", b"s+t u", b"/a"),
        (b"/a?key=", b"", b"/a"),
        (b"/a?keys=1", None, b"/a?keys=1"),
        (b"/a", None, b"/a"),
        (b"/a?", None, b"/a?"),
    ],
)
def test_a_parameter(target, found, left):
    made = request(target=target)
    assert made.query is not None
    place = Query("key")
    assert place.find(made) == found
    if found is not None:
        place.remove(made)
    assert made.target == left
    assert "key" not in made.query


def test_a_field():
    made = request((b"x-key", b"a"), (b"y", b"1"))
    assert Header(b"x-key").find(made) == b"a"
    Header(b"x-key").remove(made)
    assert made.headers == [(b"y", b"1")]


@pytest.mark.parametrize(
    ("place", "made"),
    [
        (Header(b"x"), request((b"x", b"1"), (b"x", b"1"))),
        (Authorization("Bearer"), request((b"authorization", b"Bearer a"), (b"authorization", b"Basic b"))),
        (Authorization("Bearer"), request((b"authorization", b"Basic b"), (b"authorization", b"Bearer a"))),
        (Cookie(b"s"), request((b"cookie", b"s=1; s=1"))),
        (Cookie(b"s"), request((b"cookie", b"s=1"), (b"cookie", b"s=2"))),
        (Query("k"), request(target=b"/?k=1&%6b=1")),
    ],
    ids=lambda each: str(each) if not isinstance(each, Request) else "",
)
def test_what_stands_there_twice_has_two_readings(place, made):
    with pytest.raises(Abort, match="more than one credential") as caught:
        place.find(made)
    assert (caught.value.status, caught.value.who) == (400, "client")


def test_of_several_places_only_one_may_be_used():
    places = [Authorization("Bearer"), Cookie(b"t")]
    assert find(places, request()) is None
    assert find(places, request((b"cookie", b"t=1"))) == (places[1], b"1")
    with pytest.raises(Abort, match="the field authorization and the cookie t"):
        find(places, request((b"cookie", b"t=1"), (b"authorization", b"Bearer 1")))


def test_places_tell_what_they_use():
    places = [Authorization("Bearer"), Cookie(b"t"), Query("k"), Header(b"x-k")]
    assert headers(places) == {b"authorization", b"cookie", b"x-k"}
    assert parameters(places) == {"k"}
