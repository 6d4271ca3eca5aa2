"""Where endpoints are written down is away, comes back, has forgotten everything: clients notice nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from protogate.config.address import url
from protogate.discovery.conversation import LAST
from protogate.testing.catalogues import Consul, Etcd, serve
from protogate.testing.simulation.holds import asked, counted, errors
from protogate.testing.simulation.servers import Server
from protogate.testing.simulation.stories.common import crowd
from protogate.testing.simulation.story import Call, Event, Story, farm, gateway

if TYPE_CHECKING:
    from protogate.testing.simulation.world import World

HOST: Final = "10.0.9.1"
BEGUN: Final = 1.5
"""Seconds within which a gateway has found its endpoints that began before the catalogue was there."""
CAUGHT_UP: Final = LAST + 1.0
"""Seconds after an outage within which a gateway knows all that has changed."""


def _where(server: Server) -> str:
    return url(server.url).authority


def a_catalogue_that_flaps(dice: Random) -> Story:
    """An etcd is away again and again, and compacts; servers come and go meanwhile, and none is asked that has gone."""
    servers = farm(dice, 3, 6)
    goes, comes = servers[0], servers[-1]
    etcd = Etcd()

    def begin(world: World) -> None:
        serve(world.reactor, HOST, 2379, etcd)

    def doing(away: bool) -> Callable[[World], None]:
        return lambda world: setattr(etcd, "away", away)

    def change(world: World) -> None:
        etcd.delete(f"/servers/{goes.name}")
        etcd.put(f"/servers/{comes.name}", _where(comes))
        if dice.random() < 0.5:
            etcd.compact()

    for server in servers[:-1]:
        etcd.put(f"/servers/{server.name}", _where(server))
    events: list[Event] = [Call(0.0, "there is an etcd", begin)]
    at = 4.0
    while at < 18.0:
        back = at + dice.uniform(0.1, 4.0)
        events += [Call(at, "it goes away", doing(True)), Call(back, "it is back", doing(False))]
        at = back + dice.uniform(0.1, 6.0)
    changed = dice.uniform(4.0, 18.0)
    events.append(Call(changed, "one goes, another comes", change))
    caught_up = max(event.at for event in events) + CAUGHT_UP
    discovery = {"etcd": {"url": f"http://{HOST}:2379", "prefix": "/servers/"}}
    holds = (
        errors(0, begin=BEGUN),
        asked(comes.name, 0, end=changed),
        asked(goes.name, 0, begin=caught_up),
        asked(comes.name, 1e9, least=1, begin=caught_up),
    )
    config = gateway([], upstream={"discovery": discovery})
    return Story(config, servers, crowd(dice, 10), events, holds, seconds=caught_up + 3)


def a_catalogue_that_forgets(dice: Random) -> Story:
    """A Consul has lost sight of every server for less than a minute: all of them go on being asked."""
    servers = farm(dice, 2, 5)
    lost, found = dice.uniform(3, 6), dice.uniform(12, 20)

    def begin(world: World) -> None:
        consul = Consul(world.gateway.service.wheel)
        serve(world.reactor, HOST, 8500, consul)
        for server in servers:
            consul.register("farm", url(server.url).host, url(server.url).port)

        def forget() -> None:
            before, consul.services["farm"] = consul.services["farm"], []
            consul.changed()
            world.reactor.callLater(found - lost, remember, before)

        def remember(before: list[dict[str, object]]) -> None:
            consul.services["farm"] = before
            consul.changed()

        world.reactor.callLater(lost, forget)

    discovery = {"consul": {"url": f"http://{HOST}:8500", "service": "farm"}}
    events = [Call(0.0, "there is a Consul, which will forget all", begin)]
    holds = (
        errors(0, begin=BEGUN),
        counted("discovery_empty", 1, 1),
        *(asked(server.name, 1e9, least=1, begin=lost, end=found) for server in servers),
    )
    return Story(gateway([], upstream={"discovery": discovery}), servers, crowd(dice, 20), events, holds, seconds=25)


STORIES: Final = (a_catalogue_that_flaps, a_catalogue_that_forgets)
