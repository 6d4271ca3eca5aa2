"""
The process that has the sockets, and workers that serve: L{GatewayService} for several processes.

Rules
- It serves nothing itself.  What it does is little and quick, so that it is there when a worker is not.
- It reads a file once, and hands its text over: all workers have the same configuration.
- It answers for all workers: to operators, to the service manager, in the counters.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, DeferredLock
from twisted.logger import Logger

from protogate.admin.port import Admin, Open
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.loading import Loading
from protogate.observe.counters import Counters
from protogate.observe.snapshot import Snapshot, Totals, merge
from protogate.process import upgrade
from protogate.process.activation import Inherited
from protogate.process.channel import Refused
from protogate.process.child import Begun, Child, Order
from protogate.process.cores import cores, number_of
from protogate.process.crew import Crew
from protogate.process.draft import Draft, draft_quietly
from protogate.process.keeper import Keeper
from protogate.process.logfile import LogFile
from protogate.process.notify import Notify
from protogate.process.sockets import Opening, Sockets
from protogate.process.spawn import spawn
from protogate.process.upgrade import Begin, State
from protogate.process.whole import Whole
from protogate.service import tell_addresses
from protogate.signals import Signals
from protogate.wheel import Timer, Wheel

_log = Logger()


class Opened(NamedTuple):
    """What a configuration takes of this process, and of its workers."""

    order: Order
    opening: Opening
    pages: Open | None

    def given(self, slot: int) -> dict[str, list[int]]:
        """The sockets of a worker."""
        return self.opening.share(slot, self.order.workers)


class Supervisor(Service):
    """
    One gateway of several processes, as a Twisted service.

    @param first: the configuration to begin with.
    @param reactor: to run on; None = the installed one.
    @param begin: how this process was started: it takes that to become another program.
    @param notify: the line to the service manager.
    @param inherited: sockets that the service manager opened.
    @param state: what the program before this one left.
    @param signals: whether to mind signals.
    """

    name = "protogate"

    def __init__(
        self,
        first: Draft,
        reactor: Any = None,
        begin: Begin | None = None,
        notify: Notify | None = None,
        inherited: Sequence[Inherited] = (),
        state: State | None = None,
        signals: bool = True,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor as installed  # noqa: PLC0415 - importing it installs it

            reactor = installed
        self._reactor, self._begin, self._state = reactor, begin, state
        self._notify = Notify() if notify is None else notify
        self._signals = Signals(reactor) if signals else None
        self.draft = first
        self.counters = Counters()
        self.totals = Totals(None if state is None else state.counted)  # type: ignore[arg-type]  # it was one
        self.wheel = Wheel(reactor, now=time.monotonic)
        self.sockets = Sockets(inherited)
        self.keeper = Keeper(self.counters.count, *(() if state is None else (state.posts, state.term)))
        self.crew = self._crew()
        self.admin = Admin(Whole(self), reactor)
        self.loading: Loading[Draft] = Loading(
            first.loaded.name, draft_quietly, self._reload, reactor, self.wheel, self.counters.count, self._notify
        )
        self._one = DeferredLock()  # a reload and an upgrade are not for the same time
        self._now: Opened | None = None
        self._log = LogFile(None if state is None else state.log)
        self._delay: Timer | None = None
        self._upgrading = False

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens, by its name."""
        return self.sockets.addresses

    # -- begin

    def privilegedStartService(self) -> None:
        """Twisted: open what takes rights; the user is changed afterwards."""
        if self._now is not None:
            return
        if self._state is not None:
            self._now = Opened(self._before(self._state), self.sockets.find(self._state.sockets), None)
            return
        self._now = self._open(self.draft)
        self._log.take(self.draft.config.access_log, self._now.order.log)
        self.sockets.take(self._now.opening)
        self.admin.take(self._now.pages)

    def startService(self) -> None:
        """Twisted."""
        self.privilegedStartService()
        super().startService()  # type: ignore[no-untyped-call]
        now = self._now
        assert now is not None
        self.loading.start()
        self._follow()
        if self._signals is not None:
            self._signals.serve(self.loading.reload, self.upgrade)
        if self._state is not None:
            self.crew.start(now.order, now.given, [self._child(begun) for begun in self._state.children])
            self._reactor.callWhenRunning(upgrade.begun)
            # Operators and the service manager wait for no new worker: it may take its time, or never serve.
            with suppress(ConfigError):  # _renew() tells of it
                self.admin.take(self.admin.open(self.draft.config.admin))
            self._notify.watch(self._reactor)
            self._one.run(Deferred.fromCoroutine, self._renew()).addErrback(self._trouble)
            return
        tell_addresses(self.addresses)
        self.crew.start(now.order, now.given)
        self.crew.ready().addCallback(self._ready)

    def _ready(self, _: object) -> None:
        _log.info("{number} workers serve", number=len(self.crew.serving))
        self._notify.ready()
        self._notify.watch(self._reactor)

    def _follow(self) -> None:
        self.loading.follow(self.draft.config.gateway.watch, self.draft.source[1])
        self.loading.warn(self.draft.warnings)

    # -- configurations

    def _open(self, draft: Draft) -> Opened:
        """
        What a configuration takes of this process.

        @raise ConfigFaults: a port or the access log cannot be opened; everything is as before.
        """
        config = draft.config
        gateway = config.gateway
        workers = number_of(gateway.workers)
        pages, opening = None, Opening()
        try:
            pages = self.admin.open(config.admin)
            opening = self.sockets.open(config.listeners, workers)
            log = self._log.open(config.access_log)
        except (ConfigFaults, ConfigError) as error:
            self.admin.drop(pages)
            self.sockets.forget(opening)
            raise draft.loaded.faults(error.faults if isinstance(error, ConfigFaults) else [error]) from None
        text, stamp = draft.source
        order = Order(
            path=self.loading.path,
            text=text,
            stamp=stamp,
            workers=workers,
            drain=float(gateway.drain),
            hang=float(gateway.hang_timeout),
            cores=cores(gateway.pinning),
            log=log,
        )
        return Opened(order, opening, pages)

    def _shut(self, opened: Opened) -> None:
        """It is not to be in force after all."""
        self.admin.drop(opened.pages)
        self.sockets.forget(opened.opening)
        self._log.drop(opened.order.log)

    def _reload(self, draft: Draft) -> Deferred[None]:
        """L{Loading}: have all workers take it."""
        return self._one.run(lambda: Deferred.fromCoroutine(self._take(draft)))

    async def _take(self, draft: Draft) -> None:
        opened = self._open(draft.keeps_workers())
        try:
            await self.crew.reload(opened.order, opened.given)
        except Refused as refused:
            self._shut(opened)
            text = str(refused)
            raise ConfigFaults([ConfigError(text)], [text]) from None
        self._put(draft, opened)
        self._follow()

    def _put(self, draft: Draft, opened: Opened) -> None:
        """It is in force."""
        self._now, self.draft = opened, draft
        self._log.take(draft.config.access_log, opened.order.log)
        self.sockets.take(opened.opening)
        self.admin.take(opened.pages)
        self.totals.keep("listener", [listener.name for listener in draft.config.listeners])
        self.keeper.settled()
        self.totals.keep("upstream", draft.upstreams)
        self.totals.keep("module", [module.name for module in draft.config.modules])

    # -- workers

    def _crew(self) -> Crew:
        crew = Crew(self._reactor, self._hire, self.counters.count, lead=self.keeper.lead)
        self.keeper.vacant = crew.led
        return crew

    def _hire(self, slot: int, order: Order) -> Child:
        ours, theirs = socket.socketpair()
        reads, writes = os.pipe()
        with ours, theirs:
            try:
                options = ["--slot", str(slot)]
                if self._begin is not None and self._begin.reactor:
                    options += ["--reactor", self._begin.reactor]
                if order.cores:
                    options += ["--core", str(order.cores[slot % len(order.cores)])]
                line = upgrade.arguments("protogate.process.worker", *options)
                pid = spawn(line, os.environ, theirs.fileno(), writes)
            except BaseException:
                os.close(reads)
                raise
            finally:
                os.close(writes)
            return self._child(Begun(pid, slot, time.monotonic(), ours.detach(), reads))

    def _child(self, begun: Begun) -> Child:
        return Child(self._reactor, begun, self.crew.ended, self.totals.join(), self.keeper, self.crew.leaves)

    def counted(self) -> Snapshot:
        """What all of them counted, as far as they have told, and we."""
        own = self.counters.snapshot()
        own["gauges"] = {"": {"": {"workers": len(self.crew.serving)}}}
        return merge((own, self.totals.whole()))

    # -- new code

    def upgrade(self) -> Deferred[None]:
        """Become the program that is installed now, if that would do; fires when it will not do."""
        return self._one.run(lambda: Deferred.fromCoroutine(self._upgrade())).addErrback(self._trouble)

    async def _upgrade(self) -> None:
        if self._begin is None:
            _log.error("no upgrade: how this process was started is not known")
            return
        _log.info("upgrade: the new code is tried")
        why = await upgrade.rehearse(self._reactor, self._left(self._begin))
        if why:
            self.counters.count("upgrade_failed")
            _log.error("no upgrade, all is as before: {why}", why=why)
        elif self.running:
            _log.info("upgrade: this process becomes the new program")
            await self.admin.close()
            if self.running:
                self._become(self._left(self._begin))

    def _left(self, begin: Begin) -> State:
        """What the next program has to know, but for the workers."""
        assert self._now is not None
        order = self._now.order
        return State(
            begin=begin,
            path=order.path,
            text=order.text,
            stamp=order.stamp,
            workers=order.workers,
            sockets=self.sockets.keep(),
            children=[],
            counted=dict(merge((self.counters.snapshot(), self.totals.gone))),
            log=self._log.held,
            posts=self.keeper.posts,
            term=self.keeper.term,
        )

    def _become(self, state: State) -> None:
        state.children = [child.detach() for child in self.crew.release()]
        try:
            upgrade.become(state)
        except OSError as error:
            _log.error("no upgrade: the new program cannot be executed: {why}", why=error)
        assert self._now is not None
        self.crew = self._crew()
        self.crew.start(self._now.order, self._now.given, [self._child(begun) for begun in state.children])
        self.admin.take(self.admin.open(self.draft.config.admin))

    async def _renew(self) -> None:
        """The new program: have workers with new code."""
        self._state = None
        try:
            opened = self._open(self.draft)
            try:
                await self.crew.renew(opened.order, opened.given)
            except Refused:
                self._shut(opened)
                raise
            if not self.running:
                self._shut(opened)
                return
        except (ConfigFaults, Refused) as why:
            if not self.running:
                _log.info("the upgrade is given up: the gateway stops")
                return
            self.counters.count("upgrade_failed")
            _log.error("no upgrade, the workers that were there go on: {why}", why=why)
        else:
            self._put(self.draft, opened)
            self.counters.count("upgrade_ok")
            tell_addresses(self.addresses)
            _log.info("upgrade: {number} workers with the new code serve", number=len(self.crew.serving))
        self._notify.ready()

    def _before(self, state: State) -> Order:
        """The configuration under which those serve who were there before."""
        gateway = self.draft.config.gateway
        return Order(
            path=state.path,
            text=state.text,
            stamp=state.stamp,
            workers=state.workers,
            drain=float(gateway.drain),
            hang=float(gateway.hang_timeout),
            cores=cores(gateway.pinning),
            log=self._log.descriptor,
        )

    # -- the end

    def stopService(self) -> Deferred[Any]:
        """
        Twisted: not ready any more; after C{gateway.drainDelay} workers accept nothing more, and have C{gateway.drain}
        for what is under way.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        if self._signals is not None:
            self._signals.drain(self._hurry)
        self._notify.stopping()
        self.loading.stop()
        served: Deferred[None] = Deferred()
        delay = float(self.draft.config.gateway.drain_delay)
        if delay:
            self._delay = self.wheel.after(delay, lambda: served.callback(None))
        else:
            served.callback(None)
        return served.addCallback(self._drain).addCallback(self._stopped)

    def _drain(self, _: object) -> Deferred[None]:
        # Workers close their duplicates last, after they have accepted what waits: nobody is to come in behind them.
        self.sockets.close()
        return self.crew.stop()

    def _hurry(self) -> None:
        """Whoever asked for the stop does not want to wait for it."""
        _log.info("requests under way are cut off")
        if self._delay is not None and self._delay.active:
            self._delay.set(0.0)
        self.crew.hurry()

    def _stopped(self, _: object) -> Deferred[Any]:
        self.wheel.stop()
        self._log.close()
        return DeferredList([self.admin.close()]).addCallback(self._ended)

    def _ended(self, _: object) -> None:
        self._notify.close()
        if self._signals is not None:
            self._signals.release()

    def _trouble(self, failure: Any) -> None:
        _log.failure("an upgrade went wrong", failure)
