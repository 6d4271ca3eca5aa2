"""
The gateway itself gets more than it can do: who is answered, and how soon, with C{gateway.overload} and without?

    python bench/shedding.py [--work 2] [--over 2.5] [--rounds 6] [--seconds 6] [--reactor epoll]
                             [--write docs/overload.md]

A module works for 2 ms of CPU on each request, so that a gateway of one process can do a little less than 500 a second,
whatever the machine.  Two loads ask by the clock; what the second one asks for is less important.  They ask 2.5 times
as much, of a gateway without C{gateway.overload}, which serves all that it can, and of one with it.  In good time is
what was answered within half a second.

Both gateways run all the time and are asked in turns, in rounds of a few seconds, so that what else the machine has to
do is the same for both; they take turns in who is first.  The first third of a round does not count.  Numbers are of
all rounds together.

Exit status 1: with C{gateway.overload} less than 80 % of what is served without it is answered in good time; 99 of 100
of those answered wait longer than half as long as without it and a quarter of a second more; less than 60 % of what is
answered in good time is important.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import limits
import report
from processes import Process, cells, free_port, settings, stage

CONNECTIONS: Final = 150
"""Of each of two loads."""
GOOD: Final = 0.5
"""Seconds."""
PAUSE: Final = 0.5
"""Seconds between two rounds, in which what was asked last is answered."""
MARK: Final = "shedding"
"""In the page that has the figures."""
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
    """Tells all times, too."""

    def report(self) -> dict[str, Any]:
        """What came since the last one."""
        times = self.times
        return {**super().report(), "times": times}


class Asker(limits.Asker):
    """The load, in a process of its own."""

    def __init__(self, port: int, rate: float, path: str) -> None:
        self._start([sys.executable, __file__, "--load", str(port), str(rate), path])


@dataclass
class Figure:
    """
    One gateway, all rounds together.

    @ivar seconds: that counted.
    @ivar times: of each load, the important one first, the seconds in which each answer with 200 came.
    @ivar refused: answers with another status.
    """

    name: str
    seconds: float = 0.0
    times: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    refused: int = 0

    @property
    def served(self) -> float:
        """Answers with 200, a second."""
        return sum(map(len, self.times)) / self.seconds

    @property
    def good(self) -> tuple[float, float]:
        """Of these, of each load those in good time."""
        first, last = (sum(each <= GOOD for each in times) / self.seconds for times in self.times)
        return first, last

    def within(self, percent: int) -> float:
        """Seconds in which so many of those answered with 200 had their answer."""
        times = sorted([*self.times[0], *self.times[1]]) or [0.0]
        return times[len(times) * percent // 100]

    def add(self, before: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> None:
        """A round: what both loads said at the end of what does not count, and at the end."""
        self.seconds += found[0]["at"] - before[0]["at"]
        for times, each in zip(self.times, found, strict=True):
            times.extend(each["times"])
            self.refused += sum(count for status, count in each["counts"].items() if status != "200")

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        numbers = (self.served, *self.good, self.refused / self.seconds)
        times = (f"{self.within(percent) * 1e3:,.0f} ms" for percent in (50, 99))
        return (self.name, *(f"{number:,.0f}" for number in numbers), *times)


HEADINGS: Final = (
    "",
    "Served a second",
    "Important in good time",
    "Others in good time",
    "Refused",
    "Half within",
    "99 of 100 within",
)


class Bench:
    """A gateway to be asked."""

    def __init__(self, name: str, overload: dict[str, Any] | None, home: Path, reactor: str) -> None:
        home.mkdir()
        configuration = settings(free_port())
        configuration["modules"] = [{"name": "works"}]
        if overload is not None:
            configuration["gateway"]["overload"] = overload
        file = home / "gateway.json"
        file.write_text(json.dumps(configuration))
        self._port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
        words = [sys.executable, "-m", "protogate", "run", *([f"--reactor={reactor}"] if reactor else [])]
        self.process = Process([*words, "-c", str(file)], "", self._port, home / "gateway.log")
        self.figure = Figure(name)

    def round(self, rate: float, seconds: float) -> None:
        """Ask it for so long."""
        askers = [Asker(self._port, rate / 2, path) for path in ("/", "/bulk")]
        try:
            time.sleep(seconds / 3)
            before = [asker.report() for asker in askers]
            time.sleep(seconds * 2 / 3)
            self.figure.add(before, [asker.report() for asker in askers])
        finally:
            for asker in askers:
                asker.stop()
        time.sleep(PAUSE)


def run(rate: float, work: float, rounds: int, seconds: float, reactor: str) -> list[Figure]:
    """Without, and with."""
    with stage() as (folder, processes):
        plugins = folder / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "works_plugin.py").write_text(PLUGIN)
        (folder / "works.py").write_text(MODULE)
        os.environ |= {"PYTHONPATH": str(folder), "WORK": str(work / 1000)}
        benches = []
        for place, (name, overload) in enumerate((("without", None), ("with `gateway.overload`", OVERLOAD))):
            benches.append(Bench(name, overload, folder / str(place), reactor))
            processes.append(benches[-1].process)
        for number in range(rounds):
            for bench in benches if number % 2 == 0 else benches[::-1]:
                bench.round(rate, seconds)
        return [bench.figure for bench in benches]


def faults(nothing: Figure, shed: Figure) -> list[str]:
    """What should not be so.  What can be done is what is served where nobody is refused: late, but all the same."""
    found = []
    good = sum(shed.good)
    if good < 0.8 * nothing.served:
        found.append(f"{good:,.0f} a second are answered in good time, of {nothing.served:,.0f} that can be")
    if shed.within(99) > nothing.within(99) / 2 + GOOD / 2:
        times = f"{shed.within(99) * 1e3:,.0f} ms, and {nothing.within(99) * 1e3:,.0f} ms"
        found.append(f"99 of 100 wait {times} where all are served")
    if shed.good[0] < 0.6 * good:
        found.append(f"of {good:,.0f} that are answered only {shed.good[0]:,.0f} are important")
    return found


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=float, default=2.0, help="ms of CPU that a request takes (default: 2)")
    parser.add_argument("--over", type=float, default=2.5, help="times of what can be done at most (default: 2.5)")
    parser.add_argument("--rounds", type=int, default=6, help="of each of both (default: 6)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a round (default: 6)")
    parser.add_argument("--reactor", default="", help="of the gateway (default: the one that it chooses)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help=f"put the table between its marks, {MARK!r}")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        port, rate, path = options.load
        request = f"GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
        asyncio.run(Load([int(port)], float(rate), CONNECTIONS, request).run())
        return 0
    asked = 1000 / options.work * options.over
    figures = run(asked, options.work, options.rounds, options.seconds, options.reactor)
    found = faults(*figures)
    table = cells(HEADINGS, *(figure.row() for figure in figures))
    print(table)
    print("\n".join(f"FAULT: {fault}" for fault in found) or "no faults")
    if options.write:
        said = f"Asked {asked:,.0f} times a second, half of it important, for {options.work:g} ms of CPU each:"
        report.write(options.write, {MARK: f"{said}\n\n{table}\n{report.machine()}"})
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
