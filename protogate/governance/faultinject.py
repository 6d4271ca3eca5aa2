"""
C{faultInject}: what may go wrong, on purpose: late answers, errors, answers that break off or trickle.

Rules
- C{ratio} is drawn for each request anew, by a hash of its id; what it is hit by is in its record (C{notes.fault}).
- Nothing blocks: a delay is a timer, and ends when the client leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from protogate import cohort
from protogate.body import End, Valve
from protogate.errors import GATEWAY, Abort
from protogate.exchange import problem
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IBody, IModule, IModuleFactory
from protogate.message import Field, Response, tunnels
from protogate.wheel import Timer, Wheel

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

NOTE: Final = "fault"
"""Under which a record tells of it."""
TICK: Final = 0.1
"""Seconds between two pieces of an answer that is slowed down."""


@implementer(IModule)
class FaultInject:
    """
    @param ratio: percent of requests.
    @param delay: seconds before it goes on.
    @param status: of the answer instead of the upstream's; 0 = the upstream's.
    @param truncate: bytes of content after which an answer breaks off; None = it does not.
    @param rate: bytes of content in a second; 0 = as many as there are.
    """

    def __init__(
        self,
        ratio: float,
        delay: float,
        status: int,
        truncate: int | None,
        rate: int,
    ) -> None:
        self._ratio, self._delay, self._status = ratio, delay, status
        self._truncate, self._rate = truncate, rate
        self.waits = delay, ("delay",)

    def process(self, exchange: Exchange) -> Response | Deferred[Response | None] | None:
        """Do it, for those that are hit."""
        if not self._hits(exchange):
            return None
        if not self._delay:
            return self._answer(exchange)
        timer: Timer | None = None
        late: Deferred[Response | None] = Deferred(lambda _: None if timer is None else timer.end())
        timer = exchange.wheel.after(self._delay, lambda: late.callback(self._answer(exchange)))
        return late

    def rehearse(self, exchange: Exchange) -> Response | None:
        """In the shadow: nobody is kept waiting."""
        return self._answer(exchange) if self._hits(exchange) else None

    def _hits(self, exchange: Exchange) -> bool:
        """Whether it is one of those; what is done to it is noted."""
        if self._ratio < 100 and cohort.position(exchange.id) >= self._ratio:
            return False
        told = []
        if self._delay:
            told.append(f"{self._delay:g} s late")
        if self._status:
            told.append(f"{self._status}")
        elif self._truncate is not None or self._rate:
            exchange.upon(self._answered)
            if self._truncate is not None:
                told.append(f"cut off after {self._truncate} bytes")
            if self._rate:
                told.append(f"{self._rate} bytes/s")
        exchange.notes[NOTE] = ", ".join(told)
        return True

    def _answer(self, exchange: Exchange) -> Response | None:
        if not self._status:
            return None
        fault = Abort(
            "faultInject: on purpose", GATEWAY, self._status, error="proxy_internal_response", detail="on purpose"
        )
        return problem.answer(fault, exchange.plan.forwarding.pseudonym, exchange.id)

    def _answered(self, exchange: Exchange) -> None:
        response = exchange.response
        if response is None or response.body is None or tunnels(exchange.request, response):
            return
        if self._truncate is not None:
            response.body = Cut(response.body, self._truncate, exchange.wheel)
        if self._rate:
            response.body = Slow(response.body, self._rate, exchange.wheel)


class Cut(Valve):
    """
    A body that breaks off after C{size} bytes, on purpose; one that is shorter does not.  A moment passes before it
    does, so that what is left of it is seen.
    """

    __slots__ = ("_left", "_timer")

    def __init__(self, body: IBody, size: int, wheel: Wheel) -> None:
        super().__init__(body)
        self._left = size
        self._timer = wheel.timer(self._break)

    def write(self, data: bytes) -> None:
        left = self._left
        self._left -= len(data)
        if self._left < 0:
            data = data[: max(left, 0)]
            self._timer.set(TICK)
            self.body.pauseProducing()
        if data:
            super().write(data)

    def resumeProducing(self) -> None:
        if self._left >= 0:
            super().resumeProducing()

    def stopProducing(self) -> None:
        self._timer.end()
        super().stopProducing()

    def _break(self) -> None:
        self.cut(Abort("faultInject: cut off on purpose", GATEWAY, 502))

    def _deliver(self, end: End) -> None:
        self._timer.end()
        super()._deliver(end)


class Slow(Valve):
    """A body of which C{rate} bytes flow in a second: a piece each L{TICK}."""

    __slots__ = ("_end", "_held", "_rests", "_size", "_stopped", "_timer")

    def __init__(self, body: IBody, rate: int, wheel: Wheel) -> None:
        super().__init__(body)
        self._size = max(int(rate * TICK), 1)
        self._held = b""
        self._rests = self._stopped = False  # for our sake, for the reader's
        self._end: End | None = None  # not yet told
        self._timer = wheel.timer(self._rested)

    def write(self, data: bytes) -> None:
        self._held += data
        self.body.pauseProducing()
        self._flow()

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._end = (trailers, None)
        self._flow()

    def abort(self, reason: Abort) -> None:
        self._held = b""
        super().abort(reason)

    def pauseProducing(self) -> None:
        self._stopped = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._stopped = False
        self._flow()

    def stopProducing(self) -> None:
        self._timer.end()
        self._held = b""
        super().stopProducing()

    def _rested(self) -> None:
        self._rests = False
        self._flow()

    def _flow(self) -> None:
        """One piece, or the end, or more of the body inside, as it is time for it."""
        if self._rests or self._stopped:
            return
        if self._held:
            piece, self._held = self._held[: self._size], self._held[self._size :]
            self._rests = True
            self._timer.set(TICK)
            super().write(piece)
        elif self._end is not None:
            end, self._end = self._end, None
            self._deliver(end)
        else:
            super().resumeProducing()

    def _deliver(self, end: End) -> None:
        self._timer.end()
        super()._deliver(end)


@implementer(IModuleFactory)
class FaultInjectFactory:
    """Makes L{FaultInject}."""

    name = "faultInject"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = False

    def build(self, params: Mapping[str, object]) -> FaultInject:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "ratio", "delay", "abort", "truncate", "rate")
        ratio = reader.percent("ratio")
        delay = reader.seconds("delay", 0.0)
        status = reader.integer("abort", 0, 400, 599) if "abort" in reader else 0
        truncate = reader.size("truncate", 0) if "truncate" in reader else None
        rate = reader.size("rate", 0, 1) if "rate" in reader else 0
        if not (delay or status or truncate is not None or rate) and not reader.faults:
            reader.fault("expected delay, abort, truncate, or rate")
        if status and (truncate is not None or rate):
            reader.fault("there is no answer to be cut off or slowed down: it is an error", "abort")
        reader.done()
        return FaultInject(ratio, delay, status, truncate, rate)
