"""
Watches what this process has too little of, and has less come in.

Rules
- One timer looks: every L{EVERY} seconds at the loop, at connections and at what the kernel says quickly (it has
  C{quick}), each L{SELDOM}th time at the rest.  Where nothing is configured there is none.
- The highest level of all decides who is shed.
- A loop that is late comes late to looking, too, just when it should look more often.  So whoever is asked while a look
  is overdue by L{EVERY} looks at the loop itself: at what is known so far of how late it is.
- What is all in use (memory, descriptors, connections of a listener) is waited for without taking more: nothing is
  accepted until it is well below again; new connections wait in the queue of the kernel.  Meanwhile idle connections
  are asked to end, a few at each look, as at a stop.
- Connections can be too many before anybody looks: their listener says so itself.
- Of connections only the busy ones are a reason to shed: to refuse a request of an idle one frees nothing.
- Each process looks after itself.
- Over a reload levels stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, inf
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from protogate.config.overload import LagMarks, Marks
from protogate.config.overload import Overload as Settings
from protogate.observe.counters import Counters
from protogate.observe.events import Limited
from protogate.overload import sources
from protogate.overload.lag import Lag
from protogate.overload.level import Level
from protogate.overload.shedding import Class, Shedding

EVERY: Final = 0.1
"""Seconds between two looks."""
SELDOM: Final = 5
"""Looks."""
EASED: Final = 0.02
"""Of the connections of a listener so many are asked to end at a look, if they are idle, where the level is 1."""

_log = Logger()


class Door(Protocol):
    """Where connections come in: L{protogate.downstream.ports.Open}."""

    listener: Any
    paused: bool

    def pause(self) -> None:
        """Accept nothing; once more does no harm."""

    def resume(self) -> None:
        """Accept again."""


class Overload:
    """
    @param doors: gives those that are open.
    @ivar sources: what is looked at, where that is not the loop or the connections: percentages by name.
    @ivar shedding: what is to stand before all modules; None = nothing.
    """

    def __init__(self, reactor: Any, counters: Counters, doors: Callable[[], Iterable[Door]]) -> None:
        self._reactor, self._counters, self._doors = reactor, counters, doors
        self.sources: dict[str, sources.Source] = {}
        self.shedding: Shedding | None = None
        self._levels: dict[str, Lag | Level] = {}
        self._lag: Lag | None = None
        self._call: IDelayedCall | None = None
        self._due = self._looked = 0.0
        self._looks = 0
        self._begun, self._paused = Limited(_log.warn), Limited(_log.warn)

    def take(self, settings: Settings | None, classes: Sequence[Class], workers: int = 1) -> None:
        """From now on do what a configuration says."""
        before, levels = self._levels, dict[str, Lag | Level]()
        lag: Lag | None = None
        if settings is None:
            self.shedding = None
            self.stop()
            return
        shedding = Shedding(
            classes, float(settings.retry_after), self._counters, now=self._reactor.seconds, look=self._overdue
        )
        if self.shedding is not None:
            shedding.follow(self.shedding.level)
        self.shedding = shedding
        self.sources = {
            name: source
            for name, source in (
                ("memory", sources.memory(int(settings.memory_limit), workers)),
                ("descriptors", sources.descriptors()),
            )
            if source is not None
        }
        marks: Mapping[str, LagMarks | Marks] = {
            "lag": settings.lag,
            "connections": settings.connections,
            "memory": settings.memory,
            "descriptors": settings.descriptors,
        }
        for name, each in marks.items():
            if not each.full:
                continue
            begin, full, old = float(each.begin), float(each.full), before.get(name)
            if name == "lag":
                levels[name] = lag = Lag(begin, full)
                if isinstance(old, Lag):
                    lag.succeed(old)
            elif name in self.sources or name == "connections":
                levels[name] = level = Level(begin, full)
                if isinstance(old, Level):
                    level.succeed(old)
        self._levels, self._lag = levels, lag
        if self._call is None:
            self._looked = self._reactor.seconds()
            self._again()
        self._expect()

    def stop(self) -> None:
        """Look no more, and hold nobody up."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
            self._levels, self._lag = {}, None
            for door in self._doors():
                if door.paused:
                    door.resume()

    def pressure(self) -> dict[str, float]:
        """How near each resource is to its end, from 0 to 1, by its name; empty where nobody looks."""
        return {name: level.level for name, level in self._levels.items()}

    # -- looks

    def _again(self) -> None:
        self._due = self._reactor.seconds() + EVERY
        self._call = self._reactor.callLater(EVERY, self._look)

    def _look(self) -> None:
        self._hurry()
        doors = list(self._doors())
        levels = self._levels
        crowded = levels.get("connections")
        if isinstance(crowded, Level):
            begin = crowded.begin
            crowded.look(max([_busy(door) for door in doors if _crowd(door) > begin], default=0.0))
        for name, source in self.sources.items():
            level = levels.get(name)
            if isinstance(level, Level) and (getattr(source, "quick", False) or self._looks % SELDOM == 0):
                self._ask(level, source)
        self._looks += 1
        self._follow()
        self._mind(doors)
        self._again()
        self._expect()

    def _overdue(self) -> None:
        """The loop does not come to looking."""
        if self._lag is not None and self._reactor.seconds() >= max(self._due, self._looked) + EVERY:
            self._hurry()
            self._follow()
            self._expect()

    def _hurry(self) -> None:
        """How late the loop is, as far as that is known."""
        now = self._reactor.seconds()
        if not 0.0 <= now - self._looked < EVERY / 2:  # else somebody has just looked
            if self._lag is not None:
                self._lag.look(max(now - self._due, 0.0), max(now - self._looked, 0.0))
            self._looked = now

    def _expect(self) -> None:
        """From when on whoever is asked looks."""
        if self.shedding is not None:
            self.shedding.due = inf if self._lag is None else max(self._due, self._looked) + EVERY

    def _ask(self, level: Level, source: sources.Source) -> None:
        try:
            value = source()
        except (OSError, ValueError, IndexError):
            return  # a control group may be taken away: what was seen last stands
        level.look(value)

    def _follow(self) -> None:
        shedding = self.shedding
        assert shedding is not None
        highest = max(self._levels, key=lambda name: self._levels[name].level, default="")
        level = self._levels[highest].level if highest else 0.0
        if level and not shedding.level:
            self._counters.count("overloaded")
            self._begun(
                "overloaded ({what}): requests are shed ({suppressed} more like it were not logged)", what=highest
            )
        elif shedding.level and not level:
            _log.info("not overloaded any more")
        shedding.follow(level)

    def _mind(self, doors: Iterable[Door]) -> None:
        """Whether connections are accepted, and which end."""
        levels = self._levels
        whole = [each for name in ("memory", "descriptors") if isinstance(each := levels.get(name), Level)]
        crowded = levels.get("connections")
        assert not isinstance(crowded, Lag)
        out, well = any(level.over for level in whole), all(level.under for level in whole)
        for door in doors:
            crowd = _crowd(door)
            if out or (crowded is not None and crowd >= crowded.full):
                self._pause(door)
            elif door.paused:
                if well and (crowded is None or crowd <= crowded.begin):
                    door.resume()
                else:
                    door.pause()  # a reload may have opened more ports
            ease = max([level.level for level in whole], default=0.0)
            if crowded is not None:
                ease = max(ease, crowded.part(crowd))
            if ease:
                door.listener.ease(max(int(ease * EASED * len(door.listener.connections)), 1))

    def enter(self) -> None:
        """There are other doors, or other limits: have listeners say themselves when their connections are enough."""
        crowded = self._levels.get("connections")
        for door in self._doors():
            listener = door.listener
            if crowded is None:
                listener.most = 0
            else:
                listener.most = max(ceil(crowded.full * float(listener.context.limits.connections) / 100.0), 1)
                listener.enough = partial(self._pause, door)

    def _pause(self, door: Door) -> None:
        if not door.paused:
            name = door.listener.name
            self._counters.scope("listener", name).count("accept_paused")
            self._paused(
                "listener {name}: nothing is accepted for now ({suppressed} more like it were not logged)", name=name
            )
        door.pause()


def _busy(door: Door) -> float:
    """Connections with a request under way, as a percentage of those that there may be."""
    listener = door.listener
    busy = sum(1 for connection in listener.connections if connection.busy)
    return 100.0 * busy / float(listener.context.limits.connections)


def _crowd(door: Door) -> float:
    """Connections, as a percentage of those that there may be."""
    listener = door.listener
    return 100.0 * len(listener.connections) / float(listener.context.limits.connections)
