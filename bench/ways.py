"""
What a request costs protogate by what is spoken on either side: each codec reading, each writing, in the same run.

Rules
- It is the same request in all of them: a GET, an answer of 200 bytes, in cleartext, so many at once.
- Rounds are interleaved among the ways of one build, and its HTTP/1 → HTTP/1 is what the others are divided by.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import candidates
import load
from candidates import BUILDS, SMALL
from others.plan import Plan
from processes import Process, stage
from report import Table, spread
from rows import STREAMS, WARM, Options, chosen

NAMES: Final = {"http1": "HTTP/1", "http2": "HTTP/2", "sotp": "SOTP"}
Way = tuple[str, str]
ALL: Final[tuple[Way, ...]] = tuple(product(NAMES, NAMES))
NOTE: Final = (
    "What is read → what is written. busy: how much of its core the gateway had to do; where that is less than all of "
    "it, fewer requests share a wake-up, and each costs more. HTTP/1 is asked by wrk, HTTP/2 by h2load, SOTP by a "
    "program in Python, which asks in the form of HTTP; the upstream of SOTP is one in Python, too."
)


def ask(process: Process, way: Way, seconds: float, together: int) -> load.Figure:
    """One round, of so many requests at once."""
    connections = max(together // STREAMS, 1)
    if way[0] == "http2":
        return load.multiplexed(process, SMALL, seconds, connections, STREAMS)
    if way[0] == "sotp":
        return load.linked(process, SMALL, seconds, connections, STREAMS)
    return load.ask(process, SMALL, seconds, together)


def started(build: str, ways: Sequence[Way], folder: Path, processes: list[Process]) -> Iterator[tuple[Way, Process]]:
    """One gateway for each of these ways that a build can go, and the upstreams behind them."""
    upstreams: dict[str, Process] = {}
    for front, back in ways:
        if not candidates.speaks(build, Plan(0, front=front, back=back)):
            continue
        if back not in upstreams:
            upstreams[back] = candidates.upstream(folder, back)
            processes.append(upstreams[back])
        plan = Plan(upstreams[back].port, front=front, back=back)
        inside = folder / f"{front}-{back}"
        inside.mkdir()
        processes.append(process := candidates.available()[build](inside, plan))
        candidates.check(build, process, plan)
        yield (front, back), process


def measure(options: Options, ways: Sequence[Way] = ALL) -> Table:
    """These ways of each build, one build after the other; HTTP/1 → HTTP/1 must be among them."""
    found: dict[str, dict[Way, list[load.Figure]]] = {}
    for build in chosen(options):
        if build not in BUILDS:
            continue
        with stage() as (folder, processes):
            gateways = dict(started(build, ways, folder, processes))
            found[build] = {way: [] for way in gateways}
            for number in range(options.rounds + 1):
                for way, process in gateways.items():
                    seconds = options.seconds if number else min(options.seconds, WARM)
                    figure = ask(process, way, seconds, options.connections)
                    if number:
                        found[build][way].append(figure)
    return table(found, options.connections)


def table(found: dict[str, dict[Way, list[load.Figure]]], together: int) -> Table:
    """A line for each way of each build."""
    rows: list[tuple[object, ...]] = [
        ("", "way", "CPU µs/request", "× HTTP/1 → HTTP/1", "requests/s", "busy", "errors")
    ]
    for build, ways in found.items():
        base = statistics.median(figure.each for figure in ways[ALL[0]])
        for (front, back), figures in ways.items():
            each = [figure.each for figure in figures]
            rows.append(
                (
                    build,
                    f"{NAMES[front]} → {NAMES[back]}",
                    spread([value * 1e6 for value in each]),
                    f"{statistics.median(each) / base:.2f}",
                    spread([figure.rate for figure in figures], ",.0f"),
                    f"{statistics.median(figure.cpu / figure.seconds for figure in figures):.0%}",
                    sum(figure.errors for figure in figures),
                )
            )
    return Table("ways", f"protogate, by what is spoken; {together} requests at once", rows, NOTE)
