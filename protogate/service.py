"""
The running gateway: listeners, upstreams, the plan that new requests follow; reload and drain.

Rules
- A configuration is built completely (L{protogate.build}) before anything live is touched.  What can fail besides comes
  next: opening the access log (L{GatewayService.prepare}) and the ports; it is undone if it does.  Nothing else fails.
- What did not change stays as it is: listeners are known by their address, upstreams by their name.
- Exchanges under way keep their L{Plan}; nothing else keeps an old one alive.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IResolver
from twisted.logger import Logger

from protogate.admin.own import Own
from protogate.admin.port import Admin
from protogate.build import Build, build_quietly
from protogate.config.faults import ConfigFaults
from protogate.downstream.ports import Open, Opener, Ports, shown
from protogate.errors import ConfigError
from protogate.exchange.exchange import Exchange
from protogate.exchange.front import Front
from protogate.exchange.plan import Life, Plan
from protogate.governance import means as governance
from protogate.governance.binding import Bound
from protogate.governance.lives import Lives
from protogate.governance.news import News
from protogate.governance.redis import Redis, Redises
from protogate.governance.redissettings import RedisSettings
from protogate.loading import Loading
from protogate.observe.accesslog import AccessLog
from protogate.observe.blocked import Blocked
from protogate.observe.counters import Counters
from protogate.observe.journal import Journal
from protogate.observe.load import Load
from protogate.observe.record import record
from protogate.overload.overload import Overload
from protogate.process.notify import Notify
from protogate.quiet import bury
from protogate.renewal import Renewal
from protogate.routing.hold import Holds
from protogate.securing import Sides
from protogate.signals import Signals
from protogate.tls.layer import is_native
from protogate.upstream.board import Alone, Board
from protogate.upstream.cluster import Cluster
from protogate.upstream.clusters import Clusters
from protogate.upstream.means import Means
from protogate.upstream.resolver import Resolver, System
from protogate.wheel import Timer, Wheel

_log = Logger()


def restart_needed() -> ConfigError:
    """What is wrong with a reload that asks for workers where there are none, or for none where there are some."""
    return ConfigError("from 0 to other numbers, or back, takes a restart", ("gateway", "workers"))


def tell_addresses(addresses: Mapping[str, Any]) -> None:
    """Log where each listener really listens."""
    for name, address in addresses.items():
        _log.info("listener {name} on {address}", name=name, address=shown(address))


class Prepared(NamedTuple):
    """A configuration that only has to be taken."""

    built: Build
    log: AccessLog | None


class GatewayService(Service):
    """
    One gateway, as a Twisted service.

    @param path: of the configuration file.
    @param built: what was made of it.
    @param reactor: to run on; None = the installed one.
    @param now: seconds on a clock that only goes forward.
    @param signals: whether to mind signals (L{protogate.signals}).
    @param dns: who knows the addresses of upstreams; None = what the system's resolv.conf says.
    @param opener: who opens the ports; None = this process binds them.
    @param notify: the line to the service manager.
    @param alone: whether no supervisor answers for this process: to operators, to the service manager.
    @param log: a descriptor of the access log, where somebody else opened it.
    @param board: what the processes of this gateway tell each other; None = there is only this one.
    @ivar plan: what a request that comes in now follows.
    @ivar loading: of its file.
    @ivar counters: what happened so far.
    @ivar ports: what is open.
    @ivar clusters: the upstreams; None before the start.
    @ivar holds: which targets are judged, and taken back.
    @ivar workers: processes that share the work, this one included.
    @ivar overload: what there is too little of, and what is done about that.
    @ivar load: how much of what this process can carry it carries right now, in percent.
    """

    name = "protogate"

    def __init__(
        self,
        path: str,
        built: Build,
        reactor: Any = None,
        now: Callable[[], float] | None = time.monotonic,
        signals: bool = True,
        dns: IResolver | None = None,
        opener: Opener | None = None,
        notify: Notify | None = None,
        alone: bool = True,
        log: int | None = None,
        board: Board | None = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor as installed  # noqa: PLC0415 - importing it installs it

            reactor = installed
        self._reactor = reactor
        self._signals = Signals(reactor) if signals else None
        self.wheel = Wheel(reactor, now=now)
        self.counters = Counters()
        self._notify = Notify() if notify is None else notify
        self.loading: Loading[Build] = Loading(
            path,
            lambda path: self.secure(build_quietly(path)),
            self._reload,
            reactor,
            self.wheel,
            self.counters.count,
            self._notify,
        )
        self.built = built
        self.plan: Plan = None  # type: ignore[assignment]  # set before a port is open
        self._dns = dns
        self._resolver: Resolver | None = None
        self._journal = Journal(reactor, self.counters.count)
        self._opened = log
        self._board = Alone() if board is None else board
        self._news = News(self._board, self.wheel)
        self.holds = Holds(self._board, self.wheel, self.counters.count)
        self.admin = Admin(Own(self), reactor) if alone else None
        self._delay: Timer | None = None
        self._blocked: Blocked | None = None
        self.ports = Ports(reactor, self.wheel, partial(Front, self), opener)
        self.clusters: Clusters | None = None
        self._renewal = Renewal(reactor, self.wheel, self._renewed, self.counters.count, is_native(reactor))
        self._old: dict[weakref.ref[Life], list[Any]] = {}
        self.lives = Lives()
        self._redises: Redises | None = None
        self.workers = 1
        self.overload = Overload(reactor, self.counters, self._doors)
        self._load = Load(reactor)
        self.load: Callable[[], float] = self._load

    # -- life

    def privilegedStartService(self) -> None:
        """Twisted: open the ports while we may; the user is changed afterwards."""
        if self._resolver is not None:
            return
        dns = System(self._reactor) if self._dns is None else self._dns
        resolver = self._resolver = Resolver(self.wheel, dns, self.counters.count)
        self.clusters = Clusters(Means(reactor=self._reactor, wheel=self.wheel, resolver=resolver, board=self._board))
        try:
            opened, self._opened = self._opened, None
            self.take(self.prepare(self.built, opened))
        except ConfigFaults:
            resolver.close()
            self._resolver = None
            raise

    def startService(self) -> None:
        """Twisted."""
        self.privilegedStartService()
        super().startService()  # type: ignore[no-untyped-call]
        self._renewal.start()
        self._begin()

    def watch_loop(self) -> None:
        """From now on notice what holds the event loop up."""
        self._blocked = Blocked(self._reactor, self.counters, modules=lambda: self.lives.kinds)
        self._reactor.callWhenRunning(self._blocked.start)

    def _begin(self) -> None:
        """It runs."""
        self.loading.start()
        self._follow()
        if self._signals is not None:
            self._signals.serve(self.reload, self._cannot_upgrade)
            self.watch_loop()
        tell_addresses(self.addresses)
        self._notify.ready()
        self._notify.watch(self._reactor)

    def stopService(self) -> Deferred[None]:
        """
        Twisted: not ready any more; after C{gateway.drainDelay} close the ports, let requests under way end until
        C{gateway.drain} is over, then end them.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        if self._signals is not None:
            self._signals.drain(self._hurry)
        self._notify.stopping()
        self.loading.stop()
        self._renewal.stop()
        served: Deferred[None] = Deferred()
        delay = float(self.built.config.gateway.drain_delay) if self.admin is not None else 0.0
        if delay:
            self._delay = self.wheel.after(delay, lambda: served.callback(None))
        else:
            served.callback(None)
        served.addCallback(lambda _: self.ports.close(float(self.built.config.gateway.drain)))
        return served.addCallback(self._stopped)

    def _stopped(self, _: object) -> Deferred[Any]:
        self.holds.stop()
        self.lives.stop()
        if self._redises is not None:
            self._redises.stop()
        if self.clusters is None:
            return self._closed(None)
        return self.clusters.stop().addCallback(self._closed)

    def _hurry(self) -> None:
        """Whoever asked for the stop does not want to wait for it."""
        _log.info("requests under way are cut off")
        if self._delay is not None and self._delay.active:
            self._delay.set(0.0)
        self.ports.abort()

    def _closed(self, _: object) -> Deferred[None]:
        if self._resolver is not None:
            self._resolver.close()
        if self._blocked is not None:
            self._blocked.stop()
        self._load.stop()
        self.overload.stop()
        self.wheel.stop()
        ends: list[Deferred[Any]] = [self._journal.stop()]
        if self.admin is not None:
            ends.append(self.admin.close())
        return DeferredList(ends).addCallback(self._ended)

    def _ended(self, result: object) -> None:
        self._notify.close()
        if self._signals is not None:
            self._signals.release()

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens (a port 0 is chosen by the kernel), by its name."""
        return self.ports.addresses

    # -- reload

    def reload(self) -> Deferred[bool]:
        """Load the configuration anew, see L{Loading.reload}."""
        return self.loading.reload()

    @property
    def reloads(self) -> int:
        """How often the configuration was loaded anew, with success."""
        return int(self.counters.counts["reload_ok"])

    def _cannot_upgrade(self) -> None:
        _log.error("without workers (gateway.workers: 0) new code takes a restart")

    def _reload(self, built: Build) -> None:
        if built.config.gateway.workers and self.admin is not None:
            raise built.loaded.faults([restart_needed()])
        self.take(self.prepare(built))
        self._follow()

    def _follow(self) -> None:
        """The configuration in force says whether its file is watched; and what is doubtful about it is said."""
        built = self.built
        self.loading.follow(built.config.gateway.watch, built.loaded.stamp)
        self.loading.warn(built.warnings)

    # -- taking a configuration over

    def prepare(self, built: Build, descriptor: int | None = None) -> Prepared:
        """
        Do what may fail, but for the ports.

        @param descriptor: of the access log, where somebody else opened it; it is ours from now on.
        @raise ConfigFaults: the access log cannot be opened, or TLS not prepared; everything is as before.
        """
        self.secure(built)
        try:
            return Prepared(built, self._journal.open(built.config.access_log, descriptor))
        except ConfigError as error:
            raise built.loaded.faults([error]) from None

    def secure(self, built: Build) -> Build:
        """
        Make what TLS needs of it, in any thread; harmless when made.

        @raise ConfigFaults: the library does not take something.
        """
        try:
            built.tls.prepare(is_native(self._reactor))
        except ConfigError as error:
            raise built.loaded.faults([error]) from None
        return built

    def forget(self, prepared: Prepared) -> None:
        """It is not to be taken after all."""
        self._journal.drop(prepared.log, bool(self.running))

    def take(self, prepared: Prepared) -> None:
        """
        Make a configuration the one in force.

        @raise ConfigFaults: a port cannot be opened; everything is as before.
        """
        built, log = prepared
        config = built.config
        pages = None
        try:
            if self.admin is not None:
                pages = self.admin.open(config.admin)
            opened = self.ports.open(config.listeners)
        except (ConfigFaults, ConfigError) as error:
            if self.admin is not None:
                self.admin.drop(pages)
            self.forget(prepared)
            raise built.loaded.faults(error.faults if isinstance(error, ConfigFaults) else [error]) from None
        # From here on nothing fails.
        assert self.clusters is not None
        if self.admin is not None:
            self.admin.take(pages)
        self._outlive()
        clusters = self.clusters.take(
            config, built.destinations, built.codec, self.counters, built.tls.clients, built.sources
        )
        self.built = built
        self.overload.take(config.gateway.overload, built.priorities, self.workers)
        first: Any = () if self.overload.shedding is None else (self.overload.shedding,)
        self.plan = built.plan(self.wheel, clusters, self._record, self.counters.count, first)
        self.holds.take(built.router.releases)
        self.lives.take(built.bound, partial(self._means, clusters), self.counters)
        self.ports.take(opened, config, built.codecs, self.counters, built.tls.servers)
        self.overload.enter()
        self._renewal.follow(built)
        self._journal.take(log, config.access_log, built.always)

    def _means(self, clusters: Mapping[str, Cluster], bound: Bound) -> governance.Means:
        return governance.Means(
            reactor=self._reactor,
            wheel=self.wheel,
            count=bound.count,
            gauge=bound.gauges.__setitem__,
            load=self._loaded,
            services=clusters,
            workers=self.workers,
            stores=self._store,
            shadow=bound.shadow,
            news=self._news if self.workers > 1 else None,
        )

    def pressure(self) -> dict[str, float]:
        """How near to its end each resource of this process is, from 0 to 1; see L{Overload.pressure}."""
        return self.overload.pressure()

    def _doors(self) -> Iterable[Open]:
        return self.ports.opened.values()

    def _loaded(self) -> float:
        """What L{load} says at that moment."""
        return self.load()

    def _store(self, settings: RedisSettings) -> Redis:
        """The connection to a Redis, for modules."""
        if self._redises is None:
            self._redises = Redises(self._reactor, self.wheel, self.counters.count)
        return self._redises.take(settings)

    def _renewed(self, sides: Sides) -> None:
        """Certificates, keys or authorities were renewed: for handshakes from now on."""
        self.ports.secure(sides.servers)
        if self.clusters is not None:
            self.clusters.secure(sides.clients)

    def _outlive(self) -> None:
        """What is about to be replaced goes piece by piece, when the last exchange that follows it is over."""
        if self.plan is not None:
            self._old[weakref.ref(self.plan.life, self._over)] = list(self.built.router.rules)

    def _over(self, life: weakref.ref[Life]) -> None:
        remains = self._old.pop(life)
        if self.running:
            self._reactor.callInThread(bury, remains)

    # -- records

    def _record(self, exchange: Exchange) -> None:
        """What every exchange ends in, whatever configuration it began under."""
        count = self.counters.count
        count("exchanges")
        reason = exchange.reason
        if reason is not None:
            count(f"failed_{reason.who.value}")
        if exchange.error is None and exchange.target is not None and (reason is not None or exchange.ledger.rpc > 0):
            cluster = exchange.plan.clusters[exchange.target.upstream]
            assert isinstance(cluster, Cluster)
            cluster.over(exchange.ledger, exchange.response, reason)
        self.counters.tally.note(exchange)
        log = self._journal.log
        if log is not None and log.wants(exchange):
            log.write(record(exchange))
