"""
The serving side of HTTP/1.0 and 1.1 (RFC 9112).

Rules
- Answers leave in the order of the requests; the next one is not even parsed before.
- Any fault in what was read gives one error answer, by the service, and C{Connection: close}; nothing that follows is
  ever taken for a request.
- FIN while an answer is owed means that the client left, except in a tunnel.
- What nobody wants of a request is read and thrown away, up to L{DRAIN} bytes; beyond that the connection ends.
- While it drains, a request that was on its way is still answered, with C{Connection: close}.
- No idle connection is closed over a request that has come: all there is was read when its time was over.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import ITCPTransport

from protogate.body import Body, Whole
from protogate.clocks import WINDOW
from protogate.connection import LINGER_BYTES, PATIENCE, specialised
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, Abort, Phase, timeout
from protogate.halves import CUT, ENDED, OPEN, Half
from protogate.interfaces import IBody, IService
from protogate.message import CONNECT, Field, Peer, Request, ignore, peer_of
from protogate_http.answer1 import Answer
from protogate_http.semantics import (
    UPGRADES,
    Special,
    aim,
    leftovers,
    split,
)
from protogate_http.stream1 import Stream
from protogate_http.wire1 import CHUNKED, NONE, Bad, Head, Requests

if TYPE_CHECKING:
    from protogate.context import Context

DRAIN: Final = 65536
"""Unread request bytes that are read and thrown away to keep a connection."""
QUIET: Final = 3.0
"""Seconds without a request after which an idle connection is closed that is to end: one may be on its way."""
_PROTOCOL: Final = {b"0": "HTTP/1.0", b"1": "HTTP/1.1"}


@mypyc_attr(allow_interpreted_subclasses=True)
class Server(Stream):
    """
    A connection from a client.

    @ivar half: the current request, or None.
    """

    def __init__(self, service: IService, context: Context) -> None:
        super().__init__(context, Requests(context.limits))
        self.times = context.timeouts
        self.service = service
        self.half: Answer | None = None
        self.peer = Peer()
        self.scheme = b"http"
        self._ended = False  # the last byte of the current request was read
        self._drained = 0  # bytes of it that nobody wanted
        self._begun = False  # part of the next head was read …
        self._first = 0.0  # … since then
        self._idle = 0.0  # when the last response was complete
        self._window = 0.0  # when the current window of clientMinRate began …
        self._got = 0  # … and what had been received by then

    def connectionMade(self) -> None:
        super().connectionMade()
        self.peer = peer_of(self.transport)
        if self.peer.tls:
            self.scheme = b"https"
        self._idle = self.now()
        self.watch(self.context.timeouts.client_idle or inf)

    def current(self) -> Answer | None:
        return self.half

    def forget(self) -> None:
        self.half = None

    # -- reading

    def wants(self) -> bool:
        """The next request waits for the answer to this one; a tunnel waits for its 101."""
        half = self.half
        if half is None:
            if not self._begun:
                # Those of a reload hold from the next head on: a request ends by those it began with.
                self.wire.limits, self.times = self.context.limits, self.context.timeouts
            return not self.full
        if self._ended or self._held or self._drained > DRAIN:
            return False
        return half.upgrade is None or half.tunnel

    def rest(self) -> None:
        if self.half is None and not self._begun and self.wire.pending():
            self._begun, self._first = True, self._read
            self.watch(self.times.client_header or inf)

    def headed(self, head: Head) -> None:
        method, target, minor = head.start
        http10 = minor == b"0"
        try:
            fields, special = split(head.fields)
            length = self._length(method, http10, special)
            target, authority = aim(method, target, special.host)
        except Bad as error:
            error.start, error.fields = (method, target), head.fields
            raise
        half = self.half = Answer(self, method)
        self._ended, self._drained = False, 0
        half.http10 = http10
        half.keep = b"close" not in special.options and (not http10 or b"keep-alive" in special.options)
        upgrade, whole = None, None
        body: IBody | None = None
        if method == b"CONNECT":
            upgrade = CONNECT
        elif special.upgrade and not length and not http10 and method == b"GET" and fields.get(b"sec-websocket-key"):
            upgrade = next((token for token in special.upgrade if token in UPGRADES), None)
        if special.expect:
            if length and not http10:
                half.expect = True
            else:
                fields.remove(b"expect")
        if upgrade is not None:
            half.upgrade, body = upgrade, Body(half)
        elif length:
            half.size = max(length, 0)
            whole = self.wire.all(length)
            body = Whole(whole) if whole is not None else Body(half, length if length > 0 else None)
        request = Request(
            method,
            target,
            fields,
            body,
            authority,
            self.scheme,
            upgrade,
            ignore if http10 else half.interim,
            _PROTOCOL[minor],
            self.peer,
        )
        half.open(request, self._first if self._begun else 0.0)
        self._begun = False
        if whole is not None:
            half.incoming, half.expect = None, False  # nothing of it is to come
            assert half.ledger is not None
            half.ledger.received = length
            self.fresh = True
        elif body is None:
            half.reading, self._ended = ENDED, True
            half.begin(self.service)
        elif upgrade is None:
            self.wire.body(length)
            self.fresh = True
            self.restart()
        else:
            half.begin(self.service)

    def _length(self, method: bytes, http10: bool, special: Special) -> int:
        """How the content of a request is delimited, if it may be at all."""
        length, most = special.length or NONE, self.wire.limits.body
        if http10:
            if length == CHUNKED:
                raise Bad("Transfer-Encoding in HTTP/1.0", 400, "bad_framing")
        elif not special.host:  # an http URI has one (RFC 9110, 4.2.1)
            raise Bad("no Host", 400, "bad_host")
        if length and method == b"CONNECT":
            raise Bad("CONNECT has no content", 400, "bad_framing")
        if length > most > 0:
            raise Bad("content too large", 413, "body_too_large")
        return length

    def restart(self) -> None:
        """The clocks of an upload start, or start again."""
        self._window = self._read = self.now()
        self._got = 0 if self.half is None or self.half.ledger is None else self.half.ledger.received
        self.watch(min(self.look(), WINDOW if self.times.client_min_rate else inf))

    def hold(self, on: bool) -> None:
        if not on and self._held and self.half is not None:
            self._held = False
            self.restart()
        super().hold(on)

    def got(self, data: bytes) -> None:
        half, most = self.half, self.wire.limits.body
        assert half is not None
        assert half.ledger is not None
        if half.reading == OPEN:
            if most and half.ledger.received + len(data) > most and not half.tunnel:
                raise Bad("content too large", 413, "body_too_large")
            half.received(data)
        elif not half.tunnel:
            self._drained += len(data)
            if self._drained > DRAIN and half.writing != OPEN and not self.wire.whole:
                self.finish()  # unless that was the last of it

    def tail(self, trailers: list[Field] | None) -> None:
        half = self.half
        assert half is not None
        self._ended, self._held = True, False
        half.ended(trailers)
        if self.fresh:
            self.fresh = False
            half.begin(self.service)
        elif half is self.half and half.writing == ENDED:
            self.over(half)  # it was only being drained

    def fire(self) -> None:
        assert self.half is not None
        self.half.begin(self.service)

    def ignored(self, data: bytes) -> None:
        self._drained += len(data)
        if self._drained > LINGER_BYTES and not self._stalled:
            self._stalled = True
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.half is None and not self._looping and not self.dead:
            self._idle = self.now()
            self.loop()  # requests that waited for the transport

    def alive(self) -> None:
        """From here on silence is no reason to give a client up: have the kernel find out whether he is still there."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpKeepAlive(True)

    # -- ends of a response

    def remains(self, half: Answer) -> bool:
        """Whether more of the request is to come than is ever thrown away."""
        return (
            half.ledger is not None
            and half.size - half.ledger.received - self._drained > DRAIN
            and (half.reading == CUT or half.writing == ENDED)
        )

    def over(self, half: Answer) -> None:
        """The response is out.  Reuse, drain or close."""
        if half.tunnel or not half.keep or self.draining or self.deaf:
            self.finish()
            return
        self._idle = self.now()
        if half.upgrade is not None:
            if half.upgrade == CONNECT or self.wire.pending():
                self.finish()  # what follows may have been meant for the tunnel
                return
        elif not self._ended:
            if self._drained > DRAIN:
                self.finish()
            else:
                self.watch(self.times.client_stall or PATIENCE)
                self.hold(False)
            return
        self.half, self._held, self._drained = None, False, 0
        self.watch(self.context.timeouts.client_idle or inf)
        if not self._looping and (self.wire.pending() or self._stalled):
            self.loop()

    def finish(self) -> None:
        """The last answer of this connection is out."""
        half, self.half = self.half, None
        whole = self._ended and not self.deaf and not self.wire.pending()
        self.wire.clear()
        if whole or half is None or half.tunnel:
            self.close()
        else:
            self.linger()

    # -- faults

    def bad(self, error: Bad) -> None:
        self.context.count(error.event)
        reason = Abort(error.text, CLIENT, error.status, error="http_request_error", detail=error.text)
        self.refuse(reason, error)

    def refuse(self, reason: Abort, error: Bad) -> None:
        """What was read makes no sense, or came too late: one answer, and nothing after it."""
        fresh, self.fresh = self.fresh, False
        self.deaf = True
        self.wire.clear()
        half = self.half
        if half is None:
            half = self.half = Answer(self, error.start[0])
            half.keep, half.reading = False, ENDED
            fields, host = leftovers(error.fields)
            request = Request(*error.start, fields, None, host, self.scheme, None, ignore, "HTTP/1.1", self.peer)
            request.malformed = reason
            half.open(request, self._first if self._begun else 0.0)
            self._begun, self._ended = False, False
            half.begin(self.service)
        elif half.writing == ENDED:
            self.finish()  # it was only being drained
        else:
            half.keep = half.expect = False
            if fresh and half.request is not None:
                half.request.malformed = reason
            half.broken(reason)
            if fresh:
                half.begin(self.service)

    def eof(self) -> None:
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
            self.half.lost(CUT_OFF)  # unless somebody else ended it before
        super().abort()

    def drain(self) -> None:
        if not self.draining:
            self.draining = True
            if self.half is None and not self.dead:
                self._idle = self.now()
                self.watch(QUIET)

    # -- clocks

    def patience(self) -> float:
        return self.times.client_stall

    def late(self, now: float) -> float:
        times, half = self.times, self.half
        stall = times.client_stall
        if stall and self.stalled(now) >= stall:
            self._give_up(Phase.CLIENT_STALL, stall)
            return inf
        if half is None:
            return self._late_head(now) if self._begun else self._late_idle(now)
        if half.writing == ENDED and not half.tunnel:  # draining what nobody wanted
            left = self._idle + (stall or PATIENCE) - now
            if left <= 0:
                self.finish()
            return left
        delay = self.look() if half.response is not None or self.unsent() else inf
        if half.reading == OPEN and half.upgrade is None and not self._held and not half.expect:
            delay = min(delay, self._late_body(now, half))
        return delay

    def _late_head(self, now: float) -> float:
        seconds = self.times.client_header
        since = now if self.full else max(self._first, self._idle)  # since when it is this side's turn to read
        left = since + seconds - now if seconds else inf
        if left <= 0:
            self.context.count("client_header_timeout")
            self.refuse(timeout(Phase.CLIENT_HEADER, CLIENT, seconds), self.wire.partial())
            return self.look()
        return min(left, self.look() if self.full else inf)

    def _late_idle(self, now: float) -> float:
        if self.unsent():
            self._idle = now
            return min(self.look(), self.context.timeouts.client_idle or inf)
        seconds = self.context.timeouts.client_idle
        if self.draining:
            seconds = min(seconds or inf, QUIET)
        left = self._idle + seconds - now if seconds else inf
        if left <= 0 and self.silent(self._idle):
            if not self.draining:
                self.context.count("client_idle_timeout")
            self.close()
        return left

    def _late_body(self, now: float, half: Answer) -> float:
        times, delay = self.times, inf
        if times.client_stall:
            delay = self._read + times.client_stall - now
            if delay <= 0:
                self._give_up(Phase.CLIENT_STALL, times.client_stall)
                return self.look()
        rate = times.client_min_rate
        if rate:
            span = now - self._window
            if span >= WINDOW:
                if half.ledger.received - self._got < rate * span:  # type: ignore[union-attr]
                    self._give_up(Phase.CLIENT_MIN_RATE, span)
                    return self.look()
                self._window, self._got, span = now, half.ledger.received, 0.0  # type: ignore[union-attr]
            delay = min(delay, WINDOW - span)
        return delay

    def _give_up(self, phase: Phase, seconds: float) -> None:
        """The client is too slow: an answer if there was none, else the end."""
        self.context.count("client_min_rate_timeout" if phase is Phase.CLIENT_MIN_RATE else "client_stall_timeout")
        half, reason = self.half, timeout(phase, CLIENT, seconds)
        if half is not None and half.response is None and half.reading == OPEN and half.upgrade is None:
            self.refuse(reason, Bad(reason.reason))
        else:
            if half is not None:
                half.lost(reason)
            self.abort()


specialised(Server)
