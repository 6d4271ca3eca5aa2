"""
Work that takes a while, in threads, a little of it at a time: hashing passwords must be slow, and slow down nobody.

Rules
- At most so many at work; at most so many wait; whoever comes then is turned away at once.
- What nobody waits for any more is not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

T = TypeVar("T")


class Busy(Exception):
    """Too many wait already."""


def ignored(result: object) -> None:
    """For whoever waits for it, and has no other use for it."""


class Hands(Generic[T]):
    """@ivar waiting: jobs that were not begun yet."""

    __slots__ = ("_most", "_reactor", "_room", "_working", "waiting")

    def __init__(self, reactor: Any, most: int, room: int) -> None:
        """
        @param reactor: whose threads do it.
        @param most: jobs at work at a time.
        @param room: jobs that may wait.
        """
        self._reactor, self._most, self._room = reactor, most, room
        self._working = 0
        self.waiting: deque[tuple[Deferred[T], Callable[[], T], Callable[[T], object]]] = deque()

    def do(self, job: Callable[[], T], told: Callable[[T], object] = ignored) -> Deferred[T]:
        """
        What the job returns.

        @param told: what it returned, also where nobody waits for it any more.
        @raise Busy: there is no room.
        """
        if self._working >= self._most and len(self.waiting) >= self._room:
            raise Busy
        done: Deferred[T] = Deferred(self._left)
        self.waiting.append((done, job, told))
        self._next()
        return done

    def _next(self) -> None:
        while self.waiting and self._working < self._most:
            done, job, told = self.waiting.popleft()
            self._working += 1
            result: Deferred[T] = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), job)
            result.addBoth(self._over, done, told)

    def _over(self, result: Any, done: Deferred[T], told: Callable[[T], object]) -> None:
        self._working -= 1
        if not isinstance(result, Failure):
            told(result)
        if not done.called:
            done.callback(result)  # a Failure is an errback
        self._next()

    def _left(self, done: Deferred[T]) -> None:
        for job in self.waiting:
            if job[0] is done:
                self.waiting.remove(job)
                return
