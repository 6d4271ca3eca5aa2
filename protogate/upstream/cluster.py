"""
One upstream: its endpoints, where they come from, how they are judged, and how they go.

Rules
- Endpoints come from the configuration, from a source of them, or from both, and may change at any time.  Those that
  stay keep their pools and connections; those that go get no new request, and what they work on is finished.
- What becomes of a request is L{Dispatcher}'s: this is about who there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, fail
from zope.interface import classImplements

from protogate.config import model
from protogate.config.field import field_name
from protogate.context import Context, Timeouts
from protogate.errors import Abort
from protogate.interfaces import IClientConnection, IDescribedCodec, IDiscovery, IService, IStreamCodec
from protogate.message import Request, Response
from protogate.proxyprotocol import encode
from protogate.tls.client import Client
from protogate.upstream.connector import Connector, Trust
from protogate.upstream.discovery import Findings, key
from protogate.upstream.dispatcher import Dispatcher
from protogate.upstream.endpoint import Endpoint, Place, layout, place
from protogate.upstream.health import BY, Health
from protogate.upstream.hopes import Hopes
from protogate.upstream.means import Means
from protogate.upstream.pool import Pool, Stats, ignore_cancel
from protogate.upstream.refusal import gone, unwell
from protogate.upstream.verdicts import Verdicts
from protogate.upstream.watch import Watch


class Cluster(Dispatcher):
    """
    Made by L{Cluster.named} and L{Cluster.unnamed}: that touches nothing live.  L{start} it before the first request.

    @ivar name: of the upstream, or the origin of an unnamed one.
    @ivar trust: how its endpoints with TLS are secured.
    """

    def __init__(
        self,
        name: str,
        means: Means,
        codec: IStreamCodec,
        context: Context,
        pool: model.PoolSettings,
        places: Iterable[Place],
        rename: bool = False,
        tls: Client | None = None,
        proxy: str = "off",
        check: model.HealthCheck | None = None,
    ) -> None:
        super().__init__(name, means, context, rename)
        self.trust, self._proxy = Trust(tls), proxy
        self._settings = pool
        self._speak(codec)
        self._fixed = tuple(places)
        self._found: tuple[Place, ...] = ()
        self._leaving: dict[Pool, Deferred[None]] = {}
        self._watch = Watch(name, self, means.board, means.wheel, means.count)
        self._hopes = Hopes(self._begin)
        self._verdicts = Verdicts(means.board, name, self._choose, self._led)
        self._discovery: Findings | None = None
        self._health = self._looking(check)
        self._started = self._draining = False
        self._arrange()

    @classmethod
    def named(
        cls,
        config: model.Upstream,
        gateway: model.Gateway,
        codec: IStreamCodec,
        means: Means,
        tls: Client | None = None,
        source: IDiscovery | None = None,
    ) -> Cluster:
        """
        The upstream of a configuration.

        @param source: of further endpoints, as its C{discovery} says.
        @raise ConfigFaults: what is wrong with its endpoints; paths are relative to the upstream.
        """
        places = layout(config)
        context = Context(means.wheel, gateway.limits.frozen(), merged(config, gateway), means.count)
        context.deadline = field_name(config.deadline_header)
        rename = config.host == "endpoint"
        proxy, check = config.proxy_protocol, config.health_check
        made = cls(config.name, means, codec, context, config.pool, places, rename, tls, proxy, check)
        made._discovery = made._discover(config, source)
        made._settle(config, gateway)
        return made

    @classmethod
    def unnamed(
        cls, origin: str, gateway: model.Gateway, codec: IStreamCodec, means: Means, tls: Client | None = None
    ) -> Cluster:
        """
        The upstream of a target that gives a URL; it is sent its own name as host.

        @param origin: C{http://host:port} or C{https://host:port}.
        @raise ConfigError: what is wrong with it.
        """
        context = Context(means.wheel, gateway.limits.frozen(), gateway.timeouts.frozen(), means.count)
        return cls(origin, means, codec, context, model.PoolSettings(), (place(origin),), True, tls)

    def start(self) -> None:
        """Begin to look for endpoints, and at them, where the configuration says so.  Harmless when begun."""
        self._started = True
        if self._discovery is not None:
            self._discovery.start()
        self._verdicts.follow(self._health is not None or bool(self._watchers))
        self._watch.start()
        self._look()

    def update(
        self,
        config: model.Upstream | None,
        gateway: model.Gateway,
        codec: IStreamCodec,
        tls: Client | None = None,
        source: IDiscovery | None = None,
    ) -> None:
        """
        Work by another configuration from now on; what it does not change stays, connections above all.

        @param config: None for an unnamed upstream, of which only the gateway's clocks and limits can change.
        @param source: as in L{named}; where it would find what is found already, that goes on.
        @raise ConfigFaults: as L{named}; nothing was changed then.
        """
        context, proxy = self._context, self._proxy
        if config is None:
            context.limits, context.timeouts = gateway.limits.frozen(), gateway.timeouts.frozen()
        else:
            places = layout(config)
            context.limits, context.timeouts = gateway.limits.frozen(), merged(config, gateway)
            context.deadline = field_name(config.deadline_header)
            self._fixed, self._settings = places, config.pool
            self._rename, proxy = config.host == "endpoint", config.proxy_protocol
            discovery = self._discovery
            if (None if discovery is None else discovery.key) != key(config):
                if discovery is not None:
                    discovery.stop()
                following = config.discovery
                if (
                    discovery is None
                    or following is None
                    or codec is not self._codec
                    or (following.scheme != discovery.settings.scheme)
                ):  # else what was found is asked until there is another answer, or none: most of it may stay
                    self._found = ()
                self._discovery = self._discover(config, source)
            elif discovery is not None and config.discovery is not None:
                discovery.tune(config.discovery)
            self._relook(config.health_check)
            self._settle(config, gateway)
            if self._started:
                self.start()
        if tls != self.trust.client:
            self.trust.client = tls
        if codec is not self._codec or proxy != self._proxy:
            self._proxy = proxy
            self._speak(codec)
            old, self._endpoints = self._endpoints, {}
            self._arrange()
            self._leave(old.values())
        for endpoint in self._endpoints.values():
            endpoint.pool.settings = self._settings
        self._arrange()
        if self._hopes and (self._endpoints or self._discovery is None):
            self._hopes.know()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Those that are in use now."""
        return tuple(self._endpoints.values())

    def stats(self) -> dict[str, Stats]:
        """A look at each pool, by its endpoint's address."""
        return {endpoint.address: endpoint.pool.stats() for endpoint in self._endpoints.values()}

    def judged(self) -> Mapping[str, Endpoint]:
        """Endpoints that are judged, see L{Verdicts.judged}."""
        return self._verdicts.judged()

    @property
    def whole(self) -> tuple[float, str] | None:
        """What is left to all of it, see L{Watch.whole}."""
        return self._watch.whole

    # -- who finds nobody

    def _nobody(self, request: Request) -> Deferred[Response]:
        """There is no endpoint, or none yet."""
        discovery = self._discovery
        if discovery is None or discovery.answered or self._draining:
            return super()._nobody(request)
        if discovery.reason is not None:
            return fail(discovery.reason)
        discovery.start()
        if self._endpoints:  # found at once
            return self._hopes.ask(None, request)
        return self._hopes.enter(request)

    # -- endpoints

    def _speak(self, codec: IStreamCodec) -> None:
        self._codec = codec
        self._refusable = not IDescribedCodec.providedBy(codec) or "refuse" not in codec.lacks

    @property
    def stale(self) -> bool | None:
        """Whether endpoints are in use whose source is away; None = none are looked for."""
        return None if self._discovery is None else self._discovery.stale

    def forgo(self) -> None:
        """Look for endpoints no more: all upstreams end, and whoever is asked for endpoints may be one of them."""
        if self._discovery is not None:
            self._discovery.stop()

    def _discover(self, config: model.Upstream, source: IDiscovery | None) -> Findings | None:
        settings = config.discovery
        if settings is None:
            return None
        assert source is not None, "whoever makes the upstream makes what its discovery says"
        return Findings(
            self.name, source, settings, key(config), self._means, self._context, self._places, self._hopeless
        )

    def _places(self, places: Sequence[Place]) -> None:
        self._found = tuple(places)
        self._arrange()
        self._hopes.know()

    def _hopeless(self, reason: Abort) -> None:
        if self._found:  # by another source than this one
            self._found = ()
            self._arrange()
        self._hopes.end(reason)

    def _arrange(self) -> None:
        """Make the endpoints what they should be now."""
        if self._draining:
            return
        wanted: dict[tuple[str, int, str], Place] = {}
        for each in (*self._fixed, *self._found):
            key = each.key
            known = wanted.get(key)
            wanted[key] = each if known is None else replace(known, weight=known.weight + each.weight)
        endpoints = self._endpoints
        if [endpoint.place for endpoint in endpoints.values()] == list(wanted.values()):
            return  # so that asking DNS again does not make the choice begin anew
        kept: dict[tuple[str, int, str], Endpoint] = {}
        for key, each in wanted.items():
            endpoint = endpoints.pop(key, None)
            if endpoint is None:
                endpoint = Endpoint(each, self._pool(each))
            else:
                endpoint.place = each
            kept[key] = endpoint
        self._endpoints = kept
        self._known()
        self._watch.take(kept.values())
        self._choose()
        self._look()
        self._leave(endpoints.values())

    def _settle(self, config: model.Upstream, gateway: model.Gateway) -> None:
        """Choose, and watch what that needs to know, as a configuration says."""
        self._election.settle(config, gateway.zone)
        self._prepare(config)

    def _choose(self) -> None:
        """From now on requests go where they should as endpoints are judged now."""
        if self._draining:
            return
        endpoints = tuple(self._endpoints.values())
        self._election.arrange(endpoints)
        up = [endpoint for endpoint in endpoints if endpoint.up and endpoint.place.weight]
        if up and len(up) < len(endpoints):
            for endpoint in endpoints:
                if not endpoint.up:  # who waits there would wait in vain
                    endpoint.pool.shed(unwell(endpoint.address))

    def hold(self, endpoint: Endpoint, by: str, share: float, why: str = "", memo: Any = None) -> None:
        """
        Judge an endpoint, see L{Endpoint.hold}; only the process that leads does, for all.

        @param memo: what the judge wants to know when it goes on in another process; plain.
        """
        if endpoint.hold(by, share, why):
            self._choose()
        self._verdicts.post(endpoint, by, share, why, memo)

    def limit(self, endpoint: Endpoint, by: str, share: float, why: str = "") -> None:
        """Hold an endpoint back in this process only."""
        if endpoint.hold(by, share, why):
            self._choose()

    def memo(self, endpoint: Endpoint, by: str) -> Any:
        """What that judge noted of an endpoint last, in whichever process; None = nothing."""
        return self._verdicts.memo(endpoint, by)

    def _led(self, leads: bool) -> None:
        """Whether this process judges from now on."""
        self._known()
        self._look()

    def _known(self) -> None:
        discovery = self._discovery
        self._verdicts.take(self._endpoints.values(), discovery is None or discovery.answered)

    def _look(self) -> None:
        """Look at endpoints, where that is for this process to do."""
        if self._health is not None and self._started and not self._draining:
            self._health.follow(self._endpoints.values() if self._means.board.leads else ())

    def _looking(self, check: model.HealthCheck | None) -> Health | None:
        if check is None:
            return None
        means = self._means
        connect, ping, hold = self._connector_to, self._ping, self.hold
        return Health(self.name, check, connect, ping, hold, means.wheel, means.count, means.random)

    def _relook(self, check: model.HealthCheck | None) -> None:
        """Look at endpoints by another configuration, if it is one.  What was found out counts until there is more."""
        health = self._health
        if (None if health is None else health.settings) == check:
            return
        if health is not None:
            health.stop()
        self._health = self._looking(check)
        if check is None:
            for endpoint in self._endpoints.values():
                self.hold(endpoint, BY, 1.0)
        if self._started:
            self.start()

    def _connector(self, each: Place) -> Connector:
        means = self._means
        trust = self.trust if each.tls else None
        return Connector(
            means.reactor, means.resolver, self._codec, self._context, each.host, each.port, trust, each.identity
        )

    def _connector_to(self, endpoint: Endpoint) -> Connector:
        return self._connector(endpoint.place)

    def _ping(self, connection: IClientConnection) -> Deferred[None]:
        codec: Any = self._codec
        asked: Deferred[None] = codec.ping(connection)
        return asked

    def _pool(self, each: Place) -> Pool:
        announce = None if self._proxy == "off" else partial(encode, self._proxy)
        return Pool(self._connector(each), self._context, self._settings, each.address, announce)

    def _leave(self, endpoints: Iterable[Endpoint]) -> None:
        """These get no new request; who waits for them is sent elsewhere."""
        for endpoint in endpoints:
            pool = endpoint.pool
            drained = self._leaving[pool] = pool.drain(gone(f"{endpoint.address} was taken out of use"))
            drained.addCallback(self._left, pool)

    def _left(self, _: None, pool: Pool) -> None:
        self._leaving.pop(pool, None)

    # -- the end

    def drain(self) -> Deferred[None]:
        """
        Take no new request.  Those under way are finished, waiting ones too.

        @return: fires when every connection is closed.  Cancelling it changes nothing.
        """
        self._stop()
        pools = [*self._leaving, *(endpoint.pool for endpoint in self._endpoints.values())]
        drained: Deferred[None] = Deferred(ignore_cancel)
        DeferredList([pool.drain() for pool in pools]).addCallback(_tell, drained)
        return drained

    def stop(self) -> Deferred[None]:
        """
        Drop everything now.

        @return: as L{drain}; connections need a turn of the reactor to close.
        """
        stopped = self.drain()
        for pool in [*self._leaving, *(endpoint.pool for endpoint in self._endpoints.values())]:
            pool.abort()
        return stopped

    def retire(self) -> None:
        """It is in no configuration any more: nothing is judged here, though requests may still come."""
        if self._health is not None:
            self._health.stop()
            self._health = None
        self._watchers = ()
        self._watch.stop()
        self._verdicts.follow(False)

    def _stop(self) -> None:
        self._draining = True
        self._election.stop()
        self.retire()
        if self._discovery is not None:
            self._discovery.stop()
        self._hopeless(gone(f"upstream {self.name} was closed"))


classImplements(Cluster, IService)


def _tell(_: object, drained: Deferred[None]) -> None:
    if not drained.called:
        drained.callback(None)


def merged(config: model.Upstream, gateway: model.Gateway) -> Timeouts:
    """The gateway's timeouts, with those of the upstream in their place."""
    own = config.timeouts
    given = {name: float(value) for name in own.__struct_fields__ if (value := getattr(own, name)) is not None}
    return Timeouts(**{**asdict(gateway.timeouts.frozen()), **given})
