"""
How the attempts of one upstream go: seen by each process, judged by the one that leads.

Rules
- The process that leads judges what it sees at once.  The others tell it what they have seen of each endpoint since
  they last did: at the end of the turn when something failed, else within L{PAUSE}; never more often than that allows.
- What an attempt says counts only if it began after whoever is judged by it last changed; what was on its way from
  another process when that happened, is dropped.
- Nobody judges: nothing is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from mypy_extensions import mypyc_attr

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.upstream.board import Board
from protogate.upstream.breaker import Terms, wrong
from protogate.upstream.circuit import BY as BREAKER
from protogate.upstream.circuit import EndpointBreakers, UpstreamBreaker
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.judge import Probes
from protogate.upstream.outcome import NOTHING, WELL, Outcome
from protogate.upstream.outliers import BY, Outliers
from protogate.upstream.outliers import wrong as strange
from protogate.upstream.seen import Seen, one
from protogate.upstream.verdicts import where
from protogate.wheel import Wheel

PAUSE: Final = 0.1
"""Seconds."""

Breakers = EndpointBreakers | UpstreamBreaker


@mypyc_attr(native_class=False)
class Holds(Protocol):
    """What is wanted of a cluster."""

    def hold(self, endpoint: Endpoint, by: str, share: float, why: str = "", memo: Any = None) -> None:
        """L{Cluster.hold}."""

    def limit(self, endpoint: Endpoint, by: str, share: float, why: str = "") -> None:
        """L{Cluster.limit}."""


class Watch:
    """
    @param name: of the upstream.
    @param cluster: it; asked only while attempts are watched.
    @ivar outliers: @ivar breakers: who judges; None = nobody.
    """

    def __init__(self, name: str, cluster: Holds, board: Board, wheel: Wheel, count: Callable[[str], None]) -> None:
        self.name, self.wheel, self.count = name, wheel, count
        self._cluster, self._board = cluster, board
        self.outliers: Outliers | None = None
        self.breakers: Breakers | None = None
        self._judges: tuple[Outliers | Breakers, ...] = ()
        self._endpoints: dict[str, Endpoint] = {}
        self._follows = False
        self._ages: dict[str, int] = {}  # how often what is there, or all, was judged anew: see _age
        self._seen: dict[str, Seen] = {}  # not told yet
        self._told = -PAUSE
        self._soon = False
        self._timer = wheel.timer(self._tell)

    @property
    def leads(self) -> bool:
        """Whether this process judges."""
        return self._board.leads

    # -- its life

    def settle(self, outliers: model.Outliers | None, breaker: model.CircuitBreaker | None) -> bool:
        """
        Judge by these from now on.  What does not change keeps all that it knows.

        @return: whether anything is judged.
        """
        endpoints = tuple(self._endpoints.values())
        if outliers is None or self.outliers is None:
            if self.outliers is not None:
                self.outliers.stop()
            self.outliers = None if outliers is None else Outliers(outliers, self)
            if self.outliers is not None:
                self.outliers.take(endpoints)
        else:
            self.outliers.settle(outliers)
        kind = None if breaker is None else _KINDS[breaker.scope]
        if breaker is None or kind is not type(self.breakers):
            if self.breakers is not None:
                self.breakers.stop()
            self.breakers = None if breaker is None else _KINDS[breaker.scope](Terms.of(breaker), self)
            if self.breakers is not None:
                self.breakers.take(endpoints)
        elif self.breakers.terms != Terms.of(breaker):
            self.breakers.change(Terms.of(breaker))
        self._judges = tuple(judge for judge in (self.outliers, self.breakers) if judge is not None)
        if not self._judges:
            self._leave()
        return bool(self._judges)

    def start(self) -> None:
        """Begin, if anything is judged.  Harmless when begun."""
        if self._judges and not self._follows:
            self._follows = True
            self._board.follow(self._topic, self._posted, self._heard, self._led)

    def take(self, endpoints: Iterable[Endpoint]) -> None:
        """From now on these are there."""
        self._endpoints = {where(each): each for each in endpoints}
        for judge in self._judges:
            judge.take(self._endpoints.values())

    def stop(self) -> None:
        """Judge no more, whoever is held stays so."""
        self._leave()
        self._timer.end()
        judges, self._judges = self._judges, ()
        for judge in judges:
            judge.retire()
        self.outliers = self.breakers = None

    @property
    def whole(self) -> tuple[float, str] | None:
        """What the breaker of all of it lets through, and why it is not all; None = it has none."""
        breakers = self.breakers
        return breakers.held if isinstance(breakers, UpstreamBreaker) else None

    @property
    def _topic(self) -> str:
        return topic(self.name)

    def _leave(self) -> None:
        self._timer.close()
        self._seen.clear()
        if self._follows:
            self._follows = False
            self._board.leave(self._topic)

    # -- attempts: L{protogate.upstream.dispatcher.Watcher}

    def began(self, endpoint: Endpoint) -> Probes | None:
        """One begins.  @return: for L{over}; None = it is no probe."""
        breakers = self.breakers
        return None if breakers is None else breakers.began(endpoint)

    def over(self, endpoint: Endpoint, probes: Probes) -> None:
        """A probe is over, and what it says was told."""
        breakers = self.breakers
        if breakers is not None:
            breakers.over(endpoint, probes)

    def ended(self, endpoint: Endpoint, outcome: Outcome, seconds: float) -> None:
        """What one says, or what it says besides."""
        if outcome is NOTHING:
            return
        began = self.wheel.now() - seconds
        if not all(judge.fresh(endpoint, began) for judge in self._judges):
            return
        if self._board.leads:
            seen = one(outcome, seconds)
            for judge in self._judges:
                judge.observe(endpoint, seen)
            return
        at = where(endpoint)
        if self._endpoints.get(at) is not endpoint:
            return
        known = self._seen.get(at)
        if known is None:
            known = self._seen[at] = Seen()
        known.add(outcome, seconds)
        if outcome is not WELL and not self._soon and self.wheel.now() - self._told >= PAUSE / 2:
            self._soon = True
            self.wheel.soon(self._tell)
        elif not self._timer.active:
            self._timer.set(PAUSE if outcome is WELL else PAUSE / 2)

    def _tell(self) -> None:
        """To who leads."""
        self._soon = False
        self._timer.clear()
        seen, self._seen = self._seen, {}
        if seen and self._follows and not self._board.leads:
            self._told = self.wheel.now()
            self._board.tell(self._topic, [[at, self._age(at), each.plain()] for at, each in seen.items()])

    # -- the board

    def post(self, by: str, at: str, value: list[Any] | None, moved: bool) -> None:
        """See L{protogate.upstream.judge.Office}."""
        if value is None:
            self._ages.pop(at, None)
        elif moved:
            self._ages[at] = self._ages.get(at, 0) + 1
        if self._follows:
            self._board.post(self._topic, f"{by} {at}", None if value is None else [self._ages.get(at, 0), *value])

    def hold(self, endpoint: Endpoint, by: str, share: float, why: str) -> None:
        """See L{protogate.upstream.judge.Office}."""
        self._cluster.hold(endpoint, by, share, why)

    def limit(self, endpoint: Endpoint, by: str, share: float, why: str) -> None:
        """See L{protogate.upstream.judge.Office}."""
        self._cluster.limit(endpoint, by, share, why)

    def _posted(self, key: str, value: Any) -> None:
        by, _, at = key.partition(" ")
        judge = self.outliers if by == BY else self.breakers
        if value is None:
            self._ages.pop(at, None)
        elif value[0] > self._ages.get(at, 0):
            self._ages[at] = value[0]
            if at:
                self._seen.pop(at, None)
            else:
                self._seen.clear()
        # Of the two kinds of breakers, one does not know how the other one stands.
        if judge is not None and bool(at) is not isinstance(judge, UpstreamBreaker):
            judge.told(at, None if value is None else value[1:])

    def _heard(self, observed: Any) -> None:
        for at, age, plain in observed:
            endpoint = self._endpoints.get(at)
            if endpoint is None or age < self._age(at):  # who led a moment ago may have counted more
                continue
            seen = Seen.told(plain)
            for judge in self._judges:
                judge.observe(endpoint, seen)

    def _age(self, at: str) -> int:
        """Of an endpoint.  Who is at a lower one does not know yet that it was judged anew, and saw what was before."""
        return self._ages.get(at, 0) + self._ages.get("", 0)

    def _led(self, leads: bool) -> None:
        self._seen.clear()
        for judge in self._judges:
            judge.led(leads)


def topic(upstream: str) -> str:
    """Where on the board it stands how breakers, and who is left alone, stand."""
    return f"watch/{upstream}"


def reason(posted: Mapping[str, Any]) -> str:
    """Why the breaker of all of an upstream is not closed, by what is posted there; empty = it is told nowhere."""
    match posted.get(f"{BREAKER} "):
        case [*_, str(why)]:
            return why
    return ""


_KINDS: Final[dict[str, type[EndpointBreakers | UpstreamBreaker]]] = {
    "endpoint": EndpointBreakers,
    "upstream": UpstreamBreaker,
}


def verify(upstreams: Iterable[model.Upstream]) -> None:
    """
    Whether endpoints and upstreams can be judged as a configuration says.

    @raise ConfigFaults: some cannot.
    """
    faults: list[ConfigError] = []
    for index, upstream in enumerate(upstreams):
        outliers, breaker = upstream.outliers, upstream.circuit_breaker
        found = [("outliers", each) for each in (() if outliers is None else strange(outliers))]
        found += [("circuitBreaker", each) for each in (() if breaker is None else wrong(breaker))]
        for word, (key, message) in found:
            faults.append(ConfigError(message, ("upstreams", index, word, *((key,) if key else ()))))
    if faults:
        raise ConfigFaults(faults)
