"""
The running gateway: listeners, upstreams, the plan that new requests follow; reload and drain.

Rules
- A configuration is built completely (L{protogate.build}) before anything live is touched, and taken over in one call:
  what can fail (opening ports, the access log) comes first and is undone if it does.
- What did not change stays as it is: listeners are known by their address, upstreams by their name.
- Exchanges under way keep their L{Plan}; nothing else keeps an old one alive.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from traceback import clear_frames
from types import FrameType
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IResolver
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.build import SCHEMES, Build, build
from protogate.config import address, model
from protogate.config.faults import ConfigFaults
from protogate.config.watch import FileWatch
from protogate.context import Context
from protogate.downstream.listener import Listener
from protogate.errors import ConfigError
from protogate.exchange.exchange import Exchange
from protogate.exchange.plan import Plan
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.observe.accesslog import AccessLog
from protogate.observe.counters import Counters
from protogate.observe.record import record
from protogate.routing.rules import forwarded
from protogate.upstream.cluster import Cluster, Means
from protogate.upstream.resolver import Resolver, System
from protogate.wheel import Wheel

BACKLOG: Final = 4096
"""Connections that the kernel may hold for us; it cuts this to its own limit (somaxconn)."""
LINGER: Final = 5.0
"""Seconds that an upstream stays after it was removed: exchanges that began before may still be on their way to it."""
SWITCH: Final = 0.0005
"""Seconds after which a thread that builds a configuration lets the event loop go on."""

_log = Logger()


@implementer(IService)
class Front:
    """The gateway as one listener's codecs see it."""

    __slots__ = ("_gateway", "name")

    def __init__(self, gateway: GatewayService, name: str) -> None:
        self._gateway, self.name = gateway, name

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        return Exchange(request, self._gateway.plan, self.name).begin()


