"""
C{cors}: which pages of other origins may read what is answered here (Fetch Standard, 3.3, "HTTP extensions").

Rules
- Preflights are answered here and never reach the upstream; from an origin that is not allowed, without a word about
  what would be.
- Requests of other origins are passed on: it is the browser that keeps the answer from the page.  The answer says for
  whom it is, also when it is an error of the gateway.
- What the upstream says about it is replaced: two answers to one question are none.
- C{Vary: origin} stands in every answer whose fields depend on the origin, also where there was none in the request: a
  cache must not give one page the answer for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

from zope.interface import classImplements, implementer

from protogate.errors import ConfigError
from protogate.expression import regex
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Field, Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

ANY: Final = "*"
METHODS: Final = ("GET", "HEAD", "POST")
"""What pages may always ask, as far as their fields are simple (Fetch Standard, 2.2.1)."""
LONGEST: Final = 512
"""Bytes of an Origin that is looked at."""
KNOWN: Final = 64
"""Origins whose answer is remembered."""
_MINE: Final = frozenset(
    (
        b"access-control-allow-origin",
        b"access-control-allow-credentials",
        b"access-control-allow-methods",
        b"access-control-allow-headers",
        b"access-control-allow-private-network",
        b"access-control-expose-headers",
        b"access-control-max-age",
    )
)
_VARY: Final = (b"vary", b"origin")
_PREFLIGHT: Final = (
    b"vary",
    b"origin, access-control-request-method, access-control-request-headers, access-control-request-private-network",
)


class Cors:
    """
    @param allowed: whether an origin, as the browser writes it, is.
    @param anybody: every origin is, and the answer is the same for all.
    @param fields: that stand in each answer for one that is.
    @param methods: that it may use.
    @param names: fields that it may send; None = whatever it asks for.
    @param private: pages of public addresses may ask, although this is a private one.
    @param max_age: seconds for which it need not ask again, as text; None = nothing is said.
    """

    preflights: ClassVar[bool] = True

    def __init__(
        self,
        allowed: Callable[[str], bool],
        anybody: bool,
        fields: Sequence[Field],
        methods: bytes,
        names: bytes | None,
        private: bool,
        max_age: bytes | None,
    ) -> None:
        self._allowed, self._anybody, self._fields = allowed, anybody, tuple(fields)
        self._methods, self._names, self._private, self._max_age = methods, names, private, max_age
        # What everybody is told is told to whoever sends no Origin, too: the answer is the same.
        self._public = ((b"access-control-allow-origin", b"*"), *fields)
        self._nobody = (_VARY,)
        self._known: dict[bytes, tuple[Field, ...]] = {}  # what those who are allowed are told

    def process(self, exchange: Exchange) -> Response | None:
        """Answer a preflight, or have the answer say for whom it is."""
        request = exchange.request
        origins = request.headers.all(b"origin")
        if (
            request.method == b"OPTIONS"
            and origins
            and request.headers.get(b"access-control-request-method") is not None
        ):
            return self._preflight(exchange, origins)
        exchange.upon(_strip)
        if self._anybody:
            exchange.fields.extend(self._public)
        else:
            known = self._known.get(origins[0]) if len(origins) == 1 else None
            exchange.fields.extend(self._said(origins) if known is None else known)
        return None

    def _said(self, origins: Sequence[bytes]) -> Sequence[Field]:
        """What the answer says; to who is allowed, it is remembered."""
        if not self._fits(origins):
            return self._nobody
        said = ((b"access-control-allow-origin", origins[0]), *self._fields, _VARY)
        if len(self._known) < KNOWN:
            self._known[origins[0]] = said
        return said

    def _fits(self, origins: Sequence[bytes]) -> bool:
        return len(origins) == 1 and len(origins[0]) <= LONGEST and self._allowed(origins[0].decode("latin-1"))

    def _preflight(self, exchange: Exchange, origins: Sequence[bytes]) -> Response:
        response = Response(204, [_PREFLIGHT])
        if not self._anybody and not self._fits(origins):
            return response
        asked, said = exchange.request.headers, response.headers
        said.append((b"access-control-allow-origin", b"*" if self._anybody else origins[0]))
        said.extend(field for field in self._fields if field[0] != b"access-control-expose-headers")
        said.append((b"access-control-allow-methods", self._methods))
        wanted = asked.all(b"access-control-request-headers")
        names = b", ".join(wanted) if self._names is None else self._names
        if wanted and names:
            said.append((b"access-control-allow-headers", names))
        if self._private and asked.get(b"access-control-request-private-network") == b"true":
            said.append((b"access-control-allow-private-network", b"true"))
        if self._max_age is not None:
            said.append((b"access-control-max-age", self._max_age))
        return response


def _strip(exchange: Exchange) -> None:
    """Take out what the upstream says."""
    response = exchange.response
    if response is None:
        return
    lines: list[Field] = response.headers  # compiled, a list needs no iterator
    for name, _ in lines:
        if name in _MINE:
            response.headers.without(_MINE)
            break


classImplements(Cors, IModule)


@implementer(IModuleFactory)
class CorsFactory:
    """Makes L{Cors}."""

    name = "cors"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = False

    def build(self, params: Mapping[str, object]) -> Cors:
        """See L{IModuleFactory.build}."""
        reader = Params(
            params,
            "origins",
            "originPatterns",
            "methods",
            "headers",
            "exposeHeaders",
            "credentials",
            "privateNetwork",
            "maxAge",
        )
        origins = _origins(reader)
        patterns = [_pattern(reader, text, index) for index, text in enumerate(reader.items("originPatterns"))]
        if not origins and not patterns and not reader.faults:
            reader.fault("expected origins, originPatterns, or both")
        anybody, credentials = ANY in origins, reader.flag("credentials")
        if anybody and (len(origins) > 1 or patterns):
            reader.fault('"*" is every origin: name it alone', "origins")
        methods = [_token(reader, text, "methods", index) for index, text in enumerate(reader.items("methods"))]
        names = _names(reader, "headers")
        exposed = _names(reader, "exposeHeaders")
        if credentials:
            for name, wild in (("origins", anybody), ("exposeHeaders", exposed == ["*"])):
                if wild:
                    reader.fault('with credentials "*" is no wildcard to a browser: name each one', name)
        fields: list[Field] = []
        if credentials:
            fields.append((b"access-control-allow-credentials", b"true"))
        if exposed:
            fields.append((b"access-control-expose-headers", ", ".join(exposed).encode("ascii")))
        max_age = reader.seconds("maxAge", -1.0)
        private = reader.flag("privateNetwork")
        reader.done()
        return Cors(
            _matcher(origins, [pattern for pattern in patterns if pattern is not None]),
            anybody,
            fields,
            ", ".join(methods or METHODS).encode("ascii"),
            None if names == ["*"] else ", ".join(names).encode("ascii"),
            private,
            None if max_age < 0 else b"%d" % int(max_age),
        )


def _matcher(origins: Sequence[str], patterns: Sequence[Callable[[str], object]]) -> Callable[[str], bool]:
    exact = frozenset(origin for origin in origins if "*" not in origin)
    below = tuple(tuple(origin.split("*", 1)) for origin in origins if "*" in origin and origin != ANY)

    def allowed(origin: str) -> bool:
        if origin in exact:
            return True
        for before, after in below:
            if origin.startswith(before) and origin.endswith(after):
                label = origin[len(before) : len(origin) - len(after)]
                if label and all(part and _LABEL.issuperset(part) for part in label.split(".")):
                    return True
        return any(pattern(origin) for pattern in patterns)

    return allowed


_LABEL: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def _origins(reader: Params) -> list[str]:
    """As browsers write them (RFC 6454, 6.2): in lower case, without the scheme's own port."""
    found: list[str] = []
    for index, text in enumerate(reader.items("origins")):
        if not isinstance(text, str):
            reader.fault("expected an origin such as https://shop.example", "origins", index)
            continue
        found.append(text)
        why = "" if text == ANY else _no_origin(text)
        if why:
            reader.fault(why, "origins", index)
    return found


