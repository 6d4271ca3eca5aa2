"""
One large download among the streams of one HTTP/2 connection, beside one that its client does not read.

    python bench/large.py [--mib 2048] [--streams 50]

Of so many streams, one carries that size at full speed.  One asks for as much, and its window is not opened again
before the large one is done; then its 8 MiB come.  All others ask for 64 KiB, again and again.  First the upstream
speaks HTTP/1.1; then the gateway is its own upstream, over HTTP/2, so that all streams share a connection there, too.

Growth is resident memory at its highest, less what it was before.  Exit status 1: it grew by 32 MiB or more; the
stalled stream got more than its window, or not all in the end; a small answer took a second or more; anything was lost.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hpack import Decoder, Encoder

from bodies import MOST, PATIENCE, Origin
from processes import MIB, Gateway, Process, cells, settings, stage

SMALL: Final = 64 * 1024
STALLED: Final = 8 * MIB
WINDOW: Final = 256 * 1024
"""Of a stream: what may come of it before more is asked for."""
WHOLE: Final = 1 << 30
"""Of the connection: it is never in the way."""
LONGEST: Final = 1.0
"""Seconds that a small answer may take."""
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS: Final = 4
LARGE_ONE, STALLED_ONE = 1, 3


@dataclass
class Figure:
    """
    What came of it.

    @ivar moved: bytes of the large one.
    @ivar held: bytes of the stalled one, before it was read.
    @ivar small: how many small answers came; C{longest}: seconds that the slowest took.
    @ivar faults: what was lost.
    """

    name: str
    wanted: int
    moved: int = 0
    held: int = 0
    small: int = 0
    longest: float = 0.0
    took: float = 0.0
    cpu: float = 0.0
    growth: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        """Whether the bounds hold."""
        bounds = self.growth < MOST and self.longest < LONGEST and self.held <= WINDOW
        return bounds and self.moved == self.wanted and self.small > 0 and not self.faults

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        return (
            self.name,
            f"{self.moved / MIB:,.0f} MiB",
            f"{self.moved / self.took / MIB:,.1f} MiB/s",
            f"{self.held / 1024:,.0f} KiB",
            f"{self.small:,}",
            f"{1000 * self.longest:.0f} ms",
            f"{self.growth / MIB:.1f} MiB",
            f"{self.cpu / self.took:.0%}",
            "yes" if self.fine else f"NO {'; '.join(self.faults)}",
        )


HEADINGS: Final = (
    "upstream", "large stream", "throughput", "stalled stream got", "small answers", "the slowest", "memory grew by",
    "CPU", "in bounds",
)  # fmt: skip


class Client:
    """
    Reads frames, and gives back what it has read, but on the stalled stream.

    @ivar got: bytes, by stream.
    """

    def __init__(self, connection: socket.socket, figure: Figure, prefix: str) -> None:
        self._socket, self._figure, self._prefix = connection, figure, prefix
        self._encoder, self._decoder = Encoder(), Decoder()
        self._held = bytearray()
        self._sent: dict[int, float] = {}
        self._next = 1
        self.got: dict[int, int] = {}
        self.open: set[int] = set()
        self.reading = False  # the stalled one
        window = b"\0\4" + WINDOW.to_bytes(4, "big")
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, window) + credit(0, WHOLE))

    def ask(self, size: int) -> int:
        """A GET; returns the number of its stream."""
        number, self._next = self._next, self._next + 2
        path = f"{self._prefix}/{size}"
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", path)]
        self._socket.sendall(frame(HEADERS, END_HEADERS | END_STREAM, number, self._encoder.encode(head)))
        self.got[number] = 0
        self.open.add(number)
        self._sent[number] = time.monotonic()
        return number

    def read(self, until: Callable[[], bool], again: Callable[[int], None]) -> None:
        """Go on until that holds; C{again(stream)} is called when one has ended."""
        while not until():
            data = self._socket.recv(1 << 18)
            if not data:
                raise OSError("the gateway closed the connection")
            self._held += data
            owed = 0
            for kind, flags, number, length in self._frames():
                if kind == DATA:
                    owed += length
                    self._data(number, length)
                if kind in (DATA, HEADERS) and flags & END_STREAM:
                    self._end(number)
                    again(number)
            if owed:
                self._socket.sendall(credit(0, owed))

    def _frames(self) -> Iterator[tuple[int, int, int, int]]:
        held, at = self._held, 0
        while len(held) >= at + 9:
            length, kind, flags = int.from_bytes(held[at : at + 3], "big"), held[at + 3], held[at + 4]
            number = int.from_bytes(held[at + 5 : at + 9], "big")
            if len(held) < at + 9 + length:
                break
            if kind == HEADERS:
                self._head(number, bytes(held[at + 9 : at + 9 + length]))
            elif kind == SETTINGS and not flags & ACK:
                self._socket.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self._socket.sendall(frame(PING, ACK, 0, bytes(held[at + 9 : at + 17])))
            elif kind in (RST_STREAM, GOAWAY):
                raise OSError(f"stream {number} was reset, or the connection given up: frame {kind}")
            yield kind, flags, number, length
            at += 9 + length
        del held[:at]

    def _head(self, number: int, block: bytes) -> None:
        status = dict(self._decoder.decode(block))[":status"]
        if status != "200":
            self._figure.faults.append(f"stream {number} was answered {status}")

    def _data(self, number: int, length: int) -> None:
        self.got[number] += length
        if length and (number != STALLED_ONE or self.reading):
            self._socket.sendall(credit(number, length))

    def _end(self, number: int) -> None:
        self.open.discard(number)
        if number not in (LARGE_ONE, STALLED_ONE):
            figure, size = self._figure, self.got.pop(number)
            figure.small += 1
            figure.longest = max(figure.longest, time.monotonic() - self._sent.pop(number))
            if size != SMALL:
                figure.faults.append(f"stream {number} got {size} bytes")


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big") + payload


def credit(number: int, size: int) -> bytes:
    """WINDOW_UPDATE."""
    return frame(WINDOW_UPDATE, 0, number, size.to_bytes(4, "big"))


def carry(port: int, figure: Figure, prefix: str, streams: int) -> None:
    """All of it on one connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(connection, figure, prefix)
        client.ask(figure.wanted)
        client.ask(STALLED)
        for _ in range(streams - 2):
            client.ask(SMALL)
        done = False

        def again(number: int) -> None:
            if not done and number != LARGE_ONE:
                client.ask(SMALL)

        client.read(lambda: LARGE_ONE not in client.open, again)
        done = True
        figure.moved, figure.held = client.got[LARGE_ONE], client.got[STALLED_ONE]
        client.read(lambda: client.open == {STALLED_ONE}, again)
        client.reading = True
        connection.sendall(credit(STALLED_ONE, figure.held))
        client.read(lambda: not client.open, again)
        if client.got[STALLED_ONE] != STALLED:
            figure.faults.append(f"the stalled stream got {client.got[STALLED_ONE]} bytes")


