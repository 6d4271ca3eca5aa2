"""
What a codec and a pool are handed besides their work: clocks, limits, counters.

One L{Context} serves all connections of one listener, or of one upstream.  A reload swaps its C{limits} and
C{timeouts}; whoever uses them reads them from the context each time a message starts, and never keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protogate.wheel import Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; 0 = off.  Each phase has a clock of its own (C{gateway.timeouts})."""

    client_header: float = 10.0
    """First byte of a head to its last byte; absolute, never put forward by a byte."""
    client_idle: float = 75.0
    """A kept-alive connection between two requests; also accept to first byte."""
    client_stall: float = 30.0
    """The client neither sends its body nor takes ours."""
    client_min_rate: float = 0.0
    """Bytes per second that an upload must reach over 10 s; 0 = off."""
    queue: float = 5.0
    """Waiting for a free upstream connection."""
    dns: float = 3.0
    connect: float = 3.0
    """TCP alone."""
    tls: float = 5.0
    """Handshake alone."""
    upstream_stall: float = 30.0
    """No byte of our request could be flushed; starts at the flush, never at write()."""
    response_head: float = 30.0
    """From the last flushed byte of the request to the response head."""
    response_stall: float = 60.0
    """No byte of the response body."""
    total: float = 0.0
    """The whole exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes unless said otherwise; each is its own limit, counter and error (C{gateway.limits})."""

    request_line: int = 8 * 1024
    """414."""
    header_line: int = 8 * 1024
    """431."""
    headers: int = 64 * 1024
    """431, all field lines together."""
    header_count: int = 128
    """431, field lines."""
    body: int = 0
    """413; 0 = off."""
    response_headers: int = 64 * 1024
    """502, the whole head of an upstream's response."""
    connections: int = 20_000
    """Of one listener.  One more is closed at once."""


def uncounted(event: str) -> None:
    """The C{count} of a context that nobody watches."""


class Context:
    """
    @ivar wheel: the clock for every wait.
    @ivar limits: the limits now in force.
    @ivar timeouts: the timeouts now in force.
    @ivar count: C{count(event)}: one more of that protocol event, e.g. C{"header_line_too_long"}; snake_case names.
    @ivar deadline: of an upstream: the field that tells it what is left of a request's deadline; empty = none does.
    """

    __slots__ = ("count", "deadline", "limits", "timeouts", "wheel")

    def __init__(
        self,
        wheel: Wheel,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        count: Callable[[str], None] = uncounted,
    ) -> None:
        self.wheel = wheel
        self.limits = Limits() if limits is None else limits
        self.timeouts = Timeouts() if timeouts is None else timeouts
        self.count = count
        self.deadline = b""
