"""
Heads: the payload of REQUEST, RESPONSE and TRAILERS, and what they are as fields of the model (docs/sotp.md).

Rules
- Lengths are added up once, at the end: what is cut off, and what is left over, is the same fault.
- Bytes are checked by patterns only.  Names are lower-case tokens; fields of framing and of the connection are none.
- What is written is checked as well: a module cannot put onto the wire what a peer must refuse.
- What does not fit is never cut or left out: the message is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from protogate.message import CONNECT, Field, Request, Response, spellings
from protogate_sotp.codings import CODINGS, IDS
from protogate_sotp.status import NAME, TABLE, http_of

if TYPE_CHECKING:
    from protogate.context import Limits

LENGTH: Final = 1
"""Bit of C{form}: the length of the content follows."""
HTTP: Final = 2
"""Bit of C{form}, requests only: method and target instead of service and operation."""
SECURE: Final = 4
"""Bit of C{form}, requests only: the client takes the way to be encrypted; C{https} instead of C{http}."""
MOST_LENGTH: Final = (1 << 63) - 1

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
DEADLINE: Final = b"x-deadline-ms"
"""The field that has a deadline between codecs, unless the codec is told another name."""

_TYPE_IDS: Final = {name: number for number, name in TYPES.items()}
_REQUEST: Final = struct.Struct("!IIBBBBBBH")
_RESPONSE: Final = struct.Struct("!HHBBBxH")
_LENGTH: Final = struct.Struct("!Q")
_WAY: Final = struct.Struct("!BBH")
_COUNT: Final = struct.Struct("!H")
_PAIR: Final = struct.Struct("!BH")
_pair: Final = _PAIR.unpack_from
_pack: Final = _PAIR.pack

_CLOSED: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy",
        b"proxy-connection",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"te",
        b"expect",
    )
)
_CONDITIONAL: Final = {b"te": b"trailers", b"expect": b"100-continue"}
"""Those that may stand there with this one value."""
FORBIDDEN: Final = (_CLOSED | frozenset().union(*map(spellings, _CLOSED))) - set(_CONDITIONAL)
"""Fields of framing or of the connection, also as those spell them who see no difference between C{_} and C{-}."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++").fullmatch
_TARGET: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*+|\*").fullmatch
_AUTHORITY: Final = re.compile(rb"[\x21-\x7e]*+").fullmatch
_NAME: Final = re.compile(rb"(?![0-9]++\Z)[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+").fullmatch
_OPERATION: Final = re.compile(rb"[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+").fullmatch
NATIVE: Final = re.compile(rb"/([A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+)/([A-Za-z0-9_~$-][A-Za-z0-9._~$-]*+)").fullmatch
"""A target that a service and an operation make."""
_SERVICE: Final = re.compile(rb"[1-9][0-9]{0,9}").fullmatch
_DEADLINE: Final = re.compile(rb"[1-9][0-9]{0,9}").fullmatch
_DIGITS: Final = re.compile(rb"[0-9]++").fullmatch
_TYPE: Final = re.compile(rb"application/x-sotp; type=([1-9][0-9]{0,2})").fullmatch
_STATUS: Final = re.compile(rb"0|[1-9][0-9]{0,4}").fullmatch
_TEXT: Final = bytes([9, *range(32, 127), *range(128, 256)])
_UPGRADES: Final = frozenset((b"", b"websocket", CONNECT))

_known: set[bytes] = set()
"""Names that were seen and may stand there: a few thousand."""
KNOWN: Final = 4096


class Bad(Exception):
    """
    What was read, or is to be written, is no head.

    @ivar event: counted as.
    @ivar status: of the answer, as HTTP has it.
    """

    def __init__(self, text: str, event: str = "malformed_head", status: int = 400) -> None:
        super().__init__(text)
        self.text, self.event, self.status = text, event, status


class Asked:
    """
    A REQUEST, as far as it could be read.

    @ivar service: number or name, as text; empty in the form of HTTP.
    @ivar length: bytes of the content, or None.
    @ivar deadline: milliseconds that the client will wait; 0 = for ever.
    @ivar bad: what is wrong with it, or None.
    """

    __slots__ = (
        "authority",
        "bad",
        "deadline",
        "fields",
        "length",
        "method",
        "scheme",
        "service",
        "target",
        "upgrade",
    )

    def __init__(self) -> None:
        self.method, self.target, self.authority, self.scheme = b"POST", b"/", b"", b"http"
        self.service = ""
        self.upgrade: bytes | None = None
        self.fields: list[Field] = []
        self.length: int | None = None
        self.deadline = 0
        self.bad: Bad | None = None


# -- fields


