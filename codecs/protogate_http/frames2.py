"""
What both engines leave to us: where the frames of HTTP/2 begin and end (RFC 9113, 4.1), how many of a kind came, and
frames that we write ourselves.

Rules
- Nothing is decoded here but the nine bytes of a head; what they say is for the engine to judge.
- Frames that cost the peer nothing and us something are counted against what the peer got done: L{Budget}.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from protogate_http.shape2 import FRAME

if TYPE_CHECKING:
    from protogate_http.options2 import Options

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8
PRIORITIES: Final = 32
"""A HEADERS that says what its stream depends on."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client says first (RFC 9113, 3.4)."""

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
ENHANCE_YOUR_CALM: Final = 11
CODES: Final = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)
"""Names of error codes (RFC 9113, 7)."""

LAST: Final = (1 << 31) - 1
"""The highest number of a stream."""

MINUTE: Final = 60.0
"""Seconds over which cheap frames are counted."""
_EVENTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        DATA: "empty_data_flood",  # without content, and not the end
        PRIORITY: "priority_flood",
        RST_STREAM: "reset_flood",
        SETTINGS: "settings_flood",
        PING: "ping_flood",
    }
)
"""Frames that are cheap to send, and the counter of whoever sends too many of them."""


def code_name(code: int) -> str:
    """Of an error code."""
    return CODES[code] if code < len(CODES) else hex(code)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def goaway(last: int, code: int, text: str = "") -> bytes:
    """A GOAWAY (RFC 9113, 6.8)."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text.encode("ascii", "replace")[:120])


@mypyc_attr(native_class=False)
class Flood(Exception):
    """
    The peer makes work and does none.

    @ivar event: name of the counter.
    """

    def __init__(self, event: str) -> None:
        super().__init__(event.replace("_", " "))
        self.event = event


@mypyc_attr(native_class=False)
class Wrong(Exception):
    """
    A frame that must end the connection, and that not every engine looks at.

    @ivar code: what for.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Budget:
    """
    How many frames that are cheap to send may come: so many of a kind in a minute, and one more for each piece of work
    that got done meanwhile.  Nobody saves up for a flood, and nobody who works for hours is taken for one.

    An answer that got through to its end pays for any of them; a piece of content does not pay for a reset, which may
    have come of that very piece.

    @ivar most: by kind of frame.
    """

    __slots__ = ("_answers", "_now", "_pieces", "_since", "_spent", "most")

    def __init__(self, options: Options, now: Callable[[], float]) -> None:
        """
        @param now: the time, in seconds.
        """
        controls = options.controls
        self.most = {
            DATA: options.empty_frames,
            PRIORITY: controls,
            RST_STREAM: options.resets,
            SETTINGS: controls,
            PING: controls,
        }
        self._now, self._since = now, now()
        self._spent: dict[int, int] = {}
        self._answers = self._pieces = 0

    def spend(self, kind: int) -> None:
        """
        One more of the cheap ones.

        @raise Flood: that was too many.
        """
        now = self._now()
        if now - self._since >= MINUTE:
            self._since, self._answers, self._pieces = now, 0, 0
            self._spent.clear()
        spent = self._spent[kind] = self._spent.get(kind, 0) + 1
        if spent > self.most[kind] + self._answers + (0 if kind == RST_STREAM else self._pieces):
            raise Flood(_EVENTS[kind])

    def earn(self) -> None:
        """A request was answered, to its end; or asked, where it is ours to ask."""
        self._answers += 1

    def moved(self) -> None:
        """A piece of content came, or left."""
        self._pieces += 1


class Walker:
    """
    Follows the frames of one direction.

    @ivar budget: what it counts cheap frames against.
    @ivar block: a HEADERS came whose CONTINUATION is due.
    @ivar left: bytes of the frame under way that are still to come.
    @ivar partial: its stream, if it is a DATA frame, or 0.
    @ivar goes: a GOAWAY came.
    """

    __slots__ = ("_continuations", "_head", "_most", "_preface", "block", "budget", "goes", "left", "partial")

    def __init__(self, budget: Budget, continuations: int, preface: bool) -> None:
        """
        @param continuations: CONTINUATION frames that a message may have.
        """
        self.budget = budget
        self.block = self.goes = False
        self.partial = 0
        self._most = continuations
        self._continuations = 0  # of the message under way
        self.left = 0
        self._head = b""  # part of a head
        self._preface = len(PREFACE) if preface else 0

    @property
    def within(self) -> bool:
        """Whether a frame, or the fields of a message, is incomplete."""
        return bool(self.left or self._head or self.block)

    def feed(self, data: bytes) -> None:
        """
        Some bytes.

        @raise Flood: there were too many of a kind.
        @raise Wrong: one may not be there at all.
        """
        at, size = self._preface, len(data)
        if at:
            self._preface = max(at - size, 0)
            if at >= size:
                return
        elif self.left > size:
            self.left -= size
            return
        else:
            at = self.left
        self.left = self.partial = 0
        last = data  # what the last head stands in
        begins = 0
        if self._head:
            missing = 9 - len(self._head)
            head = self._head + data[at : at + missing]
            at += missing
            if len(head) < 9:
                self._head = head
                return
            self._head = b""
            last = head
            at += self._frame(head, 0)
        while at + 9 <= size:
            last, begins = data, at
            at += 9 + self._frame(data, at)
        if at > size:
            self.left = at - size
            if last[begins + 3] == DATA:
                self.partial = int.from_bytes(last[begins + 5 : begins + 9], "big") & LAST
        else:
            self._head = data[at:]

    def _frame(self, data: bytes, at: int) -> int:
        """The head of a frame; its length."""
        length, kind, flags = data[at] << 16 | data[at + 1] << 8 | data[at + 2], data[at + 3], data[at + 4]
        if kind == HEADERS:
            self.block = not flags & END_HEADERS
            self._continuations = 0
        elif kind == CONTINUATION:
            self.block = not flags & END_HEADERS
            self._continuations += 1
            if self._continuations > self._most:
                raise Flood("continuation_flood")
            if length > FRAME:
                raise Wrong(FRAME_SIZE_ERROR, "a frame is too long")  # RFC 9113, 4.2
        elif kind != DATA:  # whose content the engine must look for: padding hides that there is none
            if kind == PRIORITY and not (data[at + 5] & 0x7F or any(data[at + 6 : at + 9])):
                raise Wrong(PROTOCOL_ERROR, "PRIORITY on stream 0")  # RFC 9113, 6.3
            if kind == GOAWAY:
                self.goes = True
            if kind in _EVENTS and not (flags & ACK and kind in (SETTINGS, PING)):
                self.budget.spend(kind)
        return length
