"""Modules between clients and endpoints: what they let through, keep, and do while their store is away."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import at_once, errors, latency
from protogate.testing.simulation.servers import Conduct
from protogate.testing.simulation.stories.common import crowd
from protogate.testing.simulation.story import Call, Hold, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Spread

if TYPE_CHECKING:
    from protogate.testing.simulation.world import World

SLACK: Final = 0.001
"""Of a request: how exact limits are."""
REDIS: Final = ("10.9.0.1", 6379)


def _passed(limit: float, burst: int, addresses: int) -> Hold:
    """In no time do more pass than the limit says: burst + limit × t, for each address."""

    def hold(tale: Tale) -> Iterator[str]:
        taken: dict[str, list[float]] = {}
        began = {ask.agent: ask.began for ask in tale.asks}
        for record in tale.records:
            if record.status == 200:
                taken.setdefault(record.client, []).append(began[record.agent])
        if len(taken) > addresses:
            yield f"there are {len(taken)} clients, not {addresses}"
        for client, times in taken.items():
            times.sort()
            for index, begin in enumerate(times):
                # It is enough to look at times that begin and end with one that passed.
                for more, end in enumerate(times[index + burst :], burst + 1):
                    if more > burst + limit * (end - begin) + SLACK:
                        yield f"{client}: {more} passed from {begin:.3f} to {end:.3f} s"
                        break

    return hold


def limited_rate(dice: Random) -> Story:
    """Whoever asks too often is refused, and no more passes than the limit says, in any time."""
    servers = farm(dice, 1, 3)
    limit, burst, addresses = dice.randint(2, 10), dice.randint(2, 20), dice.randint(1, 4)
    module = {"name": "rateLimit", "actionParam": {"limit": f"{limit}/s", "burst": burst}}
    clients = [Clients(rate=limit * addresses * dice.uniform(0.5, 3), addresses=addresses)]
    holds = (errors(0, which=lambda ask: ask.status not in (200, 429)), _passed(limit, burst, addresses))
    return Story(gateway(servers, modules=[module]), servers, clients, holds=holds, seconds=20)


def limited_rate_without_redis(dice: Random) -> Story:
    """The Redis of a limit goes away and comes back: no error, no wait, and what C{whenStoreFails} says meanwhile."""
    servers = farm(dice, 1, 3)
    limit, choice = dice.randint(5, 10), dice.choice(("local", "open", "closed"))
    module = {
        "name": "rateLimit",
        "actionParam": {
            "name": "simulated",
            "limit": f"{limit}/s",
            "redis": {"url": f"redis://{REDIS[0]}:{REDIS[1]}", "timeout": "20ms"},
            "whenStoreFails": choice,
        },
    }

    def away(world: World) -> None:
        world.redis.silent = True

    def back(world: World) -> None:
        world.redis.speak()

    def drop(world: World) -> None:
        world.redis.drop()

    at, until = dice.uniform(5, 7), dice.uniform(12, 14)
    events = [Call(at, "Redis says nothing", away), Call(until, "Redis speaks", back), Call(16.0, "it drops all", drop)]
    fine = (200, 429, 503) if choice == "closed" else (200, 429)

    def passed(tale: Tale) -> Iterator[str]:
        during = [ask for ask in tale.asked(at + 0.1, until) if ask.status == 200]
        asked, most = len(tale.asked(at + 0.1, until)), limit * (until - at) + limit + 1
        if choice == "local" and len(during) > most:
            yield f"{len(during)} passed while Redis was away, more than {most:.0f}"
        if choice == "open" and len(during) != asked:
            yield f"{len(during)} of {asked} passed while Redis was away"
        if choice == "closed" and during:
            yield f"{len(during)} passed while Redis was away"

    clients = [Clients(rate=limit * dice.uniform(1, 3))]
    holds = (errors(0, which=lambda ask: ask.status not in fine), passed, latency(100, 0.6))
    return Story(gateway(servers, modules=[module]), servers, clients, events, holds, seconds=20, redis=REDIS)


def limited_concurrency(dice: Random) -> Story:
    """No more are under way at a time than the limit says; who waits is served in time, or refused."""
    servers = farm(dice, 1, 3, Conduct(latency=Spread(0.1, 0.5)))
    limit, queue = dice.randint(2, 8), dice.randint(0, 10)
    module = {
        "name": "concurrencyLimit",
        "stage": "PRE_UPSTREAM",
        "actionParam": {"limit": limit, **({"queue": queue, "wait": "300ms"} if queue else {})},
    }

    def most(tale: Tale) -> Iterator[str]:
        times = [(ask.began, 1) for ask in tale.asks if ask.status == 200]
        times += [(ask.ended, -1) for ask in tale.asks if ask.status == 200]
        now = highest = 0
        for _, change in sorted(times):
            now += change
            highest = max(highest, now)
        if highest > limit + queue:
            yield f"{highest} were under way at a time, not {limit} and {queue} that waited"

    holds = (errors(0, which=lambda ask: ask.status not in (200, 503)), most, at_once(limit))
    clients = crowd(dice, limit / 0.11 * dice.uniform(0.5, 2))
    return Story(gateway(servers, modules=[module]), servers, clients, holds=holds, seconds=20)


STORIES: Final = (limited_rate, limited_rate_without_redis, limited_concurrency)
