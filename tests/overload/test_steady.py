"""The loop that is closed through the clients: less is let in, less waits, less is shed.  It does not swing far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from protogate.observe.counters import Counters
from protogate.overload.lag import Lag
from protogate.overload.overload import EVERY
from protogate.overload.shedding import Class, Shedding

SHED = 0.05
"""Of what serving a request costs; as in the story of too much to do."""
SECONDS = 24.0


@dataclass
class Loop:
    """
    Turns as a reactor makes them: each does all that has come before it began, one request after the other; then
    timers have their turn.  Who is asked while a look is overdue looks, as L{protogate.overload.overload} has it.

    @param over: times of what can be done that are asked, by chance.
    @param work: seconds of each request that is served.
    @param shares: of what is asked, by class, the most important one first.
    @ivar useful: of the second half, the part that was spent on who is served.
    @ivar waits: of those who were served in the second half, seconds until they were.
    @ivar longest: of all.
    @ivar refused: of the most important class, from the beginning; @ivar asked: likewise.
    """

    over: float
    work: float
    shares: tuple[float, ...]
    useful: float = 0.0
    waits: list[float] = field(default_factory=list)
    longest: float = 0.0
    refused: int = 0
    asked: int = 0

    def run(self) -> None:
        dice, now, due, looked = Random(7), 0.0, EVERY, 0.0
        lag, places = Lag(0.02, 0.1), range(len(self.shares))
        named: list[Class] = [(str(place), (lambda exchange: False) if place else None) for place in places]
        shedding = Shedding(named, 1.0, Counters())
        waiting: deque[tuple[float, int]] = deque()
        comes = dice.expovariate(self.over / self.work)
        while now < SECONDS:
            while comes <= now:
                waiting.append((comes, dice.choices(places, self.shares)[0]))
                comes += dice.expovariate(self.over / self.work)
            if not waiting:
                now = min(comes, due)
            for _ in range(len(waiting)):
                if now >= max(due, looked) + EVERY:
                    shedding.follow(lag.look(now - due, now - looked))
                    looked = now
                now = self._one(*waiting.popleft(), now, shedding, dice)
            if now >= due:
                if now - looked >= EVERY / 2:
                    shedding.follow(lag.look(now - due, now - looked))
                    looked = now
                due = now + EVERY

    def _one(self, came: float, place: int, now: float, shedding: Shedding, dice: Random) -> float:
        shed = dice.random() < shedding._shares[place]
        took = self.work * SHED if shed else self.work
        if not place:
            self.asked += 1
            self.refused += shed
        if not shed:
            self.longest = max(self.longest, now + took - came)
            if now > SECONDS / 2:
                self.useful += took * 2 / SECONDS
                self.waits.append(now + took - came)
        return now + took


@pytest.mark.parametrize("shares", [(1.0,), (0.1, 0.3, 0.6), (0.4, 0.3, 0.3)])
@pytest.mark.parametrize("work", [0.002, 0.008])
@pytest.mark.parametrize("over", [1.2, 2.0, 3.0])
def test_what_is_let_in_is_what_can_be_done(over: float, work: float, shares: tuple[float, ...]) -> None:
    loop = Loop(over, work, shares)
    loop.run()
    best = 1 - (over - 1) * SHED / (1 - SHED)  # the rest is spent on refusing
    waits = sorted(loop.waits)
    assert loop.useful > 0.94 * best, "it is not idle while others are refused"
    assert waits[len(waits) // 2] < 0.25
    assert waits[len(waits) * 99 // 100] < 0.35
    assert loop.longest < 1.2, "also while it begins"
    if shares[0] * over < 0.5:
        assert not loop.refused, "for the most important ones there is room"


def test_six_times_as_much_is_no_end_of_it() -> None:
    loop = Loop(6.0, 0.008, (0.1, 0.3, 0.6))
    loop.run()
    waits = sorted(loop.waits)
    assert loop.useful > 0.6
    assert waits[len(waits) * 99 // 100] < 0.5
    assert loop.longest < 1.0
    assert loop.refused < 0.1 * loop.asked
