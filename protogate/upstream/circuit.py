"""
C{circuitBreaker} of an upstream: of each of its endpoints, or of all of it.

Rules
- An endpoint whose breaker is open gets nothing; one that is probed so many requests at a time from each process.  When
  that leaves nobody, requests are refused at once: to ask those nevertheless is what a breaker is there against.
- Where the upstream as a whole has one, every process lets through what it says, and the leader says it.  While it is
  probed a request is one attempt: nothing is sent again, nor a second time meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from protogate.message import Request, Response
from protogate.promise import waits
from protogate.upstream.breaker import Breaker, State, Terms
from protogate.upstream.door import Circuit, refusal, tell
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.judge import Entry, Judge, Office, Probes
from protogate.upstream.seen import Seen

BY: Final = "circuitBreaker"
WHOLE: Final = "*"
"""What all of an upstream is called where it is told what is left to endpoints."""

_EVENTS: Final = {
    State.OPEN: "breaker_opened",
    State.PROBING: "breaker_probing",
    State.CLOSED: "breaker_closed",
}
_log = Logger()
Answer = Response | Deferred[Response]


class EndpointBreakers(Judge):
    """One for each endpoint."""

    by = BY

    def moved(self, entry: Entry, before: State) -> None:
        """L{Judge}."""
        _tell(self.office, f"the circuit breaker of {entry.at}", entry.breaker)

    def handle(self, request: Request, ask: Callable[[Request], Answer]) -> Answer:
        """Ask, or refuse it when breakers leave nobody to be asked."""
        for endpoint in self.there:
            if endpoint.share > 0.0 and endpoint.place.weight:
                return ask(request)
        shut = [entry.breaker for endpoint, entry in self.there.items() if endpoint.place.weight and _shut(endpoint)]
        if not shut:
            return ask(request)
        self.office.count("breaker_refused")
        first = min(shut, key=lambda breaker: breaker.due)
        left = first.left(self.office.wheel.now())
        return fail(refusal(f"upstream {self.office.name}, every endpoint", first.why, left))

    def again(self, endpoint: Endpoint) -> bool:
        """Whether one more attempt may be made there, on top of what L{handle} lets through."""
        return not _shut(endpoint)


class UpstreamBreaker:
    """One for all of an upstream; see L{Judge} for what its methods are."""

    by = BY

    def __init__(self, terms: Terms, office: Office) -> None:
        self.office, self.terms, self.circuit = office, terms, Circuit(terms)
        self._timer = office.wheel.timer(self._due)

    def take(self, endpoints: Iterable[Endpoint]) -> None:
        """Which there are does not matter."""

    def fresh(self, endpoint: Endpoint, began: float) -> bool:
        """Whether an attempt that began then says anything."""
        return began >= self.circuit.breaker.since

    def observe(self, endpoint: Endpoint, seen: Seen) -> None:
        """In the process that leads: something was seen."""
        state = self.circuit.breaker.state
        if self.circuit.see(seen, self.office.wheel.now()):
            self._tell(state)

    def began(self, endpoint: Endpoint) -> Probes | None:
        """An attempt begins: it was let through, and L{handle} knows of it."""
        return None

    def over(self, endpoint: Endpoint, probes: Probes) -> None:
        """It is over."""

    @property
    def held(self) -> tuple[float, str]:
        """What is let through, 0.0 to 1.0, and why it is not all."""
        breaker = self.circuit.breaker
        return breaker.share, breaker.why

    def told(self, at: str, plain: Sequence[Any] | None) -> None:
        """How it stands in the process that leads."""
        if plain is not None:
            self.circuit.breaker.take(plain, self.office.wheel.now())
            self.circuit.door.set(self.circuit.breaker)

    def led(self, leads: bool) -> None:
        """Whether this process judges from now on."""
        self._arm()

    def change(self, terms: Terms) -> None:
        """Judge by these from now on."""
        self.terms = terms
        self.circuit.change(terms)

    def stop(self) -> None:
        """Judge no more."""
        self._timer.end()
        if self.office.leads:
            self.office.post(BY, "", None, False)

    def retire(self) -> None:
        """Judge no more."""
        self._timer.end()

    def handle(self, request: Request, ask: Callable[[Request], Answer]) -> Answer:
        """Ask, or refuse it."""
        door = self.circuit.door
        if not door.admits():
            self.office.count("breaker_refused")
            return fail(self.circuit.refusal(f"upstream {self.office.name}", self.office.wheel.now()))
        if not door.probing:
            return ask(request)
        door.under += 1
        answer = ask(request)
        if waits(answer):
            return answer.addBoth(self._probed)
        door.under -= 1
        return answer

    def again(self, endpoint: Endpoint) -> bool:
        """
        As L{EndpointBreakers.again}: not while it is open, which may be what that request has led to; nor while it is
        probed.  A probe is one attempt: of one that failed, who leads may have to hear first.
        """
        return self.circuit.breaker.state in (State.CLOSED, State.RAMPING)

    def _probed(self, result: object) -> object:
        self.circuit.door.under -= 1
        return result

    def _due(self) -> None:
        if not self.office.leads:
            return
        state = self.circuit.breaker.state
        if self.circuit.turn(self.office.wheel.now()):
            self._tell(state)
        else:
            self._arm()

    def _tell(self, before: State) -> None:
        breaker = self.circuit.breaker
        self._arm()
        moved = breaker.state is not before
        self.office.post(BY, "", breaker.plain(self.office.wheel.now()), moved)
        if moved:
            _tell(self.office, "its circuit breaker", breaker)

    def _arm(self) -> None:
        due = self.circuit.breaker.due
        if due == inf or not self.office.leads:
            self._timer.close()
        else:
            self._timer.set(due - self.office.wheel.now())


def _tell(office: Office, whose: str, breaker: Breaker) -> None:
    tell(_log, f"upstream {office.name}: {whose}", breaker, office.count, _EVENTS)


def _shut(endpoint: Endpoint) -> bool:
    held = endpoint.held
    return "probes" in held or (BY in held and held[BY][0] <= 0.0)
