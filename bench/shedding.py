"""
The gateway itself gets more than it can do: who is answered, and how soon, with C{gateway.overload} and without?

    python bench/shedding.py [--work 2] [--over 2.5] [--seconds 20] [--reactor epoll]

A module works for 2 ms of CPU on each request, so that a gateway of one process can do a little less than 500 a second,
whatever the machine.  Two loads ask by the clock; what the second one asks for is less important.  They ask 2.5 times
as much, of a gateway without C{gateway.overload}, which serves all that it can, and of one with it.  In good time is
what was answered within half a second.

Exit status 1: with C{gateway.overload} less than 80 % of what can be served is answered in good time; 99 of 100 of
those answered wait longer than half as long as without it and a quarter of a second more; less than 60 % of what is
answered in good time is important.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import limits
from processes import Process, cells, free_port, settings, stage

CONNECTIONS: Final = 150
"""Of each of two loads."""
GOOD: Final = 0.5
"""Seconds."""
PLUGIN: Final = """
from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin
works = Plugin(IModuleFactory, "works", "works.Factory")
"""
MODULE: Final = """
import os, time
from zope.interface import implementer
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Headers, Response
from protogate.body import Whole

WORK = float(os.environ["WORK"])

@implementer(IModule)
class Works:
    warnings = ()

    def process(self, exchange):
        end = time.thread_time() + WORK
        while time.thread_time() < end:
            pass
        return Response(200, Headers([(b"content-length", b"3")]), Whole(b"yes"))

@implementer(IModuleFactory)
class Factory:
    name = "works"
    stages = ("PRE_UPSTREAM",)
    guards = False

    def build(self, params, stage=None):
        return Works()
"""
OVERLOAD: Final[dict[str, Any]] = {
    "priorities": [{"name": "important"}, {"name": "bulk", "when": "request.path == '/bulk'"}],
}


class Load(limits.Load):
    """Counts what is good, too."""

    def answered(self, status: int, seconds: float) -> None:
        """One answer."""
        super().answered(status, seconds)
        if status == 200 and seconds <= GOOD:
            self.good += 1

    good = 0

    def report(self) -> dict[str, Any]:
        """What came since the last one."""
        good, self.good = self.good, 0
        return {**super().report(), "good": good}


class Asker(limits.Asker):
    """The load, in a process of its own."""

    def __init__(self, port: int, rate: float, path: str) -> None:
        self._start([sys.executable, __file__, "--load", str(port), str(rate), path])


@dataclass(frozen=True)
class Figure:
    """
    @ivar served: @ivar good: @ivar first: @ivar refused: answers a second: all with 200, those in good time, the
        important ones of these; those with another status.
    @ivar middle: @ivar late: seconds in which half, and 99 of 100, of those answered with 200 had their answer.
    """

    name: str
    asked: float
    served: float
    good: float
    first: float
    refused: float
    middle: float
    late: float

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        numbers = (f"{number:,.0f}" for number in (self.asked, self.served, self.good, self.first, self.refused))
        return (self.name, *numbers, f"{self.middle * 1e3:,.0f} ms", f"{self.late * 1e3:,.0f} ms")


HEADINGS: Final = (
    "",
    "asked a second",
    "served",
    "in good time",
    "of these important",
    "refused",
    "half within",
    "99 of 100 within",
)


def measure(
    name: str, overload: dict[str, Any] | None, rate: float, seconds: float, home: Path, reactor: str
) -> Figure:
    """One gateway; the first third of the time does not count."""
    home.mkdir()
    configuration = settings(free_port())
    configuration["modules"] = [{"name": "works"}]
    if overload is not None:
        configuration["gateway"]["overload"] = overload
    file = home / "gateway.json"
    file.write_text(json.dumps(configuration))
    port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
    words = [sys.executable, "-m", "protogate", "run", *([f"--reactor={reactor}"] if reactor else []), "-c", str(file)]
    gateway = Process(words, "", port, home / "gateway.log")
    try:
        askers = [Asker(port, rate / 2, path) for path in ("/", "/bulk")]
        try:
            time.sleep(seconds / 3)
            before = [asker.report() for asker in askers]
            time.sleep(seconds * 2 / 3)
            found = [asker.report() for asker in askers]
        finally:
            for asker in askers:
                asker.stop()
    finally:
        gateway.stop()
    took = found[0]["at"] - before[0]["at"]
    answered = sum(sum(each["counts"].values()) for each in found)
    served = sum(each["counts"].get("200", 0) for each in found)
    return Figure(
        name,
        rate,
        served / took,
        sum(each["good"] for each in found) / took,
        found[0]["good"] / took,
        (answered - served) / took,
        max(each["middle"] for each in found),
        max(each["late"] for each in found),
    )


def run(work: float, over: float, seconds: float, reactor: str) -> tuple[list[Figure], list[str]]:
    """The figures, and what went wrong."""
    with stage() as (folder, _):
        plugins = folder / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "works_plugin.py").write_text(PLUGIN)
        (folder / "works.py").write_text(MODULE)
        os.environ |= {"PYTHONPATH": str(folder), "WORK": str(work / 1000)}
        rate = 1000 / work * over
        # What can be done is what is answered at all where nobody is refused: late, but all the same.
        nothing = measure("all are served", None, rate, seconds, folder / "1", reactor)
        shed = measure("gateway.overload", OVERLOAD, rate, seconds, folder / "2", reactor)
    faults = []
    if shed.good < 0.8 * nothing.served:
        faults.append(f"{shed.good:,.0f} a second are answered in good time, of {nothing.served:,.0f} that can be")
    if shed.late > nothing.late / 2 + GOOD / 2:
        faults.append(
            f"99 of 100 wait {shed.late * 1e3:,.0f} ms, and {nothing.late * 1e3:,.0f} ms where all are served"
        )
    if shed.first < 0.6 * shed.good:
        faults.append(f"of {shed.good:,.0f} that are answered only {shed.first:,.0f} are important")
    return [nothing, shed], faults


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=float, default=2.0, help="ms of CPU that a request takes (default: 2)")
    parser.add_argument("--over", type=float, default=2.5, help="times of what can be done at most (default: 2.5)")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row (default: 20)")
    parser.add_argument("--reactor", default="", help="of the gateway (default: the one that it chooses)")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        port, rate, path = options.load
        request = f"GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
        asyncio.run(Load([int(port)], float(rate), CONNECTIONS, request).run())
        return 0
    figures, faults = run(options.work, options.over, options.seconds, options.reactor)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
