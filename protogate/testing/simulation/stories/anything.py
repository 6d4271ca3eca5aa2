"""Anything goes: all that may happen to endpoints at once, under any policy, with clients of all kinds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.servers import Conduct, Reach, Server
from protogate.testing.simulation.stories.common import HEALTH, PROTOCOLS, QUICK
from protogate.testing.simulation.stories.overload import CLASSES, OFF
from protogate.testing.simulation.story import Become, Call, Event, Pause, Reload, Story, gateway
from protogate.testing.simulation.waits import Between, Spread

if TYPE_CHECKING:
    from protogate.testing.simulation.world import World

SECONDS: Final = 15.0
REDIS: Final = ("10.9.0.1", 6379)
_KEPT: Final = (b"max-age=1", b"max-age=0, stale-while-revalidate=5", b"max-age=1, stale-if-error=10")


def _mute(world: World) -> None:
    world.redis.silent = True


def _speak(world: World) -> None:
    world.redis.speak()


def _conduct(dice: Random) -> dict[str, Any]:
    """What a server may become."""
    part = dice.choice((0.1, 0.5, 1.0))
    return dice.choice(
        (
            {"reach": dice.choice(tuple(Reach))},
            {"errors": part, "status": dice.choice((500, 502, 503, 429))},
            {"hangs": part},
            {"stalls": part},
            {"breaks": part},
            {"latency": Spread(dice.choice((0.005, 0.1, 1.0)), dice.uniform(0.1, 1.5))},
            {"slots": dice.randint(1, 5), "notices": dice.random() < 0.5},
            {"well": False},
            {"size": dice.choice((0, 1, 5000, 200_000))},
            {"fields": ((b"cache-control", dice.choice(_KEPT)),)},
        )
    )


def policies(dice: Random) -> dict[str, Any]:
    """Some settings of an upstream."""
    chosen: dict[str, Any] = {"timeouts": QUICK, "pool": {"maxPerEndpoint": dice.choice((1, 3, 100)), "queue": 20}}
    maybe: dict[str, Any] = {
        "healthCheck": HEALTH,
        "outliers": {
            "consecutive": dice.randint(2, 6),
            "interval": "3s",
            "minRequests": 5,
            "ejection": "2s",
            "ramp": "2s",
        },
        "circuitBreaker": {
            "scope": dice.choice(("endpoint", "upstream")),
            "consecutive": dice.choice((0, 4)),
            "window": "3s",
            "minRequests": 5,
            "latency": dice.choice(("0s", "500ms")),
            "open": "1s",
            "ramp": "2s",
        },
        "slowStart": "3s",
        "retry": {
            "attempts": dice.randint(1, 5),
            "on": dice.choice(([], ["reset"], ["timeout"], ["reset", "timeout"])),
            "statuses": dice.choice(("503", "500-599")),
            "methods": dice.choice((["GET", "PUT"], ["GET", "PUT", "POST"])),
            "budget": dice.choice((0, 20, 100)),
        },
        "hedge": dice.choice(({"after": "100ms", "budget": 50}, {"quantile": 0.8, "minRequests": 20})),
        "balance": dice.choice(("leastRequest", "peakEwma")),
    }
    chosen.update((name, value) for name, value in maybe.items() if dice.random() < 0.5)
    if dice.random() < 0.2:
        chosen["balance"], chosen["hash"] = "hash", {"key": "request.headers['user-agent']"}
    return chosen


def _modules(dice: Random) -> list[dict[str, Any]]:
    """Some modules, in the order in which they make sense."""
    every: list[dict[str, Any]] = [
        {"name": "concurrencyLimit", "actionParam": {"limit": dice.randint(5, 40), "queue": 5, "wait": "200ms"}},
        {"name": "rateLimit", "actionParam": {"limit": f"{dice.randint(5, 50)}/s"}},
        {"name": "degrade", "ruleOrder": 10, "actionParam": {"give": [{"cached": {}}, {"answer": {"text": "later"}}]}},
        {"name": "circuitBreaker", "ruleOrder": 20, "actionParam": {"minRequests": 5, "open": "1s", "ramp": "2s"}},
        {"name": "trafficCopy", "ruleOrder": 30, "actionParam": {"upstream": "next", "timeout": "2s", "compare": {}}},
        {"name": "compress", "stage": "PRE_RESPONSE"},
        {"name": "cache", "ruleOrder": 5, "actionParam": {"staleIfError": dice.choice(("0s", "10s"))}},
        {
            "name": "rateLimit",
            "ruleOrder": 1,
            "actionParam": {
                "name": "shared",
                "limit": f"{dice.randint(5, 50)}/s",
                "redis": {"url": f"redis://{REDIS[0]}:{REDIS[1]}"},
                "whenStoreFails": dice.choice(("local", "open", "closed")),
            },
        },
    ]
    return [each for each in every if dice.random() < 0.3]


def _routes(dice: Random) -> list[dict[str, Any]] | None:
    """Now and then a new version, for some."""
    if dice.random() < 0.6:
        return None
    hold = {"window": "10s", "minRequests": 10}
    new: dict[str, Any] = {"upstream": "next", "gray": 50, **({"hold": hold} if dice.random() < 0.5 else {})}
    return [
        {
            "name": "all",
            "value": "/",
            "matcherType": "prefix",
            "routes": [{"cohort": "request.headers['user-agent']", "targets": [{"upstream": "farm"}, new]}],
        }
    ]


def anything(dice: Random) -> Story:
    """Whatever happens: each request ends once, with one record, and nothing is left behind."""
    protocol = dice.choice(PROTOCOLS)
    servers = [
        Server(
            chr(97 + index),
            f"http://10.0.0.{index + 1}:8000",
            weight=dice.choice((0, 1, 100)),
            protocol=protocol,
        )
        for index in range(dice.randint(1, 6))
    ]
    servers[0] = replace(servers[0], weight=100)
    upstream = {"protocol": protocol}
    other = Server("next", "http://10.8.0.1:8000")

    def config() -> dict[str, Any]:
        chosen = dice.sample(servers, dice.randint(1, len(servers)))
        return gateway(
            chosen,
            upstream={**policies(dice), **upstream},
            settings={"overload": {"priorities": CLASSES, **OFF}} if dice.random() < 0.3 else {},
            modules=_modules(dice),
            routes=_routes(dice),
            upstreams=[{"name": "next", "endpoints": [{"url": other.url}], "timeouts": QUICK}],
        )

    events: list[Event] = []
    for _ in range(dice.randint(3, 25)):
        at, server = dice.uniform(0.5, SECONDS - 2), dice.choice((*servers, other)).name
        if dice.random() < 0.1:
            events += [Call(at, "Redis says nothing", _mute), Call(at + dice.uniform(0.1, 3), "Redis speaks", _speak)]
        elif dice.random() < 0.15:
            events.append(Pause(at, server, dice.uniform(0.05, 3)))
        elif dice.random() < 0.15:
            events.append(Reload(at, config()))
        else:
            changes = _conduct(dice)
            events.append(Become(at, server, **changes))
            if dice.random() < 0.7:
                usual = {name: getattr(Conduct(), name) for name in changes}
                events.append(Become(at + dice.uniform(0.1, 5), server, **usual))
    kinds = [
        Clients(
            rate=dice.uniform(5, 20),
            name=name,
            protocol=name,
            patience=dice.choice((None, Between(0.05, 3.0))),
            retries=dice.choice((0, 0, 2)),
            method=dice.choice(("GET", "POST", "PUT")),
            size=dice.choice((0, 10, 100_000)),
            targets=("/7/simulated", "/7/other", "/7/third"),
        )
        for name in dice.sample(PROTOCOLS, dice.randint(1, 3))
    ]
    effort = dice.choice((0.0, 0.0, 0.0, 0.002, 0.03))
    return Story(config(), [*servers, other], kinds, events, seconds=SECONDS, redis=REDIS, effort=effort)


STORIES: Final = (anything,)
