"""
Requests for one answer that is on its way: one asks, the others wait.

Rules
- Who waits does so for a time only, and then asks for itself.
- When the one that asks fails or leaves, the next one asks; when its answer is nothing to share, all ask.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from twisted.internet.defer import Deferred

from protogate.wheel import Timer, Wheel


class Word(Enum):
    """What somebody who waits is told."""

    LOOK = 0
    """There is an answer."""
    LEAD = 1
    """It is now you who asks, and others wait for you."""
    GO = 2
    """Ask for yourself."""


LOOK: Final = Word.LOOK
LEAD: Final = Word.LEAD
GO: Final = Word.GO


class Flight:
    """@ivar over: nobody waits for it any more."""

    __slots__ = ("_waiting", "over")

    def __init__(self) -> None:
        self._waiting: dict[Deferred[Word], Timer] = {}
        self.over = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, wheel: Wheel, seconds: float) -> Deferred[Word]:
        """Wait for its end; cancel it to leave."""
        told: Deferred[Word] = Deferred(self._leave)
        self._waiting[told] = wheel.after(seconds, lambda: self._tell(told, GO))
        return told

    def land(self, word: Word) -> None:
        """It has ended: L{LOOK} or L{GO}."""
        self.over = True
        for told in list(self._waiting):
            self._tell(told, word)

    def fail(self) -> bool:
        """Whoever asked has failed; False = nobody is there to take its place, so it is over."""
        for told in self._waiting:
            self._tell(told, LEAD)
            return True
        self.over = True
        return False

    def _tell(self, told: Deferred[Word], word: Word) -> None:
        timer = self._waiting.pop(told, None)
        if timer is not None:
            timer.end()
            told.callback(word)

    def _leave(self, told: Deferred[Word]) -> None:
        timer = self._waiting.pop(told, None)
        if timer is not None:
            timer.end()
