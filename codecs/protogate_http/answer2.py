"""
The serving side of one request over HTTP/2: what is answered, as frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protogate.connection import specialised
from protogate.errors import Abort
from protogate.halves import OPEN, Serving
from protogate.message import Field, Headers, Response
from protogate_http.fields2 import STATUS, WEBSOCKET, compose, length_of, without_key
from protogate_http.grpc import kind_of
from protogate_http.semantics import accept, key
from protogate_http.stream2 import Stream

if TYPE_CHECKING:
    from protogate_http.link2 import Link


class Answer(Serving, Stream):
    """
    One request from a client.

    @ivar heard: when something came last, or might have come again.
    @ivar moved: when bytes of it were sent last, @ivar held: and how many the engine held then.
    @ivar got: bytes received when the clock of the least rate started.
    @ivar mark: when that was.
    """

    heard: float = 0.0
    moved: float = 0.0
    held: int = 0
    got: int = 0
    mark: float = 0.0

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.link = link

    def hears(self, now: float) -> None:
        self.heard = now

    def stands(self, held: int, now: float) -> None:
        self.held, self.moved = held, now

    def leaves(self, now: float) -> None:
        self.moved = now

    def interim(self, response: Response) -> None:
        """C{request.interim}."""
        if self.response is None and self.writing == OPEN and 101 < response.status < 200:
            self._interim(response)

    def _interim(self, response: Response) -> None:
        link = self.link
        fields: list[Any] = [STATUS[response.status]]
        compose(fields, response.headers, link.context.count)
        link.interim(self.number, fields)

    def head(self, response: Response, last: bool) -> None:
        link, status, body = self.link, response.status, response.body
        count = link.context.count
        fields: list[Any]
        if self.tunnel:
            fields = [STATUS[200 if status == 101 else status]]
            compose(fields, without_key(response.headers), count)
            mine = None if self.request is None or self.request.upgrade != WEBSOCKET else key(self.request)
            if mine is not None and status == 101:
                fields.append((b"sec-websocket-accept", accept(mine)))
            link.respond(self.number, fields, last)
            return
        if not 200 <= status < 600:
            count("invalid_status")
            response.headers, status, body = Headers(), 502, None
        method = self.method
        fields = [STATUS[status]]
        compose(fields, response.headers, count)
        length = None if body is None else body.length
        if method == b"HEAD" or status in (204, 205, 304):
            said = length_of(method, status, response.headers)
            if said is None and length is not None and method == b"HEAD" and status not in (204, 205):
                said = b"%d" % length
            if said is not None:
                fields.append((b"content-length", said))
            body = None
        elif body is None:
            if kind_of(response.headers) is None:  # where it would be metadata
                fields.append((b"content-length", b"0"))
        elif length is not None:
            fields.append((b"content-length", b"%d" % length))
        if body is None:
            link.respond(self.number, fields, True)
            if not last:
                self.without()
        else:
            self.left = length
            link.respond(self.number, fields, False)

    def write(self, data: bytes) -> None:
        self.ledger.delivered += len(data)  # type: ignore[union-attr]
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
        if self.expect and self.reading == OPEN and self.writing == OPEN and self.response is None:
            self.expect = False
            self._interim(Response(100))
        if self.paused:
            self.mark, self.got = self.link.now(), 0 if self.ledger is None else self.ledger.received
        self.resume()


specialised(Answer)
