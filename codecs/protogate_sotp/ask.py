"""
The asking side of one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protogate.connection import specialised
from protogate.errors import Abort
from protogate.halves import Calling
from protogate.message import Field, Request
from protogate_sotp.frames import END, REQUEST, frame
from protogate_sotp.streams import HEAD, Stream

if TYPE_CHECKING:
    from protogate_sotp.link import Link


class Ask(Calling, Stream):
    """
    One request to an upstream.

    @ivar heard: when something came last, or might have come again.
    @ivar moved: when bytes of it were sent last.
    @ivar head: the payload of its REQUEST, until that was written.
    @ivar upgrade: C{request.upgrade}.
    @ivar interims: interim responses so far.
    @ivar late: when the deadline of the request is over, 0.0 = it has none.
    """

    heard: float = 0.0
    moved: float = 0.0
    upgrade: bytes | None = None
    interims: int = 0
    late: float = 0.0

    def __init__(self, link: Link, number: int, head: bytes, request: Request) -> None:
        super().__init__(link)
        self.link = link
        self.number, self.state, self.head = number, HEAD, head
        self.method, self.upgrade = request.method, request.upgrade
        self.room, self.credit = link.hello.window, link.peer_hello.window
        self.heard = self.moved = link.now()

    def hears(self, now: float) -> None:
        self.heard = now

    def moves(self, now: float) -> None:
        self.moved = now

    def ask(self, request: Request, last: bool) -> None:
        self.link.put(frame(REQUEST, END if last else 0, self.number, self.head))
        self.head = b""
        body = request.body
        if last:
            self.sent()
        elif body is not None and request.upgrade is None:
            self.left = body.length

    def waits(self) -> bool:
        return self.expect

    def sent(self) -> None:
        self.moved = self.link.now()
        if self.ledger is not None:
            self.ledger.sent = self.moved

    def write(self, data: bytes) -> None:
        self.send(data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.close(trailers)

    def reset(self, reason: Abort) -> None:
        self.break_off(reason)

    def over(self) -> None:
        self.done()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.resume()


specialised(Ask)
