"""
Traffic is copied to an upstream that is well, slow, silent, or not there: what do clients see of it?

    python bench/copies.py [--rate 400] [--seconds 10] [--megabytes 256]

Requests come at a fixed rate, and their times are corrected for coordinated omission; C{trafficCopy} copies all of
them, with its own settings.  The silent upstream accepts connections and neither reads nor answers.  Then a large
upload flows, once without copies, once with each of them.

Exit status 1: an answer is not 200; 99 of 100 requests take more than three times as long as without copies, and 20 ms;
an upload takes twice as long, and 2 s; or the gateway needs more than 48 MiB for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from limits import Asker
from processes import Process, cells, free_port, settings, stage

CONNECTIONS: Final = 50
"""Of the load."""
MIB: Final = 1 << 20
ROOM: Final = 48 * MIB
"""Bytes that the gateway may need for an upload."""
KINDS: Final = ("", "well", "slow", "silent", "gone")
"""Of the copy's upstream; empty = there are no copies."""
SLOW: Final = 2.0
"""Seconds until a slow one answers."""
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"
_length = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE).search
_chunked = re.compile(rb"\r\ntransfer-encoding: chunked\r\n", re.IGNORECASE).search


async def target(port: int, kind: str) -> None:
    """An upstream."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if kind == "silent":
                await asyncio.sleep(3600)
            while head := await reader.readuntil(b"\r\n\r\n"):
                left = _length(head)
                if left is not None:
                    count = int(left[1])
                    while count:
                        data = await reader.read(min(count, MIB))
                        if not data:
                            return
                        count -= len(data)
                elif _chunked(head):
                    await reader.readuntil(b"0\r\n\r\n")
                if kind == "slow":
                    await asyncio.sleep(SLOW)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


@dataclass(frozen=True)
class Figure:
    """
    @ivar answered: requests a second.
    @ivar strange: answers that were not 200.
    @ivar middle: @ivar late: seconds in which half, and 99 of 100, had their answer.
    @ivar upload: seconds of the upload.
    @ivar room: bytes that the gateway needed for it, more than it had.
    """

    name: str
    answered: float
    strange: int
    middle: float
    late: float
    upload: float
    room: int

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        times = (f"{self.middle * 1e3:.1f} ms", f"{self.late * 1e3:.1f} ms", f"{self.upload:.2f} s")
        return (self.name, f"{self.answered:,.0f}", str(self.strange), *times, f"{self.room / MIB:.1f} MiB")


HEADINGS: Final = (
    "the copy's upstream",
    "answered a second",
    "not 200",
    "half within",
    "99 of 100 within",
    "upload",
    "memory",
)


def upload(port: int, size: int) -> float:
    """Seconds that an upload takes, to its answer."""
    began, piece = time.monotonic(), b"x" * MIB
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(b"PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            client.sendall(piece)
        answer = client.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the upload was answered {answer[:80]!r}")
    return time.monotonic() - began


def measure(kind: str, origin: int, rate: float, seconds: float, size: int, home: Path) -> Figure:
    """One gateway."""
    home.mkdir()
    configuration = settings(origin)
    other: Process | None = None
    if kind:
        port = free_port()
        if kind != "gone":
            other = Process([sys.executable, __file__, "--target", str(port), kind], "", port, home / "target.log")
        configuration["upstreams"].append({"name": "next", "endpoints": [{"url": f"http://127.0.0.1:{port}"}]})
        configuration["modules"] = [{"name": "trafficCopy", "actionParam": {"upstream": "next", "compare": {}}}]
    file = home / "gateway.json"
    file.write_text(json.dumps(configuration))
    listener = int(configuration["listeners"][0]["address"].rpartition(":")[2])
    words = [sys.executable, "-m", "protogate", "run", "-c", str(file)]
    gateway = Process(words, "", listener, home / "gateway.log")
    try:
        asker = Asker([listener], rate, CONNECTIONS)
        try:
            time.sleep(seconds / 4)
            before = asker.report()
            time.sleep(seconds)
            found = asker.report()
        finally:
            asker.stop()
        gateway.forget()
        has = gateway.memory()
        took = upload(listener, size)
        room = max(gateway.peak() - has, 0)
    finally:
        gateway.stop()
        if other is not None:
            other.stop()
    passed = found["counts"].get("200", 0)
    strange = sum(found["counts"].values()) - passed
    return Figure(
        kind or "no copies",
        passed / (found["at"] - before["at"]),
        strange,
        found["middle"],
        found["late"],
        took,
        room,
    )


def run(rate: float, seconds: float, size: int, kinds: Sequence[str] = KINDS) -> tuple[list[Figure], list[str]]:
    """The figures, and what went wrong."""
    with stage() as (folder, processes):
        port = free_port()
        processes.append(
            Process([sys.executable, __file__, "--target", str(port), "well"], "", port, folder / "origin.log")
        )
        figures = [measure(kind, port, rate, seconds, size, folder / str(number)) for number, kind in enumerate(kinds)]
    alone, *copied = figures
    faults = [f"{figure.name}: {figure.strange} answers were not 200" for figure in figures if figure.strange]
    for figure in copied:
        if figure.late > max(alone.late * 3, alone.late + 0.02):
            faults.append(f"{figure.name}: 99 of 100 take {figure.late * 1e3:.1f} ms, not {alone.late * 1e3:.1f} ms")
        if figure.upload > max(alone.upload * 2, alone.upload + 2.0):
            faults.append(f"{figure.name}: the upload takes {figure.upload:.1f} s, not {alone.upload:.1f} s")
        if figure.room > ROOM:
            faults.append(f"{figure.name}: the upload takes {figure.room / MIB:.0f} MiB")
    return figures, faults


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=400.0, help="requests a second (default: 400)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row (default: 10)")
    parser.add_argument("--megabytes", type=int, default=256, help="of the upload (default: 256)")
    parser.add_argument("--target", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        with suppress(KeyboardInterrupt):
            asyncio.run(target(int(options.target[0]), options.target[1]))
        return 0
    figures, faults = run(options.rate, options.seconds, options.megabytes * MIB)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
