"""
A connection to an upstream; see L{protogate.ordered}.

Rules
- One request at a time: whoever wants more has the pool make more connections.
- It is used again only when request and response were complete, and not one byte came that belonged to no response.
- Its clock for the response starts when the request was flushed, not when it was written.
- Whatever was read before the upstream closed counts, also what a body that is paused could not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Body
from protogate.connection import LOOKS
from protogate.errors import ALWAYS, GATEWAY, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase, timeout
from protogate.halves import ENDED, OPEN, Calling, Half
from protogate.interfaces import IClientConnection
from protogate.message import Field, Request, Response
from protogate.ordered.fault import refused, sound
from protogate.ordered.link import Flow, Link

if TYPE_CHECKING:
    from protogate.context import Context

_EVENTS: Final = {
    Phase.UPSTREAM_STALL: "upstream_stall_timeout",
    Phase.RESPONSE_HEAD: "response_head_timeout",
    Phase.RESPONSE_STALL: "response_stall_timeout",
}

_log = Logger()


class Ask(Flow, Calling):
    """
    A request to the peer.

    @ivar start: the bytes of its head.
    """

    start = b""

    def ask(self, request: Request, last: bool) -> None:
        self.connection.put(self.start)
        if last:
            self.connection.given(self, None)

    def reset(self, reason: Abort) -> None:
        self.connection.half = None
        self.connection.abort()


@implementer(IClientConnection)
class Client(Link):
    """
    A connection to an upstream.

    @ivar capacity: 1 while it would take a request, else 0.
    """

    def __init__(self, ready: Callable[[Client], None], context: Context) -> None:
        super().__init__(context)
        self.ready, self.capacity = ready, 0
        self._heard = False  # some of the answer was read
        self._since = 0.0  # when the last byte of the request was written, or found to have left
        self._stuck = False  # some of it was still to leave when somebody looked last

    def connectionMade(self) -> None:
        super().connectionMade()
        self.capacity = 1
        self.ready(self)

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS))
        body = request.body
        owed = 0 if body is None else body.length
        try:
            if request.upgrade is not None:
                raise refused("no tunnel to this upstream", 501)
            start = self.head(request, owed)
        except Abort as reason:
            return fail(reason)
        except Exception:
            _log.failure("head() may raise Abort")
            return fail(Abort("internal error", GATEWAY, 500))
        half = self.half = Ask(self)
        half.start, self._owed = start, owed
        self.capacity, self._held, self._heard = 0, False, False
        self._since = self.heard = self.now()
        self._pieces.clear()
        answer = half.begin(request)
        self.watch(min(self.look(), self.context.timeouts.response_head or inf))
        return answer

    def given(self, half: Any, trailers: Sequence[Field] | None) -> None:
        super().given(half, trailers)
        self._since, self._stuck = self.now(), False
        if half.ledger is not None:
            half.ledger.sent = self._since
        self.watch((self.context.timeouts.response_head or inf) / LOOKS)

    # -- reading

    def dataReceived(self, data: bytes) -> None:
        if self.half is None and not self.dead:
            self.context.count("unsolicited_bytes")
            self.abort()  # the next request would get an answer that is not its own
            return
        self._heard = True
        super().dataReceived(data)

    def _wants(self) -> bool:
        return self.half is not None and not self._held and self.half.reading == OPEN

    def _headed(self, message: Response, length: int | None) -> None:
        half, fields = self.half, message.headers
        if half.response is not None or not sound(fields) or not 200 <= message.status < 600:
            raise ValueError("not an answer")
        if sum(len(name) + len(value) for name, value in fields) > self.context.limits.response_headers:
            self.context.count("response_headers_too_large")
            raise Abort("response header fields too large", UPSTREAM, 502, NEVER)
        message.protocol = message.protocol or self.protocol
        if length != 0:
            message.body = Body(half, length)
        half.headed(message)
        self._fresh = True
        self.watch(self.context.timeouts.response_stall or inf)

    def _whole(self, trailers: list[Field]) -> None:
        if not sound(trailers):
            raise ValueError("not trailers")
        half, fresh = self.half, self._fresh
        self._held = self._fresh = False
        half.ended(trailers or None)
        if fresh:
            half.fire()

    def _fire(self) -> None:
        self.half.fire()

    def _bad(self, reason: Abort | str) -> None:
        self.context.count("malformed_response")
        self._fail(Abort(f"bad response: {reason}", UPSTREAM, 502, NEVER) if isinstance(reason, str) else reason)

    def _fail(self, reason: Abort) -> None:
        half, self.half, self._fresh = self.half, None, False
        if half is not None:
            half.lost(reason)
        self.abort()

    # -- ends

    def over(self, half: Any) -> None:
        """The answer is complete."""
        if not self.dead:
            self.half = None
            if self.draining or half.writing != ENDED or len(self.input):
                self.close()
            else:
                self.capacity = 1
                self.ready(self)

    def gone(self, half: Half) -> Abort:
        retry = NEVER if self._heard else IDEMPOTENT
        return Abort("the upstream closed before its response was complete", UPSTREAM, 502, retry)

    def _eof(self) -> None:
        self._rest()
        if self.half is not None:
            self.abort()
        else:
            self.close()

    def _rest(self) -> None:
        """What was read and waits goes into the body, which holds it (C{AHEAD} at most)."""
        self.draining, self.capacity = True, 0
        for _ in range(2):  # the first write that cannot pass pauses us, once
            if self.half is not None and len(self.input) and not self._looping:
                self._held = False
                self._loop()

    def connectionLost(self, reason: Failure) -> None:
        if not self.dead:
            self._rest()
        self.capacity = 0
        super().connectionLost(reason)

    def abort(self) -> None:
        self.capacity = 0
        super().abort()

    def close(self) -> None:
        self.capacity = 0
        super().close()

    def drain(self) -> None:
        self.draining, self.capacity = True, 0
        if self.half is None:
            self.close()

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.upstream_stall

    def late(self, now: float) -> float:
        times, half = self.context.timeouts, self.half
        if half is None:
            return inf
        stall = times.upstream_stall
        if stall and self.stalled(now) >= stall:
            return self._late(Phase.UPSTREAM_STALL, stall)
        stuck = half.writing == OPEN or self.unsent() > 0
        if stuck or self._stuck:
            self._since = self.heard = now  # it was not this side that was waited for
            self._stuck = stuck
        if half.response is None:
            phase, since, seconds = Phase.RESPONSE_HEAD, self._since, times.response_head
        else:
            phase, since, seconds = Phase.RESPONSE_STALL, now if self._held else self.heard, times.response_stall
        if stuck:
            return min(self.look(), (seconds or inf) / LOOKS)
        left = since + seconds - now if seconds else inf
        return left if left > 0 else self._late(phase, seconds)

    def _late(self, phase: Phase, seconds: float) -> float:
        self.context.count(_EVENTS[phase])
        self._fail(timeout(phase, UPSTREAM, seconds))
        return inf
