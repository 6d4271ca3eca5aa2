"""What is a fault of a condition or a key: found at load, with its place and its reason."""

from __future__ import annotations

import pytest
from exchanges import exchange
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.expression import condition

EXPONENTIAL = "a repetition can read the same text in several ways, so the time can double with each character"
NO_VALUE = (
    "request is no value; name a member: request.method, request.path, request.host, request.headers, request.query, "
    "request.cookies, request.protocol, request.service, request.operation, request.malformed"
)

FAULTS = [
    # names
    ('requst.path == "x"', 'column 1: unknown name "requst"; did you mean "request"?'),
    ("true && requst.path == 'x'", 'column 9: unknown name "requst"; did you mean "request"?'),
    ("banana", 'column 1: unknown name "banana"; known: identity, request, route, source'),
    ("request.pth == 'x'", 'column 9: request has no member "pth"; did you mean "path"?'),
    ("request.Header['x'] == 'x'", 'column 9: request has no member "Header"; did you mean "headers"?'),
    (
        "source.zzz",
        (
            'column 8: source has no member "zzz"; '
            "known: certificate, ip, port, serverName, tls, tlsCipher, tlsVersion"
        ),
    ),
    ("source.ip.foo", 'column 11: a string has no member "foo"'),
    ("source.ip.size == 3", 'column 11: a string has no member "size"; call it: .size()'),
    ("source.port.foo", "column 13: an int has no members"),
    ("request == 'x'", f"column 1: {NO_VALUE}"),
    ("request.headers == 'x'", "column 1: request.headers is a map; take a value out of it: request.headers['name']"),
    ("request.headers.accept == 'x'", "column 17: request.headers is a map; write request.headers['accept']"),
    ("request.query.size == 1", "column 15: request.query is a map; write size(request.query)"),
    ("response.status == 200", 'column 1: "response" exists from the stage PRE_RESPONSE on, this is evaluated before'),
    ("func.requestId == 'x'", 'column 1: "func" exists in templates only'),
    ("request.func.remoteCost > 1", 'column 9: "request.func" exists in templates only'),
    ("request.headers['host'] == 'x'", 'column 17: request.headers never holds "host": use request.host'),
    ("'Connection' in request.headers",
     'column 1: request.headers never holds "connection": framing belongs to the codec'),
    ("request.headers['a b'] == ''", 'column 17: "a b" is no field name'),
    ("request.headers[''] == ''", 'column 17: "" is no field name'),
    ("request.headers['中'] == ''", None),
    # types
    ("source.ip", "column 1: a condition must be a bool, this is a string"),
    ("1", "column 1: a condition must be a bool, this is an int"),
    ("source.port == '80'", 'column 13: "==" cannot compare an int with a string'),
    ("source.tls == 1", 'column 12: "==" cannot compare a bool with an int'),
    ("source.ip == null",
     'column 11: "==" cannot compare a string with null; nothing is null here: what is missing is empty'),
    ("route.tags == [1]", 'column 12: "==" cannot compare a list of string with a list of int'),
    ("[1] < [2]", 'column 5: "<" needs numbers, strings or bools, this is a list of int'),
    ("null < null", 'column 6: "<" needs numbers, strings or bools, this is null'),
    ("'a' in source.ip", 'column 5: "in" needs a list or a map on its right, this is a string; use .contains()'),
    ("'a' in 5", 'column 5: "in" needs a list or a map on its right, this is an int'),
    ("1 in route.tags", 'column 3: "in": an int is never in a list of string'),
    ("1 in request.query", "column 1: the keys of a map are strings, this is an int"),
    ("'a' in request", f"column 8: {NO_VALUE}"),
    ("request.query[1] == ''", "column 15: a key must be a string, this is an int"),
    ("source.ip['x'] == ''", "column 10: only maps have keys in brackets, a string has none"),
    ("request['x'] == ''", "column 8: only maps have keys in brackets, request has none"),
    ("[1, 'a'] == []", "column 5: the items of a list are of one type: this is a string, the first is an int"),
    ("!source.ip", 'column 2: what stands behind "!" must be a bool, this is a string'),
    ("-source.ip == 1", 'column 2: what stands behind "-" must be an int or a double, this is a string'),
    ("-'a' == 1", 'column 2: what stands behind "-" must be an int or a double, this is a string'),
    ("source.tls && source.ip", 'column 15: each side of "&&" must be a bool, this is a string'),
    ("true || 1", 'column 9: each side of "||" must be a bool, this is an int'),
    ("source.ip ? true : false", 'column 1: what stands before "?" must be a bool, this is a string'),
    ("source.tls ? 1 : 'a'", "column 12: both sides of a choice are of one type: an int and a string"),
    # functions
    ("source.tls.size() == 1", "column 12: size() is of strings, lists and maps, this is a bool"),
    ("size(request) == 1", f"column 6: {NO_VALUE}"),
    ("size(source.tls == true) == 1", "column 1: size() is of strings, lists and maps, this is a bool"),
    ("[1, source.tls == true] == []",
     "column 5: the items of a list are of one type: this is a bool, the first is an int"),
    ("[1, source.tls && true] == []",
     "column 5: the items of a list are of one type: this is a bool, the first is an int"),
    ("[1, source.tls ? 'a' : 'b'] == []",
     "column 5: the items of a list are of one type: this is a string, the first is an int"),
    ("[1, source.ip.contains('a')] == []",
     "column 5: the items of a list are of one type: this is a bool, the first is an int"),
    ("size(source.ip.size().size()) == 1", "column 23: size() is of strings, lists and maps, this is an int"),
    ("size() == 1", "column 1: size() takes 1 argument, not 0"),
    ("source.ip.size(1) == 1", "column 11: size() takes no arguments, not 1"),
    ("source.ip.startsWith()", "column 11: startsWith() takes 1 argument, not 0"),
    ("source.ip.startsWith('a', 'b')", "column 11: startsWith() takes 1 argument, not 2"),
    ("source.ip.startsWith(1)", "column 22: the argument of startsWith() must be a string, this is an int"),
    ("source.port.startsWith('a')", "column 13: .startsWith() is called on strings, this is an int"),
    ("source.ip.startswith('a')", 'column 11: a string has no function "startswith"; did you mean "startsWith"?'),
    ("source.port.zzz()", 'column 13: an int has no function "zzz"'),
    ("route.tags.contains('a')", "column 12: .contains() is called on strings, this is a list of string"),
    ("route.tags.length() == 1", 'column 12: a list of string has no function "length"; known: size'),
    ("request.headers.get('a') == ''", 'column 17: a map has no function "get"; known: size'),
    ("request.zzz()", 'column 9: request has no function "zzz"'),
    ("route.tags.exists(t, t == 'a')", "column 12: the macro exists() is not in the language"),
    ("has(request.headers)", "column 1: has() is not in the language; write 'name' in request.headers"),
    ("matches(source.ip, 'a')", "column 1: matches is called on a string: request.path.matches(…)"),
    ("incidr(source.ip, '10.0.0.0/8')", 'column 1: unknown function "incidr"; did you mean "inCidr"?'),
    ("inCidr(source.ip)", "column 1: inCidr() takes 2 arguments, not 1"),
    ("inCidr(source.port, '10.0.0.0/8')", "column 8: the first argument of inCidr() must be a string, this is an int"),
    ("inCidr(source.ip, 10)", "column 19: the second argument of inCidr() must be a string, this is an int"),
    ("inCidr(source.ip, source.ip)", "column 19: the network of inCidr() must be a constant"),
    ("inCidr(source.ip, '10.0.0.1/8')",
     'column 19: "10.0.0.1/8" has bits set behind its prefix; did you mean "10.0.0.0/8"?'),
    ("inCidr(source.ip, 'x')", 'column 19: "x" is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32'),
    ("source.ip.matches(source.ip)", "column 19: the pattern of matches() must be a constant"),
    ("source.ip.matches('(')", 'column 19: the pattern "(" is wrong at character 1: "(" is never closed'),
    ("source.ip.matches('(a+)+')",
     f'column 19: the pattern "(a+)+" can take too long: {EXPONENTIAL}'),
    # syntax
    ("", "column 1: an expression is missing here"),
    ("  ", "column 3: an expression is missing here"),
    ("source.port + 1 == 2", 'column 13: arithmetic is not in the language: "+"'),
    ("1 - 1 == 0", 'column 3: arithmetic is not in the language: "-"'),
    ("+1 == 1", 'column 1: arithmetic is not in the language: "+"'),
    ("source.tls and true", 'column 12: unexpected "and"; did you mean "&&"?'),
    ("source.tls = true", 'column 12: unexpected character "="; did you mean "=="?'),
    ("true & true", 'column 6: unexpected character "&"; did you mean "&&"?'),
    ("true | true", 'column 6: unexpected character "|"; did you mean "||"?'),
    ("source.ip == \u2018a\u2019", "column 14: unexpected character \"\u2018\"; strings stand between ' or \""),
    ("true\x00", "column 5: unexpected character U+0000"),
    ("true true", 'column 6: unexpected "true"'),
    ("true 'a'", "column 6: unexpected a string"),
    ("true &&", "column 8: expected a value, got the end"),
    ("== 1", 'column 1: expected a value, got "=="'),
    ("in", 'column 1: expected a value, got "in"'),
    ("(true", 'column 1: "(" is never closed'),
    ("(true]", 'column 6: expected ")", got "]"'),
    ("source.ip in ['a'", 'column 14: "[" is never closed'),
    ("true)", 'column 5: unexpected ")"'),
    ("request.", 'column 9: expected a name behind ".", got the end'),
    ("request.'a'", 'column 9: expected a name behind ".", got a string'),
    ("true ? 1", 'column 9: expected ":", got the end'),
    ("true ? true ? true : false : false",
     'column 13: unexpected "?"; put a choice inside another one into parentheses'),
    ("{'a': 1}", "column 1: messages and maps cannot be made here"),
    ("request{a: 1}", "column 8: messages and maps cannot be made here"),
    ("'abc", "column 1: the string that begins here has no closing '"),
    ("'a\nb'", "line 1, column 1: the string that begins here has no closing '"),
    ("true &&\n  'abc", "line 2, column 3: the string that begins here has no closing '"),
    ("true &&\n  zzz", 'line 2, column 3: unknown name "zzz"; known: identity, request, route, source'),
    (r"'\q' == ''", r'column 2: "\q" is no escape; for a backslash write two, or a raw string: ' + "r'…'"),
    (r"'ab\x4' == ''", r'column 4: "\x" is no escape; for a backslash write two, or a raw string: ' + "r'…'"),
    (r"'\ud800' == ''", r'column 2: "\ud800" is no character'),
    (r"'\U00110000' == ''", r'column 2: "\U00110000" is no character'),
    ("b'a' == ''", "column 1: bytes are not in the language; write a string"),
    ("rr'a' == ''", 'column 1: "rr" cannot stand before a string'),
    ("1. == 1", 'column 1: "1." is no number'),
    ("0x == 1", 'column 1: "0x" is no number'),
    ("1a == 1", 'column 1: "1a" is no number'),
    ("9223372036854775808 == 1", "column 1: 9223372036854775808 does not fit into 64 bits"),
    ("-9223372036854775809 == 1", "column 1: -9223372036854775809 does not fit into 64 bits"),
    ("--9223372036854775808 == 1", "column 1: the number does not fit into 64 bits"),
    ("18446744073709551616u == 1", "column 1: 18446744073709551616u does not fit into 64 bits"),
    ("1" * 5000 + " == 1", f"column 1: {'1' * 5000} does not fit into 64 bits"),
    ("1e999 == 1.0", "column 1: 1e999 is too large for a double"),
    ("-1e999 == 1.0", "column 1: -1e999 is too large for a double"),
    ("-1u == 1", 'column 2: what stands behind "-" must be an int or a double, this is a uint'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_says_where_and_what(text: str, message: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        condition.compile(text)
    assert message is None or caught.value.message == message
    assert "\n" not in caught.value.message


def test_a_key_must_be_a_scalar() -> None:
    with pytest.raises(ConfigError) as caught:
        condition.expression("route.tags")
    assert caught.value.message == "column 1: a key must be a string, a number or a bool, this is a list of string"
    with pytest.raises(ConfigError, match="this is null"):
        condition.expression("null")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "true" + ")" * 5000,
        "!" * 5000 + "true",
        "-" * 5000 + "1 == 1",
        "true" + " == true" * 1000,
        "source" + ".ip" * 1000,
        "true ? true : " * 1000 + "true",
        "[" * 1000,
        "source.ip" + "['a']" * 1000,
        "request.query[" * 1000,
        "size(" * 1000,
    ],
)
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        condition.compile(text)


def test_length_is_bounded() -> None:
    with pytest.raises(ConfigError, match=r"column 1: the expression is longer than 16384 characters"):
        condition.compile("true && " * 10_000 + "true")


PIECES = st.sampled_from(
    ["request", "source", "route", "response", ".", "..", "path", "headers", "ip", "tls", "tags", "size", "startsWith",
     "matches", "inCidr", "(", ")", "[", "]", "{", "}", ",", "==", "!=", "<", "<=", "in", "&&", "||", "!", "?", ":",
     "-", "+", "'a'", '"b"', "r'('", "'''x'''", "1", "0x1f", "2u", "1.5", ".5", "1e9", "true", "false", "null", "['x']",
     "'10.0.0.0/8'", "#", "\\", "'", '"', "//", "\n"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=14).map(" ".join), st.lists(PIECES).map("".join)))
def test_any_text_compiles_or_is_a_config_error(text: str) -> None:
    for make in (condition.compile, condition.expression):
        try:
            compiled = make(text, response=True)
        except ConfigError as error:
            assert "column " in error.message  # noqa: PT017
        else:
            assert isinstance(compiled(exchange()), bool | str)
