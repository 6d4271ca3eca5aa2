"""Endpoints that die, vanish, come and go, pause, are slow; and what health checks and second attempts make of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from protogate.testing.simulation.clients import Ask
from protogate.testing.simulation.holds import asked, at_once, balanced, counted, errors, judged, latency, left_alone
from protogate.testing.simulation.servers import Conduct, Reach
from protogate.testing.simulation.stories.common import FOUND, HEALTH, QUICK, crowd
from protogate.testing.simulation.story import Become, Call, Event, Pause, Reload, Story, dying, farm, flapping, gateway
from protogate.testing.simulation.waits import Always, Spread

if TYPE_CHECKING:
    from protogate.testing.simulation.world import World


TINY: Final = 1e-6
"""Seconds by which what is at the same time may differ."""


def weighted_shares(dice: Random) -> Story:
    """Each endpoint gets its weight's share, exactly as smooth as the sequence is."""
    servers = [replace(server, weight=dice.randint(1, 10) * 10) for server in farm(dice, 2, 8)]
    return Story(gateway(servers), servers, crowd(dice, 40), holds=(errors(0), balanced(0.1)), seconds=20)


def a_dead_endpoint(dice: Random) -> Story:
    """A process dies: nobody notices, for a refused connection is tried elsewhere; and soon it is left alone."""
    servers = farm(dice, 2, 6)
    dead, at, back = dice.choice(servers).name, dice.uniform(3, 6), dice.uniform(16, 20)
    # What it worked on when it died may be lost.
    holds = (
        errors(0, end=at - 1),
        errors(0, begin=at),
        asked(dead, 0, begin=at + FOUND, end=back),
        judged(dead, within=(at, at + FOUND), well=False),
        judged(dead, within=(back, back + FOUND), well=True),
        left_alone(),
    )
    config = gateway(servers, upstream={"healthCheck": HEALTH})
    return Story(config, servers, crowd(dice, 30), dying(dead, at, back), holds, seconds=30)


def two_dead_endpoints(dice: Random) -> Story:
    """Nobody looks at endpoints, and two of them refuse: who meets both is served by the third one asked."""
    servers = farm(dice, 3, 6)
    events = [
        Become(dice.uniform(2, 4), server.name, reach=Reach.REFUSES) for server in dice.sample(servers, 2)
    ]  # fmt: skip
    last = max(event.at for event in events)
    return Story(gateway(servers), servers, crowd(dice, 40), events, (errors(0, begin=last),), seconds=12)


def a_vanished_endpoint(dice: Random) -> Story:
    """A host is gone, and no packet comes back: until health checks find out, what it was sent runs into a clock."""
    servers = farm(dice, 2, 6)
    reach = dice.choice((Reach.SILENT, Reach.MUTE))
    gone, at, back = dice.choice(servers).name, dice.uniform(3, 6), dice.uniform(16, 20)

    def unexpected(ask: Ask) -> bool:
        return ask.status not in (200, 504)

    holds = (
        errors(0, end=at - 1),
        errors(0, which=unexpected),
        errors(0, begin=at + FOUND),
        asked(gone, 0, begin=at + FOUND, end=back),
        judged(gone, within=(at, at + FOUND), well=False),
        latency(100, 2.2),
        left_alone(),
    )
    config = gateway(servers, upstream={"healthCheck": HEALTH, "timeouts": {**QUICK, "queue": "5s"}})
    return Story(config, servers, crowd(dice, 30), dying(gone, at, back, reach), holds, seconds=30)


def a_flapping_endpoint(dice: Random) -> Story:
    """A process that crashes again and again costs clients nothing but what it worked on when it did."""
    servers = farm(dice, 2, 5)
    flaps, period = dice.choice(servers).name, dice.uniform(0.7, 6)
    events = flapping(flaps, 3.0, 20.0, period, reach=Reach.REFUSES)
    crashes = [event.at for event in events[::2]]

    def unexpected(ask: Ask) -> bool:
        return not ask.well and not any(ask.began - TINY <= at <= ask.ended + TINY for at in crashes)

    config = gateway(servers, upstream={"healthCheck": HEALTH})
    return Story(config, servers, crowd(dice, 30), events, (errors(0, which=unexpected), errors(0.05)), seconds=26)


