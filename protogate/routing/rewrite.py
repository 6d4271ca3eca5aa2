"""
What a target is asked instead of what came: method, path and query, or a service and its operation, from templates.

Rules
- All is checked and put together at load; a target without a rewrite costs nothing.
- What a client sends stays within the place that the template gives it: one segment of a path, one value of a query,
  one operation.  It cannot add a segment, a parameter or a dot segment: 400.
- In a path and a service nothing may be empty: C{/orders/} is another resource than C{/orders/7}.
- A placeholder of a template rule is C{path.name}.  It and C{request.path} are spelled as paths are, and go into a path
  as they stand, slashes and all.
- C{OPTIONS *} and C{CONNECT} have no path, and pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import CLIENT, GATEWAY, Abort, ConfigError, Phase
from protogate.expression.code import Code, Run
from protogate.expression.names import REQUEST, TEMPLATE, Space
from protogate.expression.template import octets, pieces
from protogate.expression.types import STRING
from protogate.routing import matchers
from protogate.routing.matchers import Kind, Matcher
from protogate.uri import canonical

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Bytes = Callable[["Exchange"], bytes]
Piece = bytes | Bytes

SEGMENT: Final = "!$&'()*+,=:@"
"""What needs no escape in a segment, besides letters, digits and C{-._~}; not C{;}, which parsers do not agree on."""
LONGEST: Final = 255
"""Bytes of a service, or of an operation."""
NEVER: Final = frozenset((b"CONNECT", b"HEAD", b"TRACE"))
"""Methods that change what a message is made of: a client that did not ask for them cannot be answered."""

_FOR_METHODS: Final[frozenset[str]] = frozenset(("upgrade",))
_FOR_SERVICES: Final[frozenset[str]] = frozenset(("upgrade", "method", "query"))
_WORD: Final = re.compile(rb"[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+").fullmatch
_PLACEHOLDER: Final = re.compile(r"(?<![\w.])path\s*\.").search
"""Finds where a template names a placeholder, and at worst a little more."""
_DIGITS: Final = re.compile(rb"[0-9]++").fullmatch
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,9}").fullmatch


@dataclass(frozen=True, slots=True)
class Spelled(Code):
    """
    A text that is a part of a path.

    @ivar spelling: gives it as it stands in a canonical path.
    """

    spelling: Bytes = lambda exchange: b""


class Rewrite:
    """
    Call it with an exchange and the request target that it would be sent, for the method and target of the request.

    @ivar text: what it makes, for people: C{GET /orders/${path.id}?full=1}.
    @ivar lacks: what of a request it leaves no room for: C{upgrade}, C{method}, C{query}.
    """

    __slots__ = ("_fits", "_method", "_path", "_queries", "_query", "lacks", "text")

    def __init__(
        self,
        text: str,
        method: bytes,
        path: Bytes | None,
        query: list[tuple[bytes, tuple[Piece, ...]]] | None,
        service: bool,
        fits: Callable[[str], object] | None,
    ) -> None:
        self.text, self.lacks = text, _FOR_SERVICES if service else _FOR_METHODS if method else frozenset()
        self._queries = service or query is not None
        self._method, self._path, self._query, self._fits = method, path, query, fits

    def __repr__(self) -> str:
        return f"<Rewrite {self.text}>"

    def __call__(self, exchange: Exchange, sent: bytes) -> tuple[bytes, bytes]:
        """
        @param sent: what would be sent without this.
        @raise Abort: 400, the request has nothing, or something impossible, for a place of the templates; 500, a module
            has changed the path, and the rule's template does not match it any more.
        """
        request = exchange.request
        if not sent.startswith(b"/"):
            return request.method, sent
        if self._method and request.upgrade is not None:
            raise _bad("there are no tunnels here")
        if self._fits is not None and not self._fits(request.path):
            why = "rewrite: a module has changed the path, and the rule's template does not match it any more"
            raise Abort(why, GATEWAY, 500, error="proxy_internal_error", phase=Phase.ROUTING)
        path, mark, query = sent.partition(b"?")
        if self._path is not None:
            path = self._path(exchange)
        if self._queries:
            request.query  # noqa: B018 - what the client asked for is worked out before it is gone
            query = b"" if self._query is None else _joined(self._query, exchange)
            mark = b"?" if query else b""
        return self._method or request.method, path + mark + query


def build(rewrite: model.Rewrite, matcher: Matcher) -> Rewrite:
    """
    The rewrite of a target.

    @param matcher: of its rule; that of a template has the placeholders.
    @raise ConfigFaults: all that is wrong with it, with paths from it on.
    """
    return _Builder(rewrite, matcher).made()


class _Builder:
    """Collects the faults of one rewrite."""

    def __init__(self, rewrite: model.Rewrite, matcher: Matcher) -> None:
        self._model, self._matcher = rewrite, matcher
        self._faults: list[ConfigError] = []
        self._placeholders = False
        self._names: Space = {**TEMPLATE, "request": {**REQUEST, "path": _SELF}}
        if matcher.kind is Kind.TEMPLATE:
            self._names = {**self._names, "path": _placeholders(matcher)}

    def made(self) -> Rewrite:
        """All of it."""
        given = self._model
        service = bool(given.service or given.operation)
        path: Bytes | None = None
        query: list[tuple[bytes, tuple[Piece, ...]]] | None = None
        method = self._method()
        if service:
            method, path = b"POST", self._service()
        elif given.path:
            path = self._path()
        elif not given.method and given.query is None:
            self._fault("it changes nothing; give it a method, a path, a query, or a service and an operation")
        if given.query is not None:
            query = [(quote(name, safe="").encode("ascii"), self._value(name)) for name in given.query]
        if self._faults:
            raise ConfigFaults(self._faults)
        fits = self._matcher.matches if self._placeholders and self._matcher.kind is Kind.TEMPLATE else None
        return Rewrite(self._text(), method, path, query, service, fits)

    def _text(self) -> str:
        given = self._model
        if given.service:
            return f"service {given.service}, operation {given.operation}"
        query = "&".join(f"{name}={value}" for name, value in (given.query or {}).items())
        return f"{given.method} {given.path}{'?' if given.query is not None else ''}{query}".strip()

    def _fault(self, message: str, *path: str) -> None:
        self._faults.append(ConfigError(message, path))

    def _pieces(self, text: str, *path: str) -> list[str | Code]:
        try:
            found = pieces(text, self._names)
        except ConfigError as fault:
            self._fault(fault.message, *path)
            return []
        self._placeholders |= _PLACEHOLDER(text) is not None
        return found

    def _method(self) -> bytes:
        text = self._model.method
        if not text:
            return b""
        try:
            method = matchers.method(text)
        except ValueError as error:
            self._fault(str(error), "method")
            return b""
        if method in NEVER:
            self._fault(f"{text} changes what an answer is made of; who did not ask for it cannot read that", "method")
        return method

    def _path(self) -> Bytes:
        text = self._model.path
        found = self._pieces(text, "path")
        if found:
            self._check_path(text, "".join(_sample(piece) for piece in found))
        parts = [piece.encode() if isinstance(piece, str) else _segment(piece) for piece in found]

        def path(exchange: Exchange) -> bytes:
            made = b"".join([part if part.__class__ is bytes else part(exchange) for part in parts])  # type: ignore[operator]
            try:
                form, plain = canonical(made)
            except ValueError as error:
                raise _bad(f"the path that it leads to is none: {error}") from None
            if not plain:
                raise _bad("the path that it leads to has dot segments")
            return form.encode("ascii")

        return path

    def _check_path(self, text: str, sample: str) -> None:
        """A path in the configuration is written as it will be seen."""
        if "?" in sample or "#" in sample:
            self._fault("it is more than a path; parameters are a rewrite's query", "path")
            return
        try:
            form = canonical(sample.encode()).path
        except ValueError as error:
            self._fault(f'"{text}" is no path: {error}', "path")
            return
        if form != sample:
            self._fault(f'"{text}" is not in the canonical form: no dot segments, nothing that needs an escape', "path")

    def _value(self, name: str) -> tuple[Piece, ...]:
        text = (self._model.query or {})[name]
        if not name:
            self._fault("a parameter needs a name", "query")
        found = self._pieces(text, "query", name)
        return tuple(quote(piece, safe="").encode() if isinstance(piece, str) else _quoted(piece) for piece in found)

    def _service(self) -> Bytes:
        given = self._model
        for key in ("method", "path", "query"):
            if getattr(given, key):
                self._fault("a service and an operation leave no room for it", key)
        if given.query is not None and not given.query:
            self._fault("a service and an operation leave no room for it", "query")
        if not given.service or not given.operation:
            missing = "operation" if given.service else "service"
            self._fault(f"a service and an operation belong together; the {missing} is missing")
        service = self._word("service", given.service, _service_of)
        operation = self._word("operation", given.operation, _operation_of)
        return lambda exchange: b"/%b/%b" % (service(exchange), operation(exchange))

    def _word(self, key: str, text: str, read: Callable[[bytes], bytes]) -> Bytes:
        parts = [piece.encode() if isinstance(piece, str) else _octets(piece) for piece in self._pieces(text, key)]
        if len(parts) == 1 and isinstance(parts[0], bytes):
            constant = parts[0]
            try:
                read(constant)
            except ValueError as error:
                if constant:
                    self._fault(str(error), key)
            return lambda exchange: constant

        def word(exchange: Exchange) -> bytes:
            made = b"".join([part if part.__class__ is bytes else part(exchange) for part in parts])  # type: ignore[operator]
            try:
                return read(made)
            except ValueError as error:
                raise _bad(str(error)) from None

        return word


# Values -------------------------------------------------------------------------------------------------------------


def _own_path(exchange: Exchange) -> bytes:
    return exchange.request.path.encode("ascii", "replace")


_SELF: Final = Spelled(STRING, attrgetter("request.path"), latin=True, spelling=_own_path)
"""C{request.path}."""


def _sample(piece: str | Code) -> str:
    """What a piece of a path may look like."""
    if isinstance(piece, str):
        return piece
    return "/x" if piece is _SELF else "x"


def _placeholders(matcher: Matcher) -> dict[str, Code]:
    """Each placeholder of a template, by its name."""
    made: dict[str, Code] = {}
    names = iter(matcher.names)
    for place, part in enumerate(matcher.parts, 1):
        if not isinstance(part, str):
            most = place if part is matchers.Part.ONE else -1
            made[next(names)] = _placeholder(place, most)
    return made


def _placeholder(place: int, last: int) -> Spelled:
    """One segment, or all from there on."""

    def spelling(exchange: Exchange) -> bytes:
        segments = exchange.request.path.split("/")
        text = segments[place] if last > 0 else "/".join(segments[place:])
        return text.encode("ascii", "replace")

    return Spelled(
        STRING, lambda exchange: unquote_to_bytes(spelling(exchange)).decode("utf-8", "replace"), spelling=spelling
    )


def _octets(code: Code) -> Run:
    """The bytes of a value, as they were before anybody escaped them."""
    if isinstance(code, Spelled) and code is not _SELF:
        spelling = code.spelling
        return lambda exchange: unquote_to_bytes(spelling(exchange))
    return octets(code)


def _segment(code: Code) -> Bytes:
    """A value, as a part of one segment of a path; what is a part of a path already, as it is."""
    if isinstance(code, Spelled):
        return code.spelling
    value = octets(code)

    def segment(exchange: Exchange) -> bytes:
        found = value(exchange)
        if not found:
            raise _bad("it has nothing to put into the path that it leads to")
        return quote(found, safe=SEGMENT).encode("ascii")

    return segment


def _quoted(code: Code) -> Bytes:
    """A value, as one of a query."""
    value = _octets(code)
    return lambda exchange: quote(value(exchange), safe="").encode("ascii")


def _joined(query: list[tuple[bytes, tuple[Piece, ...]]], exchange: Exchange) -> bytes:
    """A query of the parameters that are not empty."""
    found = []
    for name, parts in query:
        value = b"".join([part if isinstance(part, bytes) else part(exchange) for part in parts])
        if value:
            found.append(b"%b=%b" % (name, value))
    return b"&".join(found)


def _service_of(text: bytes) -> bytes:
    """
    @raise ValueError: it is neither the number nor the name of a service.
    """
    if len(text) > LONGEST or not _WORD(text) or (_DIGITS(text) and not (_NUMBER(text) and int(text) < 1 << 32)):
        raise ValueError(
            f"{_shown(text)} is no service: a number from 1 to 4294967295, or a name of letters, digits and . _ ~ $ -"
        )
    return text


def _operation_of(text: bytes) -> bytes:
    """
    @raise ValueError: it is no operation.
    """
    if len(text) > LONGEST or not _WORD(text):
        raise ValueError(f"{_shown(text)} is no operation: letters, digits and . _ ~ $ -, not a dot in front")
    return text


def _shown(text: bytes) -> str:
    return '"' + text[:64].decode("utf-8", "backslashreplace") + '"'


def _bad(why: str) -> Abort:
    return Abort(f"rewrite: {why}", CLIENT, 400, error="http_request_error", phase=Phase.ROUTING, detail=why)
