r"""
What each module costs an exchange that it lets pass, in µs of CPU: the module alone, without kernel, network and codec.

    python bench/modules.py [--only accessList,cors] [--exchanges 20] [--rounds 499] [--write docs/modules.md]
    python bench/modules.py --instructions [--only accessList,cors]        (needs valgrind)

Each module is bound as a configuration does it, and run by the pipeline, on real exchanges that are made just before
the clock is read.

Columns
    off        its condition does not hold: C{request.path == '/never'}
    on         it runs: what the configuration in L{SETTINGS} says, for a request that passes; and what it does with the
               answer, if it wants to see it
    Deferreds  that were made for one exchange

--instructions counts what is done instead of how long it takes, with callgrind: the same on each run, whatever else the
machine does, so that small changes show.

The last rows are a chain of ten, as a site may have it, all in one: alone, as the rows above, and in a whole gateway
under load (L{chain}), which is where it runs.  There its bound holds, L{CHAIN_LIMIT}; exit status 1 means that it does
not, or that a module has no row.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred

import callgrind
import chain
import credentials
import report
from atwork import CHAIN, FIELDS, NEVER, SETTINGS, TEN, Setting, entry, files
from protogate.config.load import loads
from protogate.exchange.exchange import Exchange
from protogate.exchange.pipeline import run
from protogate.governance.binding import bind
from protogate.governance.stages import PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM, STAGES
from protogate.interfaces import ILiveModule, IModuleFactory
from protogate.message import Response
from protogate.plugins import find, names
from protogate.release import compiled
from protogate.testing.bodies import Taker
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans
from protogate.testing.reactor import MemoryReactor
from report import Table

CHAIN_LIMIT: Final = 8.0
"""µs that the chain may cost."""
Asked = tuple[Exchange, Response]
"""An exchange, and what will be answered."""


class Chain:
    """
    Modules of one configuration, started, and what exchanges are made of.

    @ivar before: those of each stage before the upstream.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]], setting: Setting) -> None:
        text = {"listeners": [{"name": "web", "address": "127.0.0.1:80"}], "modules": list(entries)}
        bound = bind(loads(json.dumps(text).encode(), "modules.json").config.modules, find)
        self._all = [each for stage in STAGES for each in bound[stage]]
        self.before = [bound[stage] for stage in (PRE_REQUEST, PRE_UPSTREAM) if bound[stage]]
        self._behind = [bound[stage] for stage in (PRE_RESPONSE,) if bound[stage]]
        self._setting = setting
        reactor = self._reactor = MemoryReactor()
        means = FakeMeans(credentials.services(), reactor=reactor, stores=credentials.stores(reactor))
        for each in self._all:
            if ILiveModule.providedBy(each.module):
                each.module.start(means, None)  # type: ignore[attr-defined]
        self._reactor.run()

    def exchanges(self, count: int) -> list[Asked]:
        """So many."""
        fields, setting = (*FIELDS, *self._setting.fields), self._setting
        made = [
            exchange(PRE_RESPONSE, headers=fields, response_headers=setting.answer, **setting.request)
            for _ in range(count)
        ]
        asked: list[Asked] = []
        for each in made:
            each.plan = made[0].plan  # one configuration is in force, and at hand
            each.resolve()
            each.source.session = credentials.SESSION
            response, each.response = each.response, None
            assert response is not None
            response.protocol = "HTTP/1.1"
            asked.append((each, response))
        return asked

    def warm(self) -> None:
        """What waits for a thread the first time is remembered then."""
        for _ in range(3):
            for made in self.exchanges(100):
                self._settle(*made)

    def _settle(self, made: Exchange, response: Response) -> None:
        for stage in (*self.before, *self._behind):
            if stage in self._behind:
                made.response = response
            result = run(stage, made)
            if isinstance(result, Deferred):
                self._reactor.run()
        if self._setting.read and made.promised()[1]:
            made.response = response
            for function in made.promised()[1]:
                response = function(made) or response
            Taker(response.body)

    def spend(self, exchanges: Sequence[Asked]) -> float:
        """Seconds of CPU for all of them."""
        before, behind = self.before, self._behind
        begun = time.process_time()
        for made, response in exchanges:
            for stage in before:
                run(stage, made)
            made.response = response
            for function in made.promised()[1]:
                function(made)
            for stage in behind:
                run(stage, made)
        return time.process_time() - begun

    def deferreds(self) -> float:
        """For each exchange."""
        exchanges = self.exchanges(100)
        with counted() as made:
            self.spend(exchanges)
        return len(made) / len(exchanges)

    def stop(self) -> None:
        """End what lives."""
        for each in self._all:
            if ILiveModule.providedBy(each.module):
                each.module.stop()  # type: ignore[attr-defined]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Every Deferred that is made meanwhile."""
    made: list[int] = []
    original = Deferred.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        made.append(1)
        original(self, *args, **named)

    Deferred.__init__ = init  # type: ignore[method-assign]
    try:
        yield made
    finally:
        Deferred.__init__ = original  # type: ignore[method-assign]


