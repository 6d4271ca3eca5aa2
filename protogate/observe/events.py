"""
Events of which there may be thousands a second: told once a minute (L{Limited}), or not at all (L{quietly}).

An event of this kind says that something goes on, not that it happened once: the counters have the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from twisted.python import log

Result = TypeVar("Result")

INTERVAL: Final = 60.0
"""Seconds."""


class Limited:
    """
    A method of L{twisted.logger.Logger} that lets one event pass per interval: the first at once.

    The event gets the field C{suppressed}: how many were held back since the one before.

    @param emit: e.g. C{log.warn}.
    @param interval: seconds.
    @param now: seconds on a clock that only goes forward.
    """

    __slots__ = ("_emit", "_interval", "_next", "_now", "_suppressed")

    def __init__(
        self, emit: Callable[..., object], interval: float = INTERVAL, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit, self._interval, self._now = emit, interval, now
        self._next = float("-inf")
        self._suppressed = 0

    def __call__(self, text: str, **fields: Any) -> bool:
        """Emit, or not; returns which."""
        now = self._now()
        if now < self._next:
            self._suppressed += 1
            return False
        self._next = now + self._interval
        suppressed, self._suppressed = self._suppressed, 0
        self._emit(text, suppressed=suppressed, **fields)
        return True


def quietly(function: Callable[..., Result], *args: Any, **named: Any) -> Result:
    """
    Call what tells the log of its every step, as parts of Twisted do: each port, each DNS query.

    What it tells has no text then, and observers write no event without one.  What it raises is raised.
    """
    return log.callWithContext({"log_format": ""}, function, *args, **named)  # type: ignore[no-any-return]
