"""
A circuit breaker: whether it makes sense to ask somebody, by how those fared who did.

Rules
- One machine, a table, for everything that opens and closes: endpoints, upstreams, routes; and for endpoints that are
  left alone for a while.
- It opens when its L{Terms} are broken, and stays open for a time that doubles each time that it opens again; this is
  forgotten after it was closed for twice as long.
- Then so many probes must do well, one bad one opens it; then more and more is let through (L{RAMP}), as long as the
  terms hold.  It closes when they hold by far: what is as bad as not at all changes nothing again and again.
- What began before its last move says nothing.  What was seen while it was not closed is not what it is judged by
  afterwards: a few quick probes are no quantile.
- It has no clock and no timer: it is told what time it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, inf
from types import MappingProxyType
from typing import Any, Final

from protogate.config import model
from protogate.upstream.seen import Seen
from protogate.upstream.window import Window

RAMP: Final[tuple[float, ...]] = (0.1, 0.25, 0.5, 0.75)
"""What is let through on the way back, a quarter of the ramp's time each."""
TRY: Final = 0.05
"""The part of its requests that an endpoint gets while it is probed."""
CALM: Final = 0.5
"""The part of an error ratio that is far enough from it; of a row of failures, too."""
QUICK: Final = 0.9
"""The part of a latency that is."""


class State(IntEnum):
    """Of a breaker."""

    CLOSED = 0
    """Everything is let through."""
    OPEN = 1
    """Nothing is."""
    PROBING = 2
    """A few are, to find out."""
    RAMPING = 3
    """More and more are."""


class Event(IntEnum):
    """What moves it."""

    FAULT = 0
    """The terms are broken."""
    OVER = 1
    """Its time is over."""
    GOOD = 2
    """All that had to do well did."""


STATES: Final = ("closed", "open", "probing", "ramping")
TABLE: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        State.CLOSED: {Event.FAULT: State.OPEN},
        State.OPEN: {Event.OVER: State.PROBING},
        State.PROBING: {Event.FAULT: State.OPEN, Event.GOOD: State.RAMPING},
        State.RAMPING: {Event.FAULT: State.OPEN, Event.GOOD: State.CLOSED},
    }
)
TRANSITIONS: Final = {state: tuple(following.values()) for state, following in TABLE.items()}
"""For pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    What a breaker works by; times in seconds.

    @ivar ratio: of failures; 0 = whatever it is.
    @ivar consecutive: failures in a row; 0 = however many.
    @ivar latency: that C{quantile} of the answers may take; 0 = as long as they like.
    @ivar window: how far back all of that goes.
    @ivar least: attempts within it below which ratio and latency say nothing.
    @ivar open: how long it is open at first.
    @ivar most: how long it is open at last.
    @ivar probes: that must do well; 0 = it is ramped up at once.
    @ivar ramp: how long that takes.
    """

    ratio: float
    consecutive: int
    latency: float
    quantile: float
    window: float
    least: int
    open: float
    most: float
    probes: int
    ramp: float

    @classmethod
    def of(cls, settings: model.CircuitBreaker, parts: int = 1) -> Terms:
        """
        As a configuration says.

        @param parts: of how many that work by it, and do not tell each other, this is one: each sees a part of what
            there is to see.
        """
        return cls(
            ratio=settings.error_ratio,
            consecutive=settings.consecutive,
            latency=float(settings.latency),
            quantile=settings.latency_quantile,
            window=float(settings.window),
            least=ceil(settings.min_requests / parts),
            open=float(settings.open),
            most=float(settings.max_open),
            probes=settings.probes,
            ramp=float(settings.ramp),
        )


