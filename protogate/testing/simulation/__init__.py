"""
Whole gateways with a world around them, on one clock that is quick, from one seed.

    from protogate.testing.simulation import Become, Clients, Reach, Story, check, errors, farm, gateway

    def a_dead_endpoint(dice):
        servers = farm(dice, 2, 6)
        dead = dice.choice(servers).name
        config = gateway(servers, upstream={"healthCheck": {"path": "/health"}})
        return Story(config, servers, [Clients(rate=30)], [Become(5, dead, reach=Reach.REFUSES)], [errors(0)])

    for seed in range(30):
        check(a_dead_endpoint, seed)

What is told by what:

    story     Story, and what happens in it: Become, Pause, Reload, Call; farm(), gateway(), dying(), flapping()
    servers   Server, Conduct, Reach: what the gateway asks
    clients   Clients: who asks the gateway
    waits     how long things take
    holds     what must hold
    run       check() one seed; a failure says how to repeat it
    tale      Tale: what happened
    picture   drawings of it
    stories   those that the gateway's own mechanisms are tried with

Rules
- A seed tells the same tale each time, on each machine with the same Python: whatever throws dice throws the seed's.
- The gateway is the real one, configuration file included; only what it stands on is made of memory.
- Nothing here needs pytest.
"""

from protogate.testing.simulation.clients import Ask, Clients
from protogate.testing.simulation.holds import (
    ALWAYS,
    asked,
    at_once,
    attempts,
    balanced,
    counted,
    errors,
    judged,
    latency,
    left_alone,
    share,
)
from protogate.testing.simulation.run import check, faults
from protogate.testing.simulation.servers import Conduct, Reach, Seen, Server
from protogate.testing.simulation.story import (
    Become,
    Call,
    Event,
    Hold,
    Pause,
    Reload,
    Story,
    Teller,
    dying,
    farm,
    flapping,
    gateway,
)
from protogate.testing.simulation.tale import Judged, Tale, percentile
from protogate.testing.simulation.waits import Always, Between, Either, Spread, Wait
from protogate.testing.simulation.world import World, tell

__all__ = [
    "ALWAYS",
    "Always",
    "Ask",
    "Become",
    "Between",
    "Call",
    "Clients",
    "Conduct",
    "Either",
    "Event",
    "Hold",
    "Judged",
    "Pause",
    "Reach",
    "Reload",
    "Seen",
    "Server",
    "Spread",
    "Story",
    "Tale",
    "Teller",
    "Wait",
    "World",
    "asked",
    "at_once",
    "attempts",
    "balanced",
    "check",
    "counted",
    "dying",
    "errors",
    "farm",
    "faults",
    "flapping",
    "gateway",
    "judged",
    "latency",
    "left_alone",
    "percentile",
    "share",
    "tell",
]
