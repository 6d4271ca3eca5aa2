"""
One request on a connection, from either side: what has come, what has left, and the credit for both.

Rules
- What comes is held to L{NEXT}: which frame may come in which state, and what follows.
- What is written while the connection is corked waits for its uncork, so that the end of a small message leaves in the
  frame of its last bytes.
- Bytes count against the credit of their stream and of the connection.
- Credit is given back when bytes were passed on, in portions of half a window; what nobody wants is given none for.
  The connection is told of them at once: many streams that are owed a little must not use up its credit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from protogate.connection import specialised
from protogate.errors import ALWAYS, CLIENT, GATEWAY, UPSTREAM, Abort
from protogate.halves import CUT, ENDED, OPEN, Calling, Half, Serving
from protogate.message import Field, Request, Response
from protogate_sotp.codings import CAPABILITIES, IDS, unpacking
from protogate_sotp.faults import CANCELLED, DEADLINE, INTERNAL, NONE, REFUSED, Fault
from protogate_sotp.fields import Bad
from protogate_sotp.frames import (
    DATA,
    END,
    INTERIM,
    REQUEST,
    RESPONSE,
    TRAILERS,
    cancel,
    credited,
    frame,
)
from protogate_sotp.heads import read_trailers, write_response, write_trailers

if TYPE_CHECKING:
    from protogate_sotp.link import Link

IDLE, HEAD, BODY, DONE = range(4)
STATES: Final = ("IDLE", "HEAD", "BODY", "DONE")
"""
Of what comes on one stream: nothing was asked yet; the head of an answer is due; bytes may come; all has come.
"""
NEXT: Final[dict[int, dict[int, int]]] = {
    IDLE: {REQUEST: BODY},
    HEAD: {RESPONSE: BODY},
    BODY: {DATA: BODY, TRAILERS: DONE},
    DONE: {},
}
"""
State → frame that may come → state.  END leads to DONE, INTERIM stays.  CREDIT and CANCEL may come in all but IDLE.
"""
FOLLOWING: Final = {
    IDLE: (BODY, DONE),
    HEAD: (HEAD, BODY, DONE),
    BODY: (BODY, DONE),
    DONE: (),
}
"""The same without the frames: to be drawn."""

BATCH: Final = 32768
"""Bytes that are not kept waiting for the uncork."""


class Stream(Half):
    """
    What both sides of a request have in common.

    @ivar number: of the stream.
    @ivar state: of what comes: L{STATES}.
    @ivar due: bytes of the incoming content that are still to come, or None when nobody said.
    @ivar room: bytes that the peer may send.
    @ivar owed: bytes whose credit on the stream was not given back, passed on or not.
    @ivar held: bytes not passed on; the connection knows of the others.
    @ivar paused: nobody takes what comes for now.
    @ivar heard: when something came last, or might have come again.
    @ivar queue: bytes that wait for the uncork, or for credit.
    @ivar last: what ends the message: None while it goes on, the payload of TRAILERS, or empty.
    @ivar left: bytes of the outgoing content that are still due, or None when nobody said.
    @ivar credit: bytes that may be sent.
    @ivar listed: the connection knows that something waits for its uncork.
    @ivar moved: when bytes of it were sent last.
    @ivar method: of the request.
    @ivar expect: the interim response 100 is awaited.
    """

    number: int
    state: int
    due: int | None = None
    room: int
    owed = held = 0
    paused = False
    heard: float
    queue = b""
    last: bytes | None = None
    left: int | None = None
    credit: int
    listed = False
    moved: float
    expect = False
    method: bytes
    connection: Any

    def setup(self, number: int, state: int) -> None:
        """A new stream."""
        connection: Link = self.connection
        self.number, self.state = number, state
        self.room, self.credit = connection.hello.window, connection.peer_hello.window
        self.heard = self.moved = connection.heard if state != HEAD else connection.now()

    # -- what comes

    def whole(self, data: bytes | None, length: int | None) -> bool:
        """Whether these bytes are all of a content that has this length, as far as anybody said."""
        return bool(data) and (length is None or length == len(data)) and len(data) <= self.room  # type: ignore[arg-type]

    def arrived(self, data: bytes) -> None:
        """Bytes of a DATA; the connection has taken them off its own credit."""
        size = len(data)
        self.room -= size
        if self.room < 0:
            raise Fault("beyond_credit")
        self.heard = self.connection.heard
        due = self.due
        if due is not None:
            due = self.due = due - size
            if due < 0:
                self.connection.passed(size)
                raise Fault("too_long")
        if self.reading == OPEN:
            self.owed += size
            self.received(data)
            if self.paused:
                self.held += size
                return
            self.connection.passed(size)
            if self.owed >= self.connection.half:
                self.repay()
        else:
            self.connection.passed(size)

    def tail(self, trailers: list[Field] | None) -> None:
        """All has come."""
        if self.due:
            raise Fault("too_short")
        self.ended(trailers)

    def trailers(self, payload: bytes) -> None:
        """TRAILERS."""
        if len(payload) > self.connection.most_trailers():
            self.connection.context.count("trailers_too_large")
            raise Fault("large_trailers")
        try:
            fields = read_trailers(payload)
        except Bad:
            raise Fault("bad_trailers") from None
        self.tail(fields or None)

    def repay(self) -> None:
        """Give back what is owed on the stream."""
        owed, self.owed = self.owed, 0
        if self.state == BODY and self.reading == OPEN:
            self.room += owed
            self.connection.put(credited(self.number, owed))

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        if self.paused:
            self.paused = False
            self.heard = self.connection.now()
        held, self.held = self.held, 0
        if held:
            self.connection.passed(held)
        if self.owed >= self.connection.half:
            self.repay()

    # -- what leaves

    def write(self, data: bytes) -> None:
        connection, left = self.connection, self.left
        if left is not None:
            left = self.left = left - len(data)
            if left < 0:
                self.mismatch()
                return
        self.queue = self.queue + data if self.queue else data
        if not connection.corked or len(self.queue) > BATCH:
            self.push()
        elif not self.listed:
            self.listed = True
            connection.tails.append(self)
        if (connection.full or len(self.queue) > min(self.credit, connection.credit)) and self.outgoing is not None:
            self.outgoing.pauseProducing()
            if self.queue:
                connection.watch(connection.look())

    def push(self) -> bool:
        """Send what may be sent; whether that was the end."""
        connection, queue, last = self.connection, self.queue, self.last
        most, moved = connection.peer_hello.data, False
        while queue:
            size = min(len(queue), self.credit, connection.credit, most)
            if size <= 0:
                self.queue = queue
                if moved:
                    self.moved = connection.now()
                return False
            data, queue, moved = (queue, b"", True) if size == len(queue) else (queue[:size], queue[size:], True)
            self.credit -= size
            connection.credit -= size
            if not queue and last == b"":
                self.queue, self.last = b"", None
                connection.put_data(END, self.number, data)
                self.sent()
                return True
            connection.put_data(0, self.number, data)
        self.queue = b""
        if last is None:
            return False
        self.last = None
        connection.put(frame(TRAILERS, 0, self.number, last) if last else frame(DATA, END, self.number))
        self.sent()
        return True

    def end(self, trailers: Sequence[Field] | None) -> None:
        if self.left:
            self.mismatch()
            return
        self.last = b""
        if trailers:
            try:
                self.last = write_trailers(trailers, self.connection.context.count)
                if len(self.last) > self.connection.peer_hello.heads:
                    raise Bad("trailers that are too large for the peer", "invalid_request_refused", 500)
            except Bad as bad:
                self.unsayable(bad)
                return
        self.push()

    def mismatch(self) -> None:
        """A body that is not as long as it said (a faulty module): the peer must not take it for complete."""
        self.unsayable(Bad("a body was not as long as it said", "body_length_mismatch", 500))

    def unsayable(self, bad: Bad) -> None:
        """The rest of the message cannot be sent."""
        self.connection.context.count(bad.event)
        outgoing, self.outgoing = self.outgoing, None
        self.writing, self.last = OPEN, None
        if outgoing is not None:
            outgoing.stopProducing()
        self.abort(Abort(bad.text, GATEWAY, 500))

    def sent(self) -> None:
        """The last byte of the message was written."""

    def wake(self) -> None:
        """There is credit, the transport takes more, or the uncork has come."""
        if (self.queue or self.last is not None) and self.push() and self.writing == ENDED and self.reading != OPEN:
            self.connection.done(self)
        elif not self.queue and not self.connection.full and self.outgoing is not None:
            self.outgoing.resumeProducing()

    # -- ends

    def reset(self, reason: Abort) -> None:
        """Break off."""
        if reason.retry == ALWAYS:
            code = REFUSED
        elif reason.who == CLIENT:
            code = CANCELLED
        else:
            code = DEADLINE if reason.status == 504 else INTERNAL
        self.cancel(code, reason.detail)

    def cancel(self, code: int, text: str = "") -> None:
        """Tell the peer that nothing more comes, and that nothing more is wanted."""
        connection = self.connection
        self.queue, self.last = b"", None
        if self.number in connection.streams:
            connection.put(cancel(self.number, code, text))
            connection.forget(self)

    def over(self) -> None:
        if self.last is None:
            self.connection.done(self)

    def settled(self) -> None:
        """Both directions are over, and ours has left."""
        if self.state != DONE or self.writing == CUT:
            self.cancel(NONE)
        else:
            self.connection.forget(self)


@specialised
class Answer(Stream, Serving):
    """
    One request from a client.

    @ivar got: bytes received when the clock of the least rate started.
    @ivar mark: when that was.
    """

    def setup(self, number: int, state: int) -> None:
        Stream.setup(self, number, state)
        self.got, self.mark = 0, self.heard

    def interim(self, response: Response) -> None:
        """C{request.interim}."""
        if self.response is None and self.writing == OPEN and 101 < response.status < 200:
            self._interim(response)

    def _interim(self, response: Response) -> None:
        connection = self.connection
        try:
            head = write_response(response, None, 0, connection.context.count)
        except Bad as bad:
            connection.context.count(bad.event)
        else:
            connection.put(frame(RESPONSE, INTERIM, self.number, head))

    def respond(self, response: object) -> None:
        known = self.connection.peer_hello.capabilities
        if ~known & CAPABILITIES and isinstance(response, Response) and response.body is not None:
            coding = response.headers.get(b"content-encoding")
            if coding is not None and IDS.get(coding, 0) & ~known:
                broken = Abort("the compression of the response is broken", UPSTREAM, 502, error="http_protocol_error")
                response.body = unpacking(response.body, coding, broken)
                response.headers.remove(b"content-encoding")
        super().respond(response)

    def head(self, response: Response, last: bool) -> None:
        connection, status, body = self.connection, response.status, response.body
        length = None if body is None else body.length
        if self.tunnel:
            length = None
        elif not 200 <= status < 600:
            connection.context.count("invalid_status")
            response, body, length = Response(502), None, None
        elif self.method == b"HEAD" or status in (204, 205, 304):
            if status in (204, 205):
                length = None
            elif length is None:
                length = described(response)
            body = None
        try:
            head = write_response(response, length, connection.peer_hello.capabilities, connection.context.count)
            if len(head) > connection.peer_hello.heads:
                raise Bad("the head of a response is too large", "response_headers_too_large", 502)
        except Bad as bad:
            connection.context.count(bad.event)
            head, body = write_response(Response(502), None, 0, connection.context.count), None
        if body is None:
            connection.put(frame(RESPONSE, END, self.number, head))
            if not last:
                self._without()
        else:
            self.left = length
            connection.put(frame(RESPONSE, 0, self.number, head))

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

    @ivar head: the payload of its REQUEST, until that was written.
    @ivar upgrade: C{request.upgrade}.
    @ivar interims: interim responses so far.
    @ivar late: when the deadline of the request is over, 0.0 = it has none.
    """

    head: bytes
    upgrade: bytes | None
    interims = 0
    late = 0.0

    def ask(self, request: Request, last: bool) -> None:
        connection = self.connection
        connection.put(frame(REQUEST, END if last else 0, self.number, self.head))
        self.head = b""
        body = request.body
        if last:
            self.sent()
        elif body is not None and request.upgrade is None:
            self.left = body.length

    def waits(self) -> bool:
        return self.expect

    def sent(self) -> None:
        self.moved = self.connection.now()
        if self.ledger is not None:
            self.ledger.sent = self.moved


def described(response: Response) -> int | None:
    """The length that a HEAD or 304 response describes its content with."""
    value = response.headers.get(b"content-length")
    return int(value) if value is not None and value.isdigit() and len(value) < 18 else None
