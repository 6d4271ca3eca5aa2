"""Connections, connectors and bodies that do what a test tells them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IResolver
from twisted.internet.task import Clock
from twisted.names import dns
from twisted.names.error import DNSNameError, DNSServerError
from zope.interface import implementer
from zope.interface.verify import verifyObject

from protogate.context import Context, Timeouts
from protogate.errors import IDEMPOTENT, UPSTREAM, Abort, Retry
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IBody, IClientConnection, IDescribedCodec, ISink
from protogate.message import Request, Response
from protogate.wheel import Wheel

OK = 200


class Time:
    """A wheel on a clock that a test moves."""

    def __init__(self, **timeouts: float) -> None:
        self.clock = Clock()
        self.clock.advance(1000.0)
        self.wheel = Wheel(self.clock)
        self.counted: list[str] = []
        self.context = Context(self.wheel, None, Timeouts(**timeouts), self.counted.append)

    def pass_by(self, seconds: float) -> None:
        """Time passes, in small steps as it does in life."""
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)

    @property
    def idle(self) -> bool:
        """Whether no timer is armed or remembered."""
        return not any(self.wheel._slots.values())


def lost(retry: Retry = IDEMPOTENT) -> Abort:
    """What a codec says when its connection is gone."""
    return Abort("connection lost", UPSTREAM, 502, retry, error="connection_terminated")


@implementer(IClientConnection)
class FakeConnection:
    """An upstream connection that carries C{most} requests at a time."""

    def __init__(self, ready: Callable[[IClientConnection], None], most: int = 1) -> None:
        self.ready, self.most = ready, most
        self.closed: Deferred[None] = Deferred()
        self.asked: list[tuple[Request, Deferred[Response]]] = []
        self.served: list[Request] = []
        self.draining = self.dead = False
        self.cancelled: list[Request] = []
        self.lazy = False  # whether a close takes a turn of the reactor: then end() is its end
        self.transport: Any = None
        verifyObject(IClientConnection, self)

    @property
    def busy(self) -> int:
        return len(self.asked)

    @property
    def capacity(self) -> int:
        return 0 if self.draining or self.dead else self.most - len(self.asked)

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport
        self.ready(self)

    def handle(self, request: Request) -> Deferred[Response]:
        assert self.capacity > 0, "given a request it has no room for"
        answer: Deferred[Response] = Deferred(self._cancelled)
        self.asked.append((request, answer))
        self.served.append(request)
        return answer

    def _cancelled(self, answer: Deferred[Response]) -> None:
        for entry in self.asked:
            if entry[1] is answer:
                self.asked.remove(entry)
                self.cancelled.append(entry[0])
                if self.most == 1:
                    self.abort()
                else:
                    self._freed()
                return

    def _freed(self) -> None:
        if self.draining and not self.asked:
            self._close()
        elif self.capacity == 1:
            self.ready(self)

    def answer(self, status: int = OK, index: int = 0) -> Response:
        """Answer a request that is under way."""
        _, answer = self.asked.pop(index)
        response = Response(status)
        self._freed()
        answer.callback(response)
        return response

    def refuse(self, reason: Abort, index: int = 0) -> None:
        """Fail one request; the connection stays."""
        _, answer = self.asked.pop(index)
        self._freed()
        answer.errback(reason)

    def lose(self, reason: Abort | None = None) -> None:
        """The peer is gone."""
        self.dead = True
        asked, self.asked = self.asked, []
        for _, answer in asked:
            answer.errback(lost() if reason is None else reason)
        self._close()

    def drain(self) -> None:
        self.draining = True
        if not self.asked:
            self._close()

    def abort(self) -> None:
        if not self.dead:
            self.dead = True
            asked, self.asked = self.asked, []
            for _, answer in asked:
                answer.errback(lost())
            self._close()

    def _close(self) -> None:
        self.dead = True
        if not self.lazy:
            self.end()

    def end(self) -> None:
        """The transport reports the end."""
        if not self.closed.called:
            self.closed.callback(None)


class Codec:
    """
    A codec whose connections are ready when TCP is up, or when a test says so.

    @ivar greets: whether a connection needs more than TCP to be ready.
    """

    name, alpn = "fake", ()

    def __init__(self, greets: bool = False) -> None:
        self.greets = greets
        self.made: list[FakeConnection] = []

    def client(self, ready: Any, context: Any) -> Any:
        connection = FakeConnection(ready)
        if self.greets:
            connection.makeConnection = lambda transport: None  # type: ignore[method-assign]
        self.made.append(connection)
        return connection


@implementer(IDescribedCodec)
class Blunt(Codec):
    """One that cannot say that it refused a request unread."""

    lacks = frozenset(("refuse",))


class FakeAttempt:
    """One attempt that a pool asked for."""

    def __init__(self, ready: Callable[[IClientConnection], None], times: Any) -> None:
        self.ready, self.times = ready, times
        self.cancelled = False
        self.deferred: Deferred[None] = Deferred(self._cancel)

    def _cancel(self, _: Deferred[None]) -> None:
        self.cancelled = True

    def up(self, most: int = 1) -> FakeConnection:
        """It succeeds."""
        connection = FakeConnection(self.ready, most)
        self.ready(connection)
        self.deferred.callback(None)
        return connection

    def down(self, reason: BaseException | None = None) -> None:
        """It fails."""
        self.deferred.errback(refused() if reason is None else reason)


def refused() -> Abort:
    """What a connector says when nobody listens."""
    return Abort("refused", UPSTREAM, 502, Retry.ALWAYS, error="connection_refused")


class FakeConnector:
    """Attempts that end when the test says so."""

    def __init__(self) -> None:
        self.attempts: list[FakeAttempt] = []

    def connect(self, ready: Callable[[IClientConnection], None], times: Any) -> Deferred[None]:
        attempt = FakeAttempt(ready, times)
        self.attempts.append(attempt)
        return attempt.deferred


def ask(method: bytes = b"GET", body: IBody | None = None) -> Request:
    """A request with a ledger."""
    request = Request(method, b"/", body=body, authority=b"client.test")
    request.ledger = Ledger(1000.0)
    return request


class Outcome:
    """What became of an answer."""

    def __init__(self, answer: Response | Deferred[Response]) -> None:
        self.response: Response | None = None
        self.reason: Any = None
        self.times = 0
        self.deferred = answer if isinstance(answer, Deferred) else succeed(answer)
        self.deferred.addCallbacks(self._answered, self._failed)

    def _answered(self, response: Response) -> None:
        self.response = response
        self.times += 1

    def _failed(self, failure: Any) -> None:
        self.reason = failure.value
        self.times += 1

    @property
    def open(self) -> bool:
        return not self.times

    @property
    def status(self) -> int:
        assert self.response is not None, f"no answer: {self.reason!r}"
        return self.response.status

    def cancel(self) -> None:
        self.deferred.cancel()


@implementer(IBody)
class FakeBody:
    """A body whose bytes come when the test says so."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length
        self.attached = False
        self.sink: Any = None
        self.paused = False
        self.stopped = False

    def attach(self, sink: ISink) -> None:
        self.attached, self.sink = True, sink

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.attached = self.stopped = True


