"""Who was authenticated, and what its claims are as texts and lists."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.expression import condition, template
from protogate.identity.identity import Identity
from protogate.testing.exchange import exchange

CLAIMS = {
    "sub": "alice",
    "groups": ["admin", "ops"],
    "age": 41,
    "ratio": 1.5,
    "staff": True,
    "nothing": None,
    "scope": "read write",
    "title": "read write",
    "odd": ["a,admin", "b"],
    "mixed": ["a", 1, None, ["admin"]],
    "realm_access": {"roles": ["admin"], "deep": {"er": "x"}},
    "https://a.test/roles": ["far"],
    "a.b": "whole",
    "a": {"b": "path"},
}
ALICE = Identity("alice", "jwt", CLAIMS)


@pytest.mark.parametrize(
    ("name", "text", "texts"),
    [
        ("sub", "alice", ("alice",)),
        ("groups", "admin,ops", ("admin", "ops")),
        ("age", "41", ()),
        ("ratio", "1.5", ()),
        ("staff", "true", ()),
        ("nothing", "", ()),
        ("missing", "", ()),
        ("scope", "read write", ("read", "write")),
        ("title", "read write", ("read write",)),
        ("odd", '["a,admin","b"]', ("a,admin", "b")),
        ("mixed", '["a",1,null,["admin"]]', ("a",)),
        ("realm_access", '{"roles":["admin"],"deep":{"er":"x"}}', ()),
        ("realm_access.roles", "admin", ("admin",)),
        ("realm_access.deep.er", "x", ("x",)),
        ("realm_access.none.er", "", ()),
        ("sub.x", "", ()),
        ("https://a.test/roles", "far", ("far",)),
        ("a.b", "whole", ("whole",)),
    ],
)
def test_a_claim_is_one_text_or_a_list(name, text, texts):
    assert (ALICE.text(name), ALICE.texts(name)) == (text, texts)


@pytest.mark.parametrize(
    ("name", "named"),
    [("sub", "alice"), ("age", "41"), ("ratio", ""), ("staff", ""), ("groups", ""), ("realm_access", ""), ("none", "")],
)
def test_a_name_is_a_text_or_a_whole_number(name, named):
    assert ALICE.named(name) == named


@given(st.text())
def test_a_name_is_told_as_it_is_or_is_none(text):
    named = Identity("", "jwt", {"sub": text}).named("sub")
    assert named in ("", text)
    if named:
        assert template.encode(named) == text.encode("utf-8", "replace")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8)


@given(JSON)
def test_no_word_of_a_list_comes_into_being_by_writing_it_down(value):
    """Who splits the text at commas sees no word that was not in the list."""
    identity = Identity("", "jwt", {"x": value})
    words = set(identity.text("x").split(",")) - {""}
    if isinstance(value, list) and all(isinstance(item, str) and "," not in item for item in value):
        assert words == set(value) - {""}
    elif value is not None and not isinstance(value, str):
        assert json.loads(identity.text("x")) == value


@pytest.mark.parametrize(
    "text",
    [
        "identity.user == 'alice'",
        "identity.scheme in ['jwt', 'key']",
        "identity.claims['groups'] == 'admin,ops'",
        "identity.claims['age'] == '41'",
        "'ops' in identity.lists['groups']",
        "'write' in identity.lists['scope']",
        "!('root' in identity.lists['groups'])",
        "identity.lists['realm_access.roles'] == ['admin']",
        "size(identity.lists['missing']) == 0",
        "'sub' in identity.claims && !('missing' in identity.claims)",
        "identity.claims[request.method] == ''",
        "size(identity.claims) > 3",
    ],
)
def test_conditions_name_it(text):
    made = exchange()
    made.identity = ALICE
    assert condition.compile(text)(made) is True


@pytest.mark.parametrize(
    "text",
    [
        "identity.user == '' && identity.scheme == ''",
        "identity.claims['sub'] == ''",
        "identity.lists['groups'] == []",
        "!('sub' in identity.claims) && size(identity.claims) == 0",
    ],
)
def test_while_nobody_was_authenticated_all_of_it_is_empty(text):
    assert condition.compile(text)(exchange()) is True


def test_templates_name_it_and_no_claim_can_break_a_header():
    made = exchange()
    made.identity = Identity("é\r\nx-admin: 1", "jwt", {"roles": ["a", "b"]})
    found = template.compile("${identity.scheme}:${identity.user}:${identity.claims['roles']}")
    assert found.header(made) == "jwt:éx-admin: 1:a,b".encode()