def _no_origin(text: str) -> str:
    """What is wrong with one; empty when nothing is."""
    if text == "null":
        return "anybody can be the origin null: pages in sandboxed frames are"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return f'"{text}" is no origin'
    host = parts.hostname or ""
    made = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}"
    if port is not None and port != {"http": 80, "https": 443}.get(parts.scheme):
        made += f":{port}"
    if not parts.scheme or not host or not text.isascii():
        return f'"{text}" is no origin; write e.g. https://shop.example, https://*.shop.example or "*"'
    if made != text:
        return f'browsers write this origin as "{made}"'
    if "*" in text and (not host.startswith("*.") or text.count("*") > 1 or host.count(".") < 2):
        return f'"{text}": only the first label may be *, before a domain of two labels at least'
    return ""


def _pattern(reader: Params, text: object, index: int) -> Callable[[str], object] | None:
    if not isinstance(text, str):
        reader.fault("expected a regular expression", "originPatterns", index)
        return None
    try:
        return regex.compile(text).fullmatch
    except ConfigError as error:
        reader.fault(error.message, "originPatterns", index)
        return None


def _token(reader: Params, text: object, *path: str | int) -> str:
    reader.field(text, *path)
    return str(text)


def _names(reader: Params, name: str) -> list[str]:
    items = reader.items(name)
    if items == [ANY]:
        return [ANY]
    return [reader.field(text, name, index).decode("ascii") for index, text in enumerate(items)]
