"""What conditions and keys mean, and what is a fault of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from exchanges import exchange, route

from authority import Authority
from protogate.errors import Abort
from protogate.expression import condition
from protogate.message import Headers, Peer, Response
from protogate.tls.session import Session

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


def request(**more: object) -> Any:
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


def test_long_chains_lie_flat() -> None:
    text = " || ".join(f"request.path == '/{number}'" for number in range(500))
    assert condition.compile(text)(exchange(target=b"/499")) is True
    assert condition.compile(text)(exchange(target=b"/500")) is False


def test_facts_of_tls_and_of_a_certificate(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("partner", ["partner.test"]).certificate
    session = Session(
        "TLSv1.3", "TLS_AES_128_GCM_SHA256", name="shop.test", certificate=issued.public_bytes(Encoding.DER)
    )
    over = exchange(source=Peer("10.1.2.3", 4, True, session))
    for text in (
        "source.tlsVersion == 'TLSv1.3' && source.tlsCipher.startsWith('TLS_') && source.serverName == 'shop.test'",
        "source.certificate.verified && source.certificate.subject == 'CN=partner'",
        "source.certificate.issuer == 'CN=authority' && source.certificate.serial != ''",
        "source.certificate.fingerprint.size() == 64 && source.certificate.encoded.startsWith(':')",
        "'partner.test' in source.certificate.san",
    ):
        assert condition.compile(text)(over), text
    for without in (exchange(), exchange(source=Peer("10.1.2.3", 4, True, Session("TLSv1.3", "x")))):
        assert condition.compile(
            "!source.certificate.verified && source.certificate.subject == '' && source.certificate.san.size() == 0"
            " && source.certificate.fingerprint == '' && source.serverName == ''"
        )(without)
