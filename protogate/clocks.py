"""
Clocks of one request among several on a connection: how long its peer may take over a body.

A codec that has many requests on a connection asks here, for each of them, whenever its own clock rings
(L{protogate.connection.Connection.late}).  It knows when bytes came last, and what to do about who is late.

Rules
- Each returns the seconds until somebody must look again (C{inf} = nobody need), and an L{Abort} once it is too late.
- Whoever is waited for is the one whose clock runs: none does while a body is paused from our side.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from protogate.errors import CLIENT, UPSTREAM, Abort, Phase, timeout
from protogate.halves import OPEN

if TYPE_CHECKING:
    from protogate.context import Timeouts

WINDOW: Final = 10.0
"""Seconds over which clientMinRate is measured."""

Verdict = tuple[float, Abort | None]


def upload(stream: Any, now: float, times: Timeouts, count: Callable[[str], None]) -> Verdict:
    """
    The content of a request that a client sends, while somebody wants it.

    @param stream: its C{heard} says when bytes came last; C{mark} and C{got} are those of the window of clientMinRate,
        and are kept here: when it began, and what had been received by then.
    """
    left, stall = inf, times.client_stall
    if stall:
        left = stream.heard + stall - now
        if left <= 0:
            count("client_stall_timeout")
            return inf, timeout(Phase.CLIENT_STALL, CLIENT, stall)
    rate = times.client_min_rate
    if rate:
        span, got = now - stream.mark, stream.ledger.received
        if span >= WINDOW:
            if got - stream.got < rate * span:
                count("client_min_rate_timeout")
                return inf, timeout(Phase.CLIENT_MIN_RATE, CLIENT, span)
            stream.mark, stream.got, span = now, got, 0.0
        left = min(left, WINDOW - span)
    return left, None


def download(stream: Any, now: float, times: Timeouts, count: Callable[[str], None]) -> Verdict:
    """
    The content of a response that an upstream sends.

    @param stream: its C{heard} says when bytes came last.
    """
    seconds = times.response_stall
    if not seconds or stream.reading != OPEN or stream.tunnel:
        return inf, None
    if stream.paused or stream.writing == OPEN:
        return seconds, None  # it is not this side that is waited for
    left: float = stream.heard + seconds - now
    if left <= 0:
        count("response_stall_timeout")
        return inf, timeout(Phase.RESPONSE_STALL, UPSTREAM, seconds)
    return left, None
