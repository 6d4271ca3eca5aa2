"""
What clients lose while the gateway under full load is given a new configuration, new code, or loses a worker.

    python bench/releases.py [--reloads 20] [--upgrades 5] [--kills 10] [--workers 2] [--connections 32]

Two loads ask at the same time, as fast as they can: wrk, which counts errors of its sockets, and a client of our own
that keeps account of each request and connection (account.py).

Exit status 1: a reload or an upgrade lost something, a kill more than all connections once, or the account is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import candidates
import configuration
import load
from account import Account, Client
from candidates import GATEWAY_CORE, LOAD_CORE, SMALL
from processes import Process, binary, cells, free_port, stage, until

PAUSE: Final = 0.3
"""Seconds between two events."""
LONG: Final = 120.0
"""Seconds that an event may take."""
LIFE: Final = 11.0
"""Seconds that the worker in the place of a killed one is left alone: who ends again soon is replaced ever later."""


class Gateway(Process):
    """protogate with workers."""

    def __init__(self, folder: Path, upstream: int, workers: int) -> None:
        self._folder, self._upstream, self._workers, self._turn = folder, upstream, workers, 0
        self._born: dict[int, float] = {}  # workers that took the place of a killed one
        self._port, self.path = free_port(), folder / "gateway.json"
        self._place()
        arguments = [sys.executable, "-m", "protogate", "run", "-c", str(self.path)]
        super().__init__(arguments, GATEWAY_CORE, self._port, folder / "gateway.log")
        try:
            self.told("workers serve", 1)
        except BaseException:
            self.stop()  # nobody else knows of it yet
            raise

    def _place(self) -> None:
        """Write a configuration that is another one each time."""
        self._turn += 1
        mark = {"name": "addResponseHeader", "actionParam": {"x-turn": str(self._turn)}}
        made = configuration.plain(
            self._port, self._upstream, log=self._folder / "access.log", modules=[mark], workers=self._workers
        )
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(made))
        new.replace(self.path)

    def count(self, text: str) -> int:
        """How often the gateway said that."""
        return self.log.read_text().count(text)

    def told(self, text: str, times: int) -> None:
        """Wait until it said so, so often."""
        try:
            until(f"{text!r} in the gateway's log", lambda: self.count(text) >= times, LONG)
        except SystemExit as why:
            raise SystemExit(f"{why}\n{self.log.read_text()[-2000:]}") from None

    # -- events: each returns the seconds that it took

    def nothing(self) -> float:
        """What the others are compared with."""
        time.sleep(1)
        return 1.0

    def reload(self) -> float:
        """A new configuration, in force in all workers."""
        before = self.count(IN_FORCE)
        self._place()
        begun = time.monotonic()
        self.child.send_signal(signal.SIGHUP)
        self.told(IN_FORCE, before + 1)
        return time.monotonic() - begun

    def upgrade(self) -> float:
        """New workers serve, and the old ones have left."""
        before, left, begun = self.count(UPGRADED), self.count(LEFT), time.monotonic()
        self.child.send_signal(signal.SIGUSR2)
        self.told(UPGRADED, before + 1)
        self.told(LEFT, left + self._workers)
        return time.monotonic() - begun

    def kill(self) -> float:
        """The worker that serves longest is gone, and another one serves in its place."""
        victim = self._serving()[0]
        time.sleep(max(self._born.get(victim, 0.0) + LIFE - time.monotonic(), 0.0))
        if victim not in self.pids():
            raise SystemExit(f"{victim} is no worker of this gateway")
        before, begun = self.count(SERVES), time.monotonic()
        os.kill(victim, signal.SIGKILL)
        self.told(SERVES, before + 1)
        now = self._born[self._serving()[-1]] = time.monotonic()
        return now - begun

    def _serving(self) -> list[int]:
        """Workers, those that serve longest first."""
        last: dict[str, int] = {}
        for slot, pid in re.findall(r"worker (\d+) \(pid (\d+)\) serves", self.log.read_text()):
            last.pop(slot, None)
            last[slot] = int(pid)
        return list(last.values())


IN_FORCE: Final = " is in force"
UPGRADED: Final = " workers with the new code serve"
LEFT: Final = " has left"
SERVES: Final = " serves\n"


@dataclass(frozen=True)
class Figure:
    """
    One kind of event.

    @ivar took: seconds of one, on the average.
    @ivar wrk: requests, and errors, of wrk.
    """

    name: str
    times: int
    took: float
    wrk: tuple[float, int]
    account: Account

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        account = self.account
        why = ", ".join(f"{count} × {what}" for what, count in account.lost.most_common()) or "–"
        return (
            self.name,
            str(self.times),
            f"{self.took:.2f} s",
            f"{account.asked:,}",
            str(account.lost.total()),
            why,
            str(account.refused),
            f"{account.closed:,}",
            f"{account.worst * 1e3:,.0f} ms",
            f"{self.wrk[0]:,.0f}",
            str(self.wrk[1]),
        )


HEADINGS: Final = (
    "",
    "times",
    "each took",
    "requests",
    "lost",
    "how",
    "not connected",
    "closed well",
    "slowest answer",
    "wrk: requests",
    "wrk: errors",
)


def measure(
    gateway: Gateway, name: str, event: Callable[[], float], times: int, connections: int, warm: float
) -> Figure:
    """So many events under both loads, which have been there for C{warm} seconds."""
    target = f"http://127.0.0.1:{gateway.port}{SMALL}"
    arguments = [
        "taskset",
        "-c",
        LOAD_CORE,
        binary("wrk") or "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{LONG * (times + 1):.0f}s",
    ]
    wrk = subprocess.Popen([*arguments, "--timeout", "30s", target], stdout=subprocess.PIPE, text=True)
    client = Client(gateway.port, connections)
    try:
        time.sleep(warm)
        took = 0.0
        for _ in range(times):
            took += event()
            time.sleep(PAUSE)
    finally:
        try:
            wrk.send_signal(signal.SIGINT)  # it stops, and tells
            told, _ = wrk.communicate(timeout=60)
        finally:
            wrk.kill()
        account = client.stop()
    return Figure(name, times, took / max(times, 1), load.counted(told), account)


def run(
    reloads: int, upgrades: int, kills: int, workers: int = 2, connections: int = 32, warm: float = 1.0
) -> tuple[list[Figure], list[str]]:
    """The figures, and what went wrong."""
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        gateway = Gateway(folder, up.port, workers)
        processes.append(gateway)
        events = {
            "nothing": (gateway.nothing, 1, 0),
            "reload": (gateway.reload, reloads, 0),
            "upgrade": (gateway.upgrade, upgrades, 0),
            "kill of a worker": (gateway.kill, kills, connections),
        }
        figures, faults = [], []
        for name, (event, times, most) in events.items():
            if times:
                figure = measure(gateway, name, event, times, connections, warm)
                figures.append(figure)
                faults += [f"{name}: {fault}" for fault in judged(figure, most * times)]
    return figures, faults


def judged(figure: Figure, most: int) -> list[str]:
    """
    What is wrong with a figure.

    @param most: requests that may be lost, by our client as by wrk.
    """
    account = figure.account
    faults = account.faults()
    lost = account.lost.total()
    if lost > most:
        faults.append(f"{lost} requests lost, {most} may be")
    if account.refused:
        faults.append(f"{account.refused} connections could not be made")
    if figure.wrk[1] > most:
        faults.append(f"wrk counts {figure.wrk[1]} errors, {most} may be")
    return faults


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=20, help="new configurations (default: 20)")
    parser.add_argument("--upgrades", type=int, default=5, help="new programs (default: 5)")
    parser.add_argument("--kills", type=int, default=10, help="of one worker, by SIGKILL (default: 10)")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--connections", type=int, default=32, help="of each load (default: 32)")
    options = parser.parse_args()
    figures, faults = run(options.reloads, options.upgrades, options.kills, options.workers, options.connections)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
