"""How long to wait before something that ended is started again."""

from __future__ import annotations

from typing import Final

STEADY: Final = 10.0
"""Seconds of life after which an end is an accident, and no habit."""
FIRST: Final = 0.5
"""Seconds to wait when it ended again, soon after it was started; each time twice as long …"""
MOST: Final = 5.0
"""… up to this: connections that the kernel has accepted for it wait that long."""


class Backoff:
    """
    One place where something runs.

    @ivar soon: how often in a row it ended soon after its start.
    """

    def __init__(self) -> None:
        self.soon = 0

    def ended(self, lived: float) -> float:
        """It lived so many seconds.  Seconds to wait: none after a life of some length, nor the first time."""
        if lived >= STEADY:
            self.soon = 0
            return 0.0
        self.soon += 1
        return 0.0 if self.soon == 1 else min(FIRST * 2.0 ** (self.soon - 2), MOST)
