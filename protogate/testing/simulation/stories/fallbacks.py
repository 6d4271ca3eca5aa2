"""What is given in place of an answer, and copies that nobody must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from protogate.testing.simulation.holds import counted, errors, latency
from protogate.testing.simulation.servers import Conduct, Reach, Server
from protogate.testing.simulation.stories.common import QUICK, crowd
from protogate.testing.simulation.story import Become, Event, Hold, Reload, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Between, Spread

STEADY: Final = Conduct(latency=Spread(0.02, 0.4))
BAD: Final = (
    Conduct(reach=Reach.MUTE),
    Conduct(reach=Reach.SILENT),
    Conduct(reach=Reach.REFUSES),
    Conduct(latency=Between(0.5, 5.0)),
    Conduct(slots=1, latency=Between(0.1, 0.3), notices=False),
    Conduct(errors=0.5, hangs=0.2, stalls=0.1, breaks=0.2),
)
"""What the upstream of copies may be like."""
COPIES: Final = "module trafficCopy"


def copied(ratio: float) -> Hold:
    """Each ask is copied once at most, to nobody but the upstream of copies; and each copy comes to an end."""

    def hold(tale: Tale) -> Iterator[str]:
        agents = {each.agent for each in tale.seen if each.copied}  # one that a connection was lost under comes again
        if wrong := [each for each in tale.seen if bool(each.copied) is not (each.server == "z") and not each.check]:
            yield f"{len(wrong)} requests went where they should not, the first at {wrong[0].at:.3f} s"
        if len(agents) > tale.count("copied", COPIES):
            yield f"{len(agents)} copies were seen, {tale.count('copied', COPIES):g} were sent"
        tried, asks = tale.count("copied", COPIES) + tale.count("skipped", COPIES), len(tale.asks)
        if abs(tried - ratio * asks) > (5 * asks**0.5 if ratio < 1 else 0):
            yield f"of {asks} asks {tried:g} were to be copied, not {ratio:.0%}"
        ended = sum(tale.count(event, COPIES) for event in ("matched", "differed", "uncompared"))
        if ended != tale.count("copied", COPIES):
            yield f"{tale.count('copied', COPIES):g} copies were sent, {ended:g} were compared, or not"

    return hold


def copied_traffic(dice: Random) -> Story:
    """Traffic is copied to an upstream that is anything but well: no client waits for it, or sees a failure of it."""
    servers = farm(dice, 1, 3, STEADY)
    ratio = dice.choice((1.0, 1.0, 0.3))
    parameters = {
        "upstream": "next",
        "ratio": ratio * 100,
        "most": dice.randint(1, 30),
        "timeout": dice.choice(("500ms", "2s")),
        "compare": {"ignoreHeaders": ["x-server"]},
    }
    module = {"name": "trafficCopy", "actionParam": parameters}
    other = Server("z", "http://10.0.9.1:8000", dice.choice((*BAD, STEADY)))
    upstream = {"name": "next", "endpoints": [{"url": other.url}], "timeouts": QUICK}
    config = gateway(servers, modules=[module], upstreams=[upstream])
    changes = [dice.choice((*BAD, STEADY)) for _ in range(3)]
    fields = ("reach", "latency", "slots", "errors", "hangs", "stalls", "breaks", "notices")
    events: list[Event] = [
        Become(2.5 + 2.5 * index, "z", **{name: getattr(conduct, name) for name in fields})
        for index, conduct in enumerate(changes)
    ]
    events.append(Reload(dice.uniform(2, 9), config))
    holds = (errors(0), latency(100, 0.5), copied(ratio), counted("copied", 1, scope=COPIES))
    return Story(config, [*servers, other], crowd(dice, 20), events, holds, seconds=12)


def helped(begin: float, end: float) -> Hold:
    """Every ask between is given something else, and none long before or after."""

    def hold(tale: Tale) -> Iterator[str]:
        began = {ask.agent: ask.began for ask in tale.asks}
        degraded = {record.agent for record in tale.records if "degraded" in (record.notes or {})}
        for agent, at in began.items():
            if begin + 0.1 <= at <= end - 0.1 and agent not in degraded:
                yield f"{agent} at {at:.3f} s was given an answer of somebody who was not there"
            if agent in degraded and not begin - 1.0 <= at <= end + 0.1:
                yield f"{agent} at {at:.3f} s was given something else, and all was well"

    return hold


def a_fallback(dice: Random) -> Story:
    """All of an upstream is gone for a while: clients get the last good answer, or another one, and no failure."""
    servers = farm(dice, 1, 4, STEADY)
    at, back = dice.uniform(3, 5), dice.uniform(8, 10)
    other = Server("y", "http://10.0.9.1:8000", replace(STEADY, errors=dice.choice((0.0, 0.3))))
    means = [
        {"cached": {"silent": True, "maxAge": "1h"}},
        {"upstream": "next"},
        {"answer": {"text": "later"}},
    ]
    give = [*dice.sample(means[:2], dice.randint(0, 2)), means[2]]
    module = {"name": "degrade", "actionParam": {"name": "simulated", "give": give}}
    config = gateway(
        servers,
        modules=[module],
        upstream={"timeouts": QUICK},
        upstreams=[{"name": "next", "endpoints": [{"url": other.url}]}],
    )
    gone = [Become(at, server.name, reach=Reach.REFUSES) for server in servers]
    there = [Become(back, server.name, reach=Reach.UP) for server in servers]
    holds = (errors(0), helped(at, back), latency(100, 0.6), counted("on_error", 1, scope="module degrade"))
    targets = tuple(f"/7/{number}" for number in range(3))
    clients = crowd(dice, 20, targets=targets)
    return Story(config, [*servers, other], clients, [*gone, *there], holds, seconds=12)


STORIES: Final = (copied_traffic, a_fallback)
