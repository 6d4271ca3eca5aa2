"""
What clients and upstreams of SOTP say in L{inside}'s ways through the code, on the terms of L{inside2}: frames that
were made before, which differ in the number of their stream alone.
"""

from __future__ import annotations

from typing import Final

from candidates import SMALL
from inside2 import AGENT, MOST, ORIGIN, Streams
from protogate.body import Whole
from protogate.message import Request, Response
from protogate_sotp.frames import CREDIT, DATA, END, REQUEST, RESPONSE, Hello, Reader, credited, frame
from protogate_sotp.heads import write_request, write_response

HELLO: Final = Hello(heartbeat=0, window=MOST, total=MOST, data=1 << 20, heads=1 << 16)


def packed(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Text as bytes."""
    return [(name.encode(), value.encode()) for name, value in fields]


def uncounted(event: str) -> None:
    """Nothing goes wrong here."""
    raise SystemExit(f"a head of SOTP cannot be written: {event}")


class Message:
    """What is said on each stream of a connection: a head, and content."""

    def __init__(self, kind: int, head: bytes, content: bytes) -> None:
        self._kind, self._head, self._content = kind, head, content

    def on(self, number: int) -> bytes:
        """The frames of it."""
        head = frame(self._kind, 0 if self._content else END, number, self._head)
        return head + frame(DATA, END, number, self._content) if self._content else head


class Links(Streams):
    """Clients of SOTP, in the form of HTTP."""

    opening = answering = HELLO.pack()

    def asking(self) -> Message:
        """See L{Streams}."""
        request = Request(b"GET", SMALL.encode(), packed(AGENT), None, b"shop.example:8080")
        return Message(REQUEST, write_request(request, 0, uncounted), b"")

    def telling(self) -> Message:
        """See L{Streams}."""
        fields = packed([*ORIGIN, ("content-type", "application/json")])
        response = Response(200, fields, Whole(self._content), "SOTP/1")
        return Message(RESPONSE, write_response(response, len(self._content), 0, uncounted), self._content)

    def credit(self, size: int) -> bytes:
        """See L{Streams}."""
        return credited(0, size)

    def ended(self, data: bytes) -> list[int]:
        """See L{Streams}."""
        return [number for kind, flags, number, _ in Reader(HELLO.sizes).feed(data) if flags & END and kind != CREDIT]

    def content(self, data: bytes) -> bytes:
        """See L{Streams}."""
        return b"".join([payload for kind, _, _, payload in Reader(HELLO.sizes).feed(data) if kind == DATA])
