"""A place for modules that limit: a clock, counters, and perhaps a Redis that they share."""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred

from protogate.errors import Abort
from protogate.expression import template
from protogate.governance.gcrascript import GCRA
from protogate.governance.quotascript import QUOTA
from protogate.governance.redis import Redises
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans
from protogate.testing.reactor import START, MemoryReactor
from protogate.testing.redis import RedisServer, gcra, quota
from protogate.wheel import Wheel

STORE = {"url": "redis://192.0.2.9:6379/0"}
NOON = 1_796_040_000.0
"""Of the 30th of November 2026, UTC: when every test begins."""


class Stand:
    """
    Modules on one reactor.

    @param make: makes their factory, called with a clock.
    """

    def __init__(self, make, workers=1, store=False):
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor)
        self.counted = Counter()
        self.server = RedisServer(self.now, {GCRA: gcra, QUOTA: quota})
        self.port = self.reactor.listenTCP(6379, self.server, interface="192.0.2.9") if store else None
        self.redises = Redises(self.reactor, self.wheel)
        self.workers, self._make = workers, make

    def now(self):
        return self.reactor.seconds() - START + NOON

    def means(self, shadow=False):
        return FakeMeans(
            reactor=self.reactor,
            wheel=self.wheel,
            counted=self.counted,
            stores=self.redises.take,
            workers=self.workers,
            shadow=shadow,
        )

    def module(self, before=None, shadow=False, **params):
        compiled = {
            name: template.compile(value) if isinstance(value, str) else value for name, value in params.items()
        }
        made = self._make(self.now).build(compiled)
        made.start(self.means(shadow), before)
        if before is not None:
            before.stop()
        self.reactor.run()
        return made

    def ask(self, module, **more):
        """None, or the Abort."""
        made = exchange(clock=self.reactor.clock, **more)
        try:
            result = module.process(made)
        except Abort as abort:
            return abort
        if isinstance(result, Deferred):
            found = []
            result.addCallbacks(found.append, lambda failure: found.append(failure.value))
            self.reactor.run()
            (result,) = found
        return result

    def at_once(self, module):
        """As C{ask}, but nothing may wait."""
        try:
            result = module.process(exchange(clock=self.reactor.clock))
        except Abort as abort:
            return abort
        assert result is None, "nobody waits for a store that is known to be gone"
        return result

    def passed(self, module, times, **more):
        return sum(self.ask(module, **more) is None for _ in range(times))

    def close(self):
        self.redises.stop()
        self.reactor.run()
        self.wheel.stop()
        assert self.reactor.getDelayedCalls() == []
