"""
What clients and upstreams of HTTP/2 say in L{inside}'s ways through the code: frames that were made before.

Rules
- Fields are those that a peer sends again and again: after the first request each of them is one byte.
- Windows are as large as can be, and given back for large answers: nothing waits for them.
- A turn ends as it does on C{protogate-uv}: what was to be done then is done, and each transport tells that it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from hpack import Encoder

from candidates import GRPC, GRPC_FIELDS, MESSAGE, SMALL
from inside import SMALL as LEAST
from inside import Quick, Row
from protogate_http.frames2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from protogate_http.shape2 import FRAME, INITIAL_WINDOW_SIZE

STREAMS: Final = 8
"""Requests at once on a connection."""
MOST: Final = (1 << 31) - 1
OPENING: Final = frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2, "big") + MOST.to_bytes(4, "big")) + frame(
    WINDOW_UPDATE, 0, 0, (MOST - 65535).to_bytes(4, "big")
)
AGENT: Final = [("user-agent", "inproc/1.0"), ("accept", "*/*")]
ORIGIN: Final = [("server", "nginx/1.22.1"), ("date", "Mon, 30 Nov 2026 01:00:00 GMT")]


class Sending(Quick):
    """Tells that it sent what was written, as transports of protogate's own reactor do at the end of a turn."""

    flushed: Callable[[bool], object] | None = None

    def over(self) -> None:
        """The turn is over."""
        if self.sent and self.flushed is not None:
            self.flushed(True)


class Message:
    """
    What is said on each stream of a connection.

    @param content: of one frame of DATA each; the last ends the stream, unless there are trailers.
    """

    def __init__(
        self, fields: list[tuple[str, str]], content: Sequence[bytes], trailers: list[tuple[str, str]]
    ) -> None:
        encoder = Encoder()
        made = [[encoder.encode(block) for block in (fields, trailers) if block] for _ in range(2)]
        self._blocks = made[0]  # of the first stream; those that follow have it in the table
        self._later = made[1]
        self._content = content

    def on(self, number: int) -> bytes:
        """The frames of it."""
        head, *tail = self._blocks
        self._blocks = self._later
        frames = [(HEADERS, END_HEADERS, head)]
        frames += [(DATA, 0, piece) for piece in self._content]
        frames += [(HEADERS, END_HEADERS, block) for block in tail]
        kind, flags, payload = frames[-1]
        frames[-1] = (kind, flags | END_STREAM, payload)
        return b"".join([frame(kind, flags, number, payload) for kind, flags, payload in frames])


def ended(data: bytes) -> list[int]:
    """The streams that end in whole frames."""
    at, size, found = 0, len(data), []
    while at < size:
        if data[at + 4] & END_STREAM and data[at + 3] in (DATA, HEADERS):
            found.append(int.from_bytes(data[at + 5 : at + 9], "big"))
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return found


def content(data: bytes) -> bytes:
    """What whole frames have of it."""
    at, size, found = 0, len(data), []
    while at < size:
        length = int.from_bytes(data[at : at + 3], "big")
        if data[at + 3] == DATA:
            found.append(data[at + 9 : at + 9 + length])
        at += 9 + length
    return b"".join(found)


