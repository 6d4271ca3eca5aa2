"""Endpoints that answer, but badly: outliers are left alone, circuit breakers open, and both let them come back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from random import Random
from typing import Final

from protogate.testing.simulation.holds import asked, attempts, counted, errors, judged, latency, left_alone
from protogate.testing.simulation.servers import Conduct, Reach
from protogate.testing.simulation.stories.common import QUICK, crowd
from protogate.testing.simulation.story import Become, Event, Hold, Story, farm, gateway
from protogate.testing.simulation.tale import Tale
from protogate.testing.simulation.waits import Spread

OUTLIERS: Final = {
    "consecutive": 5,
    "errorRatio": 0.5,
    "minRequests": 10,
    "interval": "5s",
    "ejection": "6s",
    "ramp": "4s",
}
BREAKER: Final = {
    "errorRatio": 0.5, "window": "5s", "minRequests": 10, "open": "2s", "maxOpen": "8s", "probes": 3, "ramp": "4s",
}  # fmt: skip
STEADY: Final = Conduct(latency=Spread(0.02, 0.4))


def never_more(share: float) -> Hold:
    """Outliers leave no more than so many of the endpoints without anything: one where there are two, never all."""

    def hold(tale: Tale) -> Iterator[str]:
        servers = [server.name for server in tale.story.servers if server.weight]
        most = min(max(int(len(servers) * share), 1), len(servers) - 1)
        down: set[str] = set()
        for at, changes in groupby(tale.judged, key=lambda each: each.at):
            for each in changes:  # of one moment, in which one may take the place of another
                (down.add if each.share <= 0 and "outliers" in each.by else down.discard)(each.server)
            if len(down) > most:
                yield f"{len(down)} of {len(servers)} were left alone at {at:.3f} s, more than {most}"

    return hold


def a_gray_failure(dice: Random) -> Story:
    """One endpoint answers 5xx while its health checks are fine: it is left alone after a few, again and again."""
    servers = farm(dice, 2, 6, STEADY)
    bad, at, back = dice.choice(servers).name, dice.uniform(3, 5), dice.uniform(11, 15)
    events = [Become(at, bad, errors=1.0, status=dice.choice((500, 502, 503))), Become(back, bad, errors=0.0)]
    # Out after five in a row and what was on its way; perhaps tried again once before it is well.
    holds = (
        errors(0, end=at - 0.5),
        errors(2 * (5 + 4)),
        judged(bad, within=(at, at + 4), well=False),
        judged(bad, within=(back, 40), well=True),
        errors(0, begin=back + 0.1),
        left_alone(),
        never_more(0.5),
    )
    config = gateway(servers, upstream={"outliers": OUTLIERS})
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=40)


def all_are_bad(dice: Random) -> Story:
    """When all endpoints answer 5xx, some are asked nevertheless: there is nobody who does better."""
    servers = farm(dice, 1, 6, STEADY)
    at, share = dice.uniform(2, 4), dice.choice((0.1, 0.3, 0.5, 0.9))
    events = [Become(at, server.name, errors=1.0) for server in servers]
    events += [Become(at + 8, server.name, errors=0.0) for server in servers]
    config = gateway(servers, upstream={"outliers": {**OUTLIERS, "maxShare": share}})
    holds = (never_more(share), errors(0, end=at - 0.5), errors(0, begin=at + 8.2), left_alone())
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=26)


def a_slow_endpoint(dice: Random) -> Story:
    """One endpoint takes ten times as long as the others: with latencyFactor it is left alone."""
    servers = farm(dice, 3, 6, STEADY)
    slow, at = dice.choice(servers).name, dice.uniform(3, 5)
    settings = {**OUTLIERS, "latencyFactor": 4, "latencyFloor": "50ms", "ejection": "60s"}
    config = gateway(servers, upstream={"outliers": settings})
    holds = (errors(0), judged(slow, within=(at, at + 10), well=False), latency(99, 0.15, begin=at + 10), left_alone())
    events = [Become(at, slow, latency=Spread(0.3, 0.4))]
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=25)


def nobody_is_slow(dice: Random) -> Story:
    """Endpoints that are alike, with long tails and rare errors, are not taken for outliers."""
    servers = farm(
        dice, 2, 6, Conduct(latency=Spread(0.03, dice.uniform(0.2, 0.9)), errors=dice.choice((0.0, 0.02, 0.05)))
    )
    settings = {**OUTLIERS, "latencyFactor": 4, "latencyFloor": "50ms"}
    config = gateway(servers, upstream={"outliers": settings})
    return Story(config, servers, crowd(dice, 40), holds=(errors(0.12), counted("outlier_ejected", 0, 0)), seconds=25)


def a_breaker_of_an_upstream(dice: Random) -> Story:
    """All of an upstream fails: after a while it gets no more than probes, and soon after it is well all there is."""
    servers = farm(dice, 1, 4, STEADY)
    at, back = dice.uniform(3, 5), dice.uniform(14, 18)
    how = dice.choice(({"errors": 1.0}, {"reach": Reach.REFUSES}, {"hangs": 1.0}))
    usual = {name: getattr(Conduct(), name) for name in how}
    events: list[Event] = [Become(at, server.name, **how) for server in servers]
    events += [Become(back, server.name, **usual) for server in servers]
    # Half of the last 5 s have failed after 2.5 s, give or take what chance does; what hangs fails a second later.
    found = at + (5 if "hangs" in how else 4)
    # Open for 2 s, 4 s, 8 s: at the worst it opened anew just before all was well.
    well = back + 2 + 8.3 + 4.2 + 0.5
    clocks = {**QUICK, "responseHead": "1s"}
    config = gateway(servers, upstream={"circuitBreaker": {**BREAKER, "scope": "upstream"}, "timeouts": clocks})
    tries = 4  # that it is probed until then, by three at a time; the first that fails opens it

    def refused(tale: Tale) -> Iterator[str]:
        for ask in tale.asks:
            if ask.status == 503 and not ask.server and not any(name == b"retry-after" for name, _ in ask.fields):
                yield f"{ask.agent} was refused without Retry-After at {ask.began:.3f} s"

    holds = (
        errors(0, end=at - 0.5),
        attempts(0.0, more=tries * 3, begin=found, end=back),
        counted("breaker_opened", 1),
        counted("breaker_closed", 1),
        errors(0, begin=well),
        refused,
    )
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=well + 4)


def breakers_of_endpoints(dice: Random) -> Story:
    """Some endpoints hang, each with a breaker of its own: those are left alone, and clients soon see nothing of it."""
    servers = farm(dice, 3, 6, STEADY)
    bad = [server.name for server in dice.sample(servers, dice.randint(1, len(servers) - 1))]
    at = dice.uniform(3, 5)
    events: list[Event] = [Become(at, name, hangs=1.0) for name in bad]
    events += [Become(at + 10, name, hangs=0.0) for name in bad]
    clocks = {**QUICK, "responseHead": "500ms"}
    breaker = {**BREAKER, "scope": "endpoint", "consecutive": 5}
    config = gateway(servers, upstream={"circuitBreaker": breaker, "timeouts": clocks})
    holds = (
        errors(0, end=at - 0.6),
        *(judged(name, within=(at, at + 5), well=False) for name in bad),
        *(judged(name, within=(at + 10, 45), well=True) for name in bad),
        # Each open time ends in at most three probes at a time.
        *(asked(name, 20, begin=at + 5, end=at + 10) for name in bad),
        errors(0, begin=at + 10.6),
        left_alone(),
    )
    return Story(config, servers, crowd(dice, 40), events, holds, seconds=46)


STORIES: Final = (
    a_gray_failure,
    all_are_bad,
    a_slow_endpoint,
    nobody_is_slow,
    a_breaker_of_an_upstream,
    breakers_of_endpoints,
)
