"""Regular expressions: RE2's syntax and meaning, by C{re}."""

from __future__ import annotations

import re

import cel
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.expression import regex


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("c$", "abc", True),
        ("c$", "abc\n", False),
        (r"c\z", "abc", True),
        (r"c\z", "abc\n", False),
        (r"\Aa", "abc", True),
        ("(?m)c$", "abc\nd", True),
        ("(?m)^d", "abc\nd", True),
        ("^d", "abc\nd", False),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("(?s:a.)c", "a\nc", True),
        ("(?s:a).c", "a\nc", False),
        (r"^\d$", "5", True),
        (r"^\d$", "\u0665", False),
        (r"^\w+$", "aZ_9", True),
        (r"^\w$", "é", False),
        (r"^\s$", "\u00a0", False),
        (r"^\s$", "\v", False),
        (r"^\D\W\S$", "é-é", True),
        (r"^[^\d]$", "5", False),
        (r"^[\D]$", "é", True),
        (r"\bfoo\b", "a foo b", True),
        (r"\bfoo\b", "afoo", False),
        (r"\Boo\b", "foo", True),
        ("^[[:alpha:]]+$", "aZ", True),
        ("^[[:^alpha:]]+$", "aZ", False),
        ("^[[:digit:]x]+$", "1x2", True),
        ("^[[:a]+$", "[:a", True),
        ("^[a-c-]+$", "a-c", True),
        ("^[]a]+$", "]a", True),
        ("^[^]a]+$", "bc", True),
        (r"^[\]\-\\]+$", r"]-\-]", True),
        (r"^[\n\x41\x{42}\103]+$", "\nABC", True),
        (r"^\x41\x{1F600}\103\0$", "A\U0001f600C\0", True),
        (r"^\a\f\t\n\r\v$", "\a\f\t\n\r\v", True),
        (r"^\.\*\-\/$", ".*-/", True),
        ("^[^\\x00-\\x{10FFFF}]$", "a", False),
        ("(?i)bot", "GoogleBOT", True),
        ("(?i)k[a-c]", "\u212aB", True),
        ("(?i)[^a]$", "A", False),
        ("(?i)é", "É", True),
        ("(?i)[à-ü]", "É", True),
        ("(?i)[\u0100-\U0010ffff]", "a", False),
        ("(?i)a(?-i)b", "AB", False),
        ("(?i)a(?-i)b", "Ab", True),
        ("(?:(?i)a|b)c", "Bc", True),
        ("(?:(?i)a|b)c", "BC", False),
        (r"^\Qa.b*\E+$", "a.b**", True),
        (r"^\Qa.b", "a.b", True),
        (r"^\Q\Ea$", "a", True),
        (r"^\Qa\E\Q\E$", "a", True),
        ("^a{2}$", "aa", True),
        ("^a{2,}$", "aaa", True),
        ("^a{2,3}$", "aaaa", False),
        ("^a{,2}$", "a{,2}", True),
        ("^a{x$", "a{x", True),
        ("^a+?b??c*?$", "aac", True),
        ("^(?P<x>a)(?<y>b)(c)$", "abc", True),
        ("^a{0}b$", "b", True),
        ("^(|a)b$", "b", True),
        ("", "abc", True),
        ("a]}b", "a]}b", True),
    ],
)
def test_means_what_re2_means(pattern: str, text: str, found: bool) -> None:
    assert (regex.compile(pattern).search(text) is not None) is found


def test_groups_can_be_read() -> None:
    match = regex.compile("^/(?P<kind>[a-z]+)/([0-9]+)$").search("/order/12")
    assert match is not None
    assert match["kind"] == "order"
    assert match[2] == "12"


def test_a_pattern_is_compiled_once() -> None:
    assert regex.compile("^/once$") is regex.compile("^/once$")


