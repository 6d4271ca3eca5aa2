"""
The two ends of C{streams.py}: a client and an upstream that speak frames of HTTP/2, in one event loop of asyncio.

Rules
- Neither end sends more than it has windows for; each gives back at once what the connection's window was used for, and
  what a stream's was, unless the kind wants it closed.  So its view of the windows is exact at every moment.
- An answer that breaks off must not look whole; one that broke off before the gateway passed on its head is a 502.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from hpack import Decoder, Encoder

from kinds import KINDS
from protogate_http.frames2 import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    code_name,
    frame,
)

FIRST: Final = 65535
"""Every window when it begins, unless SETTINGS say otherwise."""
PIECE: Final = 8192
TORN: Final = 0.1
"""How often what is sent ends within a frame, whose rest comes later: streams are reset in the middle of one, too."""
LATE: Final = 0.01
"""Seconds until it does."""
DELAY: Final = 0.02
"""Seconds that a client waits at most before it gives up a stream that nobody answers."""
STREAMS, WINDOW = 3, 4


class End(asyncio.Protocol):
    """
    What both have in common.

    @ivar settings: what the gateway said.
    @ivar spent: bytes of the connection's window that were used, @ivar given: and those that came by WINDOW_UPDATE.
    @ivar resets: RST_STREAM that came, by code.
    @ivar fault: why it can be used no more, or empty.
    """

    transport: Any

    def __init__(self, first: bytes) -> None:
        self._first = first
        self.settings: dict[int, int] = {}
        self.spent = self.given = 0
        self.resets: Counter[str] = Counter()
        self.fault = ""
        self._buffer = b""
        self._rooms: dict[int, int] = {}  # windows of streams
        self._queue: dict[int, list[Any]] = {}  # of streams: bytes to go, and whether that ends them
        self._out: list[bytes] = []
        self._torn = False  # what was written ends within a frame

    @property
    def room(self) -> int:
        """Bytes that the gateway would take on this connection."""
        return FIRST + self.given - self.spent

    # -- asyncio

    def connection_made(self, transport: Any) -> None:
        """asyncio."""
        self.transport = transport
        transport.write(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio."""
        self.fault = self.fault or "the gateway closed the connection"

    def data_received(self, data: bytes) -> None:
        """asyncio."""
        data, at = self._buffer + data, 0
        while at + 9 <= len(data):
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            self._frame(data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big"), data[at + 9 : end])
            at = end
        self._buffer = data[at:]
        self.pump()

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            if payload:
                self.put(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            self.got(number, len(payload), bool(flags & END_STREAM))
        elif kind == HEADERS:
            self.head(number, payload, bool(flags & END_STREAM))
        elif kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if number:
                if number in self._rooms:
                    self._rooms[number] += more
            else:
                self.given += more
        elif kind == RST_STREAM:
            (code,) = struct.unpack(">I", payload)
            self.resets[code_name(code)] += 1
            self.over(number)
            self.reset(number, code)
        elif kind == SETTINGS and not flags & ACK:
            self.settings |= dict(struct.iter_unpack(">HI", payload))
            self.put(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.put(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.fault = f"GOAWAY: {code_name(int.from_bytes(payload[4:8], 'big'))} {payload[8:].decode()}"

    # -- for the sides to fill in

    def head(self, number: int, block: bytes, ends: bool) -> None:
        """HEADERS."""
        raise NotImplementedError

    def got(self, number: int, size: int, ends: bool) -> None:
        """DATA."""
        raise NotImplementedError

    def reset(self, number: int, code: int) -> None:
        """RST_STREAM."""
        raise NotImplementedError

    # -- sending

    def put(self, data: bytes) -> None:
        """With the next C{pump()}."""
        self._out.append(data)

    def give(self, number: int, size: int) -> None:
        """The stream's window is given back."""
        self.put(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", size)))

    def begin(self, number: int) -> None:
        """A stream that content is sent on."""
        self._rooms[number] = self.settings.get(WINDOW, FIRST)

    def content(self, number: int, size: int, ends: bool, padded: bool) -> None:
        """That much is to be sent, as the windows allow; perhaps with padding."""
        self._queue[number] = [size, ends, padded]

    def over(self, number: int) -> None:
        """Nothing more is sent on it."""
        self._rooms.pop(number, None)
        self._queue.pop(number, None)

    def drop(self, number: int, code: int) -> None:
        """RST_STREAM."""
        self.over(number)
        self.put(frame(RST_STREAM, 0, number, struct.pack(">I", code)))

    def pump(self) -> None:
        """Send what may be sent."""
        for number, waits in list(self._queue.items()):
            left, ends, padded = waits
            while True:
                size = min(left, PIECE, self.room, self._rooms[number])
                if size <= 0 and left:
                    break
                left -= size
                roomy = padded and size + 51 <= min(self.room, self._rooms[number])
                pad = random.choice((None, None, 0, 50)) if roomy else None
                payload = bytes(size) if pad is None else bytes((pad,)) + bytes(size + pad)
                flags = (END_STREAM if ends and not left else 0) | (0 if pad is None else PADDED)
                self.put(frame(DATA, flags, number, payload))
                self.spent += len(payload)
                self._rooms[number] -= len(payload)
                if not left:
                    del self._queue[number]
                    if ends:
                        self.over(number)
                    self.sent(number)
                    break
            waits[0] = left
        if self._out and not self._torn and not self.transport.is_closing():
            out, self._out = b"".join(self._out), []
            if len(out) > PIECE and random.random() < TORN:
                at = len(out) - random.randrange(PIECE)
                out, self._out = out[:at], [out[at:]]
                self._torn = True
                asyncio.get_running_loop().call_later(LATE, self._mend)
            self.transport.write(out)

    def _mend(self) -> None:
        self._torn = False
        self.pump()

    def sent(self, number: int) -> None:
        """All of the content was."""


class Client(End):
    """
    @ivar done: streams that are over, by kind.
    @ivar unexpected: how streams ended that should have ended otherwise.
    """

    def __init__(self, most: int) -> None:
        super().__init__(PREFACE + frame(SETTINGS, 0, 0))
        self._most = most
        self._encoder, self._decoder = Encoder(), Decoder()
        self._next = 1
        self._open: dict[int, tuple[str, int]] = {}  # kind, bytes that came
        self._bad: set[int] = set()  # whose status is not 200
        self._plan: deque[str] = deque()
        self._idle: asyncio.Future[None] | None = None
        self.done: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()

    async def play(self, plan: Sequence[str]) -> None:
        """One stream after the other, so many at once."""
        self._plan.extend(plan)
        self._idle = asyncio.get_running_loop().create_future()
        self._more()
        await self._idle

    def _more(self) -> None:
        while self._plan and len(self._open) < self._most and not self.fault:
            self._ask(self._plan.popleft())
        self.pump()
        if (self.fault or not (self._plan or self._open)) and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._more()

    def _ask(self, name: str) -> None:
        kind, number = KINDS[name], self._next
        self._next += 2
        self._open[number] = (name, 0)
        bare = not kind.upload and kind.ends
        pairs = [
            (":method", "GET" if bare else "POST"),
            (":scheme", "http"),
            (":path", f"/{name}"),
            (":authority", "a"),
        ]
        if kind.upload < 0:
            pairs.append(("content-length", "5"))
        block = self._encoder.encode([*pairs, ("x-number", str(number))])
        self.put(frame(HEADERS, END_HEADERS | (END_STREAM if bare else 0), number, block))
        if not bare:
            self.begin(number)
            self.content(number, kind.upload if kind.upload > 0 else 50, kind.ends, kind.padded)
        if kind.reset == "at once":
            self._drop(number)
        elif kind.reset == "later":
            asyncio.get_running_loop().call_later(random.random() * DELAY, self._later, number)

    def _later(self, number: int) -> None:
        if number in self._open:
            self._drop(number)
            self._more()

    def release(self) -> None:
        """Give up all that is under way."""
        for number in list(self._open):
            self._drop(number)
        self._more()

    @property
    def came(self) -> int:
        """Bytes of content that came on the streams that are open."""
        return sum(size for _, size in self._open.values())

    def _drop(self, number: int) -> None:
        self.drop(number, CANCEL)
        self._close(number)

    def _close(self, number: int, otherwise: str = "") -> None:
        name, _ = self._open.pop(number)
        self._bad.discard(number)
        self.done[name] += 1
        if otherwise:
            self.unexpected[f"{name}: {otherwise}"] += 1

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._more()

    def head(self, number: int, block: bytes, ends: bool) -> None:
        status = dict(self._decoder.decode(block)).get(":status", "200")
        if number in self._open and status != "200":
            self._bad.add(number)
        if ends:
            self._ended(number)

    def got(self, number: int, size: int, ends: bool) -> None:
        if number not in self._open:
            return  # it was on its way
        name, came = self._open[number]
        kind, came = KINDS[name], came + size
        self._open[number] = (name, came)
        if kind.reset == "data":
            self._drop(number)
        elif kind.reset in ("closed", "held"):
            if kind.reset == "closed" and came == FIRST:
                self._drop(number)
        elif ends:
            self._ended(number)
        elif size:
            self.give(number, size)

    def _ended(self, number: int) -> None:
        if number not in self._open:
            return
        kind = KINDS[self._open[number][0]]
        if not kind.ends:
            return  # RST_STREAM follows
        self.over(number)
        if kind.reset == "end":
            self.drop(number, CANCEL)
        self._close(number, "" if kind.whole is not (number in self._bad) else "its end, or its status")

    def reset(self, number: int, code: int) -> None:
        if number in self._open:
            kind = KINDS[self._open[number][0]]
            fine = kind.upload < 0 or not kind.whole or (not kind.ends and code == NO_ERROR)
            self._close(number, "" if fine else code_name(code))


class Upstream(End):
    """@ivar asked: requests by kind."""

    def __init__(self, asked: Counter[str]) -> None:
        super().__init__(frame(SETTINGS, 0, 0, struct.pack(">HI", STREAMS, 1000)))
        self._decoder = Decoder()
        self._preface = len(PREFACE)
        self.asked = asked
        self._kinds: dict[int, str] = {}

    def data_received(self, data: bytes) -> None:
        if self._preface:
            skipped = min(self._preface, len(data))
            self._preface -= skipped
            data = data[skipped:]
        super().data_received(data)

    def head(self, number: int, block: bytes, ends: bool) -> None:
        name = dict(self._decoder.decode(block))[":path"][1:]
        self.asked[name] += 1
        self._kinds[number] = name
        self.begin(number)
        if ends or not KINDS[name].ends:
            self._answer(number)

    def got(self, number: int, size: int, ends: bool) -> None:
        if number not in self._kinds:
            return
        if ends:
            self._answer(number)
        elif size and KINDS[self._kinds[number]].reset != "held":
            self.give(number, size)

    def _answer(self, number: int) -> None:
        kind = KINDS[self._kinds[number]]
        if kind.answer < 0:
            return
        self.put(frame(HEADERS, END_HEADERS, number, b"\x88"))
        self.content(number, kind.answer, kind.whole, kind.padded)

    def sent(self, number: int) -> None:
        kind = KINDS[self._kinds[number]]
        if kind.code is not None:
            self.drop(number, kind.code)
        if kind.whole:
            self._kinds.pop(number, None)

    def reset(self, number: int, code: int) -> None:
        self._kinds.pop(number, None)
