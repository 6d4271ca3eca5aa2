"""
What can go wrong: what to answer, who is at fault, and whether another attempt is safe.

Rules
- L{Abort} is the only failure that crosses a seam.  It is never changed after it was made: several parties may see it.
- C{reason} is for operators (record, log) and may name addresses; C{detail} is what a stranger may read.
- L{ConfigError} is for load time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final


class Retry(IntEnum):
    """Whether a request that failed may be sent again (RFC 9110, 9.2.2)."""

    NEVER = 0
    """Part of the answer was seen, or nobody can tell."""
    IDEMPOTENT = 1
    """Lost before the response head: safe for idempotent methods only."""
    ALWAYS = 2
    """Surely not processed: never sent, or refused unread."""


NEVER: Final = Retry.NEVER
IDEMPOTENT: Final = Retry.IDEMPOTENT
ALWAYS: Final = Retry.ALWAYS


class Who(StrEnum):
    """Whose fault it was, or whose turn when a clock ran out."""

    CLIENT = "client"
    GATEWAY = "gateway"
    UPSTREAM = "upstream"


CLIENT: Final = Who.CLIENT
GATEWAY: Final = Who.GATEWAY
UPSTREAM: Final = Who.UPSTREAM


class Phase(StrEnum):
    """Which part of an exchange failed; the names are those of C{gateway.timeouts} in the configuration."""

    CLIENT_HEADER = "clientHeader"
    CLIENT_IDLE = "clientIdle"
    CLIENT_STALL = "clientStall"
    CLIENT_MIN_RATE = "clientMinRate"
    QUEUE = "queue"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    UPSTREAM_STALL = "upstreamStall"
    RESPONSE_HEAD = "responseHead"
    RESPONSE_STALL = "responseStall"
    TOTAL = "total"
    DEADLINE = "deadline"
    """The client's own, not one of the configuration."""
    MODULE = "module"
    ROUTING = "routing"


class Abort(Exception):
    """
    Why something ended early.

    @ivar reason: one line for operators: what happened, where.
    @ivar who: whose fault it was.
    @ivar status: what to answer if nothing was answered yet (100..599; 499 = the client left, never sent).
    @ivar retry: whether another attempt is safe.
    @ivar error: error type of RFC 9209, 2.3, for C{Proxy-Status}, e.g. C{connection_refused}; empty when none fits.
    @ivar phase: the clock that ran out or the phase that failed, or None.
    @ivar detail: one line that a stranger may read, or empty.
    @ivar headers: fields that belong to the answer, e.g. C{Retry-After}, C{Allow}.
    @ivar title: a title of its own for the problem document (RFC 9457), or empty for the status phrase.
    """

    def __init__(
        self,
        reason: str,
        who: Who = GATEWAY,
        status: int = 502,
        retry: Retry = NEVER,
        *,
        error: str = "",
        phase: Phase | None = None,
        detail: str = "",
        headers: Sequence[tuple[bytes, bytes]] = (),
        title: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason, self.who, self.status, self.retry = reason, who, status, retry
        self.error, self.phase, self.detail, self.headers, self.title = error, phase, detail, headers, title

    def __repr__(self) -> str:
        return f"<Abort {self.status} {self.who}: {self.reason}>"


CLIENT_GONE: Final = Abort("the client left", CLIENT, 499)
"""What a server codec says of a connection that its client closed or reset.  499 is for the record only."""
CUT_OFF: Final = Abort("the gateway cut the connection off", GATEWAY, 503)
"""What a server codec says of a connection that it was told to abort, e.g. when the wait of a stop is over."""


class ConfigError(ValueError):
    """
    One fault of a configuration value, found at load.

    @ivar message: what is wrong and what to do, e.g. C{expected a number from 0 to 1000, got "many"}.
    @ivar path: where, relative to the value that was being built: names and indexes, e.g. C{("allow", 3)}.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.path = message, path


def timeout(phase: Phase, who: Who, seconds: float, retry: Retry = NEVER) -> Abort:
    """
    The Abort for a clock that ran out: 408 for the client's phases, 504 for the upstream's, 503 for the queue, with
    the error type of RFC 9209.
    """
    status, error = _CLOCKS[phase]
    least = phase is Phase.CLIENT_MIN_RATE
    what = f"sent less than the least rate for {seconds:.3g} s" if least else f"took more than {seconds:g} s"
    return Abort(
        f"{phase} timeout: {who} {what}",
        who,
        status,
        retry,
        error=error,
        phase=phase,
        detail=f"{phase} timeout",
    )


def overdue(who: Who, retry: Retry = NEVER) -> Abort:
    """The Abort for a client's deadline that is over: 504, whoever was waited for."""
    return Abort(
        "the client's deadline is over",
        who,
        504,
        retry,
        error="http_response_timeout",
        phase=Phase.DEADLINE,
        detail="deadline exceeded",
    )


def departed(answered: bool) -> Abort:
    """
    The Abort for an upstream that closed its connection.

    @param answered: within its response, rather than before: then another attempt is out of the question.
    """
    if answered:
        return Abort("the upstream closed within its response", UPSTREAM, 502, error="http_response_incomplete")
    return Abort("the upstream closed before its response", UPSTREAM, 502, IDEMPOTENT, error="connection_terminated")


_CLOCKS: Final[dict[Phase, tuple[int, str]]] = {
    Phase.CLIENT_HEADER: (408, "http_request_error"),
    Phase.CLIENT_IDLE: (408, "http_request_error"),
    Phase.CLIENT_STALL: (408, "http_request_error"),
    Phase.CLIENT_MIN_RATE: (408, "http_request_error"),
    Phase.QUEUE: (503, "connection_limit_reached"),
    Phase.DNS: (504, "dns_timeout"),
    Phase.CONNECT: (504, "connection_timeout"),
    Phase.TLS: (504, "connection_timeout"),
    Phase.UPSTREAM_STALL: (504, "connection_write_timeout"),
    Phase.RESPONSE_HEAD: (504, "http_response_timeout"),
    Phase.RESPONSE_STALL: (504, "connection_read_timeout"),
}
