"""Templates: what they give, as text and as a header, and what is a fault of theirs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from exchanges import exchange, route
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.expression import template
from protogate.expression.template import Template
from protogate.message import Headers, Response


def given_exchange(**more: object) -> Any:
    made = exchange(
        headers=[(b"x-user", b"caf\xe9"), (b"x-a", b"1"), (b"x-a", b"2"), (b"cookie", b"sid=\xe9")],
        route=route("orders"),
        response=Response(404, Headers([(b"server", b"nginx")])),
        **more,  # type: ignore[arg-type]
    )
    made.ledger.chosen = 100.0
    made.ledger.address = "10.0.0.11:8080"
    made.clock.advance(0.0426)
    return made


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # the two spellings of Ctrip's published module
        ("${request.func.remoteCost}", "43"),
        ("${func.catRootMessageId}", "0af7651916cd43dd8448eb211c80319c"),
        ("${func.requestId}", "00112233445566778899aabbccddeeff"),
        ("${gateway.name}/${gateway.zone}", "edge-1/PRO"),
        ("${route.name}", "orders"),
        ("${upstream.address}", "10.0.0.11:8080"),
        ("${request.method} ${request.path}", "GET /hotel/order"),
        ("a ${request.headers['x-a']} z", "a 1, 2 z"),
        ("${request.headers['none']}", ""),
        ("${request.query['city']}", "Paris"),
        ("${source.ip}:${source.port}", "10.1.2.3:40000"),
        ("${source.tls}", "true"),
        ("${!source.tls}", "false"),
        ("${response.status}", "404"),
        ("${response.headers['server']}", "nginx"),
        ("${source.tls ? 'https' : 'http'}://${request.host}", "https://shop.example"),
        ("${ source.ip }", "10.1.2.3"),
        ("${request.path == '}' ? '{' : request.method}", "GET"),
        ("$${x} ${source.ip}", "${x} 10.1.2.3"),
        ("$$${source.ip} $$${source.ip}", "$${source.ip} $${source.ip}"),
        ("$${ ${source.ip} }", "${ 10.1.2.3 }"),
        ("$ $x ${source.ip}$", "$ $x 10.1.2.3$"),
        ("${source.ip}${source.ip}", "10.1.2.310.1.2.3"),
        ("${1.5}${source.ip}${'x'}y", "1.510.1.2.3xy"),
    ],
)
def test_gives(text: str, value: str) -> None:
    compiled = template.compile(text, response=True)
    made = given_exchange()
    got = compiled if isinstance(compiled, str) else compiled(made)
    assert got == value
    assert (template.encode(compiled) if isinstance(compiled, str) else compiled.header(made)) == value.strip().encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("keep-alive", "keep-alive"),
        ("a $b {c} }", "a $b {c} }"),
        ("$${x}", "${x}"),
        ("a$${b}$${c}", "a${b}${c}"),
        ("${'x'}", "x"),
        ("${''}", ""),
        ("a${1}b${true}c${-1.5}", "a1btruec-1.5"),
        ("${2.0}", "2"),
        ("${'}'}", "}"),
        ("${false ? source.ip : 'x'}", "x"),
    ],
)
def test_what_never_differs_is_a_plain_string(text: str, value: str) -> None:
    compiled = template.compile(text)
    assert type(compiled) is str
    assert compiled == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${", 'column 1: "${" is never closed with "}"; for the characters write "$${"'),
        ("ab ${source.ip", 'column 4: "${" is never closed with "}"; for the characters write "$${"'),
        ("${'a}", "column 3: the string that begins here has no closing '"),
        ("${source.ip '}'", 'column 13: expected "}", got a string'),
        ("${(source.ip '}'", 'column 14: expected ")", got a string'),
        ("${source.ip == '}'", 'column 19: expected "}", got the end'),
        ("${}", "column 3: an expression is missing here"),
        ("x ${ }", "column 6: an expression is missing here"),
        ("${sorce.ip}", 'column 3: unknown name "sorce"; did you mean "source"?'),
        ("ok ${source.ip} ${func.requestid}", 'column 24: func has no member "requestid"; did you mean "requestId"?'),
        ("${request.func.remoteTime}",
         'column 16: request.func has no member "remoteTime"; did you mean "remoteCost"?'),
        ("${request.func}", "column 3: request.func is no value; name a member: request.func.remoteCost"),
        ("${request.headers}",
         "column 3: request.headers is a map; take a value out of it: request.headers['name']"),
        ("${route.tags}", "column 3: ${…} must be a string, a number or a bool, this is a list of string"),
        ("${null}", "column 3: ${…} must be a string, a number or a bool, this is null"),
        ("${response.status}",
         'column 3: "response" exists from the stage PRE_RESPONSE on, this is evaluated before'),
        ("a\nb ${zzz}", None),
        ("${source.ip + 'x'}", 'column 13: arithmetic is not in the language: "+"'),
        ("${source.ip}}${=}", 'column 16: unexpected character "="; did you mean "=="?'),
    ],
)  # fmt: skip
def test_a_fault_says_where_and_what(text: str, message: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        template.compile(text)
    if message is None:
        assert caught.value.message.startswith('line 2, column 5: unknown name "zzz"; known: ')
    else:
        assert caught.value.message == message


def test_the_cost_of_the_upstream_stands_still_once_it_answered() -> None:
    made = given_exchange()
    made.ledger.answered = 100.25
    made.clock.advance(10)
    compiled = template.compile("${request.func.remoteCost}")
    assert isinstance(compiled, Template)
    assert compiled(made) == "250"


def test_the_cost_is_nothing_when_no_upstream_was_asked() -> None:
    compiled = template.compile("${request.func.remoteCost}")
    assert isinstance(compiled, Template)
    assert compiled(exchange()) == "0"


def test_what_came_as_bytes_goes_out_as_those_bytes() -> None:
    compiled = template.compile("é ${request.headers['x-user']} ${request.cookies['sid']} ${request.query['q']}")
    assert isinstance(compiled, Template)
    made = given_exchange(target=b"/?q=%E4%B8%AD")
    assert compiled.header(made) == b"\xc3\xa9 caf\xe9 \xe9 \xe4\xb8\xad"
    assert compiled(made) == "é café é 中"


def test_a_path_that_is_not_latin_is_utf_8() -> None:
    compiled = template.compile("${request.path}")
    assert isinstance(compiled, Template)
    made = given_exchange()
    made.request.path = "/中"
    assert compiled.header(made) == "/中".encode()


@given(st.text(), st.text())
def test_nothing_breaks_a_header(value: str, literal: str) -> None:
    made = exchange()
    made.request._query = {"q": value}
    literal = literal.replace("$", "")
    compiled = template.compile(literal + "${request.query['q']}")
    assert isinstance(compiled, Template)
    for header in (compiled.header(made), template.encode(literal)):
        assert not re.search(rb"[\x00-\x1f\x7f]", header)
        assert header == header.strip()


def test_a_template_shows_its_text() -> None:
    compiled = template.compile("a ${source.ip}")
    assert isinstance(compiled, Template)
    assert compiled.text == "a ${source.ip}"
    assert repr(compiled) == "<Template 'a ${source.ip}'>"


@given(st.text(alphabet="${}$ab.'\"source.ip\n\\"))
def test_any_text_compiles_or_is_a_config_error(text: str) -> None:
    try:
        compiled = template.compile(text)
    except ConfigError as error:
        assert "column " in error.message  # noqa: PT017
    else:
        assert isinstance(compiled if isinstance(compiled, str) else compiled(exchange()), str)


@given(st.text())
def test_text_without_an_opening_is_itself(text: str) -> None:
    text = text.replace("${", "")
    if "${" not in text:
        assert template.compile(text) == text
    escaped = template.compile(text + "$${")
    assert escaped == text + "${"


@given(st.text(alphabet="a \t\r\n\0\x7fé€\ud800", max_size=12))
def test_of_any_text_a_field_gets_what_is_no_control_character_and_no_space_around_it(text: str) -> None:
    octets = text.encode("utf-8", "replace")
    kept = bytes(byte for byte in octets if byte >= 0x20 and byte != 0x7F).strip(b" ")
    assert template.encode(text) == kept
