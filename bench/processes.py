"""
Programs that a bench starts: each in a process of its own, and ended by its pid.

Rules
- Only addresses of loopback.
- What a process costs is read from /proc: CPU from schedstat (to the nanosecond), memory from status.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MIB = 1 << 20
PATIENCE = 45.0
"""Seconds that anything may take to begin or to end: a lot, since the machine may be busy with something else."""
PAGE = os.sysconf("SC_PAGESIZE")


def _places() -> Iterator[int]:
    """
    Ports that the kernel gives to nobody by itself, be it for a connection or for port 0, in no order, over and over.
    Where it leaves none for that, all but the well-known.  Not by what tests seed: several run at a time.
    """
    range_ = Path("/proc/sys/net/ipv4/ip_local_port_range")
    low, high = map(int, range_.read_text().split()) if range_.exists() else (32768, 60999)
    ports = [port for port in range(10_000, 65_536) if not low <= port <= high] or list(range(10_000, 65_536))
    random.SystemRandom().shuffle(ports)
    return cycle(ports)


_free = _places()


def free_port() -> int:
    """
    A TCP port of loopback that nobody listens on, nor gets by chance before whoever asked for it does: the kernel gives
    it to nobody, and this process does not for long.
    """
    for port in _free:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("cycles have no end")


def binary(name: str) -> str | None:
    """Where a program is, or None."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def output(*arguments: str) -> str:
    """What a short program says, on either stream."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout + done.stderr


def until(what: str, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """
    Wait for something to become true.

    @raise SystemExit: it did not, and C{what} says what it was.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:g} s in vain: {what}")
        time.sleep(0.05)


@dataclass
class Process:
    """
    A child that listens.

    @ivar arguments: program and arguments.
    @ivar core: the only one it runs on; empty = any.
    @ivar port: of 127.0.0.1; once it answers there, the child has started.
    @ivar log: what it writes.
    """

    arguments: list[str]
    core: str
    port: int
    log: Path
    child: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        pinned = ["taskset", "-c", self.core] if self.core else []
        with self.log.open("wb") as log:
            self.child = subprocess.Popen([*pinned, *self.arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"{self.arguments[0]} does not listen:\n{self.log.read_text()[-2000:]}")

    def pids(self) -> list[int]:
        """The process and its descendants."""
        found, queue = [], [self.child.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    queue += map(int, (task / "children").read_text().split())
        return found

    def cpu(self) -> float:
        """Seconds on a CPU so far."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def memory(self) -> int:
        """Bytes of resident memory."""
        return self._status("VmRSS")

    def resident(self) -> int:
        """Bytes of resident memory of the process and its descendants; what they share counts for each."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        return total

    def peak(self) -> int:
        """Bytes of resident memory at most, since the start or the last C{forget()}."""
        return self._status("VmHWM")

    def forget(self) -> None:
        """Let C{peak()} begin anew: see proc(5), clear_refs."""
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")

    def files(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{self.arguments[0]} has ended:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End it."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Gateway(Process):
    """
    protogate with a configuration, and with the hook of C{watched.py}: it reports about itself.

    @ivar path: of its configuration.
    """

    def __init__(self, folder: Path, configuration: dict[str, Any], *options: str) -> None:
        self.path, self._report = folder / "gateway.json", folder / "report.json"
        self.configure(configuration)
        port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
        arguments = [sys.executable, str(HERE / "watched.py"), "--report", str(self._report), *options]
        super().__init__([*arguments, "-c", str(self.path)], "", port, folder / "gateway.log")
        try:
            until("the first report of the gateway", self._report.exists)
        except BaseException:
            self.stop()  # nobody else knows of it yet
            raise

    def configure(self, configuration: dict[str, Any]) -> None:
        """Replace the configuration file: in one step, as an operator should."""
        self.place(json.dumps(configuration))

    def place(self, text: str) -> None:
        """As C{configure}, with a text that is ready."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def reload(self) -> None:
        """Ask for it by signal."""
        self.child.send_signal(signal.SIGHUP)

    def report(self) -> dict[str, Any]:
        """What C{watched.py} says at this moment."""
        self._report.unlink(missing_ok=True)
        self.child.send_signal(signal.SIGUSR2)
        until("a report of the gateway", self._report.exists)
        found: dict[str, Any] = json.loads(self._report.read_text())
        return found


def _ended(*_: object) -> None:
    raise SystemExit("ended by SIGTERM")


@contextlib.contextmanager
def stage() -> Iterator[tuple[Path, list[Process]]]:
    """A folder, and a list of processes that are stopped in the end, also when SIGTERM is the end."""
    folder = Path(tempfile.mkdtemp(prefix="protogate-bench-"))
    folder.chmod(0o755)
    processes: list[Process] = []
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        yield folder, processes
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in reversed(processes):
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


def settings(upstream: int, *, watch: bool = False, **gateway: Any) -> dict[str, Any]:
    """A configuration with one listener on a free port that sends everything to a port of loopback."""
    return {
        "gateway": {"name": "bench", "watch": watch, **gateway},
        "listeners": [{"name": "web", "address": f"127.0.0.1:{free_port()}"}],
        "upstreams": [{"name": "up", "endpoints": [{"url": f"http://127.0.0.1:{upstream}"}]}],
        "routes": [
            {"type": "uri", "value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "up"}]}]}
        ],
    }


def cells(*rows: tuple[object, ...]) -> str:
    """A table in Markdown; the first row names the columns."""
    head, *body = [[str(cell) for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
