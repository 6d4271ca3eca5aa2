"""
What the processes of a gateway have found of the endpoints of one upstream: for one that comes while their source is
away.

Rules
- Each process asks for itself.  The one that leads posts what it uses, and since when the source of that is away; who
  has had no answer yet goes on with it when there is none.
- A list belongs to a source: what another one has found, under an earlier configuration, is nobody's.
- A list of more than L{MOST} is not posted: the board is for what all have to know, and all read it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from protogate.upstream.board import Board
from protogate.upstream.endpoint import Place

MOST: Final = 1000
"""Endpoints of a list that is posted."""
KEY: Final = "list"
_Posted = tuple[float | None, list[tuple[str, int, bytes, int, str, bool, str]]]
"""Since when the source is away, in seconds since the epoch; and what it had found."""


class Known:
    """
    @param upstream: its name, and C{source}: what it was made by, see L{protogate.upstream.discovery.key}.
    """

    def __init__(self, board: Board, upstream: str, source: object) -> None:
        digest = blake2b(repr(source).encode(), digest_size=8).hexdigest()
        self._board, self._topic = board, f"found/{upstream} {digest}"
        self._own: list[Any] | None = None  # what this process would post
        self._posted: Any = None  # what another one has
        self._follows = False

    def follow(self) -> None:
        """Begin: what is posted is known at once."""
        self._follows = True
        self._board.follow(self._topic, self._told, _unheard, self._led)

    def leave(self) -> None:
        """End."""
        if self._follows:
            self._follows = False
            self._board.leave(self._topic)
            self._own = self._posted = None

    def use(self, places: Sequence[Place], stale: float | None = None) -> None:
        """
        From now on this process uses these.

        @param stale: for how many seconds their source has been away; None = it is there.
        """
        fits = 0 < len(places) <= MOST
        self._own = [None if stale is None else time.time() - stale, [*_plain(places)]] if fits else []
        if self._follows and self._board.leads:
            self._post()

    def found(self) -> tuple[tuple[Place, ...], float]:
        """What who leads uses: the endpoints, none where nothing is known; and for how many seconds that is old."""
        if not self._posted:
            return (), 0.0
        try:
            since, plain = msgspec.convert(self._posted, _Posted)
        except msgspec.ValidationError:  # of a program that is to be replaced by this one, or the other way round
            return (), 0.0
        old = 0.0 if since is None else max(time.time() - since, 0.0)
        return tuple(Place(*each) for each in plain), old

    def _post(self) -> None:
        self._board.post(self._topic, KEY, self._own or None)

    def _told(self, key: str, value: Any) -> None:
        self._posted = value

    def _led(self, leads: bool) -> None:
        if leads and self._own is not None:  # else what the one before has found is still all there is
            self._post()


def _plain(places: Iterable[Place]) -> Iterable[list[Any]]:
    for each in places:
        yield [each.host, each.port, each.authority, each.weight, each.zone, each.tls, each.identity]


def _unheard(observed: Any) -> None:
    """Nothing is observed here."""
