r"""
What a request costs in the gateway's own code: no kernel, no network, no other process.

    python bench/inproc.py [--only get,governed] [--requests 20000] [--rounds 5] [--connections 16]
    python bench/inproc.py --instructions [--keep callgrind.out]        (needs valgrind)
    python bench/inproc.py --allocations                                (needs valgrind)

The real service on a reactor of memory: bytes of requests go into the server codec, what comes out of the client codec
is answered with bytes, and what comes out of the server codec is looked at.  All connections ask in each turn, as they
do under load.

Rows
    codecs     server codec and client codec, one handed to the other: no exchange, no pool, no record
    pool       the same, and the pool between them
    get        the whole gateway: exchange, rule, forwarding, pool, ledger, record and its line of the access log
    retry, hedge
               the same of an upstream that is asked again after some answers, or when it takes long; or a second time
               meanwhile
    governed   the same with 3,000 rules, an accessList of 10,000 networks and two header modules (configuration.py)
    post       an upload of 10 KiB
    download   an answer of 100 KiB, in two reads
    http2, http2download
               the same asked over HTTP/2: eight requests in each read of a connection, an upstream of HTTP/1
    http2both, grpc
               an upstream of HTTP/2; a GET, and a call with one message each way
    sotp, sotpboth
               asked over SOTP, eight requests in each read, in the form of HTTP; an upstream of HTTP/1, and one of SOTP

Figures
    µs             CPU time of the process per request: the least of all rounds, which are interleaved
    --instructions instructions per request, as valgrind counts them: the same on each run within half a per cent,
                   whatever else the machine does, so that small changes show
    --allocations  blocks and bytes that a request takes from malloc (what the interpreter keeps in free lists is none)
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import time
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

import callgrind
import configuration
from inside import ADMIN, LISTEN, ORIGIN, Row, bare, whole
from inside2 import Streams
from inside3 import Links
from processes import cells

WARM: Final = 50
"""Turns before anything is measured: caches fill, bytecode adapts."""

RETRY: Final = {"retry": {"on": ["reset", "timeout"], "statuses": "502-504", "perTry": "5s"}}
HEDGE: Final = {"hedge": {"after": "1s"}}

ROWS: Final[dict[str, Callable[..., Row]]] = {
    "codecs": lambda *how: bare("codecs", *how, pooled=False),
    "pool": lambda *how: bare("pool", *how, pooled=True),
    "get": lambda *how: whole(Row("get"), *how, configuration.plain(LISTEN, ORIGIN)),
    "retry": lambda *how: whole(Row("retry"), *how, configuration.plain(LISTEN, ORIGIN, more=RETRY)),
    "hedge": lambda *how: whole(Row("hedge"), *how, configuration.plain(LISTEN, ORIGIN, more=HEDGE)),
    "governed": lambda *how: whole(Row("governed"), *how, configuration.governed(LISTEN, ORIGIN, ADMIN)),
    "post": lambda *how: whole(Row("post", body=10 * 1024), *how, configuration.plain(LISTEN, ORIGIN)),
    "download": lambda *how: whole(Row("download", answer=100 * 1024), *how, configuration.plain(LISTEN, ORIGIN)),
    "http2": lambda *how: streamed("http2", *how),
    "http2both": lambda *how: streamed("http2both", *how, back="http2"),
    "http2download": lambda *how: streamed("http2download", *how, answer=100 * 1024),
    "grpc": lambda *how: streamed("grpc", *how, back="http2", grpc=True),
    "sotp": lambda *how: streamed("sotp", *how, front="sotp"),
    "sotpboth": lambda *how: streamed("sotpboth", *how, front="sotp", back="sotp"),
}


def streamed(
    name: str, connections: int, now: Callable[[], float], front: str = "http2", back: str = "http1", **more: Any
) -> Row:
    """A row whose clients have streams."""
    row = {"http2": Streams, "sotp": Links}[front](name, connections, back, **more)
    return whole(row, row.connections, now, configuration.plain(LISTEN, ORIGIN, front=front, back=back))


def ready(name: str, connections: int, now: Callable[[], float]) -> Row:
    """A row that has been looked at, and is warm."""
    row = ROWS[name](connections, now)
    row.turns(2)
    row.check()
    row.turns(WARM)
    return row


def settle() -> None:
    """What C{protogate run} does when all is made: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def times(names: Sequence[str], connections: int, requests: int, rounds: int) -> list[Row]:
    """Rows with their CPU time per request."""
    rows = [ready(name, connections, time.monotonic) for name in names]
    settle()
    for _ in range(rounds):
        for row in rows:
            row.ask(requests)
    for row in rows:
        row.check()
    return rows


