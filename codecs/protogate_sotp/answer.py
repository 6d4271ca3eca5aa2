"""
The serving side of one request: what is answered, as frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protogate.connection import specialised
from protogate.errors import UPSTREAM, Abort
from protogate.halves import OPEN, Serving
from protogate.message import Field, Response
from protogate_sotp.codings import CAPABILITIES, IDS, unpacking
from protogate_sotp.fields import Bad
from protogate_sotp.frames import END, INTERIM, RESPONSE, frame
from protogate_sotp.heads import write_response
from protogate_sotp.streams import Stream

if TYPE_CHECKING:
    from protogate_sotp.link import Link


class Answer(Serving, Stream):
    """
    One request from a client.

    @ivar heard: when something came last, or might have come again.
    @ivar moved: when bytes of it were sent last.
    @ivar got: bytes received when the clock of the least rate started.
    @ivar mark: when that was.
    """

    heard: float = 0.0
    moved: float = 0.0
    got: int = 0
    mark: float = 0.0

    def __init__(self, link: Link, number: int, state: int) -> None:
        super().__init__(link)
        self.link = link
        self.number, self.state = number, state
        self.room, self.credit = link.hello.window, link.peer_hello.window
        self.heard = self.moved = self.mark = link.heard

    def hears(self, now: float) -> None:
        self.heard = now

    def moves(self, now: float) -> None:
        self.moved = now

    def interim(self, response: Response) -> None:
        """C{request.interim}."""
        if self.response is None and self.writing == OPEN and 101 < response.status < 200:
            self._interim(response)

    def _interim(self, response: Response) -> None:
        link = self.link
        try:
            head = write_response(response, None, 0, link.context.count)
        except Bad as bad:
            link.context.count(bad.event)
        else:
            link.put(frame(RESPONSE, INTERIM, self.number, head))

    def respond(self, response: object) -> None:
        known = self.link.peer_hello.capabilities
        if ~known & CAPABILITIES and isinstance(response, Response) and response.body is not None:
            coding = response.headers.get(b"content-encoding")
            if coding is not None and IDS.get(coding, 0) & ~known:
                broken = Abort("the compression of the response is broken", UPSTREAM, 502, error="http_protocol_error")
                response.body = unpacking(response.body, coding, broken)
                response.headers.remove(b"content-encoding")
        super().respond(response)

    def head(self, response: Response, last: bool) -> None:
        link, status, body = self.link, response.status, response.body
        length = None if body is None else body.length
        if self.tunnel:
            length = None
        elif not 200 <= status < 600:
            link.context.count("invalid_status")
            response, body, length = Response(502), None, None
        elif self.method == b"HEAD" or status in (204, 205, 304):
            if status in (204, 205):
                length = None
            elif length is None:
                length = described(response)
            body = None
        try:
            head = write_response(response, length, link.peer_hello.capabilities, link.context.count)
            if len(head) > link.peer_hello.heads:
                raise Bad("the head of a response is too large", "response_headers_too_large", 502)
        except Bad as bad:
            link.context.count(bad.event)
            head, body = write_response(Response(502), None, 0, link.context.count), None
        if body is None:
            link.put(frame(RESPONSE, END, self.number, head))
            if not last:
                self.without()
        else:
            self.left = length
            link.put(frame(RESPONSE, 0, self.number, head))

    def write(self, data: bytes) -> None:
        self.ledger.delivered += len(data)  # type: ignore[union-attr]
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
        if self.expect and self.reading == OPEN and self.writing == OPEN and self.response is None:
            self.expect = False
            self._interim(Response(100))
        if self.paused:
            self.mark, self.got = self.link.now(), 0 if self.ledger is None else self.ledger.received
        self.resume()


specialised(Answer)


def described(response: Response) -> int | None:
    """The length that a HEAD or 304 response describes its content with."""
    value = response.headers.get(b"content-length")
    return int(value) if value is not None and value.isdigit() and len(value) < 18 else None
