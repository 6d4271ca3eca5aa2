"""Validators and conditions."""

from __future__ import annotations

import pytest

from protogate.caching.conditions import same_range, tag_of, unmodified, validators
from protogate.message import Headers

NOW = 1_700_000_000.0
EARLY, LATE = b"Sun, 06 Nov 1994 08:49:37 GMT", b"Mon, 07 Nov 1994 08:49:37 GMT"


def answer(**fields):
    return Headers([(name.replace("_", "-").encode(), value) for name, value in fields.items()])


@pytest.mark.parametrize("tag", [b'"a"', b'W/"a"', b'""', b'"\xc3\xbc"'])
def test_an_entity_tag(tag):
    assert tag_of(answer(etag=tag)) == tag
    assert validators(answer(etag=tag)) == [(b"if-none-match", tag)]


@pytest.mark.parametrize("tag", [b"a", b'"a', b'w/"a"', b'W"a"', b'"a"b"', b'"a b"', b"*", b""])
def test_what_is_none_is_not_asked_with(tag):
    assert validators(answer(etag=tag)) == []
    assert not unmodified([(b"if-none-match", tag)], answer(etag=tag), NOW) or tag == b"*"


def test_two_of_them_are_none():
    assert tag_of(Headers([(b"etag", b'"a"'), (b"etag", b'"b"')])) is None


def test_a_list_that_is_broken_matches_nothing():
    assert not unmodified([(b"if-none-match", b'"a", b')], answer(etag=b'"a"'), NOW)


def test_dates():
    assert unmodified([(b"if-modified-since", LATE)], answer(last_modified=EARLY), NOW)
    assert unmodified([(b"if-modified-since", EARLY)], answer(last_modified=EARLY), NOW)
    assert not unmodified([(b"if-modified-since", EARLY)], answer(last_modified=LATE), NOW)
    assert not unmodified([(b"if-modified-since", EARLY)] * 2, answer(last_modified=EARLY), NOW)
    assert not unmodified([(b"if-modified-since", b"x")], answer(last_modified=EARLY), NOW)
    assert not unmodified([], answer(last_modified=EARLY), NOW)


def test_if_range_wants_a_strong_date():
    assert same_range(EARLY, answer(last_modified=EARLY, date=LATE), NOW)
    assert not same_range(EARLY, answer(last_modified=EARLY, date=EARLY), NOW)
    assert not same_range(EARLY, answer(last_modified=EARLY), NOW)
    assert not same_range(LATE, answer(last_modified=EARLY, date=LATE), NOW)
