"""
Status codes of SOTP, and what they are in HTTP and in gRPC: the table of docs/sotp.md.

Rules
- 0 to 16 are those of gRPC, by number and by name; from 17 on they are SOTP's own.
- A status that was not translated is the same when it comes back: C{sotp-status} carries it where HTTP cannot.
"""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = 2
NAME: Final = b"sotp-status"
"""A field between codecs, and for services behind: the exact status, where the HTTP one has several."""

GRPC: Final = b"grpc-status"
"""In the head of a response: that of a call of gRPC that failed at once.  Its HTTP status says nothing: it is 200."""

STATUSES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("OK", 200, 0),
    1: ("CANCELLED", 499, 1),
    2: ("UNKNOWN", 500, 2),
    3: ("INVALID_ARGUMENT", 400, 3),
    4: ("DEADLINE_EXCEEDED", 504, 4),
    5: ("NOT_FOUND", 404, 5),
    6: ("ALREADY_EXISTS", 409, 6),
    7: ("PERMISSION_DENIED", 403, 7),
    8: ("RESOURCE_EXHAUSTED", 429, 8),
    9: ("FAILED_PRECONDITION", 412, 9),
    10: ("ABORTED", 409, 10),
    11: ("OUT_OF_RANGE", 416, 11),
    12: ("UNIMPLEMENTED", 501, 12),
    13: ("INTERNAL", 500, 13),
    14: ("UNAVAILABLE", 503, 14),
    15: ("DATA_LOSS", 500, 15),
    16: ("UNAUTHENTICATED", 401, 16),
    17: ("TOO_LARGE", 413, 8),
    18: ("BAD_GATEWAY", 502, 14),
    19: ("REDIRECT", 302, 2),
    20: ("TIMEOUT", 408, 4),
}
"""Name, HTTP status and gRPC status of each."""

_HTTP: Final = {code: http for code, (_, http, _) in STATUSES.items()}
_BACK: Final = {
    200: 0,
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    408: 20,
    409: 10,
    412: 9,
    413: 17,
    414: 17,
    416: 11,
    429: 8,
    431: 17,
    499: 1,
    500: 13,
    501: 12,
    502: 18,
    503: 14,
    504: 4,
}
"""HTTP statuses with one of their own; the others go by their class."""
_CLASSES: Final = (UNKNOWN, 0, 0, 19, 3, 13)
"""Status for 0xx (never), 1xx, 2xx, 3xx, 4xx, 5xx."""
TABLE: Final = tuple(_BACK.get(status, _CLASSES[status // 100]) for status in range(600))
"""HTTP status → status."""


def http_of(status: int) -> int:
    """The HTTP status; one that is not known counts as UNKNOWN."""
    return _HTTP.get(status, 500)


def grpc_of(status: int) -> int:
    """The gRPC status; one that is not known counts as UNKNOWN."""
    known = STATUSES.get(status)
    return UNKNOWN if known is None else known[2]
