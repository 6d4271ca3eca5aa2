"""
What is told: a configuration, a world around it, what happens when, and what must hold.

    def a_dead_endpoint(dice):
        servers = farm(dice, 2, 6)
        dead = dice.choice(servers).name
        return Story(
            gateway(servers, upstream={"healthCheck": {"path": "/health", "interval": "1s"}}),
            servers,
            (Clients(rate=30),),
            (Become(5, dead, reach=Reach.REFUSES), Become(20, dead, reach=Reach.UP)),
            holds=(errors(0), asked(dead, 0, begin=9, end=20)),
        )

A story is a function that makes a L{Story} of dice, so that each seed tells another one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from protogate.config import address
from protogate.testing.gateway import Source
from protogate.testing.simulation.clients import Clients
from protogate.testing.simulation.servers import Conduct, Reach, Server

if TYPE_CHECKING:
    from protogate.testing.simulation.tale import Tale
    from protogate.testing.simulation.world import World

Hold = Callable[["Tale"], Iterable[str]]
"""What must hold: says, for people, what does not."""
LISTENERS: Final = {"http1": 8080, "http2": 8082, "sotp": 7000}
"""Ports of L{gateway}, by codec."""


class Event:
    """
    Something that happens.

    @ivar at: seconds since the story began.
    """

    def __init__(self, at: float) -> None:
        self.at = at

    def happen(self, world: World) -> None:
        """Now."""
        raise NotImplementedError


class Become(Event):
    """A server's conduct changes: C{Become(5, "b", errors=1.0)}; C{changes} are fields of L{Conduct}."""

    def __init__(self, at: float, server: str, **changes: Any) -> None:
        super().__init__(at)
        self.server, self.changes = server, changes
        replace(Conduct(), **changes)  # a misspelled one is told here

    def happen(self, world: World) -> None:
        """Now."""
        origin = world.origins[self.server]
        origin.become(replace(origin.conduct, **self.changes))

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
        return f"{self.at:g} s: {self.server} becomes {words}"


class Pause(Event):
    """A server stops for so long, and then does all at once: its garbage is collected."""

    def __init__(self, at: float, server: str, seconds: float) -> None:
        super().__init__(at)
        self.server, self.seconds = server, seconds

    def happen(self, world: World) -> None:
        """Now."""
        world.origins[self.server].rest(self.seconds)

    def __repr__(self) -> str:
        return f"{self.at:g} s: {self.server} pauses for {self.seconds:g} s"


class Reload(Event):
    """The gateway is given another configuration, which has no faults."""

    def __init__(self, at: float, config: Source) -> None:
        super().__init__(at)
        self.config = config

    def happen(self, world: World) -> None:
        """Now."""
        world.reload(self.config)

    def __repr__(self) -> str:
        return f"{self.at:g} s: another configuration"


class Call(Event):
    """
    Anything else: C{Call(5, "Redis goes away", lambda world: …)}.  The world has C{gateway}, C{reactor}, C{names} (the
    name server), C{redis} (where the story has one), C{origins} and C{crowds}.
    """

    def __init__(self, at: float, text: str, function: Callable[[World], object]) -> None:
        super().__init__(at)
        self.text, self.function = text, function

    def happen(self, world: World) -> None:
        """Now."""
        self.function(world)

    def __repr__(self) -> str:
        return f"{self.at:g} s: {self.text}"


@dataclass(frozen=True, slots=True)
class Story:
    """
    @ivar config: of the gateway, see L{gateway}.
    @ivar events: in any order.
    @ivar holds: what must hold beside L{protogate.testing.simulation.holds.ALWAYS}.
    @ivar seconds: for which clients come; then all that is under way is waited for.
    @ivar hosts: what the name server knows at first; C{ttl} is for how many seconds its answers are good.
    @ivar redis: C{(host, port)} where a Redis listens; None = there is none.
    @ivar health: the path of health checks.
    @ivar effort: seconds for which the gateway's one thread is busy with a request that it asks an upstream for; with
        one that it answers itself it is so for a twentieth of that.  More than it can do makes its loop late.
    """

    config: Source
    servers: Sequence[Server]
    clients: Sequence[Clients]
    events: Sequence[Event] = ()
    holds: Sequence[Hold] = ()
    seconds: float = 30.0
    hosts: Mapping[str, list[str]] = field(default_factory=dict)
    ttl: int = 60
    redis: tuple[str, int] | None = None
    health: str = "/health"
    effort: float = 0.0


Teller = Callable[[Random], Story]


def farm(dice: Random, least: int, most: int, conduct: Conduct | None = None, scheme: str = "http") -> list[Server]:
    """Servers named a, b, c …: as many as the dice say, from C{least} to C{most}."""
    count = dice.randint(least, most)
    made = Conduct() if conduct is None else conduct
    return [Server(chr(97 + index), f"{scheme}://10.0.0.{index + 1}:8000", made) for index in range(count)]


def flapping(server: str, begin: float, end: float, period: float, **changes: Any) -> list[Event]:
    """A server that becomes this and comes back again and again, half of each period; at the end it is back."""
    usual = {name: getattr(Conduct(), name) for name in changes}
    events: list[Event] = []
    at = begin
    while at < end:
        events += [Become(at, server, **changes), Become(min(at + period / 2, end), server, **usual)]
        at += period
    return events


def dying(server: str, at: float, back: float, reach: Reach = Reach.REFUSES) -> list[Event]:
    """A server that is away, in one way or another, and comes back."""
    return [Become(at, server, reach=reach), Become(back, server, reach=Reach.UP)]


def gateway(
    servers: Iterable[Server],
    *,
    upstream: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    modules: Sequence[Mapping[str, Any]] = (),
    upstreams: Sequence[Mapping[str, Any]] = (),
    routes: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """
    The configuration of a gateway with a listener for each protocol, and an upstream named C{farm}.

    @param servers: the endpoints of C{farm}.
    @param upstream: more keys of C{farm}.
    @param settings: of C{gateway}.
    @param upstreams: more of them.
    @param routes: in place of the one that leads everything to C{farm}.
    """
    endpoints = [
        {"url": server.url, "weight": server.weight, **({"zone": server.zone} if server.zone else {})}
        for server in servers
    ]
    everything = {
        "name": "all", "value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "farm"}]}]
    }  # fmt: skip
    return {
        "gateway": {"name": "simulated", "watch": False, **(settings or {})},
        "listeners": [
            {"name": name, "address": address.spelled("127.0.0.1", port), "protocols": [name]}
            for name, port in LISTENERS.items()
        ],
        "upstreams": [{"name": "farm", "endpoints": endpoints, **(upstream or {})}, *upstreams],
        "routes": [everything] if routes is None else list(routes),
        "modules": list(modules),
    }
