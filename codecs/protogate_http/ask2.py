"""
The asking side of one request over HTTP/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protogate.connection import specialised
from protogate.errors import Abort
from protogate.halves import Calling
from protogate.message import Field, Request
from protogate_http.stream2 import Stream

if TYPE_CHECKING:
    from protogate_http.client2 import Client


class Ask(Calling, Stream):
    """
    One request to an upstream.

    @ivar heard: when something came last, or might have come again.
    @ivar moved: when bytes of it were sent last, @ivar held: and how many the engine held then.
    @ivar fields: its head, until that was written.
    @ivar upgrade: C{request.upgrade}.
    @ivar interims: interim responses so far.
    @ivar flushed: when its last byte was flushed, or 0.0.
    """

    heard: float = 0.0
    moved: float = 0.0
    held: int = 0
    upgrade: bytes | None = None
    interims: int = 0
    flushed: float = 0.0

    def __init__(self, client: Client, fields: list[Any]) -> None:
        super().__init__(client)
        self.link = self._client = client
        self.fields = fields

    def hears(self, now: float) -> None:
        self.heard = now

    def stands(self, held: int, now: float) -> None:
        self.held, self.moved = held, now

    def leaves(self, now: float) -> None:
        self.moved = now

    def ask(self, request: Request, last: bool) -> None:
        self.open(last)
        if last:
            self.sent()
        elif request.upgrade is None and request.body is not None:
            self.left = request.body.length

    def open(self, last: bool) -> None:
        """HEADERS."""
        fields, self.fields = self.fields, []
        self._client.request(self, fields, last)

    def waits(self) -> bool:
        return self.expect

    def sent(self) -> None:
        self.moved = self.link.now()
        if not self.tunnel:
            self.link.leaving.append(self)

    def whole(self, now: float) -> None:
        """The last byte was flushed."""
        self.flushed = now
        if self.ledger is not None:
            self.ledger.sent = now

    def write(self, data: bytes) -> None:
        self.send(data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.last(trailers)

    def reset(self, reason: Abort) -> None:
        self.break_off(reason)

    def over(self) -> None:
        self.done()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.resume()


specialised(Ask)
