"""
Templates: text with C{${…}} in it → closure over the exchange.

Rules
- Inside stands any expression of the language (L{protogate.expression}) that is a string, a number or a bool.  To the
  names of conditions come C{request.func.remoteCost} (whole ms spent on the upstream), C{func.catRootMessageId} (trace
  id of the exchange), C{func.requestId}, C{gateway.name}, C{gateway.zone} and C{upstream.address}.
- C{$${} is a literal C{${}.  A C{$} before anything else stands for itself.
- Nothing a client sends can break a header: L{Template.header} drops control characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protogate.expression import compiler
from protogate.expression.code import Code, Run
from protogate.expression.names import RESPONSE, TEMPLATE, Space
from protogate.expression.operators import rendered
from protogate.expression.parser import parse
from protogate.expression.tree import Fault, Node
from protogate.expression.types import SCALARS
from protogate.uri import only

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

_OPENING: Final = re.compile(r"\$?\$\{")
_CONTROLS: Final = bytes([*range(0x20), 0x7F])
_KEPT: Final = only(*range(0x20, 0x7F), *range(0x80, 0x100))


class Template:
    """
    A text that differs from exchange to exchange.  Call it for the text.

    @ivar text: as the configuration has it.
    @ivar header: C{header(exchange)}: the value of a header field for this exchange, see L{encode}.  What came as bytes
        (a header, a cookie, the path) goes out as those bytes; other text as UTF-8.
    """

    __slots__ = ("_parts", "_runs", "header", "text")

    def __init__(self, text: str, parts: list[str | Code]) -> None:
        self.text = text
        self._parts = parts
        self._runs = tuple(part if isinstance(part, str) else part.closure for part in parts)
        self.header: Callable[[Exchange], bytes] = _header(parts)

    def __repr__(self) -> str:
        return f"<Template {self.text!r}>"

    def __call__(self, exchange: Exchange) -> str:
        """The text for this exchange."""
        return "".join([part if part.__class__ is str else part(exchange) for part in self._runs])  # type: ignore[operator]

    def exact(self) -> Callable[[Exchange], bytes]:
        """As C{header}, but the value is empty where a control character would have to be dropped of it."""
        return _header(self._parts, _exactly)

    def escaped(self, exchange: Exchange, escape: Callable[[str], str]) -> str:
        """The text for this exchange, where what differs from exchange to exchange is escaped."""
        return "".join([part if isinstance(part, str) else escape(part(exchange)) for part in self._runs])


def _clean(value: bytes) -> bytes:
    if value.translate(_KEPT) == value and value[:1] != b" " and value[-1:] != b" ":
        return value  # most are, and that costs a quarter
    return value.translate(None, _CONTROLS).strip(b" ")


def _exactly(value: bytes) -> bytes:
    return value.strip(b" ") if len(value.translate(None, _CONTROLS)) == len(value) else b""


def _header(parts: list[str | Code], clean: Callable[[bytes], bytes] = _clean) -> Callable[[Exchange], bytes]:
    """
    One closure, decided at load: mostly there is one part, nothing to join, and little to be careful about.

    @param clean: makes a value of any bytes.
    """
    code = parts[0]
    if len(parts) == 1 and not isinstance(code, str):
        if code.plain:
            return octets(code)
        if code.raw is not None or code.latin:
            raw = octets(code)
            return lambda exchange: clean(raw(exchange))
        run = code.closure
        return lambda exchange: encode(run(exchange), clean)
    every = tuple(part.encode() if isinstance(part, str) else octets(part) for part in parts)
    return lambda exchange: clean(
        b"".join([part if part.__class__ is bytes else part(exchange) for part in every])  # type: ignore[operator]
    )


def encode(text: str, clean: Callable[[bytes], bytes] = _clean) -> bytes:
    """
    The value of a header field: UTF-8, without control characters (CR, LF and NUL among them: RFC 9110, 5.5) and
    without white space around it.
    """
    if text.isprintable():  # as nearly every text is: there is none in it
        return text.strip(" ").encode()
    return clean(text.encode("utf-8", "replace"))


def compile(text: str, *, response: bool = False) -> str | Template:  # noqa: A001
    """
    What a text stands for: itself (a C{str}) where nothing in it differs from exchange to exchange, else a L{Template}.

    @param response: may it ask for C{response}?  True from the stage PRE_RESPONSE on.
    @raise ConfigError: with the column.
    """
    if "${" not in text:
        return text
    found = pieces(text, {**TEMPLATE, "response": RESPONSE} if response else TEMPLATE)
    if len(found) == 1 and isinstance(found[0], str):
        return found[0]
    return Template(text, found)


def pieces(text: str, names: Space) -> list[str | Code]:
    """
    What a text is put together of: constants, and strings that differ from exchange to exchange; no two constants side
    by side, and one at least.

    @param names: what its expressions may name.
    @raise ConfigError: with the column.
    """
    try:
        return _pieces(text, names)
    except Fault as fault:
        raise fault.within(text) from None


def _pieces(text: str, names: Space) -> list[str | Code]:
    parts: list[str | Code] = []
    literal = ""
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        literal += text[at : opening.start()]
        at = opening.end()
        if len(opening[0]) == 3:
            literal += "${"
            continue
        node, at = _expression(text, opening.start(), at)
        code = compiler.compile(node, names)
        if code.type not in SCALARS:
            raise Fault(f"${{…}} must be a string, a number or a bool, this is {code.type.described}", opening.end())
        code = rendered(code)
        if code.run is None:
            literal += code.value
            continue
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(code)
    if literal or text[at:] or not parts:
        parts.append(literal + text[at:])
    return parts


def _expression(text: str, opened: int, at: int) -> tuple[Node, int]:
    try:
        return parse(text, at, "}")
    except Fault:
        if "}" not in text[at:]:
            raise Fault('"${" is never closed with "}"; for the characters write "$${"', opened) from None
        raise


def octets(code: Code) -> Run:
    """The bytes of a string: those that came, where it came as bytes; else UTF-8."""
    if code.raw is not None:
        return code.raw
    run = code.closure
    if not code.latin:

        def utf8(exchange: Exchange) -> bytes:
            text: str = run(exchange)
            return text.encode("utf-8", "replace")

        return utf8

    def encoded(exchange: Exchange) -> bytes:
        text: str = run(exchange)
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace")

    return encoded
