"""
A gateway under everything that goes wrong at once, and what is left of it afterwards.

    python bench/soak.py [--requests 200000] [--phases 4] [--every 2] [--users 48] [--without-collector]

Mixed requests (C{traffic.py}), 30 % of which the client breaks off at a random point, at an upstream (C{origin.py})
that resets at random points and closes each connection after 100 requests; meanwhile the configuration changes every
few seconds, in turn by SIGHUP and by the watched file: an upstream, a listener, a module and a rule come and go.
After each phase all is let to end, and the gateway reports about itself.

It is a fault when
- an answer was not expected, never came, or a connection that had promised to stay was closed;
- the log has an unhandled error or a traceback;
- a request whose head was sent to its end has no record or two, or a record tells another status than came;
- descriptors, connections or timers are left, or objects or memory grow from the half of the phases to their end.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from processes import HERE, MIB, Gateway, Process, cells, free_port, settings, stage, until

PATHS: Final = ("/small", "/large", "/chunked", "/tail", "/none", "/late", "/echo")
OBJECTS: Final = 500
"""By how many the objects of a quiet gateway may grow: caches that are not full, and chance."""
MEMORY: Final = 6 * MIB
"""By how much its memory may grow: what an allocator cannot give back."""
LOGGED: Final = re.compile(r"Traceback|Unhandled|Error\b(?!_)|failed")
STANDING: Final = ("FileWatch",)
"""Owners of timers that a quiet gateway has."""

_id = re.compile(r"[?&]id=(\d+)").search


@dataclass
class Outcome:
    """
    @ivar phases: one dictionary after each phase: the gateway's report, C{memory}, C{files} and C{requests}.
    @ivar faults: one line each.
    @ivar notes: figures worth knowing.
    """

    phases: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def table(self) -> str:
        """The phases."""
        return cells(
            ("requests", "objects", "garbage", "timers", "files", "memory", "reloads", "CPU µs/request"),
            *(
                (
                    f"{one['requests']:,}",
                    f"{one['objects']:,}",
                    one["garbage"],
                    one["timers"],
                    one["files"],
                    f"{one['memory'] / MIB:.1f} MiB",
                    one["reloads"],
                    f"{one['cpu']:.0f}",
                )
                for one in self.phases
            ),
        )


def configuration(port: int, folder: Path, turn: int, side: int, base: dict[str, Any]) -> dict[str, Any]:
    """The configuration of that turn: every second one is the same as the first."""
    made = dict(base)
    made["gateway"] = base["gateway"] | {"drain": "2s", "timeouts": {"clientHeader": "1s"}}
    made["upstreams"] = [dict(base["upstreams"][0], pool={"idle": "1s"})]
    rule = base["routes"][0]
    made["routes"] = [dict(rule, value=path) for path in PATHS]
    made["accessLog"] = {"file": str(folder / "access.log")}
    made["modules"] = [
        {"name": "addResponseHeader", "actionParam": {"x-turn": str(turn % 2), "x-took": "${request.func.remoteCost}"}},
        {"name": "setRequestHeader", "stage": "PRE_UPSTREAM", "actionParam": {"x-id": "${func.requestId}"}},
    ]
    if turn % 2:
        made["listeners"] = [*base["listeners"], {"name": "side", "address": f"127.0.0.1:{side}"}]
        made["upstreams"] += [{"name": "spare", "endpoints": [{"url": f"http://127.0.0.1:{port}"}]}]
        spare = [{"targets": [{"upstream": "spare"}]}]
        made["routes"] = [
            dict(rule, value=path, routes=spare if path == "/chunked" else rule["routes"]) for path in PATHS
        ]
        made["modules"] += [{"name": "removeHeader", "stage": "PRE_UPSTREAM", "actionParam": {"names": ["user-agent"]}}]
    return made


class Changes:
    """Changes of the configuration, every so many seconds."""

    def __init__(self, gateway: Gateway, make: Callable[[int], dict[str, Any]], every: float) -> None:
        self._gateway, self._make, self._every = gateway, make, every
        self._turn = 0
        self._due = time.monotonic() + every

    def begin(self) -> None:
        """Load each of them once: what is looked for the first time leaves something behind, then no more."""
        for more in (1, 2):
            wanted = self._gateway.report()["reloads"] + 1
            self._next()
            self._gateway.reload()
            until(f"reload {more}", lambda wanted=wanted: self._gateway.report()["reloads"] >= wanted)

    def look(self) -> None:
        """Change it when it is time."""
        if time.monotonic() >= self._due:
            self._next()

    def settle(self) -> None:
        """Back to the first one."""
        if self._turn % 2:
            self._next()
        time.sleep(0.5)
        self._gateway.reload()

    def _next(self) -> None:
        self._turn += 1
        self._gateway.configure(self._make(self._turn))
        if self._turn % 4 > 1:
            self._gateway.reload()
        self._due = time.monotonic() + self._every


def drive(gateway: Gateway, folder: Path, first: int, requests: int, users: int, changes: Changes) -> dict[str, Any]:
    """One phase of load."""
    result = folder / f"result-{first}.json"
    arguments = ["--port", str(gateway.port), "--requests", str(requests), "--first", str(first), "--users", str(users)]
    load = subprocess.Popen(
        [sys.executable, str(HERE / "traffic.py"), *arguments, "--seed", str(first + 1), "--result", str(result)]
    )
    try:
        deadline = time.monotonic() + 120 + requests / 50
        while load.poll() is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"the load of {requests} requests does not end")
            changes.look()
            time.sleep(0.1)
    finally:
        if load.poll() is None:
            load.kill()
            load.wait()
    if load.returncode:
        raise SystemExit(f"the load failed with {load.returncode}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def quiet(gateway: Gateway, files: int) -> dict[str, Any]:
    """Wait until all has ended that will; the report then."""
    last: dict[str, Any] = {}

    def still() -> bool:
        nonlocal last
        last = gateway.report()
        return (
            not sum(last["connections"].values())
            and len(last["connections"]) == 1
            and last["timers"] <= len(STANDING)
            and gateway.files() <= files
        )

    with contextlib.suppress(SystemExit):
        until("a quiet gateway", still, 20)
    return last


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Number and status of each line of the access log; -1 where a target tells none."""
    with path.open(encoding="ascii") as lines:
        for line in lines:
            record = json.loads(line)
            match = _id(record["target"])
            yield (int(match[1]) if match else -1), record["status"]


