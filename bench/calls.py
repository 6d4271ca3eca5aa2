"""
System calls of a request, in each candidate, counted with strace; and what protogate takes from malloc for it.

Exactly so many requests are made: all connections ask at once, then all answers are read, so one wake-up may serve
many, as under load.  At best a request costs two reads and two writes: one each on either side.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import candidates
import inproc
from candidates import ANSWER, SMALL
from others.plan import Plan
from processes import Process, binary, stage, until
from report import Table
from rows import Options, chosen

ROUNDS: Final = 40
READS: Final = {"read", "readv", "recvfrom", "recvmsg"}
WRITES: Final = {"write", "writev", "sendto", "sendmsg", "sendfile"}
WAITS: Final = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "select", "futex", "nanosleep", "clock_nanosleep"}
INPROC: Final = ("codecs", "get", "governed", "http2", "http2both", "grpc")


class Crowd:
    """Connections that all ask at once."""

    def __init__(self, port: int, count: int) -> None:
        self.lines = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(count)]
        self._request = f"GET {SMALL} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\n\r\n".encode()

    def ask(self) -> int:
        """One request on each; returns how many those were."""
        for line in self.lines:
            line.sendall(self._request)
        for line in self.lines:
            data = b""
            while not data.endswith(ANSWER.encode()):
                more = line.recv(65536)
                if not more:
                    raise SystemExit(f"a connection was closed: {data[:200]!r}")
                data += more
        return len(self.lines)

    def close(self) -> None:
        """All of them."""
        for line in self.lines:
            line.close()


def counted(process: Process, folder: Path, connections: int) -> tuple[Counter[str], int]:
    """Calls of all threads of a candidate, and the requests that they were for."""
    program = binary("strace")
    if program is None:
        raise SystemExit("strace is missing (Debian: apt-get install strace)")
    crowd, out = Crowd(process.port, connections), folder / "strace"
    try:
        for _ in range(5):
            crowd.ask()
        attach = [part for pid in process.pids() for part in ("-p", str(pid))]
        with tempfile.TemporaryFile() as told:
            tracer = subprocess.Popen([program, "-f", "-c", "-o", str(out), *attach], stderr=told)
            try:
                until("strace", lambda: told.seek(0) == 0 and told.read().count(b"attached") >= len(process.pids()))
                requests = sum(crowd.ask() for _ in range(ROUNDS))
            finally:
                tracer.send_signal(signal.SIGINT)
                tracer.wait(20)
    finally:
        crowd.close()
    return parsed(out.read_text()), requests


def parsed(text: str) -> Counter[str]:
    """How often each call was made, out of the table of strace."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if match and match[2] != "total":
            found[match[2]] += int(match[1])
    return found


def measure(options: Options) -> Table:
    """A plain GET, in each candidate."""
    rows: list[tuple[object, ...]] = [("per request", "reads", "writes", "waits", "others", "which others")]
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        for name in chosen(options):
            processes.append(process := candidates.available()[name](folder, Plan(up.port)))
            candidates.check(name, process, Plan(up.port))
            calls, requests = counted(process, folder, options.connections)
            rows.append((name, *row(calls, requests)))
    note = (
        f"{options.connections} connections that ask at the same time. Two reads and two writes are the least there "
        "can be, without what goes into the access log."
    )
    return Table("calls", "System calls of a GET", rows, note)


def row(calls: Counter[str], requests: int) -> tuple[str, ...]:
    """Of the table: calls in groups, and the commonest of those in none."""
    sums = [sum(calls[name] for name in group) for group in (READS, WRITES, WAITS)]
    others = Counter({name: count for name, count in calls.items() if name not in READS | WRITES | WAITS})
    named = ", ".join(
        f"{name} {count / requests:.2f}" for name, count in others.most_common(4) if count / requests >= 0.005
    )
    return (*(f"{total / requests:.2f}" for total in (*sums, others.total())), named or "–")


def allocated(names: tuple[str, ...] = INPROC, requests: int = 320) -> Table:
    """What protogate's own code needs, see L{inproc}."""
    rows: list[tuple[object, ...]] = [("per request", "instructions", "blocks from malloc", "bytes from malloc")]
    for name in names:
        steps = inproc.instructions(name, 16, requests)
        blocks, size = inproc.allocations(name, 16, requests)
        rows.append((name, f"{steps:,.0f}", f"{blocks:,.1f}", f"{size:,.0f}"))
    note = (
        "Counted by valgrind, without kernel and reactor. codecs: server and client codec alone; the others: the whole "
        "gateway, whose clients speak HTTP/2 in the last three, and whose upstream does so in the last two."
    )
    return Table("allocations", "Instructions and allocations in the gateway's own code", rows, note)
