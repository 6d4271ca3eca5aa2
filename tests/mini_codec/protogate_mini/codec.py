"""
The protocol on protogate's seams: a server, a client, and the codec that makes them.

All rules of an exchange are in L{protogate.halves}, all rules of a connection in L{protogate.connection}; here are only
frames, and which stream is which; L{protogate_mini.streams} has the credit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from protogate.body import Body
from protogate.connection import Connection
from protogate.errors import ALWAYS, CLIENT, CLIENT_GONE, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase, timeout
from protogate.halves import CUT, OPEN, Half
from protogate.interfaces import (
    IClientConnection,
    IConnection,
    IDescribedCodec,
    IReadableCodec,
    IService,
    IStreamCodec,
)
from protogate.message import Peer, Request, Response
from protogate_mini.frames import (
    BROKEN,
    CANCEL,
    CREDIT,
    DATA,
    END,
    HEAD,
    NUMBER,
    REFUSED,
    TARGET,
    TOKEN,
    UNWANTED,
    Field,
    Frame,
    credit,
    frame,
    frames,
    shown,
    unpack,
)
from protogate_mini.streams import Answer, Ask

if TYPE_CHECKING:
    from protogate.context import Context, Limits

STREAMS: Final = 100
"""Requests at once."""
INTERIMS: Final = 16
"""Interim responses to one request."""


@implementer(IConnection)
class Many(Connection):
    """What both sides share."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.streams: dict[int, Any] = {}
        self.data = b""
        self.quiet = self.now()  # since when there is no stream

    def halves(self) -> Collection[Half]:
        return self.streams.values()

    def resumeProducing(self) -> None:
        self.full = False
        for stream in list(self.streams.values()):
            if not self.full:
                stream.wake()

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            return
        self.cork()
        batch, self.data, wrong = frames(self.data + data)
        new: list[Any] = []  # handed on when the whole read is fed, whatever is wrong behind it
        try:
            for item in batch:
                if not self.dead:
                    self.take(item, new)
        except ValueError as error:
            wrong = str(error)
        for stream in new:
            self.fire(stream)
        if wrong:
            self.context.count("malformed_frame")
            self.broken(wrong)
        self.uncork()

    def take(self, item: Frame, new: list[Any]) -> None:
        """One frame."""
        kind, number, payload = item
        stream = self.streams.get(number)
        if kind == HEAD:
            stream = self.head(number, stream, unpack(payload))
            if stream is not None:
                new.append(stream)
        elif stream is None:
            if number > self.newest():
                raise ValueError("a stream that was never opened")
        elif kind == DATA:
            stream.arrived(payload)
            if stream.due is not None and stream.due < 0:
                self.mismatch(stream)
            elif self.over_limit(stream):
                stream.broken(Abort("content too large", CLIENT, 413, detail="content too large"))
        elif kind == END:
            if stream.due:
                self.mismatch(stream)
            else:
                stream.ended(unpack(payload) or None)
        elif kind == CREDIT:
            stream.credit += credit(payload)
            stream.since = self.now()
            stream.wake()
        else:
            self.forget(stream)
            stream.lost(self.cancelled(stream, payload))

    def mismatch(self, stream: Any) -> None:
        """A body that is not as long as it said."""
        reason = self.cancelled(stream, b"")
        stream.cancel(BROKEN)
        stream.lost(reason)

    # -- for the sides to fill in

    client = False

    def head(self, number: int, stream: Any, fields: list[Field]) -> Any:
        """A HEAD; a new stream, or one whose answer began."""
        raise NotImplementedError

    def fire(self, stream: Any) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def newest(self) -> int:
        """The highest number of a stream so far."""
        raise NotImplementedError

    def cancelled(self, stream: Any, payload: bytes) -> Abort:
        """Why the peer ended a stream."""
        raise NotImplementedError

    def over_limit(self, stream: Any) -> bool:
        """Whether the body that is being read is too large."""
        return False

    def broken(self, why: str) -> None:
        """What was read makes no sense."""
        self.abort()

    # -- ends

    def done(self, stream: Any) -> None:
        """One half is out, or in; are both?"""
        if stream.last is None and OPEN not in (stream.writing, stream.reading):
            if CUT in (stream.reading, stream.writing):
                stream.cancel(UNWANTED)
            else:
                self.forget(stream)

    def forget(self, stream: Any) -> None:
        """A stream is no more."""
        self.streams.pop(stream.number, None)
        if not self.streams:
            self.rest()

    def rest(self) -> None:
        """No stream is left."""
        self.quiet = self.now()
        if self.draining:
            self.close()

    def drain(self) -> None:
        self.draining = True
        if not self.streams:
            self.close()

    def end(self) -> None:
        super().end()
        self.streams = {}


