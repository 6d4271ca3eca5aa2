"""
What asks the gateways: wrk at full speed, pinned to the core of the load, and what it says about its requests.

Rules
- What was not answered with 2xx, or not at all, is an error, and is told beside every figure.
- Nothing but loopback is asked.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from candidates import LOAD_CORE
from processes import Process, binary

UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
"""Of the bytes that wrk tells of."""


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One round.

    @ivar requests: that were answered.
    @ivar seconds: that it took.
    @ivar cpu: seconds that all processes of the gateway were on a CPU.
    @ivar errors: answers other than 2xx and 3xx, and connections that failed.
    """

    requests: float
    seconds: float
    cpu: float
    errors: int

    @property
    def each(self) -> float:
        """Seconds of CPU per request."""
        return self.cpu / self.requests

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def script(folder: Path, size: int) -> Path:
    """For wrk: a POST of so many bytes."""
    path = folder / f"post-{size}.lua"
    path.write_text(
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/octet-stream"\n'
        f'wrk.body = string.rep("0123456789abcdef", {size // 16})\n'
    )
    return path


def ask(
    process: Process, path: str, seconds: float, connections: int, lua: Path | None = None, size: int = 0
) -> Figure:
    """
    One round of wrk.

    @param lua: what else it is told.
    @param size: see L{counted}.
    @raise SystemExit: nothing was answered.
    """
    arguments = ["taskset", "-c", LOAD_CORE, binary("wrk") or "wrk", "-t1", f"-c{connections}"]
    arguments += [f"-d{max(round(seconds), 1)}s", "--timeout", "10s", *(["-s", str(lua)] if lua else [])]
    before, begun = process.cpu(), time.monotonic()
    done = subprocess.run(
        [*arguments, f"http://127.0.0.1:{process.port}{path}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 60,
    )
    cpu, took = process.cpu() - before, time.monotonic() - begun
    requests, errors = counted(done.stdout, size)
    if done.returncode or not requests:
        raise SystemExit(f"wrk: no requests\n{done.stdout}{done.stderr}\n{process.log.read_text()[-2000:]}")
    return Figure(requests, took, cpu, errors)


def counted(told: str, size: int = 0) -> tuple[float, int]:
    """
    Requests and errors, as wrk tells of them.

    @param size: bytes of an answer; 0 = count answers.  Of large ones many are in part there when a round ends, so what
        counts is how many would have been whole.
    """
    match = re.search(r"(\d+) requests in \S+, ([\d.]+)([KMG]?)B read", told)
    if match is None:
        return 0, 0
    requests = float(match[1])
    if size and requests:
        requests = float(match[2]) * UNITS[match[3]] / size
    match = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    errors = int(match[1]) if match else 0
    match = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", told)
    return requests, errors + (sum(map(int, match.groups())) if match else 0)
