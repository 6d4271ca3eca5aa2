"""A connection to Redis, or to whoever speaks as it does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.message import Field, Request, Response
from protogate.ordered.client import Client
from protogate.ordered.fault import refused
from protogate.ordered.link import END, Events
from protogate_resp.commands import RESP, TYPE, VERBS, WORDS, key_of
from protogate_resp.values import CRLF, array, line, string

_ERROR: Final = re.compile(rb"-([A-Z]+)(?: ([45][0-9][0-9]))?(?: .*)?").fullmatch
_STATUSES: Final = {b"NOPERM": 403, b"WRONGTYPE": 409} | dict.fromkeys(
    (b"BUSY", b"CLUSTERDOWN", b"LOADING", b"MASTERDOWN", b"OOM", b"READONLY", b"TRYAGAIN"), 503
)


class RespClient(Client):
    """Commands out, replies in."""

    protocol = RESP
    last = b""  # what ends the command that is being written

    def head(self, request: Request, length: int | None) -> bytes:
        key, self.last = key_of(request), b""
        if request.protocol == RESP:
            return self.passed(request, key, length)
        verb = VERBS.get(request.method)
        if verb is None:
            raise Abort("no command is meant by this", CLIENT, 405, headers=[(b"allow", b"GET, PUT, DELETE")])
        if verb == b"SET":
            return self.value(array(3, verb, key), length)
        if length != 0:
            raise refused("content where a command takes none")
        return array(2, verb, key)

    def passed(self, request: Request, key: bytes, length: int | None) -> bytes:
        """The start of a command that came as one."""
        words = request.headers.get(WORDS) or b""
        count = int(words) if words.isdigit() else 0
        if not count or (count < 3 and length != 0) or (count > 3 and length == 0):
            raise Abort("a command that lost some of its words", GATEWAY, 500)
        start = array(count, *[request.method, key][:count])
        return self.value(start, length) if count == 3 else start

    def value(self, start: bytes, length: int | None) -> bytes:
        """The start of a command whose last word is the content."""
        if length is None:
            raise refused("a value needs a length", 411)
        self.last = CRLF
        return b"%b$%d\r\n" % (start, length)

    def tail(self, trailers: Sequence[Field]) -> bytes:
        return self.last

    def read(self) -> Events:
        source = self.input
        while True:
            kind, size, text = yield from line(source)
            if kind == b"$":
                yield reply(kind, 404 if size < 0 else 200), max(size, 0)
                if size >= 0:
                    yield from string(source, size)
            elif kind != b"*":
                yield reply(kind, status_of(text)), len(text) - 1
                yield text[1:]
            else:
                yield reply(kind, 404 if size < 0 else 200), None
                yield text + CRLF
                while size > 0:  # values that are still to come
                    kind, more, text = yield from line(source)
                    size += more - 1 if kind == b"*" and more > 0 else -1
                    yield text + CRLF
                    if kind == b"$" and more >= 0:
                        yield from string(source, more)
                        yield CRLF
            yield END


def reply(kind: bytes, status: int) -> Response:
    """One that began with that byte."""
    media = b"application/octet-stream" if kind in (b"$", b"*") else b"text/plain; charset=utf-8"
    return Response(status, [(TYPE, kind), (b"content-type", media)])


def status_of(text: bytes) -> int:
    """What a line is to other protocols."""
    if not text.startswith(b"-"):
        return 200
    error = _ERROR(text)
    if error is None:
        return 400
    return int(error[2]) if error[2] else _STATUSES.get(error[1], 400)