def read_fields(data: bytes, at: int, count: int) -> list[Field]:
    """
    So many pairs, which must be all that is left.

    @raise Bad: they are not, or one of them is no field.
    """
    out: list[Field] = []
    try:
        for _ in range(count):
            name, value = _pair(data, at)
            middle = at + 3 + name
            out.append((data[at + 3 : middle], data[middle : middle + value]))
            at = middle + value
    except struct.error:
        raise Bad("the metadata is cut off") from None
    if at != len(data):
        raise Bad("the metadata is not as long as the frame")
    if out:
        _check(out)
    return out


def _check(fields: list[Field]) -> None:
    """See that each is a field."""
    if not _known.issuperset([name for name, _ in fields]):
        for name, value in fields:
            if name not in _known:
                _admit(name, value)
    if _unfit([value for _, value in fields]):
        raise Bad("a value in the metadata is none")


def _unfit(values: list[bytes]) -> bool:
    """Whether one of them holds a control character, or begins or ends with white space."""
    text = b"\n%b\n" % b"\n".join(values)
    return (
        len(text.translate(None, _TEXT)) != len(values) + 1
        or b"\n " in text
        or b" \n" in text
        or b"\n\t" in text
        or b"\t\n" in text
    )


def _admit(name: bytes, value: bytes) -> None:
    wanted = _CONDITIONAL.get(name)
    if wanted is not None:
        if value.lower() != wanted:
            raise (
                Bad("an expectation that is not 100-continue", "unknown_expectation", 417)
                if name == b"expect"
                else Bad("te may say trailers only")
            )
    elif name in FORBIDDEN:
        raise Bad("a field of framing or of a connection in the metadata", "bad_framing")
    elif not _TOKEN(name) or len(name) > 255:
        raise Bad("a name in the metadata is none")
    elif len(_known) < KNOWN and len(name) < 64:
        _known.add(name)


def write_fields(fields: Iterable[Field], count: Callable[[str], None]) -> list[Field]:
    """What may be sent of them; each of the others is counted."""
    out = list(fields)
    if _known.issuperset([name for name, _ in out]) and not _unfit([value for _, value in out]):
        return out
    kept = []
    for name, value in out:
        lowered = name.lower()
        try:
            if lowered not in _known:
                _admit(lowered, value)
            bare = value.strip(b" \t")
            if _unfit([bare]):
                raise Bad("a value is none")
        except Bad:
            if lowered not in _CLOSED:
                count("invalid_field_dropped")
        else:
            kept.append((lowered, bare))
    return kept


def packed(fields: list[Field]) -> bytes:
    """
    Their pairs, one after the other.

    @raise Bad: one is too long, or they are too many.
    """
    try:
        return b"".join([_pack(len(name), len(value)) + name + value for name, value in fields])
    except struct.error:
        raise Bad("a field that is too long for SOTP", "invalid_request_refused", 500) from None


def read_trailers(data: bytes) -> list[Field]:
    """
    The payload of TRAILERS.

    @raise Bad: it is none.
    """
    if len(data) < _COUNT.size:
        raise Bad("trailers without a count")
    return read_fields(data, _COUNT.size, _COUNT.unpack_from(data)[0])


def write_trailers(fields: list[Field]) -> bytes:
    """
    The payload of TRAILERS.

    @raise Bad: they do not fit.
    """
    return _counted(_COUNT, len(fields)) + packed(fields)


def _counted(form: struct.Struct, *values: int) -> bytes:
    try:
        return form.pack(*values)
    except struct.error:
        raise Bad("a head that is too large for SOTP", "invalid_request_refused", 500) from None


# -- requests


def read_request(data: bytes, limits: Limits, deadline: bytes = DEADLINE) -> Asked:
    """A REQUEST.  What is wrong with it is noted in it, beside all that could be read."""
    made = Asked()
    try:
        _read_request(data, limits, deadline, made)
    except Bad as bad:
        made.bad = bad
    return made


def _read_request(data: bytes, limits: Limits, deadline: bytes, made: Asked) -> None:
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
        _add_content(made.fields, kind, coding)
    if made.deadline:
        made.fields[:] = [field for field in made.fields if field[0] != deadline]
        made.fields.append((deadline, b"%d" % made.deadline))
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
    fields = made.fields = read_fields(data, at, count)
    if size > limits.header_line and max([len(name) + len(value) for name, value in fields]) > limits.header_line:
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
    named = data[at : at + name]
    at += name
    called = data[at : at + operation]
    at += operation
    said = data[at : at + authority]
    at += authority
    if at > len(data):
        raise Bad("the head is cut off")
    if name:
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
    made.service = named.decode("ascii")
    made.target = b"/%b/%b" % (named, called)
    made.authority = said or named
    return at


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


def _add_content(fields: list[Field], kind: int, coding: int) -> None:
    """Serialization and compression, as fields."""
    if kind:
        if any(name == b"content-type" for name, _ in fields):
            raise Bad("a content-type beside a serialization type")
        fields.append((b"content-type", TYPES.get(kind) or OTHER_TYPE % kind))
    if coding:
        token = CODINGS.get(coding)
        if token is None or any(name == b"content-encoding" for name, _ in fields):
            raise Bad("unknown compression, or two of them")
        fields.append((b"content-encoding", token))


