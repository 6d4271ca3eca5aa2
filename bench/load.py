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

from candidates import LOAD_CORE
from processes import Process, binary


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One round.

    @ivar requests: that were answered.
    @ivar seconds: that it took.
    @ivar cpu: seconds that all processes of the gateway were on a CPU.
    @ivar errors: answers other than 2xx and 3xx, and connections that failed.
    """

    requests: int
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


def ask(process: Process, path: str, seconds: float, connections: int, lua: Path | None = None) -> Figure:
    """
    One round of wrk.

    @param lua: what else it is told.
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
    requests, errors = counted(done.stdout)
    if done.returncode or not requests:
        raise SystemExit(f"wrk: no requests\n{done.stdout}{done.stderr}\n{process.log.read_text()[-2000:]}")
    return Figure(requests, took, cpu, errors)


def counted(told: str) -> tuple[int, int]:
    """Requests and errors, as wrk tells of them."""
    match = re.search(r"(\d+) requests in", told)
    requests = int(match[1]) if match else 0
    match = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    errors = int(match[1]) if match else 0
    match = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", told)
    return requests, errors + (sum(map(int, match.groups())) if match else 0)
