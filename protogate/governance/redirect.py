"""
C{redirect}: somewhere else.

Either C{location}, a template that gives the whole target, or parts of the request's own URL that change: C{scheme},
C{host}, C{port}, C{path}.  What is not named stays as it was asked for, query and all.

Rules
- What a client says stays where it belongs: a path cannot become a host (C{//evil.example}), nor a line another one.
- A template for C{location} must begin with fixed text that says where it leads: a scheme and a host, or a single slash
  and more.  Otherwise a stranger could send people of this site wherever he likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.errors import CLIENT, Abort
from protogate.expression.template import Template
from protogate.governance.params import Params
from protogate.governance.rewritepath import target_of
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Response
from protogate.uri import authority, host_of

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

STATUSES: Final = (301, 302, 303, 307, 308)
PARTS: Final = ("scheme", "host", "port", "path")
PORTS: Final = {b"http": 80, b"https": 443}
_FIXED: Final = re.compile(r"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/|/[^/\\$])").match
"""How a location begins that leads where the configuration says."""
_CLEAN: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]+").fullmatch
_UNSAFE: Final = re.compile(rb"[^\x21-\x5b\x5d-\x7e]")
"""What stands in no URI (RFC 3986, 2), and the backslash, which browsers take for a slash."""

Locate = Callable[["Exchange"], bytes]


@implementer(IModule)
class Redirect:
    """
    @param status: of the answer.
    @param locate: gives the target.
    """

    __slots__ = ("_locate", "_status")

    def __init__(self, status: int, locate: Locate) -> None:
        self._status, self._locate = status, locate

    def process(self, exchange: Exchange) -> Response:
        """Send it there."""
        return Response(self._status, [(b"location", _UNSAFE.sub(_escape, self._locate(exchange)))])


def _escape(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


@implementer(IModuleFactory)
class RedirectFactory:
    """Makes L{Redirect}."""

    name = "redirect"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = False

    def build(self, params: Mapping[str, object]) -> Redirect:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "status", "location", *PARTS, "query")
        status = reader.integer("status", 302, 300, 399)
        if status not in STATUSES and not reader.faults:
            reader.fault(f"expected one of {', '.join(map(str, STATUSES))}, got {status}", "status")
        parts = [part for part in (*PARTS, "query") if part in reader]
        locate: Locate | None = None
        if "location" in reader:
            if parts:
                reader.fault(f"location is all of the target: leave {parts[0]} out", parts[0])
            locate = _whole(reader)
        elif parts:
            locate = _changed(reader)
        else:
            reader.fault("expected location, or one of scheme, host, port, path", "location")
        reader.done()
        assert locate is not None
        return Redirect(status, locate)


def _whole(reader: Params) -> Locate:
    location = reader.text("location")
    text = location.text if isinstance(location, Template) else location
    if not reader.faults:
        if isinstance(location, Template):
            if not _FIXED(text):
                reader.fault(
                    'a template must begin with where it leads, e.g. "https://shop.example/" or "/new"; else anybody '
                    "could make it lead anywhere",
                    "location",
                )
        elif not _CLEAN(text):
            reader.fault(f'"{text}" is no URL: it is not visible ASCII, percent-encoded', "location")
    if isinstance(location, Template):
        return location.header
    fixed = location.encode("ascii", "replace")
    return lambda exchange: fixed


def _changed(reader: Params) -> Locate:
    scheme = reader.choice("scheme", "", "", "http", "https")
    host = reader.literal("host", "")
    port = reader.integer("port", 0, 1, 65535) if "port" in reader else 0
    path = reader.text("path", "")
    keep = reader.flag("query", True)
    if host:
        try:
            if host_of(host.encode("ascii")) != host or authority(host.encode("ascii"))[0] != host:
                raise ValueError("write it in lower case, without a port")
        except ValueError as error:
            reader.fault(f'"{host}" is no host: {error}', "host")
    if isinstance(path, str) and path:
        try:
            target_of(path)
        except ValueError as error:
            reader.fault(f'"{path}" is no path: {error}', "path")
    schemed = scheme.encode("ascii")

    def locate(exchange: Exchange) -> bytes:
        request = exchange.request
        to = schemed or (b"https" if exchange.source.tls else b"http")
        if schemed or host or port:
            name = host or request.host
            where = (f"[{name}]" if ":" in name else name).encode("ascii", "replace")
            if port and port != PORTS[to]:
                where += b":%d" % port
        else:
            where = request.authority
        if not where:
            raise Abort("redirect: the request names no host", CLIENT, 400, detail="the host is missing")
        before, mark, query = request.target.partition(b"?")
        if path:
            before = _target(path if isinstance(path, str) else path(exchange))
        elif not before.startswith(b"/"):
            before = b"/"  # OPTIONS * and CONNECT have no path
        return to + b"://" + where + before + (mark + query if keep else b"")

    return locate


def _target(path: str) -> bytes:
    try:
        return target_of(path)
    except ValueError as error:
        raise Abort(f"redirect: what came out is no path: {error}", CLIENT, 400, detail="the path is wrong") from None
