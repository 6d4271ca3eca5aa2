"""
A connection from a client; see L{protogate.ordered}.

Rules
- What is framed well but may not be asked is answered with an error, and the next request is served.  What is not
  framed well gets one answer, and ends the connection: nothing that follows is ever taken for a request.
- While it drains, a request that was on its way is still answered.
- FIN while an answer is owed means that the client left.
- Who has sent many requests in one piece does not keep the others waiting: C{TURN} are answered in a turn of the loop.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from zope.interface import implementer

from protogate.body import Body
from protogate.clocks import WINDOW
from protogate.connection import PATIENCE
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, Abort, Phase, timeout
from protogate.halves import CUT, ENDED, OPEN, Half, Serving
from protogate.interfaces import IConnection, IService
from protogate.message import Field, Peer, Request, Response, peer_of
from protogate.ordered.fault import fault, refused, sound
from protogate.ordered.link import Flow, Link

if TYPE_CHECKING:
    from protogate.context import Context

DRAIN: Final = 65536
"""Bytes of a request that nobody wants, which are read to keep the connection."""
TURN: Final = 64
"""Requests in a row after which everybody else has a turn."""
QUIET: Final = 3.0
"""Seconds that an idle connection which drains waits for a request that may be on its way."""
_EVENTS: Final = {
    Phase.CLIENT_HEADER: "client_header_timeout",
    Phase.CLIENT_STALL: "client_stall_timeout",
    Phase.CLIENT_MIN_RATE: "client_min_rate_timeout",
}


class Answer(Flow, Serving):
    """A request from the peer."""

    def head(self, response: Response, last: bool) -> None:
        self.connection.respond(self, response)

    def write(self, data: bytes) -> None:
        self.ledger.delivered += len(data)  # type: ignore[union-attr]
        self.connection.give(self, data)

    def reset(self, reason: Abort) -> None:
        self.connection.abort()


@implementer(IConnection)
class Server(Link):
    """
    A connection from a client.

    @ivar peer: who that is.
    """

    def __init__(self, service: IService, context: Context) -> None:
        super().__init__(context)
        self.service, self.peer = service, Peer()
        self._deaf = False  # what was read made no sense: nothing of it is read any more
        self._drained = 0  # bytes of a request that nobody wanted
        self._begun: float | None = None  # when the first byte of a head was read
        self._idle = self._free = self.now()  # when the last answer was out, and when the next request could be read
        self._served, self._rests = 0, False  # requests in a row, and whether everybody else has a turn
        self._window, self._got = 0.0, 0  # when the window of clientMinRate began, and what had been received by then

    def drop(self, response: Response) -> None:
        """For head(): the content of a response is not sent."""
        body, response.body = response.body, None
        if body is not None:
            body.stopProducing()

    def connectionMade(self) -> None:
        super().connectionMade()
        self.peer = peer_of(self.transport)
        self.watch(self.context.timeouts.client_idle or inf)

    # -- reading

    def _wants(self) -> bool:
        half = self.half
        if half is None:
            if self._begun is None and len(self.input):
                self._begun = self.heard
                self.watch(self.context.timeouts.client_header or inf)
            return not (self.full or self._rests)
        return self._inside and not (self._held or self._deaf or self._drained > DRAIN)

    def _headed(self, message: Request, length: int | None) -> None:
        half = self.half = Answer(self)
        most = self.context.limits.body
        if message.malformed is None:
            message.malformed = fault(message, self.context.limits)
        if message.malformed is None and length is not None and length > most > 0:
            message.malformed = refused("content too large", 413)
        message.peer, message.protocol = self.peer, message.protocol or self.protocol
        if self.peer.tls:
            message.scheme = b"https"
        if message.malformed is not None:
            self.context.count("malformed_request")
            half.reading = ENDED if length == 0 else CUT
        elif length != 0:
            message.body = Body(half, length)
        self._held, self._drained = False, 0
        half.open(message, self._begun or 0.0)
        self._begun, self._fresh = None, True
        self._restart()

    def _restart(self) -> None:
        super()._restart()
        self._window = self.heard
        self._got = 0 if self.half is None or self.half.ledger is None else self.half.ledger.received
        self.watch(WINDOW if self.context.timeouts.client_min_rate else inf)

    def _more(self, data: bytes) -> None:
        super()._more(data)
        half, most = self.half, self.context.limits.body
        if half.reading != OPEN:
            self._drained += len(data) or 1
            if self._drained > DRAIN and half.writing == ENDED:
                self._finish()
        elif most and half.ledger.received + sum(map(len, self._pieces)) > most:
            raise refused("content too large", 413)

    def _whole(self, trailers: list[Field]) -> None:
        half = self.half
        if trailers and not sound(trailers):
            raise ValueError("not trailers")
        half.ended(trailers or None)
        if self._fresh:
            self._fresh = False
            self._fire()
        elif half is self.half and half.writing == ENDED:
            self._next()  # it was only being drained

    def _fire(self) -> None:
        self.half.begin(self.service)

    def _bad(self, reason: Abort | str) -> None:
        self.context.count("malformed_request")
        self._refuse(refused(reason) if isinstance(reason, str) else reason)

    def _refuse(self, reason: Abort) -> None:
        """One answer, and nothing after it."""
        fresh, self._fresh, self._deaf, half = self._fresh, False, True, self.half
        if half is None:
            fresh, half = True, Answer(self)
            request = Request(b"", b"/", protocol=self.protocol, peer=self.peer)
            self.half, half.reading = half, ENDED
            half.open(request, self._begun or 0.0)
        elif half.writing == ENDED:
            self._finish()
            return
        half.broken(reason)
        if fresh and half.request is not None:
            half.request.malformed = reason
            half.begin(self.service)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.half is None:
            self._free = self.now()
            self._loop()

    # -- writing

    def respond(self, half: Answer, response: Response) -> None:
        """The head of an answer."""
        body = response.body
        self._owed = 0 if body is None else body.length
        self.put(self.head(response, self._owed))
        if response.body is None:
            self._owed = 0
            self.put(self.tail(()))
            if body is not None:  # dropped
                half.outgoing, half.writing = None, ENDED
                half.settle()
        self.watch(self.look())

    # -- ends

    def over(self, half: Any) -> None:
        """The answer is out."""
        self._idle = self.now()
        if self._deaf or self.draining or self._drained > DRAIN:
            self._finish()
        elif self._inside:
            self.watch(self.context.timeouts.client_stall or PATIENCE)
            self.hold(False)
        else:
            self._next()

    def _next(self) -> None:
        self.half, self._free = None, self.now()
        self.watch(self.context.timeouts.client_idle or inf)
        self._served += 1
        if self._served % TURN == 0 and len(self.input):
            self._rests = True
            self.context.wheel.soon(self._rested)
        self._loop()

    def _rested(self) -> None:
        self._rests = False
        self._loop()

    def _finish(self) -> None:
        """Nothing more is answered here."""
        self.half = None
        (self.linger if self._inside or self._deaf or len(self.input) else self.close)()

    def _eof(self) -> None:
        half = self.half
        if half is None or half.writing == ENDED:  # nothing is owed any more
            self.half = None
            self.close()
        else:
            half.lost(CLIENT_GONE)
            self.abort()

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
            return self._cut(Phase.CLIENT_STALL, stall)  # there is no use in telling him
        if half is None:
            if self._begun is not None:
                since = now if self.full else max(self._begun, self._free)  # it is he who is waited for, or not
                phase, seconds = Phase.CLIENT_HEADER, times.client_header
            else:
                self._idle = now if self.unsent() else self._idle
                phase, since, seconds = Phase.CLIENT_IDLE, self._idle, times.client_idle
                seconds = min(seconds or inf, QUIET) if self.draining else seconds
        elif half.writing == ENDED:
            phase, since, seconds = Phase.CLIENT_STALL, self.heard, stall or PATIENCE
        elif half.reading == OPEN and self._wants():
            phase, since, seconds = Phase.CLIENT_STALL, self.heard, stall
            if self._slow(now, half):
                return self._late(Phase.CLIENT_MIN_RATE, WINDOW)
        else:
            return self.look() if half.response is not None or self.unsent() else inf
        left = since + seconds - now if seconds else inf
        if left <= 0:
            return self._late(phase, seconds)
        return min(left, WINDOW if times.client_min_rate else inf, self.look() if self.unsent() else inf)

    def _slow(self, now: float, half: Any) -> bool:
        """Whether an upload came slower than clientMinRate within the last window."""
        rate, span = self.context.timeouts.client_min_rate, now - self._window
        if not rate or span < WINDOW:
            return False
        got, self._window, self._got = half.ledger.received - self._got, now, half.ledger.received
        return bool(got < rate * span)

    def _late(self, phase: Phase, seconds: float) -> float:
        """It is too late: an answer if there was none, else the end."""
        half = self.half
        if phase is Phase.CLIENT_IDLE:
            if not self.silent(self._idle):
                return 0.0
            if not self.draining:
                self.context.count("client_idle_timeout")
            self.close()
            return inf
        if half is None or (half.response is None and half.reading == OPEN):
            self.context.count(_EVENTS[phase])
            self._refuse(timeout(phase, CLIENT, seconds))
            return self.look()
        return self._cut(phase, seconds)

    def _cut(self, phase: Phase, seconds: float) -> float:
        self.context.count(_EVENTS[phase])
        if self.half is not None:
            self.half.lost(timeout(phase, CLIENT, seconds))
        self.abort()
        return inf