# -- under valgrind

STILL: Final = 1000.0
"""What the clock says there: a real one would be a system call, and print other digits each time."""


def counted(name: str, connections: int, requests: int) -> None:
    """In a child: so many requests."""
    row = ready(name, connections, repeat(STILL).__next__)
    settle()
    if os.environ[TOOL] == "callgrind":
        with callgrind.counted(name):
            row.turns(max(requests // connections, 1))
        return
    gc.disable()  # it runs every 700 containers that stay, whatever request that falls into
    row.turns(max(requests // connections, 1))


TOOL: Final = "INPROC_VALGRIND"


def _child(name: str, connections: int, requests: int) -> list[str]:
    return [__file__, "--child", name, f"--connections={connections}", f"--requests={requests}"]


def instructions(name: str, connections: int, requests: int, keep: str = "") -> float:
    """
    Per request.

    @param keep: where the profile of the requests goes, for callgrind_annotate.
    """
    totals = callgrind.totals(_child(name, connections, requests), keep, **{TOOL: "callgrind"})
    each = max(requests // connections, 1) * connections
    return totals[name] / each


HEAP: Final = re.compile(r"total heap usage: ([\d,]+) allocs, [\d,]+ frees, ([\d,]+) bytes allocated")


def allocations(name: str, connections: int, requests: int) -> tuple[float, float]:
    """Of blocks and of bytes, per request: the difference between two runs of different length."""
    found = []
    for many in (connections, connections + requests):
        told = callgrind.valgrind(
            "memcheck",
            _child(name, connections, many),
            "--undef-value-errors=no",
            PYTHONMALLOC="malloc",
            **{TOOL: "memcheck"},
        )
        match = HEAP.search(told)
        if match is None:
            raise SystemExit(f"memcheck does not tell of the heap:\n{told[-2000:]}")
        found.append([int(number.replace(",", "")) for number in match.groups()])
    each = max((connections + requests) // connections, 1) * connections - connections
    return (found[1][0] - found[0][0]) / each, (found[1][1] - found[0][1]) / each


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas (default: all)")
    parser.add_argument("--requests", type=int, help="of a round (default: 10000; 1600 under valgrind)")
    parser.add_argument("--rounds", type=int, default=7, help="of which the best counts (default: 7)")
    parser.add_argument("--connections", type=int, default=16, help="that ask in each turn (default: 16)")
    parser.add_argument("--instructions", action="store_true", help="count instructions, with callgrind")
    parser.add_argument("--keep", default="", metavar="FILE", help="with --instructions and one row: its profile")
    parser.add_argument("--allocations", action="store_true", help="count what is taken from malloc, with memcheck")
    parser.add_argument("--child", metavar="ROW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    connections = options.connections
    if options.child:
        counted(options.child, connections, options.requests)
        return
    names = options.only.split(",")
    for name in names:
        if name not in ROWS:
            parser.error(f"no row {name!r}; there are {', '.join(ROWS)}")
    requests = options.requests or (1_600 if options.instructions or options.allocations else 10_000)
    rows: list[tuple[object, ...]] = []
    if options.instructions:
        rows = [("row", "instructions/request")]
        rows += [(name, f"{instructions(name, connections, requests, options.keep):,.0f}") for name in names]
    elif options.allocations:
        rows = [("row", "blocks/request", "bytes/request")]
        for name in names:
            blocks, size = allocations(name, connections, requests)
            rows.append((name, f"{blocks:,.1f}", f"{size:,.0f}"))
    else:
        rows = [("row", "µs/request")]
        rows += [(row.name, f"{row.took * 1e6:.2f}") for row in times(names, connections, requests, options.rounds)]
    print(cells(*rows), end="")


if __name__ == "__main__":
    main()
