"""
One request on a connection of HTTP/2: what is the same on either side.

Rules
- Writing goes through the engine, which holds back what the peer's windows do not allow: above L{HIGH} bytes of it the
  body is paused.
- Credit follows consumption: bytes are paid back when they were passed on, and at once when nobody wants them.
- The peer sees the truncation: what is not complete ends with RST_STREAM, and never with NO_ERROR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr, trait

from protogate.errors import ALWAYS, CLIENT, GATEWAY, Abort
from protogate.halves import CUT, ENDED, OPEN
from protogate.message import Field, Request, Response
from protogate_http.fields2 import trailed, trailing
from protogate_http.frames2 import CANCEL, INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM
from protogate_http.wire1 import Bad

if TYPE_CHECKING:
    from protogate.exchange.ledger import Ledger
    from protogate.interfaces import IBody
    from protogate_http.link2 import Link

HIGH: Final = 32768
"""Bytes of a stream that the engine may hold: the body is paused above …"""
LOW: Final = 16384
"""… and goes on below."""


@mypyc_attr(native_class=False)
class Broken(Exception):
    """
    What came on a stream makes no sense.

    @ivar text: what is wrong.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@trait
class Stream:
    """
    What both sides of a request have in common, beside what a half has: L{protogate_http.answer2.Answer} and
    L{protogate_http.ask2.Ask} are both.

    @ivar link: its connection.
    @ivar number: of the stream.
    @ivar owed: bytes passed on whose credit was not given back.
    @ivar paused: nobody takes what comes for now.
    @ivar due: bytes of the incoming content that are still to come, or None when nobody said.
    @ivar left: bytes of the outgoing content that are still due, or None when nobody said.
    @ivar given: bytes of it that the engine holds at most.
    @ivar came: the last frame of what comes was read.
    @ivar expect: the interim response 100 is awaited.
    @ivar method: of the request.
    @ivar worth: an answer to it is work that got done.
    """

    link: Link
    number: int = 0
    owed: int = 0
    paused: bool = False
    due: int | None = None
    left: int | None = None
    given: int = 0
    came: bool = False
    expect: bool = False
    method: bytes = b""
    worth: bool = True

    # -- what the half has

    reading: int
    writing: int
    tunnel: bool
    request: Request | None
    response: Response | None
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

    def stands(self, held: int, now: float) -> None:
        """The engine holds so many bytes of it, and nothing moves."""
        raise NotImplementedError

    def leaves(self, now: float) -> None:
        """Nothing is left of it but what the engine has."""
        raise NotImplementedError

    # -- what comes

    def arrived(self, data: bytes) -> None:
        """Content."""
        size, link = len(data), self.link
        self.hears(link.heard)
        due = self.due
        if due is not None:
            due = self.due = due - size
            if due < 0:
                link.credit(self.number, size)
                raise Broken("more content than content-length says")
        if self.reading != OPEN:
            link.credit(self.number, size)
            return
        self.owed += size
        self.received(data)
        if not self.paused and self.owed >= link.half:
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
            found = trailed(fields, self.link.most_trailers())
        except Bad as bad:
            self.link.context.count(bad.event)
            raise Broken(bad.text) from None
        self.complete(found)

    def repay(self) -> None:
        """Give back what is owed."""
        owed, self.owed = self.owed, 0
        self.link.credit(self.number, owed)

    def resume(self) -> None:
        """Source: go on reading."""
        if self.paused:
            self.paused = False
            self.hears(self.link.now())
        if self.owed >= self.link.half:
            self.repay()

    # -- what leaves

    def send(self, data: bytes) -> None:
        """Sink: some bytes of the outgoing body."""
        link, left, size = self.link, self.left, len(data)
        if left is not None:
            left = self.left = left - size
            if left < 0:
                self.mismatch()
                return
        link.budget.moved()
        if not link.data(self.number, data):
            if self.outgoing is not None:
                self.outgoing.pauseProducing()  # it is over, as will be told
            return
        self.given += size
        if link.full or (self.given > HIGH and link.queued(self) > HIGH):
            link.block(self)

    def last(self, trailers: Sequence[Field] | None) -> None:
        """The outgoing body is complete."""
        if self.left:
            self.mismatch()
            return
        link = self.link
        self.sent()
        link.finish(self.number, trailing(trailers, link.context.count) if trailers else None)

    def mismatch(self) -> None:
        """A body that is not as long as it said (a faulty module): the peer must not take it for complete."""
        self.link.context.count("body_length_mismatch")
        outgoing, self.outgoing = self.outgoing, None
        self.writing = OPEN
        if outgoing is not None:
            outgoing.stopProducing()
        self.abort(Abort("a body was not as long as it said", GATEWAY, 500))

    def sent(self) -> None:
        """The last byte of the message goes to the engine, in this very turn."""

    # -- ends

    def break_off(self, reason: Abort) -> None:
        """So that the peer sees it."""
        code = CANCEL if reason.who == CLIENT else INTERNAL_ERROR
        self.cancel(REFUSED_STREAM if reason.retry == ALWAYS else code)

    def cancel(self, code: int) -> None:
        """RST_STREAM."""
        link = self.link
        if link.streams.get(self.number) is self:
            link.forget(self)
            link.reset(self.number, code)

    def done(self) -> None:
        """Both directions ended cleanly."""
        if self.writing == CUT:  # the peer answered without waiting for the rest
            self.cancel(CANCEL)
            return
        link = self.link
        self.leaves(link.now())
        link.watch(link.look())  # when its last byte has left, the engine will tell
        if not self.came:  # we answered without waiting: RST_STREAM behind END_STREAM (RFC 9113, 8.1)
            link.late_ones.append(self)
            link.due()

    @property
    def finished(self) -> bool:
        """Nothing is left of it but what the engine has: some bytes, or an END_STREAM alone."""
        return self.writing == ENDED and self.reading != OPEN

    def given_up(self) -> None:
        """END_STREAM has left, and the rest of what comes is of no use."""
        self.cancel(NO_ERROR)


def spoiled(stream: Stream, text: str) -> None:
    """RST_STREAM for what the peer did (RFC 9113, 8.1.1), and the end of the request."""
    link = stream.link
    link.context.count("malformed_stream")
    reason = link.spoilt(stream, text)
    stream.cancel(PROTOCOL_ERROR)
    link.lose(stream, reason)
    link.gave_up()
