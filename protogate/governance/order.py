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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

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
        why = "answers what it keeps before this one is asked who may have it"
        _behind(bounds, places, _keeps, _admits, why)
    bounds = (*ordered[PRE_REQUEST], *ordered[PRE_UPSTREAM])
    _behind(bounds, places, _insists, _preflights, "refuses preflights before, for they carry no credentials")


_Is = Callable[["Bound"], bool]


def _behind(bounds: Sequence[Bound], places: Mapping[Bound, int], one: _Is, other: _Is, why: str) -> None:
    """
    Warn of each that is of one kind and stands behind one of another.

    @param one: whether it is one of those that should not stand before …
    @param other: … one of these.
    @param why: what the former does.
    """
    before: list[Bound] = []
    for each in bounds:
        if each.shadow:
            continue
        if one(each):
            before.append(each)
        elif other(each):
            first = next((found for found in before if _overlap(found.condition, each.condition)), None)
            if first is not None:
                text = f"modules[{places[first]}], {first.name}, {why}: give this one a lower ruleOrder"
                fault = ConfigError(text, ("modules", places[each], "ruleOrder"))
                each.warnings = (*each.warnings, fault)


def _keeps(bound: Bound) -> bool:
    return getattr(bound.module, "keeps", False)


def _admits(bound: Bound) -> bool:
    """What is kept is given to everybody, whoever these would let in."""
    return getattr(bound.module, "admits", False) or IReservingModule.providedBy(bound.module)


def _insists(bound: Bound) -> bool:
    return getattr(bound.module, "insists", False) and "OPTIONS" not in bound.condition


def _preflights(bound: Bound) -> bool:
    """Browsers send no credentials with those."""
    return getattr(bound.module, "preflights", False)


def _overlap(one: str, other: str) -> bool:
    return one == other or "true" in (one, other)
