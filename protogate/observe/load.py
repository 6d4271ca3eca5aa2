"""
How much of what one event loop can do it does: for whoever gives less where there is too much to do.

Rules
- It is the larger of two: the share of the time in which its thread was on a CPU, and how late the loop comes to what
  is due, of L{LATE} seconds.  The first tells what is coming; the second holds also where others have the CPU, or a
  call waits for something.  So 100 % is where requests begin to wait for each other; there may be more.
- Each look counts for a quarter: one long call is no load, a second of it is.
- Nobody looks before somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall

LATE: Final = 0.1
"""Seconds."""
EVERY: Final = 0.25
"""Seconds between two looks."""
WEIGHT: Final = 0.25
"""Of the last look."""


class Load:
    """
    Call it, on the loop's thread: how much, in percent.

    @param reactor: whose loop it is.
    @param used: seconds that the thread that calls it was on a CPU.
    """

    def __init__(self, reactor: Any, used: Callable[[], float] = time.thread_time) -> None:
        self._reactor, self._used = reactor, used
        self._call: IDelayedCall | None = None
        self._at = self._had = 0.0
        self._level = 0.0

    def __call__(self) -> float:
        """Percent; 0 when it is asked for the first time."""
        if self._call is None:
            self._again()
        return self._level

    def stop(self) -> None:
        """Look no more, until somebody asks again."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        self._level = 0.0

    def _again(self) -> None:
        self._at, self._had = self._reactor.seconds(), self._used()
        self._call = self._reactor.callLater(EVERY, self._look)

    def _look(self) -> None:
        passed, used = self._reactor.seconds() - self._at, self._used() - self._had
        busy, late = used / passed, (passed - EVERY) / LATE
        self._level += WEIGHT * (100.0 * max(busy, late) - self._level)
        self._again()
