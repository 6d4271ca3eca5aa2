"""In what two answers differ, as far as it counts."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.body import Whole
from protogate.governance import copydifference
from protogate.governance.copydifference import VOLATILE, Said, Terms, differences
from protogate.message import Response


def said(terms, status=200, headers=(), content=b"", pieces=None, trailers=None):
    made = Said(Response(status, headers, Whole(content)), terms)
    for piece in [content] if pieces is None else pieces:
        if piece:
            made.add(piece)
    made.end(trailers)
    return made


def differs(terms, one, other):
    return differences(said(terms, **one), said(terms, **other), terms)


def in_json(one, other, **terms):
    made = Terms(body="json", **terms)
    return differs(made, {"content": json.dumps(one).encode()}, {"content": json.dumps(other, indent=1).encode()})


def test_what_is_the_same_does_not_differ():
    one = {"headers": [(b"x-a", b"1"), (b"date", b"now"), (b"x-a", b"2")], "content": b"abc"}
    other = {"headers": [(b"x-a", b"1"), (b"x-a", b"2"), (b"server", b"other")], "content": b"abc"}
    assert differs(Terms(), one, other) == []


def test_what_differs_is_named():
    one = {"status": 200, "headers": [(b"x-a", b"1"), (b"x-b", b"1")], "content": b"abc"}
    other = {"status": 500, "headers": [(b"x-a", b"2")], "content": b"abd"}
    assert differs(Terms(), one, other) == ["status: 200, 500", "header x-a", "header x-b", "content"]
    assert differs(Terms(values=True), one, other)[1:3] == ["header x-a: 1, 2", "header x-b: 1, missing"]


def test_trailers_count_as_fields_do():
    one, other = {"trailers": [(b"grpc-status", b"0")]}, {"trailers": [(b"grpc-status", b"13")]}
    assert differs(Terms(values=True), one, other) == ["trailer grpc-status: 0, 13"]
    assert differs(Terms(), one, {}) == ["trailer grpc-status"]
    assert differs(Terms(ignored=frozenset({b"grpc-status"})), one, other) == []
    assert differs(Terms(headers=False), one, other) == []


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        (Terms(status=False), ["header x-a", "length: 3, 4"]),
        (Terms(headers=False), ["status: 200, 404", "length: 3, 4"]),
        (Terms(ignored=VOLATILE | {b"x-a"}), ["status: 200, 404", "length: 3, 4"]),
        (Terms(body="none"), ["status: 200, 404", "header x-a"]),
        (Terms(body="length"), ["status: 200, 404", "header x-a", "length: 3, 4"]),
    ],
)
def test_only_what_counts_counts(terms, found):
    other = {"status": 404, "headers": [(b"x-a", b"1")], "content": b"abcd"}
    assert differs(terms, {"content": b"abc"}, other) == found


def test_content_of_equal_length_differs_by_its_bytes_unless_only_the_length_counts():
    assert differs(Terms(), {"content": b"abc"}, {"content": b"abd"}) == ["content"]
    assert differs(Terms(body="length"), {"content": b"abc"}, {"content": b"abd"}) == []


def test_pieces_do_not_count():
    assert differs(Terms(), {"pieces": [b"a", b"bc"]}, {"pieces": [b"ab", b"c"]}) == []


def test_json_is_compared_by_what_it_means():
    one = {"a": 1, "b": [1, {"c": None}], "d": True, "e": 1.0}
    other = {"e": 1, "d": True, "b": [1, {"c": None}], "a": 1}
    assert in_json(one, other) == []
    assert in_json({"a": [1, 2]}, {"a": [1, 3, 4], "b": 1}) == ["json /a: 2 items, 3", "json /a/1", "json /b"]
    assert in_json({"a/b": True}, {"a/b": 1}, values=True) == ["json /a~1b: true, 1"]
    assert in_json({"a": 1}, {}, values=True) == ["json /a: 1, missing"]
    assert in_json([], {}) == ["json all of it"]


def test_paths_that_are_ignored_do_not_count_with_all_that_is_in_them():
    one = {"at": 1, "items": [{"id": 1, "score": 2}, {"id": 2, "score": 3}], "meta": {"a": 1}}
    other = {"at": 2, "items": [{"id": 1, "score": 7}, {"id": 3, "score": 8}], "meta": {"b": [2]}}
    assert in_json(one, other, paths=(("at",), ("items", "*", "score"), ("meta",))) == ["json /items/1/id"]
    assert in_json(one, other, paths=(("*",),)) == []


def test_what_is_no_json_is_compared_by_its_bytes():
    terms = Terms(body="json")
    assert differs(terms, {"content": b"{"}, {"content": b"{"}) == []
    assert differs(terms, {"content": b"{ "}, {"content": b"{}"}) == ["content"]
    assert differs(terms, {"content": b"{}"}, {"content": b"no"}) == ["content"]


def test_so_is_too_much_of_it():
    terms = Terms(body="json", limit=4)
    assert differs(terms, {"content": b"[1]"}, {"content": b"[1 ]"}) == []
    assert differs(terms, {"pieces": [b"[1", b" ", b"  ]"]}, {"pieces": [b"[", b"   1]"]}) == ["content"]
    assert differs(terms, {"pieces": [b"[1", b" ", b"  ]"]}, {"pieces": [b"[1   ]"]}) == []
    assert said(terms, pieces=[b"12", b"345"]).parts is None


def test_json_that_is_packed_is_unpacked_within_bounds():
    terms, packed = Terms(body="json", limit=1000), [(b"content-encoding", b"gzip")]
    one = {"headers": packed, "content": gzip.compress(b'{"a": 1, "b": 2}')}
    other = {"headers": packed, "content": gzip.compress(b'{"b":2,"a":1}', mtime=1)}
    assert differs(terms, one, other) == []
    bomb = {"headers": packed, "content": gzip.compress(b" " * 100_000 + b"1")}
    bomber = {"headers": packed, "content": gzip.compress(b" " * 100_000 + b"1", mtime=1)}
    assert differs(terms, bomb, bomber) == ["content"]
    for content in (b"no gzip", one["content"][:-3]):
        assert differs(terms, {"headers": packed, "content": content}, one)[0].startswith(("content", "length"))
    strange = {"headers": [(b"content-encoding", b"rot13")], "content": b"1"}
    assert differs(terms, strange, strange) == []


def test_what_is_deep_is_no_trouble():
    deep = b"[" * 500 + b"1" + b"]" * 500
    terms = Terms(body="json")
    assert differs(terms, {"content": deep}, {"content": deep}) == []
    endless = b"[" * 60_000
    assert differs(terms, {"content": endless}, {"content": endless}) == []


def test_there_is_an_end_to_what_is_looked_at_and_to_what_is_named(monkeypatch):
    assert len(in_json(list(range(100)), [-1] * 100)) == copydifference.MOST + 1
    monkeypatch.setattr(copydifference, "NODES", 10)
    assert in_json([0] * 100, [0] * 100) == ["json: too much to be compared"]


def test_names_and_values_are_bounded_and_printable():
    (word,) = in_json({"a\n" * 100: 1}, {}, values=True)
    assert word.isprintable()
    assert len(word) < 200
    one = {"headers": [(b"x-a", b"\xff" * 500)]}
    assert len(differs(Terms(values=True), one, {})[0]) < 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(one=VALUES, other=VALUES)
def test_values_differ_exactly_when_they_are_not_equal(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (in_json(one, other) == []) is same
    assert in_json(one, one) == []
