"""One stream, for either side: credit, and how a message becomes frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protogate.errors import ALWAYS, CLIENT, Abort
from protogate.halves import OPEN, Calling, Serving
from protogate.message import Field, Request, Response
from protogate_mini.frames import BROKEN, CANCEL, DATA, END, HEAD, REFUSED, UNWANTED, WINDOW, credited, frame, pack


class Stream:
    """
    Flow control of one stream, for either half.

    @ivar credit: bytes that may be sent.
    @ivar queue: bytes that wait for credit.
    @ivar last: trailers that wait behind them, packed.
    @ivar room: bytes that the peer may send.
    @ivar owed: bytes passed on, whose credit was not given back yet.
    @ivar due: bytes of the incoming body that are still to come, when that is known.
    @ivar since: when it last made progress.
    """

    connection: Any
    outgoing: Any

    def setup(self, number: int) -> None:
        """A new stream."""
        self.number = number
        self.credit = self.room = WINDOW
        self.queue = b""
        self.last: bytes | None = None
        self.owed, self.paused = 0, False
        self.due: int | None = None
        self.since = self.connection.now()

    # -- outgoing

    def write(self, data: bytes) -> None:
        self.queue = self.queue + data if self.queue else data
        self.flush()
        if (self.queue or self.connection.full) and self.outgoing is not None:
            self.outgoing.pauseProducing()
        if self.queue:
            self.connection.watch(self.connection.look())

    def flush(self) -> None:
        """Send what may be sent."""
        if self.queue and self.credit:
            data, self.queue = self.queue[: self.credit], self.queue[self.credit :]
            self.credit -= len(data)
            self.since = self.connection.now()
            self.connection.put(frame(DATA, self.number, data))
        if not self.queue and self.last is not None:
            last, self.last = self.last, None
            self.connection.put(frame(END, self.number, last))
            self.sent()
            self.connection.done(self)

    def sent(self) -> None:
        """The last byte left."""

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.last = pack(trailers or ())
        self.flush()

    def wake(self) -> None:
        """There is credit, or the transport takes more."""
        self.flush()
        if not self.queue and not self.connection.full and self.outgoing is not None:
            self.outgoing.resumeProducing()

    def reset(self, reason: Abort) -> None:
        code = REFUSED if reason.retry == ALWAYS else UNWANTED if reason.who == CLIENT else BROKEN
        self.cancel(code)

    def cancel(self, code: int) -> None:
        """Tell the peer that this stream is no more."""
        connection = self.connection
        self.queue, self.last = b"", None
        if self.number in connection.streams:
            connection.put(frame(CANCEL, self.number, bytes([code])))
            connection.forget(self)

    def over(self) -> None:
        self.connection.done(self)

    # -- incoming

    def arrived(self, data: bytes) -> None:
        """DATA."""
        self.since = self.connection.now()
        self.room -= len(data)
        if self.room < 0:
            raise ValueError("more than there was credit for")
        if not data:
            return
        self.owed += len(data)
        if self.due is not None:
            self.due -= len(data)
        self.received(data)  # type: ignore[attr-defined]
        if not self.paused:
            self.repay()

    def repay(self) -> None:
        """Give credit back."""
        owed, self.owed = self.owed, 0
        self.room += owed
        if owed and self.number in self.connection.streams:
            self.connection.put(credited(self.number, owed))

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self.repay()


class Answer(Stream, Serving):
    """One request from a client."""

    def interim(self, response: Response) -> None:
        """C{request.interim}."""
        if self.response is None and self.writing == OPEN and 101 < response.status < 200:
            fields = [(b":status", b"%d" % response.status), *response.headers]
            self.connection.put(frame(HEAD, self.number, pack(fields)))

    def head(self, response: Response, last: bool) -> None:
        fields = [(b":status", b"%d" % response.status), *response.headers]
        if last:
            fields.append((b":length", b"0"))
        elif response.body is not None and response.body.length is not None:
            fields.append((b":length", b"%d" % response.body.length))
        self.connection.put(frame(HEAD, self.number, pack(fields)))
        if last:
            self.end(None)

    def write(self, data: bytes) -> None:
        if self.ledger is not None:
            self.ledger.delivered += len(data)
        Stream.write(self, data)


class Ask(Stream, Calling):
    """One request to an upstream."""

    interims = 0

    def ask(self, request: Request, last: bool) -> None:
        fields = [(b":method", request.method), (b":target", request.target), (b":authority", request.authority)]
        body = request.body
        if request.upgrade is not None:
            fields.append((b":upgrade", request.upgrade))
        if last:
            fields.append((b":length", b"0"))
        elif body is not None and body.length is not None:
            fields.append((b":length", b"%d" % body.length))
        self.connection.put(frame(HEAD, self.number, pack([*fields, *request.headers])))
        if last:
            self.end(None)

    def sent(self) -> None:
        self.since = self.connection.now()
        if self.ledger is not None:
            self.ledger.sent = self.since
