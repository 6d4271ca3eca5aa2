"""
What a module that lives is handed in tests: L{FakeMeans}, and a service that says what a test wants.

    means = FakeMeans({"http://keys.test:80": Service(lambda request: Response(200, body=Whole(b"{}")))})
    module.start(means, None)
    means.clock.advance(300)
    assert means.counted["source_refreshed"] == 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer

from protogate.governance.means import Means
from protogate.governance.news import News
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.testing.reactor import MemoryReactor
from protogate.wheel import Wheel


@implementer(IService)
class Service:
    """
    Answers by a function.

    @ivar requests: what it was asked, in order.
    """

    def __init__(self, answer: Callable[[Request], Response | Deferred[Response]]) -> None:
        self._answer = answer
        self.requests: list[Request] = []

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        self.requests.append(request)
        return self._answer(request)


def FakeMeans(
    services: Mapping[str, IService] | None = None,
    *,
    reactor: MemoryReactor | None = None,
    wheel: Wheel | None = None,
    counted: Counter[str] | None = None,
    gauges: dict[str, Callable[[], float]] | None = None,
    stores: Callable[[Any], Any] | None = None,
    workers: int = 1,
    shadow: bool = False,
    news: News | None = None,
) -> Means:
    """
    Means on a reactor of memory, whose threads are turns.

    @param wheel: another clock than the reactor's.
    @param counted: gets what the module counts.
    @param gauges: gets what tells how much the module has.
    """
    reactor = MemoryReactor() if reactor is None else reactor
    counts: Counter[str] = Counter() if counted is None else counted

    def count(event: str) -> None:
        counts[event] += 1

    return Means(
        reactor=reactor,
        wheel=Wheel(reactor.clock) if wheel is None else wheel,
        count=count,
        gauge=({} if gauges is None else gauges).__setitem__,
        services={} if services is None else services,
        workers=workers,
        stores=stores,
        shadow=shadow,
        news=news,
    )


__all__ = ["Clock", "FakeMeans", "Service"]
