"""
A L{MemoryReactor} that is quick: its clock goes from one call to the next, and only links that are busy are moved.

Rules
- What happens, and in which order, is decided by what was asked for and in which order; never by addresses of objects.
- Between two calls that are due nothing is looked at, however long that is: idle connections cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IPullProducer, IPushProducer
from twisted.internet.task import Clock

from protogate.testing.reactor import START, MemoryReactor
from protogate.testing.transport import ALL, HIGH, ROUNDS, Address, Link, Net, Wire


class Hours(Clock):
    """A C{task.Clock} with a heap in place of a list that is sorted again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.rightNow = START
        self._heap: list[tuple[float, int, DelayedCall]] = []
        self._number = 0

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> IDelayedCall:  # noqa: A002 - Twisted's name
        """Twisted."""
        call = DelayedCall(self.rightNow + delay, callable, args, kwargs, self._cancelled, self._put, self.seconds)
        self._put(call)
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Twisted."""
        return list({id(call): call for _, _, call in sorted(self._heap) if call.active()}.values())

    def advance(self, amount: float) -> None:
        """Twisted."""
        self.rightNow += amount
        while self.due():
            self.call()

    def next(self) -> float | None:
        """When the next call is due; None = never."""
        heap = self._heap
        while heap:
            when, _, call = heap[0]
            if call.called or call.cancelled or call.time != when:
                heappop(heap)
            elif call.delayed_time > 0:
                heappop(heap)
                call.activate_delay()
                self._put(call)
            else:
                return when
        return None

    def due(self) -> bool:
        """Whether a call is due now."""
        when = self.next()
        return when is not None and when <= self.rightNow

    def call(self) -> None:
        """Make the call that is due."""
        call = heappop(self._heap)[2]
        call.called = 1
        call.func(*call.args, **call.kw)

    def _put(self, call: DelayedCall) -> None:
        self._number += 1
        heappush(self._heap, (call.time, self._number, call))

    def _cancelled(self, call: DelayedCall) -> None:
        """It is left out when its time comes."""


class Line(Wire):
    """A wire that says when there is something to do."""

    link: Link | None = None
    busy: deque[Link]

    def _wake(self) -> None:
        link = self.link
        if link is not None and not link.moving:  # type: ignore[attr-defined]
            link.moving = True  # type: ignore[attr-defined]
            self.busy.append(link)

    def write(self, data: bytes) -> None:
        """Twisted."""
        super().write(data)
        self._wake()

    def loseConnection(self) -> None:
        """Twisted."""
        super().loseConnection()
        self._wake()

    def loseWriteConnection(self) -> None:
        """Twisted."""
        super().loseWriteConnection()
        self._wake()

    def abortConnection(self) -> None:
        """Twisted."""
        super().abortConnection()
        self._wake()

    def registerProducer(self, producer: IPushProducer | IPullProducer, streaming: bool) -> None:
        """Twisted."""
        super().registerProducer(producer, streaming)
        self._wake()

    def unregisterProducer(self) -> None:
        """Twisted."""
        super().unregisterProducer()
        self._wake()

    def resumeProducing(self) -> None:
        """Twisted."""
        super().resumeProducing()
        self._wake()


class Cable(Link):
    """A link of two L{Line}s."""

    moving = False

    def __init__(self, a: Any, b: Any, busy: deque[Link], **named: Any) -> None:
        super().__init__(a, b, wire=Line, **named)
        self.moving = True
        busy.append(self)
        for _, end in self.ends:
            assert isinstance(end, Line)
            end.link, end.busy = self, busy


class Web(Net):
    """Moves the links that are busy."""

    def __init__(self, most: int = ALL) -> None:
        self.busy: deque[Link] = deque()
        self.all: dict[Link, None] = {}
        super().__init__(most)

    @property
    def links(self) -> list[Link]:
        """Those that are not dead."""
        return list(self.all)

    @links.setter
    def links(self, links: list[Link]) -> None:
        self.all = dict.fromkeys(links)

    def add(self, link: Link) -> Link:
        """One more."""
        self.all[link] = None
        return link

    def quiet(self) -> bool:
        """Whether nothing is left to do."""
        return not self.busy and not self._later

    def step(self) -> bool:
        """What waits for the next turn, then one step of each link that is busy."""
        later, self._later = self._later, []
        for function in later:
            function()
        moved = bool(later)
        busy = self.busy
        for _ in range(len(busy)):
            link = busy.popleft()
            if link.step(self.most):
                moved = True
                if not link.dead:
                    busy.append(link)
                    continue
                self.all.pop(link, None)
            link.moving = False  # type: ignore[attr-defined]
        return moved


class QuickReactor(MemoryReactor):
    """A L{MemoryReactor} for long stories; it keeps no list of the links that there were."""

    net: Web
    clock: Hours

    def __init__(self, most: int = ALL, high: int = HIGH) -> None:
        super().__init__(most, high)
        self.clock, self.net = Hours(), Web(most)
        self.callLater = self.clock.callLater  # type: ignore[method-assign]  # asked often: no call in between
        self.seconds = self.clock.seconds  # type: ignore[method-assign]

    def run(self, rounds: int | None = None, until: Callable[[], bool] | None = None) -> None:
        """As L{MemoryReactor.run}."""
        clock, net = self.clock, self.net
        for _ in range(ROUNDS if rounds is None else rounds):
            while clock.due():
                clock.call()
            if net.quiet() or (until is not None and until()):
                return
            net.step()
        if rounds is None:
            raise AssertionError(f"the reactor is still busy after {ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Move the clock, from one call to the next, and all that this sets off."""
        clock = self.clock
        end = clock.rightNow + seconds
        self.run()
        while (when := clock.next()) is not None and when <= end:
            clock.rightNow = max(when, clock.rightNow)
            self.run()
        clock.rightNow = max(end, clock.rightNow)

    def spend(self, seconds: float) -> None:
        """Whoever is called now takes so long: all others are late by that."""
        self.clock.rightNow += seconds

    def join(self, a: Any, b: Any, here: Address, there: Address) -> Link:
        """As L{MemoryReactor.join}."""
        return self.net.add(Cable(a, b, self.net.busy, client=here, server=there, high=self.high))
