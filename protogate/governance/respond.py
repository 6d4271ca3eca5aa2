"""
C{respond}: an answer of its own, e.g. for a path that is closed, a health check, a page for a failure.

The upstream is not asked (before it was) or its answer is dropped (PRE_RESPONSE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.body import Whole
from protogate.errors import Abort, ConfigError
from protogate.expression.template import Template
from protogate.governance.fields import Fields
from protogate.governance.params import Params
from protogate.governance.stages import ERROR, PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

EMPTY: Final = frozenset((204, 205, 304))
"""Statuses whose responses have no content (RFC 9110, 15.3.5, 15.3.6, 15.4.5)."""


@implementer(IModule)
class Respond:
    """
    @param status: of the answer; 0 = that of what it takes the place of, a response or an error; else 200.
    @param fields: content-type among them.
    @param body: empty = no content.
    """

    __slots__ = ("_body", "_fields", "_status", "_template", "warnings")

    def __init__(self, status: int, fields: Fields, body: str | Template, warnings: list[ConfigError]) -> None:
        self._status, self._fields, self.warnings = status, fields, warnings
        self._template = body if isinstance(body, Template) else None
        self._body = body.encode("utf-8") if isinstance(body, str) else b""

    def process(self, exchange: Exchange) -> Response:
        """The answer."""
        status = self._status or _replaced(exchange)
        data = self._body if self._template is None else self._template(exchange).encode("utf-8", "replace")
        return Response(status, self._fields.of(exchange), Whole(data) if data and status not in EMPTY else None)


def _replaced(exchange: Exchange) -> int:
    if exchange.response is not None:
        return exchange.response.status
    error = exchange.error
    if error is None:
        return 200
    return error.status if isinstance(error, Abort) and 400 <= error.status < 600 and error.status != 499 else 500


@implementer(IModuleFactory)
class RespondFactory:
    """Makes L{Respond}."""

    name = "respond"
    stages = (PRE_REQUEST, PRE_UPSTREAM, PRE_RESPONSE, ERROR)
    guards = False

    def build(self, params: Mapping[str, object]) -> Respond:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "status", "headers", "body", "contentType")
        status = reader.integer("status", 0, 200, 599) if "status" in reader else 0
        lines = reader.lines("headers")
        body = reader.text("body", "")
        kind = Params({"content-type": reader.text("contentType", "text/plain; charset=utf-8")})
        typed = kind.lines()
        for fault in kind.faults:
            reader.fault(fault.message, "contentType")
        if any(name == b"content-type" for name, _, _ in lines):
            if "contentType" in reader:
                reader.fault("content-type is among the headers already", "contentType")
        elif body:
            lines = [*typed, *lines]
        if body and status in EMPTY:
            reader.fault(f"a response with status {status} has no content", "body")
        reader.done()
        return Respond(status, Fields(lines), body, reader.warnings)
