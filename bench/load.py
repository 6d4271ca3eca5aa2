"""
What asks the gateways, at full speed and pinned to the core of the load, and what it says about its requests: wrk over
HTTP/1, h2load over HTTP/2, and programs of our own over SOTP and for connections that are made anew.

Rules
- What was not answered with 2xx, or not at all, is an error, and is told beside every figure.
- Nothing but loopback is asked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from candidates import GRPC_FIELDS, LOAD_CORE
from identity import Identity
from processes import HERE, Process, binary

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


def _round(
    process: Process,
    arguments: Sequence[str],
    seconds: float,
    understood: Callable[[str], tuple[float, int, float]],
    identity: Identity | None = None,
) -> Figure:
    """
    One round of a load.

    @param understood: finds in what it says requests, errors, and the seconds that it asked; 0 = as long as it ran.
    @param identity: of the gateway, if it is asked over TLS.
    @raise SystemExit: nothing was answered.
    """
    environment = {**os.environ, **(identity.offering if identity else {})}
    before, begun = process.cpu(), time.monotonic()
    done = subprocess.run(
        ["taskset", "-c", LOAD_CORE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 60,
        env=environment,
    )
    cpu, took = process.cpu() - before, time.monotonic() - begun
    requests, errors, asked = understood(done.stdout)
    if done.returncode or not requests:
        name = Path(arguments[1] if arguments[0] == sys.executable else arguments[0]).name
        raise SystemExit(f"{name}: no requests\n{done.stdout}{done.stderr}\n{process.log.read_text()[-2000:]}")
    return Figure(requests, asked or took, cpu, errors)


def _at(process: Process, path: str, identity: Identity | None) -> str:
    return f"{'https' if identity else 'http'}://127.0.0.1:{process.port}{path}"


def ask(
    process: Process,
    path: str,
    seconds: float,
    connections: int,
    lua: Path | None = None,
    size: int = 0,
    identity: Identity | None = None,
) -> Figure:
    """
    One round of wrk: HTTP/1.

    @param lua: what else it is told.
    @param size: see L{counted}.
    @param identity: see L{_round}.
    @raise SystemExit: nothing was answered.
    """
    arguments = [binary("wrk") or "wrk", "-t1", f"-c{connections}", f"-d{_whole(seconds)}s", "--timeout", "10s"]
    arguments += [*(["-s", str(lua)] if lua else []), _at(process, path, identity)]
    return _round(process, arguments, seconds, lambda told: (*counted(told, size), 0.0), identity)


def multiplexed(
    process: Process,
    path: str,
    seconds: float,
    connections: int,
    streams: int,
    message: Path | None = None,
    identity: Identity | None = None,
) -> Figure:
    """
    One round of h2load: HTTP/2, by ALPN over TLS, by prior knowledge without it.

    @param streams: requests at once on each connection.
    @param message: a message of gRPC that each request brings, whole.
    @param identity: see L{_round}.
    @raise SystemExit: nothing was answered.
    """
    arguments = [binary("h2load") or "h2load", f"-D{_whole(seconds)}", f"-c{connections}", f"-m{streams}"]
    if message is not None:
        arguments += [f"-d{message}", *(part for field in GRPC_FIELDS.items() for part in ("-H", ": ".join(field)))]
    arguments.append(_at(process, path, identity))
    return _round(process, arguments, seconds, counted_streams, identity)


def anew(process: Process, path: str, seconds: float, connections: int, resume: bool, identity: Identity) -> Figure:
    """
    One round of L{handshakes}: a connection for each request.  A handshake of the wrong kind is an error.

    @param resume: the session of the connection before.
    @raise SystemExit: nothing was answered.
    """
    options = {"port": process.port, "path": path, "seconds": seconds, "connections": connections}
    arguments = [*_ours("handshakes.py", {**options, "cert": identity.cert}), *(["--resume"] if resume else [])]
    return _round(process, arguments, seconds, told, identity)


def linked(process: Process, path: str, seconds: float, links: int, streams: int) -> Figure:
    """
    One round of L{sotp_load}: SOTP.

    @raise SystemExit: nothing was answered.
    """
    options = {"port": process.port, "path": path, "seconds": seconds, "links": links, "streams": streams}
    return _round(process, _ours("sotp_load.py", options), seconds, told)


def _ours(name: str, options: dict[str, Any]) -> list[str]:
    return [sys.executable, str(HERE / name), *(f"--{option}={value}" for option, value in options.items())]


def _whole(seconds: float) -> int:
    return max(round(seconds), 1)


def told(text: str) -> tuple[float, int, float]:
    """Requests, errors and seconds, as programs of our own tell of them."""
    if not text:
        return 0.0, 0, 0.0
    found = json.loads(text)
    return float(found["answers"]), int(found["errors"]) + int(found.get("other", 0)), float(found["seconds"])


def counted(told: str, size: int = 0) -> tuple[float, int]:
    """
    Requests and errors, as wrk tells of them.

    @param size: bytes of an answer; 0 = count answers.  Of large ones many are in part there when a round ends, so what
        counts is how many would have been whole.
    """
    match = re.search(r"(\d+) requests in \S+, ([\d.]+)([KMG]?)B read", told)
    if match is None:
        return 0, 0
    requests, read = float(match[1]), float(match[2]) * UNITS[match[3]]
    if size and (requests or read >= size):  # a slow machine may have brought none to its end, of many
        requests = read / size
    match = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    errors = int(match[1]) if match else 0
    match = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", told)
    return requests, errors + (sum(map(int, match.groups())) if match else 0)


def counted_streams(told: str) -> tuple[float, int, float]:
    """
    Requests, errors and seconds, as h2load tells of them.  What was under way at the end is no request and no error.
    """
    match = re.search(r"requests: .* (\d+) succeeded, (\d+) failed, \d+ errored, (\d+) timeout", told)
    took = re.search(r"finished in ([\d.]+)(m?)s", told)
    if match is None or took is None:
        return 0.0, 0, 0.0
    return float(match[1]), int(match[2]) + int(match[3]), float(took[1]) / (1000 if took[2] else 1)
