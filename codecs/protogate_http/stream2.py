"""
One request on a connection of HTTP/2, from either side.

Rules
- Writing goes through the engine, which holds back what the peer's windows do not allow: above L{HIGH} bytes of it the
  body is paused.
- Credit follows consumption: bytes are paid back when they were passed on, and at once when nobody wants them.
- The peer sees the truncation: what is not complete ends with RST_STREAM, and never with NO_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from protogate.connection import specialised
from protogate.errors import ALWAYS, CLIENT, GATEWAY, Abort
from protogate.halves import CUT, ENDED, OPEN, Calling, Half, Serving
from protogate.message import Field, Headers, Request, Response
from protogate_http.engine2 import ERRORS
from protogate_http.fields2 import (
    STATUS,
    compose,
    length_of,
    trailed,
    trailing,
    without_key,
)
from protogate_http.frames2 import CANCEL, INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM
from protogate_http.grpc import kind_of
from protogate_http.wire1 import Bad

if TYPE_CHECKING:
    pass

HIGH: Final = 32768
"""Bytes of a stream that the engine may hold: the body is paused above …"""
LOW: Final = 16384
"""… and goes on below."""


class Broken(Exception):
    """
    What came on a stream makes no sense.

    @ivar text: what is wrong.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Stream(Half):
    """
    What both sides of a request have in common.

    @ivar number: of the stream.
    @ivar owed: bytes passed on whose credit was not given back.
    @ivar paused: nobody takes what comes for now.
    @ivar due: bytes of the incoming content that are still to come, or None when nobody said.
    @ivar left: bytes of the outgoing content that are still due, or None when nobody said.
    @ivar came: the last frame of what comes was read.
    @ivar heard: when something came last, or might have come again.
    @ivar moved: when bytes of it were sent last, @ivar held: and how many the engine held then.
    @ivar expect: the interim response 100 is awaited.
    @ivar method: of the request.
    @ivar worth: an answer to it is work that got done.
    """

    number: Any = 0
    owed = 0
    paused = False
    due: int | None = None
    left: int | None = None
    came = False
    heard = 0.0
    moved = 0.0
    held = 0
    expect = False
    method = b""
    worth = True
    connection: Any

    # -- what comes

    def arrived(self, data: bytes) -> None:
        """Content."""
        size, connection = len(data), self.connection
        self.heard = connection.heard
        due = self.due
        if due is not None:
            due = self.due = due - size
            if due < 0:
                connection.credit(self.number, size)
                raise Broken("more content than content-length says")
        if self.reading != OPEN:
            connection.credit(self.number, size)
            return
        self.owed += size
        self.received(data)
        if not self.paused and self.owed >= connection.half:
            self.repay()

    def complete(self, trailers: list[Field] | None) -> None:
        """END_STREAM came."""
        self.came = True
        if self.due:
            raise Broken("less content than content-length says")
        self.ended(trailers)

    def trailers(self, fields: Sequence[Field]) -> None:
        """Trailers came."""
        if self.tunnel:
            raise Broken("fields within a tunnel")  # RFC 9113, 8.5
        try:
            found = trailed(fields, self.connection.most_trailers())
        except Bad as bad:
            self.connection.context.count(bad.event)
            raise Broken(bad.text) from None
        self.complete(found)

    def repay(self) -> None:
        """Give back what is owed."""
        owed, self.owed = self.owed, 0
        self.connection.credit(self.number, owed)

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        if self.paused:
            self.paused = False
            self.heard = self.connection.now()
        if self.owed >= self.connection.half:
            self.repay()

    # -- what leaves

    def tell(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
        """Whether the engine took it.  Of a stream that is over it tells with its next events."""
        try:
            call(self.number, *arguments, **named)
        except ERRORS:
            return False
        self.connection.due()
        return True

    def write(self, data: bytes) -> None:
        connection, left = self.connection, self.left
        if left is not None:
            left = self.left = left - len(data)
            if left < 0:
                self.mismatch()
                return
        connection.budget.moved()
        if not self.tell(connection.engine.send_data, data):
            if self.outgoing is not None:
                self.outgoing.pauseProducing()  # it is over, as will be told
        elif connection.full or connection.queued(self) > HIGH:
            connection.block(self)

    def end(self, trailers: Sequence[Field] | None) -> None:
        if self.left:
            self.mismatch()
            return
        connection = self.connection
        fields = trailing(trailers, connection.context.count) if trailers else None
        if fields:
            self.tell(connection.engine.send_trailers, fields)
        else:
            self.tell(connection.engine.end_stream)
        self.sent()

    def mismatch(self) -> None:
        """A body that is not as long as it said (a faulty module): the peer must not take it for complete."""
        self.connection.context.count("body_length_mismatch")
        outgoing, self.outgoing = self.outgoing, None
        self.writing = OPEN
        if outgoing is not None:
            outgoing.stopProducing()
        self.abort(Abort("a body was not as long as it said", GATEWAY, 500))

    def sent(self) -> None:
        """The last byte of the message is with the engine."""

    # -- ends

    def reset(self, reason: Abort) -> None:
        """Break off."""
        code = CANCEL if reason.who == CLIENT else INTERNAL_ERROR
        self.cancel(REFUSED_STREAM if reason.retry == ALWAYS else code)

    def cancel(self, code: int) -> None:
        """RST_STREAM."""
        connection = self.connection
        if connection.streams.get(self.number) is self:
            connection.forget(self)
            connection.reset(self.number, code)

    def over(self) -> None:
        connection = self.connection
        if self.came and self.writing == ENDED:
            return  # when its last byte has left, the engine will tell
        if self.writing == CUT:  # the peer answered without waiting for the rest
            self.cancel(CANCEL)
        else:  # so did we: RST_STREAM once END_STREAM has left, not instead of it (RFC 9113, 8.1)
            connection.late_ones.append(self)
            connection.due()

    def given_up(self) -> None:
        """END_STREAM has left, and the rest of what comes is of no use."""
        self.cancel(NO_ERROR)


@specialised
class Answer(Stream, Serving):
    """
    One request from a client.

    @ivar got: bytes received when the clock of the least rate started.
    @ivar mark: when that was.
    """

    got = 0
    mark = 0.0

    def interim(self, response: Response) -> None:
        """C{request.interim}."""
        if self.response is None and self.writing == OPEN and 101 < response.status < 200:
            self._interim(response)

    def _interim(self, response: Response) -> None:
        fields: list[Field] = [STATUS[response.status]]
        compose(fields, response.headers, self.connection.context.count)
        self.tell(self.connection.engine.send_informational_response, fields)

    def head(self, response: Response, last: bool) -> None:
        connection, status, body = self.connection, response.status, response.body
        count = connection.context.count
        if self.tunnel:
            fields: list[Field] = [STATUS[200 if status == 101 else status]]
            compose(fields, without_key(response.headers), count)
            self.tell(connection.engine.send_response, fields, end_stream=last)
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
            self.tell(connection.engine.send_response, fields, end_stream=True)
            if not last:
                self._without()
        else:
            self.left = length
            self.tell(connection.engine.send_response, fields)

    def _without(self) -> None:
        """The serializer, not the module, enforces that there is no content."""
        outgoing, self.outgoing, self.writing = self.outgoing, None, ENDED
        if outgoing is not None:
            outgoing.stopProducing()
        self.settle()

    def write(self, data: bytes) -> None:
        self.ledger.delivered += len(data)  # type: ignore[union-attr]
        Stream.write(self, data)

    def resumeProducing(self) -> None:
        if self.expect and self.reading == OPEN and self.writing == OPEN and self.response is None:
            self.expect = False
            self._interim(Response(100))
        if self.paused:
            self.mark, self.got = self.connection.now(), 0 if self.ledger is None else self.ledger.received
        Stream.resumeProducing(self)


@specialised
class Ask(Stream, Calling):
    """
    One request to an upstream.

    @ivar fields: its head, until that was written.
    @ivar upgrade: C{request.upgrade}.
    @ivar interims: interim responses so far.
    @ivar flushed: when its last byte was flushed, or 0.0.
    """

    fields: list[Field] | None
    upgrade: bytes | None = None
    interims = 0
    flushed = 0.0

    def ask(self, request: Request, last: bool) -> None:
        if self.number is None:
            self.number = 0
            self.connection.hold_back(self)  # whether the server can do this is not known yet
            return
        self.open(last)
        if last:
            self.sent()
        elif request.upgrade is None and request.body is not None:
            self.left = request.body.length

    def open(self, last: bool) -> None:
        """HEADERS."""
        connection: Any = self.connection
        fields, self.fields = self.fields, None
        self.number = connection.engine.send_request(fields, end_stream=last)
        connection.opened(self)

    def waits(self) -> bool:
        return self.expect

    def sent(self) -> None:
        self.moved = self.connection.now()
        if not self.tunnel:
            self.connection.leaving.append(self)


def spoiled(stream: Any, text: str) -> None:
    """RST_STREAM for what the peer did (RFC 9113, 8.1.1), and the end of the request."""
    connection = stream.connection
    connection.context.count("malformed_stream")
    reason = connection.spoilt(stream, text)
    stream.cancel(PROTOCOL_ERROR)
    connection.lose(stream, reason)
    connection.gave_up()
