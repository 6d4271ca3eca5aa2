"""Who is asked: ways to choose, endpoints that are new, zones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, Final

from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.holds import END, asked, balanced, errors, latency, share
from protogate.testing.simulation.servers import Conduct, Reach, Server
from protogate.testing.simulation.stories.common import FOUND, HEALTH, crowd
from protogate.testing.simulation.story import Become, Event, Hold, Pause, Reload, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Spread

BUSY: Final = Conduct(latency=Spread(0.1, 0.3))
IDLE: Final = Conduct(latency=Spread(0.001, 0.2))


def less_for_the_slow(dice: Random) -> Story:
    """One endpoint takes ten times as long: who looks at load, or at time, hardly asks it."""
    servers = farm(dice, 3, 6, BUSY)
    slow, at = dice.choice(servers).name, dice.uniform(2, 4)
    config = gateway(servers, upstream={"balance": dice.choice(("leastRequest", "peakEwma"))})
    events = [Become(at, slow, latency=Spread(1.0, 0.3))]
    holds = (errors(0), share(slow, 0.12, begin=at + 2))
    return Story(config, servers, crowd(dice, 60), events, holds, seconds=16)


def less_for_one_that_pauses(dice: Random) -> Story:
    """An endpoint stops for seconds: who looks at load gives it no more than a few that wait."""
    servers = farm(dice, 3, 6, BUSY)
    name, at = dice.choice(servers).name, dice.uniform(3, 5)
    config = gateway(servers, upstream={"balance": "leastRequest"})
    # It keeps what it has; the others have 60 × 0.1 s ÷ 2 at most, and those who are drawn with it once or twice more.
    holds = (errors(0), asked(name, 24, begin=at, end=at + 3))
    return Story(config, servers, crowd(dice, 60), [Pause(at, name, 3.0)], holds, seconds=12)


def shares_of_the_idle(dice: Random) -> Story:
    """Endpoints that have next to nothing to do are asked by weight, by whoever looks at load, too."""
    servers = [replace(server, weight=dice.choice((50, 100, 150))) for server in farm(dice, 2, 4, IDLE)]
    config = gateway(servers, upstream={"balance": "leastRequest"})
    return Story(config, servers, crowd(dice, 50), holds=(errors(0), balanced(0.3, least=600)), seconds=20)


def _keys(tale: Tale, begin: float, end: float = END) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in tale.served(begin, end):
        found.setdefault(each.target, set()).add(each.server)
    return found


def keys_that_stay(dice: Random) -> Story:
    """With C{hash} a key stays where it is; when an endpoint goes, its keys move, and no others do."""
    servers = farm(dice, 3, 7)
    gone, at = dice.choice(servers).name, 8.0
    upstream = {"balance": "hash", "hash": {"key": "request.query['k']", "bound": 0}}
    rest = [server for server in servers if server.name != gone]

    def stay(tale: Tale) -> Iterator[str]:
        before, after = _keys(tale, 0.0, at), _keys(tale, at + 0.1)
        for key, where in (*before.items(), *after.items()):
            if len(where) > 1:
                yield f"{key} was at {', '.join(sorted(where))}"
        for key, where in before.items():
            if gone not in where and after.get(key, where) != where:
                yield f"{key} moved from {where} to {after[key]}, though only {gone} went"

    targets = tuple(f"/7/simulated?k={number}" for number in range(60))
    clients = [Clients(rate=20, name=name, protocol=name, targets=targets) for name in ("http1", "http2")]
    events = [Reload(at, gateway(rest, upstream=upstream))]
    return Story(gateway(servers, upstream=upstream), servers, clients, events, (errors(0), stay), seconds=16)


def a_new_endpoint(dice: Random) -> Story:
    """An endpoint that is new begins with little, and gets all of its share in the time of slowStart."""
    servers = farm(dice, 3, 6)
    *old, new = servers
    upstream = {"slowStart": "10s", "balance": dice.choice(("weighted", "weighted", "leastRequest"))}
    events = [Reload(4.0, gateway(servers, upstream=upstream))]
    others = len(old)

    def part(weight: float) -> float:
        return weight / (others + weight)

    # From 4 to 6 s it weighs 0.1 to 0.28, in the second half of the time 0.55 to 1.
    holds = (
        errors(0),
        asked(new.name, 0, end=4.0),
        share(new.name, part(0.19) * 1.5 + 0.04, begin=4.0, end=6.0),
        share(new.name, part(0.775) * 1.25 + 0.04, part(0.775) * 0.75 - 0.04, begin=9.0, end=14.0),
        share(new.name, part(1.0) * 1.2 + 0.02, part(1.0) * 0.8 - 0.02, begin=14.2),
    )
    return Story(gateway(old, upstream=upstream), servers, crowd(dice, 60), events, holds, seconds=24)


def _zone(name: str, most: float, least: float, begin: float, end: float = END) -> Hold:
    """The endpoints of a zone get such a share together."""

    def hold(tale: Tale) -> Iterator[str]:
        its = {server.name for server in tale.story.servers if server.zone == name}
        served = tale.served(begin, end)
        part = sum(each.server in its for each in served) / max(len(served), 1)
        if not least <= part <= most:
            yield f"zone {name} got {part:.3f} of {len(served)} from {begin:g} s on, not {least:g} to {most:g}"

    return hold


def _zones(dice: Random, *names: str) -> list[Server]:
    return [
        Server(f"{name.lower()}{index}", f"http://10.{zone}.0.{index}:8000", zone=name)
        for zone, name in enumerate(names, 1)
        for index in range(1, dice.randint(2, 5) + 1)
    ]


def the_own_zone_first(dice: Random) -> Story:
    """Requests stay in the own zone while it can take them; what it cannot goes to the next, and comes back."""
    servers = _zones(dice, "SHA", "NTG")
    own = [server.name for server in servers if server.zone == "SHA"]
    down = dice.sample(own, dice.randint(1, len(own)))
    at, back = 4.0, 14.0
    upstream = {"zones": {"prefer": "own", "order": ["NTG"], "spill": 1.4}, "healthCheck": HEALTH}
    config = gateway(servers, upstream=upstream, settings={"zone": "SHA"})
    events: list[Event] = [Become(at, name, reach=Reach.REFUSES) for name in down]
    events += [Become(back, name, reach=Reach.UP) for name in down]
    kept = min((1 - len(down) / len(own)) * 1.4, 1.0)
    holds = (
        _zone("SHA", 1.0, 1.0, 0.0, at),
        _zone("SHA", kept + 0.06, kept - 0.06, at + FOUND, back),
        _zone("SHA", 1.0, 1.0, back + FOUND),
        # There are three attempts, and until health checks find out they may all meet one that is down.
        errors(0, begin=at if len(down) < 3 else at + FOUND),
    )
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=24)


def zones_by_schedule(dice: Random) -> Story:
    """A schedule's shares are exact, whatever the zones have of endpoints, and one reload moves them."""
    servers = _zones(dice, "PRO", "DR")
    first, second = dice.randint(1, 9) * 10, dice.choice((0, 20, 50, 100))

    def config(pro: int) -> dict[str, Any]:
        return gateway(servers, upstream={"zones": {"schedule": {"PRO": pro, "DR": 100 - pro}}})

    # In any run of 100 exactly; a run that is not over gives a few more or less.
    holds = (
        errors(0),
        _zone("PRO", first / 100 + 0.03, first / 100 - 0.03, 0.0, 9.9),
        _zone("PRO", second / 100 + (0.03 if second else 0.0), second / 100 - 0.03, 10.1),
        latency(99, 0.2),
    )
    return Story(config(first), servers, crowd(dice, 40), [Reload(10.0, config(second))], holds, seconds=20)


STORIES: Final = (
    less_for_the_slow,
    less_for_one_that_pauses,
    shares_of_the_idle,
    keys_that_stay,
    a_new_endpoint,
    the_own_zone_first,
    zones_by_schedule,
)
