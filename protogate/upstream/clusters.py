"""
The upstreams of a gateway, over all its configurations.

Rules
- An upstream is the same one after a reload when its name is (or its origin, for one that a target names by URL): what
  did not change of it stays, connections above all.
- One that is no longer wanted stays for L{LINGER} seconds: exchanges that began before may still be on their way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from protogate.config import model
from protogate.interfaces import IDiscovery, IService, IStreamCodec
from protogate.observe.counters import Counters
from protogate.tls.client import Client
from protogate.upstream.cluster import Cluster
from protogate.upstream.endpoint import codec_of, spoken
from protogate.upstream.means import Means

LINGER: Final = 5.0
"""Seconds that an upstream stays after it was removed."""


class Clusters:
    """
    @param means: what every upstream works with; each counts in a scope of its own.
    @ivar current: by name or origin.
    @ivar leaving: those that were removed and are not closed yet.
    """

    def __init__(self, means: Means) -> None:
        self._means = replace(means, service=self._service)
        self.current: dict[str, Cluster] = {}
        self.leaving: set[Cluster] = set()

    def take(
        self,
        config: model.Config,
        origins: Iterable[str],
        codec: Callable[[str], IStreamCodec],
        counters: Counters,
        tls: Mapping[str, Client] = MappingProxyType({}),
        sources: Mapping[str, IDiscovery] = MappingProxyType({}),
    ) -> Mapping[str, Cluster]:
        """
        Make the upstreams what a configuration says.

        @param origins: names and origins that its rules lead to.
        @param codec: by its name.
        @param tls: how those are secured that have TLS, by name or origin.
        @param sources: of further endpoints, by the name of the upstream.
        @return: by name or origin; not changed by later calls.
        """
        wanted: dict[str, model.Upstream | None] = {upstream.name: upstream for upstream in config.upstreams}
        wanted.update((origin, None) for origin in origins if origin not in wanted)
        before, self.current = self.current, {}
        for name, upstream in wanted.items():
            speaks = codec(codec_of(name) if upstream is None else spoken(upstream))
            cluster = before.pop(name, None)
            if cluster is not None:
                cluster.update(upstream, config.gateway, speaks, tls.get(name), sources.get(name))
            else:
                means = replace(self._means, count=counters.scope("upstream", name).count)
                if upstream is None:
                    cluster = Cluster.unnamed(name, config.gateway, speaks, means, tls.get(name))
                else:
                    cluster = Cluster.named(upstream, config.gateway, speaks, means, tls.get(name), sources.get(name))
                cluster.start()
            self.current[name] = cluster
        counters.keep("upstream", list(wanted))
        for cluster in before.values():
            cluster.forgo()
            cluster.retire()
            self.leaving.add(cluster)
            self._means.wheel.after(LINGER, partial(self._leave, cluster))
        return dict(self.current)

    def secure(self, tls: Mapping[str, Client]) -> None:
        """From now on new connections to the upstreams of these names are secured like this."""
        for name, cluster in self.current.items():
            if name in tls:
                cluster.trust.client = tls[name]

    def stop(self) -> Deferred[Any]:
        """Drop everything now; fires when every connection is closed."""
        clusters, self.current = [*self.current.values(), *self.leaving], {}
        self.leaving.clear()
        for cluster in clusters:  # before those are gone whom they ask
            cluster.forgo()
        return DeferredList([cluster.stop() for cluster in clusters])

    def _service(self, name: str) -> IService:
        return self.current[name]

    def _leave(self, cluster: Cluster) -> None:
        if cluster in self.leaving:
            cluster.drain().addCallback(lambda _: self.leaving.discard(cluster))
