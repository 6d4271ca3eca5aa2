"""
Stories, checked: one seed, or a thousand.

Rules
- A seed that fails says what does not hold, and the command that repeats it.
- Many seeds share a process; they have nothing in common.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

from protogate.testing.simulation.holds import ALWAYS
from protogate.testing.simulation.story import Teller
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.world import tell

COMMAND: Final = "python -m protogate.testing.simulation"
OWN: Final = "protogate.testing.simulation.stories"
BATCH: Final = 10
"""Seeds that are given to a process at once."""


class Broken(AssertionError):
    """Something does not hold."""


class Result(NamedTuple):
    """
    Of one seed.

    @ivar faults: what does not hold.
    """

    story: str
    seed: int
    faults: list[str]


def faults(tale: Tale) -> list[str]:
    """What does not hold of it."""
    return [text for hold in (*ALWAYS, *tale.story.holds) for text in hold(tale)]


def check(teller: Teller, seed: int) -> Tale:
    """
    Tell the story of that seed; all must hold.

    @raise Broken: something does not.
    """
    try:
        tale = tell(teller, seed)
    except Exception as error:
        error.add_note(again(teller, seed))
        raise
    found = faults(tale)
    if found:
        told = "".join(f"\n- {text}" for text in found)
        events = "".join(f"\n  {event!r}" for event in sorted(tale.story.events, key=lambda event: event.at))
        raise Broken(f"{teller.__name__}, seed {seed}:{told}\nwhat happened:{events}\n{again(teller, seed)}")
    return tale


def again(teller: Teller, seed: int) -> str:
    """How to repeat it."""
    module = "" if teller.__module__.startswith(OWN) else f" --stories {teller.__module__}"
    return f"again: {COMMAND}{module} --story {teller.__name__} --seed {seed}"


def stories(module: str) -> dict[str, Teller]:
    """Those that a module lists as C{STORIES}, by the names of their functions."""
    return {teller.__name__: teller for teller in importlib.import_module(module).STORIES}


def results(module: str, names: Iterable[str], seeds: range, jobs: int) -> Iterator[Result]:
    """Check these seeds of these stories, story by story; in as many processes."""
    tasks = [
        (module, name, seeds[at : at + BATCH]) for name in names for at in range(0, len(seeds), BATCH)
    ]  # fmt: skip
    if jobs == 1:
        for task in tasks:
            yield from _batch(task)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for batch in pool.map(_batch, tasks):
            yield from batch


def _batch(task: tuple[str, str, range]) -> list[Result]:
    module, name, seeds = task
    teller = stories(module)[name]
    made = []
    for seed in seeds:
        found: list[str] = []
        try:
            found = faults(tell(teller, seed))
        except Exception:
            found = [traceback.format_exc()]
        made.append(Result(name, seed, found))
    return made
