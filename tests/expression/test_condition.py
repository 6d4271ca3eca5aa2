"""What conditions and keys mean, and what is a fault of theirs."""

from __future__ import annotations

import pytest
from exchanges import exchange, route
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import Abort, ConfigError
from protogate.expression import condition
from protogate.message import Headers, Peer, Response

HEADERS = [
    (b"accept", b"text/html"),
    (b"x-canary", b"1"),
    (b"x-list", b"a"),
    (b"x-list", b"b"),
    (b"x-empty", b""),
    (b"x-latin", b"caf\xe9"),
    (b"cookie", b"sid=abc"),
    (b"cookie", b"lang=fr"),
]


def request(**more: object):
    return exchange(
        headers=HEADERS,
        route=route(tags=("core", "eu"), properties={"core": "true"}),
        response=Response(503, Headers([(b"server", b"x"), (b"content-length", b"9")])),
        **more,  # type: ignore[arg-type]
    )


HOLDS = [
    # names
    "request.method == 'GET'",
    "request.method != 'POST'",
    "'GET' == request.method",
    "request.path == '/hotel/order'",
    "request.host == 'shop.example'",
    "request.protocol == 'HTTP/1.1'",
    "request.service == ''",
    "!request.malformed",
    "source.ip == '10.1.2.3'",
    "source.port == 40000",
    "source.tls",
    "route.name == 'orders'",
    "'core' in route.tags",
    "!('us' in route.tags)",
    "route.tags == ['core', 'eu']",
    "route.tags != []",
    "route.properties['core'] == 'true'",
    "route.properties['other'] == ''",
    "response.status == 503",
    "response.status >= 500 && response.status < 600",
    "response.headers['server'] == 'x'",
    "response.headers['content-length'] == '9'",
    # headers
    "request.headers['x-canary'] == '1'",
    "request.headers['X-Canary'] == '1'",
    'request.headers["x-canary"] != "2"',
    "request.headers['x-list'] == 'a, b'",
    "request.headers['x-list'] != 'a'",
    "request.headers['x-list'].contains(', ')",
    "request.headers['cookie'] == 'sid=abc; lang=fr'",
    "request.headers['x-latin'] == 'café'",
    "request.headers['x-latin'].size() == 4",
    "request.headers['x-latin'].endsWith('é')",
    "request.headers['x-latin'] != '中'",
    "!request.headers['x-latin'].contains('中')",
    "!(request.headers['x-latin'] in ['中'])",
    "request.headers['x-latin'] in ['中', 'café']",
    "request.headers['none'] == ''",
    "request.headers['x-empty'] == ''",
    "'x-empty' in request.headers",
    "'X-EMPTY' in request.headers",
    "!('none' in request.headers)",
    "request.headers[request.query['city'].size() == 5 ? 'X-Canary' : 'none'] == '1'",
    "(source.tls ? 'X-Canary' : 'none') in request.headers",
    "request.headers[source.tls ? 'é' : '中'] == ''",
    "size(request.headers) == 6",
    "request.headers.size() == 6",
    # query and cookies
    "request.query['city'] == 'Paris'",
    "request.query['none'] == ''",
    "'empty' in request.query && !('none' in request.query)",
    "(source.tls ? 'empty' : 'none') in request.query",
    "request.query[source.tls ? 'city' : 'none'] == 'Paris'",
    "request.query.size() == 2",
    "request.cookies['sid'] == 'abc' && request.cookies['lang'] == 'fr'",
    "request.cookies['none'] == ''",
    # strings
    "request.path.startsWith('/hotel')",
    "!request.path.startsWith('/flight')",
    "request.path.endsWith('order')",
    "request.path.contains('tel/o')",
    "request.path.matches('^/hotel/[a-z]+$')",
    "request.path.matches('tel')",
    "!request.path.matches('^tel')",
    "'/hotel'.startsWith(request.query['empty'])",
    "request.path.startsWith(request.query['none'])",
    "request.path.size() == 12",
    "size(request.path) == 12",
    "size(route.tags) == 2",
    "[1, 2].size() == 2",
    "request.method < 'POST'",
    "'A' < request.method",
    "request.method.startsWith('G') && request.method.endsWith('T') && request.method.contains('E')",
    "request.method in ['GET', 'HEAD']",
    "!(request.method in ['PUT'])",
    "request.path in ['/hotel/order']",
    "request.method in [request.method]",
    "[request.method, 'x'] == ['GET', 'x']",
    "['a'] in [['a'], ['b']]",
    "route.tags in [['core', 'eu']]",
    "!(source.port in [])",
    "source.port in [1, 40000.0]",
    "source.port in [40000u]",
    # numbers
    "source.port > 1023 && source.port <= 65535",
    "source.port == 40000.0",
    "source.port > 0.5",
    "-source.port < 0",
    "-source.port == -40000",
    "-1 < 0",
    "- 1 < 0",
    "--1 == 1",
    "-(1) == -1",
    "-(1.5) == -1.5",
    "0x10 == 16 && -0x10 == -16 && 0xFFu == 255u",
    "9223372036854775807 > -9223372036854775808",
    "18446744073709551615u > 9223372036854775807",
    "1.5e3 == 1500.0 && .5 == 0.5 && 1e-1 == 0.1 && 2E+2 == 200",
    # literals
    r"'a\x41\u0042\U00000043\104' == 'aABCD'",
    r"'\n\t\\\'\"\`\?\a\b\f\r\v' == '''" + "\n\t\\\\\\'\"`?\a\b\f\\r\v'''",
    r"r'a\d' == 'a\\d'",
    r'R"a\d" == "a\\d"',
    "'''it's''' == \"it's\"",
    '"""a"b""" == \'a"b\'',
    "r'''a\\b''' == 'a\\\\b'",
    r"'''a\'''b''' == 'a\'\'\'b'",
    "'a' 	\r\n== // a comment\n 'a'",
    "null == null",
    "null in [null]",
    "[] == []",
    "true > false",
    "true != false",
    # logic
    "true && true || false",
    "false && false || true",
    "!(false || false)",
    "!!true",
    "source.tls && source.port > 0 && request.method == 'GET'",
    "!(source.tls && source.port > 0 && request.method == 'PUT')",
    "!source.tls || source.port == 0 || request.method == 'GET'",
    "!(!source.tls || source.port == 0 || request.method == 'PUT')",
    "!source.tls || source.port > 0",
    "source.tls && source.port > 0",
    "source.tls || request.malformed || false",
    "source.tls ? source.port > 0 : false",
    "!(source.tls ? false : true)",
    "false ? false : true",
    "true ? source.tls : false",
    "false ? true : false ? false : true",
    "1 == 1 == true",
    "1 < 2 == true",
    # networks
    "inCidr(source.ip, '10.0.0.0/8')",
    "!inCidr(source.ip, '10.1.2.4')",
    "inCidr(source.ip, '10.1.2.3')",
    "inCidr('2001:db8::1', '2001:db8::/32')",
    "!inCidr(request.headers['none'], '0.0.0.0/0')",
]


