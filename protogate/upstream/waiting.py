"""
Who waits for a connection of a pool, and for how long.

Rules
- First come, first served.  Where there is no end of those who come, the newest is next
  (L{protogate.upstream.standing}).
- The clock runs for requests that wait for others to finish.  Those for which connections are being made it spares: an
  attempt has clocks of its own and names the true cause when it fails.
- One timer, for whoever waits longest; none where nobody waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from protogate.context import Context
from protogate.errors import Abort
from protogate.message import Request
from protogate.upstream.link import Gate, Link, note
from protogate.upstream.refusal import queued
from protogate.upstream.standing import Standing

if TYPE_CHECKING:
    from protogate.upstream.pool import Pool


class Waiting:
    """
    @ivar usual: who takes any connection, and C{fresh}: who wants a new one; whoever came first is first.
    @ivar standing: whether there is an end of them.
    @ivar clock: runs for whoever waits longest.
    """

    __slots__ = ("_context", "_pool", "_wheel", "clock", "fresh", "standing", "usual")

    def __init__(self, pool: Pool, context: Context) -> None:
        self._pool, self._context, self._wheel = pool, context, context.wheel
        self.usual: OrderedDict[Gate, None] = OrderedDict()
        self.fresh: OrderedDict[Gate, None] = OrderedDict()
        self.standing = Standing()
        self.clock = self._wheel.timer(self.look)

    @property
    def number(self) -> int:
        """How many wait."""
        return len(self.usual) + len(self.fresh)

    def enter(self, request: Request, fresh: bool, preface: bytes) -> Gate:
        """One more waits."""
        limit, now, standing = self._context.timeouts.queue, self._wheel.now(), self.standing
        span = self._pool.settings.standing
        if not self.usual and not self.fresh:
            standing.begin(now)
        if standing.on:
            limit = standing.limit(limit, span)
        gate = Gate(self._pool, request, now + limit if limit else inf, preface)
        (self.fresh if fresh else self.usual)[gate] = None
        if (limit or span) and not self.clock.active:
            self.clock.set(min(limit or span, span or limit))
        return gate

    def leave(self, gate: Gate) -> None:
        """One waits no more."""
        self.usual.pop(gate, None)
        self.fresh.pop(gate, None)
        self.settle()

    def clear(self) -> tuple[Gate, ...]:
        """Nobody waits any more: those that did."""
        gone = (*self.usual, *self.fresh)
        self.usual.clear()
        self.fresh.clear()
        self.clock.clear()
        return gone

    def settle(self) -> None:
        """Some have left: where nobody is left, no clock is needed."""
        if not self.usual and not self.fresh:
            self.clock.clear()
            self.standing.on = False

    @property
    def overdue(self) -> bool:
        """Whether a request has waited too long that was spared because a connection was being made for it."""
        return bool(self.usual) and next(iter(self.usual)).at <= self._wheel.now()

    def look(self) -> None:
        """Refuse who has waited too long."""
        pool, now, limit = self._pool, self._wheel.now(), self._context.timeouts.queue
        span = pool.settings.standing
        nearest = self._stand(now, span) if span else inf
        if self.standing.on:
            limit = self.standing.limit(limit, span)
        late: list[Gate] = []
        for queue, first in zip((self.fresh, self.usual), pool.spared(), strict=True):
            for place, gate in enumerate(queue):
                if gate.at > now:
                    nearest = min(nearest, gate.at)
                    break
                if place >= first:
                    late.append(gate)
        if nearest < inf:
            self.clock.set(nearest - now)
        for gate in late:
            self.fresh.pop(gate, None)
            self.usual.pop(gate, None)
        for _ in late:
            self._context.count("queue_timeout")
        if late:
            self.settle()
            refuse(late, queued(pool.name, limit))
            pool.settle()

    def _stand(self, now: float, span: float) -> float:
        """Whether there is an end of the queue; returns when to look again."""
        standing = self.standing
        if not standing.on and (self.usual or self.fresh):
            left = standing.left(now, span)
            if left > 0.0:
                return now + left
            standing.on = True
            self._context.count("queue_standing")
            for gate in chain(self.fresh, self.usual):
                gate.at = min(gate.at, now + span)
        return inf


def refuse(gates: Iterable[Gate], reason: Abort, link: Link | None = None) -> None:
    """
    Tell these that there is no connection for them.

    @param link: the attempt that has failed for them.
    """
    for gate in gates:
        if not gate.called:  # one may be cancelled while another is told
            if link is not None and gate.request.ledger is not None:
                note(gate.request, link)
            gate.errback(reason)
