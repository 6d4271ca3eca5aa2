"""An answer out of the memory: whole, without content, a part of it, or 304; and C{Cache-Status} (RFC 9211)."""

from __future__ import annotations

import re
from typing import Final

from protogate.caching.asked import Asked
from protogate.caching.conditions import same_range, unmodified
from protogate.caching.content import Content
from protogate.caching.stored import Stored
from protogate.message import Headers, Response

KEPT: Final = frozenset(
    (
        b"cache-control",
        b"cdn-cache-control",
        b"content-location",
        b"date",
        b"etag",
        b"expires",
        b"vary",
        b"via",
        b"cache-status",
    )
)
"""Fields of a 304 (RFC 9110, 15.4.5); C{Last-Modified} where there is no entity tag."""

_RANGE: Final = re.compile(rb"bytes=[ \t]*+(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))[ \t]*+").fullmatch
"""One range; of several, and of units that nobody knows, none is looked at."""


def answer(stored: Stored, asked: Asked, head: bool, now: float, wall: float, status: bytes) -> Response:
    """
    What a client gets of what is kept.

    @param head: it asks without content.
    @param now: on the clock that only goes forward.
    @param wall: seconds since 1970.
    @param status: the C{Cache-Status}; empty for none.
    """
    headers = Headers(stored.headers)
    headers.append((b"age", b"%d" % max(0.0, now - stored.born)))
    if status:
        headers.append((b"cache-status", status))
    if asked.conditions and stored.status == 200 and unmodified(asked.conditions, stored.headers, wall):
        return not_modified(headers)
    content = stored.content
    if head:
        if content is not None and content.length is not None:
            headers.append((b"content-length", b"%d" % content.length))
        return Response(stored.status, headers)
    if asked.ranges is not None and stored.status == 200 and content is not None and content.complete:
        part = _part(stored, content, asked, headers, wall)
        if part is not None:
            return part
    return Response(stored.status, headers, None if content is None else content.copy())


def not_modified(headers: Headers) -> Response:
    """That a client has it already."""
    tagged = headers.get(b"etag") is not None
    kept = [
        field
        for field in headers
        if field[0] in KEPT or field[0] == b"age" or (field[0] == b"last-modified" and not tagged)
    ]
    return Response(304, kept)


def _part(stored: Stored, content: Content, asked: Asked, headers: Headers, wall: float) -> Response | None:
    """A part of it (RFC 9110, 14); None where all of it is to be sent."""
    match = _RANGE(asked.ranges or b"")
    if match is None or (asked.if_range is not None and not same_range(asked.if_range, stored.headers, wall)):
        return None
    first, last, suffix = match.groups()
    size = content.size
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < int(first):
            return None
    if start >= stop:
        headers = Headers([field for field in headers if field[0] in KEPT or field[0] == b"age"])
        headers.append((b"content-range", b"bytes */%d" % size))
        return Response(416, headers)
    headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, size)))
    return Response(206, headers, Content.of(cut(content.pieces, start, stop)).copy())


def cut(pieces: list[bytes], start: int, stop: int) -> list[bytes]:
    """The bytes from start to stop; only the first and the last piece are copied, if they must be."""
    found: list[bytes] = []
    at = 0
    for piece in pieces:
        end = at + len(piece)
        if end > start and at < stop:
            whole = at >= start and end <= stop
            found.append(piece if whole else piece[max(0, start - at) : stop - at])
        elif at >= stop:
            break
        at = end
    return found
