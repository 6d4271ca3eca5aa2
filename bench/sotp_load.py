"""
A load of SOTP: links with so many requests each under way, all the time.

    python bench/sotp_load.py --port 7001 [--path /] [--seconds 4] [--links 8] [--streams 8]

Each request is a GET in the form of HTTP; as soon as its answer has ended, the next one is sent on the same link.  What
one read brings is answered by one write.

Prints one JSON object: seconds, answers, and errors: those with another status than OK, and streams that were
cancelled.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import time
from typing import Final

from probe import get
from protogate_sotp.frames import (
    CANCEL,
    DATA,
    END,
    GOAWAY,
    MOST_STREAM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    Hello,
    Reader,
    credited,
    frame,
)

HELLO: Final = Hello(heartbeat=0)
OK: Final = bytes(4)
"""What a RESPONSE begins with: status, and no HTTP status beside it."""


class Link:
    """
    One connection.

    @ivar answers: that were whole and well.
    @ivar errors: other ends of a stream.
    """

    def __init__(self, port: int, request: bytes, streams: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.errors = 0
        self._request, self._next, self._owed = request, 1, 0
        self._reader, self._bad = Reader(HELLO.sizes), set[int]()
        self.socket.sendall(HELLO.pack() + b"".join(self._asked() for _ in range(streams)))

    def _asked(self) -> bytes:
        number, self._next = self._next, self._next + 2
        if number > MOST_STREAM:
            raise SystemExit("a link has no numbers left")
        return frame(REQUEST, END, number, self._request)

    def read(self) -> None:
        """
        Take what has come, and ask anew for each end of an answer.

        @raise SystemExit: the link is over.
        """
        out = []
        data = self.socket.recv(262144)
        frames = self._reader.feed(data)
        if not data or self._reader.fault is not None:
            raise SystemExit(f"a link is over: {self._reader.fault or 'closed'}")
        for kind, flags, stream, payload in frames:
            if kind == RESPONSE and payload[:4] != OK:
                self._bad.add(stream)
            elif kind == DATA:
                self._owed += len(payload)
            elif kind == PING:
                out.append(frame(PONG, 0, 0, payload))
            elif kind == GOAWAY:
                raise SystemExit(f"a link is over: {payload!r}")
            if kind == CANCEL or (stream and flags & END):
                well = kind != CANCEL and stream not in self._bad
                self._bad.discard(stream)
                self.answers += well
                self.errors += not well
                out.append(self._asked())
        if self._owed > HELLO.total // 2:
            out.append(credited(0, self._owed))
            self._owed = 0
        if out:
            self.socket.sendall(b"".join(out))


def run(port: int, path: str, seconds: float, links: int, streams: int) -> tuple[int, int]:
    """Answers and errors."""
    request = get("GET", path)
    held = [Link(port, request, streams) for _ in range(links)]
    by_file = {link.socket.fileno(): link for link in held}
    with select.epoll() as poll:
        for file in by_file:
            poll.register(file, select.EPOLLIN)
        over = time.monotonic() + seconds
        while (left := over - time.monotonic()) > 0:
            for file, _ in poll.poll(left):
                by_file[file].read()
    for link in held:
        link.socket.close()
    return sum(link.answers for link in held), sum(link.errors for link in held)


def main() -> int:
    """Ask, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1")
    parser.add_argument("--path", default="/", help="what is asked for (default: /)")
    parser.add_argument("--seconds", type=float, default=4, help="how long (default: 4)")
    parser.add_argument("--links", type=int, default=8, help="connections (default: 8)")
    parser.add_argument("--streams", type=int, default=8, help="requests at once on each (default: 8)")
    options = parser.parse_args()
    begun = time.monotonic()
    answers, errors = run(options.port, options.path, options.seconds, options.links, options.streams)
    print(json.dumps({"seconds": time.monotonic() - begun, "answers": answers, "errors": errors}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
