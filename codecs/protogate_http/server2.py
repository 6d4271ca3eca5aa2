"""
The serving side of HTTP/2.

Rules
- A request that is none is handed on all the same, marked: the service answers it.
- GOAWAY is said twice: that nothing more should come, and when the client has surely heard it, what was looked at
  (RFC 9113, 6.8).
- Each request has the clocks of the configuration.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import ITCPTransport

from protogate.body import Body
from protogate.clocks import WINDOW, upload
from protogate.connection import specialised
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, Abort, Phase, timeout
from protogate.halves import CUT, ENDED, OPEN, Half
from protogate.interfaces import IBody, IService
from protogate.message import Peer, Request, peer_of
from protogate_http.answer2 import Answer
from protogate_http.engine2 import ERRORS
from protogate_http.fields2 import asked
from protogate_http.frames2 import (
    CANCEL,
    LAST,
    NO_ERROR,
    REFUSED_STREAM,
    code_name,
    goaway,
)
from protogate_http.link2 import Link
from protogate_http.semantics import leftovers
from protogate_http.stream2 import Stream
from protogate_http.wire1 import Bad

if TYPE_CHECKING:
    from protogate.context import Context, Timeouts
    from protogate_http.options2 import Options

BARRIER: Final = b"goaway?\0"
"""A PING behind the first GOAWAY: what comes back says that the client has read both."""
PATIENT: Final = 3.0
"""Seconds after which that is taken for granted."""


class Server(Link):
    """
    A connection from a client.

    @ivar final: it drains, and the client has heard of it.
    @ivar departs: the client asks for nothing more, or hardly.
    """

    def __init__(self, service: IService, context: Context, options: Options, engine: str) -> None:
        super().__init__(context, options, engine, False)
        self.service = service
        self.peer = Peer()
        self.final = self.departs = False
        self._quiet = 0.0  # since when there is no request
        self._barrier = inf  # when the PING behind the first GOAWAY is no longer waited for

    def connectionMade(self) -> None:
        super().connectionMade()
        self.peer = peer_of(self.transport)
        if ITCPTransport.providedBy(self.transport):
            # Tunnels, and streams that may last for days, have no clock: the kernel finds out whose client vanished.
            self.transport.setTcpKeepAlive(True)
        self._quiet = self.now()
        self.watch(self.context.timeouts.client_idle or inf)

    def most_trailers(self) -> int:
        return self.context.limits.headers

    # -- requests

    def RequestReceived(self, event: Any) -> None:
        """HEADERS."""
        number = event.stream_id
        if self.final or len(self.streams) >= self.options.streams:
            self.context.count("stream_refused")
            self.reset(number, REFUSED_STREAM)
            self.gave_up()
            return
        half = Answer(self)
        self.streams[number] = half
        half.number = number
        half.heard = half.moved = half.mark = self.heard
        ends = event.end_stream
        half.came = ends
        limits = self.context.limits
        reason: Abort | None = None
        body: IBody | None = None
        try:
            made = asked(event.headers, limits)
            if ends and (made.length or made.upgrade is not None):
                raise Bad("END_STREAM beside a length or a tunnel", 400, "bad_framing")
            if made.length and limits.body and made.length > limits.body:
                raise Bad("content too large", 413, "body_too_large")
        except Bad as bad:
            reason = self._refusal(half, bad)
            if self.dead:
                return
            method, target = bad.start
            request = Request(
                method, target, leftovers(bad.fields)[0], None, b"", b"", None, half.interim, "HTTP/2", self.peer
            )
            half.reading = ENDED if ends else CUT
        else:
            method = made.method
            if ends:
                half.reading = ENDED
                if made.expect:
                    made.fields.remove(b"expect")
            else:
                half.due = made.length
                body = Body(half, made.length)
                half.expect = made.expect
            request = Request(
                method,
                made.target,
                made.fields,
                body,
                made.authority,
                b"https" if self.peer.tls else b"http",  # what we see, whatever the client believes
                made.upgrade,
                half.interim,
                "HTTP/2",
                self.peer,
            )
        half.method = method
        request.malformed = reason
        half.open(request, self.began)
        if body is not None:
            self.watch(self._look(self.context.timeouts))
        self._new.append(half)

    def _refusal(self, half: Answer, bad: Bad) -> Abort:
        self.context.count(bad.event)
        half.worth = False
        self.gave_up()
        return Abort(bad.text, CLIENT, bad.status, error="http_request_error", detail=bad.text)

    def hidden(self, number: int) -> None:
        # A message that the engine judged malformed without a word.  It reaches counters and record; nobody hears it.
        self.context.count("malformed_stream")
        self.gave_up()
        if self.dead:
            return
        half = Answer(self)
        half.number, half.reading = number, CUT
        request = Request(b"", b"", (), None, b"", b"", None, half.interim, "HTTP/2", self.peer)
        text = "malformed, as the engine of HTTP/2 found"
        request.malformed = Abort(text, CLIENT, 400, error="http_request_error", detail=text)
        half.open(request, self.began)
        self._new.append(half)

    def fire(self, stream: Stream) -> None:
        assert isinstance(stream, Answer)
        request = stream.request
        if request is None:  # reset within the same read: it costs nobody anything
            return
        if not self.final:
            self.newest = max(self.newest, stream.number)
        stream.begin(self.service)
        if stream.number not in self.streams and request.malformed is not None:  # nobody hears the answer
            stream.lost(request.malformed)

    def lose(self, stream: Stream, reason: Abort) -> None:
        if stream in self._new and stream.request is not None:  # it will have its record, as all that are none
            stream.request.malformed = reason
        else:
            stream.lost(reason)

    def grown(self, stream: Stream) -> None:
        most, ledger, request = self.context.limits.body, stream.ledger, stream.request
        if not most or ledger is None or request is None:
            return
        if ledger.received > most and stream.reading == OPEN and request.upgrade is None:
            assert isinstance(stream, Answer)
            self.context.count("body_too_large")
            text = "content too large"
            stream.broken(Abort(text, CLIENT, 413, error="http_request_error", detail=text))

    # -- ends

    def dropped(self, stream: Stream, code: int) -> Abort:
        return CLIENT_GONE  # its RST_STREAM was counted when it came

    def spoilt(self, stream: Stream, text: str) -> Abort:
        return Abort(text, CLIENT, 400, error="http_request_error", detail=text)

    def blame(self, text: str) -> Abort:
        return Abort(f"{self.peer.ip or 'the client'}: {text}", CLIENT, 400, error="http_request_error")

    def gone(self, half: Half) -> Abort:
        return CLIENT_GONE if self.why is None else self.why

    def GoAwayReceived(self, event: Any) -> None:
        """The client asks for nothing more."""
        if event.error_code:
            self.context.count("peer_complained")
            self.why = Abort(f"the client said {code_name(event.error_code)}", CLIENT, 499)
        self.departs = True
        if not self.streams:
            self.rest()

    def leaves(self) -> None:
        self.draining = self.final = True
        if not self.streams:
            self.rest()

    def PingAcknowledged(self, event: Any) -> None:
        """The client has read what was said before."""
        if event.opaque_data == BARRIER and self.draining:
            self._finish()

    def rest(self) -> None:
        self._quiet = self.now()
        if self.final or self.departs:
            self.context.wheel.soon(self._farewell)
        else:
            self.watch(self.context.timeouts.client_idle or inf)

    def drain(self) -> None:
        if self.draining or self.dead:
            return
        self.draining = True
        self.pull()
        self.put(goaway(LAST, NO_ERROR))
        try:
            self.engine.ping(BARRIER)
        except ERRORS:
            self.close()
            return
        self._barrier = self.now() + PATIENT
        self.watch(PATIENT)
        self.due()

    def _finish(self) -> None:
        """What the client sends from now on it sends although it knows."""
        if not self.final:
            self.final, self._barrier = True, inf
            if self._new:  # of this very read, and looked at when it is used up
                self.newest = max(self.newest, self._new[-1].number)
            if not self.streams:
                self._farewell()
            else:
                self.pull()
                self.put(goaway(self.newest, NO_ERROR))

    def _farewell(self) -> None:
        """The last answer is out."""
        if not self.streams:
            self.farewell()

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
            self._leave_it(timeout(Phase.CLIENT_STALL, CLIENT, stall))
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
        """Of the connection: the rest of a frame, a request."""
        left = inf
        if self.began and times.client_header:
            left = self.began + times.client_header - now
            if left <= 0:
                self.context.count("client_header_timeout")
                self._leave_it(timeout(Phase.CLIENT_HEADER, CLIENT, times.client_header))
                return inf
        if not self.streams and times.client_idle:
            idle = self._quiet + times.client_idle - now
            if idle <= 0:
                if not self.draining:
                    self.context.count("client_idle_timeout")
                self.farewell()
                return inf
            left = min(left, idle)
        return left

    def _late_stream(self, now: float, times: Timeouts, stream: Answer) -> float:
        """Of one request: what its client takes, and what it sends."""
        left, stall = inf, times.client_stall
        held = self.queued(stream)
        if stall and (held or stream.finished):
            if held != stream.held:
                stream.held, stream.moved = held, now
            due = stream.moved + stall - now
            if due <= 0:
                self.context.count("client_stall_timeout")
                self._end(stream, timeout(Phase.CLIENT_STALL, CLIENT, stall))
                return inf
            left = min(left, due, self.look())
        request = stream.request
        if request is None or request.upgrade is not None:
            return left
        if stream.reading == OPEN and not stream.paused and not stream.expect:
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
            self._end(stream, reason)

    def _end(self, stream: Answer, reason: Abort) -> None:
        stream.lost(reason)
        stream.cancel(CANCEL)

    def _leave_it(self, reason: Abort) -> None:
        """The client is not there, or as good as that."""
        self.why = reason
        self.put(goaway(self.newest, NO_ERROR, reason.reason))
        self.send()
        self.abort()


specialised(Server)
