"""
How late the event loop is, as a level from 0 to 1 that lets in what can be done.

Rules
- What is let in now shows later, as lateness that adds up: whoever only follows that, however slowly, always comes too
  late, and swings.  So there are two parts.  One follows lateness, L{FOLLOW} of what is missing in a second, and finds
  the place.  The other is in proportion to it, L{LEAD} of the way, and is gone as soon as the loop has caught up.
- At rest the level is 0 at C{begin}, 1 at C{full}, and in between in proportion.
- Lateness beyond C{full} counts for the second part alone, up to L{MOST} times the way: the first is slow to forget.
- Of two looks the mean counts, for work comes in bursts.  But one long call, a collection of garbage, is no load:
  nothing counts before two of L{LOOKS} looks were beyond C{begin}.
- Time counts, not looks: they come less often the later the loop is.
"""

from __future__ import annotations

from typing import Final

FOLLOW: Final = 0.25
"""In a second.  Much more, and it is full before what it does shows."""
LEAD: Final = 0.1
"""Level.  With looks ten times a second more would swing where several times of what can be done are asked."""
MOST: Final = 5.0
"""Times of the way from C{begin} to C{full}: the second part alone never sheds more than half."""
LOOKS: Final = 4
LONG: Final = 1.0
"""Seconds: as long as two looks are apart at most, as far as the level is concerned."""
LEAST: Final = 0.01
"""Below it there is nothing left of the first part; so near to 1 the level is 1."""


class Lag:
    """
    @ivar begin: @ivar full: the marks, in seconds; C{begin < full}.
    @ivar value: seconds; what counted at the last look.
    @ivar level: from 0 to 1.
    """

    __slots__ = ("_base", "_seen", "begin", "full", "level", "value")

    def __init__(self, begin: float, full: float) -> None:
        self.begin, self.full = begin, full
        self.level = self.value = self._base = 0.0
        self._seen = [0.0] * LOOKS

    def look(self, late: float, seconds: float) -> float:
        """
        It is so late now; returns the level.

        @param seconds: since the last look.
        """
        seen = self._seen
        del seen[0]
        seen.append(late)
        self.value = value = self._counts()
        far = (value - self.begin) / (self.full - self.begin)
        base = self._base + FOLLOW * min(seconds, LONG) * (min(far, 1.0) - self.level)
        if far <= 0.0 and base < LEAST:
            base = 0.0
        self._base = base = min(max(base, 0.0), 1.0)
        level = base + LEAD * min(max(far, 0.0), MOST)
        self.level = level = 1.0 if far >= 1.0 and level > 1.0 - LEAST else min(level, 1.0)
        return level

    def succeed(self, before: Lag) -> None:
        """Go on where that one was: its marks were others, perhaps."""
        self.level, self.value, self._base = before.level, before.value, before._base
        self._seen = list(before._seen)

    def _counts(self) -> float:
        """Seconds."""
        mean, second = (self._seen[-1] + self._seen[-2]) / 2, sorted(self._seen)[-2]
        return mean if second > self.begin else min(mean, second)