def write_request(
    request: Request,
    capabilities: int,
    count: Callable[[str], None],
    deadline: bytes = DEADLINE,
    elapsed: float = 0.0,
) -> tuple[bytes, int]:
    """
    (payload of a REQUEST, its deadline in milliseconds or 0).

    @param capabilities: of the peer.
    @param elapsed: seconds of the deadline that are over.
    @raise Bad: it cannot be said in SOTP.
    """
    fields = write_fields(request.headers, count)
    fields, kind, coding, wait = _take_content(fields, capabilities, deadline)
    if wait:
        wait = max(wait - round(elapsed * 1000), 1)
    body, method, target, authority = request.body, request.method, request.target, request.authority
    form = SECURE if request.scheme == b"https" else 0
    length = b""
    if body is not None and body.length is not None and request.upgrade is None:
        form |= LENGTH
        length = _LENGTH.pack(body.length)
    pairs = packed(fields)
    match = NATIVE(target) if method == b"POST" and request.upgrade is None else None
    named = b"" if match is None else match[1]
    number = 0
    if match is not None and _DIGITS(named):
        number = int(named) if _SERVICE(named) else 0
        if not 0 < number < 1 << 32:
            match = None
    if match is not None:
        if authority == named:
            authority = b""
        if number:
            named = b""
        called = match[2]
        strings = b"%b%b%b%b" % (length, named, called, authority)
        sizes = (len(named), len(called), len(authority))
    else:
        if not _METHOD(method) or not _aims(method, target, request.upgrade or b""):
            raise Bad("a request that cannot be said in SOTP", "invalid_request_refused", 500)
        upgrade = request.upgrade or b""
        form |= HTTP
        number = 0
        way = _counted(_WAY, len(method), len(upgrade), len(target))
        strings = b"".join((length, way, authority, method, target, upgrade))
        sizes = (0, 0, len(authority))
    if not _AUTHORITY(authority):
        raise Bad("an authority that cannot be said in SOTP", "invalid_request_refused", 500)
    return _counted(_REQUEST, number, wait, kind, coding, form, *sizes, len(fields)) + strings + pairs, wait


def _take_content(fields: list[Field], capabilities: int, deadline: bytes | None) -> tuple[list[Field], int, int, int]:
    """(fields without those that have a place of their own, serialization, compression, deadline)."""
    kind = coding = wait = 0
    for name, value in fields:
        if name == b"content-type":
            kind = _TYPE_IDS.get(value, 0)
            if not kind:
                match = _TYPE(value)
                kind = int(match[1]) if match and int(match[1]) < 256 else 0
        elif name == b"content-encoding":
            coding = IDS.get(value, 0) & capabilities
        elif name == deadline:
            wait = min(int(value), 0xFFFFFFFF) if _DEADLINE(value) else 0
    if not (kind or coding or wait):
        return fields, 0, 0, 0
    names = [name for name, _ in fields]
    if names.count(b"content-type") > 1:
        kind = 0
    if names.count(b"content-encoding") > 1:
        coding = 0
    kept = [
        field
        for field in fields
        if not (
            (kind and field[0] == b"content-type")
            or (coding and field[0] == b"content-encoding")
            or (wait and field[0] == deadline)
        )
    ]
    return kept, kind, coding, wait


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


def read_response(data: bytes) -> Told:
    """
    A RESPONSE.

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
    fields = read_fields(data, at, count)
    if kind or coding:
        _add_content(fields, kind, coding)
    if code != TABLE[status]:
        fields[:] = [field for field in fields if field[0] != NAME]
        fields.append((NAME, b"%d" % code))
    return Told(status, fields, length)


def write_response(response: Response, length: int | None, capabilities: int, count: Callable[[str], None]) -> bytes:
    """
    The payload of a RESPONSE.

    @param length: of its content, or of what that would be.
    @raise Bad: it cannot be said in SOTP.
    """
    status = response.status
    fields, kind, coding, _ = _take_content(write_fields(response.headers, count), capabilities, None)
    code = TABLE[status]
    for name, value in fields:
        if name == NAME:
            code = _exact(value, status)
            fields = [field for field in fields if field[0] != NAME]
            break
    shown = 0 if http_of(code) == status else status
    head = _counted(_RESPONSE, code, shown, kind, coding, 0 if length is None else LENGTH, len(fields))
    if length is not None:
        head += _LENGTH.pack(length)
    return head + packed(fields)


def _exact(value: bytes, status: int) -> int:
    """What C{sotp-status} says, if it is of the same kind as the HTTP status."""
    code = int(value) if _STATUS(value) else 1 << 16
    return code if code < 1 << 16 and http_of(code) // 100 == status // 100 else TABLE[status]
