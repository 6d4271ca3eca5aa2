"""
Who a breaker lets through, one by one, and what the others are told.

Rules
- A door does as its breaker says; it opens and closes nothing.
- While it is probed, so many are inside at a time.  On the ramp, one in so many is let through, evenly.
- Who is not let through is refused at once, and told when it is worth trying again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from twisted.logger import Logger

from protogate.errors import GATEWAY, Abort
from protogate.upstream.breaker import Breaker, State, Terms
from protogate.upstream.seen import Seen

SLACK: Final = 0.001
"""Seconds: sums of times are not exact."""


class Door:
    """
    Who is let through, one by one.

    @ivar under: probes under way.
    """

    __slots__ = ("_probes", "_share", "_sum", "under")

    def __init__(self) -> None:
        self._share, self._probes, self._sum, self.under = 1.0, 0, 0.0, 0

    def set(self, breaker: Breaker) -> None:
        """Do as it is now."""
        self._probes = breaker.terms.probes if breaker.state is State.PROBING else 0
        self._share, self._sum = breaker.share, 1.0 - breaker.share

    @property
    def probing(self) -> bool:
        """Whether who is let through is a probe: C{under} is to tell of it."""
        return self._probes > 0

    def admits(self) -> bool:
        """Whether the next one is let through."""
        if self._probes:
            return self.under < self._probes
        if not 0.0 < self._share < 1.0:
            return self._share > 0.0
        self._sum += self._share
        if self._sum < 1.0:
            return False
        self._sum -= 1.0
        return True


class Circuit:
    """
    A breaker that is judged here, and its door.

    @ivar breaker: @ivar door: these.
    """

    __slots__ = ("breaker", "door")

    def __init__(self, terms: Terms) -> None:
        self.breaker, self.door = Breaker(terms), Door()

    def see(self, seen: Seen, now: float) -> bool:
        """
        Something was seen that began since the last move.

        @return: whether state or step are others now.
        """
        breaker = self.breaker
        moves = breaker.moves
        why = breaker.observe(seen, now)
        if why:
            breaker.trip(why, now)
        return self._moved(moves)

    def turn(self, now: float) -> bool:
        """Time has passed.  @return: as L{see}."""
        moves = self.breaker.moves
        self.breaker.turn(now)
        return self._moved(moves)

    def change(self, terms: Terms) -> None:
        """Work by these from now on."""
        self.breaker.change(terms)
        self.door.set(self.breaker)

    def refusal(self, what: str, now: float) -> Abort:
        """For who is not let through.  @param what: whose breaker it is."""
        return refusal(what, self.breaker.why, self.breaker.left(now))

    def _moved(self, moves: int) -> bool:
        if self.breaker.moves == moves:
            return False
        self.door.set(self.breaker)
        return True


def tell(log: Logger, what: str, breaker: Breaker, count: Callable[[str], None], events: Mapping[State, str]) -> None:
    """
    Say to people, and count, what has become of a breaker.

    @param what: whose it is.
    @param events: what is counted, by the state that it has now; the others are not told.
    """
    state = breaker.state
    if state not in events:
        return
    count(events[state])
    if state is State.OPEN:
        seconds = breaker.due - breaker.since
        log.warn("{what} is open for {seconds:g} s: {why}", what=what, seconds=seconds, why=breaker.why)
    else:
        log.info("{what} is {state}", what=what, state="probed" if state is State.PROBING else "closed")


def refusal(what: str, why: str, seconds: float) -> Abort:
    """
    For who is not let through.

    @param what: whose breaker it is; C{why} it is open.
    @param seconds: until it is worth trying again.
    """
    return Abort(
        f"{what}: the circuit breaker is open: {why}",
        GATEWAY,
        503,
        error="destination_unavailable",
        detail="the circuit breaker is open",
        headers=[(b"retry-after", b"%d" % max(ceil(seconds - SLACK), 1))],
    )