class Streams(Row):
    """
    Clients of HTTP/2; or of another protocol with streams, by what a subclass makes of the methods below.

    @param together: requests at once; C{connections} is on how many.
    @param back: what upstreams speak.
    @param grpc: each request is a call.
    """

    wire = Sending

    def __init__(self, name: str, together: int, back: str, grpc: bool = False, answer: int = LEAST) -> None:
        super().__init__(name, answer=answer)
        self._each = min(together, STREAMS)
        self.connections = together // self._each
        self._back, self._grpc = back, grpc
        self._content = MESSAGE if grpc else b"d" * answer
        self._next = 1
        self._askers: list[Any] = []  # with what L{Message} has
        self._answerers: list[Any] = []
        self._ends: list[Callable[[], object]] = []

    @property
    def together(self) -> int:
        """Requests in each turn."""
        return self.connections * self._each

    # -- what is said

    opening, answering = PREFACE + OPENING, OPENING
    """What a client says first, and what an upstream does."""

    def asking(self) -> Any:
        """Requests of one connection."""
        path, method, more = SMALL, "GET", AGENT
        if self._grpc:
            path, method, more = GRPC, "POST", [*AGENT[:1], *GRPC_FIELDS.items()]
        start = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "shop.example:8080")]
        return Message(start + more, [MESSAGE] if self._grpc else (), [])

    def telling(self) -> Any:
        """Answers of one connection."""
        kind = GRPC_FIELDS["content-type"] if self._grpc else "application/json"
        fields = [(":status", "200"), *ORIGIN, ("content-type", kind)]
        if not self._grpc:
            fields.append(("content-length", str(len(self._content))))
        pieces = [self._content[at : at + FRAME] for at in range(0, len(self._content), FRAME)]
        return Message(fields, pieces, [("grpc-status", "0")] if self._grpc else [])

    def credit(self, size: int) -> bytes:
        """For so many bytes of answers, if they need any."""
        return frame(WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big")) if size > FRAME else b""

    def ended(self, data: bytes) -> list[int]:
        """The streams that end in whole frames."""
        return ended(data.removeprefix(PREFACE))

    def content(self, data: bytes) -> bytes:
        """What whole frames have of it."""
        return content(data)

    # -- the row

    def client(self, protocol: Any) -> None:
        """See L{Row}."""
        super().client(protocol)
        self._ends.append(protocol.transport.over)
        self._askers.append(self.asking())
        protocol.dataReceived(self.opening)

    def origin(self, protocol: Any) -> None:
        """See L{Row}."""
        super().origin(protocol)
        self._ends.append(protocol.transport.over)
        if self._back != "http1":
            self._answerers.append(self.telling())
            protocol.dataReceived(self.answering)

    def begin(self, dial: Callable[[], object]) -> None:
        """See L{Row}."""
        self._dial = dial
        self._ask()
        dial()

    def began(self) -> None:
        """The connections to upstreams are there."""
        self._over()
        self._answer()
        for _, sent in self._clients:
            sent.clear()

    def _ask(self) -> None:
        first = self._next
        self._next += 2 * self._each
        credit = self.credit(len(self._content) * self._each) if first > 1 else b""
        for (ask, _), message in zip(self._clients, self._askers, strict=True):
            ask(credit + b"".join([message.on(first + 2 * at) for at in range(self._each)]))

    def _answer(self) -> list[bytes]:
        """Answer what upstreams were asked; what that was."""
        asked = []
        if self._back == "http1":
            for answer, sent in self._origins:
                if sent:
                    asked.append(b"".join(sent))
                    sent.clear()
                    for piece in self._pieces:
                        answer(piece)
        else:
            for (answer, sent), message in zip(self._origins, self._answerers, strict=False):
                if sent:
                    told = b"".join(sent)
                    sent.clear()
                    numbers = self.ended(told)
                    asked += [told] * len(numbers)
                    answer(b"".join([message.on(number) for number in numbers]))
        self._over()
        return asked

    def _over(self) -> None:
        self._dial()
        for end in self._ends:
            end()

    def turns(self, count: int) -> None:
        """See L{Row}."""
        for _ in range(count):
            self._ask()
            self._over()
            self._answer()
            for _, sent in self._clients:
                if not sent:
                    raise SystemExit(f"{self.name}: a request was not answered")
                sent.clear()

    def check(self) -> None:
        """See L{Row}."""
        self._ask()
        self._over()
        asked = len(self._answer())
        if asked != self.together:
            raise SystemExit(f"{self.name}: {asked} of {self.together} requests reached the upstream")
        for _, sent in self._clients:
            told, sent[:] = b"".join(sent), []
            if len(self.ended(told)) != self._each or self.content(told) != self._content * self._each:
                raise SystemExit(f"{self.name}: the client was answered {told[:200]!r}")