def measure(gateway: Process, figure: Figure, prefix: str, streams: int) -> None:
    """Once; what breaks off is a fault."""
    gateway.forget()
    before, spent, begun = gateway.memory(), gateway.cpu(), time.monotonic()
    try:
        carry(gateway.port, figure, prefix, streams)
    except OSError as error:
        figure.faults.append(str(error) or type(error).__name__)
    figure.took = time.monotonic() - begun
    figure.cpu, figure.growth = gateway.cpu() - spent, gateway.peak() - before


@contextmanager
def gatewayed() -> Iterator[Gateway]:
    """A gateway before an origin, and before itself."""
    with stage() as (folder, processes):
        origin = Origin(None)  # the stalled one waits for as long as the large one takes
        try:
            made = settings(origin.port, timeouts={"clientStall": "0", "responseStall": "0"})
            (listener,) = made["listeners"]
            listener["protocols"] = ["http2", "http1"]
            itself = {"name": "itself", "endpoints": [{"url": f"h2c://{listener['address']}"}]}
            made["upstreams"].append(itself)
            to = {"value": "/again/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "itself"}]}]}
            made["routes"].append(to)
            cut = {"regex": "^/again/", "replacement": "/"}
            made["modules"] = [{"name": "rewritePath", "stage": "PRE_UPSTREAM", "actionParam": cut}]
            gateway = Gateway(folder, made)
            processes.append(gateway)
            yield gateway
        finally:
            origin.close()


def run(mib: int, streams: int, tell: Callable[[Figure], None] = lambda figure: None) -> list[Figure]:
    """Over each version."""
    figures = []
    with gatewayed() as gateway:
        for name, prefix in (("HTTP/1.1", ""), ("HTTP/2", "/again")):
            measure(gateway, Figure(name, SMALL), prefix, streams)  # so that all is there
            figures.append(Figure(name, mib * MIB))
            measure(gateway, figures[-1], prefix, streams)
            tell(figures[-1])
    return figures


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048, help="size of the large one (default: 2048)")
    parser.add_argument("--streams", type=int, default=50, help="streams at a time (default: 50)")
    options = parser.parse_args()
    figures = run(options.mib, options.streams, lambda figure: print(f"… {figure.name}", file=sys.stderr, flush=True))
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    return 0 if all(figure.fine for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
