"""Headers: a list of lines that keeps the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protogate.message import Field, Headers

LINES = st.lists(st.tuples(st.sampled_from((b"a", b"b", b"c")), st.sampled_from((b"1", b"2"))), max_size=8)
NAMES = st.sampled_from((b"a", b"b", b"c"))


@given(LINES, NAMES)
def test_one_line_instead_of_all_of_that_name_in_the_place_of_the_first(lines: list[Field], name: bytes) -> None:
    headers = Headers(lines)
    headers.set(name, b"new")
    at = next((index for index, line in enumerate(lines) if line[0] == name), len(lines))
    others = [line for line in lines if line[0] != name]
    assert headers == [*others[:at], (name, b"new"), *others[at:]]
    assert headers.get(name) == b"new"


@given(LINES, NAMES)
def test_what_is_taken_out_is_every_line_of_that_name(lines: list[Field], name: bytes) -> None:
    headers = Headers(lines)
    assert headers.all(name) == [value for key, value in lines if key == name]
    headers.remove(name)
    assert headers == [line for line in lines if line[0] != name]
    assert headers.get(name) is None
    assert headers.all(name) == []


def test_lines_of_several_names_are_taken_out_at_once() -> None:
    headers = Headers([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")])
    headers.without(frozenset((b"b", b"c", b"d")))
    assert headers == [(b"a", b"1"), (b"a", b"3")]
    headers.without(())
    assert headers == [(b"a", b"1"), (b"a", b"3")]
