from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import scalar


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_has_five_spellings(text: str) -> None:
    assert scalar.plain(text) is None


@pytest.mark.parametrize("text", ["nULL", "none", "None", "nil"])
def test_nothing_else_is_null(text: str) -> None:
    assert scalar.plain(text) == text


def test_booleans_are_those_of_yaml_1_2() -> None:
    assert [scalar.plain(text) for text in ("true", "True", "TRUE")] == [True] * 3
    assert [scalar.plain(text) for text in ("false", "False", "FALSE")] == [False] * 3


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "y", "n", "No", "tRUE"])
def test_words_of_yaml_1_1_are_strings(text: str) -> None:
    assert scalar.plain(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("012", 12),
        ("-7", -7),
        ("+7", 7),
        ("0o14", 12),
        ("0x1F", 31),
        ("000000000000000000000000001", 1),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert scalar.plain(text) == value
    assert type(scalar.plain(text)) is int


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("-.5", -0.5), ("1.", 1.0), ("1e3", 1000.0), ("1.5E-2", 0.015), ("+12e03", 12000.0)],
)
def test_floats(text: str, value: float) -> None:
    assert scalar.plain(text) == value
    assert type(scalar.plain(text)) is float


@pytest.mark.parametrize(
    "text",
    [
        "12:30",
        "1_000",
        "0b101",
        "0o8",
        "0xg",
        "-0x1",
        "1.2.3",
        "10.0.0.1",
        "-",
        ".",
        "+",
        "e5",
        "1e",
        "2026-11-29",
        "٣",
    ],
)
def test_what_yaml_1_2_does_not_know_is_a_string(text: str) -> None:
    assert scalar.plain(text) == text


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "9" * 19, "0x" + "f" * 18, "9" * 5000])
def test_numbers_that_nobody_can_hold_are_faults(text: str) -> None:
    with pytest.raises(ValueError, match="text needs quotes"):
        scalar.plain(text)


@given(st.integers(min_value=-(10**17), max_value=10**17))
def test_integers_come_back(value: int) -> None:
    assert scalar.plain(str(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back(value: float) -> None:
    assert math.isclose(scalar.plain(repr(value)), value, rel_tol=0, abs_tol=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (0.5, "0.5"),
        ("x", '"x"'),
        ('a "b"\n', '"a \\"b\\"\\n"'),
        ([], "an empty list"),
        ([1], "a list"),
        ({}, "an empty mapping"),
        ({"a": 1}, "a mapping"),
    ],
)
def test_values_in_messages(value: object, text: str) -> None:
    assert scalar.shown(value) == text


def test_long_values_are_shortened() -> None:
    assert scalar.shown("x" * 40) == f'"{"x" * 40}"'
    assert scalar.shown("x" * 41) == f'"{"x" * 39}…"'


@pytest.mark.parametrize(
    "url",
    [
        "http://admin:hunter2@host/",
        "https://hunter2@host",
        "admin:hunter2@host",
        "http://a:hunter2/@host",
        "http://a:b@c:hunter2@host",
    ],
)
def test_credentials_are_never_shown(url: str) -> None:
    assert "hunter2" not in scalar.shown(url)
    assert "host" in scalar.shown(url)
