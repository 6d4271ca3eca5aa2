"""
The modules of a gateway that have a life of their own (L{protogate.interfaces.ILiveModule}), over its configurations.

Rules
- Those of a new configuration are started before those of the old one are stopped; each is handed the one whose place
  it takes.  That is, of those of the same name in the same stage, the one with equal parameters; else the one whose
  parameter C{name} is the same, if they have one; else the one with the same condition; else the next in order.  Of
  several with equal parameters, it is the one with the same condition.  One in the shadow takes the place of one that
  is not, or the other way round, only where nobody else does.
- None of them can keep a configuration from being in force: what it raises is logged and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from twisted.logger import Logger

from protogate.governance.binding import Bound
from protogate.governance.means import Means
from protogate.interfaces import ILiveModule, IModule
from protogate.observe.counters import Counters
from protogate.observe.snapshot import Number

_log = Logger()
Bounds = Mapping[str, Sequence[Bound]]


def asked(bound: Bounds) -> Iterator[Iterable[str]]:
    """The upstreams that each module wants to ask, by name or origin."""
    for each in living(bound):
        module: Any = each.module
        yield module.asks


def living(bound: Bounds) -> Iterator[Bound]:
    """Those that have a life."""
    return (each for stage in bound.values() for each in stage if ILiveModule.providedBy(each.module))


class Lives:
    """
    @ivar running: those that were started and not stopped.
    @ivar kinds: of all modules in force: name of the Python module → its name in the configuration.
    """

    def __init__(self) -> None:
        self.running: list[Bound] = []
        self.kinds: Mapping[str, str] = {}

    def take(self, bound: Bounds, means: Callable[[Bound], Means], counters: Counters) -> None:
        """
        Put modules in force instead of those before.

        @param bound: all of a configuration.
        @param means: for each of those that live.
        @param counters: each counts in the scope of its name.
        """
        every = [each for stage in bound.values() for each in stage]
        for each in every:
            each.count = counters.scope("module", each.name, apart=True).count
        self.kinds = {type(each.module).__module__: each.name for each in every}
        counters.keep("module", set(self.kinds.values()))
        before, self.running = self.running, list(living(bound))
        heirs = _heirs(self.running, before)
        for each in self.running:
            module: Any = each.module
            try:
                module.start(means(each), heirs.get(each))
            except Exception:
                each.count("failed")
                _log.failure("module {module} ({stage}) cannot be started", module=each.name, stage=each.stage)
        _stop(before)

    def gauges(self) -> dict[str, dict[str, Number]]:
        """What modules have right now, by name; that of several of one name is added up."""
        found: dict[str, dict[str, Number]] = {}
        for each in self.running:
            for name, read in each.gauges.items():
                numbers = found.setdefault(each.name, {})
                numbers[name] = numbers.get(name, 0) + read()
        return found

    def stop(self) -> None:
        """All of them."""
        running, self.running = self.running, []
        _stop(running)


def _heirs(after: Sequence[Bound], before: Sequence[Bound]) -> dict[Bound, IModule]:
    """For each of those after, which one was there before."""
    found: dict[Bound, IModule] = {}
    left = list(before)
    for changed in (False, True):
        for same in (_same, _twin, _namesake, _placed, _kin):
            for each in after:
                if each in found:
                    continue
                for other in left:
                    if (each.shadow is not other.shadow) is changed and same(each, other):
                        left.remove(other)
                        found[each] = other.module
                        break
    return found


def _same(one: Bound, other: Bound) -> bool:
    return _twin(one, other) and one.condition == other.condition


def _twin(one: Bound, other: Bound) -> bool:
    return _kin(one, other) and one.key == other.key


def _namesake(one: Bound, other: Bound) -> bool:
    return _kin(one, other) and one.named != "" and one.named == other.named


def _placed(one: Bound, other: Bound) -> bool:
    return _kin(one, other) and one.condition == other.condition


def _kin(one: Bound, other: Bound) -> bool:
    return one.name == other.name and one.stage == other.stage


def _stop(bounds: Iterable[Bound]) -> None:
    for each in bounds:
        module: Any = each.module
        try:
            module.stop()
        except Exception:
            _log.failure("module {module} ({stage}) cannot be stopped", module=each.name, stage=each.stage)
