"""Structured fields: read, refused, written again."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.identity.structured import Inner, Item, Word, dictionary, written


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": Item(1, {})}),
        ("a", {"a": Item(True, {})}),
        ("a;x", {"a": Item(True, {"x": True})}),
        ("a=?0;x=?1", {"a": Item(False, {"x": True})}),
        ('a="b\\"c\\\\";d=e', {"a": Item('b"c\\', {"d": Word("e")})}),
        ("a=:aGk=: , b=-42", {"a": Item(b"hi", {}), "b": Item(-42, {})}),
        (
            's=("@a" "b";x  c);k=1',
            {"s": Inner((Item("@a", {}), Item("b", {"x": True}), Item(Word("c"), {})), {"k": 1})},
        ),
        ("s=()", {"s": Inner((), {})}),
        ("s=( 1 )", {"s": Inner((Item(1, {}),), {})}),
        ("a=1,\tb=2", {"a": Item(1, {}), "b": Item(2, {})}),
    ],
)
def test_a_dictionary(text, found):
    assert dictionary(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "A=1",
        "a=",
        "a=1,",
        "a=1 b=2",
        "a=1,,b=2",
        ",a=1",
        "a=1, a=2",
        "a;x;x",
        'a="b',
        'a="é"',
        'a="b\\c"',
        "a=:!:",
        "a=:aGk",
        "a=:a:",
        "a=1.5",
        "a=1234567890123456",
        "a=?2",
        "a=(",
        'a=("b""c")',
        "a=(b) c",
        "a=((b))",
        "a=@1",
        "a=%x",
        ",".join(f"k{number}" for number in range(65)),
        "a=(" + "1 " * 65 + ")",
        "a" + "".join(f";k{number}" for number in range(65)),
    ],
)
def test_what_is_none(text):
    with pytest.raises(ValueError, match=r"expected|twice|comma|more than|Invalid|padding|base64"):
        dictionary(text)


KEYS = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,8}", fullmatch=True)
BARE = (
    st.booleans()
    | st.integers(-(10**15) + 1, 10**15 - 1)
    | st.binary(max_size=20)
    | st.from_regex(r"[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]{0,8}", fullmatch=True).map(Word)
    | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
)
PARAMETERS = st.dictionaries(KEYS, BARE, max_size=3)
ITEMS = st.builds(Item, BARE, PARAMETERS)
MEMBERS = ITEMS | st.builds(Inner, st.lists(ITEMS, max_size=3).map(tuple), PARAMETERS)


@given(st.dictionaries(KEYS, MEMBERS, max_size=4))
def test_what_is_written_is_read_as_the_same(members):
    text = ", ".join(f"{key}={written(member)}" for key, member in members.items())
    found = dictionary(text)
    assert found == members
    assert [type(member.value) for member in found.values() if isinstance(member, Item)] == [
        type(member.value) for member in members.values() if isinstance(member, Item)
    ]


@given(st.text(max_size=60))
def test_whatever_it_is_it_is_a_dictionary_or_refused(text):
    with contextlib.suppress(ValueError):
        dictionary(text)