class GatewayService(Service):
    """
    One gateway, as a Twisted service.

    @param path: of the configuration file.
    @param built: what was made of it.
    @param reactor: to run on; None = the installed one.
    @param now: seconds on a clock that only goes forward.
    @param signals: whether SIGHUP loads the configuration anew.
    @param dns: who knows the addresses of upstreams; None = what the system's resolv.conf says.
    @ivar plan: what a request that comes in now follows.
    @ivar reloads: how often the configuration was loaded anew, with success.
    @ivar counters: what happened so far.
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
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor as installed  # noqa: PLC0415 - importing it installs it

            reactor = installed
        # Absolute: a daemon may change its folder.
        self._path, self._reactor, self._signals = os.path.abspath(path), reactor, signals
        self.wheel = Wheel(reactor, now=now)
        self.counters = Counters()
        self.reloads = 0
        self.built = built
        self.plan: Plan = None  # type: ignore[assignment]  # set before a port is open
        self._dns = dns
        self._resolver: Resolver | None = None
        self._log: AccessLog | None = None
        self._clusters: dict[str, Cluster] = {}
        self._listeners: dict[Key, Open] = {}
        self._retired: set[Deferred[Any]] = set()
        self._leaving: set[Cluster] = set()
        self._loading: Deferred[bool] | None = None
        self._old: dict[weakref.ref[Plan], list[Any]] = {}
        self._again = False
        self._watch: FileWatch | None = None
        self._hangup: Any = None

    # -- life

    def privilegedStartService(self) -> None:
        """Twisted: open the ports while we may; the user is changed afterwards."""
        if self.plan is not None:
            return
        dns = System(self._reactor) if self._dns is None else self._dns
        self._resolver = Resolver(self.wheel, dns, self.counters.count)
        try:
            self._take(self.built)
        except ConfigFaults:
            self._resolver.close()
            raise

    def startService(self) -> None:
        """Twisted."""
        self.privilegedStartService()
        super().startService()  # type: ignore[no-untyped-call]
        self._follow()
        if self._signals and hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._hangup = signal.signal(signal.SIGHUP, self._hung)
        for opened in self._listeners.values():
            _log.info("listener {name}: {address}", name=opened.listener.name, address=opened.port.getHost())

    def stopService(self) -> Deferred[None]:
        """Twisted: close the ports, let requests under way end until C{gateway.drain} is over, then end them."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._hangup is not None:
            signal.signal(signal.SIGHUP, self._hangup)
            self._hangup = None
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        deadline = float(self.built.config.gateway.drain)
        listeners, self._listeners = self._listeners, {}
        for opened in listeners.values():
            self._retire(opened, deadline)
        done: Deferred[Any] = DeferredList(list(self._retired))
        done.addCallback(self._stopped)
        return done

    def _stopped(self, _: object) -> Deferred[Any]:
        clusters, self._clusters = [*self._clusters.values(), *self._leaving], {}
        self._leaving.clear()
        closed = DeferredList([cluster.stop() for cluster in clusters])
        return closed.addCallback(self._closed)

    def _closed(self, _: object) -> Deferred[None] | None:
        if self._resolver is not None:
            self._resolver.close()
        self.wheel.stop()
        log, self._log = self._log, None
        return None if log is None else log.stop()

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens (a port 0 is chosen by the kernel), by its name."""
        return {opened.listener.name: opened.port.getHost() for opened in self._listeners.values()}

    # -- reload

    def reload(self) -> Deferred[bool]:
        """
        Load the configuration anew.  A fault keeps the old one, and is logged.

        @return: fires with whether the new one is in force; never fails.
        """
        if self._loading is not None:
            self._again = True  # the file may have changed after it was read
            return self._join()
        _log.info("loading {path} anew", path=self._path)
        reading: Deferred[Build] = deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), _quietly, build, self._path
        )
        self._loading = reading.addCallback(self._loaded).addErrback(self._kept).addBoth(self._settled)
        return self._join()

    def _join(self) -> Deferred[bool]:
        mine: Deferred[bool] = Deferred()
        assert self._loading is not None

        def tell(result: bool) -> bool:
            mine.callback(result)
            return result

        self._loading.addCallback(tell)
        return mine

    def _loaded(self, built: Build) -> bool:
        if not self.running:
            return False
        self._take(built)
        self.reloads += 1
        self._follow()
        for warning in built.warnings:
            _log.warn("{warning}", warning=warning)
        _log.info("{path} is in force", path=self._path)
        return True

    def _kept(self, failure: Failure) -> bool:
        self.counters.count("reload_failed")
        if failure.check(ConfigFaults):
            _log.error(
                "{path} has faults, the configuration in force stays:\n{faults}",
                path=self._path,
                faults=failure.getErrorMessage(),
            )
        else:
            _log.failure("{path} cannot be loaded, the configuration in force stays", failure, path=self._path)
        return False

    def _settled(self, result: bool) -> bool:
        self._loading = None
        if self._again:
            self._again = False
            self.reload()
        return result

    def _hung(self, number: int, frame: FrameType | None) -> None:
        self._reactor.callFromThread(self.reload)

    def _follow(self) -> None:
        """Watch the file, or stop watching it."""
        wanted = self.built.config.gateway.watch
        if wanted and self._watch is None:
            self._watch = FileWatch(self._path, self.reload, self.wheel)
            self._watch.start(self.built.loaded.stamp)
        elif wanted and self._watch is not None:
            self._watch.known(self.built.loaded.stamp)
        elif not wanted and self._watch is not None:
            self._watch.stop()
            self._watch = None

    # -- taking a configuration over

    def _take(self, built: Build) -> None:
        """
        Make a configuration the one in force.

        @raise ConfigFaults: a port or the access log cannot be opened; everything is as before.
        """
        config = built.config
        log = self._open_log(built)
        try:
            opened = self._open_ports(built)
        except ConfigFaults:
            if log is not None and log is not self._log:
                log.close()
            raise
        # From here on nothing fails.
        self._outlive()
        gateway = config.gateway
        limits, timeouts = gateway.limits.frozen(), gateway.timeouts.frozen()
        clusters = self._take_clusters(built)
        self.built = built
        bound = built.bound
        self.plan = Plan(
            name=gateway.name,
            zone=gateway.zone,
            wheel=self.wheel,
            router=built.router,
            rewrite=forwarded,
            clusters=clusters,
            forwarding=built.forwarding,
            record=self._record,
            count=self.counters.count,
            total=timeouts.total,
            body=limits.body,
            reject=gateway.path_policy == "reject",
            pre_request=bound["PRE_REQUEST"],
            pre_upstream=bound["PRE_UPSTREAM"],
            pre_response=bound["PRE_RESPONSE"],
            error=bound["ERROR"],
            post_response=bound["POST_RESPONSE"],
        )
        for entry in config.listeners:
            taken = opened[_key(entry)]
            listener = taken.listener
            listener.name = taken.front.name = entry.name
            listener.codecs = [built.codecs[name] for name in entry.protocols]
            listener.context.limits, listener.context.timeouts = limits, timeouts
            listener.context.count = self.counters.scope("listener", entry.name).count
        before, self._listeners = self._listeners, opened
        for key, gone in before.items():
            if key not in opened:
                self._retire(gone, float(gateway.drain))
        self.counters.keep("listener", [entry.name for entry in config.listeners])
        self.counters.keep("upstream", list(clusters))
        self._set_log(log, built)

    def _outlive(self) -> None:
        """What is about to be replaced goes piece by piece, when the last exchange that follows it is over."""
        if self.plan is not None:
            self._old[weakref.ref(self.plan, self._over)] = list(self.built.router.rules)

    def _over(self, plan: weakref.ref[Plan]) -> None:
        remains = self._old.pop(plan)
        if self.running:
            self._reactor.callInThread(_bury, remains)

    def _take_clusters(self, built: Build) -> dict[str, Cluster]:
        """The upstreams of a configuration: those that are there already, changed where they must be, and new ones."""
        config = built.config
        wanted: dict[str, model.Upstream | None] = {upstream.name: upstream for upstream in config.upstreams}
        wanted.update((origin, None) for origin in built.router.clusters if origin not in wanted)
        before, self._clusters = self._clusters, {}
        for name, upstream in wanted.items():
            scheme = name.partition("://")[0] if upstream is None else "http"
            codec = built.codecs[upstream.protocol if upstream is not None and upstream.protocol else SCHEMES[scheme]]
            cluster = before.pop(name, None)
            if cluster is not None:
                cluster.update(upstream, config.gateway, codec)
            else:
                assert self._resolver is not None
                means = Means(
                    reactor=self._reactor,
                    wheel=self.wheel,
                    resolver=self._resolver,
                    count=self.counters.scope("upstream", name).count,
                )
                if upstream is None:
                    cluster = Cluster.unnamed(name, config.gateway, codec, means)
                else:
                    cluster = Cluster.named(upstream, config.gateway, codec, means)
                cluster.start()
            self._clusters[name] = cluster
        for cluster in before.values():
            self._leaving.add(cluster)
            self.wheel.after(LINGER, partial(self._leave, cluster))
        return dict(self._clusters)

    def _leave(self, cluster: Cluster) -> None:
        if cluster in self._leaving:
            cluster.drain().addCallback(lambda _: self._leaving.discard(cluster))

    def _set_log(self, log: AccessLog | None, built: Build) -> None:
        old, self._log = self._log, log
        settings = built.config.access_log
        if log is not None and settings is not None:
            log.sample, log.always, log.queue = float(settings.sample), built.always, int(settings.queue)
        if old is not None and old is not log:
            old.stop()

    def _open_log(self, built: Build) -> AccessLog | None:
        model = built.config.access_log
        if model is None:
            return None
        if self._log is not None and self._log.file == model.file:
            return self._log
        try:
            return AccessLog(model.file, count=self.counters.count, reactor=self._reactor)
        except OSError as error:
            fault = ConfigError(f"cannot be opened: {error.strerror}", ("accessLog", "file"))
            raise built.loaded.faults([fault]) from None

    def _open_ports(self, built: Build) -> dict[Key, Open]:
        """The listeners of a configuration: those that are open already, and new ones."""
        opened: dict[Key, Open] = {}
        faults: list[ConfigError] = []
        for index, entry in enumerate(built.config.listeners):
            key = _key(entry)
            found = self._listeners.get(key)
            try:
                opened[key] = self._open_port(entry) if found is None else found
            except CannotListenError as error:
                why = getattr(error.socketError, "strerror", None) or error.socketError
                faults.append(ConfigError(f"cannot listen on {entry.address}: {why}", ("listeners", index, "address")))
        if faults:
            for key, made in opened.items():
                if key not in self._listeners:
                    made.port.stopListening()
            raise built.loaded.faults(faults)
        return opened

    def _open_port(self, entry: model.Listener) -> Open:
        front = Front(self, entry.name)
        listener = Listener(entry.name, (), front, Context(self.wheel))
        where = address.listen(entry.address)
        if where.path:
            port = self._reactor.listenUNIX(where.path, listener, backlog=BACKLOG, wantPID=True)
        else:
            port = self._reactor.listenTCP(where.port, listener, backlog=BACKLOG, interface=where.host)
        return Open(port, listener, front)

    def _retire(self, gone: Open, within: float) -> Deferred[Any]:
        """Take no new connection, let the present ones end, but not for ever."""
        stopped: Deferred[Any] = maybeDeferred(gone.port.stopListening)
        drained: Deferred[Any] = gone.listener.drain()
        last = self.wheel.after(within, gone.listener.abort)
        drained.addCallback(lambda _: last.close())
        ends: Deferred[Any] = DeferredList([stopped, drained])
        self._retired.add(ends)
        ends.addCallback(lambda _: self._retired.discard(ends))
        return ends

    # -- records

    def _record(self, exchange: Exchange) -> None:
        """What every exchange ends in, whatever configuration it began under."""
        count = self.counters.count
        count("exchanges")
        reason = exchange.reason
        if reason is not None:
            count(f"failed_{reason.who.value}")
        log = self._log
        if log is not None and log.wants(exchange):
            log.write(record(exchange))


Key = tuple[address.Listen, str]


def _key(entry: model.Listener) -> Key:
    """What makes a listener the same one after a reload."""
    where = address.listen(entry.address)
    return where, entry.name if not where.port and not where.path else ""


@dataclass(slots=True)
class Open:
    """One open port."""

    port: IListeningPort
    listener: Listener
    front: Front


def _quietly(function: Callable[[str], Build], path: str) -> Build:
    """
    Build in this thread, and hand the interpreter back to the event loop often.

    No garbage is collected meanwhile, and none is looked for in what was built: either holds the interpreter for longer
    than the event loop may wait.  A configuration refers to itself nowhere, so counting references is enough.
    """
    before, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(SWITCH)
    gc.disable()
    try:
        built = function(path)
        if collects:
            gc.freeze()  # with whatever else there is right now: that costs nothing, and moves it out of sight
        return built
    except ConfigFaults as error:
        clear_frames(error.__traceback__)
        for fault in error.faults:  # each would keep alive all that was at hand where it was found
            fault.__traceback__ = fault.__context__ = fault.__cause__ = None
        raise
    finally:
        sys.setswitchinterval(before)
        if collects:
            gc.enable()


def _bury(remains: list[Any]) -> None:
    """Let go of the parts of a large thing one by one, in a thread: all at once would hold the event loop up."""
    while remains:
        remains.pop()
