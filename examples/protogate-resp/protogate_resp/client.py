"""
A connection to Redis, or to whoever speaks as it does.

Rules
- One command at a time: whoever wants more has the pool make more connections.
- A connection is used again only when command and reply were complete, and not one byte came that belonged to no reply.
- A reply is passed on by its first line: an array is never counted to its end before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Body, Whole
from protogate.errors import ALWAYS, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase, timeout
from protogate.halves import ENDED, OPEN, Calling, Half
from protogate.interfaces import IClientConnection
from protogate.message import Field, Request, Response
from protogate_resp.link import Link
from protogate_resp.messages import FULL, RESP, command, headed, status_of
from protogate_resp.wire import CONTENT, DONE

if TYPE_CHECKING:
    from protogate.context import Context

TEXT: Final = [(b"content-type", b"text/plain; charset=utf-8")]
BYTES: Final = [(b"content-type", b"application/octet-stream")]


class Ask(Calling):
    """
    One command.

    @ivar protocol: RESP, FULL, or empty for another protocol's request.
    """

    connection: Any

    def __init__(self, connection: Client, protocol: str, start: bytes, size: int | None) -> None:
        super().__init__(connection)
        self.protocol, self.start, self.size = protocol, start, size

    def ask(self, request: Request, last: bool) -> None:
        link = self.connection
        link.due, link.parts = None, False
        link.put(self.start)
        if not last and self.protocol != RESP:
            link.frame(self.size)
        if last:
            link.asked(self)

    def write(self, data: bytes) -> None:
        self.connection.give(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.connection.given(self)
        self.connection.asked(self)

    def reset(self, reason: Abort) -> None:
        self.connection.half = None
        self.connection.abort()

    def over(self) -> None:
        self.connection.over(self)

    def pauseProducing(self) -> None:
        self.connection.hold(True)

    def resumeProducing(self) -> None:
        self.connection.hold(False)


@implementer(IClientConnection)
class Client(Link):
    """@ivar capacity: 1 while it would take a request."""

    def __init__(self, ready: Callable[[Client], None], context: Context) -> None:
        super().__init__(context)
        self.ready, self.capacity = ready, 0
        self._block, self._count = b"", 0  # the head of an answer to PROTOGATE, and how many words that has
        self._since = 0.0  # when the command was seen unsent last

    def connectionMade(self) -> None:
        super().connectionMade()
        self.capacity = 1
        self.ready(self)

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS))
        try:
            half = self.half = Ask(self, *command(request))
        except Abort as reason:
            return fail(reason)
        self.capacity, self.held, self._block, self._count = 0, False, b"", 0
        self._since = self.heard = self.now()
        self.pieces.clear()
        answer = half.begin(request)
        self.watch(min(self.look(), self.context.timeouts.response_head or inf))
        return answer

    def asked(self, half: Ask) -> None:
        """The last byte of the command was written."""
        self._since = self.now()
        if half.ledger is not None:
            half.ledger.sent = self._since

    # -- reading

    def dataReceived(self, data: bytes) -> None:
        if self.half is None and not self.dead:
            self.context.count("unsolicited_bytes")
            self.abort()  # the next command would get a reply that is not its own
            return
        super().dataReceived(data)

    def wants(self) -> bool:
        return self.half is not None and not self.held and self.half.reading == OPEN

    def take(self, kind: bytes, size: int | None, raw: bytes) -> None:
        half = self.half
        if half.response is None:
            response = self._answer(half, kind, size, raw)
            if response is None:
                return
            half.headed(response)
            self.fresh = True
            self.watch(self.context.timeouts.response_stall or inf)
            body: object = response.body
            if isinstance(body, Whole):
                half.incoming = None  # nothing of it is to come
        if half.incoming is not None and (half.protocol == RESP or kind == CONTENT):
            self.pieces.append(raw)
        if not self.reader.left:
            self.pour()
            self.held, fresh, self.fresh = False, self.fresh, False
            half.ended()
            if fresh:
                half.fire()

    def fire(self) -> None:
        self.half.fire()

    def _answer(self, half: Ask, kind: bytes, size: int | None, raw: bytes) -> Response | None:
        """The response, as soon as it is known."""
        status = status_of(kind, size, raw)
        if half.protocol == RESP:
            length = None if kind == b"*" else len(raw) + (size + 2 if size is not None and size >= 0 else 0)
            return Response(status, [], Body(half, length), RESP)
        if half.protocol == FULL and kind != b"-":
            return self._full(half, kind, size, raw)
        if kind == b"$" and size is not None:
            return Response(status, BYTES if size >= 0 else [], Body(half, size) if size > 0 else None, RESP)
        if kind in b"+-:":
            return Response(status, TEXT, Whole(raw[1:-2]) if len(raw) > 3 else None, RESP)
        raise ValueError("a reply that cannot be passed on")

    def _full(self, half: Ask, kind: bytes, size: int | None, raw: bytes) -> Response | None:
        if kind == b"*" and not self._count and size in (1, 2):
            self._count = size
        elif kind == b"$" and self.reader.left == 1 and self._count == 2:
            response = headed(self._block)
            response.body = Body(half, size) if size != 0 else None
            return response
        elif kind == b"$" and size is not None and self._count:
            if size > self.context.limits.response_headers:
                raise Abort("response header fields too large", UPSTREAM, 502, NEVER)
        elif kind == CONTENT:
            self._block += raw
        elif kind != DONE:
            raise ValueError("not an answer")
        elif not self.reader.left:
            return headed(self._block)
        return None

    def bad(self, reason: Abort | str) -> None:
        self.context.count("malformed_reply")
        self._fail(Abort(f"bad reply: {reason}", UPSTREAM, 502, NEVER) if isinstance(reason, str) else reason)

    def _fail(self, reason: Abort) -> None:
        half, self.half, self.fresh = self.half, None, False
        if half is not None:
            half.lost(reason)
        self.abort()

    # -- ends

    def over(self, half: Ask) -> None:
        """The reply is complete."""
        if not self.dead:
            self.half = None
            if self.draining or half.writing != ENDED or len(self.reader):
                self.close()
            else:
                self.capacity = 1
                self.ready(self)

    def gone(self, half: Half) -> Abort:
        unheard = half.response is None and not self._count
        return Abort(
            "the upstream closed before its reply was complete", UPSTREAM, 502, IDEMPOTENT if unheard else NEVER
        )

    def connectionLost(self, reason: Failure) -> None:
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
            self._fail(timeout(Phase.UPSTREAM_STALL, UPSTREAM, stall))
            return inf
        if half.writing == OPEN or self.unsent():
            self._since = self.heard = now  # it is not this side that is waited for
            return self.look()
        if half.response is None:
            phase, since, seconds = Phase.RESPONSE_HEAD, self._since, times.response_head
        else:
            phase, since, seconds = Phase.RESPONSE_STALL, now if self.held else self.heard, times.response_stall
        left = since + seconds - now if seconds else inf
        if left <= 0:
            self._fail(timeout(phase, UPSTREAM, seconds))
        return left if left > 0 else inf
