"""
An upstream gets more than it can answer: who is answered, and how soon?

    python bench/overload.py [--places 10] [--over 2.4] [--seconds 30]

The upstream serves a few requests at a time, each for 20 ms, and lets all others wait.  It gets 2.4 times of what it
can answer: with no limit in front of it, with the right one (C{concurrencyLimit: {limit: …}}), and with one that is
learnt (C{adaptive}).  Times are those of clients that were answered.

Exit status 1: with a limit that is learnt less than nine tenths as many are answered as with the right one, or 99 of
100 wait longer than half as long as without a limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from limits import Asker
from processes import Process, cells, free_port, settings, stage

EACH: Final = 0.02
"""Seconds of a request, give or take a fifth."""
CONNECTIONS: Final = 600
"""Of the load: what waits has one each."""
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"


async def origin(port: int, places: int) -> None:
    """The upstream."""
    gate = asyncio.Semaphore(places)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                async with gate:
                    await asyncio.sleep(EACH * random.uniform(0.8, 1.2))
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
    @ivar answered: @ivar refused: requests a second.
    @ivar middle: @ivar late: seconds in which half, and 99 of 100, of those answered had their answer.
    """

    name: str
    answered: float
    refused: float
    middle: float
    late: float

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        times = (f"{self.middle * 1e3:,.0f} ms", f"{self.late * 1e3:,.0f} ms")
        return (self.name, f"{self.answered:,.0f}", f"{self.refused:,.0f}", *times)


HEADINGS: Final = ("", "answered a second", "refused a second", "half within", "99 of 100 within")


def measure(name: str, module: dict[str, Any] | None, upstream: int, rate: float, seconds: float, home: Path) -> Figure:
    """One gateway, which learns for half of the time."""
    home.mkdir()
    configuration = settings(upstream)
    if module is not None:
        configuration["modules"] = [{"name": "concurrencyLimit", "actionParam": module}]
    file = home / "gateway.json"
    file.write_text(json.dumps(configuration))
    port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
    words = [sys.executable, "-m", "protogate", "run", "-c", str(file)]
    gateway = Process(words, "", port, home / "gateway.log")
    try:
        asker = Asker([port], rate, CONNECTIONS)
        try:
            time.sleep(seconds / 2)
            before = asker.report()
            time.sleep(seconds / 2)
            found = asker.report()
        finally:
            asker.stop()
    finally:
        gateway.stop()
    took = found["at"] - before["at"]
    answered = found["counts"].get("200", 0)
    refused = sum(found["counts"].values()) - answered
    return Figure(name, answered / took, refused / took, found["middle"], found["late"])


def run(places: int, over: float, seconds: float) -> tuple[list[Figure], list[str]]:
    """The figures, and what went wrong."""
    with stage() as (folder, processes):
        port = free_port()
        words = [sys.executable, __file__, "--origin", str(port), str(places)]
        processes.append(Process(words, "", port, folder / "origin.log"))
        rate = places / EACH * over
        rows: list[tuple[str, dict[str, Any] | None]] = [
            ("nothing limits", None),
            (f"limit: {places * 2}", {"limit": places * 2}),
            ("adaptive", {"adaptive": {"min": 2, "max": 500}}),
        ]
        figures = [
            measure(name, module, port, rate, seconds, folder / str(number))
            for number, (name, module) in enumerate(rows)
        ]
    nothing, right, learnt = figures
    faults = []
    if learnt.answered < right.answered * 0.9:
        faults.append(f"with what is learnt {learnt.answered:,.0f} a second are answered, not {right.answered:,.0f}")
    if learnt.late > nothing.late / 2:
        faults.append(f"99 of 100 wait {learnt.late * 1e3:,.0f} ms, and {nothing.late * 1e3:,.0f} ms without a limit")
    return figures, faults


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--places", type=int, default=10, help="requests that the upstream serves at a time (default: 10)"
    )
    parser.add_argument("--over", type=float, default=2.4, help="times of what it can answer (default: 2.4)")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each row (default: 30)")
    parser.add_argument("--origin", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.origin:
        asyncio.run(origin(*options.origin))
        return 0
    figures, faults = run(options.places, options.over, options.seconds)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
