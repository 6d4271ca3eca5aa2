"""
A load at a fixed rate that keeps a diary: when each request was due, how long it took, and what became of it.

    python bench/diary.py --port 8080 --rate 500 [--connections 1000] [--path /]

It prints an empty line once something came of a request.  It asks until its standard input ends, waits for what is
under way, and prints one JSON object: C{begun} (seconds since the epoch), and C{pages}: for each request seconds after
that, seconds that it took, and what came, which is a status, or in words why there is none.  Nobody is waited for: a
request that is due while all connections are busy gets another one, up to their number, and then waits, which counts.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

PATIENCE: Final = 20.0
"""Seconds until a request is given up."""
LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d+)\r\n").search


class Line:
    """One connection, and the request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._data = b""

    def read(self) -> str:
        """What came of the request: its status, or in words why there is none; empty = nothing yet."""
        try:
            data = self.socket.recv(65536)
        except OSError as error:
            return type(error).__name__
        if not data:
            return "closed within the answer" if self._data else "closed"
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = LENGTH(head + b"\r\n") if found else None
        if not found or (length is not None and len(body) < int(length[1])):
            return ""
        if length is None:
            return "no length"
        self._data = b""
        return head[9:12].decode("latin-1")


class Writer:
    """
    @ivar pages: of each request: when it was due, how long it took, what came.
    """

    def __init__(self, port: int, path: str, rate: float, connections: int) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: diary\r\n\r\n".encode()
        self._port, self._rate, self._most = port, rate, connections
        self._select = selectors.EpollSelector()
        self._free: list[Line] = []
        self._busy: set[Line] = set()
        self._waiting: deque[float] = deque()
        self.pages: list[tuple[float, float, str]] = []

    def run(self) -> None:
        """Until nobody is at the other end of standard input."""
        now = time.perf_counter
        self._select.register(sys.stdin, selectors.EVENT_READ)
        begun, epoch = now() + 0.01, time.time() + 0.01
        number, asks = 0, True
        due, end, begins = begun, 0.0, True
        while asks or ((self._busy or self._waiting) and now() < end):
            while asks and due <= now():
                self._ask(due)
                number += 1
                due = begun + number / self._rate
            for key, _ in self._select.select(max(due - now(), 0.0) if asks else 0.1):
                if key.fileobj is sys.stdin:
                    self._select.unregister(sys.stdin)
                    asks, end = False, now() + PATIENCE
                else:
                    self._ready(key.data)
            if begins and self.pages:
                begins = False
                print(flush=True)
        for line in self._busy:
            self.pages.append((line.due, now() - line.due, "no answer"))
        self.pages += [(moment, now() - moment, "never sent") for moment in self._waiting]
        pages = [(round(at - begun, 4), round(took, 4), what) for at, took, what in self.pages]
        print(json.dumps({"begun": epoch, "pages": pages}))

    def _ask(self, due: float) -> None:
        if self._free:
            line = self._free.pop()
        elif len(self._busy) < self._most:
            try:
                line = Line(self._port)
            except OSError as error:
                self.pages.append((due, time.perf_counter() - due, f"no connection: {type(error).__name__}"))
                return
            self._select.register(line.socket, selectors.EVENT_READ, line)
        else:
            self._waiting.append(due)
            return
        line.due = due
        self._busy.add(line)
        try:
            line.socket.sendall(self._request)
        except OSError as error:
            self._over(line, type(error).__name__)

    def _ready(self, line: Line) -> None:
        what = line.read()
        if line in self._busy:
            if what:
                self._over(line, what)
        else:  # closed while idle
            self._select.unregister(line.socket)
            line.socket.close()
            self._free.remove(line)

    def _over(self, line: Line, what: str) -> None:
        self.pages.append((line.due, time.perf_counter() - line.due, what))
        self._busy.discard(line)
        if what.isdigit():
            self._free.append(line)
        else:
            self._select.unregister(line.socket)
            line.socket.close()
        if self._waiting:
            self._ask(self._waiting.popleft())


@dataclass(frozen=True)
class Page:
    """
    One request.

    @ivar due: seconds since the epoch.
    @ivar took: seconds.
    @ivar what: came of it.
    """

    due: float
    took: float
    what: str

    @property
    def well(self) -> bool:
        """It was answered."""
        return self.what == "200"


class Diary:
    """One in a process of its own; it has something to tell from the beginning."""

    def __init__(self, port: int, rate: float, path: str = "/") -> None:
        words = [sys.executable, __file__, f"--port={port}", f"--rate={rate}", f"--path={path}"]
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        self._child.stdout.readline()

    def close(self) -> list[Page]:
        """Ask no more.  What was written, in order of what was due."""
        said, _ = self._child.communicate(timeout=PATIENCE + 30)
        found = json.loads(said)
        return sorted((Page(found["begun"] + at, took, what) for at, took, what in found["pages"]), key=lambda p: p.due)

    def stop(self) -> None:
        """End it, if it is there."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()


def main() -> None:
    """Ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second (500)")
    parser.add_argument("--connections", type=int, default=1000, help="at most (1000)")
    parser.add_argument("--path", default="/")
    options = parser.parse_args()
    Writer(options.port, options.path, options.rate, options.connections).run()


if __name__ == "__main__":
    main()