def a_check_that_is_wrong(dice: Random) -> Story:
    """When no endpoint is well, all get their share: a wrong check takes no service down."""
    servers = farm(dice, 1, 5)
    events = [Become(dice.uniform(2, 5), server.name, well=False) for server in servers]
    config = gateway(servers, upstream={"healthCheck": HEALTH})
    holds = (errors(0), counted("nobody_well", 1), counted("endpoint_down", len(servers), len(servers)))
    return Story(config, servers, crowd(dice, 30), events, holds, seconds=20)


def a_pause(dice: Random) -> Story:
    """An endpoint stops for less than any clock, and does all at once: answers are late, and none is lost."""
    servers = farm(dice, 1, 5)
    events: list[Event] = [
        Pause(dice.uniform(2, 18), dice.choice(servers).name, dice.uniform(0.1, 1.0)) for _ in range(dice.randint(1, 5))
    ]
    config = gateway(servers, upstream={"healthCheck": {**HEALTH, "timeout": "1s", "interval": "2s"}})
    return Story(config, servers, crowd(dice, 30), events, (errors(0), latency(50, 0.1)), seconds=20)


def endpoints_that_are_full(dice: Random) -> Story:
    """
    Each endpoint works on as many as it has connections: others wait in the gateway, at most C{queue} long, and
    nobody is asked for more at a time.
    """
    most = dice.randint(2, 6)
    servers = farm(dice, 2, 4, Conduct(latency=Spread(0.08, 0.3)))
    rate = len(servers) * most / 0.085 * dice.uniform(0.3, 0.6)
    pool = {"maxPerEndpoint": most}
    config = gateway(servers, upstream={"pool": pool, "timeouts": {"queue": "1s"}})
    holds = (errors(0), latency(99, 1.2), at_once(most))
    return Story(config, servers, crowd(dice, min(rate, 120)), holds=holds, seconds=10)


def endpoints_are_replaced(dice: Random) -> Story:
    """New endpoints come by a reload, old ones go by the next, and end well afterwards: no client notices."""
    servers = farm(dice, 4, 8)
    half = len(servers) // 2
    old, new = servers[:half], servers[half:]
    check = {"healthCheck": HEALTH} if dice.random() < 0.5 else {}
    events: list[Event] = [
        Reload(5.0, gateway(servers, upstream=check)),
        Reload(10.0, gateway(new, upstream=check)),
        *(Become(dice.uniform(11.5, 14), server.name, reach=Reach.LEAVES) for server in old),
    ]
    holds = (
        errors(0),
        *(asked(server.name, 0, end=5.0) for server in new),
        *(asked(server.name, 0, begin=10.1) for server in old),
    )
    return Story(gateway(old, upstream=check), servers, crowd(dice, 30), events, holds, seconds=20)


def names_that_change(dice: Random) -> Story:
    """Endpoints are found by DNS, change, and their name server fails: nobody is asked that is not named."""
    servers = [replace(server, url=server.url.replace(":8000", ":80")) for server in farm(dice, 3, 6)]
    hosts = [f"10.0.0.{index + 1}" for index in range(len(servers))]
    first, second = hosts[:-1], hosts[1:]

    def become(world: World) -> None:
        world.names.hosts["farm.test"] = second

    config = gateway([], upstream={"discovery": {"dns": "farm.test:80"}})
    events = [Call(8.0, "the name stands for others", become)]
    holds = (
        errors(0),
        asked(servers[-1].name, 0, end=8.0),
        asked(servers[0].name, 0, begin=8.0 + 2.2 + 0.1),
        asked(servers[-1].name, 1e9, least=1, begin=11.0),
    )
    return Story(config, servers, crowd(dice, 30), events, holds, seconds=16, hosts={"farm.test": first}, ttl=2)


def impatient_clients(dice: Random) -> Story:
    """Clients leave and ask again while endpoints are slow: what nobody waits for is given up at the endpoints, too."""
    servers = farm(dice, 1, 4, Conduct(latency=Spread(0.2, 1.0), slots=4))
    clients = crowd(dice, 25, patience=Always(0.6), retries=dice.randint(0, 2))
    clocks = {"timeouts": {"queue": "1s"}}
    return Story(gateway(servers, upstream=clocks), servers, clients, seconds=15)


STORIES: Final = (
    weighted_shares,
    a_dead_endpoint,
    two_dead_endpoints,
    a_vanished_endpoint,
    a_flapping_endpoint,
    a_check_that_is_wrong,
    a_pause,
    endpoints_that_are_full,
    endpoints_are_replaced,
    names_that_change,
    impatient_clients,
)
