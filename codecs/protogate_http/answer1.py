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
from protogate.message import Field, Response
from protogate_http.semantics import accept, bodyless, described, key, sendable
from protogate_http.wire1 import CLOSE, emit

if TYPE_CHECKING:
    from protogate_http.server1 import Server

_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus} | {
    413: b"Content Too Large",
    414: b"URI Too Long",
    422: b"Unprocessable Content",
}
STATUS: Final = [b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b"")) for status in range(600)]


@specialised
class Answer(Serving):
    """
    One request from a client.

    @ivar method: of the request.
    @ivar http10: whether it came as HTTP/1.0.
    @ivar keep: whether the connection may live on.
    @ivar expect: the client waits for 100 Continue.
    @ivar upgrade: C{request.upgrade}.
    @ivar size: length of the request body, 0 when unknown.
    @ivar chunked: @ivar left: framing of the response: chunked, or bytes still due, or neither.
    """

    __slots__ = ("chunked", "expect", "http10", "keep", "left", "method", "size", "upgrade")
    connection: Server

    def __init__(self, connection: Server, method: bytes) -> None:
        super().__init__(connection)
        self.method = method
        self.chunked = self.expect = self.http10 = False
        self.keep = True
        self.left: int | None = None
        self.size = 0
        self.upgrade: bytes | None = None

    def interim(self, response: Response) -> None:
        """C{request.interim} of a client that understands 1xx."""
        status = response.status
        if self.response is None and self.writing == OPEN and 101 < status < 200:
            self.connection.put(emit(STATUS[status], sendable(response.headers, self.connection.context.count)[0]))

    def head(self, response: Response, last: bool) -> None:
        connection, status, body = self.connection, response.status, response.body
        fields, options = sendable(response.headers, connection.context.count)
        if not self.tunnel and not 200 <= status < 600:
            connection.context.count("invalid_status")
            status, fields = 502, []
            self._without(response)
            body = None
        if self.tunnel:
            if status == 101:
                fields += ((b"connection", b"upgrade"), (b"upgrade", self.upgrade or b""))
                if response.headers.get(b"sec-websocket-accept") is None:
                    fields.append((b"sec-websocket-accept", accept(key(self.request) or b"")))  # type: ignore[arg-type]
            connection.wire.body(CLOSE)
            connection.alive()
        else:
            self._frame(response, status, body, fields)
            self._keeps(fields, options)
        connection.put(emit(STATUS[status], fields))
        if self.tunnel:
            connection.hold(False)  # bytes that came with the request belong to the tunnel
        elif self.writing == ENDED and not last:
            self.settle()
        if self.writing == OPEN:
            connection.watch(connection.look())

    def _frame(self, response: Response, status: int, body: IBody | None, fields: list[Field]) -> None:
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
                fields.append((b"content-length", size))
            self._without(response)
        elif body is None or status == 205:
            self._without(response)
            fields.append((b"content-length", b"0"))
        elif body.length is not None:
            self.left = body.length
            fields.append((b"content-length", b"%d" % body.length))
        elif self.http10:
            self.keep = False
        else:
            self.chunked = True
            fields.append((b"transfer-encoding", b"chunked"))

    def _keeps(self, fields: list[Field], options: tuple[bytes, ...]) -> None:
        """Say whether the connection lives on."""
        connection = self.connection
        if self.keep and (
            b"close" in options
            or self.expect  # a client that waits for 100 may send its body, or not
            # Whoever found it: nothing after it is taken for a request.
            or self.request.malformed is not None  # type: ignore[union-attr]
            or connection.draining
            or connection.deaf
            or (self.reading != ENDED and connection.remains(self))
        ):
            self.keep = False
        if not self.keep:
            fields.append((b"connection", b"close"))
        elif self.http10 or b"keep-alive" in options:
            fields.append((b"connection", b"keep-alive"))

    def _without(self, response: Response) -> None:
        body, response.body, self.outgoing, self.writing = response.body, None, None, ENDED
        if body is not None:
            body.stopProducing()

    def write(self, data: bytes) -> None:
        self.ledger.delivered += len(data)  # type: ignore[union-attr]
        self.connection.body_out(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.connection.body_end(self, trailers)

    def reset(self, reason: Abort) -> None:
        self.connection.abort()  # no last chunk, no clean FIN: the peer sees the truncation

    def over(self) -> None:
        self.connection.over(self)

    def pauseProducing(self) -> None:
        self.connection.hold(True)

    def resumeProducing(self) -> None:
        if self.expect and self.reading == OPEN and self.writing == OPEN and self.response is None:
            self.expect = False
            self.connection.put(STATUS[100] + b"\r\n")
            self.connection.restart()
        self.connection.hold(False)
