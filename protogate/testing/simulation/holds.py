"""
What must hold: of every story, L{ALWAYS}; and what a story says of itself, made of the functions below.

    holds=(errors(3), asked("b", 0, begin=9, end=20), latency(99, 0.5), left_alone())

Rules
- A hold is C{hold(tale)} and gives a text for each thing that does not hold.  Write your own wherever one of these does
  not say it.
- Times are seconds since the story began; asks are counted by when they began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from protogate.testing.simulation.clients import Ask
from protogate.testing.simulation.story import Hold
from protogate.testing.simulation.tale import Tale, percentile

END: Final = 1e9
SHOWN: Final = 5
"""Asks that a text names."""


def _some(asks: Iterable[Ask]) -> str:
    found = list(asks)
    told = [f"{ask.agent} at {ask.began:.3f} s: {ask.status} {ask.error or ask.server}".strip() for ask in found]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(told[:SHOWN]) + more


# -- of every story


def ended_once(tale: Tale) -> Iterator[str]:
    """Every ask ended, and the gateway has exactly one record of it, which says the same."""
    for text in tale.unsettled:
        yield f"still under way long after the last client: {text}"
    records = Counter(record.agent for record in tale.records)
    asks = {ask.agent: ask for ask in tale.asks}
    for agent, number in records.items():
        if number != 1:
            yield f"{agent} has {number} records"
        if agent not in asks:
            yield f"there is a record of {agent!r}, who did not ask"
    for agent, ask in asks.items():
        if agent not in records and not (ask.error and not ask.status):
            yield f"{agent} has no record: {_some([ask])}"
    for record in tale.records:
        its = asks.get(record.agent)
        if its is not None and its.whole and record.status != its.status:
            yield f"the record of {record.agent} says {record.status}, it was answered {its.status}"


def nothing_left(tale: Tale) -> Iterator[str]:
    """Nothing stayed behind, and nothing failed on the way that nobody expected."""
    for text in tale.left:
        yield f"left behind by the gateway: {text}"
    for text in tale.failures:
        yield f"logged: {text}"


def told_apart(tale: Tale) -> Iterator[str]:
    """What clients were given is what they asked for, and the attempts of the records are what servers saw, or more."""
    seen = Counter(each.agent for each in tale.seen if not each.check and not each.copied)
    targets = {ask.agent: ask.target for ask in tale.asks}
    for record in tale.records:
        beside = 1 if record.notes and "cache" in record.notes else 0  # asked for anew in the background
        if seen[record.agent] > record.attempts + beside:
            yield f"{record.agent} made {record.attempts} attempts, but was seen {seen[record.agent]} times"
    for each in tale.seen:
        wanted = targets.get(each.agent)
        if wanted is not None and each.target != wanted:
            yield f"{each.agent} asked for {wanted}, and {each.server} was asked for {each.target}"
    for agent in seen.keys() - targets.keys() - {""}:
        yield f"servers were asked by {agent!r}, who did not ask"


ALWAYS: Final[tuple[Hold, ...]] = (ended_once, nothing_left, told_apart)
"""What holds of every story."""


# -- of some


def errors(
    most: float, *, begin: float = 0.0, end: float = END, which: Callable[[Ask], bool] = lambda ask: not ask.well
) -> Hold:
    """
    Of the asks that began then, at most so many went wrong: a number, or below 1.0 a share of them.

    @param which: what is wrong; by default every answer but 2xx and 3xx, and none at all.
    """

    def hold(tale: Tale) -> Iterator[str]:
        asks = tale.asked(begin, end)
        wrong = [ask for ask in asks if which(ask)]
        if len(wrong) > (most * len(asks) if 0 < most < 1 else most):
            yield f"{len(wrong)} of {len(asks)} asks went wrong from {begin:g} s on: {_some(wrong)}"

    return hold


def asked(server: str, most: float, least: float = 0.0, *, begin: float = 0.0, end: float = END) -> Hold:
    """A server was asked so often then, health checks and copies aside: numbers."""

    def hold(tale: Tale) -> Iterator[str]:
        number = len(tale.served(begin, end, server))
        if not least <= number <= most:
            yield f"{server} was asked {number} times from {begin:g} s on, not {least:g} to {most:g}"

    return hold


def share(server: str, most: float, least: float = 0.0, *, begin: float = 0.0, end: float = END) -> Hold:
    """A server got such a share of what all were asked then: 0.0 to 1.0."""

    def hold(tale: Tale) -> Iterator[str]:
        total = len(tale.served(begin, end))
        part = len(tale.served(begin, end, server)) / total if total else 0.0
        if not least <= part <= most:
            yield f"{server} got {part:.3f} of {total} from {begin:g} s on, not {least:g} to {most:g}"

    return hold


def attempts(most: float, *, more: float = 0.0, begin: float = 0.0, end: float = END) -> Hold:
    """Servers were asked at most C{most} times as often as clients asked, and C{more}: what a retry budget is for."""

    def hold(tale: Tale) -> Iterator[str]:
        asks, served = len(tale.asked(begin, end)), len(tale.served(begin, end))
        if served > most * asks + more:
            yield f"{asks} asks became {served} attempts from {begin:g} s on, more than {most:g} times as many"

    return hold


def latency(percent: float, most: float, *, begin: float = 0.0, end: float = END) -> Hold:
    """That percentile of how long answers took that clients got well, in seconds."""

    def hold(tale: Tale) -> Iterator[str]:
        found = percentile([ask.latency for ask in tale.asked(begin, end) if ask.well], percent)
        if found > most:
            yield f"the {percent:g}th percentile is {found:.3f} s from {begin:g} s on, more than {most:g} s"

    return hold


def left_alone(grace: float = 0.2) -> Hold:
    """
    No server was asked that the gateway holds back, while there were others.

    @param grace: seconds after it was judged, for what was on its way.
    """

    def hold(tale: Tale) -> Iterator[str]:
        wrong = [each for each in tale.served() if not each.share and each.others > 0 and each.at - each.since > grace]
        if wrong:
            told = "; ".join(f"{each.server} by {each.agent} at {each.at:.3f} s" for each in wrong[:SHOWN])
            yield f"{len(wrong)} times a server was asked that was held back: {told}"

    return hold


def judged(server: str, *, within: tuple[float, float], well: bool, upstream: str = "farm") -> Hold:
    """In that time the gateway came to find the server well, or unwell: it was given less than all of its weight."""

    def hold(tale: Tale) -> Iterator[str]:
        begin, end = within
        state, hit = True, False
        for each in tale.judged:
            if (each.upstream, each.server) == (upstream, server):
                before, state = state, each.share >= 1.0
                hit = hit or (state is well and before is not well and begin <= each.at <= end)
        if not hit:
            yield f"{server} was not found {'well' if well else 'unwell'} between {begin:g} and {end:g} s"

    return hold


def counted(event: str, least: float, most: float = END, scope: str = "") -> Hold:
    """A counter had such a value in the end; scope is empty, C{upstream NAME} or C{module NAME}."""

    def hold(tale: Tale) -> Iterator[str]:
        number = tale.count(event, scope)
        if not least <= number <= most:
            yield f"{event} was counted {number:g} times{f' in {scope}' if scope else ''}, not {least:g} to {most:g}"

    return hold


def at_once(most: int) -> Hold:
    """No server had more requests at work at a time."""

    def hold(tale: Tale) -> Iterator[str]:
        for name, number in tale.most.items():
            if number > most:
                yield f"{name} had {number} requests at a time, not {most}"

    return hold


def balanced(within: float, *, begin: float = 0.0, end: float = END, least: int = 100) -> Hold:
    """
    All servers that were never held back got their weight's share then, give or take C{within} (0.0 to 1.0 of it);
    not said of fewer than C{least} requests.
    """

    def hold(tale: Tale) -> Iterator[str]:
        held = {each.server for each in tale.judged if each.share < 1.0}
        weights = {server.name: server.weight for server in tale.story.servers if server.name not in held}
        got = Counter(each.server for each in tale.served(begin, end) if each.server in weights)
        total, weight = sum(got.values()), sum(weights.values())
        if total < least:
            return
        for name, its in weights.items():
            due = total * its / weight
            if abs(got[name] - due) > max(within * due, 2.0):
                yield f"{name} got {got[name]} of {total}, not about {due:.0f}"

    return hold
