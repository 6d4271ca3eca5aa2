"""
protogate beside nginx, HAProxy, Envoy and Caddy, in the same run; and how its cost grows.

    python bench/compare.py [--rows get,governed] [--only nginx,envoy] [--rounds 5] [--seconds 4] [--write PAGE]

Every gateway is pinned to one core; the upstream (nginx) and the load to another one.  Rounds are interleaved: each
asks every gateway once, so a machine that gets slower slows all of them.  The figure is CPU time of the gateway's
processes (user + system, from /proc/*/task/*/schedstat) per request: it stays steady where throughput does not.  Only
loopback is asked, and all processes end with this one.

Rows
    get, governed, post, download, huge   CPU time per request of each candidate, at full speed
    https, handshakes, resumptions        over TLS: kept open; a connection for each request, by full handshakes or not
    http2, http2both, http2download       over HTTP/2 (needs h2load)
    grpc                                  calls of gRPC (needs h2load)
    ways                                  of protogate, for each protocol that it reads and writes (needs h2load)
    latency                               of each candidate, at one fixed rate
    memory                                of each candidate, for 10,000 idle connections
    connections, rules, modules           CPU time per request of protogate, for more and more of them
    calls                                 system calls of each candidate (needs strace)
    allocations                           instructions and allocations of protogate's own code (needs valgrind)
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import calls
import candidates
import growth
import latency
import memory
import report
import rows
import ways
from processes import binary
from report import Table
from rows import Options

ROWS: Final[dict[str, Callable[[Options], Table]]] = {
    **{name: partial(rows.measure, name) for name in rows.ROWS},
    "latency": latency.measure,
    "memory": memory.measure,
    **{name: partial(growth.measure, name) for name in growth.KINDS},
    "ways": ways.measure,
    "calls": calls.measure,
    "allocations": lambda options: calls.allocated(),
}
QUIET: Final = 0.5
"""The load of a machine that has nothing else to do."""
MULTIPLEXED: Final = ("ways", *(name for name, row in rows.ROWS.items() if row.front == "http2"))
NEEDED: Final = {
    "nginx": ROWS,
    "wrk": ROWS,
    "taskset": ROWS,
    "h2load": MULTIPLEXED,
    "strace": ("calls",),
    "valgrind": ("allocations",),
}
"""Programs, and the rows that need them."""


def ready(names: list[str]) -> None:
    """
    See that these rows can be measured here.

    @raise SystemExit: they cannot.
    """
    for program, needing in NEEDED.items():
        if set(names) & set(needing) and binary(program) is None:
            raise SystemExit(f"{program} is missing; `make bench` installs it where it can")
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("two cores are needed: one for the gateway, one for load and upstream")


def main() -> int:
    """Measure the rows, print their tables, and write them into a page; 1 if a row could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="with commas (default: all)")
    parser.add_argument("--only", default="", help="candidates, with commas (default: all that are installed)")
    parser.add_argument("--rounds", type=int, default=5, help="that count; one more is thrown away (default: 5)")
    parser.add_argument("--seconds", type=float, default=4, help="of a round (default: 4)")
    parser.add_argument("--connections", type=int, default=64, help="that ask at the same time (default: 64)")
    parser.add_argument("--rate", type=float, default=0, help="requests/s of the row latency (default: what all bear)")
    parser.add_argument("--write", default="", metavar="PAGE", help="a page with marks, where the tables of rows go")
    options = parser.parse_args()
    names = options.rows.split(",")
    for name in names:
        if name not in ROWS:
            parser.error(f"no row {name!r}; there are {', '.join(ROWS)}")
    ready(names)
    chosen = Options(
        tuple(filter(None, options.only.split(","))),
        options.seconds,
        max(options.rounds, 1),
        options.connections,
        options.rate,
    )
    rows.chosen(chosen)  # says which candidate is not there before anything is measured
    for name in candidates.missing():
        print(f"{name} is not installed", file=sys.stderr)
    before = os.getloadavg()[0]
    if before > QUIET:
        print(f"other work uses this machine (load {before:.1f}): the figures will tell of it, too", file=sys.stderr)
    today = datetime.datetime.now(datetime.UTC)
    how = f"{chosen.rounds} × {chosen.seconds:g} s, {today:%Y-%m-%d}; load of the machine before: {before:.1f}."
    print(f"{report.machine()} {how}\n")
    parts, status = {"machine": report.machine()}, 0
    for name in names:
        begun = time.monotonic()
        try:
            table = ROWS[name](chosen)
        except SystemExit as why:  # the others may still be worth their time
            print(f"{name}: {why}", file=sys.stderr, flush=True)
            status = 1
            continue
        print(f"### {table.title}\n\n{table.text()}", flush=True)
        print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        parts[name] = f"**{table.title}.** {how}\n\n{table.text()}"
        if options.write:
            report.write(Path(options.write), parts)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
