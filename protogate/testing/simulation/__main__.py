"""
C{python -m protogate.testing.simulation}: stories over many seeds, or one seed, told.

    python -m protogate.testing.simulation --seeds 1000
    python -m protogate.testing.simulation --story a_dead_endpoint --seed 17
    python -m protogate.testing.simulation --story a_dead_endpoint --seed 17 --picture dead.svg
    python -m protogate.testing.simulation --stories acme.tests.stories --seeds 100
    python -m protogate.testing.simulation --draw docs/images
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from protogate.testing.simulation.gallery import PICTURES, draw
from protogate.testing.simulation.picture import picture
from protogate.testing.simulation.run import COMMAND, OWN, Result, faults, results, stories
from protogate.testing.simulation.story import Teller
from protogate.testing.simulation.tale import percentile
from protogate.testing.simulation.world import tell

SHOWN = 10
"""Failing seeds of a story that are told in full."""


def parser() -> argparse.ArgumentParser:
    """What may be said."""
    parser = argparse.ArgumentParser(COMMAND, description="Tell stories of gateways, and check what must hold.")
    parser.add_argument("--stories", metavar="MODULE", default=OWN, help="where STORIES are listed; default: our own")
    parser.add_argument("--story", metavar="NAME", action="append", help="only this one; may be given again")
    parser.add_argument("--seed", type=int, help="tell this one, with what happened")
    parser.add_argument("--seeds", type=int, default=100, help="how many of each story; default: 100")
    parser.add_argument("--first", type=int, default=0, help="the first of them; default: 0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--draw", metavar="FOLDER", type=Path, help="draw the pictures of the documentation")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="draw what --seed tells, as SVG")
    parser.add_argument("--list", action="store_true", help="the stories")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 when something does not hold."""
    options = parser().parse_args(arguments)
    told = stories(options.stories)
    unknown = [name for name in options.story or () if name not in told]
    if unknown:
        parser().error(f"no story {', '.join(unknown)}; there are {', '.join(told)}")
    names = options.story or list(told)
    if options.list:
        for name in names:
            print(f"{name}: {' '.join((told[name].__doc__ or '').split())}")
        return 0
    if options.draw is not None:
        options.draw.mkdir(parents=True, exist_ok=True)
        for name in PICTURES:
            path = options.draw / f"{name}.svg"
            path.write_text(draw(name), encoding="utf-8")
            print(path)
        return 0
    if options.seed is not None:
        return max([_one(told[name], options.seed, options.picture) for name in names])
    return _many(options.stories, names, range(options.first, options.first + options.seeds), options.jobs)


def _one(teller: Teller, seed: int, path: Path | None) -> int:
    tale = tell(teller, seed)
    if path is not None:
        path.write_text(picture(tale, f"{teller.__name__}, seed {seed}"), encoding="utf-8")
    print(f"{teller.__name__}, seed {seed}")
    happened = [(event.at, repr(event)) for event in tale.story.events]
    for each in tale.judged:
        by = f" ({', '.join(each.by)})" if each.by else ""
        happened.append((each.at, f"{each.at:.3f} s: {each.upstream} gives {each.server} {each.share:.3g}{by}"))
    for _, text in sorted(happened):
        print(f"  {text}")
    statuses = Counter((ask.status, ask.error) for ask in tale.asks)
    for (status, error), number in sorted(statuses.items(), key=lambda item: -item[1]):
        print(f"  {number} × {status or 'no answer'} {error}".rstrip())
    served = Counter(each.server for each in tale.served())
    print(f"  asked: {', '.join(f'{name} {number}' for name, number in sorted(served.items()))}")
    times = [ask.latency for ask in tale.asks if ask.well]
    print("  " + ", ".join(f"p{percent} {percentile(times, percent) * 1000:.0f} ms" for percent in (50, 90, 99)))
    for scope, counts in tale.counts.items():
        print(f"  {scope or 'counters'}: {', '.join(f'{name} {number:g}' for name, number in sorted(counts.items()))}")
    print(f"  digest {tale.digest()}")
    found = faults(tale)
    for text in found:
        print(f"- {text}")
    return 1 if found else 0


def _many(module: str, names: list[str], seeds: range, jobs: int) -> int:
    failed: list[Result] = []
    done, since, bad = 0, time.monotonic(), list[int]()
    for result in results(module, names, seeds, jobs):
        done += 1
        if result.faults:
            bad.append(result.seed)
            failed.append(result)
        if done == len(seeds):
            seconds = time.monotonic() - since
            which = f" ({', '.join(map(str, bad[:SHOWN]))}{', …' if len(bad) > SHOWN else ''})" if bad else ""
            print(f"{result.story}: {done} seeds, {len(bad)} failed{which}, {seconds:.1f} s", flush=True)
            done, since, bad = 0, time.monotonic(), []
    module = "" if module == OWN else f" --stories {module}"
    for name, seed, found in failed[:SHOWN]:
        print(f"\n{name}, seed {seed}:")
        for text in found:
            print(f"- {text}")
        print(f"again: {COMMAND}{module} --story {name} --seed {seed}")
    if len(failed) > SHOWN:
        print(f"\nand {', '.join(f'{name} {seed}' for name, seed, _ in failed[SHOWN:])}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
