"""
A limit that two gateways share through one Redis: is it kept, and what becomes of it while Redis is gone?

    python bench/limits.py [--limit 1000] [--workers 4] [--seconds 10]

Two gateways with four workers each, and a third one with one process that tells how long its event loop was at work
without a break, get five times the limit in all.  Redis is then killed (SIGKILL), started anew without its data, held
(SIGSTOP) and let go.  Each phase is a row: what passed, in percent of what should; answers that were neither 200 nor
429; the worst latency; and the longest time on a CPU between two turns of a ticker that runs every millisecond.

The load is steady: it sends by the clock, whatever comes back, over as many connections as that takes.

Exit status 1: where it is known what should pass, more of it than a fifth of a second's worth too much or too little;
anything but 200 and 429; 5 ms more at work without a break than before anything happened to Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from processes import Gateway, Process, binary, cells, free_port, stage

OVER: Final = 5
"""How many times the limit is asked for."""
SLACK: Final = 0.2
"""Seconds: so much of the limit may pass too much or too little in a phase; 2 percent of ten seconds."""
STALL: Final = 0.005
"""Seconds."""
STEP: Final = 0.002
"""Seconds between two looks of the load at the clock."""
CONNECTIONS: Final = 96
"""To each gateway: so many that each worker gets its part of them, as the kernel shares them out by chance."""
REQUEST: Final = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, load: Load) -> None:
        self._load, self._begun, self._data = load, 0.0, b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Asyncio."""
        self._transport = transport
        self._load.idle.append(self)

    def ask(self) -> None:
        """Send one."""
        self._begun = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """Asyncio: an answer has a Content-Length, and a body of fewer bytes than a segment."""
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._data = b""
            self._load.answered(int(head[9:12]), time.perf_counter() - self._begun)
            self._load.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio."""
        self._load.lost += 1


class Load:
    """
    Requests by the clock.

    @ivar counts: answers by status, since the last report.
    @ivar times: seconds that each answer with 200 took.
    @ivar worst: seconds that an answer took.
    @ivar lost: connections.
    @ivar held: requests that found no connection.
    """

    def __init__(self, ports: list[int], rate: float, connections: int = CONNECTIONS, request: bytes = REQUEST) -> None:
        self._ports, self._rate, self._connections, self.request = ports, rate, connections, request
        self.idle: list[Connection] = []
        self.times: list[float] = []
        self.counts: dict[int, int] = {}
        self.worst, self.lost, self.held = 0.0, 0, 0

    def answered(self, status: int, seconds: float) -> None:
        """One answer."""
        self.counts[status] = self.counts.get(status, 0) + 1
        self.worst = max(self.worst, seconds)
        if status == 200:
            self.times.append(seconds)

    async def run(self) -> None:
        """Until a line on standard input says so; each line before is answered with a report."""
        loop = asyncio.get_running_loop()
        for port in self._ports:
            for _ in range(self._connections):
                await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
        random.Random(1).shuffle(self.idle)  # in turn to all, not to one gateway after the other
        asking = asyncio.create_task(self._ask())
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print(flush=True)
        while (await reader.readline()).strip() == b"report":
            print(json.dumps(self.report()), flush=True)
        asking.cancel()

    def report(self) -> dict[str, Any]:
        """What came since the last one."""
        counts = {str(status): count for status, count in self.counts.items()}
        times = sorted(self.times) or [0.0]
        found: dict[str, Any] = {"counts": counts, "worst": self.worst, "lost": self.lost, "held": self.held}
        found |= {"middle": times[len(times) // 2], "late": times[len(times) * 99 // 100]}
        self.counts, self.times, self.worst, self.lost, self.held = {}, [], 0.0, 0, 0
        return {**found, "at": time.perf_counter()}

    async def _ask(self) -> None:
        begun, sent = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - begun) * self._rate)
            while sent < due and self.idle:
                self.idle.pop(0).ask()
                sent += 1
            self.held += due - sent
            sent = due
            await asyncio.sleep(STEP)


class Asker:
    """The load, in a process of its own."""

    def __init__(self, ports: list[int], rate: float, connections: int = CONNECTIONS) -> None:
        self._start([sys.executable, __file__, "--load", json.dumps(ports), str(rate), str(connections)])

    def _start(self, words: list[str]) -> None:
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._read()

    def report(self) -> dict[str, Any]:
        """What came since the last one."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"report\n")
        self._child.stdin.flush()
        return dict(json.loads(self._read()))

    def _read(self) -> bytes:
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def stop(self) -> None:
        """End it."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@dataclass(frozen=True)
class Figure:
    """
    One phase.

    @ivar seconds: that it took.
    @ivar passed: requests a second.
    @ivar due: as many as should have been; 0 = nobody says.
    @ivar strange: answers that were neither 200 nor 429, and connections that were lost.
    @ivar latency: seconds.
    @ivar stall: seconds.
    """

    name: str
    seconds: float
    passed: float
    due: float
    asked: float
    strange: int
    latency: float
    stall: float

    @property
    def share(self) -> float:
        """Of what should have passed."""
        return self.passed / self.due if self.due else 0.0

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        share = f"{self.share * 100:.1f} %" if self.due else ""
        times = (f"{self.latency * 1e3:.1f} ms", f"{self.stall * 1e3:.1f} ms")
        return (self.name, f"{self.asked:,.0f}", f"{self.passed:,.0f}", share, str(self.strange), *times)


HEADINGS: Final = (
    "",
    "asked a second",
    "passed a second",
    "of what should",
    "strange",
    "worst latency",
    "at work",
)


def configuration(limit: int, burst: int, store: int, **gateway: Any) -> dict[str, Any]:
    """Everything is answered by the gateway itself."""
    limited = {
        "limit": f"{limit}/s",
        "burst": burst,
        "name": "bench",
        "redis": {"url": f"redis://127.0.0.1:{store}"},
        "whenStoreFails": "local",
    }
    return {
        "gateway": {"name": "bench", **gateway},
        "listeners": [{"name": "web", "address": f"127.0.0.1:{free_port()}"}],
        "modules": [
            {"name": "rateLimit", "actionParam": limited},
            {"name": "respond", "stage": "PRE_REQUEST", "ruleOrder": 1, "actionParam": {"status": 200, "body": "yes"}},
        ],
    }


class Store:
    """A Redis that is killed and started."""

    def __init__(self, folder: Path, processes: list[Process]) -> None:
        self.port, self._folder, self._processes = free_port(), folder, processes
        found = binary("redis-server")
        if found is None:
            raise SystemExit("redis-server is not installed")
        self._program = found
        self.start()

    def start(self) -> None:
        """With nothing in it."""
        words = [
            self._program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        self._process = Process(words, "", self.port, self._folder / "redis.log")
        self._processes.append(self._process)

    def signal(self, number: int) -> None:
        """Send it one."""
        self._process.child.send_signal(number)

    def kill(self) -> None:
        """At once."""
        self._process.child.kill()
        self._process.child.wait()
        self._processes.remove(self._process)


class Bench:
    """Gateways, a load, and a look at both."""

    def __init__(self, limit: int, workers: int, folder: Path, processes: list[Process]) -> None:
        self.limit, burst = limit, max(limit // 10, 1)
        self.store = Store(folder, processes)
        ports = []
        for number in range(2):
            settings = configuration(limit, burst, self.store.port, workers=workers)
            home = folder / f"gateway-{number}"
            home.mkdir()
            file = home / "gateway.json"
            file.write_text(json.dumps(settings))
            port = int(settings["listeners"][0]["address"].rpartition(":")[2])
            words = [sys.executable, "-m", "protogate", "run", "-c", str(file)]
            processes.append(Process(words, "", port, home / "gateway.log"))
            ports.append(port)
        self._watched = Gateway(folder, configuration(limit, burst, self.store.port), "--ticker")
        processes.append(self._watched)
        self._asker = Asker([*ports, self._watched.port], limit * OVER)
        self._last = self._look()

    def _look(self) -> dict[str, Any]:
        found = self._asker.report()
        found["stall"] = self._watched.report()["busy"]
        return found

    def pause(self, seconds: float) -> None:
        """Let time pass that nobody measures."""
        time.sleep(seconds)
        self._last = self._look()

    def phase(self, name: str, seconds: float, due: float = 0.0) -> Figure:
        """Measure for so long."""
        time.sleep(seconds)
        before, found = self._last, self._look()
        self._last = found
        took = found["at"] - before["at"]
        counts = {int(status): count for status, count in found["counts"].items()}
        strange = sum(count for status, count in counts.items() if status not in {200, 429}) + found["lost"]
        asked = sum(counts.values()) / took
        return Figure(name, took, counts.get(200, 0) / took, due, asked, strange, found["worst"], found["stall"])

    def stop(self) -> None:
        """End the load."""
        self._asker.stop()


def run(limit: int, workers: int, seconds: float, settle: float = 4.0) -> tuple[list[Figure], list[str]]:
    """
    The figures, and what went wrong.

    @param settle: seconds after which everything is as usual.
    """
    with stage() as (folder, processes):
        bench = Bench(limit, workers, folder, processes)
        try:
            bench.pause(settle / 2)
            figures = [bench.phase("Redis is there", seconds, limit)]
            bench.store.kill()
            figures.append(bench.phase("Redis is killed", settle / 2))
            figures.append(bench.phase("… each gateway by itself", seconds / 2, limit * 3))
            bench.store.start()
            figures.append(bench.phase("… it comes back, empty", settle))
            figures.append(bench.phase("… all together again", seconds, limit))
            bench.store.signal(signal.SIGSTOP)
            figures.append(bench.phase("Redis is held", settle / 2))
            bench.store.signal(signal.SIGCONT)
            figures.append(bench.phase("… it goes on", settle))
            figures.append(bench.phase("… all together again", seconds, limit))
        finally:
            bench.stop()
    return figures, faults(figures)


def faults(figures: list[Figure]) -> list[str]:
    """What should not be so."""
    found = []
    usual = figures[0].stall
    for figure in figures:
        if figure.strange:
            found.append(f"{figure.name}: {figure.strange} answers were neither 200 nor 429")
        if figure.due and abs(figure.share - 1) > SLACK / figure.seconds:
            found.append(f"{figure.name}: {figure.share * 100:.1f} % of the limit passed")
        if figure.asked < figures[0].due * OVER * 0.9:
            found.append(f"{figure.name}: only {figure.asked:,.0f} requests a second were asked")
        if figure.stall > usual + STALL:
            found.append(f"{figure.name}: the event loop was at work for {figure.stall * 1e3:.1f} ms without a break")
    return found


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=1000, help="requests a second (default: 1000)")
    parser.add_argument("--workers", type=int, default=4, help="of each of two gateways (default: 4)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a phase (default: 10)")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        ports, rate, connections = options.load
        asyncio.run(Load(json.loads(ports), float(rate), int(connections)).run())
        return 0
    figures, found = run(options.limit, options.workers, options.seconds)
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    print("\n".join(f"FAULT: {fault}" for fault in found) or "no faults")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
