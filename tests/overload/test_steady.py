"""The loop that is closed through the clients: less is let in, less waits, less is shed.  It does not swing far."""

from __future__ import annotations

import pytest

from protogate.observe.counters import Counters
from protogate.overload.level import Level
from protogate.overload.overload import EVERY
from protogate.overload.shedding import Class, Shedding

SERVED = 0.002
"""Seconds of CPU that a request takes."""
SHED = 0.0004
"""And one that is refused."""
MOST = 2000
"""Clients: so many requests may wait at most."""
LEAST = 0.001
"""Seconds of a turn of the loop in which there is little to do."""
SECONDS = 40.0


def run(over: float, classes: int) -> tuple[list[float], float]:
    """
    A loop that is asked so many times more than it can do: in each turn it does all that waits, so it is as late as
    that takes, and as much more waits for it then.

    @return: how late it was at each look of the last half, from the least to the most; and how much of the time it
        worked for who is served.
    """
    named: list[Class] = [(str(place), (lambda exchange: False) if place else None) for place in range(classes)]
    shedding, level = Shedding(named, 1.0, Counters()), Level(0.02, 0.1)
    waiting = before = useful = spent = 0.0
    lates: list[float] = []
    for look in range(int(SECONDS / EVERY)):
        refused = sum(shedding._shares) / classes
        late, left, counts = 0.0, EVERY, look * EVERY > SECONDS / 2
        while left > 0:  # turns until the next look
            asked = max(waiting * SERVED, LEAST) / SERVED * over
            turn = waiting * SERVED + asked * refused * SHED
            late, left = max(late, turn), left - max(turn, LEAST)
            if counts:
                useful, spent = useful + waiting * SERVED, spent + max(turn, LEAST)
            waiting = min(max(turn, LEAST) / SERVED * over * (1 - refused), MOST)
        shedding.follow(level.look(min(before, late)))
        before = late
        if counts:
            lates.append(late)
    return sorted(lates), useful / spent


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("over", [1.2, 1.5, 2.0, 3.0])
def test_what_is_let_in_is_what_can_be_done(over: float, classes: int) -> None:
    lates, useful = run(over, classes)
    best = SERVED / (SERVED + (over - 1) * SHED)
    assert useful > 0.9 * best, "it is not idle while others are refused"
    assert lates[len(lates) // 2] < 0.15
    assert lates[len(lates) * 95 // 100] < 0.4
    assert lates[-1] < MOST * SERVED / 4, "without shedding it would be that late all the time, four times over"
