"""
A L{Story} at work: the real gateway on a quick reactor, servers, clients, a name server, and a Redis.

Rules
- Everything that is left to chance is drawn from the seed, by dice of their own for each server and each crowd; so the
  same seed tells the same tale, and a story that is changed a little changes a little.
- After the last client has come, all that is under way is waited for; then the gateway is stopped as a process is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import ceil, inf
from typing import Any, Final

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

from protogate.context import Context, Timeouts
from protogate.discovery.sources import asked
from protogate.governance.gcrascript import GCRA
from protogate.governance.quotascript import QUOTA
from protogate.message import Request
from protogate.observe.schema import Record
from protogate.testing.gateway import MemoryGateway, Source
from protogate.testing.names import Names
from protogate.testing.redis import RedisServer, gcra, quota
from protogate.testing.simulation.chance import dice, replayed
from protogate.testing.simulation.clients import Crowd
from protogate.testing.simulation.network import QuickReactor
from protogate.testing.simulation.servers import Origin, Seen
from protogate.testing.simulation.story import Story, Teller
from protogate.testing.simulation.tale import Judged, Tale
from protogate.wheel import Wheel

COPIED: Final = b"x-protogate-copy"
LOOK: Final = 0.1
"""Seconds between two looks at what the gateway gives its endpoints."""
SETTLE: Final = 300.0
"""Seconds after the last client within which all must have ended."""
_OFF: Final = Timeouts(**{each.name: 0.0 for each in fields(Timeouts)})


def tell(teller: Teller, seed: int) -> Tale:
    """Run the story that the seed makes."""
    reactor = QuickReactor()
    zero = reactor.seconds()
    with replayed(seed, lambda: reactor.seconds() - zero):
        return World(teller(dice(seed, "story")), seed, reactor).run()


class World:
    """
    @ivar gateway: the L{MemoryGateway}.
    @ivar reactor: its reactor.
    @ivar names: its name server.
    @ivar redis: listens where the story says so.
    @ivar origins: the servers at work, by name.
    @ivar crowds: the clients at work.
    @ivar tale: what happened so far.
    """

    def __init__(self, story: Story, seed: int, reactor: QuickReactor) -> None:
        self.story, self.reactor = story, reactor
        self.tale = tale = Tale(story, seed)
        self._zero = reactor.seconds()
        self.names = Names({"localhost": ["127.0.0.1"], **story.hosts}, ttl=story.ttl)
        self.redis = RedisServer(reactor.seconds, {GCRA: gcra, QUOTA: quota})
        if story.redis is not None:
            reactor.listenTCP(story.redis[1], self.redis, interface=story.redis[0])
        wheel = Wheel(reactor, 1.0)
        context = Context(wheel, timeouts=_OFF)
        self.origins = {
            server.name: Origin(server, reactor, context, dice(seed, "server", server.name), self._seen, story.health)
            for server in story.servers
        }
        self._by_address = {origin.address: origin for origin in self.origins.values()}
        self._shares: dict[tuple[str, str], Judged] = {}
        self._totals: dict[tuple[str, str], float] = {}
        self._reloads: list[list[bool]] = []
        self._ends: list[Callable[[], None]] = [wheel.stop]
        self._observe()
        try:
            self.gateway = MemoryGateway(story.config, reactor=reactor, names=self.names)
        except BaseException:
            self._close()
            raise
        tale.records = self.gateway.records
        if story.effort:
            self.gateway.service.told = self._work
        listeners = {each.name: (each.address) for each in self.gateway.service.built.config.listeners}
        self.crowds = []
        for index, clients in enumerate(story.clients):
            name = clients.listener or clients.protocol
            if name not in listeners:
                name = next(iter(listeners))
            where = self.gateway.service.addresses[name]
            self.crowds.append(
                Crowd(
                    clients,
                    reactor,
                    context,
                    dice(seed, "clients", index),
                    (where.host, where.port),
                    tale.asks,
                    story.seconds,
                    self._zero,
                )
            )
        for event in sorted(story.events, key=lambda event: event.at):
            reactor.callLater(event.at, event.happen, self)

    def now(self) -> float:
        """Seconds since the story began."""
        return self.reactor.seconds() - self._zero

    def run(self) -> Tale:
        """To the end."""
        try:
            self._run()
        finally:
            self._close()
        return self.tale

    def reload(self, config: Source) -> None:
        """Give the gateway another configuration."""
        results: list[bool] = []
        self._reloads.append(results)
        self.gateway.write(config)
        self.gateway.service.reload().addCallback(results.append)

    # -- inside

    def _run(self) -> None:
        tale, story, reactor = self.tale, self.story, self.reactor
        for look in range(1, ceil(story.seconds / LOOK) + 1):
            reactor.advance(max(self._zero + min(look * LOOK, story.seconds) - reactor.seconds(), 0.0))
            self._look()
            if look % 5 == 0:
                self._count()
        while (busy := self._busy()) and self.now() < story.seconds + SETTLE:
            reactor.advance(1.0)
        tale.unsettled += busy
        self._look()
        self._count()
        if any(results != [True] for results in self._reloads):
            tale.failures.append(f"the configuration of a reload was not taken: {self._reloads}")
        for crowd in self.crowds:
            crowd.close()
        reactor.run()
        tale.counts = {scope: dict(counts.counts) for scope, counts in self._scopes()}
        tale.most = {name: origin.most for name, origin in self.origins.items()}
        for origin in self.origins.values():
            origin.rests()
        tale.left += self.gateway.stop()

    def _close(self) -> None:
        for origin in self.origins.values():
            origin.close()
        self.reactor.run()
        for end in self._ends:
            end()

    def _busy(self) -> list[str]:
        """What is under way."""
        busy = [f"{ask.agent}, which asked {ask.target}" for ask in self.tale.asks if ask.ended < 0]
        busy += [f"{crowd.soon} that will ask again" for crowd in self.crowds if crowd.soon]
        watched = asked(self.gateway.service.built.sources)  # for endpoints, for as long as the gateway runs
        for name, cluster in self._clusters():
            for address, stats in cluster.stats().items():
                if name in watched:
                    continue
                if stats.waiting or stats.connecting or stats.open != stats.idle:
                    busy.append(f"upstream {name} {address}: {stats}")
        return busy

    def _work(self, record: Record) -> None:
        self.reactor.spend(self.story.effort * (1.0 if record.attempts else 0.05))

    def _clusters(self) -> list[tuple[str, Any]]:
        clusters = self.gateway.service.clusters
        return [] if clusters is None else list(clusters.current.items())

    def _seen(self, origin: Origin, request: Request) -> Seen:
        name = origin.server.name
        copied, agent = request.headers.get(COPIED), request.headers.get(b"user-agent")
        seen = Seen(
            self.now(),
            name,
            "" if agent is None else agent.decode("latin-1"),
            request.target.decode("latin-1"),
            copied="" if copied is None else copied.decode("latin-1"),
        )
        self._look()
        for upstream, _ in self._clusters():
            judged = self._shares.get((upstream, name))
            if judged is not None:
                seen.share, seen.since = judged.share, judged.at
                others = [each.share for (of, other), each in self._shares.items() if of == upstream and other != name]
                seen.others = max(others, default=0.0)
                break
        self.tale.seen.append(seen)
        return seen

    def _look(self) -> None:
        """What endpoints get now."""
        shares = self._shares
        for name, cluster in self._clusters():
            for endpoint in cluster.endpoints:
                origin = self._by_address.get(endpoint.address)
                if origin is None:
                    continue
                key = (name, origin.server.name)
                before = shares.get(key)
                share, by = endpoint.share, tuple(endpoint.held)
                if before is None or before.share != share or before.by != by:
                    at = self.now() if before is not None else -inf
                    shares[key] = judged = Judged(at, name, origin.server.name, share, by)
                    if before is not None or share != 1.0:
                        self.tale.judged.append(judged)

    def _scopes(self) -> list[tuple[str, Any]]:
        counters = self.gateway.service.counters
        return [("", counters)] + [(f"{kind} {name}", each) for (kind, name), each in counters.scopes.items()]

    def _count(self) -> None:
        now, totals, counted = self.now(), self._totals, self.tale.counted
        for scope, counters in self._scopes():
            for event, total in counters.counts.items():
                if totals.get((scope, event)) != total:
                    totals[scope, event] = total
                    counted.append((now, scope, event, total))

    def _observe(self) -> None:
        failures = self.tale.failures

        @implementer(ILogObserver)
        def note(event: LogEvent) -> None:
            failure = event.get("log_failure")
            if failure is not None:
                failures.append(f"{event.get('log_format') or ''}\n{failure.getTraceback()}")

        globalLogPublisher.addObserver(note)
        self._ends.append(lambda: globalLogPublisher.removeObserver(note))
