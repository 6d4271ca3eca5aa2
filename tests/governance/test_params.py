"""Parameters of built-in modules: read strictly, all faults in one go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.expression.template import compile as template
from protogate.governance.fields import Fields
from protogate.governance.params import Params, shown


def told(reader):
    """What a reading complains about, as (path, message)."""
    return [(fault.path, fault.message) for fault in reader.faults]


def test_nothing_wrong_raises_nothing():
    reader = Params({"a": "x"}, "a", "b")
    reader.done()
    assert "a" in reader
    assert "b" not in reader


def test_one_fault_is_raised_alone_and_several_together():
    reader = Params({"alow": []}, "allow")
    with pytest.raises(ConfigError) as caught:
        reader.done()
    assert caught.value.path == ("alow",)
    reader = Params({"alow": [], "x": 1}, "allow", "deny")
    with pytest.raises(ConfigFaults) as several:
        reader.done()
    assert [fault.message for fault in several.value.faults] == [
        'unknown parameter "alow"; did you mean "allow"?',
        'unknown parameter "x"; known: allow, deny',
    ]


def test_text():
    made = template("${func.requestId}")
    reader = Params({"a": "x", "t": made, "e": ""})
    assert (reader.text("a"), reader.text("t"), reader.text("e"), reader.text("d", "or")) == ("x", made, "", "or")
    assert reader.faults == []


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "a is missing"),
        ({"a": None}, "expected a text, got nothing"),
        ({"a": 3}, "expected a text, got 3; put it in quotes"),
        ({"a": True}, "expected a text, got true; put it in quotes"),
        ({"a": 1.5}, "expected a text, got 1.5; put it in quotes"),
        ({"a": ["x"]}, "expected a text, got a list"),
        ({"a": {"x": 1}}, "expected a text, got a mapping"),
    ],
)
def test_what_is_no_text(params, message):
    reader = Params(params)
    assert reader.text("a") == ""
    assert told(reader) == [(("a",), message)]


def test_literal_takes_no_template():
    reader = Params({"a": template("${func.requestId}"), "b": "x"})
    assert (reader.literal("a"), reader.literal("b")) == ("", "x")
    assert told(reader) == [(("a",), "expected a plain text: ${…} is not evaluated here")]


@pytest.mark.parametrize("value", [399, 600, "404", 404.0, True, None, [404]])
def test_integer_takes_numbers_in_range_only(value):
    reader = Params({"status": value, "ok": 599})
    assert reader.integer("status", 403, 400, 599) == 403
    assert reader.integer("ok", 403, 400, 599) == 599
    assert reader.integer("gone", 403, 400, 599) == 403
    assert told(reader) == [(("status",), f"expected a number from 400 to 599, got {shown(value)}")]


def test_items():
    reader = Params({"a": ["x", 1], "b": "x"})
    assert (reader.items("a"), reader.items("gone"), reader.items("b")) == (["x", 1], [], [])
    assert told(reader) == [(("b",), 'expected a list, got "x"')]


def test_lines_are_encoded_at_load(exchange):
    reader = Params({"X-One": "a b", "x-empty": "", "x-many": ["1", template("${func.requestId}")]})
    fields = Fields(reader.lines())
    assert fields.of(exchange) == [
        (b"x-one", b"a b"),
        (b"x-empty", b""),
        (b"x-many", b"1"),
        (b"x-many", exchange.id.encode()),
    ]
    assert (fields.names, fields.single) == ({b"x-one", b"x-empty", b"x-many"}, False)
    assert reader.faults == reader.warnings == []


def test_constant_lines_are_made_once(exchange):
    fields = Fields(Params({"x-one": "a"}).lines())
    assert fields.of(exchange) is fields.of(exchange)
    assert fields.single


def test_lines_of_a_parameter():
    reader = Params({"headers": {"a b": "x", "c": "\n"}, "more": ["x"]})
    assert reader.lines("gone") == []
    reader.lines("headers")
    assert reader.lines("more") == []
    assert [path for path, _ in told(reader)] == [("headers", "a b"), ("headers", "c"), ("more",)]


@pytest.mark.parametrize("name", ["", " ", "a b", "a:", "é", "x\r\n", "(a)", "a\x00", 3, None])
def test_what_is_no_field_name(name):
    reader = Params({name: "x"})
    reader.lines()
    assert told(reader) == [((name,), f"{shown(name)} is no field name")]


@pytest.mark.parametrize("value", [" a", "a ", "a\nb", "a\r\nx: y", "\x00", "é", "a\x7f", "\t"])
def test_what_is_no_field_value(value):
    reader = Params({"x": ["ok", value]})
    reader.lines()
    ((path, message),) = told(reader)
    assert path == ("x", 1)
    assert message.endswith("is no field value: visible ASCII, spaces and tabs between, nothing else")


@pytest.mark.parametrize("value", [1, 1.5, False, None, {"a": "b"}, [["x"]]])
def test_values_that_are_no_text_are_faults(value):
    reader = Params({"x": value})
    reader.lines()
    ((path, message),) = told(reader)
    assert path[:1] == ("x",)
    assert message.startswith("expected a text, got ")


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding"])
def test_framing_fields_are_faults(name):
    reader = Params({name: "5"})
    reader.lines()
    assert told(reader) == [((name,), f"{name} belongs to the codec, which frames each message itself")]


def test_fields_of_the_connection_are_warnings():
    reader = Params({"Keep-Alive": "timeout=5"})
    assert reader.lines() == [(b"keep-alive", b"timeout=5", None)]
    assert [warning.path for warning in reader.warnings] == [("Keep-Alive",)]


@given(st.text())
def test_no_literal_value_breaks_a_line(text):
    reader = Params({"x": text})
    ((_, value, _),) = reader.lines()
    assert not set(value) & {10, 13, 0}
    assert value.strip(b" \t") == value


@given(st.text())
def test_no_name_is_anything_but_a_token(text):
    reader = Params({})
    name = reader.field(text)
    assert (name == b"") == bool(reader.faults)
    assert not set(name) & set(b' \t\r\n:,;()<>@[]{}?=\\"/\x00')


def test_shown_is_short():
    assert len(shown("x" * 1000)) < 70
    assert shown(template("${func.requestId}")) == "a template"
