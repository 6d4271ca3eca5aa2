"""
A connection from a client of Redis.

Rules
- Answers leave in the order of the commands; the next one is not even looked at before.
- What is framed well but may not be asked is answered with an error, and the next command is served.  What is not
  framed well ends the connection: nothing that follows is ever taken for a command.
- What nobody wants of a command is read and thrown away, up to L{DRAIN} bytes; beyond that the connection ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from zope.interface import implementer

from protogate.body import Body
from protogate.connection import PATIENCE
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, Abort, Phase, timeout
from protogate.halves import ENDED, OPEN, Half, Serving
from protogate.interfaces import IConnection, IService
from protogate.message import Field, Peer, Request, Response, peer_of
from protogate_resp.link import Link
from protogate_resp.messages import FULL, RESP, VERB, full, head, line, native, refused
from protogate_resp.wire import CONTENT, DONE, array

if TYPE_CHECKING:
    from protogate.context import Context

DRAIN: Final = 65536
"""Bytes of a command that nobody wants, which are read to keep the connection."""
QUIET: Final = 3.0
"""Seconds that an idle connection which drains waits for a command that may be on its way."""


class Answer(Serving):
    """One command."""

    connection: Any
    protocol = RESP

    def head(self, response: Response, last: bool) -> None:
        link, body = self.connection, response.body
        link.due, link.parts = None, False
        if self.protocol == FULL:
            link.put(array(1 if last else 2, head(response)))
            if body is not None:
                link.frame(body.length)
        elif body is None or response.status >= 300 or body.length is None:
            if response.protocol == RESP and body is not None:
                return  # a reply as it came
            link.put(line(response))
            if body is not None:
                self.outgoing, self.writing = None, ENDED
                body.stopProducing()
                self.settle()
        elif response.protocol != RESP:
            link.frame(body.length)
        if self.writing == OPEN:
            link.watch(link.look())

    def write(self, data: bytes) -> None:
        if self.ledger is not None:
            self.ledger.delivered += len(data)
        self.connection.give(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.connection.given(self)

    def reset(self, reason: Abort) -> None:
        self.connection.abort()

    def over(self) -> None:
        self.connection.over()

    def pauseProducing(self) -> None:
        self.connection.hold(True)

    def resumeProducing(self) -> None:
        self.connection.hold(False)


@implementer(IConnection)
class Server(Link):
    """@ivar whole: the last byte of the current command was read."""

    def __init__(self, service: IService, context: Context) -> None:
        super().__init__(context)
        self.service, self.peer = service, Peer()
        self.whole = self.deaf = False
        self._count, self._word = 0, b""
        self._words: list[bytes] = []
        self._got = self._drained = 0
        self._begun: float | None = None  # when the first byte of a command was read
        self._idle = self.now()

    def connectionMade(self) -> None:
        super().connectionMade()
        self.peer = peer_of(self.transport)
        self.watch(self.context.timeouts.client_idle or inf)

    # -- reading

    def wants(self) -> bool:
        if self.half is not None:
            return not (self.whole or self.held or self.deaf or self._drained > DRAIN)
        return not self.full

    def take(self, kind: bytes, size: int | None, raw: bytes) -> None:
        half = self.half
        if half is None:
            half = self._head(kind, size, raw)
        if half is None or (kind == DONE and half.protocol == FULL and self.reader.left):
            return
        if half.reading == OPEN:
            if half.protocol == RESP and not (
                kind in (CONTENT, DONE) or (kind == b"$" and size is not None and size >= 0)
            ):
                raise refused("not an argument")  # what Redis would not take ends nobody's connection but this one
            if half.protocol == RESP or kind == CONTENT:
                most, self._got = self.context.limits.body, self._got + len(raw)
                if self._got > most > 0:
                    raise refused("content too large", 413)
                self.pieces.append(raw)
        elif half.writing == ENDED or half.request.body is not None:
            self._drained += len(raw)
        if not self.reader.left:
            self._tail(half)
        elif self._drained > DRAIN and half.writing == ENDED:
            self.finish()

    def _head(self, kind: bytes, size: int | None, raw: bytes) -> Any:
        """The words that make the head: the half, once what follows is content or nothing."""
        limits, words = self.context.limits, self._words
        if self._begun is None:
            self._begun = self.heard
            self.watch(self.context.timeouts.client_header or inf)
        if kind == b"*" and not self._count and size is not None and size > 0:
            self._count = size
        elif kind == b"$" and len(words) == 2 and size != -1:
            return self._open(size, raw)
        elif kind == b"$" and self._count and size is not None and size >= 0:
            block = words[:1] == [VERB]
            if size > limits.request_line + (limits.headers + limits.header_count if block else 0):
                raise refused("too long", 431 if block else 414)
        elif kind == CONTENT:
            self._word += raw
        elif kind == DONE:
            words.append(self._word)
            self._word = b""
            return self._open(0, b"") if len(words) == self._count else None
        else:
            raise ValueError("not a command")
        return None

    def _open(self, size: int | None, raw: bytes) -> Answer:
        words, count, most = self._words, self._count, self.context.limits.body
        whole = words[0] == VERB and 1 < count < 4
        if not whole:  # framed as it came: of several arguments the length shows at the end
            size = None if count > 3 or size is None else size + (len(raw) + 2 if raw else 0)
        half = self.half = Answer(self)
        half.protocol = FULL if whole else RESP
        try:
            request = full(words[1], self.context.limits) if whole else native(words, count)
            if size is not None and size > most > 0:
                raise refused("content too large", 413)
        except Abort as reason:  # it ends where it says, so what follows it can be answered
            request = self._broken(reason)
        request.protocol, request.peer = half.protocol, self.peer
        self.whole = self.held = False
        self.pieces.clear()
        if size != 0:
            request.body = Body(half, size)
        half.open(request, self._begun or 0.0)
        self._begun, self._got, self._drained = None, 0, 0
        self.watch(self.look())
        if size == 0:
            half.reading = ENDED
        self.fresh = True
        return half

    def _tail(self, half: Answer) -> None:
        self.whole = True
        self.pour()
        half.ended()
        if self.fresh:
            self.fire()
        elif half is self.half and half.writing == ENDED:
            self._next()  # it was only being drained

    def fire(self) -> None:
        self.fresh = False
        self.half.begin(self.service)

    def bad(self, reason: Abort | str) -> None:
        """One answer, and nothing after it."""
        reason = refused(reason) if isinstance(reason, str) else reason
        fresh, half = self.fresh, self.half
        self.fresh, self.deaf = False, True
        if half is not None and half.writing == ENDED:
            self.finish()
            return
        if half is None:
            half = self.half = Answer(self)
            half.reading, fresh = ENDED, True
            half.open(self._broken(reason), self._begun or 0.0)
        else:
            self.context.count("malformed_command")
        half.broken(reason)
        if fresh:
            half.request.malformed = reason
            half.begin(self.service)

    def _broken(self, reason: Abort) -> Request:
        """What is left of a command that is none."""
        self.context.count("malformed_command")
        name = self._words[0] if self._words else b""
        request = Request(name, b"/", protocol=RESP, peer=self.peer)
        request.malformed = reason
        return request

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.half is None:
            self.loop()

    # -- ends

    def over(self) -> None:
        """The answer is out."""
        self._idle = self.now()
        if self.deaf or self.draining or self._drained > DRAIN:
            self.finish()
        elif self.whole:
            self._next()
        else:
            self.watch(self.context.timeouts.client_stall or PATIENCE)
            self.hold(False)

    def _next(self) -> None:
        self.half, self._count, self._words = None, 0, []
        self.watch(self.context.timeouts.client_idle or inf)
        self.loop()

    def finish(self) -> None:
        """Nothing more is answered here."""
        whole, self.half = self.whole and not len(self.reader), None
        (self.close if whole else self.linger)()

    def gone(self, half: Half) -> Abort:
        return CLIENT_GONE

    def abort(self) -> None:
        if self.half is not None:
            self.half.lost(CUT_OFF)
        super().abort()

    def drain(self) -> None:
        if not self.draining:
            self.draining, self._idle = True, self.now()
            self.watch(QUIET)

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.client_stall

    def late(self, now: float) -> float:
        times, half = self.context.timeouts, self.half
        stall = times.client_stall
        if stall and self.stalled(now) >= stall:
            return self._late(Phase.CLIENT_STALL, stall)
        if half is None:
            if self._begun is not None:
                phase, since, seconds = Phase.CLIENT_HEADER, self._begun, times.client_header
            else:
                self._idle = now if self.unsent() else self._idle
                phase, since, seconds = Phase.CLIENT_IDLE, self._idle, times.client_idle
                seconds = min(seconds or inf, QUIET) if self.draining else seconds
        elif half.writing == ENDED or (half.reading == OPEN and self.wants()):
            phase, since, seconds = Phase.CLIENT_STALL, self.heard, stall or PATIENCE
        else:
            return self.look() if half.response is not None or self.unsent() else inf
        left = since + seconds - now if seconds else inf
        return left if left > 0 else self._late(phase, seconds)

    def _late(self, phase: Phase, seconds: float) -> float:
        half, reason = self.half, timeout(phase, CLIENT, seconds)
        if phase is Phase.CLIENT_IDLE:
            self.close()
            return inf
        self.context.count("client_header_timeout" if phase is Phase.CLIENT_HEADER else "client_stall_timeout")
        if half is None or (half.response is None and half.reading == OPEN):
            self.bad(reason)
            return self.look()
        half.lost(reason)
        self.abort()
        return inf