class Server(Many):
    """A connection from a client."""

    def __init__(self, service: IService, context: Context) -> None:
        super().__init__(context)
        self.service = service
        self.peer = Peer()
        self.highest = 0

    def connectionMade(self) -> None:
        super().connectionMade()
        address = self.transport.getPeer()
        self.peer = Peer(getattr(address, "host", ""), getattr(address, "port", 0))
        self.watch(self.context.timeouts.client_idle or inf)

    def newest(self) -> int:
        return self.highest

    def head(self, number: int, stream: Any, fields: list[Field]) -> Any:
        if number <= self.highest:
            raise ValueError("a stream is opened once, and numbers go up")
        self.highest = number
        if self.draining or len(self.streams) >= STREAMS:
            self.put(frame(CANCEL, number, bytes([REFUSED])))
            return None
        half = self.streams[number] = Answer(self)
        half.setup(number)
        special = {name: value for name, value in fields if name[:1] == b":"}
        method, target = special.get(b":method", b""), special.get(b":target", b"")
        upgrade, length = special.get(b":upgrade"), special.get(b":length")
        size = int(length) if length is not None and NUMBER(length) else None
        reason = self.fault(method, target, length, fields)
        body = None if size == 0 or reason is not None else Body(half, size)
        half.due = size
        if reason is not None:
            half.reading, half.due = CUT, None
        plain = [field for field in fields if field[0][:1] != b":"]
        authority = special.get(b":authority", b"")
        request = Request(method, target, plain, body, authority, b"http", upgrade, half.interim, "MINI/1", self.peer)
        request.malformed = reason
        half.open(request)
        return half

    def fault(self, method: bytes, target: bytes, length: bytes | None, fields: list[Field]) -> Abort | None:
        """What is wrong with a head."""
        limits = self.context.limits
        if TOKEN(method) is None or TARGET(target) is None or (length is not None and NUMBER(length) is None):
            return Abort("not a request", CLIENT, 400, detail="not a request")
        if len(method) + len(target) > limits.request_line:
            return Abort("request line too long", CLIENT, 414, detail="request line too long")
        sizes = [len(name) + len(value) for name, value in fields if name[:1] != b":"]
        if len(sizes) > limits.header_count or sum(sizes) > limits.headers:
            return Abort("header fields too large", CLIENT, 431, detail="header fields too large")
        if sizes and max(sizes) > limits.header_line:
            return Abort("header field too large", CLIENT, 431, detail="header field too large")
        if limits.body and length is not None and int(length) > limits.body:
            return Abort("content too large", CLIENT, 413, detail="content too large")
        return None

    def over_limit(self, stream: Any) -> bool:
        most = self.context.limits.body
        return bool(most and stream.ledger.received > most and not stream.tunnel and stream.request.upgrade is None)

    def fire(self, stream: Any) -> None:
        stream.begin(self.service)

    def cancelled(self, stream: Any, payload: bytes) -> Abort:
        return CLIENT_GONE

    def gone(self, half: Half) -> Abort:
        return CLIENT_GONE

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.client_stall

    def late(self, now: float) -> float:
        times = self.context.timeouts
        if times.client_stall and self.stalled(now) >= times.client_stall:
            self.context.count("client_stall_timeout")
            self.abort()
            return inf
        left = inf
        if not self.streams and times.client_idle:
            left = self.quiet + times.client_idle - now
            if left <= 0:
                self.context.count("client_idle_timeout")
                self.close()
        for stream in list(self.streams.values()):
            if stream.queue and times.client_stall:
                due = stream.since + times.client_stall - now  # a peer that never gives credit holds nothing for ever
                if due <= 0:
                    self.context.count("client_stall_timeout")
                    stream.lost(timeout(Phase.CLIENT_STALL, CLIENT, times.client_stall))
                    stream.cancel(BROKEN)
                else:
                    left = min(left, due)
        return min(left, self.look()) if self.unsent() else left

    def rest(self) -> None:
        super().rest()
        self.watch(self.context.timeouts.client_idle or inf)


