"""
An upstream without manners, on raw sockets: what a gateway has to live with.

    python bench/origin.py --port 9000 [--each 100]

The path says what is answered, and the query how it goes wrong.

    /small /large /chunked /tail /none /late /echo    200 bytes; 200 KiB; in chunks; until the end of the connection;
                                                      204; 200 bytes after 30 ms; a tunnel that gives everything back
    ?reset=head|body|answer|half                      reset at the head, in the middle of the request's body, in the
                                                      middle of its own head, in the middle of its own body

A connection is closed after C{each} requests; every second time C{Connection: close} says so beforehand.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import re
from typing import Any, Final

from twisted.internet import reactor as installed
from twisted.internet.protocol import Factory, Protocol

reactor: Any = installed
SMALL: Final = b"x" * 200
LARGE: Final = b"y" * 200 * 1024
WEBSOCKET: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
LATE: Final = 0.03

_reset = re.compile(rb"[?&]reset=(\w+)").search
_number = itertools.count()


class Origin(Protocol):
    """One connection."""

    def __init__(self, each: int) -> None:
        self._left, self._polite = each, next(_number) % 2 == 0
        self._data = b""
        self._head: list[bytes] | None = None
        self._size = 0  # bytes of the body that are still to come; -1 = chunked
        self._reset = b""
        self._waiting = self._tunnel = self._gone = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]

    def connectionLost(self, reason: object = None) -> None:  # type: ignore[override]
        self._gone = True

    def dataReceived(self, data: bytes) -> None:
        if self._tunnel:
            self._echo(data)
            return
        self._data += data
        while not self._gone and not self._waiting and not self._tunnel:
            if self._head is None and not self._begin():
                return
            if not self._body():
                return
            self._answer()

    def _begin(self) -> bool:
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return False
        self._data, lines = rest, head.split(b"\r\n")
        match = _reset(lines[0])
        self._reset = match[1] if match else b""
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
        self._size = -1 if b"transfer-encoding" in fields else int(fields.get(b"content-length", b"0"))
        self._head = [*lines[0].split(b" "), fields.get(b"sec-websocket-key", b"")]
        if b"sec-websocket-key" in fields:
            self._head[3] = next(
                line.partition(b": ")[2] for line in lines if line.lower().startswith(b"sec-websocket-k")
            )
        if self._reset == b"head":
            self._abort()
            return False
        return True

    def _body(self) -> bool:
        """Whether it is complete."""
        if self._reset == b"body" and self._data:
            self._abort()
            return False
        if self._size < 0:
            end = self._data.find(b"0\r\n\r\n")
            if end < 0 or (end > 0 and self._data[end - 2 : end] != b"\r\n"):
                self._data = self._data[-64:]
                return False
            self._data, self._size = self._data[end + 5 :], 0
            return True
        used = min(len(self._data), self._size)
        self._data, self._size = self._data[used:], self._size - used
        return not self._size

    def _answer(self) -> None:
        assert self._head is not None
        (method, target, _, key), self._head = self._head, None
        path = target.partition(b"?")[0]
        self._left -= 1
        close = b"Connection: close\r\n" if not self._left and self._polite else b""
        if path == b"/echo" and key:
            proof = base64.b64encode(hashlib.sha1(key + WEBSOCKET).digest())
            self._tunnel = True
            self._write(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"
            )
            self._echo(self._data)
        elif path == b"/late":
            self._waiting = True
            reactor.callLater(LATE, self._later, close)
        elif path == b"/none":
            self._write(b"HTTP/1.1 204 No Content\r\n" + close + b"\r\n")
        else:
            self._content(path, method == b"HEAD", close)
        if not self._left and not self._waiting and not self._tunnel:
            self._lose()

    def _content(self, path: bytes, head: bool, close: bytes) -> None:
        content = LARGE if path == b"/large" else SMALL
        start = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + close
        if self._reset == b"answer":
            self._write(start[:20])
            self._abort(flush=True)
            return
        if path == b"/chunked":
            start += b"Transfer-Encoding: chunked\r\n\r\n"
            body = b"".join(b"%x\r\n%b\r\n" % (size, LARGE[:size]) for size in (1, 100, 5000, 17)) + b"0\r\n\r\n"
        elif path == b"/tail":
            start, body = start.replace(close, b"") + b"Connection: close\r\n\r\n", content * 20
        else:
            start, body = start + b"Content-Length: %d\r\n\r\n" % len(content), content
        if head:
            body = b""
        if self._reset == b"half" and body:
            self._write(start + body[: len(body) // 2])
            self._abort(flush=True)
            return
        self._write(start + body)
        if path == b"/tail":
            self._lose()

    def _later(self, close: bytes) -> None:
        if not self._gone:
            self._waiting = False
            self._content(b"/small", False, close)
            if not self._left:
                self._lose()
            self.dataReceived(b"")

    def _echo(self, data: bytes) -> None:
        if data:
            self._write(data)
            if data.endswith(b"bye"):
                self._lose()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]

    def _lose(self) -> None:
        self._gone = True
        self.transport.loseConnection()  # type: ignore[union-attr]

    def _abort(self, flush: bool = False) -> None:
        """A reset; behind what was written, if that is to be seen."""
        self._gone = True
        reactor.callLater(0.002 if flush else 0, self.transport.abortConnection)  # type: ignore[union-attr]


class Origins(Factory[Origin]):
    """All of them."""

    noisy = False

    def __init__(self, each: int) -> None:
        self._each = each

    def buildProtocol(self, addr: object) -> Origin:
        return Origin(self._each)


def main() -> None:
    """Listen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1")
    parser.add_argument("--each", type=int, default=100, help="requests that a connection serves (default: 100)")
    options = parser.parse_args()
    reactor.listenTCP(options.port, Origins(options.each), backlog=4096, interface="127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main()
