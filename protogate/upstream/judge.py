"""
Who judges each endpoint of an upstream by itself, by how attempts go: a L{Breaker} for each.

Rules
- The process that leads judges, for all; what it finds goes through L{Cluster.hold}.  The others know how each breaker
  stands, so that one of them can go on.
- A breaker belongs to an address: an endpoint that is away for a while, as DNS may have it, comes back to its own.  It
  is forgotten when it has nothing to remember.
- A timer for each breaker that is not closed, and only where that is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from protogate.upstream.breaker import Breaker, State, Terms
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.seen import Seen
from protogate.upstream.verdicts import where
from protogate.wheel import Timer, Wheel


@mypyc_attr(native_class=False)
class Office(Protocol):
    """What those who judge an upstream work with."""

    name: str
    wheel: Wheel
    count: Callable[[str], None]

    @property
    def leads(self) -> bool:
        """Whether this process judges."""

    def hold(self, endpoint: Endpoint, by: str, share: float, why: str) -> None:
        """L{Cluster.hold}."""

    def limit(self, endpoint: Endpoint, by: str, share: float, why: str) -> None:
        """L{Cluster.limit}."""

    def post(self, by: str, at: str, value: list[Any] | None, moved: bool) -> None:
        """
        Tell the others how things stand.

        @param moved: what was observed before does not count any more.
        """


class Probes:
    """
    Those that were let through while a breaker was probed, once: what began before, or in an earlier time, is none.

    @ivar under: under way, of this process.
    """

    __slots__ = ("under",)

    def __init__(self) -> None:
        self.under = 0


class Entry:
    """The breaker of one address, and the endpoint there: None while there is none."""

    __slots__ = ("at", "breaker", "endpoint", "probes", "timer")

    def __init__(self, at: str, breaker: Breaker, timer: Timer) -> None:
        self.at, self.breaker, self.timer = at, breaker, timer
        self.endpoint: Endpoint | None = None
        self.probes = Probes()


class Judge:
    """
    @ivar by: the word of the configuration.
    """

    by = ""

    def __init__(self, terms: Terms, office: Office) -> None:
        self.terms, self.office = terms, office
        self.entries: dict[str, Entry] = {}
        self.there: dict[Endpoint, Entry] = {}

    # -- what another kind of judge may want to do in its own way

    def may(self, entry: Entry) -> bool:
        """Whether an endpoint may be held now."""
        return True

    def moved(self, entry: Entry, before: State) -> None:
        """Count and tell that the state of an endpoint's breaker is another one."""

    # -- what it is told

    def take(self, endpoints: Iterable[Endpoint]) -> None:
        """From now on these are there."""
        before, self.there = self.there, {}
        for endpoint in endpoints:
            at = where(endpoint)
            entry = self.entries.get(at)
            if entry is None:
                entry = self._enter(at)
            elif entry.endpoint is not endpoint and entry.breaker.share < 1.0:
                entry.endpoint = endpoint
                self._hold(entry)
            entry.endpoint = endpoint
            self.there[endpoint] = entry
        for endpoint, entry in before.items():
            if entry.endpoint is endpoint and endpoint not in self.there:
                entry.endpoint, entry.probes = None, Probes()
        now = self.office.wheel.now()
        for entry in list(self.entries.values()):
            if entry.endpoint is None and not entry.breaker.remembers(now):
                self._forget(entry)

    def fresh(self, endpoint: Endpoint, began: float) -> bool:
        """Whether an attempt that began then says anything."""
        entry = self.there.get(endpoint)
        return entry is None or began >= entry.breaker.since

    def observe(self, endpoint: Endpoint, seen: Seen) -> None:
        """In the process that leads: something was seen."""
        entry = self.there.get(endpoint)
        if entry is None:
            return
        breaker, now = entry.breaker, self.office.wheel.now()
        moves, state = breaker.moves, breaker.state
        why = breaker.observe(seen, now)
        if why:
            self.accuse(entry, why)
        elif breaker.moves != moves:
            self._tell(entry, state)

    def accuse(self, entry: Entry, why: str) -> None:
        """An endpoint should be held."""
        breaker = entry.breaker
        if self.may(entry):
            state = breaker.state
            breaker.trip(why, self.office.wheel.now())
            self._tell(entry, state)
        else:
            breaker.spare()

    def began(self, endpoint: Endpoint) -> Probes | None:
        """An attempt begins.  @return: for L{over}; None = it is no probe."""
        entry = self.there.get(endpoint)
        if entry is None or entry.breaker.state is not State.PROBING:
            return None
        probes = entry.probes
        probes.under += 1
        if probes.under >= entry.breaker.terms.probes:
            self.office.limit(endpoint, "probes", 0.0, "as many probes as may be are under way")
        return probes

    def over(self, endpoint: Endpoint, probes: Probes) -> None:
        """A probe is over, and what it says was told."""
        probes.under -= 1
        entry = self.there.get(endpoint)
        if entry is not None and entry.probes is probes and "probes" in endpoint.held:
            self.office.limit(endpoint, "probes", 1.0, "")

    def told(self, at: str, plain: Sequence[Any] | None) -> None:
        """How the breaker of an address stands in the process that leads; None = it is forgotten there."""
        entry = self.entries.get(at)
        if plain is None:
            if entry is not None and entry.endpoint is None:
                self._forget(entry)
            return
        if entry is None:
            entry = self._enter(at)
        entry.breaker.take(plain, self.office.wheel.now())
        self._free(entry)

    def led(self, leads: bool) -> None:
        """Whether this process judges from now on; then it goes on where the one before stopped."""
        for entry in self.entries.values():
            self._arm(entry)
            if leads and entry.breaker.state is not State.CLOSED:
                self._hold(entry)

    def change(self, terms: Terms) -> None:
        """Judge by these from now on.  What is held stays so for as long as it was to be."""
        self.terms = terms
        for entry in self.entries.values():
            entry.breaker.change(terms)

    def stop(self) -> None:
        """Judge no more: what was held is let go."""
        for entry in list(self.entries.values()):
            if entry.endpoint is not None:
                self.office.hold(entry.endpoint, self.by, 1.0, "")
            self._forget(entry)
        self.there = {}

    def retire(self) -> None:
        """Judge no more: who is held stays so."""
        for entry in self.entries.values():
            entry.timer.end()
        self.entries, self.there = {}, {}

    # --

    def _enter(self, at: str) -> Entry:
        wheel = self.office.wheel
        breaker = Breaker(self.terms)
        entry = self.entries[at] = Entry(at, breaker, wheel.timer(partial(self._due, at)))
        return entry

    def _due(self, at: str) -> None:
        entry = self.entries.get(at)
        if entry is None or not self.office.leads:
            return
        breaker, now = entry.breaker, self.office.wheel.now()
        moves, state = breaker.moves, breaker.state
        breaker.turn(now)
        if breaker.moves != moves:
            self._tell(entry, state)
        else:
            self._arm(entry)
        if entry.endpoint is None and not breaker.remembers(now):
            self._forget(entry)

    def _tell(self, entry: Entry, before: State) -> None:
        """Its state or its step is another one."""
        breaker = entry.breaker
        self._arm(entry)
        self._free(entry)
        moved = breaker.state is not before
        self.office.post(self.by, entry.at, breaker.plain(self.office.wheel.now()), moved)
        self._hold(entry)
        if moved:
            self.moved(entry, before)

    def _hold(self, entry: Entry) -> None:
        if entry.endpoint is not None and self.office.leads:
            breaker = entry.breaker
            self.office.hold(entry.endpoint, self.by, breaker.share, breaker.why)

    def _arm(self, entry: Entry) -> None:
        due = entry.breaker.due
        if due == inf or not self.office.leads:
            entry.timer.close()
        else:
            entry.timer.set(due - self.office.wheel.now())

    def _free(self, entry: Entry) -> None:
        """Nothing is probed any more, or anew."""
        if entry.probes.under and entry.endpoint is not None and entry.breaker.state is not State.PROBING:
            entry.probes = Probes()
            self.office.limit(entry.endpoint, "probes", 1.0, "")

    def _forget(self, entry: Entry) -> None:
        entry.timer.end()
        if entry.endpoint is not None and "probes" in entry.endpoint.held:
            self.office.limit(entry.endpoint, "probes", 1.0, "")
        del self.entries[entry.at]
        if self.office.leads:
            self.office.post(self.by, entry.at, None, False)
