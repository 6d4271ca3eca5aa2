"""
The asking side of a connection: what a pool holds, and what L{protogate_sotp.client.SotpClient} is made of.

Rules
- It may be used before the server's HELLO was read; only a head that may be too large then waits for it.
- C{capacity} is what the server takes at once, less what is under way.
- A request that the server refused, or that stands above its GOAWAY, was surely not processed.
- A heartbeat is sent when nothing else was, or when nothing came: a server that has nothing to say must not seem dead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred, fail
from zope.interface import classImplements

from protogate.body import Body, Whole
from protogate.clocks import download
from protogate.connection import specialised
from protogate.errors import (
    ALWAYS,
    CLIENT,
    GATEWAY,
    IDEMPOTENT,
    NEVER,
    UPSTREAM,
    Abort,
    Phase,
    departed,
    overdue,
    timeout,
)
from protogate.halves import OPEN, Half
from protogate.interfaces import IBody, IClientConnection
from protogate.message import Request, Response
from protogate.pings import Pings
from protogate_sotp.ask import Ask
from protogate_sotp.codings import CAPABILITIES, IDS, unpacking
from protogate_sotp.early import Early
from protogate_sotp.faults import CODES, DEADLINE, NONE, REFUSED, TIMEOUT, Fault
from protogate_sotp.fields import Bad
from protogate_sotp.frames import END, INTERIM, LEAST, MOST_STREAM, PING, frame, goaway
from protogate_sotp.heads import Told, read_response, write_request
from protogate_sotp.link import MISSED, Greeting, Link
from protogate_sotp.streams import BODY, DONE, HEAD, Stream

if TYPE_CHECKING:
    from protogate.context import Context, Timeouts

MOST_WAIT: Final = (1 << 32) - 1
"""Milliseconds of a deadline that can be said."""
INTERIMS: Final = 16
"""Interim responses to one request."""
CONTINUE: Final = 1.0
"""Seconds to wait for the interim response 100 before the body is sent anyway."""
BARE: Final = frozenset((204, 205, 304))
"""Statuses of answers that have no content."""
_EXPECT: Final = (b"expect", b"100-continue")
_PING: Final = frame(PING, 0, 0, b"alive?\0\0")


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(Link):
    """A connection to a server."""

    number: int = -1
    _up: bool = False
    _told: int = 0  # bytes written when the last heartbeat was due
    _next: float = inf  # when the next one is
    _early: Early | None = None

    def __init__(self, ready: Callable[[Any], None], context: Context, greeting: Greeting) -> None:
        super().__init__(context, greeting)
        self.ready = ready
        self._pings: Pings | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.put(self.hello.pack())
        self._up = True
        self.ready(self)

    def answered(self) -> None:
        before = LEAST.streams - len(self.streams)
        if self.beat:
            self._told, self._next = self._written, self.now() + self.beat
            self.watch(float(self.beat))
        early, self._early = self._early, None
        if early is not None:
            early.begin(self.handle)
        if before <= 0 < self.capacity:
            self.ready(self)

    def incomplete(self) -> None:
        """Whoever waits for the rest has a clock."""

    def most_trailers(self) -> int:
        return self.context.limits.response_headers

    def newest(self) -> int:
        return max(self.number, 0)

    @property
    def capacity(self) -> int:
        """Requests it would take right now."""
        if self.draining or self.dead or not self._up:
            return 0
        left = self.peer_hello.streams - len(self.streams)
        return left if left > 0 else 0

    # -- requests

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS, error="connection_terminated"))
        body, capabilities, deadline = request.body, self.peer_hello.capabilities, request.deadline
        if body is not None and ~capabilities & CAPABILITIES:
            self._unpack(request, body, capabilities)
        wait = 0
        if deadline is not None:
            wait = min(max(round((deadline - self.now()) * 1000), 1), MOST_WAIT)
        try:
            head = write_request(request, capabilities, self.context.count, wait)
            if len(head) > self.peer_hello.heads:
                if not self.greeted:
                    return self._wait(request)
                raise Bad("the head of a request is too large for the upstream", "invalid_request_refused", 500)
        except Bad as bad:
            self.context.count(bad.event)
            return fail(Abort(bad.text, GATEWAY, 500, NEVER))
        number = self.number = self.number + 2
        if number >= MOST_STREAM:
            self.draining = True
        half = Ask(self, number, head, request)
        self.streams[number] = half
        if body is not None and request.upgrade is None and _EXPECT in request.headers:
            half.expect = True
        if deadline is not None:
            half.late = deadline
            self.watch(wait / 1000)
        self.watch(CONTINUE if half.expect else self.context.timeouts.response_head or inf)
        answer = half.begin(request)
        if half.writing == OPEN or half.queue or (not self._turn and self.unsent()):
            self.watch(self.look())
        return answer

    def _wait(self, request: Request) -> Deferred[Response]:
        """Only the server's HELLO says whether it takes this head."""
        if self._early is None:
            self._early = Early()
        seconds = self.context.timeouts.response_head or inf
        self.watch(seconds)
        return self._early.wait(request, self.now() + seconds)

    def flushed(self, whole: bool) -> None:
        if not whole:
            self.watch(self.look())

    def _unpack(self, request: Request, body: IBody, capabilities: int) -> None:
        """What the server cannot unpack is unpacked here."""
        coding = request.headers.get(b"content-encoding")
        if coding is not None and IDS.get(coding, 0) & ~capabilities:
            broken = Abort("the compression of the request is broken", CLIENT, 400, error="http_request_error")
            request.body = unpacking(body, coding, broken)
            request.headers.remove(b"content-encoding")

    def ping(self) -> Deferred[None]:
        """See L{IPingingCodec}."""
        if self.dead:
            return fail(self._departed())
        if self._pings is None:
            self._pings = Pings()
        data, pong = self._pings.ask()
        self.put(frame(PING, 0, 0, data))
        return pong

    def ponged(self, payload: bytes) -> None:
        if self._pings is not None:
            self._pings.came(payload)

    # -- answers

    def told(self, number: int, flags: int, payload: bytes, whole: bytes | None) -> Stream | None:
        stream = self.streams.get(number)
        if stream is None:
            self.closed_stream(number)
            return None
        if stream.state != HEAD:
            raise Fault("wrong_state")
        assert isinstance(stream, Ask)
        stream.hears(self.heard)
        try:
            return self._told_by(stream, flags, payload, whole)
        except Fault as fault:
            self.spoil(stream, fault)
            return None

    def _told_by(self, stream: Ask, flags: int, payload: bytes, whole: bytes | None) -> Stream | None:
        if len(payload) > self.context.limits.response_headers:
            self.context.count("response_headers_too_large")
            raise Fault("large_response")
        try:
            made = read_response(payload, self.hello.capabilities)
        except Bad:
            raise Fault("bad_response") from None
        status, ends = made.status, bool(flags & END)
        if flags & INTERIM:
            if ends or status >= 200 or status == 101:
                raise Fault("bad_response")
            self._interim(stream, Response(status, made.fields))
            return None
        if not _fits(stream, status, ends):
            raise Fault("bad_response")
        body: IBody | None = None
        if ends:
            stream.state, whole = DONE, None
            self._describe(stream, made)
        elif whole is not None and stream.upgrade is None and stream.whole(whole, made.length):
            body = Whole(whole)
        else:
            stream.state, whole = BODY, None
            stream.due = made.length
            body = Body(stream, made.length)
        if body is not None and whole is None and status < 300:
            self._go(stream)  # it answers while it reads: there will be no 100
        stream.expect = False
        stream.headed(Response(status, made.fields, body, "SOTP/1"))
        if whole is not None:
            self.all_of(stream, whole)
        elif ends:
            stream.ended()
        else:
            self.watch(self.context.timeouts.response_stall or inf)
        return stream

    def _describe(self, stream: Ask, made: Told) -> None:
        """A length without content: that of HEAD and 304."""
        if made.length:
            if stream.method != b"HEAD" and made.status != 304:
                raise Fault("too_short")
            made.fields.append((b"content-length", b"%d" % made.length))

    def _interim(self, stream: Ask, response: Response) -> None:
        stream.interims += 1
        if stream.interims > INTERIMS:
            self.context.count("too_many_interims")
            raise Fault("many_interims")
        if response.status == 100:
            self._go(stream)
        elif stream.request is not None:
            stream.request.interim(response)

    def _go(self, stream: Ask) -> None:
        if stream.expect:
            stream.expect = False
            self.cork()
            stream.upload()
            self.uncork()

    def fire(self, stream: Stream) -> None:
        assert isinstance(stream, Ask)
        stream.fire()

    # -- ends

    def forget(self, stream: Stream) -> None:
        before = self.capacity
        super().forget(stream)
        if not before and self.capacity:
            self.ready(self)

    def given_up(self, stream: Stream, code: int, text: str) -> Abort:
        said = f"{CODES.get(code, code)}{': ' if text else ''}{text}"
        if code == REFUSED and stream.response is None:
            return Abort(
                f"the upstream refused it unread: {said}", UPSTREAM, 502, ALWAYS, error="destination_unavailable"
            )
        if code == DEADLINE:
            return Abort(f"the upstream gave it up: {said}", UPSTREAM, 504, NEVER, error="http_response_timeout")
        return Abort(f"the upstream gave it up: {said}", UPSTREAM, 502, NEVER, error="http_response_incomplete")

    def spoilt(self, stream: Stream, fault: Fault) -> Abort:
        error = "http_response_header_section_size" if fault.name == "large_response" else "http_protocol_error"
        return Abort(f"bad response: {fault.text}", UPSTREAM, 502, NEVER, error=error)

    def blame(self, fault: Fault) -> Abort:
        return Abort(f"bad frame: {fault.text}", UPSTREAM, 502, NEVER, error="http_protocol_error")

    def gone(self, half: Half) -> Abort:
        return departed(half.response is not None) if self.why is None else self.why

    def _departed(self) -> Abort:
        return departed(False) if self.why is None else self.why

    def end(self) -> None:
        super().end()
        if self._pings is not None:
            self._pings.end(self._departed())
        early, self._early = self._early, None
        if early is not None:
            early.end(Abort("the upstream ended the connection before its HELLO", UPSTREAM, 502, ALWAYS))

    def leaves(self, last: int, code: int, text: str) -> None:
        self.draining = True
        said = "the upstream drains"
        if code:
            self.context.count("peer_complained")
            said = f"the upstream ended the connection: {CODES.get(code, code)}: {text}"
            self.why = Abort(said, UPSTREAM, 502, IDEMPOTENT, error="connection_terminated")
        for stream in list(self.streams.values()):
            if stream.number > last:
                self.forget(stream)
                stream.hush()
                stream.lost(Abort(f"{said}; it has not looked at this request", UPSTREAM, 502, ALWAYS))
        if not self.streams:
            self.rest()

    def rest(self) -> None:
        if self.draining and not self.dead:
            self.close()

    def drain(self) -> None:
        if self.draining or self.dead:
            return
        self.draining = True
        self.put(goaway(0, NONE))
        if not self.streams:
            self.close()

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.upstream_stall

    def late(self, now: float) -> float:
        times = self.context.timeouts
        stall = times.upstream_stall
        if stall and self.stalled(now) >= stall:
            self.context.count("upstream_stall_timeout")
            return self._give_up(timeout(Phase.UPSTREAM_STALL, UPSTREAM, stall))
        left = self.look() if self.unsent() else inf
        if self._early is not None:
            seconds = times.response_head or inf
            self._early.end(timeout(Phase.RESPONSE_HEAD, UPSTREAM, seconds, ALWAYS), now)
            left = min(left, seconds)
        if self.beat:
            if now - self.heard >= MISSED * self.beat:
                self.context.count("heartbeat_timeout")
                return self._give_up(Abort("no heartbeat from the upstream", UPSTREAM, 504, IDEMPOTENT))
            left = min(left, self._beats(now))
        for stream in list(self.streams.values()):
            assert isinstance(stream, Ask)
            left = min(left, self._late_stream(now, times, stream))
        return left

    def _beats(self, now: float) -> float:
        """Seconds until the next heartbeat; sends one when it is due."""
        if now >= self._next:
            if self._written == self._told or self.heard <= self._next - self.beat:
                self.put(_PING)
            self._next = now + self.beat
            self._told = self._written
        return self._next - now

    def _late_stream(self, now: float, times: Timeouts, stream: Ask) -> float:
        """Of one request: its deadline, its credit, its answer."""
        left, stall = inf, times.upstream_stall
        if stream.late:
            left = stream.late - now
            if left <= 0:
                self.context.count("deadline_exceeded")
                return self._end(stream, DEADLINE, overdue(UPSTREAM))
        if stream.expect and now >= stream.moved + CONTINUE:
            self._go(stream)
        if stream.queue and stall:
            due = stream.moved + stall - now
            if due <= 0:
                self.context.count("upstream_stall_timeout")
                return self._end(stream, TIMEOUT, timeout(Phase.UPSTREAM_STALL, UPSTREAM, stall))
            left = min(left, due)
        if stream.response is not None:
            wait, reason = download(stream, now, times, self.context.count)
            return min(left, wait) if reason is None else self._end(stream, TIMEOUT, reason)
        if stream.writing == OPEN and stream.upgrade is None:
            return min(left, stream.moved + CONTINUE - now if stream.expect else self.look())
        return min(left, self._late_head(now, times, stream))

    def _late_head(self, now: float, times: Timeouts, stream: Ask) -> float:
        seconds = times.response_head
        if not seconds:
            return inf
        if self.unsent():
            stream.moved = now  # the last byte of the request has not left
        left: float = stream.moved + seconds - now
        if left <= 0:
            self.context.count("response_head_timeout")
            return self._end(stream, TIMEOUT, timeout(Phase.RESPONSE_HEAD, UPSTREAM, seconds))
        return left

    def _end(self, stream: Ask, code: int, reason: Abort) -> float:
        stream.cancel(code, reason.detail or reason.reason)
        stream.lost(reason)
        return inf

    def _give_up(self, reason: Abort) -> float:
        """The server is not there, or as good as that."""
        self.why = reason
        self.abort()
        return inf


def _fits(stream: Ask, status: int, ends: bool) -> bool:
    """Whether this may be the final answer, and ends there, or does not."""
    if stream.upgrade is not None:
        return status >= 200 or (status == 101 and not ends)
    return status >= 200 and (ends or (status not in BARE and stream.method != b"HEAD"))


classImplements(Client, IClientConnection)
specialised(Client)
