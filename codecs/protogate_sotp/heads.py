"""
Heads: the payload of REQUEST, RESPONSE and TRAILERS, and what they are in the model (docs/sotp.md).

Rules
- What is wrong with a request is noted beside all that could be read: somebody will want to know who sent it.
- Bytes are checked by patterns only, those that are written too.
- A POST to a service and an operation is that; every other request is carried as the HTTP that it is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from protogate.message import CONNECT, Field, Request, Response
from protogate_sotp import fields
from protogate_sotp.codings import CAPABILITIES, CODINGS, IDS
from protogate_sotp.fields import Bad
from protogate_sotp.status import GRPC, NAME, TABLE, http_of

if TYPE_CHECKING:
    from protogate.context import Limits

LENGTH: Final = 1
"""Bit of C{form}: the length of the content follows."""
HTTP: Final = 2
"""Bit of C{form}, requests only: method and target instead of service and operation."""
SECURE: Final = 4
"""Bit of C{form}, requests only: the client takes the way to be encrypted; C{https} instead of C{http}."""
MOST_LENGTH: Final = (1 << 63) - 1
WAYS: Final = 4096
"""Services and operations that are remembered; all are forgotten when there are more."""
LONGEST: Final = 128
"""Bytes of one that is remembered."""

TYPES: Final = {
    1: b"application/json",
    2: b"application/x-protobuf",
    3: b"application/msgpack",
    4: b"text/plain; charset=utf-8",
    5: b"application/octet-stream",
    6: b"application/x-www-form-urlencoded",
}
"""Serialization types that have a name; 0 = what C{content-type} says, if anything."""
OTHER_TYPE: Final = b"application/x-sotp; type=%d"
"""The others."""

_TYPE_IDS: Final = {name: number for number, name in TYPES.items()}
_REQUEST: Final = struct.Struct("!IIBBBBBBH")
_RESPONSE: Final = struct.Struct("!HHBBBxH")
_LENGTH: Final = struct.Struct("!Q")
_WAY: Final = struct.Struct("!BBH")
_COUNT: Final = struct.Struct("!H")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++").fullmatch
_TARGET: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*+|\*").fullmatch
_AUTHORITY: Final = re.compile(rb"[\x21-\x7e]*+").fullmatch
_NAME: Final = re.compile(rb"(?![0-9]++\Z)[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+").fullmatch
_OPERATION: Final = re.compile(rb"[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+").fullmatch
NATIVE: Final = re.compile(rb"/([A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+)/([A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+)").fullmatch
"""A target that a service and an operation make."""
_SERVICE: Final = re.compile(rb"[1-9][0-9]{0,9}").fullmatch
_DIGITS: Final = re.compile(rb"[0-9]++").fullmatch
_TYPE: Final = re.compile(rb"application/x-sotp; type=([1-9][0-9]{0,2})").fullmatch
_GRPC: Final = re.compile(rb"[1-9]|1[0-6]").fullmatch
_STATUS: Final = re.compile(rb"0|[1-9][0-9]{0,4}").fullmatch
_ways: dict[tuple[tuple[int, int, int, int], bytes], tuple[str, bytes, bytes]] = {}
_UPGRADES: Final = frozenset((b"", b"websocket", CONNECT))


class Asked:
    """
    A REQUEST, as far as it could be read.

    @ivar service: number or name, as text; empty in the form of HTTP.
    @ivar length: bytes of the content, or None.
    @ivar deadline: milliseconds that the client will wait; 0 = for ever.
    @ivar bad: what is wrong with it, or None.
    """

    method: bytes = b"POST"
    target: bytes = b"/"
    authority: bytes = b""
    scheme: bytes = b"http"
    service: str = ""
    upgrade: bytes | None = None
    length: int | None = None
    deadline: int = 0
    bad: Bad | None = None

    def __init__(self) -> None:
        self.fields: list[Field] = []


# -- trailers


def read_trailers(data: bytes) -> list[Field]:
    """
    The payload of TRAILERS.

    @raise Bad: it is none.
    """
    if len(data) < _COUNT.size:
        raise Bad("trailers without a count")
    return fields.read(data, _COUNT.size, _COUNT.unpack_from(data)[0])


def write_trailers(trailers: Iterable[Field], count: Callable[[str], None]) -> bytes:
    """
    The payload of TRAILERS; empty when none may be sent.

    @raise Bad: they do not fit.
    """
    number, pairs = fields.write(list(trailers), count)
    return _counted(_COUNT, number) + pairs if number else b""


def _counted(form: struct.Struct, *values: int) -> bytes:
    try:
        return form.pack(*values)
    except struct.error:
        raise Bad("a head that is too large for SOTP", "invalid_request_refused", 500) from None


# -- requests


def read_request(data: bytes, limits: Limits, known: int = CAPABILITIES) -> Asked:
    """
    A REQUEST.  What is wrong with it is noted in it, beside all that could be read.

    @param known: capabilities of ours.
    """
    made = Asked()
    try:
        _read_request(data, limits, made, known)
    except Bad as bad:
        made.bad = bad
    return made


def _read_request(data: bytes, limits: Limits, made: Asked, known: int) -> None:
    if len(data) < _REQUEST.size:
        raise Bad("the head is too short")
    service, made.deadline, kind, coding, form, name, operation, authority, count = _REQUEST.unpack_from(data)
    at = _REQUEST.size
    if form:
        at = _read_form(data, at, form, made)
    if not form & HTTP:
        at = _read_native(data, at, (service, name, operation, authority), made)
    elif service or name or operation:
        raise Bad("a service beside a method", "bad_target")
    else:
        at = _read_http(data, at, authority, made)
    _read_metadata(data, at, count, limits, made)
    if kind or coding:
        _add_content(made.fields, kind, coding, known)
    if made.length is not None and made.length > limits.body > 0:
        raise Bad("content too large", "body_too_large", 413)


def _read_metadata(data: bytes, at: int, count: int, limits: Limits, made: Asked) -> None:
    """The fields, within their limits."""
    if len(made.method) + len(made.target) > limits.request_line:
        raise Bad("method and target are too long", "request_line_too_long", 414)
    if count > limits.header_count:
        raise Bad("too many fields", "too_many_headers", 431)
    size = len(data) - at - 3 * count
    if size > limits.headers:
        raise Bad("the metadata is too large", "headers_too_large", 431)
    found = made.fields = fields.read(data, at, count)
    if size > limits.header_line and max([len(name) + len(value) for name, value in found]) > limits.header_line:
        raise Bad("a field is too long", "header_line_too_long", 431)


def _read_form(data: bytes, at: int, form: int, made: Asked) -> int:
    """Scheme and length; returns where they end."""
    if form > SECURE | HTTP | LENGTH:
        raise Bad("unknown bits of form")
    if form & SECURE:
        made.scheme = b"https"
    if form & LENGTH:
        if len(data) < at + _LENGTH.size:
            raise Bad("the head is cut off")
        made.length = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if made.length > MOST_LENGTH:
            raise Bad("the length is too large", "bad_framing")
    return at


def _read_native(data: bytes, at: int, sizes: tuple[int, int, int, int], made: Asked) -> int:
    """Service, operation and authority; returns where they end."""
    service, name, operation, authority = sizes
    end = at + name + operation + authority
    if end > len(data):
        raise Bad("the head is cut off")
    key = (sizes, data[at:end])
    known = _ways.get(key)
    if known is None:
        known = _way_of(service, data[at : at + name], data[at + name : end - authority], data[end - authority : end])
        if len(_ways) >= WAYS:
            _ways.clear()
        if end - at <= LONGEST:
            _ways[key] = known
    made.service, made.target, made.authority = known
    return end


def _way_of(service: int, named: bytes, called: bytes, said: bytes) -> tuple[str, bytes, bytes]:
    """(service as text, target, authority) of a service and an operation."""
    if named:
        if service or not _NAME(named):
            raise Bad("a service has either a number or a name", "bad_target")
    elif service:
        named = b"%d" % service
    else:
        raise Bad("no service", "bad_target")
    if not _OPERATION(called):
        raise Bad("no operation", "bad_target")
    if not _AUTHORITY(said):
        raise Bad("bad authority", "bad_host")
    return named.decode("ascii"), b"/%b/%b" % (named, called), said or named


def _read_http(data: bytes, at: int, authority: int, made: Asked) -> int:
    """Authority, method, target and the token of a tunnel; returns where they end."""
    if len(data) < at + _WAY.size:
        raise Bad("the head is cut off")
    method, upgrade, target = _WAY.unpack_from(data, at)
    at += _WAY.size
    said = data[at : at + authority]
    at += authority
    verb = data[at : at + method]
    at += method
    where = data[at : at + target]
    at += target
    token = data[at : at + upgrade]
    at += upgrade
    if at > len(data):
        raise Bad("the head is cut off")
    if not _METHOD(verb):
        raise Bad("bad method")
    if not _AUTHORITY(said):
        raise Bad("bad authority", "bad_host")
    made.method, made.authority = verb, said
    if not _aims(verb, where, token):
        raise Bad("bad target", "bad_target")
    made.target = where
    if token not in _UPGRADES:
        raise Bad("unknown protocol to switch to", "bad_target", 501)
    if token:
        made.upgrade = token
        if made.length is not None:
            raise Bad("a tunnel has no length", "bad_framing")
    return at


def _aims(method: bytes, target: bytes, token: bytes) -> bool:
    """Whether a target has the form that goes with its method (RFC 9110, 7.1)."""
    if method == b"CONNECT" or token == CONNECT:
        return method == b"CONNECT" and token == CONNECT and not target
    return _TARGET(target) is not None and (target != b"*" or method == b"OPTIONS")


def _add_content(found: list[Field], kind: int, coding: int, known: int) -> None:
    """Serialization and compression, as fields."""
    names = [name for name, _ in found]
    if kind:
        if b"content-type" in names:
            raise Bad("a content-type beside a serialization type")
        found.append((b"content-type", TYPES.get(kind) or OTHER_TYPE % kind))
    if coding:
        token = CODINGS.get(coding) if coding & known else None
        if token is None or b"content-encoding" in names:
            raise Bad("unknown compression, or two of them")
        found.append((b"content-encoding", token))


def write_request(request: Request, capabilities: int, count: Callable[[str], None], wait: int = 0) -> bytes:
    """
    The payload of a REQUEST.

    @param capabilities: of the peer.
    @param wait: milliseconds that are left of its deadline; 0 = it has none.
    @raise Bad: it cannot be said in SOTP.
    """
    headers, kind, coding = _take(request.headers, capabilities)
    number, pairs = fields.write(headers, count)
    body, method, target, authority = request.body, request.method, request.target, request.authority
    form = SECURE if request.scheme == b"https" else 0
    length = b""
    if body is not None and body.length is not None and request.upgrade is None:
        form |= LENGTH
        length = _LENGTH.pack(body.length)
    if not _AUTHORITY(authority):
        raise Bad("an authority that cannot be said in SOTP", "invalid_request_refused", 500)
    way = _native(target) if method == b"POST" and request.upgrade is None else None
    if way is not None:
        service, named, called = way
        if authority == target[1 : -len(called) - 1]:
            authority = b""
        sizes = (len(named), len(called), len(authority))
        strings = b"%b%b%b%b%b" % (length, named, called, authority, pairs)
    else:
        token = request.upgrade or b""
        if not _METHOD(method) or not _aims(method, target, token):
            raise Bad("a request that cannot be said in SOTP", "invalid_request_refused", 500)
        form |= HTTP
        service, sizes = 0, (0, 0, len(authority))
        sized = _counted(_WAY, len(method), len(token), len(target))
        strings = b"%b%b%b%b%b%b%b" % (length, sized, authority, method, target, token, pairs)
    return _counted(_REQUEST, service, wait, kind, coding, form, *sizes, number) + strings


def _native(target: bytes) -> tuple[int, bytes, bytes] | None:
    """(number of the service or 0, its name or nothing, operation) of a target that has them."""
    match = NATIVE(target)
    if match is None:
        return None
    named, called = match.groups()
    if len(called) > 255 or len(named) > 255:
        return None
    if not _DIGITS(named):
        return 0, named, called
    number = int(named) if _SERVICE(named) else 0
    return (number, b"", called) if 0 < number < 1 << 32 else None


def _take(headers: list[Field], capabilities: int) -> tuple[list[Field], int, int]:
    """(fields without those that have a place of their own, serialization, compression)."""
    names = [name for name, _ in headers]
    kind = coding = 0
    if b"content-type" in names and names.count(b"content-type") == 1:
        value = headers[names.index(b"content-type")][1]
        kind = _TYPE_IDS.get(value, 0)
        if not kind and (match := _TYPE(value)):
            kind = int(match[1]) if int(match[1]) < 256 else 0
    if b"content-encoding" in names and names.count(b"content-encoding") == 1:
        coding = IDS.get(headers[names.index(b"content-encoding")][1], 0) & capabilities
    if not (kind or coding):
        return headers, 0, 0
    taken = (b"content-type" if kind else b"", b"content-encoding" if coding else b"")
    return [field for field in headers if field[0] not in taken], kind, coding


# -- responses


class Told:
    """
    A RESPONSE.

    @ivar status: as HTTP has it.
    @ivar length: bytes of the content, or None.
    """

    __slots__ = ("fields", "length", "status")

    def __init__(self, status: int, fields: list[Field], length: int | None) -> None:
        self.status, self.fields, self.length = status, fields, length


def read_response(data: bytes, known: int = CAPABILITIES) -> Told:
    """
    A RESPONSE.

    @param known: capabilities of ours.
    @raise Bad: it is none.
    """
    if len(data) < _RESPONSE.size:
        raise Bad("the head is too short")
    code, status, kind, coding, form, count = _RESPONSE.unpack_from(data)
    at, length = _RESPONSE.size, None
    if form:
        if form != LENGTH or len(data) < at + _LENGTH.size:
            raise Bad("unknown bits of form")
        length = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if length > MOST_LENGTH:
            raise Bad("the length is too large")
    if not status:
        status = http_of(code)
    elif not 100 <= status < 600:
        raise Bad("the HTTP status is none")
    found = fields.read(data, at, count)
    if kind or coding:
        _add_content(found, kind, coding, known)
    if code != TABLE[status]:
        found[:] = [field for field in found if field[0] != NAME]
        found.append((NAME, b"%d" % code))
    return Told(status, found, length)


def write_response(response: Response, length: int | None, capabilities: int, count: Callable[[str], None]) -> bytes:
    """
    The payload of a RESPONSE.

    @param length: of its content, or of what that would be.
    @raise Bad: it cannot be said in SOTP.
    """
    status = response.status
    code = TABLE[status]
    rest, kind, coding = _take(response.headers, capabilities)
    for name, value in rest:
        if name == NAME:
            code = _exact(value, status)
            rest = [field for field in rest if field[0] != NAME]
            break
    said = response.headers.get(GRPC) if status == 200 else None
    if said is not None and _GRPC(said):
        code = int(said)
    number, pairs = fields.write(rest, count)
    shown = 0 if http_of(code) == status else status
    if length is None:
        return _counted(_RESPONSE, code, shown, kind, coding, 0, number) + pairs
    return _counted(_RESPONSE, code, shown, kind, coding, LENGTH, number) + _LENGTH.pack(length) + pairs


def _exact(value: bytes, status: int) -> int:
    """What C{sotp-status} says, if it is of the same kind as the HTTP status."""
    code = int(value) if _STATUS(value) else 1 << 16
    return code if code < 1 << 16 and http_of(code) // 100 == status // 100 else TABLE[status]
