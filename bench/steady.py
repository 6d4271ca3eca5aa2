"""
A load at a fixed rate, which waits for nobody: each request has a time at which it is due, and is timed from there.

    python bench/steady.py --port 8080 --rate 2000 [--seconds 10] [--connections 64] [--path /]

A generator that waits for an answer before it asks again leaves out just those requests that would have been slow
(coordinated omission).  Here a request whose time has come while all connections are busy waits, and its wait is part
of its latency.  How late requests went out on free connections says how far the generator can be trusted.

Prints one JSON object: latencies in seconds (p50, p99, p99.9, max), answers, errors, and how late the generator was
(p99).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import select
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from diary import Line

PR_SET_TIMERSLACK: Final = 29
GRACE: Final = 5.0
"""Seconds that the last answers may take."""


class Load:
    """
    @ivar took: seconds from due to answered, of each answer.
    @ivar late: seconds from due to sent, of each request for which a connection was free when it was due.
    @ivar errors: connections that were lost, and answers that were none.
    """

    def __init__(self, port: int, path: str, connections: int) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: steady\r\nAccept: */*\r\n\r\n"
        self._port, self._request = port, request.encode()
        self._lines = {line.socket.fileno(): line for line in (Line(port) for _ in range(connections))}
        self._free = deque(self._lines.values())
        self._waiting: deque[float] = deque()
        self.took: list[float] = []
        self.late: list[float] = []
        self.errors = 0

    def run(self, rate: float, seconds: float) -> None:
        """Ask for so long, then wait for what is under way."""
        now, free, waiting = time.perf_counter, self._free, self._waiting
        begun = now() + 0.01
        count, number, due = int(rate * seconds), 0, begun
        end = begun + seconds + GRACE
        while number < count or len(free) < len(self._lines):
            moment = now()
            if moment > end:
                self.errors += len(self._lines) - len(free) + len(waiting)
                break
            while number < count and due <= moment:
                if free:
                    self.late.append(moment - due)
                    self._send(free.popleft(), due)
                else:
                    waiting.append(due)
                number += 1
                due = begun + number / rate
                moment = now()
            pause = max(due - now(), 0.0) if number < count else 0.1
            for descriptor in select.select(self._lines, (), (), pause)[0]:
                self._read(self._lines[descriptor])

    def _send(self, line: Line, due: float) -> None:
        line.due = due
        try:
            line.socket.send(self._request)
        except OSError:
            self._renew(line)

    def _read(self, line: Line) -> None:
        what = line.read()
        if what == "200":
            self.took.append(time.perf_counter() - line.due)
            self._next(line)
        elif what:
            self._renew(line)

    def _renew(self, line: Line) -> None:
        self.errors += 1
        del self._lines[line.socket.fileno()]
        line.socket.close()
        fresh = Line(self._port)
        self._lines[fresh.socket.fileno()] = fresh
        self._next(fresh)

    def _next(self, line: Line) -> None:
        if self._waiting:
            self._send(line, self._waiting.popleft())
        else:
            self._free.append(line)

    def close(self) -> None:
        """All connections."""
        for line in self._lines.values():
            line.socket.close()


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that so large a part of all does not exceed; 0.0 of none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def main() -> None:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1")
    parser.add_argument("--path", default="/")
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    # A timer may be late by 50 µs otherwise, to save wake-ups.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    load = Load(options.port, options.path, options.connections)
    gc.freeze()
    gc.disable()
    load.run(options.rate, options.seconds)
    load.close()
    found = {f"p{part * 100:g}": quantile(load.took, part) for part in (0.5, 0.99, 0.999)}
    found |= {"max": max(load.took, default=0.0), "late": quantile(load.late, 0.99)}
    print(json.dumps(found | {"answers": len(load.took), "errors": load.errors}))


if __name__ == "__main__":
    main()
