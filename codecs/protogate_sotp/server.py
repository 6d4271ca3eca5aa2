"""
The serving side of a connection.

Rules
- A request that is none is handed on all the same, marked: the service answers it.
- GOAWAY is said twice: that nothing more should come, and when the client has surely heard it, what was looked at.
- Each request has the clocks of the configuration.  The deadline that its client set is for the service to keep.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from protogate.body import Body, Whole
from protogate.clocks import WINDOW, upload
from protogate.connection import LINGER, specialised
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, Abort, Phase, timeout
from protogate.halves import CUT, ENDED, OPEN, Half
from protogate.interfaces import IBody, IService
from protogate.message import Peer, Request, peer_of
from protogate_sotp.answer import Answer
from protogate_sotp.faults import NONE, REFUSED, TIMEOUT, Fault
from protogate_sotp.frames import END, MOST_STREAM, PING, cancel, frame, goaway
from protogate_sotp.heads import Asked, read_request
from protogate_sotp.link import MISSED, Greeting, Link
from protogate_sotp.streams import BODY, DONE, Stream

if TYPE_CHECKING:
    from protogate.context import Context, Timeouts

CANCELS: Final = 1000
"""Requests that a client may give up beyond those that it lets end, before the connection ends."""
BARRIER: Final = b"goaway?\0"
"""A PING behind the first GOAWAY: its PONG says that the client has read both."""
_EXPECT: Final = (b"expect", b"100-continue")


class Server(Link):
    """
    A connection from a client.

    @ivar highest: number of the newest request.
    @ivar final: while it drains, and the client has heard of it: the number of the last request.
    """

    highest: int = 0
    final: int | None = None
    _cancels: int = 0
    _quiet: float = 0.0  # since when there is no request
    _barrier: float = inf  # when the PONG behind the first GOAWAY is no longer waited for

    def __init__(self, service: IService, context: Context, greeting: Greeting) -> None:
        super().__init__(context, greeting)
        self.service = service
        self.peer = Peer()

    def connectionMade(self) -> None:
        super().connectionMade()
        self.peer = peer_of(self.transport)
        self._quiet = self.now()
        self.watch(self.context.timeouts.client_idle or inf)

    def answered(self) -> None:
        self.put(self.hello.pack())
        if self.beat:
            self.watch(float(MISSED * self.beat))

    def most_trailers(self) -> int:
        return self.context.limits.headers

    def newest(self) -> int:
        return self.highest

    # -- requests

    def asked(self, number: int, flags: int, payload: bytes, whole: bytes | None) -> Stream | None:
        if number <= self.highest or not number & 1 or number > MOST_STREAM:
            raise Fault("wrong_number")
        self.highest = number
        if self.final is not None or len(self.streams) >= self.hello.streams:
            self.context.count("stream_refused")
            self.reply(cancel(number, REFUSED, "no more requests now"))
            return None
        made = read_request(payload, self.context.limits, self.hello.capabilities)
        ends = bool(flags & END)
        half = Answer(self, number, DONE if ends else BODY)
        self.streams[number] = half
        half.method = made.method
        reason = self._fault(made, ends)
        body: IBody | None = None
        if reason is not None:
            half.reading, whole = CUT, None
        elif ends:
            half.reading = ENDED
        elif whole is not None and self._fits(half, made, whole):
            body = Whole(whole)
        else:
            whole = None
            body = Body(half, made.length)
            half.due = made.length
        request = Request(
            made.method,
            made.target,
            made.fields,
            body,
            made.authority,
            b"https" if self.peer.tls else b"http",  # what we see, whatever the client believes
            made.upgrade,
            half.interim,
            "SOTP/1",
            self.peer,
        )
        request.service, request.malformed = made.service, reason
        if _EXPECT in made.fields:
            half.expect = body is not None and whole is None
            if not half.expect:
                request.headers.remove(b"expect")
        half.open(request, self.began)
        if whole is not None:
            half.ledger.received = len(whole)  # type: ignore[union-attr]
            self.all_of(half, whole)
        if made.deadline:
            request.deadline = half.ledger.head + made.deadline / 1000  # type: ignore[union-attr]
        if body is not None and whole is None:
            self.watch(self._look(self.context.timeouts))
        return half

    def _fits(self, half: Answer, made: Asked, whole: bytes) -> bool:
        """Whether this is all of its content, and no more than there may be."""
        most = self.context.limits.body
        return half.whole(whole, made.length) and made.upgrade is None and not 0 < most < len(whole)

    def _fault(self, made: Asked, ends: bool) -> Abort | None:
        """What is wrong with a head, if anything."""
        bad = made.bad
        if bad is not None:
            self.context.count(bad.event)
            return Abort(bad.text, CLIENT, bad.status, error="http_request_error", detail=bad.text)
        if ends and (made.length or made.upgrade is not None):
            self.context.count("bad_framing")
            text = "END beside a length or a tunnel"
            return Abort(text, CLIENT, 400, error="http_request_error", detail=text)
        return None

    def fire(self, stream: Stream) -> None:
        assert isinstance(stream, Answer)
        stream.begin(self.service)

    def grown(self, stream: Stream) -> None:
        most = self.context.limits.body
        if not most or stream.reading != OPEN:
            return
        assert isinstance(stream, Answer)
        if stream.ledger.received > most and stream.request.upgrade is None:  # type: ignore[union-attr]
            self.context.count("body_too_large")
            stream.broken(
                Abort("content too large", CLIENT, 413, error="http_request_error", detail="content too large")
            )

    # -- ends

    def given_up(self, stream: Stream, code: int, text: str) -> Abort:
        self._cancels += 1
        if self._cancels > CANCELS:
            raise Fault("too_many_cancels")
        return CLIENT_GONE

    def spoilt(self, stream: Stream, fault: Fault) -> Abort:
        return Abort(fault.text, CLIENT, 400, error="http_request_error", detail=fault.text)

    def blame(self, fault: Fault) -> Abort:
        return Abort(f"{self.peer.ip or 'the client'}: {fault.text}", CLIENT, 400, error="http_request_error")

    def gone(self, half: Half) -> Abort:
        return CLIENT_GONE if self.why is None else self.why

    def leaves(self, last: int, code: int, text: str) -> None:
        if not self.greeted:
            raise Fault("no_hello")
        if code:
            self.context.count("peer_complained")

    def done(self, stream: Stream) -> None:
        self._cancels = max(self._cancels - 1, 0)
        super().done(stream)

    def rest(self) -> None:
        self._quiet = self.now()
        if self.final is not None:
            self._farewell()
        elif not self.beat:
            self.watch(self.context.timeouts.client_idle or inf)

    def drain(self) -> None:
        if self.draining or self.dead:
            return
        self.draining = True
        if not self.greeted:
            self.put(goaway(0, NONE))  # what is on its way was not looked at
            self.linger()
            return
        self.put(goaway(MOST_STREAM, NONE) + frame(PING, 0, 0, BARRIER))
        self._barrier = self.now() + LINGER
        self.watch(LINGER)

    def ponged(self, payload: bytes) -> None:
        if payload == BARRIER and self.draining:
            self._finish()

    def _finish(self) -> None:
        """What the client sends from now on it sends although it knows."""
        if self.final is None:
            self.final, self._barrier = self.highest, inf
            if not self.streams:
                self._farewell()

    def _farewell(self) -> None:
        """The last answer is out."""
        if not self.dead:
            self.put(goaway(self.final or 0, NONE))
            self.close()

    def abort(self) -> None:
        if self.why is None:
            self.why = CUT_OFF
        super().abort()

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.client_stall

    def _look(self, times: Timeouts) -> float:
        return min(self.look(), WINDOW if times.client_min_rate else inf)

    def late(self, now: float) -> float:
        times = self.context.timeouts
        stall = times.client_stall
        if stall and self.stalled(now) >= stall:
            self.context.count("client_stall_timeout")
            self._give_up(timeout(Phase.CLIENT_STALL, CLIENT, stall))
            return inf
        left = min(self._late_link(now, times), self.look() if self.unsent() else inf)
        if now >= self._barrier:
            self._finish()
        if self.dead:
            return inf
        for stream in list(self.streams.values()):
            assert isinstance(stream, Answer)
            left = min(left, self._late_stream(now, times, stream))
        return min(left, self._barrier - now)

    def _late_link(self, now: float, times: Timeouts) -> float:
        """Of the connection: the rest of a frame, a sign of life, a request."""
        left = inf
        if self.began and times.client_header:
            left = self.began + times.client_header - now
            if left <= 0:
                self.context.count("client_header_timeout")
                self._give_up(timeout(Phase.CLIENT_HEADER, CLIENT, times.client_header))
                return inf
        if self.beat:
            alive = self.heard + MISSED * self.beat - now
            if alive <= 0:
                self.context.count("heartbeat_timeout")
                self._give_up(Abort("no heartbeat from the client", CLIENT, 408))
                return inf
            return min(left, alive)
        if not self.streams and times.client_idle:
            idle = self._quiet + times.client_idle - now
            if idle <= 0:
                self.context.count("client_idle_timeout")
                self._farewell() if self.greeted else self.close()
                return inf
            left = min(left, idle)
        return left

    def _late_stream(self, now: float, times: Timeouts, stream: Answer) -> float:
        """Of one request: its credit, its upload."""
        left, stall = inf, times.client_stall
        if stream.queue and stall:
            due = stream.moved + stall - now
            if due <= 0:
                self.context.count("client_stall_timeout")
                self._end(stream, TIMEOUT, timeout(Phase.CLIENT_STALL, CLIENT, stall))
                return inf
            left = min(left, due)
        if stream.reading == OPEN and not stream.paused and not stream.expect and stream.request.upgrade is None:  # type: ignore[union-attr]
            wait, reason = upload(stream, now, times, self.context.count)
            if reason is not None:
                self._slow(stream, reason)
                return inf
            left = min(left, wait)
        return left

    def _slow(self, stream: Answer, reason: Abort) -> None:
        """An upload that stands still: an answer, if there was none."""
        if stream.response is None:
            stream.broken(reason)
        else:
            self._end(stream, TIMEOUT, reason)

    def _end(self, stream: Answer, code: int, reason: Abort) -> None:
        stream.lost(reason)
        stream.cancel(code, reason.detail or reason.reason)

    def _give_up(self, reason: Abort) -> None:
        """The client is not there, or as good as that."""
        self.why = reason
        if self.greeted:
            self.put(goaway(self.highest, TIMEOUT, reason.reason))
            self.send()
        self.abort()


specialised(Server)
