"""
Idle SOTP links: what the gateway keeps for each, and what their heartbeats cost.

    python bench/links.py [--links 5000 10000 19000 ...] [--rate 833] [--seconds 40]

All links send a PING in turn, C{--rate} of them a second, and each must be answered: 833 is what 50,000 links send at
an interval of 60 s.  With fewer links the interval is shorter, so that in a second as many PINGs come, and as many
clocks of links are looked at, as with those 50,000; it lasts four intervals, so that all of that happens.  Memory is
the resident memory of the gateway beyond what it was after a warm-up.  Exit status 1: 10 KiB or more for a link, or
5 % or more of a core for the heartbeats.

A link is an open file of the gateway, and one of the bench: for 50,000 `ulimit -Hn` must say 50,512, or whoever runs
it may raise that.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from idle import LONG, WARM, connect, open_connections, room
from processes import Gateway, cells, free_port, settings, stage, until
from protogate_sotp.frames import PING, PONG, Hello, Reader, frame

MOST: Final = 10 * 1024
"""Bytes of resident memory that a link may need."""
BEATS: Final = 0.05
"""Of a core, for the heartbeats."""
SIZES: Final = Hello().sizes
_PING: Final = frame(PING, 0, 0, b"bench..\0")
_PONG: Final = frame(PONG, 0, 0, b"bench..\0")


@dataclass(frozen=True)
class Figure:
    """
    @ivar links: held open.
    @ivar each: bytes of resident memory for each.
    @ivar interval: seconds between two heartbeats of one link.
    @ivar rate: heartbeats answered in a second.
    @ivar cpu: seconds of CPU in a second of them.
    """

    links: int
    each: float
    interval: int
    rate: float
    cpu: float

    @property
    def fine(self) -> bool:
        """Whether the bounds hold."""
        return self.each < MOST and self.cpu < BEATS

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        return (
            f"{self.links:,}",
            f"{self.each / 1024:.1f} KiB",
            f"{self.interval} s",
            f"{self.rate:.0f}/s",
            f"{self.cpu * 100:.2f} %",
            "yes" if self.fine else "NO",
        )


HEADINGS: Final = ("links", "memory each", "interval", "heartbeats", "CPU for them", "in bounds")


def greet(client: socket.socket, interval: int) -> None:
    """HELLO, both ways."""
    client.sendall(Hello(heartbeat=interval).pack())
    reader = Reader(SIZES)
    while not reader.feed(client.recv(4096)):
        pass
    if reader.fault is not None or reader.waiting:
        raise SystemExit("the gateway does not say HELLO")


@contextlib.contextmanager
def held(port: int, links: int, interval: int) -> Iterator[list[socket.socket]]:
    """So many links, open."""
    clients: list[socket.socket] = []
    try:
        for number in range(links):
            clients.append(connect(port, number))
            greet(clients[-1], interval)
        yield clients
    finally:
        for client in clients:
            client.close()


def beat(clients: list[socket.socket], seconds: float, rate: float) -> int:
    """Send PINGs at that rate, read what comes back; returns how many were answered."""
    begun, sent = time.monotonic(), 0
    while (spent := time.monotonic() - begun) < seconds:
        due = min(int(spent * rate), sent + len(clients))
        asked = [clients[number % len(clients)] for number in range(sent, due)]
        for client in asked:
            client.sendall(_PING)
        for client in asked:
            if client.recv(4096) != _PONG:
                raise SystemExit("a heartbeat was not answered")
        sent = due
        time.sleep(0.01)
    return sent


def run(links: int, seconds: float, rate: float) -> Figure:
    """
    Measure it.

    @param seconds: how long they beat; 0 = four intervals.
    """
    room(links)
    interval = max(1, round(links / rate))
    with stage() as (folder, processes):
        configuration = settings(free_port(), timeouts={"clientIdle": LONG}, limits={"connections": links + WARM})
        configuration["codecs"] = {"sotp": {"heartbeat": f"{interval}s"}}
        configuration["listeners"][0]["protocols"] = ["sotp"]
        gateway = Gateway(folder, configuration)
        processes.append(gateway)
        quiet = partial(open_connections, gateway)
        with held(gateway.port, WARM, interval):
            pass
        until("the end of the warm-up", lambda: quiet() == 0)
        before = gateway.memory()
        with held(gateway.port, links, interval) as clients:
            until("all links accepted", lambda: quiet() == links)
            memory = gateway.memory()
            spent, begun = gateway.cpu(), time.monotonic()
            answered = beat(clients, seconds or 4 * interval, rate)
            took = time.monotonic() - begun
            cpu = (gateway.cpu() - spent) / took
            if quiet() != links:
                raise SystemExit("the gateway closed idle links")
    return Figure(links, (memory - before) / links, interval, answered / took, cpu)


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, nargs="+", default=[10_000], help="that are open (default: 10000)")
    parser.add_argument("--seconds", type=float, default=0, help="how long they beat (default: four intervals)")
    parser.add_argument("--rate", type=float, default=833, help="heartbeats a second (default: 833)")
    options = parser.parse_args()
    figures = [run(links, options.seconds, options.rate) for links in options.links]
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    return 0 if all(figure.fine for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
