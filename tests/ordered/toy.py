"""
The smallest protocol that answers in order, and either end of it by hand.

    POST /x a.test 5    method, target, authority, length of the content
    x-a=1               fields, then an empty line

    hello.;x-b=2        content, and behind it a line with the trailers

Where the length is *, each piece of the content has a line with its own before it, and the last one is 0.  An answer
has a status instead of the first three words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from zope.interface import implementer

from protogate.context import Context, Limits, Timeouts
from protogate.interfaces import IDescribedCodec, IStreamCodec
from protogate.message import Field, Peer, Request, Response
from protogate.ordered.client import Client
from protogate.ordered.link import END, Events
from protogate.ordered.server import Server
from protogate.testing.cell import App
from protogate.testing.transport import HIGH, Wire
from protogate.wheel import Wheel

LINE = 10000


def pair(line: bytes) -> Field:
    name, _, value = line.partition(b"=")
    return name, value


class Toy:
    """What both sides say alike."""

    input: Any
    pieces = False
    protocol = "TOY"

    def read(self) -> Events:
        source = self.input
        while True:
            *start, size = (yield from source.line(LINE, b"\n")).split(b" ")
            fields: list[Field] = []
            while line := (yield from source.line(LINE, b"\n")):
                fields.append(pair(line))
            length = None if size == b"*" else int(size)
            yield self.message(start, fields), length
            if length is None:
                while piece := int((yield from source.line(LINE, b"\n"))):
                    yield from source.pieces(piece)
            else:
                yield from source.pieces(length)
            dot, *trailers = (yield from source.line(LINE, b"\n")).split(b";")
            if dot != b".":
                raise ValueError("no end")
            yield [pair(line) for line in trailers] or END

    def message(self, start: list[bytes], fields: list[Field]) -> Any:
        raise NotImplementedError

    def start(self, words: bytes, fields: Sequence[Field], length: int | None) -> bytes:
        self.pieces = length is None
        size = b"*" if length is None else b"%d" % length
        return b"%b %b\n%b\n" % (words, size, b"".join(b"%b=%b\n" % field for field in fields))

    def content(self, data: bytes) -> bytes:
        return b"%d\n%b" % (len(data), data) if self.pieces else data

    def tail(self, trailers: Sequence[Field]) -> bytes:
        end = b"".join(b";%b=%b" % field for field in trailers)
        return (b"0\n." if self.pieces else b".") + end + b"\n"


class ToyServer(Toy, Server):
    def message(self, start: list[bytes], fields: list[Field]) -> Request:
        method, target, authority = start
        return Request(method, target, fields, authority=authority)

    def head(self, response: Response, length: int | None) -> bytes:
        if self.half.request.method == b"HEAD":
            self.drop(response)
            length = 0
        return self.start(b"%d" % response.status, response.headers, length)


class ToyClient(Toy, Client):
    def message(self, start: list[bytes], fields: list[Field]) -> Response:
        (status,) = start
        return Response(int(status), fields)

    def head(self, request: Request, length: int | None) -> bytes:
        words = b"%b %b %b" % (request.method, request.target, request.authority)
        return self.start(words, request.headers, length)


@implementer(IStreamCodec, IDescribedCodec)
class ToyCodec:
    name, alpn, distribution = "toy", (), "protogate"
    lacks = ("interim", "continue", "upgrade", "halfclose", "refuse", "multiplex", "goaway", "deadline")
    depends: dict[str, str] = {}  # noqa: RUF012

    def sniff(self, prefix: bytes) -> bool | None:
        return prefix[0] < 128 if prefix else None

    def server(self, service: Any, context: Context) -> ToyServer:
        return ToyServer(service, context)

    def client(self, ready: Callable[[Any], None], context: Context) -> ToyClient:
        return ToyClient(ready, context)


class End:
    """
    One end, on a wire that can be looked into, with a clock.

    @ivar counted: what it counted.
    """

    link: Any

    def __init__(self, limits: Limits | None, timeouts: Timeouts | None, high: int) -> None:
        self.clock, self.counted = Clock(), list[str]()
        self.context = Context(Wheel(self.clock), limits, timeouts, self.counted.append)
        self.wire: Any = Wire(high=high)

    def send(self, data: bytes) -> None:
        """The peer says something, as far as it is read."""
        assert self.wire.reading, "nobody reads"
        self.link.dataReceived(data)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 4)):
            self.clock.advance(0.25)

    def leave(self, why: Exception | None = None) -> None:
        """The connection is gone."""
        self.wire.lost(self.link, why or ConnectionDone())

    @property
    def said(self) -> bytes:
        """What was written and did not leave yet."""
        return self.wire.value()


class ServerEnd(End):
    """A server, and what is behind it."""

    def __init__(
        self,
        kind: type[ToyServer] = ToyServer,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        high: int = HIGH,
        peer: Peer | None = None,
    ) -> None:
        super().__init__(limits, timeouts, high)
        if peer is not None:
            self.wire.peer = peer
        self.app = App()
        self.link = kind(self.app, self.context)
        self.link.makeConnection(self.wire)


class ClientEnd(End):
    """
    A client.

    @ivar rises: how often it was ready.
    """

    def __init__(
        self,
        kind: type[ToyClient] = ToyClient,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        high: int = HIGH,
    ) -> None:
        super().__init__(limits, timeouts, high)
        self.rises = 0
        self.link = kind(self._rose, self.context)
        self.link.makeConnection(self.wire)

    def _rose(self, link: Any) -> None:
        self.rises += 1

    def ask(self, method: bytes = b"GET", body: Any = None, **named: Any) -> tuple[list[Response], list[Any]]:
        """Ask; the answers and the errors that come of it."""
        answers, errors = list[Response](), list[Any]()
        answer = self.link.handle(Request(method, b"/x", body=body, **named))
        self.answer = answer
        answer.addCallbacks(answers.append, lambda failure: errors.append(failure.value))
        return answers, errors
