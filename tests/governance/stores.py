"""A module in force, beside a Redis that is there or not."""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred

from protogate.errors import Abort
from protogate.governance.redis import Redises
from protogate.testing.means import FakeMeans
from protogate.testing.reactor import MemoryReactor
from protogate.testing.redis import RedisServer
from protogate.wheel import Wheel

HOST = "192.0.2.9"
REDIS = {"url": f"redis://{HOST}:6379", "timeout": "50ms"}


class Stored:
    """
    @ivar server: the Redis.
    @ivar counted: what the module counted.
    """

    def __init__(self, factory, before=None, there=True, shadow=False, **params):
        self.reactor = MemoryReactor() if before is None else before.reactor
        self.server = RedisServer(self.reactor.seconds) if before is None else before.server
        if there and before is None:
            self.reactor.listenTCP(6379, self.server, interface=HOST)
        self.counted = Counter()
        self.wheel = Wheel(self.reactor)
        self.redises = Redises(self.reactor, self.wheel)
        self.module = factory.build(params)
        means = FakeMeans(
            reactor=self.reactor, wheel=self.wheel, counted=self.counted, stores=self.redises.take, shadow=shadow
        )
        self.module.start(means, before and before.module)
        self.reactor.run()

    def begin(self, made):
        """What process() gives, with its end in a list."""
        told = []
        try:
            result = self.module.process(made)
        except Abort as abort:
            result = abort
        if isinstance(result, Deferred):
            result.addErrback(lambda failure: failure.value).addCallback(told.append)
        else:
            told.append(result)
        return told

    def ask(self, made, seconds=0.0):
        """The exchange, when it goes on; else the Response or the Abort."""
        told = self.begin(made)
        self.reactor.advance(seconds) if seconds else self.reactor.run()
        (result,) = told
        return made if result is None else result

    def stop(self):
        self.module.stop()
        self.reactor.run()
        assert self.server.connections == []
        self.wheel.stop()
        assert self.reactor.getDelayedCalls() == []