def measure(chosen: Sequence[str], exchanges: int, rounds: int) -> tuple[Table, float]:
    """The table, and what the chain costs in µs."""
    with files() as folder:
        chains: dict[tuple[str, str], Chain] = {("", "nothing"): Chain([], Setting())}
        for each in chosen:
            setting = SETTINGS[each]
            chains[each, "off"] = Chain([entry(each, folder, NEVER)], setting)
            chains[each, "on"] = Chain([entry(each, folder)], setting)
        ten = [entry(each, folder) for each in CHAIN]
        chains[TEN, "off"] = Chain([each | {"condition": NEVER} for each in ten], Setting())
        chains[TEN, "on"] = Chain(ten, Setting())
        for one in chains.values():
            one.warm()
        found: dict[tuple[str, str], list[float]] = {key: [] for key in chains}
        gc.collect()
        gc.freeze()
        for _ in range(rounds):
            for key, one in chains.items():
                made = one.exchanges(exchanges)
                gc.disable()
                found[key].append(one.spend(made) / exchanges * 1e6)
                gc.enable()
        base = least(found["", "nothing"])
        rows: list[tuple[object, ...]] = [("module", "off", "on", "Deferreds", "")]
        for each in (*chosen, TEN):
            off, on = (least(found[each, how]) - base for how in ("off", "on"))
            note = SETTINGS[each].note if each in SETTINGS else ", ".join(CHAIN)
            rows.append((each, f"{off:.2f}", f"{on:.2f}", f"{chains[each, 'on'].deferreds():g}", note))
        for one in chains.values():
            one.stop()
        real = alone(rounds)
        rows.append((f"{TEN}, in a gateway", "", f"{real:.2f}", "", "between all else that a request needs"))
        title = f"What modules cost, in µs of CPU for each exchange{' (compiled)' if compiled() else ''}"
        return Table("compiled" if compiled() else "modules", title, rows), real


# -- in a gateway


def alone(rounds: int) -> float:
    """L{chain}, in a process where nothing else was before: caches and memory would not be a gateway's."""
    words = [sys.executable, chain.__file__, "--rounds", str(rounds)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True, timeout=600).stdout)


# -- under valgrind

COUNTED: Final = 100
"""Exchanges of a row."""


def chains_of(chosen: Sequence[str], folder: Path) -> dict[str, Chain]:
    """A chain for each row of instructions."""
    chains = {"empty": Chain([], Setting())}
    chains |= {each: Chain([entry(each, folder)], SETTINGS[each]) for each in chosen}
    return chains | {TEN.replace(" ", "_"): Chain([entry(each, folder) for each in CHAIN], Setting())}


def child(chosen: Sequence[str]) -> None:
    """In a child: count each row."""
    with files() as folder:
        chains = chains_of(chosen, folder)
        for one in chains.values():
            one.warm()
        gc.collect()
        gc.freeze()
        for row, one in chains.items():
            made = one.exchanges(COUNTED)
            with callgrind.counted(row):
                one.spend(made)
        for one in chains.values():
            one.stop()


def counts(chosen: Sequence[str], keep: str = "") -> Table:
    """The table of instructions."""
    found = callgrind.totals([__file__, "--child", "--only", ",".join(chosen)], keep)
    base = found["empty"]
    rows: list[tuple[object, ...]] = [("module", "instructions")]
    for each in (*chosen, TEN):
        rows.append((each, f"{(found[each.replace(' ', '_')] - base) / COUNTED:,.0f}"))
    return Table("modules", "What modules cost, in instructions for each exchange", rows)


def least(rounds: Sequence[float]) -> float:
    """Of the quickest quarter of all rounds the middle: what others did to the machine is left out."""
    return statistics.median(sorted(rounds)[: len(rounds) // 4 + 1])


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="modules, separated by commas")
    parser.add_argument("--exchanges", type=int, default=20, help="of each round (default: 20)")
    parser.add_argument("--rounds", type=int, default=499, help="interleaved (default: 499)")
    parser.add_argument("--write", default="", metavar="PAGE", help="a page with marks, where the table goes")
    parser.add_argument("--instructions", action="store_true", help="count instructions, with callgrind")
    parser.add_argument("--keep", default="", metavar="FILE", help="with --instructions: the profile of the last row")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    missing = sorted(set(names(IModuleFactory)) - {setting.module or name for name, setting in SETTINGS.items()})
    chosen = [name for name in options.only.split(",") if name] or sorted(SETTINGS)
    if options.child:
        child(chosen)
        return 0
    if options.instructions:
        table = counts(chosen, options.keep)
        print(f"{report.machine()}\n\n### {table.title}\n\n{table.text()}")
        return 0
    table, real = measure(chosen, options.exchanges, options.rounds)
    print(f"{report.machine()}\n\n### {table.title}\n\n{table.text()}")
    if options.write:
        report.write(Path(options.write), {table.name: table.text()})
    for name in missing:
        print(f"{name} has no row", file=sys.stderr)
    if real > CHAIN_LIMIT:
        print(f"the chain costs {real:.1f} µs, more than {CHAIN_LIMIT:g}", file=sys.stderr)
    return int(bool(missing) or real > CHAIN_LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
