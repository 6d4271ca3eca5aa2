"""
The board of a gateway of several processes, as one of its workers sees it; the supervisor's side is L{Keeper}.

Rules
- What is posted on the topics that are followed is kept here, too: whoever begins to follow is told at once, and what
  is told anew as a whole is passed on as what has changed.
- Who leads posts under the number of its term.  One that was too late, because it stood still, is contradicted: it
  hears that it leads no more, and what is posted in truth.
- What a supervisor does not read is not sent without end: observations are dropped, and counted; posts are made up for,
  all at once, when it reads again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from twisted.logger import Logger

from protogate.process.keeper import ROOM
from protogate.process.messages import Follow, Lead, Message, Observed, Post, Posts
from protogate.upstream.board import Heard, Led, Told

_NOTHING: Final[dict[str, Any]] = {}
_log = Logger()


class Line(Protocol):
    """To the supervisor: a L{protogate.process.channel.Channel}."""

    waiting: int
    """Bytes that it has not read yet."""

    def tell(self, message: Message) -> None:
        """Say something that is not answered."""


class Follower(NamedTuple):
    """Who is to be told of a topic."""

    told: Told
    heard: Heard
    led: Led


class Shared:
    """
    L{protogate.upstream.board.Board}.

    @param line: to the supervisor.
    @ivar count: told C{board_dropped}.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self.count: Callable[[str], object] = lambda event: None
        self.leads = False
        self._term = 0
        self._followers: dict[str, Follower] = {}
        self._posts: dict[str, dict[str, Any]] = {}
        self._settled = self._behind = False

    # -- L{protogate.upstream.board.Board}

    def follow(self, topic: str, told: Told, heard: Heard, led: Led) -> None:
        """See there."""
        self._followers[topic] = Follower(told, heard, led)
        self._line.tell(Follow(topic=topic, follows=True))
        for key, value in list(self._posts.setdefault(topic, {}).items()):
            _call(told, key, value)

    def leave(self, topic: str) -> None:
        """See there."""
        if self._followers.pop(topic, None) is not None:
            self._posts.pop(topic, None)
            self._line.tell(Follow(topic=topic, follows=False))

    def post(self, topic: str, key: str, value: Any) -> None:
        """See there."""
        if not self.leads or topic not in self._followers:
            return
        if not self._note(topic, key, value):
            return
        if self._behind or self._line.waiting >= ROOM:
            self._behind = True
        else:
            self._line.tell(Post(topic=topic, key=key, value=value, term=self._term))

    def tell(self, topic: str, observed: Any) -> None:
        """See there."""
        if self.leads:
            return
        if self._line.waiting >= ROOM:
            self.count("board_dropped")
        else:
            self._line.tell(Observed(topic=topic, observed=observed))

    # -- for the worker

    def settled(self) -> None:
        """A configuration was taken: what nobody follows now is not wanted."""
        self._settled = True
        for topic in [topic for topic in self._posts if topic not in self._followers]:
            del self._posts[topic]

    def resign(self) -> None:
        """This process is about to end."""
        self._line.tell(Lead(term=0))

    def alive(self) -> None:
        """The supervisor says something, so it reads as well."""
        if self._behind and self._line.waiting < ROOM:
            self._behind = False
            if self.leads:
                self._line.tell(Posts(posts=self._posts, term=self._term))

    def take(self, message: Message) -> bool:
        """What the supervisor says; False: that is about something else."""
        match message:
            case Lead(term=term):
                self._lead(term)
            case Posts(posts=posts):
                for topic, keys in posts.items():
                    self._replace(topic, keys)
            case Post(topic=topic, key=key, value=value):
                follower = self._followers.get(topic)
                if follower is not None and not self.leads and self._note(topic, key, value):
                    _call(follower.told, key, value)
            case Observed(topic=topic, observed=observed):
                follower = self._followers.get(topic)
                if follower is not None and self.leads:
                    _call(follower.heard, observed)
            case _:
                return False
        return True

    def _lead(self, term: int) -> None:
        leads, self._term = term > 0, term
        if leads is not self.leads:
            self.leads, self._behind = leads, False
            for follower in list(self._followers.values()):
                _call(follower.led, leads)

    def _replace(self, topic: str, keys: dict[str, Any]) -> None:
        follower = self._followers.get(topic)
        if follower is None:
            if not self._settled:
                self._posts[topic] = keys
            return
        if self.leads:
            return  # it is what we have posted, or will be
        before, self._posts[topic] = self._posts.get(topic, _NOTHING), keys
        for key in [key for key in before if key not in keys]:
            _call(follower.told, key, None)
        for key, value in list(keys.items()):
            if key not in before or before[key] != value:
                _call(follower.told, key, value)

    def _note(self, topic: str, key: str, value: Any) -> bool:
        """@return: whether that is news."""
        keys = self._posts.setdefault(topic, {})
        if keys.get(key) == value:
            return False
        if value is None:
            del keys[key]
        else:
            keys[key] = value
        return True


def _call(function: Callable[..., object], *arguments: object) -> None:
    """One that fails harms no other."""
    try:
        function(*arguments)
    except Exception:
        _log.failure("what was told by another process could not be taken")
