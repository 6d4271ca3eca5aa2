"""
One request on a connection: what is the same on either side, what has come, what has left, and the credit for both.

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
from typing import TYPE_CHECKING, Final

from mypy_extensions import trait

from protogate.errors import ALWAYS, CLIENT, GATEWAY, Abort
from protogate.halves import CUT, ENDED, OPEN
from protogate.message import Field, Request, Response
from protogate_sotp.faults import CANCELLED, DEADLINE, INTERNAL, NONE, REFUSED, Fault
from protogate_sotp.fields import Bad
from protogate_sotp.frames import DATA, END, REQUEST, RESPONSE, TRAILERS, cancel, credited, frame
from protogate_sotp.heads import read_trailers, write_trailers

if TYPE_CHECKING:
    from protogate.exchange.ledger import Ledger
    from protogate.interfaces import IBody, ISink
    from protogate_sotp.link import Link

IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
DONE: Final = 3
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


@trait
class Stream:
    """
    What both sides of a request have in common, beside what a half has: L{protogate_sotp.answer.Answer} and
    L{protogate_sotp.ask.Ask} are both.

    @ivar link: its connection.
    @ivar number: of the stream.
    @ivar state: of what comes: L{STATES}.
    @ivar due: bytes of the incoming content that are still to come, or None when nobody said.
    @ivar room: bytes that the peer may send.
    @ivar owed: bytes whose credit on the stream was not given back, passed on or not.
    @ivar held: bytes not passed on; the connection knows of the others.
    @ivar paused: nobody takes what comes for now.
    @ivar queue: bytes that wait for the uncork, or for credit; empty = none.
    @ivar gone: how many of them were sent already: they may be many, and are not copied for each frame.
    @ivar last: what ends the message: None while it goes on, the payload of TRAILERS, or empty.
    @ivar left: bytes of the outgoing content that are still due, or None when nobody said.
    @ivar credit: bytes that may be sent.
    @ivar listed: the connection knows that something waits for its uncork.
    @ivar method: of the request.
    @ivar expect: the interim response 100 is awaited.
    """

    link: Link
    number: int = 0
    state: int = IDLE
    due: int | None = None
    room: int = 0
    owed: int = 0
    held: int = 0
    paused: bool = False
    queue: bytes = b""
    gone: int = 0
    last: bytes | None = None
    left: int | None = None
    credit: int = 0
    listed: bool = False
    expect: bool = False
    method: bytes = b""

    # -- what the half has

    reading: int
    writing: int
    tunnel: bool
    request: Request | None
    response: Response | None
    incoming: ISink | None
    outgoing: IBody | None
    ledger: Ledger | None

    def received(self, data: bytes) -> None:
        """L{Half.received}."""
        raise NotImplementedError

    def ended(self, trailers: Sequence[Field] | None = None) -> None:
        """L{Half.ended}."""
        raise NotImplementedError

    def abort(self, reason: Abort) -> None:
        """L{Half.abort}."""
        raise NotImplementedError

    def lost(self, reason: Abort) -> None:
        """L{Half.lost}."""
        raise NotImplementedError

    # -- its clocks (compiled, a trait has no numbers with a fraction)

    def hears(self, now: float) -> None:
        """Something came, or might have come again."""
        raise NotImplementedError

    def moves(self, now: float) -> None:
        """Bytes of it were sent, or may be sent again."""
        raise NotImplementedError

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
        self.hears(self.link.heard)
        due = self.due
        if due is not None:
            due = self.due = due - size
            if due < 0:
                self.link.passed(size)
                raise Fault("too_long")
        if self.reading == OPEN:
            self.owed += size
            self.received(data)
            if self.paused:
                self.held += size
                self.link.passed(0)
                return
            self.link.passed(size)
            if self.owed >= self.link.half:
                self.repay()
        else:
            self.link.passed(size)

    def tail(self, trailers: list[Field] | None) -> None:
        """All has come."""
        if self.due:
            raise Fault("too_short")
        self.ended(trailers)

    def trailers(self, payload: bytes) -> None:
        """TRAILERS."""
        if self.tunnel or (self.request is not None and self.request.upgrade is not None):
            raise Fault("bad_trailers")
        if len(payload) > self.link.most_trailers():
            self.link.context.count("trailers_too_large")
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
            self.link.put(credited(self.number, owed))

    def resume(self) -> None:
        """Source: go on reading."""
        if self.paused:
            self.paused = False
            self.hears(self.link.now())
        held, self.held = self.held, 0
        if held:
            self.link.passed(held)
        if self.owed >= self.link.half:
            self.repay()

    # -- what leaves

    def send(self, data: bytes) -> None:
        """Sink: some bytes of the outgoing body."""
        link, left = self.link, self.left
        if left is not None:
            left = self.left = left - len(data)
            if left < 0:
                self.mismatch()
                return
        queue = self.queue
        if queue:
            self.queue, self.gone = queue[self.gone :] + data, 0
        else:
            self.queue, self.gone = data, 0
        if not link.corked or len(self.queue) > BATCH:
            self.push()
        elif not self.listed:
            self.listed = True
            link.tails.append(self)
        if (link.full or len(self.queue) - self.gone > min(self.credit, link.credit)) and self.outgoing is not None:
            self.outgoing.pauseProducing()
            if self.queue:
                link.watch(link.look())

    def push(self) -> bool:
        """Send what may be sent; whether that was the end."""
        link, queue, last = self.link, self.queue, self.last
        gone = self.gone if queue else 0
        most, left, moved = link.peer_hello.data, len(queue) - gone, False
        while left:
            size = min(left, self.credit, link.credit, most)
            if size <= 0:
                self.gone = gone
                if moved:
                    self.moves(link.now())
                return False
            data = queue if size == len(queue) else queue[gone : gone + size]
            gone, left, moved = gone + size, left - size, True
            self.credit -= size
            link.credit -= size
            if not left and last == b"":
                self.queue, self.last = b"", None
                link.put_data(END, self.number, data)
                self.sent()
                return True
            link.put_data(0, self.number, data)
        self.queue = b""
        if last is None:
            return False
        self.last = None
        link.put(frame(TRAILERS, 0, self.number, last) if last else frame(DATA, END, self.number))
        self.sent()
        return True

    def close(self, trailers: Sequence[Field] | None) -> None:
        """The outgoing body is complete."""
        if self.left:
            self.mismatch()
            return
        self.last = b""
        if trailers:
            try:
                self.last = write_trailers(trailers, self.link.context.count)
                if len(self.last) > self.link.peer_hello.heads:
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
        self.link.context.count(bad.event)
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
            self.link.done(self)
        elif not self.queue and not self.link.full and self.outgoing is not None:
            self.outgoing.resumeProducing()

    # -- ends

    def break_off(self, reason: Abort) -> None:
        """So that the peer sees it."""
        if reason.retry == ALWAYS:
            code = REFUSED
        elif reason.who == CLIENT:
            code = CANCELLED
        else:
            code = DEADLINE if reason.status == 504 else INTERNAL
        self.cancel(code, reason.detail)

    def hush(self) -> None:
        """Send nothing more."""
        self.queue, self.gone, self.last = b"", 0, None

    def cancel(self, code: int, text: str = "") -> None:
        """Tell the peer that nothing more comes, and that nothing more is wanted."""
        link = self.link
        self.hush()
        if self.number in link.streams:
            link.put(cancel(self.number, code, text))
            link.forget(self)

    def done(self) -> None:
        """Both directions ended cleanly."""
        if self.last is None:
            self.link.done(self)

    def settled(self) -> None:
        """Both directions are over, and ours has left."""
        if self.state != DONE or self.writing == CUT:
            self.cancel(NONE)
        else:
            self.link.forget(self)