@implementer(IClientConnection)
class Client(Many):
    """A connection to an upstream."""

    client = True

    def __init__(self, ready: Callable[[Client], None], context: Context) -> None:
        super().__init__(context)
        self.ready, self.number = ready, 0
        self.up = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self.up = True
        self.ready(self)

    @property
    def capacity(self) -> int:
        """Requests it would take right now."""
        return 0 if self.draining or self.dead or not self.up else STREAMS - len(self.streams)

    def newest(self) -> int:
        return self.number

    def handle(self, request: Request) -> Deferred[Response]:
        if not self.capacity:
            return fail(Abort("no capacity on this connection", UPSTREAM, 502, ALWAYS))
        self.number += 1
        half = self.streams[self.number] = Ask(self)
        half.setup(self.number)
        self.watch(self.context.timeouts.response_head or inf)
        return half.begin(request)

    def head(self, number: int, stream: Any, fields: list[Field]) -> Any:
        if stream is None:
            if number > self.number:
                raise ValueError("an answer that nobody asked for")
            return None
        stream.since = self.now()
        if stream.response is not None or not fields or fields[0][0] != b":status" or not _status(fields[0][1]):
            raise ValueError("not an answer")
        status, size = int(fields[0][1]), None
        plain = [field for field in fields if field[0][:1] != b":"]
        if sum(len(name) + len(value) for name, value in plain) > self.context.limits.response_headers:
            self.context.count("response_headers_too_large")
            stream.cancel(UNWANTED)
            stream.lost(Abort("response header fields too large", UPSTREAM, 502, NEVER))
            return None
        for name, value in fields:
            if name == b":length":
                if NUMBER(value) is None:
                    raise ValueError("not a length")
                size = int(value)
        if status < 200 and status != 101:
            stream.interims += 1
            if stream.interims > INTERIMS:
                raise ValueError("too many interim responses")
            if stream.request is not None:
                stream.request.interim(Response(status, plain))
            return None
        stream.due = size
        stream.headed(Response(status, plain, None if size == 0 else Body(stream, size)))
        return stream

    def fire(self, stream: Any) -> None:
        stream.fire()

    def forget(self, stream: Any) -> None:
        full = len(self.streams) >= STREAMS
        super().forget(stream)
        if full and self.capacity:
            self.ready(self)

    def cancelled(self, stream: Any, payload: bytes) -> Abort:
        if payload[:1] == bytes([REFUSED]) and stream.response is None:
            return Abort("the upstream refused it unread", UPSTREAM, 502, ALWAYS)
        return self.gone(stream)

    def gone(self, half: Half) -> Abort:
        retry = IDEMPOTENT if half.response is None else NEVER
        return Abort("the upstream broke off", UPSTREAM, 502, retry)

    # -- clocks

    def patience(self) -> float:
        return self.context.timeouts.upstream_stall

    def late(self, now: float) -> float:
        times = self.context.timeouts
        if times.upstream_stall and self.stalled(now) >= times.upstream_stall:
            self.abort()
            return inf
        next_look = self.look() if self.unsent() else inf
        for stream in list(self.streams.values()):
            phase, seconds = Phase.RESPONSE_STALL, times.response_stall
            if stream.response is None:
                phase, seconds = Phase.RESPONSE_HEAD, times.response_head
            if not seconds or stream.tunnel:
                continue
            if stream.paused or stream.writing == OPEN:
                stream.since = now  # it is not this side that is waited for
            left = stream.since + seconds - now
            if left <= 0:
                stream.cancel(UNWANTED)
                stream.lost(timeout(phase, UPSTREAM, seconds))
            else:
                next_look = min(next_look, left)
        return next_look


def _status(value: bytes) -> bool:
    return len(value) == 3 and NUMBER(value) is not None and 100 <= int(value) < 600


@implementer(IStreamCodec, IDescribedCodec, IReadableCodec)
class Mini:
    """The codec."""

    name = "mini"
    alpn = (b"mini",)
    distribution = "protogate-mini"
    lacks = frozenset(("continue", "goaway", "head", "deadline"))
    depends: Mapping[str, str] = {}

    def sniff(self, prefix: bytes) -> bool | None:
        """A connection begins with a HEAD, which is shorter than 16 MiB."""
        if prefix[:1] not in (b"", b"\x00"):
            return False
        return None if len(prefix) < 5 else prefix[4] == HEAD

    def server(self, service: IService, context: Context) -> Server:
        """A connection from a client."""
        return Server(service, context)

    def client(self, ready: Callable[[IClientConnection], None], context: Context) -> Client:
        """A connection to an upstream."""
        return Client(ready, context)

    def dissect(self, data: bytes, client: bool, limits: Limits) -> Iterator[str]:
        """Frames: they look the same on both sides."""
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big") + 9
            found, rest, wrong = frames(data[at : at + size])
            if wrong:
                raise ValueError(f"at {at}: {wrong}")
            if rest or not found:
                raise ValueError(f"at {at}: a frame that is cut off")
            yield f"{at}: {shown(found[0])}"
            at += size


__all__ = ["Mini"]