class Breaker:
    """
    @ivar state: @ivar step: where it is; of the ramp, which step.
    @ivar since: when it came into that state.
    @ivar due: when L{turn} has something to do; C{inf} = never.
    @ivar times: how often in a row it opened.
    @ivar why: it opened last, for people.
    @ivar moves: how often state or step have changed.
    """

    __slots__ = ("_good", "_last", "_row", "_window", "due", "moves", "since", "state", "step", "terms", "times", "why")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.state, self.step, self.since, self.due = State.CLOSED, 0, -inf, inf
        self.times = self.moves = 0
        self.why = ""
        self._last = 0.0  # seconds that it was open last
        self._row = self._good = 0
        self._window = Window(terms.window, terms.latency > 0)

    @property
    def share(self) -> float:
        """Of what would be sent without it."""
        if self.state is State.RAMPING:
            return RAMP[self.step]
        return _SHARES[self.state]

    def left(self, now: float) -> float:
        """Seconds until it is worth trying again."""
        return max(self.due - now, 0.0) if self.state is State.OPEN else 0.0

    def remembers(self, now: float) -> bool:
        """Whether it is anything but a new one, apart from what it has seen."""
        return self.state is not State.CLOSED or (self.times > 0 and not self._forgotten(now))

    def change(self, terms: Terms) -> None:
        """Work by these from now on; what was found out stays, as far as they ask for it."""
        if (terms.window, terms.latency > 0) != (self.terms.window, self.terms.latency > 0):
            self._window = Window(terms.window, terms.latency > 0)
        self.terms = terms

    # -- what moves it

    def observe(self, seen: Seen, now: float) -> str:
        """
        Something was seen that began since the last move.

        @return: why the terms are broken, for people; then it is for the caller to L{trip} or to L{spare} it.
        """
        if self.state is State.OPEN:
            return ""  # whoever asked nevertheless
        if self.state is State.PROBING:
            return self._probed(seen, now)
        self._row = seen.row if seen.well else self._row + seen.row
        self._window.add(seen, now)
        return self._fault()

    def trip(self, why: str, now: float) -> None:
        """Open it."""
        terms = self.terms
        if self.state is State.CLOSED and self._forgotten(now):
            self.times = 0
        self.times += 1
        self.why = why
        self._last = min(terms.open * 2.0 ** min(self.times - 1, 32), max(terms.most, terms.open))
        self._move(Event.FAULT, now, self._last)

    def spare(self) -> None:
        """It is not opened, although it should be: nothing is known from now on."""
        self._forget()

    def turn(self, now: float) -> None:
        """It is C{due}."""
        if now < self.due:
            return
        if self.state is State.OPEN:
            self._move(Event.OVER, now, inf)
            if not self.terms.probes:
                self._ramp(now)
        elif self.step + 1 < len(RAMP):
            self.step += 1
            self.moves += 1
            self.due = now + self._pause()
        else:
            self._window.turn(now)
            if self._calm():
                self._move(Event.GOOD, now, inf)
            else:
                self.due = now + self._pause()

    # -- for who goes on in another process

    def plain(self, now: float) -> list[Any]:
        """What there is to know about it; times are how long they are from now."""
        due = None if self.due == inf else max(self.due - now, 0.0)
        return [int(self.state), self.step, due, self.times, self._last, self.why]

    def take(self, plain: Sequence[Any], now: float) -> None:
        """Be as another process says.  @raise ValueError: it says nothing of the kind."""
        state, step, due, times, last, why = plain
        before, self.state = self.state, State(state)
        if not 0 <= int(step) < len(RAMP):
            raise ValueError(f"no step: {step!r}")
        self.step, self.times, self._last, self.why = int(step), int(times), float(last), str(why)
        self.due = inf if due is None else now + float(due)
        self.moves += 1
        if before is not self.state:
            self.since = now
            self._forget()

    # --

    def _forgotten(self, now: float) -> bool:
        """Of a closed one, whether it was so for long enough."""
        return now - self.since >= max(2 * self._last, self.terms.window)

    def _probed(self, seen: Seen, now: float) -> str:
        terms = self.terms
        if seen.bad:
            return f"a probe failed ({said(seen.errors, seen.failed)})"
        if terms.latency and seen.slow(terms.latency):
            return f"a probe took more than {terms.latency:g} s"
        self._good += seen.well
        if self._good >= terms.probes:
            self._ramp(now)
        return ""

    def _ramp(self, now: float) -> None:
        self._move(Event.GOOD, now, self._pause())
        if not self.terms.ramp:
            self._move(Event.GOOD, now, inf)

    def _pause(self) -> float:
        """Of a step of the ramp."""
        return self.terms.ramp / len(RAMP) or 0.001

    def _fault(self) -> str:
        terms, window = self.terms, self._window
        if terms.consecutive and self._row >= terms.consecutive:
            return f"{self._row} failures in a row"
        least = terms.least if self.state is State.CLOSED else max(terms.probes, terms.least // 4, 1)
        total = window.total
        if total < least:
            return ""
        if terms.ratio and window.bad and window.ratio >= terms.ratio:
            told = said(window.errors, window.failed)
            return f"{window.bad} of {total} failed within {terms.window:g} s ({told})"
        if terms.latency and window.well >= least:
            took = window.quantile(terms.quantile)
            if took > terms.latency:
                return f"{terms.quantile:.4g} of {window.well} answers took up to {took:.3g} s"
        return ""

    def _calm(self) -> bool:
        terms, window = self.terms, self._window
        if terms.consecutive and self._row >= max(terms.consecutive * CALM, 1):
            return False
        if terms.ratio and window.ratio > terms.ratio * CALM:
            return False
        return not terms.latency or window.quantile(terms.quantile) <= terms.latency * QUICK

    def _move(self, event: Event, now: float, seconds: float) -> None:
        """@param seconds: after which it is due."""
        self.state = TABLE[self.state][event]
        self.step, self.since, self.due = 0, now, now + seconds
        self.moves += 1
        self._forget()

    def _forget(self) -> None:
        self._row = self._good = 0
        self._window.clear()


_SHARES: Final[dict[State, float]] = {State.CLOSED: 1.0, State.OPEN: 0.0, State.PROBING: TRY, State.RAMPING: RAMP[0]}


def wrong(settings: model.CircuitBreaker) -> Iterator[tuple[str, str]]:
    """What these settings cannot mean: the key, empty where it is all of them, and what to do."""
    if not settings.consecutive and not settings.error_ratio and not settings.latency:
        yield "", "nothing would ever open it: give errorRatio, consecutive or latency"
    if settings.latency and not 0 < settings.latency_quantile < 1:
        yield "latencyQuantile", f"expected more than 0 and less than 1, got {settings.latency_quantile:g}"
    if settings.max_open < settings.open:
        yield "maxOpen", "less than open, which only grows"


def said(errors: int, failed: int) -> str:
    """How it was bad."""
    told = [f"{errors} answered 5xx"] if errors else []
    return ", ".join(told + ([f"{failed} gave no answer"] if failed else []))
