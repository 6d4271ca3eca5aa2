"""
gRPC-Web as content (C{doc/PROTOCOL-WEB.md} of github.com/grpc/grpc): gRPC for whoever cannot read trailers, as browsers
cannot.  They stand in a last frame of the content instead, and content may be Base64 for whoever cannot read bytes.

Rules
- Messages are framed as in gRPC: nothing here looks into them, and nothing is collected.
- Base64 is whatever was encoded in pieces: each may have its padding, and need not begin or end where a frame or a read
  does.
- Content that breaks off breaks off: no frame claims that it was complete.
- Each body here keeps the contract of L{protogate.interfaces.IBody} by leaning on the body inside.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from protogate.body import Valve
from protogate.errors import CLIENT, Abort
from protogate.interfaces import IBody
from protogate.message import Field

TRAILERS: Final = 0x80
"""First byte of the frame that holds trailers."""
_PADDED: Final = re.compile(rb"=(?!=)")


def frame_of(trailers: Iterable[Field]) -> bytes:
    """The frame that trailers are."""
    lines = b"".join([b"%b: %b\r\n" % field for field in trailers])
    return b"%c%b%b" % (TRAILERS, len(lines).to_bytes(4, "big"), lines)


def encoded(data: bytes) -> bytes:
    """Base64, with its padding."""
    return b2a_base64(data, newline=False)


def decoded(text: bytes) -> bytes:
    """
    The bytes of pieces of Base64, four characters a time.

    @raise ValueError: it is none.
    """
    if b"=" not in text:
        return a2b_base64(text, strict_mode=True)
    found, start = [], 0
    for match in _PADDED.finditer(text):
        found.append(a2b_base64(text[start : match.end()], strict_mode=True))
        start = match.end()
    found.append(a2b_base64(text[start:], strict_mode=True))
    return b"".join(found)


class Filter(Valve):
    """A body that passes on something else than comes of the body inside: nobody knows how long that is."""

    __slots__ = ()

    def __init__(self, body: IBody) -> None:
        super().__init__(body)
        self.length = None


class Told(Valve):
    """A body whose trailers are shown to C{ended} before they are passed on."""

    __slots__ = ("_ended",)

    def __init__(self, body: IBody, ended: Callable[[Sequence[Field] | None], None]) -> None:
        super().__init__(body)
        self._ended = ended

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        if self._sink is not None:
            self._ended(trailers)
        super().finish(trailers)


class Plain(Filter):
    """The bytes of a body that comes as Base64.  What is none breaks it off: 400."""

    __slots__ = ("_rest",)

    def __init__(self, body: IBody) -> None:
        super().__init__(body)
        self._rest = b""

    def write(self, data: bytes) -> None:
        text = self._rest + data
        whole = len(text) & ~3
        self._rest = text[whole:]
        try:
            data = decoded(text[:whole])
        except Error:
            self._break()
            return
        if data:
            super().write(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        if self._rest:
            self._break()
        else:
            super().finish(trailers)

    def _break(self) -> None:
        detail = "the content is not Base64"
        self.cut(Abort(f"gRPC-Web: {detail}", CLIENT, 400, error="http_request_error", detail=detail))


class Framed(Filter):
    """A body of gRPC whose trailers become the last frame of its content; with C{text} all of it as Base64."""

    __slots__ = ("_busy", "_last", "_paused", "_text")

    def __init__(self, body: IBody, text: bool) -> None:
        super().__init__(body)
        self._text = text
        self._busy = self._paused = False
        self._last = False  # the last frame is written: only the end is left to be told

    def write(self, data: bytes) -> None:
        super().write(encoded(data) if self._text else data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._last = True
        if trailers:
            self._busy = True
            self.write(frame_of(trailers))
            self._busy = False
        if not self._paused:
            super().finish()

    def pauseProducing(self) -> None:
        self._paused = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if not self._last:
            super().resumeProducing()
        elif not self._busy:
            super().finish()
