"""
Large bodies: how much memory the gateway needs to carry them, and what they cost.

    python bench/bodies.py [--mib 2048] [--seconds 60]

A download and an upload of that size at full speed; then each with the receiving end reading 1 MiB a second for so
long, while the other end sends as fast as it may, before the client breaks off.  Growth is resident memory at its
highest while the body flows, less what it was before.  Exit status 1: it grew by 32 MiB or more, or bytes were lost.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from processes import MIB, Gateway, Process, cells, settings, stage

MOST: Final = 32 * MIB
"""Bytes by which memory may grow."""
SLOW: Final = MIB
"""Bytes per second of the slow end."""
PIECE: Final = 64 * 1024
BLOCK: Final = bytes(256 * 1024)
PATIENCE: Final = 60.0
"""Seconds without a byte after which an end gives up."""


@dataclass(frozen=True)
class Figure:
    """
    What one body needed.

    @ivar moved: bytes that the receiving end got.
    @ivar growth: bytes of resident memory.
    @ivar cpu: seconds of the gateway.
    @ivar took: seconds.
    @ivar whole: whether the body arrived as it was sent; a slow one never does.
    """

    name: str
    moved: int
    growth: int
    cpu: float
    took: float
    whole: bool

    @property
    def fine(self) -> bool:
        """Whether the bounds hold."""
        return self.whole and self.growth < MOST

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        rate, gib = self.moved / self.took / MIB, self.moved / (1 << 30)
        return (
            self.name,
            f"{self.moved / MIB:,.0f} MiB",
            f"{self.growth / MIB:.1f} MiB",
            f"{rate:,.1f} MiB/s",
            f"{self.cpu / gib:.2f}",
            "yes" if self.fine else "NO",
        )


HEADINGS: Final = ("body", "received", "memory grew by", "throughput", "CPU s/GiB", "in bounds")


class Origin:
    """
    An upstream in threads of this process: GET /N answers N bytes, POST takes what comes.

    @param patience: seconds without a byte after which it gives up; None = never.
    @ivar taken: bytes of the last upload.
    @ivar slow: whether uploads are read slowly.
    """

    def __init__(self, patience: float | None = PATIENCE) -> None:
        self.taken, self.slow, self._patience = 0, False, patience
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(self._patience)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while self._one(connection):
                    pass
            except OSError:
                pass  # the gateway broke it off, as it should when a slow end is done

    def _one(self, connection: socket.socket) -> bool:
        head, rest = read_head(connection)
        if not head:
            return False
        line, *fields = head.split(b"\r\n")
        if line.startswith(b"POST"):
            size = next(int(one.partition(b":")[2]) for one in fields if one.lower().startswith(b"content-length"))
            self.taken, taker = len(rest), Taker(connection, self.slow)
            while self.taken < size:
                got = taker.take(size - self.taken)
                if not got:
                    return False
                self.taken += got
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            size = int(line.split(b" ")[1].rpartition(b"/")[2])
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            give(connection, size)
        return True

    def close(self) -> None:
        """Accept no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """A head, and what came behind it; empty at an end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(PIECE)
        if not more:
            return b"", b""
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def give(connection: socket.socket, size: int) -> None:
    """Send so many bytes."""
    view = memoryview(BLOCK)
    while size:
        size -= connection.send(view[: min(size, len(BLOCK))])


class Taker:
    """Reads a body, and throws it away."""

    def __init__(self, connection: socket.socket, slow: bool) -> None:
        self._connection, self._slow = connection, slow
        self._view = memoryview(bytearray(PIECE if slow else len(BLOCK)))
        self._due = time.monotonic()

    def take(self, most: int) -> int:
        """Read some bytes; returns how many."""
        if self._slow:
            time.sleep(max(self._due - time.monotonic(), 0))
        got = self._connection.recv_into(self._view, min(most, len(self._view)))
        self._due += got / SLOW
        return got


def download(port: int, size: int, seconds: float) -> tuple[int, bool]:
    """Ask for a body; slowly for so many seconds, unless that is 0.  Returns bytes, and whether all is well."""
    with socket.socket() as client:
        if seconds:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)  # what lies in the kernel is not ours
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /%d HTTP/1.1\r\nHost: a.test\r\n\r\n" % size)
        head, rest = read_head(client)
        got, end, taker = len(rest), time.monotonic() + seconds, Taker(client, seconds > 0)
        while got < size and not (seconds and time.monotonic() > end):
            more = taker.take(size - got)
            if not more:
                return got, False
            got += more
        return got, head.startswith(b"HTTP/1.1 200 ") and (seconds > 0 or got == size)


def upload(port: int, size: int, seconds: float, origin: Origin) -> tuple[int, bool]:
    """Send a body; it is read slowly for so many seconds, unless that is 0.  Returns bytes, and whether all is well."""
    origin.slow = seconds > 0
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % size)
        if not seconds:
            give(client, size)
            head, _ = read_head(client)
            return origin.taken, head.startswith(b"HTTP/1.1 204 ") and origin.taken == size
        end, view = time.monotonic() + seconds, memoryview(BLOCK)
        client.settimeout(0.1)
        while time.monotonic() < end:
            try:
                size -= client.send(view[: min(size, len(BLOCK))])
            except TimeoutError:
                continue
            if not size:
                break
        return origin.taken, size > 0 or origin.taken > 0


def measure(gateway: Process, name: str, carry: Callable[[], tuple[int, bool]]) -> Figure:
    """Carry one body."""
    gateway.forget()
    before, spent, begun = gateway.memory(), gateway.cpu(), time.monotonic()
    moved, whole = carry()
    took = time.monotonic() - begun
    return Figure(name, moved, gateway.peak() - before, gateway.cpu() - spent, took, whole)


def run(mib: int, seconds: float, tell: Callable[[Figure], None] = lambda figure: None) -> list[Figure]:
    """All four."""
    figures = []
    with stage() as (folder, processes):
        origin = Origin()
        try:
            gateway = Gateway(folder, settings(origin.port))
            processes.append(gateway)
            port, size = gateway.port, mib * MIB
            download(port, PIECE, 0)
            upload(port, PIECE, 0, origin)
            for name, carry in (
                ("download", lambda: download(port, size, 0)),
                ("upload", lambda: upload(port, size, 0, origin)),
                (f"download, client reads slowly for {seconds:g} s", lambda: download(port, size, seconds)),
                (f"upload, upstream reads slowly for {seconds:g} s", lambda: upload(port, size, seconds, origin)),
            ):
                figures.append(measure(gateway, name, carry))
                tell(figures[-1])
        finally:
            origin.close()
    return figures


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048, help="size of each body (default: 2048)")
    parser.add_argument("--seconds", type=float, default=60, help="how long the slow ones last (default: 60)")
    options = parser.parse_args()
    figures = run(options.mib, options.seconds, lambda figure: print(f"… {figure.name}", file=sys.stderr, flush=True))
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    return 0 if all(figure.fine for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