def reconcile(path: Path, results: list[dict[str, Any]], seen: int, outcome: Outcome) -> None:
    """Hold what the load knows against the access log."""
    must = "".join(result["must"] for result in results)
    status = list(itertools.chain.from_iterable(result["status"] for result in results))
    found = array("B", bytes(len(must)))
    wrong: list[str] = []
    nameless = lines = 0
    for number, told in records(path):
        lines += 1
        if number < 0 or number >= len(must):
            nameless += 1
            continue
        found[number] = min(found[number] + 1, 255)
        if status[number] and status[number] != told:
            wrong.append(f"request {number}: {told} is recorded, {status[number]} was seen")
    missing = [number for number in range(len(must)) if must[number] == "1" and not found[number]]
    twice = [number for number in range(len(must)) if found[number] > 1]
    garbage = set(itertools.chain.from_iterable(result["nameless"] for result in results))
    cut = must.count("0")
    # A garbage head has no number, and a head that was cut may have lost its own.
    missing = [number for number in missing if number not in garbage]
    outcome.notes.append(f"{lines:,} records of {must.count('1'):,} whole requests and {cut:,} cut in their head")
    if missing:
        outcome.faults.append(f"{len(missing)} requests without a record, e.g. {missing[:5]}")
    if twice:
        outcome.faults.append(f"{len(twice)} requests with two records, e.g. {twice[:5]}")
    if nameless > len(garbage) + cut:
        outcome.faults.append(f"{nameless} records of nothing that was asked")
    if lines != seen:
        outcome.faults.append(f"{lines} records, but the gateway counted {seen} exchanges")
    outcome.faults += wrong[:5]