@pytest.mark.parametrize("text", HOLDS)
def test_holds(text: str) -> None:
    assert condition.compile(text, response=True)(request()) is True


@pytest.mark.parametrize("text", HOLDS)
def test_its_negation_does_not_hold(text: str) -> None:
    assert condition.compile(f"!({text}\n)", response=True)(request()) is False


def test_what_is_not_there_yet_is_empty() -> None:
    bare = exchange(source=Peer(), route=None, response=None)
    for text in (
        "route.name == ''",
        "route.tags == []",
        "size(route.properties) == 0",
        "route.properties['x'] == ''",
        "response.status == 0",
        "response.headers['server'] == ''",
        "!('server' in response.headers)",
        "source.ip == '' && source.port == 0 && !source.tls",
    ):
        assert condition.compile(text, response=True)(bare) is True, text


def test_a_malformed_request_is_known_as_such() -> None:
    assert condition.compile("request.malformed")(exchange(malformed=Abort("bad line"))) is True


@pytest.mark.parametrize("text", ["true", " true ", "(true)", "1 == 1", "true || source.tls", "!false", "'a' in ['a']"])
def test_a_condition_that_always_holds_is_marked(text: str) -> None:
    compiled = condition.compile(text)
    assert compiled is condition.ALWAYS_TRUE
    assert condition.always(compiled)
    assert not condition.never(compiled)
    assert compiled(exchange()) is True


@pytest.mark.parametrize(
    "text",
    ["false", "source.tls && false", "1 > 2", "'a'.matches('b')", "inCidr('10.0.0.1', '11.0.0.0/8')", "''.size() > 0",
     "'abc'.startsWith('b')", "!(2 in [1, 2])"],
)  # fmt: skip
def test_a_condition_that_never_holds_is_marked(text: str) -> None:
    compiled = condition.compile(text)
    assert compiled is condition.ALWAYS_FALSE
    assert condition.never(compiled)
    assert not condition.always(compiled)
    assert compiled(exchange()) is False


