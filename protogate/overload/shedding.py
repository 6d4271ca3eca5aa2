"""
Who is refused when there is too much to do: before any module, rule or upstream is asked.

Rules
- The least important class is refused first.  Of a level from 0 to 1 each class has an equal part: with three of them
  the last one is refused in proportion from 0 to 1/3, and wholly from there on; then the next one.
- Who is refused is chosen by chance, so that nobody is always among them.
- It is told when to come again, and not everybody the same.
- What L{Shedding.process} raises is made beforehand: a request that is shed must cost little.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.overload import LagMarks, Marks, Overload
from protogate.config.scalar import shown
from protogate.config.units import written
from protogate.context import uncounted
from protogate.errors import ALWAYS, GATEWAY, Abort, ConfigError
from protogate.expression import condition
from protogate.governance.stages import PRE_REQUEST
from protogate.observe.counters import Counters

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

KIND: Final = "priority"
"""Of scopes of counters."""
EVERYBODY: Final = "default"
"""The class of all where no classes are configured."""

Class = tuple[str, Callable[["Exchange"], bool] | None]
"""Name, and who is in it; None = whoever is in no other one."""


def classes(config: model.Config) -> tuple[Class, ...]:
    """
    The classes of a configuration, the most important one first.

    @raise ConfigFaults: it cannot be so.
    """
    overload = config.gateway.overload
    if overload is None:
        return ()
    faults = [*_marks(overload)]
    found: dict[str, Callable[[Exchange], bool] | None] = {}
    others: list[str] = []
    for index, entry in enumerate(overload.priorities):
        at = ("gateway", "overload", "priorities", index)
        if entry.name in found:
            faults.append(ConfigError(f"{shown(entry.name)} is given twice", (*at, "name")))
        holds = None
        if entry.when:
            try:
                holds = condition.compile(entry.when)
            except ConfigError as error:
                faults.append(ConfigError(error.message, (*at, "when", *error.path)))
        elif others:
            faults.append(ConfigError(f"{shown(others[0])} is for all others already: say when", at))
        else:
            others.append(entry.name)
        found[entry.name] = holds
    if found and not others:
        message = "one class must be for all others: leave its when out"
        faults.append(ConfigError(message, ("gateway", "overload", "priorities")))
    if faults:
        raise ConfigFaults(faults)
    return tuple(found.items()) or ((EVERYBODY, None),)


def _marks(overload: Overload) -> list[ConfigError]:
    """Marks that are the wrong way round."""
    named: dict[str, LagMarks | Marks] = {
        "lag": overload.lag,
        "memory": overload.memory,
        "connections": overload.connections,
        "descriptors": overload.descriptors,
    }
    return [
        ConfigError(f"not more than begin, which is {_text(marks)}", ("gateway", "overload", name, "full"))
        for name, marks in named.items()
        if marks.full and marks.full <= marks.begin
    ]


def _text(marks: LagMarks | Marks) -> str:
    return written(marks.begin) if isinstance(marks, LagMarks) else f"{marks.begin:g}"


class Shedding:
    """
    What stands before the modules of a pipeline; L{protogate.exchange.pipeline.IBound}.

    @param counters: C{requests_shed}, for each class.
    @param chance: gives a number from 0 up to 1.
    @param now: seconds, on the clock of C{due}.
    @param look: asked for before the first request that comes from C{due} on.
    @ivar level: how much is to be shed, from 0 to 1.
    """

    name = "overload"
    stage = PRE_REQUEST
    applies: Callable[[Exchange], bool] | None = None
    timeout = 0.0
    opens = proceeds = outlives = False
    count: Callable[[str], None] = staticmethod(uncounted)

    def __init__(
        self,
        classes: Sequence[Class],
        retry_after: float,
        counters: Counters,
        chance: Callable[[], float] = random.random,
        *,
        now: Callable[[], float] = float,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._asked = [(place, holds) for place, (_, holds) in enumerate(classes) if holds is not None]
        self._other = next(place for place, (_, holds) in enumerate(classes) if holds is None)
        self._names = [name for name, _ in classes]
        self._counters = [counters.scope(KIND, name) for name in self._names]
        counters.keep(KIND, self._names)
        self._chance, self._now, self._look = chance, now, look
        self.due = inf
        self._aborts = [_abort(seconds) for seconds in _waits(retry_after)]
        self._shares = [0.0] * len(classes)
        self.level = 0.0

    def follow(self, level: float) -> None:
        """So much is to be shed from now on."""
        self.level = level
        last = len(self._shares) - 1
        self._shares = [min(max(level * (last + 1) - (last - place), 0.0), 1.0) for place in range(last + 1)]

    def process(self, exchange: Exchange) -> None:
        """Let it pass, or raise the Abort that refuses it."""
        if self._now() >= self.due:
            self._look()
        if not self.level:
            return
        place = self._place(exchange)
        share = self._shares[place]
        if share <= 0.0 or (share < 1.0 and self._chance() >= share):
            return
        self._counters[place].count("requests_shed")
        exchange.notes["shed"] = self._names[place]
        raise self._aborts[int(self._chance() * len(self._aborts))]

    def _place(self, exchange: Any) -> int:
        for place, holds in self._asked:
            if _held(holds, exchange):
                return place
        return self._other


def _held(holds: Callable[[Any], bool], exchange: Any) -> bool:
    try:
        return holds(exchange)
    except Exception:  # what it asks for is not there: then it does not hold
        return False


def ranked(classes: Sequence[Class], exchange: Exchange) -> tuple[int, str]:
    """Which class an exchange is in: its place, 0 the most important one, and its name."""
    for place, (name, holds) in enumerate(classes):
        if holds is not None and _held(holds, exchange):
            return place, name
    return next((place, name) for place, (name, holds) in enumerate(classes) if holds is None)


def _waits(seconds: float) -> range:
    """What those who are shed are told to wait, whole seconds."""
    least = max(ceil(seconds), 1)
    return range(least, 3 * least + 1)


def _abort(seconds: int) -> Abort:
    return Abort(
        "shed: there is more to do than can be done",
        GATEWAY,
        503,
        ALWAYS,
        error="http_request_denied",
        detail="overloaded",
        headers=[(b"retry-after", b"%d" % seconds)],
    )
