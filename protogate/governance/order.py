"""
What is surely not meant in the order of modules: warnings, for C{protogate check}.

Rules
- It goes by what modules say of themselves: C{keeps} (it answers without those behind it), C{admits} (it decides who
  may come in; those that reserve fields do), C{insists} (by a credential that must be there), C{preflights} (it answers
  requests that have none).
- Two entries are about the same requests where their conditions are equal, or one is for all; else nothing is said.
- A module in the shadow is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protogate.errors import ConfigError
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IReservingModule

if TYPE_CHECKING:
    from protogate.governance.binding import Bound


def warn(ordered: Mapping[str, Sequence[Bound]], places: Mapping[Bound, int]) -> None:
    """
    Have those warn that stand in the wrong place.

    @param ordered: the modules of each stage, as they run.
    @param places: where each stands in the configuration.
    """
    for bounds in ordered.values():
        _overtaken(bounds, places)
    _unanswered((*ordered[PRE_REQUEST], *ordered[PRE_UPSTREAM]), places)


def _overtaken(bounds: Sequence[Bound], places: Mapping[Bound, int]) -> None:
    """Warn of who decides who may come in behind who answers without asking it: what is kept is given to everybody."""
    keepers: list[Bound] = []
    for each in bounds:
        module: Any = each.module
        if each.shadow:
            continue
        if getattr(module, "keeps", False):
            keepers.append(each)
        elif getattr(module, "admits", False) or IReservingModule.providedBy(module):
            first = next((other for other in keepers if _overlap(other.condition, each.condition)), None)
            if first is not None:
                index = places[first]
                why = f"modules[{index}], {first.name}, answers what it keeps before this one is asked who may have it"
                path = ("modules", places[each], "ruleOrder")
                each.warnings = (*each.warnings, ConfigError(f"{why}: give this one a lower ruleOrder", path))


def _unanswered(bounds: Sequence[Bound], places: Mapping[Bound, int]) -> None:
    """Warn of who answers preflights behind who asks for credentials: browsers send none with them."""
    insisting: list[Bound] = []
    for each in bounds:
        module: Any = each.module
        if each.shadow:
            continue
        if getattr(module, "insists", False) and "OPTIONS" not in each.condition:
            insisting.append(each)
        elif getattr(module, "preflights", False):
            first = next((other for other in insisting if _overlap(other.condition, each.condition)), None)
            if first is not None:
                index = places[first]
                why = f"modules[{index}], {first.name}, refuses preflights before, for they carry no credentials"
                path = ("modules", places[each], "ruleOrder")
                each.warnings = (*each.warnings, ConfigError(f"{why}: give this one a lower ruleOrder", path))


def _overlap(one: str, other: str) -> bool:
    return one == other or "true" in (one, other)
