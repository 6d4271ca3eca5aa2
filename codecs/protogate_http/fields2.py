"""
Fields as HTTP/2 has them (RFC 9113, 8): which a message must have, which it must not, and how they become those of
L{protogate.message} and back.

Rules
- The engines are not relied on: each lets something else through.  A message with two readings is none.
- What is sent is checked once more, as L{protogate_http.semantics} does for HTTP/1.
- A field that no table may have is passed on as one: L{protogate_http.secret2}.  So are all cookies where one of their
  crumbs was such.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from protogate.message import CONNECT, Field, Headers, Request
from protogate_http.secret2 import TOLD, Unindexed
from protogate_http.semantics import (
    HOST,
    OURS,
    SPECIAL,
    TE_TRAILERS,
    UPGRADES,
    admissible,
    admitted,
    aim,
    bodyless,
    described,
    key,
    listed,
    named,
    new_key,
)
from protogate_http.wire1 import KNOWN, LONG, METHODS, REMEMBERED, TEXT, TOKEN, Bad, low, number, visible

if TYPE_CHECKING:
    from protogate.context import Limits

_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*+").fullmatch
_FORBIDDEN: Final = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
"""Fields of the connection make a message malformed (RFC 9113, 8.2.2)."""
_MALFORMED: Final = "malformed_head"
_STATUSES: Final = {b"%d" % status: status for status in range(100, 600)}
STATUS: Final = [(b":status", b"%d" % status) for status in range(600)]

_good: Final[dict[Any, Any]] = {}
"""
Fields that come again and again, of names that hold no secret, by themselves: who looks them up later finds the very
object.  All are forgotten when there are L{KNOWN}.
"""
_hosts: Final[dict[bytes, bytes]] = {}
"""The same for authorities."""


class Asked:
    """
    A request, as its fields say it.

    @ivar length: of content-length, or None.
    @ivar expect: 100-continue is expected.
    """

    __slots__ = ("authority", "expect", "fields", "length", "method", "scheme", "target", "upgrade")

    def __init__(self) -> None:
        self.method = self.scheme = self.target = self.authority = b""
        self.fields = Headers()
        self.length: int | None = None
        self.upgrade: bytes | None = None
        self.expect = False


def _others(head: Sequence[Any], at: int, line: int, kept: list[Any]) -> tuple[list[Any], list[bytes], bool, int]:
    """
    Sort fields into those to keep, those that mean something here, and the crumbs of cookies.

    @param at: of the first one.
    @param line: bytes that each may have, with 4 for what HTTP/1 writes around it; 0 = any number.
    @return: the latter two, whether one of the crumbs may be in no table, and the bytes of all.
    @raise Bad: what is none (RFC 9113, 8.2.1), or too long.
    """
    special: list[Any] = []
    crumbs: list[bytes] = []
    hidden = False
    total = 0
    for index in range(at, len(head)):
        field: Any = head[index]  # Any: see wire1.parsed()
        name: bytes = field[0]
        value: bytes = field[1]
        size = len(name) + len(value) + 4
        total += size
        if line and size > line:
            raise Bad("header line too long", 431, "header_line_too_long")
        secret = type(field) is not tuple and type(field) in TOLD
        known: Any = None if secret else _good.get(field)
        if known is not None:
            kept.append(known)
            continue
        if not named(name) or value.translate(TEXT) != value or value.strip(b" \t") != value:
            raise Bad("a field that is none", 400, _MALFORMED)
        if name in SPECIAL:
            if name in _FORBIDDEN:
                raise Bad("a field of the connection", 400, _MALFORMED)
            special.append((name, value))
        elif name == b"cookie":
            crumbs.append(value)
            if secret:
                hidden = True
        elif secret:
            kept.append(Unindexed(name, value))
        else:
            made: Any = (name, value)
            kept.append(made)
            if name in REMEMBERED and len(value) < LONG:
                if len(_good) >= KNOWN:
                    _good.clear()
                _good[made] = made
    return special, crumbs, hidden, total


def _host(value: bytes) -> bytes:
    """
    An authority.

    @raise Bad: it is none.
    """
    known = _hosts.get(value)
    if known is None:
        if not HOST(value):
            raise Bad("bad :authority", 400, "bad_host")
        known = value
        if len(value) < LONG:
            if len(_hosts) >= KNOWN:
                _hosts.clear()
            _hosts[value] = value
    return known


def asked(head: Sequence[Any], limits: Limits) -> Asked:
    """
    A request.

    @raise Bad: it is malformed (RFC 9113, 8.1.1), or goes beyond a limit.
    """
    made = Asked()
    try:
        _ask(made, head, limits)
    except Bad as bad:
        names = dict(head[:8])
        bad.start = (names.get(b":method", b""), names.get(b":path", b""))
        bad.fields = [field for field in head if field[0][:1] != b":"]
        raise
    return made


def _ask(made: Asked, head: Sequence[Any], limits: Limits) -> None:  # noqa: PLR0912, PLR0915  one branch a rule
    method: bytes | None = None
    target: bytes | None = None
    authority: bytes | None = None
    scheme: bytes | None = None
    protocol: bytes | None = None
    at = 0
    for field in head:
        name: bytes = field[0]
        if name[:1] != b":":
            break
        value: bytes = field[1]
        if name == b":method" and method is None:
            method = value
        elif name == b":path" and target is None:
            target = value
        elif name == b":authority" and authority is None:
            authority = value
        elif name == b":scheme" and scheme is None:
            scheme = value
        elif name == b":protocol" and protocol is None:
            protocol = value
        else:
            raise Bad("an unknown or repeated pseudo-header field", 400, _MALFORMED)
        at += 1
    if not method or not (method in METHODS or TOKEN(method)):
        raise Bad("bad :method", 400, _MALFORMED)
    if target is not None:
        if len(target) > limits.request_line:
            raise Bad("the request target is too long", 414, "request_line_too_long")
        if not target or not visible(target):
            raise Bad("bad :path", 400, "bad_target")
    if len(head) - at > limits.header_count:
        raise Bad("too many header fields", 431, "too_many_headers")
    kept: list[Any] = []
    special, crumbs, hidden, total = _others(head, at, limits.header_line, kept)
    if total > limits.headers:
        raise Bad("the header fields are too large", 431, "headers_too_large")
    host: bytes | None = None
    trailers = False
    for name, value in special:
        if name == b"host":
            if host is not None:
                raise Bad("more than one Host", 400, "bad_host")
            host = value
        elif name == b"content-length":
            if made.length is not None or not number(value):
                raise Bad("bad Content-Length", 400, "bad_framing")
            made.length = int(value)
        elif name == b"expect":
            if value.lower() != b"100-continue":
                raise Bad("unknown expectation", 417, "unknown_expectation")
            if not made.expect:
                kept.append((b"expect", b"100-continue"))
            made.expect = True
        elif name == b"te":
            if value.lower() != b"trailers":
                raise Bad("te may be trailers alone", 400, _MALFORMED)
            trailers = True
    if crumbs:
        cookie = b"; ".join(crumbs)  # RFC 9113, 8.2.3
        if len(crumbs) > 1 and len(cookie) + 10 > limits.header_line:
            raise Bad("cookies too long", 431, "header_line_too_long")
        kept.append(Unindexed(b"cookie", cookie) if hidden else (b"cookie", cookie))
    if trailers:
        kept.append(TE_TRAILERS)
    made.fields = Headers(kept)
    if method == b"CONNECT" and protocol is None:
        if target is not None or scheme is not None or not authority:
            raise Bad("CONNECT has an authority, and nothing else", 400, _MALFORMED)
        aim(method, authority, None)
        made.method, made.authority, made.upgrade = method, authority, CONNECT
        return
    if not target or not scheme or not (scheme == b"http" or scheme == b"https" or _SCHEME(scheme)):  # noqa: PLR1714
        raise Bad(":scheme and :path are due", 400, _MALFORMED)
    if authority is None and not host:
        raise Bad("no :authority", 400, "bad_host")
    if authority is not None:
        authority = _host(authority)
    if host is not None:
        host = _host(host)
    if authority is not None and host is not None and authority.lower() != host.lower():
        raise Bad(":authority and Host differ", 400, "bad_host")
    if target[:1] != b"/" and target != b"*":
        raise Bad("bad :path", 400, "bad_target")
    if protocol is not None:
        if method != b"CONNECT":
            raise Bad(":protocol is for CONNECT", 400, _MALFORMED)
        if protocol.lower() not in UPGRADES:
            raise Bad("unknown :protocol", 501, "unknown_protocol")
        made.upgrade, method = protocol.lower(), b"GET"
    made.target, made.authority = aim(method, target, authority or host)
    made.method, made.scheme = method, scheme


class Told:
    """
    A response, as its fields say it.

    @ivar length: of content-length, or None.
    """

    __slots__ = ("fields", "length", "status")

    def __init__(self, status: int, fields: Headers, length: int | None) -> None:
        self.status, self.fields, self.length = status, fields, length


def told(head: Sequence[Any], limits: Limits) -> Told:
    """
    A response.

    @raise Bad: it is malformed, or larger than it may be.
    """
    status: bytes | None = None
    at = size = 0
    for field in head:
        name: bytes = field[0]
        if name[:1] != b":":
            break
        if name != b":status" or status is not None:
            raise Bad("an unknown or repeated pseudo-header field", 400, _MALFORMED)
        status = field[1]
        size += len(name) + len(status) + 4
        at += 1
    code = 0 if status is None else _STATUSES.get(status, 0)
    if not code:
        raise Bad("bad :status", 502, _MALFORMED)
    kept: list[Any] = []
    special, crumbs, _, total = _others(head, at, 0, kept)
    if size + total > limits.response_headers:
        raise Bad("the header fields are too large", 502, "response_headers_too_large")
    length: int | None = None
    for name, value in special:
        if name == b"content-length":
            if length is not None or not number(value):
                raise Bad("bad Content-Length", 502, "bad_framing")
            length = int(value)
    for crumb in crumbs:
        kept.append((b"cookie", crumb))
    return Told(code, Headers(kept), length)


def trailed(head: Sequence[Any], most: int) -> list[Field] | None:
    """
    Trailers that may be trailers, or None.

    @raise Bad: they are malformed, or too large.
    """
    kept: list[Any] = []
    total = _others(head, 0, 0, kept)[3]  # what means something elsewhere is no trailer
    if total > most:
        raise Bad("the trailers are too large", 431, "trailers_too_large")
    return admitted(kept)


# -- what is sent

_fine: Final[dict[Any, Any]] = {}
"""As L{_good}, of what is sent."""


def compose(out: list[Any], headers: Iterable[Any], count: Callable[[str], None]) -> None:
    """Append those fields that may be sent; what is none is dropped and counted."""
    for field in headers:
        secret = type(field) is not tuple and type(field) is Unindexed
        known: Any = None if secret else _fine.get(field)
        if known is not None:
            out.append(known)
            continue
        value: bytes = field[1]
        name = low(field[0])
        if value.translate(TEXT) != value or (name not in OURS and not named(name)):
            count("invalid_field_dropped")
        elif name in OURS:
            if name == b"te" and (value == b"trailers" or b"trailers" in listed(value)):
                out.append(TE_TRAILERS)
        elif secret:
            out.append(Unindexed(name, value.strip(b" \t")))
        else:
            made: Any = (name, value.strip(b" \t"))
            out.append(made)
            if name in REMEMBERED and len(value) < LONG and made == field:
                if len(_fine) >= KNOWN:
                    _fine.clear()
                _fine[made] = made


def trailing(trailers: Iterable[Field] | None, count: Callable[[str], None]) -> list[Any]:
    """Of trailers to be sent, those that may be trailers."""
    out: list[Any] = []
    if trailers:
        compose(out, trailers, count)
    return admissible(out)


WEBSOCKET: Final = b"websocket"
_KEYS: Final = frozenset((b"sec-websocket-key", b"sec-websocket-accept"))


def without_key(fields: Iterable[Any]) -> list[Any]:
    """Without a handshake of WebSocket that was made with somebody else."""
    return [field for field in fields if field[0] not in _KEYS]


def request_head(request: Request, scheme: bytes, count: Callable[[str], None]) -> list[Any]:
    """
    The fields of a request.

    @param scheme: of the connection.
    @raise Bad: it cannot be said.
    """
    method, upgrade, target, authority = request.method, request.upgrade, request.target, request.authority
    if not (method in METHODS or TOKEN(method)) or not visible(authority):
        raise Bad("a request that cannot be written as HTTP/2", 500, "invalid_request_refused")
    out: list[Any] = [(b":method", b"CONNECT" if upgrade is not None else method)]
    if method != b"CONNECT":
        if not target or not visible(target):
            raise Bad("a request that cannot be written as HTTP/2", 500, "invalid_request_refused")
        out += ((b":scheme", scheme), (b":path", target))
    if authority:
        out.append((b":authority", authority))
    if upgrade is not None:
        if method != b"CONNECT":
            out.append((b":protocol", upgrade))
        compose(out, without_key(request.headers), count)
        if upgrade == WEBSOCKET:  # nobody needs a key here, but who stands behind the server may
            compose(out, [(b"sec-websocket-key", key(request) or new_key())], count)
        return out
    compose(out, request.headers, count)
    body = request.body
    if body is not None and body.length is not None:
        out.append((b"content-length", b"%d" % body.length))
    elif body is None and method in (b"POST", b"PUT", b"PATCH"):
        out.append((b"content-length", b"0"))
    return out


def length_of(method: bytes, status: int, fields: Headers) -> bytes | None:
    """The content-length that a response without content describes its content with, or None."""
    if status == 204 or not bodyless(method, status):
        return None
    return described(fields)
