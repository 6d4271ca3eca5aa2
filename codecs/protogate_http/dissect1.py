"""
What was said in HTTP/1.1, for people: the messages of one direction of a connection.

Rules
- What a message is, is decided by L{protogate_http.wire1} alone; here it is only shown.
- One direction does not tell all: whether a response is one to HEAD, which has no content whatever its fields say.

Must not know: connections, bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from protogate_http.wire1 import CHUNKED, CLOSE, HEAD, NONE, RAW, Bad, End, Head, Requests, Responses, number

if TYPE_CHECKING:
    from protogate.context import Limits
    from protogate.message import Field


def dissect(data: bytes, client: bool, limits: Limits) -> Iterator[str]:
    """See L{protogate.interfaces.IReadableCodec}."""
    reader = Requests(limits) if client else Responses(limits)
    reader.feed(data)
    while True:
        at = len(data) - reader.pending()
        try:
            event = reader.next()
        except Bad as bad:
            raise ValueError(f"at {at}: {bad.text}") from None
        if event is None:
            break
        if isinstance(event, Head):
            yield f"{at}: {_head(event, client)}"
            length = _length(event, client)
            if length is None:
                raise ValueError(f"at {at}: no one way to tell how long the content is")
            reader.body(length)
        elif isinstance(event, End):
            yield f"{at}: end of the content{fields_of(event.trailers or [])}"
        else:
            yield f"{at}: content, {len(event)} bytes"
        reader.whole = False
    if reader.state not in (HEAD, RAW) or reader.pending():
        raise ValueError(f"at {len(data)}: cut off within a message that begins before")


def _head(head: Head, client: bool) -> str:
    start = [shown(part) for part in head.start]
    line = f"{start[0]} {start[1]} HTTP/1.{start[2]}" if client else f"HTTP/1.{start[0]} {start[1]}"
    return line + fields_of(head.fields)


def fields_of(fields: Iterable[Field]) -> str:
    """A line for each of them."""
    return "".join(f"\n    {shown(name)}: {shown(value)}" for name, value in fields)


def _length(head: Head, client: bool) -> int | None:
    """How the content is delimited (RFC 9112, 6.3); None when its fields contradict each other."""
    if not client:
        status = head.start[1]
        if status == b"101":
            return CLOSE
        if status[:1] == b"1" or status in (b"204", b"304"):
            return NONE
    codings = [value.lower() for name, value in head.fields if name == b"transfer-encoding"]
    lengths = {value for name, value in head.fields if name == b"content-length"}
    if codings:
        return CHUNKED if codings == [b"chunked"] and not lengths else None
    if lengths:
        (first, *others) = lengths
        return None if others or not number(first) else int(first)
    if client:
        return CLOSE if head.start[0] == b"CONNECT" else NONE
    return CLOSE


def shown(data: bytes) -> str:
    """As it is where that is safe on a terminal."""
    return ascii(data.decode("utf-8", "replace"))[1:-1]
