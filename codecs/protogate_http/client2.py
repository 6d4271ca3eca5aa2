"""
The asking side of HTTP/2: what a pool holds.

Rules
- It is ready when the server's SETTINGS were read: they say how many requests it takes at once, and whether it can do
  what only some can.  A server says them unasked; what is sent before, and is too much, is refused.
- C{capacity} is what the server takes at once, less what is under way.
- C{:scheme} says how this connection is, not that of the client: servers refuse what is neither (Kestrel, IIS), and who
  wants to know the other one has C{X-Forwarded-Proto}.
- A request that the server refused, or that stands above its GOAWAY, was surely not processed (RFC 9113, 8.7).
- A server that is silent while requests are under way is asked for a sign of life.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import ISSLTransport
from zope.interface import classImplements

from protogate.body import Body
from protogate.clocks import download
from protogate.connection import specialised
from protogate.errors import ALWAYS, GATEWAY, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase, departed, timeout
from protogate.halves import ENDED, OPEN, Half
from protogate.interfaces import IClientConnection
from protogate.message import CONNECT, Request, Response
from protogate.pings import Pings
from protogate_http.ask2 import Ask
from protogate_http.engine2 import ERRORS
from protogate_http.fields2 import WEBSOCKET, request_head, told
from protogate_http.frames2 import CANCEL, LAST, NO_ERROR, REFUSED_STREAM, code_name, goaway
from protogate_http.grpc import tell_deadline
from protogate_http.link2 import Link
from protogate_http.semantics import accept, bodyless, key
from protogate_http.shape2 import ENABLE_CONNECT_PROTOCOL, MAX_CONCURRENT_STREAMS
from protogate_http.stream2 import Broken, Stream, spoiled
from protogate_http.wire1 import Bad

if TYPE_CHECKING:
    from protogate.context import Context, Timeouts
    from protogate_http.options2 import Options

INTERIMS: Final = 16
"""Interim responses to one request."""
CONTINUE: Final = 1.0
"""Seconds to wait for the interim response 100 before the body is sent anyway."""
PONG: Final = 20.0
"""Seconds for a sign of life that was asked for, at most."""
UNSAID: Final = 100
"""Requests at once while the server has not said how many."""
ALIVE: Final = b"alive?\0\0"


class Client(Link):
    """
    A connection to a server.

    @ivar limit: requests that the server takes at once.
    """

    def __init__(self, ready: Callable[[Any], None], context: Context, options: Options, engine: str) -> None:
        super().__init__(context, options, engine, True)
        self.ready = ready
        self.limit = UNSAID
        self._scheme = b"http"
        self._greeted = False
        self._pinged = 0.0  # when a sign of life was asked for, or 0.0
        self._pings: Pings | None = None  # those that others asked for

    def connectionMade(self) -> None:
        if ISSLTransport.providedBy(self.transport):
            self._scheme = b"https"
        super().connectionMade()

    def most_trailers(self) -> int:
        return self.context.limits.response_headers

    @property
    def capacity(self) -> int:
        """Requests it would take right now."""
        left = self.limit - len(self.streams)
        return left if left > 0 and self._greeted and not self.draining and not self.dead and self._takes() else 0

    def _takes(self) -> bool:
        """Whether the engine does: it may have read a GOAWAY that it tells of when this read is handled that far."""
        try:
            return bool(self.engine.can_send_request)
        except ERRORS:
            return False

    # -- requests

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(self._full())
        upgrade = request.upgrade
        extended = upgrade is not None and upgrade != CONNECT
        if extended and not self._extends():
            return fail(self._cannot())
        if request.deadline is not None:
            tell_deadline(request, self.now())
        try:
            fields = request_head(request, self._scheme, self.context.count)
        except Bad as bad:
            self.context.count(bad.event)
            return fail(Abort(bad.text, GATEWAY, 500, NEVER))
        half = Ask(self, fields)
        half.method, half.upgrade = request.method, upgrade
        half.heard = half.moved = self.now()
        if request.body is not None and upgrade is None and request.headers.get(b"expect") == b"100-continue":
            half.expect = True
        answer = half.begin(request)
        if OPEN in (half.reading, half.writing):
            wait = CONTINUE if half.expect else self.context.timeouts.response_head or inf
            self.watch(min(wait, self.look(), self.options.ping or inf))
        return answer

    def _extends(self) -> bool:
        return bool(self.engine.remote_settings.get(ENABLE_CONNECT_PROTOCOL) == 1)

    def _cannot(self) -> Abort:
        self.context.count("extended_connect_refused")
        text = "the upstream has no extended CONNECT (RFC 8441)"
        return Abort(text, UPSTREAM, 502, NEVER, error="http_upgrade_failed", detail=text)

    @staticmethod
    def _full() -> Abort:
        return Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS, error="connection_terminated")

    def request(self, stream: Ask, fields: list[Any], ends: bool) -> None:
        """HEADERS, and with them a number."""
        number = stream.number = int(self.engine.send_request(fields, end_stream=ends))
        self.streams[number] = stream
        self.budget.earn()  # that a server refuses or gives up requests is its right
        if number >= LAST - 2:
            self.draining = True
        self.due()

    def _asked_on(self, number: int) -> Ask | None:
        stream = self.streams.get(number)
        return stream if isinstance(stream, Ask) else None

    # -- answers

    def SettingsReceived(self, event: Any) -> None:
        """SETTINGS."""
        before = self.capacity
        self.limit = min(self.engine.remote_settings.get(MAX_CONCURRENT_STREAMS, UNSAID), self.options.streams)
        self._greeted = True
        if not before and self.capacity:
            self.ready(self)

    def InformationalResponseReceived(self, event: Any) -> None:
        """A 1xx."""
        stream = self._asked_on(event.stream_id)
        if stream is None:
            return
        stream.heard = self.heard
        stream.interims += 1
        try:
            if stream.interims > INTERIMS:
                self.context.count("too_many_interims")
                raise Broken("too many interim responses")
            made = told(event.headers, self.context.limits)
            if made.status == 101:
                raise Broken("there is no 101 in HTTP/2")  # RFC 9113, 8.6
        except (Bad, Broken) as problem:
            spoiled(stream, problem.text)
            return
        if made.status == 100:
            self._go(stream)
        elif stream.request is not None:
            stream.request.interim(Response(made.status, made.fields))

    def _go(self, stream: Ask) -> None:
        if stream.expect:
            stream.expect = False
            stream.upload()

    def ResponseReceived(self, event: Any) -> None:
        """The final response."""
        stream = self._asked_on(event.stream_id)
        if stream is None or stream.request is None:
            return
        stream.heard = self.heard
        if not stream.flushed and stream.writing == ENDED and not self.queued(stream):
            stream.whole(stream.moved)  # nobody had told yet
        request, ends = stream.request, event.end_stream
        stream.came = ends
        try:
            made = told(event.headers, self.context.limits)
        except Bad as bad:
            self.context.count("malformed_response" if bad.event == "malformed_head" else bad.event)
            spoiled(stream, bad.text)
            return
        status, length = made.status, made.length
        if status < 200 or (ends and length and not bodyless(request.method, status)):
            spoiled(stream, "a response that is none")
            return
        upgrade = request.upgrade
        if upgrade is not None and upgrade != CONNECT and 200 <= status < 300:
            status, length = 101, None
            mine = key(request)
            made.fields.remove(b"sec-websocket-accept")  # of what stands behind the server
            if upgrade == WEBSOCKET and mine is not None:
                made.fields.append((b"sec-websocket-accept", accept(mine)))
        if ends and length is not None and bodyless(request.method, status):
            made.fields.append((b"content-length", b"%d" % length))
        body = None
        if not ends:
            stream.due = None if bodyless(request.method, status) and status != 101 else length
            body = Body(stream, length)
        stream.expect = False
        stream.headed(Response(status, made.fields, body, "HTTP/2"))
        self._new.append(stream)
        if ends:
            stream.ended()
        else:
            self.watch(self.context.timeouts.response_stall or inf)

    def fire(self, stream: Stream) -> None:
        assert isinstance(stream, Ask)
        stream.fire()

    def ping(self) -> Deferred[None]:
        """See L{IPingingCodec}."""
        if self.dead:
            return fail(self._departed())
        if self._pings is None:
            self._pings = Pings()
        data, pong = self._pings.ask()
        try:
            self.engine.ping(data)
        except ERRORS:
            self._pings.end(self._full())
        self.due()
        return pong

    def PingAcknowledged(self, event: Any) -> None:
        """It lives."""
        if event.opaque_data == ALIVE:
            self._pinged = 0.0
        elif self._pings is not None:
            self._pings.came(event.opaque_data)

    # -- ends

    def forget(self, stream: Stream) -> None:
        full = len(self.streams) >= self.limit
        super().forget(stream)
        if full and self.capacity:
            self.ready(self)

    def GoAwayReceived(self, event: Any) -> None:
        """The server takes nothing more, and has not looked at what is above that number."""
        self.draining = True
        code = event.error_code
        if code:
            self.context.count("peer_complained")
            self.why = Abort(
                f"the upstream ended the connection: {code_name(code)}", UPSTREAM, 502, IDEMPOTENT,
                error="connection_terminated",
            )  # fmt: skip
        for stream in list(self.streams.values()):
            if stream.number > event.last_stream_id:
                self.forget(stream)
                stream.lost(self.unread(stream))
        if not self.streams:
            self.rest()

    def leaves(self) -> None:
        self.draining = True
        if not self.streams:
            self.rest()

    def dropped(self, stream: Stream, code: int) -> Abort:
        name = code_name(code)
        if code == REFUSED_STREAM and stream.response is None:
            return Abort(
                "the upstream refused it unread: REFUSED_STREAM",
                UPSTREAM,
                502,
                ALWAYS,
                error="destination_unavailable",
            )
        if stream.response is None:
            return Abort(f"the upstream gave it up: {name}", UPSTREAM, 502, NEVER, error="connection_terminated")
        return Abort(f"the upstream gave it up: {name}", UPSTREAM, 502, NEVER, error="http_response_incomplete")

    def unread(self, stream: Stream) -> Abort:
        return Abort("the upstream drains, and has not looked at it", UPSTREAM, 502, ALWAYS)

    def spoilt(self, stream: Stream, text: str) -> Abort:
        error = "http_response_header_section_size" if "too large" in text else "http_protocol_error"
        return Abort(f"bad response: {text}", UPSTREAM, 502, NEVER, error=error)

    def blame(self, text: str) -> Abort:
        return Abort(f"bad frame: {text}", UPSTREAM, 502, NEVER, error="http_protocol_error")

    def gone(self, half: Half) -> Abort:
        return departed(half.response is not None) if self.why is None else self.why

    def _departed(self) -> Abort:
        return departed(False) if self.why is None else self.why

    def end(self) -> None:
        super().end()
        if self._pings is not None:
            self._pings.end(self._departed())

    def rest(self) -> None:
        self._pinged = 0.0
        if self.draining and not self.dead:
            self.context.wheel.soon(self._closes)

    def _closes(self) -> None:
        if not self.streams and not self.dead:
            self.pull()
            self.close()

    def drain(self) -> None:
        if self.draining or self.dead:
            return
        self.draining = True
        self.put(goaway(0, NO_ERROR))
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
            return self._leave_it(timeout(Phase.UPSTREAM_STALL, UPSTREAM, stall))
        left = min(self.flushes(), self.look() if self.unsent() else inf)
        ping = self.options.ping
        if ping and self.streams:
            left = min(left, self._alive(now, ping))
            if self.dead:
                return inf
        for stream in list(self.streams.values()):
            assert isinstance(stream, Ask)
            left = min(left, self._late_stream(now, times, stream))
        return left

    def _alive(self, now: float, ping: float) -> float:
        """Seconds until the next sign of life is asked for, or missed."""
        quiet = now - self.heard
        if quiet < ping:
            self._pinged = 0.0
            return ping - quiet
        if not self._pinged:
            self._pinged = now
            try:
                self.engine.ping(ALIVE)
            except ERRORS:
                return ping
            self.due()
        wait = self._pinged + min(ping, PONG) - now
        if wait <= 0.0:
            self.context.count("heartbeat_timeout")
            return self._leave_it(Abort("no sign of life from the upstream", UPSTREAM, 504, IDEMPOTENT))
        return wait

    def _late_stream(self, now: float, times: Timeouts, stream: Ask) -> float:
        """Of one request: its window, its answer."""
        left, stall = inf, times.upstream_stall
        if stream.expect and now >= stream.moved + CONTINUE:
            self._go(stream)
        held = self.queued(stream)
        if stall and (held or stream.finished):
            if held != stream.held:
                stream.held, stream.moved = held, now
            due = stream.moved + stall - now
            if due <= 0:
                self.context.count("upstream_stall_timeout")
                return self._end(stream, timeout(Phase.UPSTREAM_STALL, UPSTREAM, stall))
            left = min(left, due, self.look())
        if stream.response is not None:
            wait, reason = download(stream, now, times, self.context.count)
            return min(left, wait) if reason is None else self._end(stream, reason)
        if stream.writing == OPEN and stream.upgrade is None:
            return min(left, stream.moved + CONTINUE - now if stream.expect else self.look())
        return min(left, self._late_head(now, times, stream))

    def _late_head(self, now: float, times: Timeouts, stream: Ask) -> float:
        seconds = times.response_head
        if not seconds:
            return inf
        if not stream.flushed and (self.unsent() or self.queued(stream)):
            stream.moved = now  # the last byte of the request has not left
        left: float = (stream.flushed or stream.moved) + seconds - now
        if left <= 0:
            self.context.count("response_head_timeout")
            return self._end(stream, timeout(Phase.RESPONSE_HEAD, UPSTREAM, seconds))
        return left

    def _end(self, stream: Ask, reason: Abort) -> float:
        stream.cancel(CANCEL)
        stream.lost(reason)
        return inf

    def _leave_it(self, reason: Abort) -> float:
        """The server is not there, or as good as that."""
        self.why = reason
        self.abort()
        return inf


classImplements(Client, IClientConnection)
specialised(Client)
