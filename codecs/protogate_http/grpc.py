"""
The words of gRPC over HTTP: content types, C{grpc-timeout}, statuses, C{grpc-message}.

The specification is C{doc/PROTOCOL-HTTP2.md} of github.com/grpc/grpc, for gRPC-Web C{doc/PROTOCOL-WEB.md}; statuses are
those of C{doc/statuscodes.md}.

Rules
- Only the envelope is read here.  Messages are bytes: what is in them, and how they are compressed, is between client
  and server.
- What is not as the specification has it is left as it is: it is for the other side to judge.
- Knows no connection and no version of HTTP.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_from_bytes

from protogate.errors import Phase
from protogate_http.wire1 import KNOWN, LONG

if TYPE_CHECKING:
    from protogate.message import Headers, Request, Response

CONTENT_TYPE: Final = b"content-type"
TIMEOUT: Final = b"grpc-timeout"
STATUS: Final = b"grpc-status"
MESSAGE: Final = b"grpc-message"
DETAILS: Final = b"grpc-status-details-bin"
BETWEEN: Final = b"sotp-status"
"""The status of an upstream that speaks SOTP, where its HTTP status stands for another; 1 to 16 are those of gRPC."""
BEGINS: Final = b"application/grpc"
"""How content types of gRPC begin, in any case."""

CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_OF_HTTP: Final = {
    400: INVALID_ARGUMENT,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    405: UNIMPLEMENTED,
    408: DEADLINE_EXCEEDED,
    409: ABORTED,
    412: FAILED_PRECONDITION,
    413: RESOURCE_EXHAUSTED,
    414: RESOURCE_EXHAUSTED,
    416: OUT_OF_RANGE,
    429: RESOURCE_EXHAUSTED,
    431: RESOURCE_EXHAUSTED,
    499: CANCELLED,
    500: INTERNAL,
    501: UNIMPLEMENTED,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
}
"""
What an answer of the gateway's own means.  (The table of C{http-grpc-status-mapping.md} is another one: it is for
clients that see an HTTP status and cannot know who says so.)

404 says that no route has this method, not that something was not found by it.  504 is DEADLINE_EXCEEDED, since a call
that was sent may have had its effect: after UNAVAILABLE many clients would send it again.
"""
_KIND: Final = re.compile(rb"(?i:application/grpc(-web(-text)?)?)(\+[^;\s]*)?[ \t]*(?:;.*)?").fullmatch
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MOST: Final = 99_999_999
"""The largest number of a timeout: eight digits."""
_STATUS: Final = re.compile(rb"[0-9]{1,9}").fullmatch
_NUMBERS: Final = {b"%d" % number: number for number in range(UNAUTHENTICATED + 1)}
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_METHOD: Final = re.compile(rb"/([^/?%]+)/([^/?%]+)").fullmatch
_KEPT: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What of a message stands for itself."""


class Kind:
    """
    Which gRPC a content type means.  Many messages share one.

    @ivar web: gRPC-Web: trailers stand in the content.
    @ivar text: its content is Base64.
    @ivar suffix: what messages are, with its C{+}, e.g. C{b"+proto"}; empty where the type does not say.
    """

    __slots__ = ("suffix", "text", "web")

    def __init__(self, web: bool, text: bool, suffix: bytes) -> None:
        self.web, self.text, self.suffix = web, text, suffix

    def type(self) -> bytes:
        """As a content type."""
        return BEGINS + (b"-web" if self.web else b"") + (b"-text" if self.text else b"") + self.suffix


_kinds: Final[dict[bytes, Kind]] = {}
"""Content types that mean one; all are forgotten when there are L{KNOWN}."""
_services: Final[dict[bytes, str]] = {}
"""The same for paths of calls."""


def kind_of(headers: Headers) -> Kind | None:
    """Which gRPC a message is, or None when it is something else."""
    value = headers.get(CONTENT_TYPE)
    return None if value is None else _kinds.get(value) or _kind(value)


def _kind(value: bytes) -> Kind | None:
    """Of a content type."""
    if value[:16].lower() != BEGINS:
        return None
    match = _KIND(value)
    if match is None:
        return None
    kind = Kind(match[1] is not None, match[2] is not None, match[3] or b"")
    if len(value) < LONG:
        if len(_kinds) >= KNOWN:
            _kinds.clear()
        _kinds[value] = kind
    return kind


def service_of(target: bytes) -> str:
    """The service of a path C{/package.Service/Method}; empty for a path of another form."""
    service = _services.get(target)
    if service is None:
        match = _METHOD(target)
        if match is None:
            return ""
        service = match[1].decode("latin-1")
        if len(target) < LONG:
            if len(_services) >= KNOWN:
                _services.clear()
            _services[target] = service
    return service


# -- deadlines


def seconds_of(timeout: bytes) -> float | None:
    """Seconds of a C{grpc-timeout}, or None when it is none."""
    match = _TIMEOUT(timeout)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def timeout_of(seconds: float) -> bytes:
    """
    A C{grpc-timeout}: never more than that, to the microsecond where eight digits allow it, and a millisecond at least
    (0 is no timeout).
    """
    micros = max(int(seconds * 1e6), 1000)
    for unit, size in ((b"u", 1), (b"m", 1000), (b"S", 1_000_000), (b"M", 60_000_000)):
        if micros // size <= _MOST:
            return b"%d%b" % (micros // size, unit)
    return b"%dH" % min(micros // 3_600_000_000, _MOST)


def tell_deadline(request: Request, now: float) -> None:
    """For client codecs: what is left of the deadline of a call stands in its fields."""
    if request.deadline is not None and kind_of(request.headers) is not None:
        request.headers.set(TIMEOUT, timeout_of(request.deadline - now))


# -- statuses


def number_of(status: bytes | None) -> int | None:
    """The number of a C{grpc-status}, or None when it is none."""
    if status is None:
        return None
    known = _NUMBERS.get(status)
    return int(status) if known is None and _STATUS(status) else known


def status_of(response: Response, malformed: bool) -> int:
    """
    What an answer means that the gateway has made, or an upstream that speaks something else than HTTP: then its HTTP
    status is a translation, too.

    @param malformed: what it answers was no request: then its arguments are not the matter.
    """
    reason, status = response.reason, response.status
    if response.protocol:
        said = number_of(response.headers.get(BETWEEN))
        if said is not None and 0 < said <= UNAUTHENTICATED:
            return said
        if status == 404:
            return NOT_FOUND
    if reason is not None and reason.phase is Phase.TOTAL:
        return DEADLINE_EXCEEDED
    if malformed and status == 400:
        return INTERNAL
    return _OF_HTTP.get(status, INTERNAL if status >= 500 else UNKNOWN)


def message_of(response: Response) -> bytes:
    """C{grpc-message} for such an answer: whatever a stranger may read of its reason, else what its status says."""
    reason, status = response.reason, response.status
    text = "" if reason is None else reason.detail or reason.title
    if not text:
        text = "the answer is not one of gRPC" if status < 300 else _PHRASES.get(status, f"status {status}")
    return escaped(text)


def escaped(text: str) -> bytes:
    """Text as a C{grpc-message}: UTF-8, percent-encoded but for printable ASCII."""
    return quote_from_bytes(text.encode("utf-8", "replace"), safe=_KEPT).encode("ascii")
