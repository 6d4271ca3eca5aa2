"""
One request that is being served over HTTP/1, and how its response is written.

Rules
- Framing is chosen from the version, the method, the status and the known length alone; fields of a module that speak
  of framing or of the connection are taken for what they ask, never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from protogate.connection import specialised
from protogate.errors import Abort
from protogate.halves import ENDED, OPEN, Serving
from protogate.interfaces import IBody
from protogate.message import Field, Headers, Response
from protogate_http.semantics import accept, bodyless, compose, described, key
from protogate_http.wire1 import CLOSE

if TYPE_CHECKING:
    from protogate_http.server1 import Server

_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus} | {
    413: b"Content Too Large",
    414: b"URI Too Long",
    422: b"Unprocessable Content",
}
STATUS: Final = [b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b"")) for status in range(600)]


class Answer(Serving):
    """
    One request from a client.

    @ivar server: C{connection}, as what it is.
    @ivar method: of the request.
    @ivar http10: whether it came as HTTP/1.0.
    @ivar keep: whether the connection may live on.
    @ivar expect: the client waits for 100 Continue.
    @ivar upgrade: C{request.upgrade}.
    @ivar size: length of the request body, 0 when unknown.
    """

    __slots__ = ("expect", "http10", "keep", "method", "server", "size", "upgrade")

    def __init__(self, connection: Server, method: bytes) -> None:
        super().__init__(connection)
        self.server = connection
        self.method = method
        self.expect = self.http10 = False
        self.keep = True
        self.size = 0
        self.upgrade: bytes | None = None

    def interim(self, response: Response) -> None:
        """C{request.interim} of a client that understands 1xx."""
        status = response.status
        if self.response is None and self.writing == OPEN and 101 < status < 200:
            lines = [STATUS[status]]
            compose(lines, response.headers, self.server.context.count)
            lines.append(b"\r\n")
            self.server.put(b"".join(lines))

    def head(self, response: Response, last: bool) -> None:
        connection, status, body = self.server, response.status, response.body
        connection.left, connection.chunked = None, False
        if not self.tunnel and not 200 <= status < 600:
            connection.context.count("invalid_status")
            status, response.headers = 502, Headers()
            self._without(response)
            body = None
        lines = [STATUS[status]]
        options = compose(lines, response.headers, connection.context.count)
        if self.tunnel:
            if status == 101:
                lines.append(b"connection: upgrade\r\nupgrade: %b\r\n" % (self.upgrade or b""))
                if response.headers.get(b"sec-websocket-accept") is None:
                    mine = accept(key(self.request) or b"")  # type: ignore[arg-type]
                    lines.append(b"sec-websocket-accept: %b\r\n" % mine)
            connection.wire.body(CLOSE)
            connection.alive()
        else:
            self._frame(response, status, body, lines)
            self._keeps(lines, options)
        lines.append(b"\r\n")
        connection.put(b"".join(lines))
        if self.tunnel:
            connection.hold(False)  # bytes that came with the request belong to the tunnel
        elif self.writing == ENDED and not last:
            self.settle()
        if self.writing == OPEN:
            connection.watch(connection.look())

    def _frame(self, response: Response, status: int, body: IBody | None, lines: list[bytes]) -> None:
        """Delimit the body.  The serializer, not the module, enforces that there is none (RFC 9112, 6.3)."""
        if bodyless(self.method, status):
            size = None if status == 204 else described(response.headers)
            if (
                size is None
                and body is not None
                and body.length is not None
                and self.method == b"HEAD"
                and status != 204
            ):
                size = b"%d" % body.length
            if size is not None:
                lines.append(b"content-length: %b\r\n" % size)
            self._without(response)
        elif body is None or status == 205:
            self._without(response)
            lines.append(b"content-length: 0\r\n")
        elif (length := body.length) is not None:
            self.server.left = length
            lines.append(b"content-length: %d\r\n" % length)
        elif self.http10:
            self.keep = False
        else:
            self.server.chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")

    def _keeps(self, lines: list[bytes], options: tuple[bytes, ...]) -> None:
        """Say whether the connection lives on."""
        connection, request = self.server, self.request
        if self.keep and (
            b"close" in options
            or self.expect  # a client that waits for 100 may send its body, or not
            # Whoever found it: nothing after it is taken for a request.
            or request is None
            or request.malformed is not None
            or connection.draining
            or connection.deaf
            or (self.reading != ENDED and connection.remains(self))
        ):
            self.keep = False
        if not self.keep:
            lines.append(b"connection: close\r\n")
        elif self.http10 or b"keep-alive" in options:
            lines.append(b"connection: keep-alive\r\n")

    def _without(self, response: Response) -> None:
        body, response.body, self.outgoing, self.writing = response.body, None, None, ENDED
        if body is not None:
            body.stopProducing()

    def write(self, data: bytes) -> None:
        ledger = self.ledger
        assert ledger is not None
        ledger.delivered += len(data)
        self.server.body_out(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.server.body_end(self, trailers)

    def reset(self, reason: Abort) -> None:
        if self.tunnel:
            self.server.break_off()
        else:
            self.server.abort()  # no last chunk, no clean FIN: the peer sees the truncation

    def over(self) -> None:
        self.server.over(self)

    def pauseProducing(self) -> None:
        self.server.hold(True)

    def resumeProducing(self) -> None:
        if self.expect and self.reading == OPEN and self.writing == OPEN and self.response is None:
            self.expect = False
            self.server.put(STATUS[100] + b"\r\n")
            self.server.restart()
        self.server.hold(False)


specialised(Answer)
