"""
An upstream that speaks SOTP: each request gets the answer that the upstream of HTTP gives, of 200 bytes.

    python bench/sotp_origin.py --port 7001

It takes requests without content only; others are cancelled.  It keeps to the credit that it is given.
"""

from __future__ import annotations

import argparse
import select
import socket
from typing import Final

from candidates import ANSWER
from protogate.message import Response
from protogate_sotp.frames import (
    CREDIT,
    DATA,
    END,
    HELLO,
    LEAST,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    Hello,
    Reader,
    cancel,
    credit,
    frame,
    hello,
)
from protogate_sotp.heads import write_response

OURS: Final = Hello(heartbeat=0, streams=1 << 16)
INTERNAL: Final = 4
CONTENT: Final = ANSWER.encode()
HEAD: Final = write_response(
    Response(200, [(b"content-type", b"application/json")]), len(CONTENT), 0, lambda what: None
)


class Link:
    """One connection of a gateway."""

    def __init__(self, line: socket.socket) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = line
        self._reader, self._room, self._waiting = Reader(OURS.sizes), LEAST.total, list[int]()
        line.sendall(OURS.pack())

    def read(self) -> bool:
        """Take what has come, and answer; False = it is over."""
        try:
            data = self.socket.recv(262144)
        except OSError:
            data = b""
        out = []
        for kind, flags, stream, payload in self._reader.feed(data):
            if kind == REQUEST:
                if flags & END:
                    self._waiting.append(stream)
                else:
                    out.append(cancel(stream, INTERNAL, "only requests without content"))
            elif kind == CREDIT and not stream:
                self._room += credit(payload)
            elif kind == HELLO:
                self._room += hello(payload).total - LEAST.total
            elif kind == PING:
                out.append(frame(PONG, 0, 0, payload))
        while self._waiting and self._room >= len(CONTENT):
            stream = self._waiting.pop(0)
            self._room -= len(CONTENT)
            out += [frame(RESPONSE, 0, stream, HEAD), frame(DATA, END, stream, CONTENT)]
        if out:
            self.socket.sendall(b"".join(out))
        return bool(data) and self._reader.fault is None


def serve(port: int) -> None:
    """Until the process is ended."""
    links: dict[int, Link] = {}
    with socket.create_server(("127.0.0.1", port), backlog=1024) as server, select.epoll() as poll:
        poll.register(server.fileno(), select.EPOLLIN)
        while True:
            for file, _ in poll.poll():
                if file == server.fileno():
                    link = Link(server.accept()[0])
                    links[link.socket.fileno()] = link
                    poll.register(link.socket.fileno(), select.EPOLLIN)
                elif not links[file].read():
                    links.pop(file).socket.close()


def main() -> int:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1")
    serve(parser.parse_args().port)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
