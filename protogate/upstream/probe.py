"""
One look at an endpoint, on a connection of its own: is it there, and does it say that it is well?

Rules
- The connection is made for the look and closed after it: those of requests are neither used nor waited for.  It is
  broken off unless all went well: servers log what is.
- What comes of it is a text: empty when all is well, else why not, for people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from protogate.body import Whole
from protogate.config import model
from protogate.config.health import statuses
from protogate.governance.asking import Answer, ask
from protogate.interfaces import IClientConnection
from protogate.message import Request
from protogate.upstream.connector import Connector
from protogate.wheel import Wheel

LIMIT: Final = 64 * 1024
"""Bytes of an answer that are looked at; one that is longer is not well."""
AGENT: Final = b"protogate-health-check"
GRPC: Final = b"/grpc.health.v1.Health/Check"
_SERVING: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")

Judge = Callable[[Answer], str]
Ping = Callable[[IClientConnection], Deferred[None]]


class Phases:
    """What an attempt to connect notes down; nobody reads it."""

    __slots__ = ("connect", "dns", "preface", "tls")

    def __init__(self) -> None:
        self.dns = self.connect = self.tls = 0.0
        self.preface = b""


class Probe:
    """
    A look that is under way.

    @param request: what is asked; None = it is enough to be connected.
    @param judge: of the answer.
    @param done: told what came of it, once, unless L{stop} was called before.
    @param ping: asks a connection for a sign of life (L{IPingingCodec}), where nothing else is asked.
    """

    __slots__ = (
        "_asking", "_connecting", "_connection", "_done", "_judge", "_ping", "_request", "_seconds", "_timer", "_wheel",
    )  # fmt: skip

    def __init__(
        self,
        request: Request | None,
        judge: Judge,
        wheel: Wheel,
        seconds: float,
        done: Callable[[str], None],
        ping: Ping | None = None,
    ) -> None:
        self._request, self._judge, self._wheel, self._seconds, self._ping = request, judge, wheel, seconds, ping
        self._done: Callable[[str], None] | None = done
        self._connecting: Deferred[None] | None = None
        self._connection: IClientConnection | None = None
        self._asking: Deferred[Any] | None = None
        self._timer = wheel.timer(self._late)

    def start(self, connector: Connector) -> None:
        """Connect; then ask."""
        self._timer.set(self._seconds)
        connecting = self._connecting = connector.connect(self._ready, Phases())
        connecting.addErrback(self._failed)

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._done = None
        self._over("nobody wants to know")

    def _ready(self, connection: IClientConnection) -> None:
        if self._done is None or self._connection is not None:
            return  # capacity rises again and again
        self._connection, self._connecting = connection, None
        request, ping = self._request, self._ping
        if request is None and ping is None:
            self._wheel.soon(self._connected)  # who called is not done with it yet
            return
        if request is None:
            assert ping is not None
            ponging = self._asking = ping(connection)
            ponging.addCallbacks(self._ponged, self._failed)
            return
        asking = ask(connection, request, self._wheel, self._seconds, LIMIT)
        self._asking = asking
        asking.addCallbacks(self._answered, self._failed)

    def _connected(self) -> None:
        self._over("")

    def _ponged(self, _: None) -> None:
        self._asking = None
        self._wheel.soon(self._connected)  # who read it is not done with the connection yet

    def _answered(self, answer: Answer) -> None:
        self._asking = None
        self._over(self._judge(answer))

    def _failed(self, failure: Failure) -> None:
        self._asking = None
        if not failure.check(CancelledError):
            self._over(str(failure.value))

    def _late(self) -> None:
        self._over(f"not well within {self._seconds:g} s")

    def _over(self, why: str) -> None:
        done, self._done = self._done, None
        self._timer.end()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None and why:
            connection.abort()
        elif connection is not None:
            connection.drain()
        if done is not None:
            done(why)


def question(settings: model.HealthCheck, authority: bytes) -> Request | None:
    """What is asked."""
    kind = settings.type
    name = settings.host.encode("ascii") or authority
    if kind == "http":
        headers = [(b"user-agent", AGENT)]
        return Request(settings.method.encode("ascii"), settings.path.encode("ascii"), headers, None, name)
    if kind == "grpc":
        service = settings.service.encode("utf-8")
        message = b"\x0a" + _varint(len(service)) + service if service else b""
        headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"user-agent", AGENT)]
        return Request(b"POST", GRPC, headers, Whole(b"\0" + len(message).to_bytes(4) + message), name)
    return None


def judge(settings: model.HealthCheck) -> Judge:
    """What is well."""
    if settings.type == "grpc":
        return _serving
    wanted, text = statuses(settings.statuses), settings.body.encode("utf-8")

    def well(answer: Answer) -> str:
        if answer.status not in wanted:
            return f"it answered {answer.status}"
        return "" if text in answer.content else f"its answer has no {settings.body!r} in it"

    return well


def _serving(answer: Answer) -> str:
    """By the protocol of health checks of gRPC: C{HealthCheckResponse.status}."""
    told = [value for name, value in (*answer.headers, *answer.trailers) if name == b"grpc-status"]
    if answer.status != 200 or told != [b"0"]:
        code = told[-1].decode("latin-1") if told else "none"
        return f"it answered {answer.status} with grpc-status {code}"
    message = answer.content[5:]
    if answer.content[:1] != b"\0" or len(message) != int.from_bytes(answer.content[1:5]):
        return "its answer is no message of gRPC"
    status = message[1] if len(message) == 2 and message[0] == 0x08 else 0
    if status == 1:
        return ""
    return f"it says {_SERVING[status] if status < len(_SERVING) else status}"


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))