def test_a_condition_that_depends_on_the_exchange_is_not_marked() -> None:
    compiled = condition.compile("true && source.tls")
    assert not condition.always(compiled)
    assert not condition.never(compiled)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("request.cookies['sid']", "abc"),
        ("source.ip", "10.1.2.3"),
        ("source.port", "40000"),
        ("source.tls", "true"),
        ("!source.tls", "false"),
        ("'all'", "all"),
        ("true", "true"),
        ("7u", "7"),
        ("1.0", "1"),
        ("1.5", "1.5"),
        ("source.tls ? 2.5 : 1.0", "2.5"),
        ("source.tls ? 'a' : 'b'", "a"),
        ("source.tls ? source.ip : request.path", "10.1.2.3"),
    ],
)
def test_a_key_is_text(text: str, key: str) -> None:
    assert condition.expression(text)(request()) == key


def test_a_key_may_ask_for_the_response_when_there_is_one() -> None:
    assert condition.expression("response.status", response=True)(request()) == "503"


FAULTS = [
    # names
    ('requst.path == "x"', 'column 1: unknown name "requst"; did you mean "request"?'),
    ("true && requst.path == 'x'", 'column 9: unknown name "requst"; did you mean "request"?'),
    ("banana", 'column 1: unknown name "banana"; known: request, route, source'),
    ("request.pth == 'x'", 'column 9: request has no member "pth"; did you mean "path"?'),
    ("request.Header['x'] == 'x'", 'column 9: request has no member "Header"; did you mean "headers"?'),
    ("source.zzz", 'column 8: source has no member "zzz"; known: ip, port, tls'),
    ("source.ip.foo", 'column 11: a string has no member "foo"'),
    ("source.ip.size == 3", 'column 11: a string has no member "size"; call it: .size()'),
    ("source.port.foo", "column 13: an int has no members"),
    ("request == 'x'", "column 1: request is no value; name a member: request.method, request.path, request.host, "
     "request.headers, request.query, request.cookies, request.protocol, request.service, request.malformed"),
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
    ("source.ip == null", 'column 11: "==" cannot compare a string with null; '
     "nothing is null here: what is missing is empty"),
    ("route.tags == [1]", 'column 12: "==" cannot compare a list of string with a list of int'),
    ("[1] < [2]", 'column 5: "<" needs numbers, strings or bools, this is a list of int'),
    ("null < null", 'column 6: "<" needs numbers, strings or bools, this is null'),
    ("'a' in source.ip", 'column 5: "in" needs a list or a map on its right, this is a string; use .contains()'),
    ("'a' in 5", 'column 5: "in" needs a list or a map on its right, this is an int'),
    ("1 in route.tags", 'column 3: "in": an int is never in a list of string'),
    ("1 in request.query", "column 1: the keys of a map are strings, this is an int"),
    ("'a' in request", "column 8: request is no value; name a member: request.method, request.path, request.host, "
     "request.headers, request.query, request.cookies, request.protocol, request.service, request.malformed"),
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
    ("size(request) == 1", "column 6: request is no value; name a member: request.method, request.path, request.host, "
     "request.headers, request.query, request.cookies, request.protocol, request.service, request.malformed"),
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
    ("source.ip.matches('(a+)+')", 'column 19: the pattern "(a+)+" can take too long: a repetition can read the same '
     "text in several ways, so the time can double with each character"),
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
    ("source.ip == ‘a’", "column 14: unexpected character \"‘\"; strings stand between ' or \""),
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
    ("true &&\n  zzz", 'line 2, column 3: unknown name "zzz"; known: request, route, source'),
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


def test_long_chains_lie_flat() -> None:
    text = " || ".join(f"request.path == '/{number}'" for number in range(500))
    assert condition.compile(text)(exchange(target=b"/499")) is True
    assert condition.compile(text)(exchange(target=b"/500")) is False


PIECES = st.sampled_from(
    "request source route response . .. path headers ip tls tags size startsWith matches inCidr ( ) [ ] { } , == != < <= "
    "in && || ! ? : - + 'a' \"b\" r'(' '''x''' 1 0x1f 2u 1.5 .5 1e9 true false null ['x'] '10.0.0.0/8' # \\ ' \" // \n".split(
        " "
    )
)


@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=14).map(" ".join), st.lists(PIECES).map("".join)))
def test_any_text_compiles_or_is_a_config_error(text: str) -> None:
    for make in (condition.compile, condition.expression):
        try:
            compiled = make(text, response=True)
        except ConfigError as error:
            assert "column " in error.message
        else:
            assert isinstance(compiled(exchange()), bool | str)
