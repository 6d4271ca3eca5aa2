"""
Both sides, and the codec.

Rules
- A reply is passed on by its first line: an array is never counted to its end before it leaves.
- A command that is framed well but may not be asked is answered with an error; the next one is served.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar, Final

from zope.interface import implementer

from protogate.interfaces import IDescribedCodec, IStreamCodec
from protogate.message import Field, Request, Response
from protogate.ordered import client, server
from protogate.ordered.fault import refused
from protogate.ordered.link import END, Events
from protogate_resp.messages import RESP, asked, command, said, status_of
from protogate_resp.wire import CRLF, argument, rest, start, string

TEXT: Final = [(b"content-type", b"text/plain; charset=utf-8")]
BYTES: Final = [(b"content-type", b"application/octet-stream")]


class Server(server.Server):
    """A connection from a client of Redis."""

    protocol = RESP
    _end = b""  # of the reply

    def read(self) -> Events:
        data = self.input
        while True:
            kind, count, _ = yield from start(data)
            if kind != b"*" or count < 1:
                raise ValueError("not a command")
            words = []
            for _ in range(min(count, 2)):
                words.append((yield from self._word()))
            if count == 3:
                size = yield from argument(data)
                yield asked(words, count), size
                yield from string(data, size)
            else:
                yield asked(words, count), None if count > 3 else 0
                for _ in range(2, count):
                    size = yield from argument(data)
                    yield b"$%d\r\n" % size
                    yield from string(data, size)
                    yield CRLF
            yield END

    def _word(self) -> Generator[None, None, bytes]:
        size = yield from argument(self.input)
        if size > self.context.limits.request_line:
            raise refused("too long", 414)
        word = yield from self.input.exactly(size + 2)
        if not word.endswith(CRLF):
            raise ValueError("a string that is longer than it said")
        return word[:-2]

    def head(self, message: Response, length: int | None) -> bytes:
        self._end = b""
        if message.body is not None:
            if message.protocol == RESP:
                return b""  # a reply as it came
            if message.status < 300 and length is not None:
                self._end = CRLF
                return b"$%d\r\n" % length
        instead = said(message)
        self.drop(message)
        return instead

    def tail(self, trailers: Sequence[Field]) -> bytes:
        return self._end


class Client(client.Client):
    """A connection to Redis, or to whoever speaks as it does."""

    protocol = RESP
    _end = b""  # of the command

    def head(self, message: Request, length: int | None) -> bytes:
        before, self._end = command(message, length)
        return before

    def tail(self, trailers: Sequence[Field]) -> bytes:
        return self._end

    def read(self) -> Events:
        while True:
            kind, size, raw = yield from start(self.input)
            status, sized = status_of(kind, size, raw), kind == b"$" and size >= 0
            if self.half.request.protocol == RESP:
                yield Response(status), None if kind == b"*" else len(raw) + (size + 2 if sized else 0)
                yield raw
                yield from rest(self.input, kind, size)
            elif sized:
                yield Response(status, BYTES), size
                yield from string(self.input, size)
            elif kind in b"+-:":
                yield Response(status, TEXT), len(raw) - 3
                yield raw[1:-2]
            elif kind == b"$":
                yield Response(status), 0
            else:
                raise ValueError("a reply that cannot be passed on")
            yield END


@implementer(IStreamCodec, IDescribedCodec)
class Resp:
    """RESP2."""

    name = "resp"
    alpn = ()
    distribution = "protogate-resp"
    lacks = (
        *("fields", "method", "query", "status", "length", "deadline", "trailers", "interim", "continue"),
        *("upgrade", "halfclose", "head", "refuse", "multiplex", "goaway"),
    )
    depends: ClassVar[Mapping[str, str]] = {}
    server, client = Server, Client

    def sniff(self, prefix: bytes) -> bool | None:
        """A command is an array."""
        if prefix[:1] not in (b"", b"*"):
            return False
        return None if len(prefix) < 2 else prefix[1:2] in b"123456789"
