"""Requests that are sent again, or twice at once; and what budgets keep that from becoming."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import attempts, errors, latency
from protogate.testing.simulation.servers import Conduct
from protogate.testing.simulation.stories.common import PROTOCOLS, QUICK, crowd
from protogate.testing.simulation.story import Become, Event, Hold, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Always, Between, Either, Spread

STEADY: Final = Conduct(latency=Spread(0.02, 0.4))


def within_budget(percent: float, floor: float) -> Hold:
    """Attempts on top of those that clients asked for: the share of them, the floor, and ten seconds of that."""

    def hold(tale: Tale) -> Iterator[str]:
        more = floor * (tale.story.seconds + 10) + 1
        yield from attempts(1 + percent / 100, more=more)(tale)

    return hold


def one_that_fails(dice: Random) -> Story:
    """One endpoint answers 503, hangs or breaks off: what may be sent again is answered well, by another one."""
    servers = farm(dice, 3, 6, STEADY)
    bad, at = dice.choice(servers).name, dice.uniform(2, 4)
    how = dice.choice(({"errors": 1.0}, {"hangs": 1.0}, {"breaks": 1.0}))
    retry = {"on": ["reset", "timeout"], "statuses": "502-504", "perTry": "300ms", "budget": 60, "floor": 10}
    config = gateway(servers, upstream={"retry": retry, "timeouts": QUICK})
    holds = (errors(0), within_budget(60, 10), latency(100, 2.5))
    return Story(config, servers, crowd(dice, 40), [Become(at, bad, **how)], holds, seconds=14)


def all_that_fail(dice: Random) -> Story:
    """All endpoints fail: attempts on top are held to the budget, so that the gateway does not make it worse."""
    servers = farm(dice, 1, 5, STEADY)
    at, back = dice.uniform(2, 4), dice.uniform(14, 16)
    how = dice.choice(({"errors": 1.0}, {"errors": 0.5}, {"hangs": 1.0}, {"breaks": 1.0}, {"breaks": 0.5}))
    usual = {name: getattr(Conduct(), name) for name in how}
    events: list[Event] = [Become(at, server.name, **how) for server in servers]
    events += [Become(back, server.name, **usual) for server in servers]
    budget, floor = dice.choice((0, 10, 20, 50)), dice.choice((0, 1, 5))
    retry = {
        "attempts": dice.randint(2, 6),
        "on": ["reset", "timeout"],
        "statuses": "500-599",
        "budget": budget,
        "floor": floor,
        "backoff": dice.choice(("0s", "25ms", "200ms")),
    }
    config = gateway(servers, upstream={"retry": retry, "timeouts": {**QUICK, "responseHead": "500ms"}})
    # A connection that had served before and was lost may be idle connections' usual end: that is not in the budget.
    free = 1 if "breaks" in how else 0
    holds = (
        errors(0, end=at - 0.6),
        errors(0, begin=back + 0.1),
        within_budget(budget + 100 * free, floor),
    )
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=20)


def hedged(dice: Random) -> Story:
    """Some answers take very long: they are asked for a second time, elsewhere, and the first answer is the one."""
    rare = dice.uniform(0.01, 0.04)
    servers = farm(dice, 2, 6, Conduct(latency=Either(rare, Between(1.0, 2.0), Spread(0.02, 0.4))))
    hedge = {"quantile": 0.9, "minRequests": 50, "budget": 20, "floor": 1}
    config = gateway(servers, upstream={"hedge": hedge})
    # Both attempts are slow once in 1 ÷ rare², and the budget is enough for a tenth of all.
    holds = (
        errors(0),
        attempts(1.20, more=1 * 40 + 1),
        errors(0.01, begin=5, which=lambda ask: ask.latency > 0.6),
    )
    return Story(config, servers, crowd(dice, 60), holds=holds, seconds=20)


def hedged_while_all_are_slow(dice: Random) -> Story:
    """All endpoints get slow at once: second attempts are held to their budget, and do not make it worse."""
    servers = farm(dice, 2, 6, STEADY)
    at = dice.uniform(5, 7)
    slow = Spread(dice.uniform(0.3, 1.0), 0.3)
    events = [Become(at, server.name, latency=slow) for server in servers]
    budget = dice.choice((5, 10, 20))
    config = gateway(servers, upstream={"hedge": {"minRequests": 50, "budget": budget, "floor": 1}})
    holds = (errors(0), within_budget(budget, 1))
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=16)


def a_storm(dice: Random) -> Story:
    """
    Endpoints are full for a while, clients lose patience and ask again, and endpoints work on what nobody waits for:
    with a budget the gateway adds no more than that to the storm, and when what caused it is over it passes.
    """
    servers = farm(dice, 2, 3, Conduct(latency=Spread(0.05, 0.3), slots=4, notices=False))
    rate = len(servers) * 4 / 0.053 * 0.3
    at = 4.0
    events: list[Event] = [Become(at, server.name, latency=Spread(0.5, 0.3)) for server in servers]
    events += [Become(at + 4, server.name, latency=Spread(0.05, 0.3)) for server in servers]
    protocol = dice.choice(PROTOCOLS)
    clients = [
        Clients(
            rate=rate,
            protocol=protocol,
            patience=Always(1.0),
            retries=1,
            backoff=Between(0.1, 1),
            targets=("/7/simulated",),
        )
    ]
    retry = {"on": ["timeout"], "statuses": "503-504", "budget": 10, "floor": 1}
    clocks = {"responseHead": "600ms", "queue": "500ms"}
    config = gateway(
        servers, upstream={"retry": retry, "timeouts": clocks, "pool": {"maxPerEndpoint": 16, "queue": 50}}
    )

    def passes(tale: Tale) -> Iterator[str]:
        wrong = [ask for ask in tale.asked(at + 18) if not ask.well]
        if wrong:
            yield f"{len(wrong)} asks went wrong long after the storm should be over"

    holds = (errors(0, end=at - 1), passes, within_budget(10, 1))
    return Story(config, servers, clients, events, holds, seconds=at + 24)


STORIES: Final = (one_that_fails, all_that_fail, hedged, hedged_while_all_are_slow, a_storm)
