"""
What was judged of the endpoints of one upstream, in all processes of the gateway: the upstream's part of the board.

Rules
- Who leads posts what is judged.  Who does not applies what is posted, also to an endpoint that comes later.
- A post is about one endpoint and by one judge: what is left to it, why, and what that judge wants to know when it goes
  on in another process (C{memo}).  What says nothing is taken off.
- An endpoint that the leader has no more takes its posts with it: one that comes back begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from protogate.upstream.board import Board
from protogate.upstream.endpoint import Endpoint

Judged = tuple[float, str, Any]
"""The share that is left, why, and the memo."""


class Verdicts:
    """
    @param upstream: its name.
    @param changed: told that shares of endpoints have changed.
    @param led: told when this process begins to lead, and when it ends to; not of how it is at first.
    """

    def __init__(
        self, board: Board, upstream: str, changed: Callable[[], None], led: Callable[[bool], None] = lambda leads: None
    ) -> None:
        self._board, self._topic, self._changed, self._led = board, topic(upstream), changed, led
        self._posted: dict[str, dict[str, Judged]] = {}  # by where, by judge
        self._endpoints: dict[str, Endpoint] = {}
        self._follows = self._quiet = False

    def follow(self, follows: bool) -> None:
        """Whether anything is judged here.  Harmless when that is known."""
        if follows is self._follows:
            return
        self._follows = follows
        if not follows:
            self._board.leave(self._topic)
            self._posted.clear()
            return
        self._quiet = True
        try:
            self._board.follow(self._topic, self._told, _unheard, self._led)
        finally:
            self._quiet = False
        self._changed()

    def take(self, endpoints: Iterable[Endpoint], whole: bool) -> None:
        """
        From now on these are there.

        @param whole: whether that is surely all of them: who leads takes off what is posted of others.
        """
        before, self._endpoints = self._endpoints, {where(each): each for each in endpoints}
        for at, endpoint in self._endpoints.items():
            if before.get(at) is not endpoint:
                for by, (share, why, _) in self._posted.get(at, {}).items():
                    endpoint.hold(by, share, why)
        if whole and self._follows and self._board.leads:
            for at in [at for at in self._posted if at not in self._endpoints]:
                for by in self._posted.pop(at):
                    self._board.post(self._topic, f"{by} {at}", None)

    def post(self, endpoint: Endpoint, by: str, share: float, why: str, memo: Any = None) -> None:
        """Where this process leads: all are to know."""
        at = where(endpoint)
        if not self._follows or not self._board.leads or self._endpoints.get(at) is not endpoint:
            return
        if self._note(at, by, None if share >= 1.0 and memo is None else (share, why, memo)):
            judged = self._posted.get(at, {}).get(by)
            self._board.post(self._topic, f"{by} {at}", None if judged is None else list(judged))

    def memo(self, endpoint: Endpoint, by: str) -> Any:
        """What that judge posted last of it, in whichever process; None = nothing."""
        judged = self._posted.get(where(endpoint), {}).get(by)
        return None if judged is None else judged[2]

    def judged(self) -> Mapping[str, Endpoint]:
        """The endpoints, by what they are known by; none where nobody judges."""
        return self._endpoints if self._follows else {}

    def _told(self, key: str, value: Any) -> None:
        by, _, at = key.partition(" ")
        judged = None if value is None else (float(value[0]), str(value[1]), value[2])
        self._note(at, by, judged)
        endpoint = self._endpoints.get(at)
        if endpoint is not None:
            share, why, _ = (1.0, "", None) if judged is None else judged
            if endpoint.hold(by, share, why) and not self._quiet:
                self._changed()

    def _note(self, at: str, by: str, judged: Judged | None) -> bool:
        """@return: whether that is news."""
        known = self._posted.get(at, {})
        if known.get(by) == judged:
            return False
        if judged is not None:
            self._posted.setdefault(at, {})[by] = judged
        else:
            del known[by]
            if not known:
                del self._posted[at]
        return True


def topic(upstream: str) -> str:
    """Where on the board it stands what is judged of the endpoints of an upstream."""
    return f"endpoints/{upstream}"


def where(endpoint: Endpoint) -> str:
    """What an endpoint is known by in all processes: its address, and who it must prove to be."""
    identity = endpoint.place.key[2]
    return f"{endpoint.address} {identity}" if identity else endpoint.address


def _unheard(observed: Any) -> None:
    """Nothing is observed here: a judge that is to hear something has a topic of its own."""
