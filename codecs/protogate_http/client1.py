"""
The asking side of HTTP/1.1 (RFC 9112).

Rules
- The same strict reader as towards clients: an answer with two readings is an Abort 502, and its connection is dropped.
- A connection is used again only when both messages were complete, neither side said close, and not one byte came that
  belonged to no answer.
- The clock for the response head starts when the last byte of the request was flushed, not when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from zope.interface import classImplements

from protogate.body import Body, Whole
from protogate.connection import specialised
from protogate.errors import ALWAYS, GATEWAY, NEVER, UPSTREAM, Abort, Phase, departed, timeout
from protogate.halves import ENDED, OPEN, Calling, Half
from protogate.interfaces import IBody, IClientConnection
from protogate.message import Field, Headers, Request, Response
from protogate_http.grpc import tell_deadline
from protogate_http.semantics import Special, accept, bodyless, compose, key, new_key, split
from protogate_http.stream1 import Stream
from protogate_http.wire1 import CHUNKED, CLOSE, METHODS, NONE, TOKEN, Bad, Head, Responses, visible

if TYPE_CHECKING:
    from protogate.context import Context

CONTINUE: Final = 1.0
"""Seconds to wait for 100 Continue before the body is sent anyway (RFC 9110, 10.1.1)."""
SOON: Final = 0.2
"""Seconds within which a flush that nobody saw is taken to have come with the write."""
INTERIMS: Final = 16
"""Interim responses to one request; an upstream that sends more is at fault."""
_CONTENT: Final = frozenset((b"POST", b"PUT", b"PATCH"))
"""Methods that want a content-length even without content (RFC 9110, 8.6)."""
_CODES: Final = {b"%d" % status: status for status in range(100, 600)}


class Ask(Calling):
    """
    One request to an upstream.

    @ivar client: C{connection}, as what it is.
    @ivar start: the request line.
    @ivar method: of the request.
    @ivar expect: 100 Continue is awaited.
    @ivar upgrade: C{request.upgrade}.
    @ivar key: our own WebSocket key, when the client had none.
    @ivar since: when it began, or when its last byte was last seen unflushed.
    @ivar sent: when its last byte was flushed, or 0.0.
    @ivar interims: interim responses so far.
    """

    __slots__ = ("client", "expect", "interims", "key", "method", "sent", "since", "start", "upgrade")

    def __init__(self, connection: Client, request: Request, start: bytes) -> None:
        super().__init__(connection)
        self.client = connection
        self.start = start
        self.method, self.upgrade = request.method, request.upgrade
        self.expect = False
        self.key: bytes | None = None
        self.since = connection.now()
        self.sent = 0.0
        self.interims = 0

    def ask(self, request: Request, last: bool) -> None:
        connection, body = self.client, request.body
        connection.left, connection.chunked = None, False
        lines = [self.start, b"host: %b\r\n" % request.authority]
        options = compose(lines, request.headers, connection.context.count)
        method, hop = request.method, b""
        if b"te" in options:
            lines.append(b"te: trailers\r\n")
            hop = b"te"
        if request.upgrade is not None:
            if method != b"CONNECT":
                hop = b"upgrade"
                lines.append(b"upgrade: %b\r\n" % request.upgrade)
                if key(request) is None:
                    mine = self.key = new_key()
                    lines.append(b"sec-websocket-key: %b\r\n" % mine)
                    if request.headers.get(b"sec-websocket-version") is None:  # RFC 8441 keeps it
                        lines.append(b"sec-websocket-version: 13\r\n")
        elif body is not None:
            self.expect = (b"expect", b"100-continue") in request.headers
            length = connection.left = body.length
            if length is not None:
                lines.append(b"content-length: %d\r\n" % length)
            else:
                connection.chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        elif method in _CONTENT:
            lines.append(b"content-length: 0\r\n")
        if hop:
            lines.append(b"connection: %b\r\n" % hop)
        lines.append(b"\r\n")
        connection.put(b"".join(lines))

    def waits(self) -> bool:
        return self.expect

    def write(self, data: bytes) -> None:
        self.client.body_out(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.client.body_end(self, trailers)
        if not self.tunnel and self.writing == ENDED:
            self.client.written(self)

    def reset(self, reason: Abort) -> None:
        self.client.half = None
        if self.tunnel:
            self.client.break_off()
        else:
            self.client.abort()

    def over(self) -> None:
        self.client.over(self)

    def pauseProducing(self) -> None:
        self.client.hold(True)

    def resumeProducing(self) -> None:
        self.client.hold(False)


specialised(Ask)


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(Stream):
    """
    A connection to an upstream.

    @ivar capacity: 1 while it would take a request, else 0.
    @ivar half: the current request, or None.
    """

    def __init__(self, ready: Callable[[Client], None], context: Context) -> None:
        super().__init__(context, Responses(context.limits))
        self.capacity = 0
        self.half: Ask | None = None
        self._keep = True
        self._heard = False  # some of the response was read
        self.times = context.timeouts  # of the request under way
        self.ready = ready

    def connectionMade(self) -> None:
        super().connectionMade()
        self.capacity = 1
        self.ready(self)

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS, error="connection_terminated"))
        method, authority, upgrade = request.method, request.authority, request.upgrade
        target = authority if method == b"CONNECT" else request.target  # RFC 9112, 3.2.3
        start = b"%b %b HTTP/1.1\r\n" % (method, target)
        proper = (method in METHODS or TOKEN(method)) and target and visible(target) and visible(authority)
        if not proper or not (upgrade is None or TOKEN(upgrade)):
            self.context.count("invalid_request_refused")
            return fail(Abort("a request that cannot be written as HTTP/1.1", GATEWAY, 500, NEVER))
        if request.deadline is not None:
            tell_deadline(request, self.now())
        half = self.half = Ask(self, request, start)
        self.capacity = 0
        self._keep, self._heard = True, False
        self.wire.limits, self.times = self.context.limits, self.context.timeouts
        answer = half.begin(request)
        if half is self.current() and not self.dead:  # asked anew: it may be over by now
            if half.writing == ENDED:
                self.written(half)
            elif half.expect:
                self.watch(CONTINUE)
            else:
                self.watch(self.look())
        return answer

    def current(self) -> Ask | None:
        return self.half

    def forget(self) -> None:
        self.half = None

    # -- reading

    def dataReceived(self, data: bytes) -> None:
        if self.half is None and not self.dead:
            self.context.count("unsolicited_bytes")
            self.abort()  # never use this connection again: the next request would get a poisoned answer
            return
        self._heard = True
        super().dataReceived(data)

    def wants(self) -> bool:
        half = self.half
        return not self._held and half is not None and half.reading == OPEN

    def headed(self, head: Head) -> None:
        half = self.half
        assert half is not None
        minor, code = head.start
        status, request = _CODES[code], half.request
        fields, special = split(head.fields)
        if status < 200 and status != 101:
            self._interim(half, Response(status, fields))
            return  # the next thing is another head
        http10 = minor == b"0"
        if http10 and special.length == CHUNKED:
            raise Bad("Transfer-Encoding in HTTP/1.0")
        if b"close" in special.options or (http10 and b"keep-alive" not in special.options):
            self._keep = False
        length = self._length(half, status, special, fields)
        whole = self.wire.all(length)
        body: IBody | None = None
        if whole is not None:
            body = Whole(whole)
        elif length:
            body = Body(half, length if length > 0 else None)
        half.expect = False
        if not half.sent and half.writing != OPEN:
            self.sent(half, half.since)  # it answers, so it has read it all
        half.headed(Response(status, fields, body, "HTTP/1.0" if http10 else "HTTP/1.1"))
        self.fresh = True
        if whole is not None:
            half.incoming = None  # nothing of it is to come
            return
        self.wire.body(length)
        if body is not None and request is not None:
            self.watch(self.times.response_stall or inf)

    def _length(self, half: Ask, status: int, special: Special, fields: Headers) -> int:
        """How the body of a final response is delimited (RFC 9112, 6.3)."""
        length = special.length
        if status == 101:
            if half.upgrade is None or half.method == b"CONNECT" or half.upgrade not in special.upgrade:
                raise Bad("101 that nobody asked for")
            if half.key is not None:
                if fields.get(b"sec-websocket-accept") != accept(half.key):
                    raise Bad("wrong sec-websocket-accept")
                fields.remove(b"sec-websocket-accept")
            return CLOSE
        if half.method == b"CONNECT" and status < 300:
            return CLOSE
        if bodyless(half.method, status):
            if length is not None and length >= 0 and status != 204:
                fields.append((b"content-length", b"%d" % length))
            return NONE
        return CLOSE if length is None else length

    def _interim(self, half: Ask, response: Response) -> None:
        half.interims += 1
        if half.interims > INTERIMS:
            raise Bad("too many interim responses", 502, "too_many_interims")
        if response.status == 100:
            self._go(half)
        elif half.request is not None:
            half.request.interim(response)

    def _go(self, half: Ask) -> None:
        if half.expect:
            half.expect = False
            half.upload()
            self.watch(self.look())

    def got(self, data: bytes) -> None:
        assert self.half is not None
        self.half.received(data)

    def tail(self, trailers: list[Field] | None) -> None:
        half = self.half
        assert half is not None
        self._held = False
        fresh, self.fresh = self.fresh, False
        half.ended(trailers)  # over(): the connection is free before the answer is known
        if fresh:
            half.fire()

    def fire(self) -> None:
        assert self.half is not None
        self.half.fire()

    # -- ends

    def over(self, half: Ask) -> None:
        """Both messages are complete, or the rest of ours is of no use."""
        if self.dead:
            return
        self.half = None
        if half.tunnel or not self._keep or self.draining or half.writing != ENDED or self.wire.pending():
            self.close()
            return
        self.capacity = 1
        self.ready(self)

    def bad(self, error: Bad) -> None:
        self.context.count("malformed_response" if error.event == "malformed_head" else error.event)
        kind = (
            "http_response_header_section_size"
            if error.event == "response_headers_too_large"
            else ("http_protocol_error")
        )
        self._fail(Abort(f"bad response: {error.text}", UPSTREAM, 502, NEVER, error=kind))

    def _fail(self, reason: Abort) -> None:
        half, self.half = self.half, None
        self.fresh = False
        self.wire.clear()
        self.capacity = 0
        if half is not None:
            half.lost(reason)
        self.abort()

    def eof(self) -> None:
        half = self.half
        if half is None:
            self.close()
        elif half.response is not None and self.wire.eof():
            self._keep = False
            half.ended()  # the end of the connection was the end of the body
        else:
            self.abort()

    def gone(self, half: Half) -> Abort:
        if half.response is None and self._heard:
            return Abort(
                "the upstream closed within its response head", UPSTREAM, 502, error="http_response_incomplete"
            )
        return departed(half.response is not None)

    def connectionLost(self, reason: Failure) -> None:
        self.capacity = 0
        if not self.dead:
            self.drained()
            half = self.half
            if half is not None and half.response is not None and reason.check(ConnectionDone) and self.wire.eof():
                self.dead = True
                half.ended()  # a transport that cannot half-close says both in one
        super().connectionLost(reason)

    def abort(self) -> None:
        self.capacity = 0
        super().abort()

    def close(self) -> None:
        self.capacity = 0
        super().close()

    def drain(self) -> None:
        self.draining, self.capacity = True, 0
        if self.half is None and not self.dead:
            self.close()

    # -- clocks

    def patience(self) -> float:
        return self.times.upstream_stall

    def written(self, half: Ask) -> None:
        """The last byte of the request was written: when is it flushed?"""
        if half.sent or half.response is not None or self._waiting or self._hears:
            return
        half.since = self.now()
        if self._size or self.unsent():
            self.watch(self.context.wheel.resolution)
        else:
            self.sent(half, half.since)

    def flushed(self, whole: bool) -> None:
        half: Ask | None = self.half
        if half is None or half.writing != ENDED or half.sent or half.tunnel:
            return
        if whole and not self._size:
            half.since = self.now()
            self.sent(half, half.since)
        elif self._hears:  # it may not tell of the rest, as TLS does not
            half.since = self.now()
            self.watch(self.context.wheel.resolution)
        else:
            self.written(half)

    def sent(self, half: Ask, when: float) -> None:
        half.sent = when
        if half.ledger is not None:
            half.ledger.sent = when
        self.watch(self.times.response_head or inf)

    def late(self, now: float) -> float:
        half: Ask | None = self.half
        if half is None:
            return inf
        stall = self.times.upstream_stall
        if stall and self.stalled(now) >= stall:
            return self._late(Phase.UPSTREAM_STALL, stall)
        if half.response is not None:
            return min(self._late_body(now, half), self.look() if half.tunnel or self.unsent() else inf)
        if half.expect and now >= half.since + CONTINUE:
            self._go(half)
        if half.writing == OPEN:
            return min(half.since + CONTINUE - now if half.expect else inf, self.look())
        if not half.sent:
            if self.unsent():  # look often at first: most requests are flushed at once
                return min(self.look(), max(self.context.wheel.resolution, (now - half.since) / 4))
            self.sent(half, half.since if now - half.since < SOON else now)
        return self._late_head(now, half)

    def _late_head(self, now: float, half: Ask) -> float:
        seconds = self.times.response_head
        left = half.sent + seconds - now if seconds else inf
        return self._late(Phase.RESPONSE_HEAD, seconds) if left <= 0 else left

    def _late_body(self, now: float, half: Ask) -> float:
        seconds = self.times.response_stall
        if not seconds or half.reading != OPEN or half.tunnel:
            return inf
        if self._held or half.writing == OPEN:
            return seconds  # it is not this side that is waited for
        left = self._read + seconds - now
        return self._late(Phase.RESPONSE_STALL, seconds) if left <= 0 else left

    def _late(self, phase: Phase, seconds: float) -> float:
        self.context.count(_EVENTS[phase])
        self._fail(timeout(phase, UPSTREAM, seconds))
        return inf


classImplements(Client, IClientConnection)
specialised(Client)


_EVENTS: Final = {
    Phase.UPSTREAM_STALL: "upstream_stall_timeout",
    Phase.RESPONSE_HEAD: "response_head_timeout",
    Phase.RESPONSE_STALL: "response_stall_timeout",
}
