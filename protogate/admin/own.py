"""
How one process is: what it shows of itself, or tells its supervisor.

It looks when it is asked: nothing is kept up to date meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, Protocol

from protogate.admin.endpoints import targets, told
from protogate.downstream.ports import Ports
from protogate.governance.lives import Lives
from protogate.observe.counters import Counters
from protogate.observe.snapshot import Number, Shares, Snapshot
from protogate.routing.hold import Holds
from protogate.upstream.circuit import BY, WHOLE
from protogate.upstream.clusters import Clusters

SHOWN: Final = 4096
"""Endpoints of which is told what is left to them."""


class Gateway(Protocol):
    """The service that is looked at; see C{protogate.service.GatewayService}."""

    running: Any
    plan: Any
    ports: Ports
    clusters: Clusters | None
    counters: Counters
    lives: Lives
    holds: Holds

    def pressure(self) -> Mapping[str, float]:
        """How near to its end each resource is, from 0 to 1."""


class Own:
    """
    L{protogate.admin.site.Watched}: one process that answers for itself.

    @param gateway: its service.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def unready(self) -> str:
        """L{Watched}."""
        gateway = self._gateway
        if gateway.plan is None:
            return "no configuration is in force yet"
        if not gateway.running:
            return "it stops: requests under way end"
        if not gateway.ports.opened:
            return "no port is open"
        return ""

    def snapshot(self) -> Snapshot:
        """L{Watched}."""
        gateway = self._gateway
        taken = gateway.counters.snapshot()
        taken["gauges"] = {
            "listener": _listeners(gateway.ports),
            "upstream": _upstreams(gateway.clusters),
            "module": gateway.lives.gauges(),
            "release": gateway.holds.gauges(),
            "resource": {name: {"pressure": level} for name, level in gateway.pressure().items()},
        }
        endpoints = _endpoints(gateway.clusters)
        if endpoints:
            taken["endpoints"] = endpoints
        return taken

    def endpoints(self) -> dict[str, Any]:
        """L{Watched}."""
        return told(_endpoints(self._gateway.clusters), self._why)

    def releases(self) -> dict[str, Any]:
        """L{Watched}."""
        holds = self._gateway.holds
        return targets(holds.gauges(), holds.why())

    def _why(self, upstream: str, at: str, by: str) -> str:
        clusters = self._gateway.clusters
        assert clusters is not None
        cluster = clusters.current[upstream]
        if at == WHOLE:
            return "" if cluster.whole is None else cluster.whole[1]
        return cluster.judged()[at].held[by][1]


def _listeners(ports: Ports) -> dict[str, dict[str, Number]]:
    """What each listener has, with what is on its way out: that is still open."""
    found: dict[str, dict[str, Number]] = {}
    for one in (*ports.opened.values(), *ports.retired.values()):
        connections = one.listener.connections
        numbers = found.setdefault(one.listener.name, {"connections": 0, "requests": 0, "paused": 0})
        numbers["connections"] += len(connections)
        numbers["paused"] = max(numbers["paused"], int(one.paused))
        numbers["requests"] += sum([connection.busy for connection in connections])
    return found


def _endpoints(clusters: Clusters | None) -> Shares:
    """What is left to endpoints that are judged, and to all of an upstream where that is."""
    found: Shares = {}
    room = SHOWN
    for name, cluster in () if clusters is None else clusters.current.items():
        judged = cluster.judged()
        if judged and room > 0:
            found[name] = {
                at: {"": endpoint.share, **{by: share for by, (share, _) in endpoint.held.items()}}
                for at, endpoint in islice(judged.items(), room)
            }
            room -= len(judged)
        if cluster.whole is not None:
            share, _ = cluster.whole
            found.setdefault(name, {})[WHOLE] = {"": share, **({BY: share} if share < 1.0 else {})}
    return found


def _upstreams(clusters: Clusters | None) -> dict[str, dict[str, Number]]:
    """What each upstream has, over all its endpoints."""
    found: dict[str, dict[str, Number]] = {}
    for name, cluster in () if clusters is None else clusters.current.items():
        pools = cluster.stats().values()
        found[name] = {
            "connections": sum(pool.open for pool in pools),
            "idle": sum(pool.idle for pool in pools),
            "waiting": sum(pool.waiting for pool in pools),
        }
        if cluster.stale is not None:
            found[name]["stale"] = int(cluster.stale)
    return found