@pytest.mark.parametrize(
    ("pattern", "place", "message"),
    [
        (r"(a)\1", 4, "backreferences are not in RE2"),
        (r"(?P<a>a)(?P=a)", 9, "backreferences are not in RE2"),
        ("(?=a)", 1, "lookaround is not in RE2"),
        ("(?!a)", 1, "lookaround is not in RE2"),
        ("b(?<=a)", 2, "lookaround is not in RE2"),
        ("b(?<!a)", 2, "lookaround is not in RE2"),
        ("(?>a)", 1, "atomic groups are not in RE2"),
        ("(?#a)", 1, "this kind of group is unknown"),
        ("(?", 1, "this kind of group is unknown"),
        ("a++", 3, "a repetition is repeated; possessive ones are not in RE2"),
        ("a**", 3, "a repetition is repeated; possessive ones are not in RE2"),
        ("a{2}{3}", 5, "a repetition is repeated; possessive ones are not in RE2"),
        ("(?U)a", 3, 'the flag "U" is not supported, only i, m and s are'),
        (r"\pL", 1, "Unicode classes are not supported; name the characters"),
        (r"[\PL]", 2, "Unicode classes are not supported; name the characters"),
        (r"\Z", 1, r'the escape "\Z" is unknown'),
        (r"\C", 1, r'the escape "\C" is unknown'),
        (r"\xg", 1, r'the escape "\x" is unknown'),
        (r"\x{110000}", 1, r'"\x{110000}" is no character'),
        ("a\\", 2, r'"\" stands at the end; for the character write two'),
        ("[a", 1, '"[" is never closed'),
        ("[]", 1, '"[" is never closed'),
        ("a[", 2, '"[" is never closed'),
        ("[b-a]", 2, 'the range "b-a" has its ends the wrong way round'),
        ("(a", 1, '"(" is never closed'),
        ("a)", 2, '")" closes nothing; for the character write "\\)"'),
        ("*a", 1, 'nothing stands before "*" to be repeated'),
        ("a|+", 3, 'nothing stands before "+" to be repeated'),
        ("[[:nope:]]", 2, 'the class "[:nope:]" is unknown'),
        ("^{1}", 1, "a place cannot be repeated"),
        (r"a*\Q\E*", 7, 'nothing stands before "*" to be repeated'),
        ("^*", 1, "a place cannot be repeated"),
        (r"\b+", 1, "a place cannot be repeated"),
        ("a{1001}", 2, "more than 1000 repetitions"),
        ("a{3,2}", 2, "{3,2} has its numbers the wrong way round"),
        ("(?P<a>a)(?P<a>b)", 9, 'the group name "a" is used twice'),
        ("(" * 40, 33, "groups are nested more than 32 deep"),
    ],
)
def test_a_fault_says_where_and_what(pattern: str, place: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        regex.compile(pattern)
    assert caught.value.message == f'the pattern "{pattern}" is wrong at character {place}: {message}'


def test_length_is_bounded() -> None:
    with pytest.raises(ConfigError, match="longer than 4096 characters"):
        regex.compile("a" * 4097)


PIECES = st.sampled_from(
    ["a", "b", "c", "A", ".", "^", "$", "|", "(", ")", "(?:", "(?i)", "(?i:", "(?s)", "(?m)", "(?P<n>", "*", "+", "?",
     "{2}", "{1,2}", "{0,}", "[ab]", "[^a]", "[b-d]", r"\d", r"\W", r"\s", r"\b", r"\z", r"\A", "[[:alpha:]]", r"\.",
     r"\n", r"\Q", r"\E", "-", r"[\w-]", "/", r"\x41", "=", "<", "!", "1"]
)  # fmt: skip
PATTERNS = st.lists(PIECES, max_size=8).map("".join)
TEXTS = st.text("abcdABD1 .-/\n", max_size=8)


@given(PATTERNS, TEXTS)
def test_agrees_with_the_engine_of_a_cel_implementation(pattern: str, text: str) -> None:
    try:
        compiled = regex.compile(pattern)
    except ConfigError:
        assume(False)
    try:
        expected = cel.evaluate("text.matches(pattern)", {"text": text, "pattern": pattern})
    except RuntimeError:
        assume(False)
    assert (compiled.search(text) is not None) is expected


@given(st.text(), st.text())
def test_any_text_is_a_pattern_or_a_config_error(pattern: str, text: str) -> None:
    try:
        compiled = regex.compile(pattern)
    except ConfigError as error:
        assert error.message  # noqa: PT017
    else:
        assert isinstance(compiled, re.Pattern)
        compiled.search(text)


@given(st.text())
def test_an_escaped_text_finds_itself(text: str) -> None:
    escaped = "".join(f"\\x{{{ord(character):x}}}" for character in text)
    assert regex.compile(f"^{escaped}$").search(text)
