"""
What was found out about credentials, for a while: so that the same question is not asked again, nor twice at once.

Rules
- Bounded: the oldest goes when there is no room.  Good news and bad news have a room each, so that whoever guesses
  drives out nobody who was let in.
- Many may wait for one answer; it is given up when all of them have left.
- A failure is told to all who wait, and is not remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


@mypyc_attr(native_class=False)
class Memo(Generic[T]):
    """
    @param now: the clock, in seconds.
    @param limit: answers of either kind that are remembered.
    """

    __slots__ = ("_bad", "_good", "_limit", "_now", "_pending")

    def __init__(self, now: Callable[[], float], limit: int) -> None:
        self._now, self._limit = now, limit
        self._good: dict[bytes, tuple[float, T]] = {}
        self._bad: dict[bytes, tuple[float, T]] = {}
        self._pending: dict[bytes, _Question[T]] = {}

    def __len__(self) -> int:
        return len(self._good) + len(self._bad)

    def known(self, key: bytes) -> T | None:
        """The answer, while it holds; else None."""
        found = self._good.get(key) or self._bad.get(key)
        return None if found is None or found[0] <= self._now() else found[1]

    def keep(self, key: bytes, value: T, seconds: float, good: bool = True) -> None:
        """Remember an answer; 0 seconds, or no room at all = do not."""
        if seconds <= 0 or not self._limit:
            return
        room = self._good if good else self._bad
        self._good.pop(key, None)
        self._bad.pop(key, None)
        if len(room) >= self._limit:
            del room[next(iter(room))]
        room[key] = self._now() + seconds, value

    def ask(self, key: bytes, begin: Callable[[], Deferred[T]]) -> Deferred[T]:
        """
        The answer to a question that may be under way already; whoever gets it has it remembered.

        @param begin: asks; called only if nobody does.
        """
        question = self._pending.get(key)
        if question is not None:
            return question.join()
        asked = begin()
        question = self._pending[key] = _Question(asked, partial(self._pending.pop, key, None))
        waiter = question.join()
        question.begin()
        return waiter

    def inherit(self, other: Memo[T]) -> None:
        """Take over what another one remembers, as far as there is room."""
        limit = self._limit
        for mine, theirs in ((self._good, other._good), (self._bad, other._bad)):
            mine.clear()
            mine.update(islice(theirs.items(), max(len(theirs) - limit, 0), None))

    def forget(self) -> None:
        """Everything that was remembered."""
        self._good.clear()
        self._bad.clear()


@mypyc_attr(native_class=False)
class _Question(Generic[T]):
    """One question, and all who wait for its answer."""

    __slots__ = ("_asked", "_over", "_waiters")

    def __init__(self, asked: Deferred[T], over: Callable[[], object]) -> None:
        self._asked, self._over = asked, over
        self._waiters: list[Deferred[T]] = []

    def join(self) -> Deferred[T]:
        waiter: Deferred[T] = Deferred(self._left)
        self._waiters.append(waiter)
        return waiter

    def begin(self) -> None:
        self._asked.addBoth(self._answered)

    def _answered(self, result: T | Failure) -> None:
        self._over()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(result)

    def _left(self, waiter: Deferred[T]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            if not self._waiters:
                self._asked.cancel()
