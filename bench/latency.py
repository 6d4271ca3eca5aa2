"""
Latency of each candidate at one and the same rate: 70 % of what a core can do for the slowest of them.

The load is L{steady}: it corrects for coordinated omission, and says how late it was itself.  The upstream is asked
directly, too: what it and the load take is in all the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Final

import candidates
import load
from candidates import LOAD_CORE, SMALL
from others.plan import Plan
from processes import HERE, Process, stage
from report import Table, spread
from rows import WARM, Options, line_up

SHARE: Final = 0.7
DIRECT: Final = "(no gateway)"
PARTS: Final = ("p50", "p99", "p99.9", "max")


def ask(process: Process, rate: float, seconds: float, connections: int) -> dict[str, Any]:
    """One round, on the core of the load."""
    options = {"port": process.port, "path": SMALL, "rate": rate, "seconds": seconds, "connections": connections}
    arguments = [sys.executable, str(HERE / "steady.py"), *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(
        ["taskset", "-c", LOAD_CORE, *arguments], capture_output=True, text=True, check=False, timeout=seconds + 60
    )
    if done.returncode:
        raise SystemExit(f"steady.py:\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bearable(asked: Iterable[Process], connections: int) -> float:
    """
    A rate for all: L{SHARE} of what a core can do for the slowest, in two digits.

    Out of CPU time per request, as requests per second depend on what else the machine does at that moment.
    """
    most = max(load.ask(process, SMALL, 1.0, connections).each for process in asked)
    return float(f"{SHARE / most:.2g}")


def measure(options: Options) -> Table:
    """All candidates, in interleaved rounds."""
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        started = line_up(folder, Plan(up.port), options, processes)
        rate = options.rate or bearable(started.values(), options.connections)
        asked = {DIRECT: up, **started}
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in asked}
        for number in range(options.rounds + 1):
            for name, process in asked.items():
                figure = ask(
                    process, rate, options.seconds if number else min(options.seconds, WARM), options.connections
                )
                if number:
                    found[name].append(figure)
    return table(rate, options.connections, found)


def table(rate: float, connections: int, found: dict[str, list[dict[str, Any]]]) -> Table:
    """Of the figures of each candidate."""
    rows: list[tuple[object, ...]] = [("ms", *PARTS, "load late by (p99)", "answers", "errors")]
    for name, figures in found.items():
        parts = [spread([figure[part] * 1e3 for figure in figures], ",.2f") for part in (*PARTS, "late")]
        answers, errors = (sum(figure[what] for figure in figures) for what in ("answers", "errors"))
        rows.append((name, *parts, f"{answers:,}", errors))
    note = "Median of the rounds, least and most. Timed from when a request was due, not from when it could be sent."
    return Table("latency", f"Latency at {rate:,.0f} requests/s; {connections} connections", rows, note)
