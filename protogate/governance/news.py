"""
What modules of a kind tell their like in the other processes of a gateway: that something happened, now.

Rules
- News is for who is there.  It is passed on within moments, in one order for all; who could not be told in time, or
  missed something, is told that: L{MISSED}.  It is lost where a process ends that had it to pass on.
- Who tells it is not told it.
- It goes over the board (L{protogate.upstream.board}): to who leads, and from there to all.  What is posted last stays
  there for a while, under few keys, each with a number one higher than the one before: so a gap is seen.
- What is told in quick succession goes out together, and no more at once than a message may hold.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from protogate.wheel import Timer, Wheel

if TYPE_CHECKING:
    from protogate.upstream.board import Board

MISSED: Final = None
"""In place of news: there was some, and nobody knows what."""
GAP: Final = 0.05
"""Seconds between two messages."""
MOST: Final = 200
"""Pieces of news that one message holds."""
WAITING: Final = 10_000
"""Pieces that wait to be told; of more it is told that something was missed."""
KEYS: Final = 32
"""Messages that stay on the board."""

Heard = Callable[[Sequence[Any] | None], None]
"""Given news, or L{MISSED}."""


class News:
    """All kinds, of one process."""

    def __init__(self, board: Board, wheel: Wheel) -> None:
        self._board, self._wheel = board, wheel
        self._kinds: dict[str, _Kind] = {}

    def follow(self, kind: str, heard: Heard) -> None:
        """
        Be told from now on what others of that kind tell.

        @param kind: a name from the code.
        @param heard: stays the same until L{leave}.
        """
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind(f"news/{kind}", self._board, self._wheel)
        known.followers.append(heard)

    def leave(self, kind: str, heard: Heard) -> None:
        """Be told no more."""
        known = self._kinds[kind]
        known.followers.remove(heard)
        if not known.followers:
            del self._kinds[kind]
            known.close()

    def tell(self, kind: str, piece: Any) -> None:
        """
        Tell all others, if that kind is followed here.

        @param piece: plain: texts, numbers, lists and dictionaries of them.
        """
        known = self._kinds.get(kind)
        if known is not None:
            known.tell(piece)


class _Kind:
    """@ivar followers: in this process."""

    def __init__(self, topic: str, board: Board, wheel: Wheel) -> None:
        self.followers: list[Heard] = []
        self._topic, self._board, self._wheel = topic, board, wheel
        self._me = secrets.token_hex(8)
        self._number = 0  # of the last message that is known of
        self._waiting: list[Any] = []
        self._missed = False
        self._timer: Timer = wheel.timer(self._send)
        self._going = False  # a message is about to be sent
        board.follow(topic, self._told, self._heard, self._led)

    def close(self) -> None:
        """What still waits is told."""
        while self._waiting or self._missed:
            self._pass_on()
        self._timer.end()
        self._board.leave(self._topic)

    def tell(self, piece: Any) -> None:
        """Send it as soon as that may be."""
        if len(self._waiting) >= WAITING:
            self._waiting, self._missed = [], True
        if not self._missed:
            self._waiting.append(piece)
        if not self._going and not self._timer.active:
            self._going = True
            self._wheel.soon(self._send)

    def _send(self) -> None:
        self._going = False
        if self._waiting or self._missed:
            self._pass_on()
            self._timer.set(GAP)

    def _pass_on(self) -> None:
        """One message, by way of who leads."""
        pieces: list[Any] | None = MISSED
        if self._missed:
            self._missed = False
        else:
            pieces, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        if self._board.leads:
            self._post(self._me, pieces)
        else:
            self._board.tell(self._topic, [self._me, pieces])

    def _post(self, who: str, pieces: Sequence[Any] | None) -> None:
        self._number += 1
        self._board.post(self._topic, str(self._number % KEYS), [self._number, who, pieces])

    # -- the board

    def _heard(self, observed: Any) -> None:
        """While leading: another process has news."""
        who, pieces = observed
        self._post(who, pieces)
        self._say(pieces)

    def _told(self, key: str, value: Any) -> None:
        """Who leads has posted something."""
        if value is None:
            return
        number, who, pieces = value
        before, self._number = self._number, max(self._number, number)
        if number <= before or not self.followers:
            return  # it is from before, or one of those that were missed together
        if number > before + 1:
            self._say(MISSED)
        elif who != self._me:
            self._say(pieces)

    def _led(self, leads: bool) -> None:
        """Nothing: whoever leads goes on with the number that it knows of."""

    def _say(self, pieces: Sequence[Any] | None) -> None:
        for follower in tuple(self.followers):
            follower(pieces)
