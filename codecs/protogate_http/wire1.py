"""
HTTP/1.1 on the wire (RFC 9112): bytes in, events out.  Knows no connection, no body, no clock.

Events: L{Head}, bytes (some of the body), L{End}.  After a Head the owner says with body() how the body is delimited;
when its length is known there is no End, but C{whole} is set together with the last bytes (or at once).

Rules
- Nothing is taken from a line that did not match its pattern as a whole.
- Only CRLF ends a line, a chunk, a head.  What has two readings has none: L{Bad}, and nothing is read after it.
- Limits hold while a head accumulates, and give the same answer however the bytes were cut into reads.
- Chunk extensions are checked and dropped; consecutive chunks of one read come as one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mypy_extensions import mypyc_attr

from protogate.message import Field

if TYPE_CHECKING:
    from protogate.context import Limits

T: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TEXT: Final = rb"[\t \x21-\x7e\x80-\xff]"
_RESPONSE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: " + _TEXT + rb"*+)?").fullmatch
TOKEN: Final = re.compile(T + rb"++").fullmatch
_WORD: Final = rb"(?:" + T + rb'++|"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\' + _TEXT + rb')*+")'
SIZE: Final = re.compile(
    rb"([0-9A-Fa-f]{1,15})(?:[ \t]*+;[ \t]*+" + T + rb"++(?:[ \t]*+=[ \t]*+" + _WORD + rb")?)*+"
).fullmatch
_VERSION: Final = re.compile(T + rb"++ [\x21-\x7e]++ HTTP/[0-9]\.[0-9]").fullmatch
_FIRST: Final = re.compile(T).match
_START: Final = re.compile(rb"(" + T + rb"{1,64}+) ([\x21-\x7e]++)(?: |\Z)").match
_FOLD: Final = re.compile(rb"[ \t]*\r\n[ \t]+")
_BARE: Final = re.compile(rb"(?<!\r)\n").search


def _only(*allowed: int) -> bytes:
    """For bytes.translate(): changes every byte that is not allowed, and is quicker than a pattern."""
    return bytes([byte if byte in allowed else byte ^ 1 for byte in range(256)])


TEXT: Final = _only(9, *range(32, 127), *range(128, 256))
"""What a value may hold: C{value.translate(TEXT) == value}."""
_VISIBLE: Final = _only(*range(33, 127))
_DIGITS: Final = _only(*b"0123456789")
_VERSIONS: Final = {b"HTTP/1.0": b"0", b"HTTP/1.1": b"1"}
METHODS: Final = {method: method for method in b"GET HEAD POST PUT DELETE PATCH OPTIONS TRACE CONNECT".split()}

NONE: Final = 0
"""Length of a message without a body."""
CHUNKED: Final = -1
CLOSE: Final = -2
"""All bytes until the end of the connection, or of a tunnel.  Other lengths: exactly so many bytes."""

SIZE_LINE: Final = 256
"""Longest line of a chunk size with its extensions."""
SIZE_ALLOWED: Final = 16
"""Bytes of it that are in order for each chunk, besides twice its data."""
EXCESS: Final = 16384
"""Bytes beyond that, in one body: who sends more wastes our time (tiny chunks with long extensions)."""

STATUS_LINE: Final = 1024
"""Bytes among which the end of a status line is looked for before the whole head is there."""

HEAD: Final = 0
COUNTED: Final = 1
RAW: Final = 2
SIZE_STATE: Final = 3
DATA: Final = 4
AFTER: Final = 5
TRAILER: Final = 6
BROKEN: Final = 7
STATES: Final = ("HEAD", "COUNTED", "RAW", "SIZE", "DATA", "AFTER", "TRAILERS", "BROKEN")
TRANSITIONS: Final = {
    HEAD: (HEAD, COUNTED, RAW, SIZE_STATE, BROKEN),  # the owner says which, by body()
    COUNTED: (COUNTED, HEAD),
    RAW: (RAW,),
    SIZE_STATE: (SIZE_STATE, DATA, TRAILER, BROKEN),
    DATA: (DATA, AFTER),
    AFTER: (AFTER, SIZE_STATE, BROKEN),
    TRAILER: (TRAILER, HEAD, BROKEN),
    BROKEN: (BROKEN,),
}
"""Every step of a Reader; the tests hold it to this table."""


@mypyc_attr(native_class=False)
class Bad(Exception):
    """
    Not HTTP/1.1, or more of it than is allowed.

    @ivar text: what is wrong.
    @ivar status: what a server answers.
    @ivar event: name of the counter.
    @ivar start: @ivar fields: what could be read of a bad head: (method, target) and pairs.
    """

    def __init__(self, text: str, status: int = 400, event: str = "malformed_head") -> None:
        super().__init__(text)
        self.text, self.status, self.event = text, status, event
        self.start: tuple[bytes, bytes] = (b"-", b"-")
        self.fields: list[Field] = []


@mypyc_attr(acyclic=True)
class Head:
    """
    @ivar start: groups of the start line: (method, target, minor version), or (minor version, status).
    @ivar fields: pairs of lower-case name and value.
    """

    __slots__ = ("fields", "start")

    def __init__(self, start: tuple[bytes, ...], fields: list[Field]) -> None:
        self.start, self.fields = start, fields


class End:
    """
    The end of a chunked body.

    @ivar trailers: pairs, or None.
    """

    __slots__ = ("trailers",)

    def __init__(self, trailers: list[Field] | None = None) -> None:
        self.trailers = trailers


Event = Head | End | bytes
END: Final = End()

_lower: Final[dict[bytes, bytes]] = {}
"""Spelling of a field name -> lower case, for at most a few thousand spellings."""
_names: Final[dict[bytes, bytes]] = {}
"""The same of names that were read and are tokens."""
_statuses: Final[dict[bytes, tuple[bytes, ...]]] = {}
"""Status lines that come again and again; as L{_common}."""
_common: Final[dict[bytes, Any]] = {}
"""Lines that come again and again, as the fields they are; all are forgotten when there are L{KNOWN}."""
KNOWN: Final = 1024
LONG: Final = 160
"""Bytes of a line from which on it is not remembered."""
REMEMBERED: Final = frozenset(
    b"accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials "
    b"access-control-allow-headers access-control-allow-methods access-control-allow-origin alt-svc cache-control "
    b"connection content-encoding content-language content-type date dnt forwarded grpc-accept-encoding grpc-encoding "
    b"grpc-status host keep-alive origin pragma "
    b"priority sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site "
    b"sec-fetch-user server strict-transport-security te transfer-encoding upgrade upgrade-insecure-requests "
    b"user-agent vary via x-content-type-options x-forwarded-for x-forwarded-host x-forwarded-proto "
    b"x-frame-options".split()
)
"""Names whose values are few.  No secret and nothing that is different each time: that would drive out the others."""


def low(name: bytes) -> bytes:
    """Lower case of a token, cached."""
    found = _lower.get(name)
    if found is None:
        found = name.lower()
        if len(_lower) < 4096 and len(name) < 64:
            _lower[name] = found
    return found


def parse(line: bytes) -> Field | None:
    """A field line without its CRLF -> (lower name, value); None when it is none (RFC 9112, 5)."""
    spelled, mark, value = line.partition(b":")
    name = _names.get(spelled)
    if name is None:
        if not TOKEN(spelled):
            return None
        name = spelled.lower()
        if len(_names) < 4096 and len(name) < 64:
            _names[spelled] = name
    if not mark or value.translate(TEXT) != value:
        return None
    field = (name, value.strip(b" \t"))
    if name in REMEMBERED and len(line) < LONG:
        if len(_common) >= KNOWN:
            _common.clear()
        _common[line] = field
    return field


def parsed(lines: list[bytes]) -> list[Field] | None:
    """Field lines -> fields; None when one of them is no field line."""
    fields: list[Any] = []  # Any: compiled, a pair that is one would be taken to pieces and made anew at each step
    for line in lines:
        field = _common.get(line)
        if field is None:
            field = parse(line)
            if field is None:
                return None
        fields.append(field)
    return fields


def requested(line: bytes) -> tuple[bytes, ...] | None:
    """A request line without its CRLF -> (method, target, minor version); None when it is none (RFC 9112, 3)."""
    parts = line.split(b" ", 3)
    if len(parts) != 3:
        return None
    method, target, minor = METHODS.get(parts[0]), parts[1], _VERSIONS.get(parts[2])
    if method is None:
        method = parts[0]
        if not TOKEN(method):
            return None
    if minor is None or not target or not visible(target):
        return None
    return method, target, minor


def answered(line: bytes) -> tuple[bytes, ...] | None:
    """A status line without its CRLF -> (minor version, status); None when it is none (RFC 9112, 4)."""
    match = _RESPONSE(line)
    if match is None:
        return None
    parts = match.groups()
    if len(line) < LONG:
        if len(_statuses) >= KNOWN:
            _statuses.clear()
        _statuses[line] = parts
    return parts


def visible(text: bytes) -> bool:
    """Whether there is nothing in it that may not stand in a target or an authority."""
    return text.translate(_VISIBLE) == text


def number(text: bytes) -> bool:
    """Whether it is 1 to 18 digits."""
    return 0 < len(text) < 19 and text.translate(_DIGITS) == text


class Reader:
    """
    One direction of a connection.

    @ivar limits: those in force for the next head.
    @ivar whole: the message ended without an End; the owner resets it.
    """

    __slots__ = ("_at", "_begin", "_data", "_excess", "_left", "_lines", "_mark", "_seen", "_state", "limits", "whole")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.whole = False
        self._data, self._at = b"", 0  # what was fed, and how much of it is used up
        self._state = HEAD
        self._left = 0  # bytes of the body, or of the chunk
        self._excess = 0  # bytes of chunk extensions beyond what is in order
        self._seen = 0  # no end of the head before this offset
        self._mark = self._lines = self._begin = 0  # see _scan()

    @property
    def state(self) -> int:
        """A key of TRANSITIONS."""
        return self._state

    def feed(self, data: bytes) -> None:
        """More bytes."""
        at = self._at
        if at < len(self._data):
            self._data, self._at = (self._data[at:] if at else self._data) + data, 0
        else:
            self._data, self._at = data, 0

    def pending(self) -> int:
        """Bytes fed but not used up."""
        return len(self._data) - self._at

    def clear(self) -> None:
        """Read nothing any more."""
        self._data, self._at, self._state = b"", 0, BROKEN

    def partial(self) -> Bad:
        """What there is of a head that will not be waited for any longer; nothing is read any more."""
        return self._bad(Bad("incomplete head"), self._data[self._at :])

    def next(self) -> Event | None:
        """The next event, or None when more bytes are needed."""
        return self._steps[self._state](self)

    def body(self, length: int) -> None:
        """How the body after the last Head is delimited."""
        if length > 0:
            self._left, self._state = length, COUNTED
        elif length == NONE:
            self.whole = True
        else:
            self._state, self._excess = SIZE_STATE if length == CHUNKED else RAW, 0

    def all(self, length: int) -> bytes | None:
        """
        Instead of L{body}: a body of so many bytes, if all of them are here; then the message is whole.  That is how
        most small messages come, and they need none of what a body that flows needs.
        """
        data, at = self._data, self._at
        end = at + length
        if length <= 0 or end > len(data):
            return None
        self.whole = True
        if end == len(data):
            self._data, self._at = b"", 0
            return data[at:] if at else data
        self._at = end
        return data[at:end]

    def eof(self) -> bool:
        """The peer will send no more: whether the message ended cleanly by that."""
        return self._state == RAW or (self._state == HEAD and not self.pending())

    # -- heads

    def _head(self) -> Event | None:
        raise NotImplementedError

    def _take(self) -> bytes | None:
        """A whole head, with its empty line; or None.  Its lines are C{[:-4].split(b"\\r\\n")}."""
        data, at = self._data, self._at
        end = data.find(b"\r\n\r\n", at + self._seen)
        if end < 0:
            self._seen = max(len(data) - at - 3, 0)
            return None
        end += 4
        self._seen, self._at = 0, end
        return data if not at and end == len(data) else data[at:end]

    def _bad(self, error: Bad, head: bytes) -> Bad:
        """Read what can be read of a bad head, and stop reading."""
        limits = self.limits
        line, _, rest = head.partition(b"\r\n")
        match = _START(line[: limits.request_line])
        if match is not None:
            error.start = (match[1], match[2])
        for text in rest[: limits.headers].split(b"\r\n", limits.header_count)[: limits.header_count]:
            field = parse(text) if len(text) <= limits.header_line else None
            if field is not None:
                error.fields.append(field)
        self.clear()
        return error

    # -- bodies

    def _counted(self) -> bytes | None:
        data, at = self._data, self._at
        size = len(data) - at
        if not size:
            return None
        left = self._left
        if size <= left:
            if at:
                data = data[at:]
            self._data, self._at = b"", 0
        else:
            size = left
            self._at = at + size
            data = data[at : at + size]
        self._left = left - size
        if not self._left:
            self.whole, self._state = True, HEAD
        return data

    def _raw(self) -> bytes | None:
        data, at = self._data, self._at
        self._data, self._at = b"", 0
        return (data[at:] if at else data) or None

    def _chunks(self) -> Event | None:  # noqa: PLR0912  a loop over the states, without a call for each tiny chunk
        """All that is there of a chunked body, up to its last chunk."""
        data, at, state, left = self._data, self._at, self._state, self._left
        size, parts, bad, excess = len(data), [], "", self._excess
        while True:
            if state == DATA:
                end = at + left
                if end > size:
                    if at < size:
                        parts.append(data[at:])
                        left, at = end - size, size
                    break
                parts.append(data[at:end])
                at, left, state = end, 0, AFTER
            elif state == AFTER:
                if not data.startswith(b"\r\n", at):
                    if data[at:] not in (b"", b"\r"):
                        bad = "chunk longer than its size"
                    break
                at, state = at + 2, SIZE_STATE
            else:
                end = data.find(b"\r\n", at, at + SIZE_LINE + 2)
                if end < 0:
                    if data.find(b"\n", at, at + SIZE_LINE + 2) >= 0:
                        bad = "bad chunk size"  # a bare LF: no CRLF that follows would mend it
                    elif size - at > SIZE_LINE + 1:
                        bad = "chunk size line too long"
                    break
                match = SIZE(data, at, end)
                if match is None:
                    bad = "bad chunk size"
                    break
                left = int(match[1], 16)
                excess = max(excess + end - at - SIZE_ALLOWED - 2 * left, 0)
                if excess > EXCESS:
                    bad = "too much in chunk extensions"
                    break
                at = end + 2
                if not left:
                    state = TRAILER
                    break
                state = DATA
        self._state, self._left, self._at, self._excess = state, left, at, excess
        if at == size:
            self._data, self._at = b"", 0
        if parts:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if bad:
            self.clear()
            raise Bad(bad, 400, "malformed_body")
        return self._trailers() if state == TRAILER else None

    def _trailers(self) -> Event | None:
        data, at, limits = self._data, self._at, self.limits
        if data.startswith(b"\r\n", at):
            self._at, self._seen, self._state = at + 2, 0, HEAD
            return END
        seen, most = at + self._seen, limits.headers + 2
        block = self._take()
        size = len(data) - at if block is None else len(block)
        if _BARE(data, seen, at + min(size, most)):  # no empty line that follows would mend it
            self.clear()
            raise Bad("malformed trailers", 400, "malformed_body")
        if size > most:
            self.clear()
            raise Bad("trailers too large", 431, "trailers_too_large")
        if block is None:
            return None
        trailers = parsed(block[:-4].split(b"\r\n"))
        if trailers is None or len(trailers) > limits.header_count:
            self.clear()
            raise Bad("malformed trailers", 400, "malformed_body")
        self._state = HEAD
        return End(trailers)

    def _broken(self) -> None:
        self._data, self._at = b"", 0

    _steps: ClassVar[tuple[Callable[[Any], Event | None], ...]]


def _steps(kind: type[Reader]) -> tuple[Callable[[Any], Event | None], ...]:
    """What next() does in each state."""
    chunks = kind._chunks
    return (kind._head, kind._counted, kind._raw, chunks, chunks, chunks, kind._trailers, kind._broken)


class Requests(Reader):
    """The direction from a client."""

    __slots__ = ("_blank",)

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._blank = False  # an empty line before the head was skipped (RFC 9112, 2.2: at least one; here: at most)

    def _head(self) -> Head | None:
        data = self._data
        if self._at == len(data):
            return None
        if not self._blank and not self._seen and data.startswith(b"\r", self._at):
            if not data.startswith(b"\r\n", self._at):
                if len(data) - self._at > 1:
                    raise self._bad(Bad("malformed head"), b"")
                return None
            self._blank = True
            self._at += 2
            return self._head()
        head = self._take()
        if head is None:
            data = data[self._at :]
            self._data, self._at = data, 0
            self._scan(data)
            return None
        limits, size = self.limits, len(head)
        lines = head[:-4].split(b"\r\n")
        start = lines.pop(0)
        parts, fields = requested(start), parsed(lines)
        good = parts is not None and fields is not None
        if not good or size > limits.request_line or size > limits.header_line or size > limits.headers:
            self._scan(head)
        if parts is None or fields is None:
            if parts is None and _VERSION(start):
                raise self._bad(Bad("HTTP version not supported", 505, "http_version_not_supported"), head)
            raise self._bad(Bad("malformed head"), head)
        if len(fields) > limits.header_count:
            self._scan(head)
        self._blank, self._mark, self._lines, self._begin = False, 0, 0, 0
        return Head(parts, fields)

    def _scan(self, data: bytes) -> None:
        """
        Raise for the first byte of a head, whole or not, that cannot be right: one too many, a bare LF, or one by which
        it is clear that there is no request line.  Who speaks something else learns that at once, not when time is up.

        What was looked at before is not looked at again: C{_mark} is the start of the first line that was not complete,
        C{_lines} how many were, C{_begin} where the fields begin.
        """
        limits, size = self.limits, len(data)
        while self._mark < size:
            mark, lines = self._mark, self._lines
            at = data.find(b"\n", mark)
            end = size if at < 0 else at  # of the line with its CR
            most = limits.header_line if lines else limits.request_line
            faults = []
            over = mark + most
            if end > over + 1 or (end == over + 1 and data[over] != 13):
                faults.append((over, 0 if not lines else 1))
            if at >= 0 and (at == mark or data[at - 1] != 13):
                faults.append((at, 4))
            if not lines and not _FIRST(data):
                faults.append((0, 4))
            elif not lines and at >= 0 and not _VERSION(data, 0, at - 1):
                faults.append((at, 4))
            if lines and (end > mark + 1 or data[mark] != 13):  # not the empty line
                if end + (at >= 0) > self._begin + limits.headers:
                    faults.append((max(self._begin + limits.headers, mark), 2))
                if lines > limits.header_count:
                    faults.append((mark, 3))
            if faults:
                text, status, event = _FAULTS[min(faults)[1]]
                raise self._bad(Bad(text, status, event), data)
            if at < 0:
                return
            self._mark, self._lines = at + 1, lines + 1
            if not lines:
                self._begin = at + 1


_FAULTS: Final = (
    ("request line too long", 414, "request_line_too_long"),
    ("header line too long", 431, "header_line_too_long"),
    ("header fields too large", 431, "headers_too_large"),
    ("too many header fields", 431, "too_many_headers"),
    ("malformed head", 400, "malformed_head"),
)


class Responses(Reader):
    """The direction from an upstream."""

    __slots__ = ()

    def _head(self) -> Head | None:
        if self._at == len(self._data):
            return None
        seen = self._at + self._seen
        head = self._take()
        size, most = self.pending() if head is None else len(head), self.limits.response_headers
        if size > most:
            self.clear()
            raise Bad("response head too large", 502, "response_headers_too_large")
        if head is None:
            self._begun(seen)
            return None
        lines = head[:-4].split(b"\r\n")
        start = lines.pop(0)
        parts, fields = _statuses.get(start) or answered(start), parsed(lines)
        if fields is None:
            fields = parsed(unfold(head)[:-4].split(b"\r\n")[1:])
        if parts is None or fields is None:
            self.clear()
            raise Bad("malformed response head", 502, "malformed_response")
        return Head(parts, fields)

    def _begun(self, seen: int) -> None:
        """Raise for a head that is not whole, but cannot become one: who speaks something else is not waited for."""
        data, at = self._data, self._at
        end = data.find(b"\r\n", at, at + STATUS_LINE)
        if _BARE(data, max(seen, at)) or (end >= seen and not _RESPONSE(data, at, end)):
            self.clear()
            raise Bad("malformed response head", 502, "malformed_response")


Requests._steps = _steps(Requests)
Responses._steps = _steps(Responses)


def unfold(head: bytes) -> bytes:
    """A head whose folded lines are joined by SP (RFC 9112, 5.2); one right behind the start line stays an error."""
    start, mark, rest = head.partition(b"\r\n")
    return head if rest[:1] in b" \t" else start + mark + _FOLD.sub(b" ", rest)