@implementer(ISink)
class FakeSink:
    """What a client codec does with a request body."""

    def __init__(self) -> None:
        self.data = b""
        self.finished = False
        self.aborted: Abort | None = None

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self, trailers: Any = None) -> None:
        self.finished = True

    def abort(self, reason: Abort) -> None:
        self.aborted = reason


@implementer(IResolver)
class FakeDns:
    """
    A name server whose answers wait for the test: C{asked} holds C{(kind, name)}, and C{say} answers the oldest.

    @ivar zone: what is answered at once: C{(kind, name)} → records, or an exception.
    """

    def __init__(self, zone: dict[tuple[str, str], Any] | None = None) -> None:
        self.zone = {} if zone is None else zone
        self.asked: list[tuple[str, str]] = []
        self.open: list[tuple[str, str, Deferred[Any]]] = []
        self.stopped = False

    def _ask(self, kind: str, name: str) -> Deferred[Any]:
        self.asked.append((kind, name))
        answer: Deferred[Any] = Deferred()
        if (kind, name) in self.zone:
            self._fire(answer, self.zone[kind, name])
        else:
            self.open.append((kind, name, answer))
        return answer

    def lookupAddress(self, name: str, timeout: Sequence[int] | None = None) -> Deferred[Any]:
        return self._ask("A", name)

    def lookupIPV6Address(self, name: str, timeout: Sequence[int] | None = None) -> Deferred[Any]:
        return self._ask("AAAA", name)

    def lookupService(self, name: str, timeout: Sequence[int] | None = None) -> Deferred[Any]:
        return self._ask("SRV", name)

    def stop(self) -> None:
        self.stopped = True

    def say(self, kind: str, records: Any) -> None:
        """Answer the oldest open question of that kind."""
        for entry in self.open:
            if entry[0] == kind:
                self.open.remove(entry)
                self._fire(entry[2], records)
                return
        raise AssertionError(f"nobody asked for {kind}: {self.open}")

    @staticmethod
    def _fire(answer: Deferred[Any], records: Any) -> None:
        if isinstance(records, BaseException):
            answer.errback(records)
        else:
            authority = [record for record in records if record.type == dns.SOA]
            answer.callback(([record for record in records if record.type != dns.SOA], authority, []))


NXDOMAIN = DNSNameError(dns.Message())
SERVFAIL = DNSServerError(dns.Message())


def a(name: str, address: str, ttl: int = 60) -> dns.RRHeader:
    return dns.RRHeader(name.encode(), dns.A, ttl=ttl, payload=dns.Record_A(address, ttl))


def aaaa(name: str, address: str, ttl: int = 60) -> dns.RRHeader:
    return dns.RRHeader(name.encode(), dns.AAAA, ttl=ttl, payload=dns.Record_AAAA(address, ttl))


def cname(name: str, target: str, ttl: int = 60) -> dns.RRHeader:
    return dns.RRHeader(name.encode(), dns.CNAME, ttl=ttl, payload=dns.Record_CNAME(target.encode(), ttl))


def srv(name: str, priority: int, weight: int, port: int, target: str, ttl: int = 60) -> dns.RRHeader:
    payload = dns.Record_SRV(priority, weight, port, target.encode(), ttl)
    return dns.RRHeader(name.encode(), dns.SRV, ttl=ttl, payload=payload)


def soa(ttl: int, minimum: int) -> dns.RRHeader:
    return dns.RRHeader(b"test", dns.SOA, ttl=ttl, payload=dns.Record_SOA(minimum=minimum, ttl=ttl))
