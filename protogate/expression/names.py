"""
What the names of the language mean: type, and how to get it from an exchange.

A name never fails: what is not there yet (no route, no response) is empty, or 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from protogate.expression.code import Code, Fields, Found, Pairs, Run, Table
from protogate.expression.types import BOOL, INT, STRING, list_of

Entry = Code | Table | Mapping[str, Any]
"""A value, a map, or a name that has members."""
Space = Mapping[str, Entry]

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_FRAMING: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)


def _field(where: str, never: Mapping[bytes, str]) -> Callable[[bytes], None]:
    """The check of a constant field name."""

    def check(name: bytes) -> None:
        if _TOKEN.fullmatch(name) is None:
            raise ValueError(f'"{name.decode("latin-1")}" is no field name')
        if name in _FRAMING or name in never:
            hint = never.get(name, "framing belongs to the codec")
            raise ValueError(f'{where} never holds "{name.decode()}": {hint}')

    return check


def _method_equals(literal: bytes) -> Run:
    return lambda exchange: exchange.request.method == literal


def _of_route(name: str, otherwise: object) -> Run:
    get = attrgetter(name)

    def run(exchange: Any) -> Any:
        route = exchange.route
        return otherwise if route is None else get(route)

    return run


def _status(exchange: Any) -> Any:
    response = exchange.response
    return 0 if response is None else response.status


def _response_headers(exchange: Any) -> Any:
    response = exchange.response
    return () if response is None else response.headers


def _remote(exchange: Any) -> int:
    ledger = exchange.ledger
    # The clock is asked only while there is no answer.
    seconds: float = ledger.remote(exchange.wheel.now() if ledger.chosen and not ledger.answered else 0.0)
    return round(seconds * 1000)


def _attribute(kind: Any, path: str, latin: bool = False, plain: bool = False) -> Code:
    return Code(kind, attrgetter(path), latin=latin, plain=plain)


def _of_session(name: str) -> Code:
    """What was negotiated with the peer of the connection; empty where nothing was, or a trusted proxy did it."""
    get = attrgetter(name)

    def run(exchange: Any) -> Any:
        session = exchange.source.session
        return "" if session is None else get(session)

    return Code(STRING, run, latin=True)


def _certificate(exchange: Any) -> Any:
    session = exchange.source.session
    return None if session is None else session.certificate


def _of_certificate(name: str) -> Code:
    get = attrgetter(name)

    def run(exchange: Any) -> Any:
        certificate = _certificate(exchange)
        return "" if certificate is None else get(certificate)

    return Code(STRING, run)


def _of_identity(name: str) -> Code:
    """Who was authenticated; empty while nobody was."""

    def run(exchange: Any) -> Any:
        identity = exchange.identity
        return "" if identity is None else getattr(identity, name)

    return Code(STRING, run)


def _claim(exchange: Any, name: str) -> str:
    identity = exchange.identity
    return "" if identity is None else identity.text(name)


def _claimed(exchange: Any, name: str) -> tuple[str, ...]:
    identity = exchange.identity
    return () if identity is None else identity.texts(name)


def _claims(exchange: Any) -> Any:
    identity = exchange.identity
    return () if identity is None else identity.claims


_METHOD: Final = attrgetter("request.method")

REQUEST: Final[Space] = {
    "method": Code(
        STRING,
        lambda exchange: exchange.request.method.decode("latin-1"),
        raw=_METHOD,
        equals=_method_equals,
        latin=True,
    ),
    "path": _attribute(STRING, "request.path", latin=True),
    "host": _attribute(STRING, "request.host", latin=True),
    "headers": Fields(
        attrgetter("request.headers"),
        _field("request.headers", {b"host": "use request.host", b"content-length": "framing belongs to the codec"}),
    ),
    "query": Pairs(attrgetter("request.query")),
    "cookies": Pairs(attrgetter("request.cookies"), latin=True),
    "protocol": _attribute(STRING, "request.protocol"),
    "service": _attribute(STRING, "request.service"),
    "operation": _attribute(STRING, "request.operation", latin=True),
    "malformed": Code(BOOL, lambda exchange: exchange.request.malformed is not None),
}
SOURCE: Final[Space] = {
    "ip": _attribute(STRING, "source.ip"),
    "port": _attribute(INT, "source.port"),
    "tls": _attribute(BOOL, "source.tls"),
    "tlsVersion": _of_session("version"),
    "tlsCipher": _of_session("cipher"),
    "serverName": _of_session("name"),
    "certificate": {
        "verified": Code(BOOL, lambda exchange: _certificate(exchange) is not None),
        "subject": _of_certificate("subject"),
        "issuer": _of_certificate("issuer"),
        "serial": _of_certificate("serial"),
        "fingerprint": _of_certificate("fingerprint"),
        "san": Code(list_of(STRING), lambda exchange: getattr(_certificate(exchange), "san", ())),
        "encoded": _of_certificate("encoded"),
    },
}
ROUTE: Final[Space] = {
    "name": Code(STRING, _of_route("name", "")),
    "tags": Code(list_of(STRING), _of_route("tags", ())),
    "properties": Pairs(_of_route("properties", {})),
}
IDENTITY: Final[Space] = {
    "user": _of_identity("user"),
    "scheme": _of_identity("scheme"),
    "claims": Found(STRING, _claim, _claims),
    "lists": Found(list_of(STRING), _claimed, _claims),
}
RESPONSE: Final[Space] = {
    "status": Code(INT, _status),
    "headers": Fields(_response_headers, _field("response.headers", {})),
}

CONDITION: Final[Space] = {"request": REQUEST, "source": SOURCE, "identity": IDENTITY, "route": ROUTE}
"""What conditions and keys may name, before there is a response."""
TEMPLATE: Final[Space] = {
    "request": {**REQUEST, "func": {"remoteCost": Code(INT, _remote)}},
    "source": SOURCE,
    "identity": IDENTITY,
    "route": ROUTE,
    "func": {
        "catRootMessageId": _attribute(STRING, "trace", plain=True),
        "requestId": _attribute(STRING, "id", plain=True),
    },
    "gateway": {"name": _attribute(STRING, "gateway.name"), "zone": _attribute(STRING, "gateway.zone")},
    "upstream": {"address": _attribute(STRING, "ledger.address")},
}
"""What templates may name, before there is a response."""
