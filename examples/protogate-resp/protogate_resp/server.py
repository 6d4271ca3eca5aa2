"""A connection from a client of Redis."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from http import HTTPStatus

from protogate.message import Field, Response
from protogate.ordered.fault import refused
from protogate.ordered.link import END, Events
from protogate.ordered.server import Server
from protogate_resp.commands import RESP, TYPE, command
from protogate_resp.values import CRLF, line, string

ERRORS = {401: b"NOAUTH", 403: b"NOPERM"}
PHRASES = {status.value: status.phrase for status in HTTPStatus}


class RespServer(Server):
    """Commands in, replies out."""

    protocol = RESP
    kind, last = b"", b""  # of the reply that is being written: what it is, and what ends it

    def read(self) -> Events:
        source = self.input
        while True:
            kind, count, _ = yield from line(source)
            if kind != b"*" or count < 1:
                raise ValueError("not a command")
            words = []
            for _ in range(min(count, 2)):
                words.append((yield from self.word()))
            request = command(words, count)
            if count > 3:
                yield request, None
                for _ in range(count - 2):
                    size = yield from self.size()
                    yield b"$%d\r\n" % size
                    yield from string(source, size)
                    yield CRLF
            elif count == 3:
                size = yield from self.size()
                yield request, size
                yield from string(source, size)
            else:
                yield request, 0
            yield END

    def size(self) -> Generator[None, None, int]:
        """How long the next word is."""
        kind, size, _ = yield from line(self.input)
        if kind != b"$" or size < 0:
            raise ValueError("not a word of a command")
        return size

    def word(self) -> Generator[None, None, bytes]:
        """A word that is part of the head."""
        size = yield from self.size()
        if size > self.context.limits.request_line:
            raise refused("name or key too long", 414)
        word = yield from self.input.exactly(size + 2)
        if word[size:] != CRLF:
            raise ValueError("a word that is longer than it said")
        return word[:size]

    def head(self, response: Response, length: int | None) -> bytes:
        status, passed = response.status, response.protocol == RESP
        self.kind = kind = response.headers.get(TYPE) or b"$" if passed else b""
        self.last = b"" if kind == b"*" else CRLF
        if kind in (b"+", b"-", b":", b"*"):
            return b"" if kind == b"*" else kind
        if status < 300 and length is not None and (kind or length or self.half.request.method == b"GET"):
            return b"$%d\r\n" % length
        self.drop(response)
        if status < 300:
            return b"+OK" if length == 0 else b"-ERR 502 an answer needs a length"
        if status == 404 and response.protocol:
            return b"$-1"
        why = response.reason.detail if response.reason is not None else ""
        text = (why or PHRASES.get(status, "")).translate({10: " ", 13: " "})
        return b"-%b %d %b" % (ERRORS.get(status, b"ERR"), status, text.encode())

    def content(self, data: bytes) -> bytes:
        # A line is one line, whatever a module has made of it.
        return data.translate(None, CRLF) if self.kind in (b"+", b"-", b":") else data

    def tail(self, trailers: Sequence[Field]) -> bytes:
        return self.last
