"""
Watches what this process has too little of, and has less come in.

Rules
- One timer looks: every L{EVERY} seconds at the loop, at connections and at what the kernel says quickly (it has
  C{quick}), each L{SELDOM}th time at the rest.  Where nothing is configured there is none.
- The highest level of all decides who is shed.
- Of how late the loop was at two looks the lesser counts: one long call, a collection of garbage, is no load.
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
from math import ceil
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from protogate.config.overload import LagMarks, Marks
from protogate.config.overload import Overload as Settings
from protogate.observe.counters import Counters
from protogate.observe.events import Limited
from protogate.overload import sources
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
        self._levels: dict[str, Level] = {}
        self._call: IDelayedCall | None = None
        self._at = self._late = 0.0
        self._looks = 0
        self._begun, self._paused = Limited(_log.warn), Limited(_log.warn)

    def take(self, settings: Settings | None, classes: Sequence[Class], workers: int = 1) -> None:
        """From now on do what a configuration says."""
        before, self._levels = self._levels, {}
        if settings is None:
            self.shedding = None
            self.stop()
            return
        shedding = Shedding(classes, float(settings.retry_after), self._counters)
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
            if each.full and (name in self.sources or name in ("lag", "connections")):
                level = self._levels[name] = Level(float(each.begin), float(each.full))
                if name in before:
                    level.level, level.value = before[name].level, before[name].value
        if self._call is None:
            self._again()

    def stop(self) -> None:
        """Look no more, and hold nobody up."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
            self._levels = {}
            for door in self._doors():
                if door.paused:
                    door.resume()

    def pressure(self) -> dict[str, float]:
        """How near each resource is to its end, from 0 to 1, by its name; empty where nobody looks."""
        return {name: level.level for name, level in self._levels.items()}

    # -- looks

    def _again(self) -> None:
        self._at = self._reactor.seconds()
        self._call = self._reactor.callLater(EVERY, self._look)

    def _look(self) -> None:
        before, self._late = self._late, max(self._reactor.seconds() - self._at - EVERY, 0.0)
        doors = list(self._doors())
        levels = self._levels
        if "lag" in levels:
            levels["lag"].look(min(before, self._late))
        if "connections" in levels:
            begin = levels["connections"].begin
            levels["connections"].look(max([_busy(door) for door in doors if _crowd(door) > begin], default=0.0))
        for name, source in self.sources.items():
            if name in levels and (getattr(source, "quick", False) or self._looks % SELDOM == 0):
                self._ask(levels[name], source)
        self._looks += 1
        self._follow()
        self._mind(doors)
        self._again()

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
        whole = [self._levels[name] for name in ("memory", "descriptors") if name in self._levels]
        crowded = self._levels.get("connections")
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
