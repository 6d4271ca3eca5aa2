r"""
What it costs to choose an endpoint, in instructions, as callgrind counts them: the same on each run.

    python bench/balance.py [--only weighted,hash] [--endpoints 3,100] [--choices 2000]        (needs valgrind)

Each row is a way to choose, between so many endpoints of different weights, of which each has a request under way.

Columns
    choice     one choice, once the way is warm: a key has been seen before
    new key    of hash: one choice for a key of which nobody has asked since endpoints changed
    change     what it costs when an endpoint comes, goes, or is held

Nothing here knows a protocol, so what a request costs besides is the same for each way: L{inproc}, row C{get}.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

import callgrind
from processes import cells
from protogate.config import model
from protogate.context import Context
from protogate.message import Request
from protogate.release import compiled
from protogate.upstream.election import Election
from protogate.upstream.endpoint import Endpoint, place
from protogate.upstream.outcome import WELL
from protogate.upstream.pool import Pool
from protogate.wheel import Wheel

WAYS: Final[dict[str, dict[str, Any]]] = {
    "weighted": {},
    "leastRequest": {"balance": "leastRequest"},
    "peakEwma": {"balance": "peakEwma"},
    "hash": {"balance": "hash", "hash": model.Hash(key="source.ip")},
    "hash-unbound": {"balance": "hash", "hash": model.Hash(key="source.ip", bound=0.0)},
    "zones": {"zones": model.Zones(schedule={"A": 70, "B": 30})},
}
KEYS: Final = 100
CHANGES: Final = 20


class Nowhere:
    """Attempts to connect that never end."""

    def connect(self, ready: object, times: object) -> Deferred[None]:
        """See L{protogate.upstream.pool.Connect}."""
        return Deferred()


class Row:
    """A way to choose, and what it chooses between."""

    def __init__(self, way: str, many: int) -> None:
        wheel = Wheel(Clock())
        context, random = Context(wheel), Random(1)
        self.election = Election(random, lambda event: None, wheel)
        self.endpoints = []
        for number in range(many):
            where = place(f"http://10.0.{number >> 8}.{number & 255}:80", random.randint(50, 100), "AB"[number % 2])
            pool = Pool(Nowhere(), context)
            answer = pool.handle(Request(b"GET", b"/"))
            assert isinstance(answer, Deferred)
            self.endpoints.append(Endpoint(where, pool))
        self.election.arrange(self.endpoints)
        self.election.settle(model.Upstream(name="up", **WAYS[way]), "A")
        if self.election.latencies is not None:
            for endpoint in self.endpoints:
                self.election.latencies.ended(endpoint, WELL, random.random())
        self.requests = [Request(b"GET", b"/") for _ in range(KEYS)]
        self._numbers = count()
        self.name_anew()

    def name_anew(self) -> None:
        """Keys that nobody has asked of."""
        for request, number in zip(self.requests, self._numbers, strict=False):
            request.key = f"user-{number}"

    def choose(self, times: int) -> None:
        """So many choices."""
        pick, requests = self.election.pick, self.requests
        for _ in range(times // KEYS):
            for request in requests:
                pick(request)

    def change(self) -> None:
        """An endpoint is held, and no more."""
        for share in (0.5, 1.0):
            self.endpoints[0].hold("bench", share)
            self.election.arrange(self.endpoints)


def counted(way: str, many: int, choices: int) -> None:
    """In a child: all that one row says."""
    row = Row(way, many)
    row.choose(KEYS * 3)
    with callgrind.counted("choice"):
        row.choose(choices)
    row.name_anew()
    with callgrind.counted("new"):
        row.choose(KEYS)
    row.change()
    with callgrind.counted("change"):
        for _ in range(CHANGES // 2):
            row.change()


def rows(ways: list[str], sizes: list[int], choices: int) -> Iterator[tuple[str, ...]]:
    """One for each way and number of endpoints."""
    for way in ways:
        for many in sizes:
            child = [__file__, "--child", f"--only={way}", f"--endpoints={many}", f"--choices={choices}"]
            totals = callgrind.totals(child)
            new = f"{totals['new'] / KEYS:,.0f}" if way.startswith("hash") else ""
            yield way, str(many), f"{totals['choice'] / choices:,.0f}", new, f"{totals['change'] / CHANGES:,.0f}"


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WAYS), help="ways, with commas (default: all)")
    parser.add_argument("--endpoints", default="3,100", help="how many, with commas (default: 3,100)")
    parser.add_argument("--choices", type=int, default=2000, help=f"of a row, by {KEYS} (default: 2000)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ways, sizes = options.only.split(","), [int(size) for size in options.endpoints.split(",")]
    for way in ways:
        if way not in WAYS:
            parser.error(f"no way {way!r}; there are {', '.join(WAYS)}")
    choices = max(options.choices // KEYS, 1) * KEYS
    if options.child:
        counted(ways[0], sizes[0], choices)
        return
    print("compiled" if compiled() else "source", end=", instructions\n")
    print(cells(("way", "endpoints", "choice", "new key", "change"), *rows(ways, sizes, choices)), end="")


if __name__ == "__main__":
    main()
