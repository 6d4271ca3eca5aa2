"""
L{SotpClient}: asks a SOTP server, for programs on Twisted.

    client = SotpClient(HostnameEndpoint(reactor, "orders.example", 7001), Context(Wheel(reactor)))
    reply = await client.request(1001, "order.create", b"...", serialization=1, deadline=2.0)

Rules
- One connection, kept from the first request until L{SotpClient.close}.  One that ends is made anew, after a wait that
  doubles from L{SHORTEST} to L{LONGEST} and is cut by chance, so that many clients do not come back together.
- A connection that drains takes no more, but ends what it has: another one is made beside it.
- A request that was surely not processed is sent again, L{ATTEMPTS} times in all; any other failure is the caller's.
- Whoever waits for a connection waits no longer than his deadline, or the context's C{timeouts.queue}.
- Cancelling a Deferred gives the request up, wherever it is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Whole
from protogate.codings import pack
from protogate.errors import ALWAYS, GATEWAY, UPSTREAM, Abort, Phase, overdue, timeout
from protogate.interfaces import IBody, ISink
from protogate.message import Field, Headers, Request, Response
from protogate_sotp.caller import Client
from protogate_sotp.codings import IDS, unpacking
from protogate_sotp.heads import NATIVE, OTHER_TYPE, TYPES
from protogate_sotp.link import Greeting
from protogate_sotp.options import Options
from protogate_sotp.status import NAME, TABLE

if TYPE_CHECKING:
    from twisted.internet.interfaces import IStreamClientEndpoint

    from protogate.context import Context
    from protogate.wheel import Timer

SHORTEST: Final = 0.1
"""Seconds before the first attempt to connect again, at most."""
LONGEST: Final = 30.0
"""Seconds between two attempts, in the end."""
ATTEMPTS: Final = 3
"""How often a request is handed to a connection."""
WAITING: Final = 1000
"""Requests that may wait for a connection."""
MOST: Final = 1 << 24
"""Bytes of a reply."""

_NUMBER: Final = re.compile(rb"[0-9]{1,5}").fullmatch
_CLOSED: Final = Abort("the client was closed", GATEWAY, 503)


class Reply:
    """
    An answer, whole.

    @ivar status: of SOTP; 0 = OK.
    @ivar http: the HTTP status.
    @ivar fields: its metadata.
    @ivar data: its content, unpacked.
    @ivar trailers: those behind the content.
    """

    __slots__ = ("data", "fields", "http", "status", "trailers")

    def __init__(self, response: Response, data: bytes, trailers: Sequence[Field]) -> None:
        self.status, self.http = status_of(response), response.status
        self.fields, self.data, self.trailers = response.headers, data, trailers


def status_of(response: Response) -> int:
    """The SOTP status of a Response.  Anything may stand in its metadata."""
    exact = response.headers.get(NAME)
    return TABLE[response.status] if exact is None or not _NUMBER(exact) else int(exact)


def unpacked(response: Response) -> Response:
    """The same answer, with its content as it was before somebody compressed it."""
    body, coding = response.body, response.headers.get(b"content-encoding")
    if body is not None and coding in IDS:
        broken = Abort("the compression of the answer is broken", UPSTREAM, 502, error="http_protocol_error")
        response.body = unpacking(body, coding, broken)
        response.headers.remove(b"content-encoding")
    return response


@implementer(ISink)
class _Collector:
    """Takes the content of an answer, then fires a Deferred with the L{Reply}."""

    def __init__(self, response: Response, body: IBody, done: Deferred[Reply], most: int) -> None:
        self._response, self._body, self._done, self._left = response, body, done, most
        self._pieces: list[bytes] = []
        body.attach(self)

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._body.stopProducing()
            self._done.errback(Abort("the reply is too large", UPSTREAM, 502))
        else:
            self._pieces.append(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._done.callback(Reply(self._response, b"".join(self._pieces), trailers or ()))

    def abort(self, reason: Abort) -> None:
        self._done.errback(reason)


class _Call:
    """
    One request on its way.

    @ivar answer: fires for the caller.
    @ivar under: the Deferred of the connection, while it has the request.
    """

    __slots__ = ("answer", "attempts", "clock", "compression", "data", "request", "under")

    def __init__(self, request: Request, data: bytes | None, compression: str) -> None:
        self.request, self.data = request, data
        self.compression = compression.encode()
        self.attempts = 0
        self.answer: Deferred[Response]
        self.under: Deferred[Response] | None = None
        self.clock: Timer | None = None


class SotpClient:
    """
    @param endpoint: where the server is; for TLS one that offers C{sotp/1} by ALPN.
    @param context: clock, C{timeouts} and limits, e.g. C{Context(Wheel(reactor))}.
    @param options: what it tells the server of itself, the heartbeat above all.
    @param most: bytes that a L{Reply} may have.
    @param chance: a number from 0 to 1, for the waits.
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        context: Context,
        options: Options | None = None,
        *,
        most: int = MOST,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.context = context
        self._endpoint, self._most, self._chance = endpoint, most, chance
        self._greeting = Greeting(options)
        self._connection: Client | None = None  # that takes requests
        self._open: set[Client] = set()  # and those that only end what they have
        self._attempt: Deferred[Any] | None = None
        self._waiting: list[_Call] = []
        self._failed = 0  # attempts in a row
        self._wait = context.wheel.timer(self._connect)
        self._closed = False
        self._done: Deferred[None] | None = None

    # -- for callers

    def request(
        self,
        service: int | str,
        operation: str,
        data: bytes = b"",
        *,
        metadata: Iterable[Field] = (),
        serialization: int = 0,
        compression: str = "",
        deadline: float = 0.0,
    ) -> Deferred[Reply]:
        """
        Ask, and collect the whole answer.

        @param compression: C{gzip} or C{zstd}; used when the server has said that it can read it.
        @param deadline: seconds; 0 = none.
        @return: fires with a L{Reply}, whatever its status; fails with an L{Abort}.
        """
        call = self._call(service, operation, None, data, metadata, serialization, compression, deadline)
        return self._begin(call).addCallback(self._collect)

    def stream(
        self,
        service: int | str,
        operation: str,
        body: IBody | None = None,
        *,
        metadata: Iterable[Field] = (),
        serialization: int = 0,
        deadline: float = 0.0,
    ) -> Deferred[Response]:
        """
        Ask, with content that streams in both directions.

        @return: fires with a Response when its head is there; whoever gets it attaches its body, or stops it.
        """
        return self._begin(self._call(service, operation, body, None, metadata, serialization, "", deadline))

    def connect(self) -> None:
        """Connect now, and not only when somebody asks."""
        if self._connection is None and self._attempt is None and not self._wait.active and not self._closed:
            self._connect()

    def close(self) -> Deferred[None]:
        """End what waits, let end what is under way, close; fires when that is done."""
        self._closed = True
        self._wait.end()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._failure(call, _CLOSED)
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        for connection in list(self._open):
            connection.drain()
        if not self._open:
            return succeed(None)
        self._done = Deferred()
        return self._done

    @property
    def connected(self) -> bool:
        """Whether there is a connection, and its server has said HELLO."""
        return self._connection is not None and self._connection.greeted

    # -- calls

    def _call(
        self,
        service: int | str,
        operation: str,
        body: IBody | None,
        data: bytes | None,
        metadata: Iterable[Field],
        serialization: int,
        compression: str,
        deadline: float,
    ) -> _Call:
        target = f"/{service}/{operation}".encode()
        if not NATIVE(target) or (isinstance(service, int) and not 0 < service < 1 << 32):
            raise ValueError(f"{service!r} and {operation!r} are no service and operation")
        if compression and compression.encode() not in IDS:
            raise ValueError(f"{compression!r} is no compression that this installation knows")
        headers = Headers(metadata)
        if serialization:
            headers.append((b"content-type", TYPES.get(serialization) or OTHER_TYPE % serialization))
        request = Request(b"POST", target, headers, body)
        if deadline:
            request.deadline = self.context.wheel.now() + deadline
        return _Call(request, data, compression)

    def _begin(self, call: _Call) -> Deferred[Response]:
        call.answer = Deferred(lambda _: self._cancelled(call))
        if self._closed:
            call.answer.errback(_CLOSED)
        elif not self._send(call):
            self._enqueue(call)
        return call.answer

    def _enqueue(self, call: _Call) -> None:
        if len(self._waiting) >= WAITING:
            self._failure(call, Abort("too many requests wait for a connection", GATEWAY, 503))
            return
        self._waiting.append(call)
        until, seconds = call.request.deadline, self.context.timeouts.queue
        if until is not None:
            seconds = max(until - self.context.wheel.now(), 0.0)
        if until is not None or seconds:
            call.clock = self.context.wheel.after(seconds, lambda: self._late(call, seconds))
        self.connect()

    def _send(self, call: _Call) -> bool:
        """Hand it over, if there is somebody who takes it."""
        connection = self._connection
        if connection is not None and (connection.draining or connection.dead):
            connection = self._connection = None
        if connection is None or not connection.capacity:
            return False
        self._stop_clock(call)
        call.attempts += 1
        request = call.request
        if call.data is not None:
            self._fill(call, connection.peer_hello.capabilities)
        call.under = connection.handle(request)
        call.under.addCallbacks(self._answered, self._broken, callbackArgs=(call,), errbackArgs=(call,))
        return True

    def _fill(self, call: _Call, capabilities: int) -> None:
        """Make the body anew, compressed if the server can read it."""
        data, request = call.data or b"", call.request
        request.headers.remove(b"content-encoding")
        if data and IDS.get(call.compression, 0) & capabilities:
            data = pack(call.compression, data)
            request.headers.append((b"content-encoding", call.compression))
        request.body = Whole(data) if data else None

    def _answered(self, response: Response, call: _Call) -> None:
        call.under = None
        call.answer.callback(unpacked(response))

    def _broken(self, failure: Failure, call: _Call) -> None:
        call.under = None
        reason = failure.value
        if not isinstance(reason, Abort):
            call.answer.errback(failure)
            return
        body = call.request.body
        again = call.data is not None or body is None or not body.attached
        if reason.retry == ALWAYS and again and call.attempts < ATTEMPTS and not self._closed:
            if not self._send(call):
                self._enqueue(call)
        else:
            self._failure(call, reason)

    def _collect(self, response: Response) -> Reply | Deferred[Reply]:
        body = response.body
        if body is None:
            return Reply(response, b"", ())
        done: Deferred[Reply] = Deferred(lambda _: body.stopProducing())
        _Collector(response, body, done, self._most)
        return done

    def _late(self, call: _Call, seconds: float) -> None:
        self._waiting.remove(call)
        if call.request.deadline is not None:
            reason = overdue(GATEWAY, ALWAYS)
        else:
            reason = timeout(Phase.QUEUE, GATEWAY, seconds, ALWAYS)
        self._failure(call, reason)

    def _failure(self, call: _Call, reason: Abort) -> None:
        self._stop_clock(call)
        body = call.request.body
        if call.data is None and body is not None and not body.attached:
            body.stopProducing()
        call.answer.errback(reason)

    def _cancelled(self, call: _Call) -> None:
        under = call.under
        if under is not None:
            under.cancel()
        elif call in self._waiting:
            self._waiting.remove(call)
            self._stop_clock(call)

    def _stop_clock(self, call: _Call) -> None:
        clock, call.clock = call.clock, None
        if clock is not None:
            clock.close()

    # -- the connection

    def _connect(self) -> None:
        # It is an IProtocol, though none of Twisted's own.
        factory = Factory.forProtocol(lambda: Client(self._ready, self.context, self._greeting))
        factory.noisy = False
        attempt = self._attempt = maybeDeferred(self._endpoint.connect, factory)
        attempt.addCallbacks(self._connected, self._refused)

    def _connected(self, connection: Client) -> None:
        self._attempt = None
        if self._closed:
            connection.abort()

    def _ready(self, connection: Client) -> None:
        if connection not in self._open:
            self._open.add(connection)
            connection.closed.addCallback(self._lost, connection)
        if self._closed:
            return
        self._connection = connection
        while self._waiting and connection.capacity:
            self._send(self._waiting.pop(0))

    def _refused(self, failure: Failure) -> None:
        self._attempt = None
        if not failure.check(CancelledError):
            self._again()

    def _lost(self, result: None, connection: Client) -> None:
        self._open.discard(connection)
        if connection.greeted:
            self._failed = 0
        if self._connection is connection or (self._connection is None and not self._open):
            self._connection = None
            self._again()
        if self._done is not None and not self._open:
            self._done.callback(None)
        return result

    def _again(self) -> None:
        """Connect once more, after a while."""
        if self._closed or self._attempt is not None:
            return
        self._failed += 1
        longest = min(SHORTEST * 2.0 ** min(self._failed - 1, 20), LONGEST)
        self._wait.set(longest * (0.5 + 0.5 * self._chance()))