def judge(outcome: Outcome, start: dict[str, Any], collector: bool) -> None:
    """Compare the phases."""
    middle, end = outcome.phases[(len(outcome.phases) - 1) // 2], outcome.phases[-1]
    for one in outcome.phases:
        odd = [name for name in one["armed"] if not name.startswith(STANDING)]
        if odd or one["timers"] > len(STANDING):
            outcome.faults.append(f"after {one['requests']} requests: {one['timers']} timers left: {odd}")
        if sum(one["connections"].values()):
            outcome.faults.append(f"after {one['requests']} requests: connections left: {one['connections']}")
        if one["files"] > start["files"]:
            outcome.faults.append(f"after {one['requests']} requests: {one['files']} files, {start['files']} at first")
    for event in ("access_log_dropped", "reload_failed"):
        if end["counts"].get(event):
            outcome.faults.append(f"{event}: {end['counts'][event]}")
    more = end["objects"] - middle["objects"]
    if more > OBJECTS:
        grown = {name: number - middle["types"].get(name, 0) for name, number in end["types"].items()}
        worst = sorted(grown.items(), key=lambda item: -item[1])[:8]
        outcome.faults.append(f"{more} objects more than after half of the requests: {worst}")
    if end["memory"] - middle["memory"] > MEMORY:
        grown_by = (end["memory"] - middle["memory"]) / MIB
        outcome.faults.append(f"{grown_by:.1f} MiB more than after half of the requests")
    if not end["reloads"]:
        outcome.faults.append("the configuration was never loaded anew")
    if not collector and end["garbage"]:
        outcome.faults.append("the collector ran")


def run(
    requests: int, phases: int, every: float, users: int = 48, *, collector: bool = True, keep: Path | None = None
) -> Outcome:
    """All of it."""
    outcome, results = Outcome(), []
    with stage() as (folder, processes):
        port, side = free_port(), free_port()
        processes.append(
            Process([sys.executable, str(HERE / "origin.py"), "--port", str(port)], "", port, folder / "origin.log")
        )
        base = settings(port, watch=True)

        def make(turn: int) -> dict[str, Any]:
            return configuration(port, folder, turn, side, base)

        gateway = Gateway(folder, make(0), *([] if collector else ["--without-collector"]))
        processes.append(gateway)
        start = quiet(gateway, gateway.files()) | {"files": gateway.files()}
        changes = Changes(gateway, make, every)
        changes.begin()
        for phase in range(phases):
            share = requests // phases
            spent = gateway.cpu()
            results.append(drive(gateway, folder, phase * share, share, users, changes))
            spent = gateway.cpu() - spent
            changes.settle()
            report = quiet(gateway, start["files"])
            outcome.phases.append(
                report
                | {
                    "requests": (phase + 1) * share,
                    "memory": gateway.memory(),
                    "files": gateway.files(),
                    "cpu": spent / share * 1e6,
                }
            )
        processes.pop().stop()
        log = (folder / "gateway.log").read_text()
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / "gateway.log").write_text(log)
            (folder / "access.log").replace(keep / "access.log")
            (keep / "access.log").chmod(0o644)
        judge(outcome, start, collector)
        odd = [line for line in log.splitlines() if LOGGED.search(line)]
        if odd:
            outcome.faults.append(f"{len(odd)} odd lines in the log, e.g. {odd[:3]}")
        access = (keep or folder) / "access.log"
        reconcile(access, results, outcome.phases[-1]["counts"]["exchanges"], outcome)
    for result in results:
        if result["faults"]:
            outcome.faults.append(f"{result['faults']} faults that clients saw, e.g. {result['told']}")
    sums = {name: sum(result[name] for result in results) for name in ("aborted", "resets")}
    outcome.notes.append(
        f"{sums['aborted']:,} aborted by the client, {sums['resets']:,} reset by the upstream; counted by the gateway: "
        + ", ".join(f"{name} {number:,}" for name, number in sorted(outcome.phases[-1]["counts"].items()))
    )
    return outcome


def main() -> int:
    """Run it and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000, help="default: 200000")
    parser.add_argument("--phases", type=int, default=4, help="default: 4")
    parser.add_argument("--every", type=float, default=2, help="seconds between two configurations (default: 2)")
    parser.add_argument("--users", type=int, default=48, help="connections at once (default: 48)")
    parser.add_argument("--without-collector", action="store_true", help="turn the gateway's garbage collector off")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    options = parser.parse_args()
    outcome = run(
        options.requests,
        options.phases,
        options.every,
        options.users,
        collector=not options.without_collector,
        keep=options.keep,
    )
    print(outcome.table())
    print("\n".join(outcome.notes))
    print("\n".join(f"FAULT: {fault}" for fault in outcome.faults) or "no faults")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
