"""
Idle connections: what the gateway keeps for each of them, and what it does while nothing happens.

    python bench/idle.py [--connections 10000] [--seconds 10]

Half of the connections never say a word, the others ask once and stay.  Memory is the resident memory of the gateway
beyond what it was after a warm-up.  Exit status 1: 16 KiB or more for a connection.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from processes import HERE, Gateway, Process, cells, free_port, settings, stage, until

MOST: Final = 16 * 1024
"""Bytes of resident memory that a connection may need."""
EACH: Final = 5_000
"""Connections from one address: far fewer than it has ports."""
WARM: Final = 200
REQUEST: Final = b"GET /small HTTP/1.1\r\nHost: a.test\r\nUser-Agent: idle\r\nAccept: */*\r\n\r\n"
LONG: Final = "1h"


@dataclass(frozen=True)
class Figure:
    """
    @ivar connections: held open.
    @ivar each: bytes of resident memory for each.
    @ivar cpu: seconds of CPU in a second in which nothing happens.
    @ivar files: descriptors that stay when all connections are closed.
    """

    name: str
    connections: int
    each: float
    cpu: float
    files: int

    @property
    def fine(self) -> bool:
        """Whether the bounds hold."""
        return self.each < MOST and self.files <= 0

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        return (
            self.name,
            f"{self.connections:,}",
            f"{self.each / 1024:.1f} KiB",
            f"{self.cpu * 100:.2f} %",
            f"{self.files:+d}",
            "yes" if self.fine else "NO",
        )


HEADINGS: Final = ("connections", "number", "memory each", "CPU while idle", "files left open", "in bounds")


def room(connections: int) -> None:
    """
    Let this process and its children have so many connections.

    @raise SystemExit: the system does not allow it.
    """
    wanted = connections + 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
            raise SystemExit(f"{wanted} open files are needed; `ulimit -n` allows {hard} at most")


def connect(port: int, number: int) -> socket.socket:
    """The connection of that number: from one of several addresses of loopback."""
    client = socket.socket()
    client.settimeout(20)
    client.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    client.bind((f"127.0.0.{2 + number // EACH}", 0))
    client.connect(("127.0.0.1", port))
    return client


def ask(client: socket.socket) -> None:
    """One request, one answer."""
    client.sendall(REQUEST)
    answer = client.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"an idle connection was answered with {answer[:80]!r}")


@contextlib.contextmanager
def held(port: int, connections: int, asks: bool) -> Iterator[None]:
    """So many connections, open."""
    clients: list[socket.socket] = []
    try:
        for number in range(connections):
            clients.append(connect(port, number))
            if asks:
                ask(clients[-1])
        yield
    finally:
        for client in clients:
            client.close()


def open_connections(gateway: Gateway) -> int:
    """Of its listener."""
    return int(gateway.report()["connections"]["web"])


def at_rest(gateway: Gateway) -> int:
    """Its open files without a client, after one: with its first connection the loop opens a file of its own."""
    with held(gateway.port, 1, False):
        until("the first connection accepted", lambda: open_connections(gateway) == 1)
    until("the first connection closed", lambda: open_connections(gateway) == 0)
    return gateway.files()


def measure(gateway: Gateway, name: str, connections: int, asks: bool, seconds: float, files: int) -> Figure:
    """Hold so many connections for so long."""
    quiet = partial(open_connections, gateway)
    until("the end of the warm-up", lambda: quiet() == 0 and gateway.files() <= files)
    before = gateway.memory()
    with held(gateway.port, connections, asks):
        until("all connections accepted", lambda: quiet() == connections)
        memory = gateway.memory()
        spent, begun = gateway.cpu(), time.monotonic()
        time.sleep(seconds)
        cpu = (gateway.cpu() - spent) / (time.monotonic() - begun)
        if quiet() != connections:
            raise SystemExit("the gateway closed idle connections")
    until("all connections closed", lambda: quiet() == 0)
    with contextlib.suppress(SystemExit):
        until("all files closed", lambda: gateway.files() <= files)
    return Figure(name, connections, (memory - before) / connections, cpu, gateway.files() - files)


def run(connections: int, seconds: float) -> list[Figure]:
    """Silent ones and such that asked, each in a gateway of its own; memory that was given back would hide the rest."""
    room(connections)
    figures = []
    for name, asks in (("never said a word", False), ("asked once", True)):
        with stage() as (folder, processes):
            port = free_port()
            processes.append(
                Process([sys.executable, str(HERE / "origin.py"), "--port", str(port)], "", port, folder / "origin.log")
            )
            configuration = settings(port, timeouts={"clientIdle": LONG, "clientHeader": LONG})
            configuration["upstreams"][0]["pool"] = {"idle": "500ms"}  # none of its connections is to be counted
            gateway = Gateway(folder, configuration)
            processes.append(gateway)
            files = at_rest(gateway)
            with held(gateway.port, WARM, True):
                pass
            figures.append(measure(gateway, name, connections, asks, seconds, files))
    return figures


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument("--seconds", type=float, default=10, help="how long they do nothing (default: 10)")
    options = parser.parse_args()
    figures = run(options.connections, options.seconds)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    return 0 if all(figure.fine for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
