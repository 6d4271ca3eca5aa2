"""
The board of a gateway of several processes, as its supervisor keeps it; what it is for: L{protogate.upstream.board}.

Rules
- It understands nothing of what is posted: it keeps it, and tells it to those who follow the topic.
- One worker leads, and stays that as long as it can.  Each time another one begins there is a new term: what the one
  before still posts is dropped, and it is told all anew.
- What is posted outlives who posted it, and is forgotten when all who serve follow the topic no more.
- What is kept and what waits has a bound.  Observations are dropped beyond it, and counted.  Whoever does not read is
  told no posts, but all of them when it reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from twisted.logger import Logger

from protogate.process.messages import Follow, Lead, Message, Observed, Post, Posts

ROOM: Final = 1 << 20
"""Bytes that a worker may leave unread before it is told no more."""
MOST: Final = 1 << 16
"""Posts that are kept, over all topics."""

_log = Logger()


class Member(Protocol):
    """A worker."""

    board: bool
    """Whether it knows of a board, and may lead."""

    @property
    def waiting(self) -> int:
        """Bytes that it has not read yet."""

    def tell(self, message: Message) -> None:
        """Say something that is not answered."""


class Keeper:
    """
    @param count: told C{board_moved}, C{board_stale}, C{board_dropped}, C{board_full}.
    @param posts: what was posted before this program began; and C{term}: how far terms were.
    @ivar posts: by topic and key.
    @ivar leader: who leads, or None.
    @ivar vacant: called when who leads cannot any more, and another one is to.
    """

    def __init__(
        self,
        count: Callable[[str], None] = lambda event: None,
        posts: Mapping[str, dict[str, Any]] | None = None,
        term: int = 0,
    ) -> None:
        self._count = count
        self.posts: dict[str, dict[str, Any]] = dict(posts or {})
        self.term = term
        self.leader: Member | None = None
        self.vacant: Callable[[], object] = lambda: None
        self._follows: dict[Member, set[str]] = {}
        self._behind: set[Member] = set()

    # -- members

    def join(self, member: Member, follows: Iterable[str] = (), leads: bool = False) -> None:
        """
        One is there.

        @param follows: topics, and C{leads}: as an earlier program has it; what it may have missed it is told.
        """
        topics = self._follows[member] = set(follows)
        if topics:
            self._catch_up(member)
        if leads:
            self.leader = member
            member.tell(Lead(term=self.term))

    def leave(self, member: Member) -> tuple[list[str], bool]:
        """One is gone; what L{join} has to be told where it goes on."""
        leads = self.leader is member
        if leads:
            self.leader = None
        self._behind.discard(member)
        return sorted(self._follows.pop(member, ())), leads

    def begin(self, member: Member) -> None:
        """One is about to serve: it knows before."""
        if member.board and self.posts:
            member.tell(Posts(posts=self.posts))

    def settled(self) -> None:
        """One has taken a configuration: forget what nobody follows."""
        followed: set[str] = set().union(*self._follows.values())
        for topic in [topic for topic in self.posts if topic not in followed]:
            del self.posts[topic]

    def lead(self, able: Sequence[Member]) -> None:
        """
        Have one of these lead.

        @param able: who serves and answers, best first; who leads goes on where it is one of them, or nobody is.
        """
        able = [member for member in able if member.board]
        before = self.leader
        if before in able or not (able or before is None):
            return
        if not able:
            return
        leader = self.leader = able[0]
        self.term += 1
        if before is not None:
            before.tell(Lead(term=0))
            self._catch_up(before)
        if self.term > 1:
            self._count("board_moved")
            _log.info("{worker} judges endpoints from now on", worker=leader)
        if leader in self._behind:
            self._catch_up(leader)
        leader.tell(Lead(term=self.term))

    def why(self, topic: str, about: str, by: str) -> str:
        """The reason that is posted of that by somebody (L{protogate.upstream.verdicts}); empty = there is none."""
        match self.posts.get(topic, {}).get(f"{by} {about}"):
            case [_, str(why), *_]:
                return why
        return ""

    # -- what they say

    def heard(self, member: Member, message: Message) -> None:
        """A worker says something of the board."""
        match message:
            case Follow(topic=topic, follows=follows):
                self._follow(member, topic, follows)
            case Post(topic=topic, key=key, value=value, term=term):
                if self._leads(member, term):
                    self._post(member, topic, key, value)
            case Posts(posts=posts, term=term):
                if self._leads(member, term):
                    self._replace(member, posts)
            case Observed():
                self._observed(member, message)
            case Lead():
                member.board = False
                self.vacant()

    def alive(self, member: Member) -> None:
        """It has read what it was told up to some time ago."""
        if member in self._behind and member.waiting < ROOM:
            self._catch_up(member)

    def _follow(self, member: Member, topic: str, follows: bool) -> None:
        topics = self._follows.setdefault(member, set())
        if follows:
            topics.add(topic)
            member.tell(Posts(posts={topic: self.posts.get(topic, {})}))
        else:
            topics.discard(topic)

    def _leads(self, member: Member, term: int) -> bool:
        if member is self.leader and term == self.term:
            return True
        self._count("board_stale")
        return False

    def _post(self, member: Member, topic: str, key: str, value: Any) -> None:
        keys = self.posts.get(topic, {})
        if value is None:
            keys.pop(key, None)
            if not keys:
                self.posts.pop(topic, None)
        elif key not in keys and sum(map(len, self.posts.values())) >= MOST:
            self._count("board_full")
            return
        else:
            self.posts.setdefault(topic, keys)[key] = value
        self._spread(member, [topic], Post(topic=topic, key=key, value=value))

    def _replace(self, member: Member, posts: dict[str, dict[str, Any]]) -> None:
        for topic, keys in posts.items():
            if not keys:
                self.posts.pop(topic, None)
            elif sum(len(each) for name, each in self.posts.items() if name != topic) + len(keys) > MOST:
                self._count("board_full")
                continue
            else:
                self.posts[topic] = keys
            self._spread(member, [topic], Posts(posts={topic: keys}))

    def _observed(self, member: Member, message: Message) -> None:
        leader = self.leader
        if leader is None or leader is member or leader.waiting >= ROOM:
            self._count("board_dropped")
        else:
            leader.tell(message)

    def _spread(self, source: Member, topics: Iterable[str], message: Message) -> None:
        for member, follows in self._follows.items():
            if member is source or follows.isdisjoint(topics):
                continue
            if member in self._behind or member.waiting >= ROOM:
                self._behind.add(member)
            else:
                member.tell(message)

    def _catch_up(self, member: Member) -> None:
        self._behind.discard(member)
        topics = sorted(self._follows.get(member, ()))
        if topics:
            member.tell(Posts(posts={topic: self.posts.get(topic, {}) for topic in topics}))
