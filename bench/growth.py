"""
How the cost of a request of protogate grows: with connections that ask at the same time, with rules, and with modules.

Each point is a process of its own (rules, modules) or the same one (connections); rounds are interleaved.  What grows
is told as a slope: least squares over all points, with what it is per.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any, Final

import candidates
import configuration
import load
import probe
from candidates import BUILDS, SMALL, Build
from idle import room
from processes import Process, free_port, stage
from report import Table, spread
from rows import WARM, Options, chosen

CONNECTIONS: Final = (1, 10, 100, 1_000, 10_000)
RULES: Final = (10, 100, 1_000, 3_000, 10_000)
MODULES: Final = (0, 1, 5, 10, 20, 50)
SETTLE: Final = 1.0
"""Seconds before a window: until all connections are open, and for 1,000 connections one more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """
    @ivar noun: of what there is more and more.
    @ivar points: how many.
    @ivar settings: for a number, what C{configuration.plain} is given.
    @ivar scale: makes of a number what the slope is drawn over.
    @ivar per: of the slope, with its unit.
    @ivar since: the least number that it is drawn through.
    """

    noun: str
    points: Sequence[int]
    settings: Callable[[int], dict[str, Any]]
    scale: Callable[[float], float]
    per: str
    note: str = ""
    since: int = 0


KINDS: Final[dict[str, Kind]] = {
    "connections": Kind(
        "connections",
        CONNECTIONS,
        lambda count: {},
        log10,
        "µs for ten times as many",
        f"All of them ask all the time; up to {configuration.POOL:,} go to the upstream. One alone pays for each "
        "wake-up of the event loop, which many share: the slope is of 100 and more.",
        100,
    ),
    "rules": Kind(
        "rules", RULES, lambda count: {"routes": configuration.rules(count)}, lambda x: x / 1000, "µs per 1,000 rules"
    ),
    "modules": Kind(
        "modules that apply",
        MODULES,
        lambda count: {"modules": configuration.modules(count)},
        lambda x: x,
        "µs per module",
    ),
}


def slope(points: Sequence[float], values: Sequence[float]) -> float:
    """Of the straight line nearest to all points."""
    return statistics.linear_regression(points, values).slope if len(points) > 1 else 0.0


def builds(options: Options) -> dict[str, Build]:
    """How protogate is measured, by the names of the candidates."""
    return {label: build for label, build in BUILDS.items() if label in chosen(options)}


def window(process: Process, up: Process, seconds: float, connections: int) -> load.Figure:
    """
    One round, measured when all connections are open: making them is not what is asked about.

    Requests are those that the upstream counted meanwhile.
    """
    settle = SETTLE * (1 + connections / 1_000)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(load.ask, process, SMALL, seconds + settle + 1, connections)
        time.sleep(settle)
        before, cpu, begun = served(up), process.cpu(), time.monotonic()
        time.sleep(seconds)
        after, spent, took = served(up), process.cpu() - cpu, time.monotonic() - begun
        whole = asked.result()
    if after <= before:
        raise SystemExit(f"no requests with {connections} connections")
    return load.Figure(after - before, took, spent, whole.errors)


def served(up: Process) -> int:
    """Requests that the upstream has answered, without those that ask for this."""
    return int(probe.ask(up.port, candidates.STATUS).body.split()[9])


def measure(name: str, options: Options, points: Sequence[int] = ()) -> Table:
    """One kind of L{KINDS}, in each way it can run."""
    kind = KINDS[name]
    points = points or kind.points
    many = name == "connections"
    if many:
        room(max(points) + configuration.POOL)
    found: dict[str, dict[int, list[load.Figure]]] = {}
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        started = {}
        for label, build in builds(options).items():
            found[label] = {count: [] for count in points}
            for count in points:
                if many and count != points[0]:
                    started[label, count] = started[label, points[0]]
                    continue
                process = start(folder, f"{build.slug}-{name}-{count}", up, kind.settings(count), build)
                processes.append(process)
                started[label, count] = process
        for number in range(options.rounds + 1):
            for (label, count), process in started.items():
                seconds = options.seconds if number else min(options.seconds, WARM)
                if many:
                    figure = window(process, up, seconds, count)
                else:
                    figure = load.ask(process, SMALL, seconds, options.connections)
                if number:
                    found[label][count].append(figure)
    return table(name, kind, points, options, found)


def start(folder: Path, name: str, up: Process, settings: dict[str, Any], build: Build) -> Process:
    """A plain protogate, with these settings besides."""
    patient = {"clientIdle": "1h", "clientHeader": "1h"}
    made = configuration.plain(free_port(), up.port, log=folder / f"{name}-access.log", timeouts=patient, **settings)
    return candidates.protogate(folder, name, made, build)


def table(
    name: str, kind: Kind, points: Sequence[int], options: Options, found: dict[str, dict[int, list[load.Figure]]]
) -> Table:
    """A column for each way to run it, a line for each point, and one for the slopes."""
    rows: list[tuple[object, ...]] = [(kind.noun, *(f"{label}: CPU µs/request" for label in found), "errors")]
    for count in points:
        values = [[figure.each * 1e6 for figure in found[label][count]] for label in found]
        errors = sum(figure.errors for label in found for figure in found[label][count])
        rows.append((f"{count:,}", *map(spread, values), errors))
    slopes = []
    for label in found:
        through = [count for count in points if count >= kind.since]
        middles = [statistics.median(figure.each for figure in found[label][count]) * 1e6 for count in through]
        slopes.append(f"{slope([kind.scale(count) for count in through], middles):+.2f}")
    rows.append((kind.per, *slopes, ""))
    connections = "" if name == "connections" else f"; {options.connections} connections"
    return Table(name, f"protogate, by number of {kind.noun}{connections}", rows, kind.note)
