"""
How much may be asked of an upstream on top of what clients ask.

Rules
- A budget is a share of the requests of the last L{WINDOW} seconds or so, and a floor of so many a second, so that
  little traffic may be helped as well.  Whatever happens, no more is taken than the share of all requests, plus the
  floor for as long as it lasted, plus L{WINDOW} seconds of the floor.
- Requests are counted by who has the budget; it looks at them only when something is taken, so that those that need
  nothing cost nothing.
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 10.0
"""Seconds for which what is not taken is kept."""


class Budget:
    """
    @param share: of the requests, 0.0 to 1.0.
    @param floor: a second, on top.
    @param asked: requests so far, when it begins.
    @param now: seconds on a clock that only goes forward.
    """

    __slots__ = ("_asked", "_at", "_left", "floor", "share")

    def __init__(self, share: float, floor: float, asked: int, now: float) -> None:
        self.share, self.floor = share, floor
        self._asked, self._at = asked, now
        self._left = floor * WINDOW

    def left(self, asked: int, now: float) -> float:
        """How much there is by now."""
        passed = now - self._at
        if passed > 0.0 or asked != self._asked:
            gained = (asked - self._asked) * self.share + passed * self.floor
            if passed >= WINDOW:
                self._left = gained * WINDOW / passed
            else:
                self._left = self._left * (1.0 - passed / WINDOW) + gained
            self._asked, self._at = asked, now
        return self._left

    def take(self, asked: int, now: float) -> bool:
        """Take one, if there is one."""
        if self.left(asked, now) < 1.0:
            return False
        self._left -= 1.0
        return True
