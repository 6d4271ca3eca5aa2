"""
CPU time per request at full speed, of all candidates, one table a kind of request.

A round asks each candidate once, so a machine that gets slower slows all of them; the first round is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import candidates
import load
from candidates import HUGE, LARGE, SMALL
from others.plan import Plan
from processes import Process, stage
from report import Table, bases, ratios, spread


@dataclass(frozen=True, slots=True)
class Options:
    """
    @ivar only: names of candidates; empty = all there are.
    @ivar seconds: of each round.
    @ivar rounds: that count.
    @ivar connections: that ask at the same time, unless a row says otherwise.
    @ivar rate: requests per second, of rows with a fixed rate; 0 = what they choose.
    """

    only: tuple[str, ...] = ()
    seconds: float = 4.0
    rounds: int = 5
    connections: int = 64
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """
    @ivar path: what is asked for.
    @ivar upload: bytes that each request brings; 0 = a GET.
    @ivar size: bytes of a large answer, see L{load.counted}.
    @ivar connections: 0 = as the options say.
    """

    title: str
    path: str = SMALL
    governed: bool = False
    upload: int = 0
    size: int = 0
    connections: int = 0
    note: str = ""


GOVERNED: Final = (
    "On in each of them: 3,000 rules (exact and prefix), a list of 10,000 denied networks, a condition on method and "
    "path, two fields of the request and two of the answer that are made for each request, counters for operators. "
    "Before it is measured, each is asked whether it does all of that. Caddy goes through its rules and networks one "
    "by one; it has no other way."
)

WARM: Final = 1.0
"""Seconds of the round that does not count."""

ROWS: Final[dict[str, Row]] = {
    "get": Row("GET, answer of 200 bytes"),
    "governed": Row("GET, answer of 200 bytes, governed", governed=True, note=GOVERNED),
    "post": Row("POST of 10 KiB, answer of 200 bytes", upload=10 * 1024),
    "download": Row("GET, answer of 100 KiB", path=LARGE),
    "huge": Row("GET, answer of 10 MiB", path=HUGE, size=10 << 20, connections=8),
}


def chosen(options: Options) -> list[str]:
    """
    Names of the candidates that take part.

    @raise SystemExit: one is not there.
    """
    there = list(candidates.available())
    for name in options.only:
        if name not in there:
            raise SystemExit(f"no candidate {name!r}; there are {', '.join(there)}")
    return [name for name in there if not options.only or name in options.only]


def line_up(folder: Path, plan: Plan, options: Options, processes: list[Process]) -> dict[str, Process]:
    """Start the candidates, and see that each does what is measured."""
    started = {}
    for name in chosen(options):
        processes.append(process := candidates.available()[name](folder, plan))
        candidates.check(name, process, plan)
        started[name] = process
    return started


def measure(name: str, options: Options) -> Table:
    """One row of L{ROWS}, as a table."""
    row = ROWS[name]
    connections = row.connections or options.connections
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        started = line_up(folder, Plan(up.port, row.governed), options, processes)
        lua = load.script(folder, row.upload) if row.upload else None
        found: dict[str, list[load.Figure]] = {each: [] for each in started}
        for number in range(options.rounds + 1):
            for each, process in started.items():
                figure = load.ask(
                    process,
                    row.path,
                    options.seconds if number else min(options.seconds, WARM),
                    connections,
                    lua,
                    row.size,
                )
                if number:
                    found[each].append(figure)
    return table(name, row, connections, found)


def table(name: str, row: Row, connections: int, found: dict[str, list[load.Figure]]) -> Table:
    """Of the figures of each candidate."""
    cpu = {each: [figure.each * 1e6 for figure in figures] for each, figures in found.items()}
    compared = bases(list(cpu))
    ratio = ratios(cpu, compared)
    heads = ("", "CPU µs/request", *(f"× {base}" for base in compared), "requests/s", "errors")
    rows: list[tuple[object, ...]] = [heads]
    for each, figures in found.items():
        rate = spread([figure.rate for figure in figures], ",.0f")
        rows.append((each, spread(cpu[each]), *ratio(each), rate, sum(figure.errors for figure in figures)))
    return Table(name, f"{row.title}; {connections} connections", rows, row.note)
