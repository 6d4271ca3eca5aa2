"""
Whether a target does worse than those beside it: by a test that is exact however few requests there are.

Rules
- Both sides are counted over the same period.  What harms both, a database or the gateway itself, shows on both.
- A share is larger only if Fisher's exact test says so: were the two sides equal, so large a difference, or a larger
  one, would come about by chance in one look of a hundred million (L{ALPHA}), whatever the shares are.  Besides, it
  must be larger by as much as the configuration wants: what is certain may still be of no importance.
- Latency is such a share, too: that of answers which take longer than a bound, made of what nine of ten answers of the
  others take.  So no shape of distribution is taken for granted.  A client that leaves after that time waited as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import exp, lgamma, log
from typing import Any, Final

from protogate.config.model import Hold as Terms

ALPHA: Final = 1e-8
SLOTS: Final = 12
"""Into which a window is divided: so much of it is forgotten at a time."""
LOOK: Final = 1.0
"""Seconds from one look to the next, at least: each may be a false alarm."""
QUANTILE: Final = 0.9
_LEAST: Final = 1e-4
_STEP: Final = log(1.1)
"""Times are sorted into bins, each a tenth wider than the one before it, from a tenth of a millisecond on."""
_MOST: Final = 256


def bin_of(seconds: float) -> int:
    """The bin of a time."""
    return min(int(log(seconds / _LEAST) / _STEP), _MOST) if seconds > _LEAST else 0


def edge(index: int) -> float:
    """Where a bin begins."""
    return _LEAST * exp(index * _STEP) if index else 0.0


class Counts:
    """
    What became of requests.

    @ivar requests: with an answer, or without one by the target's fault.
    @ivar errors: those of them that failed.
    @ivar times: bin → how many that did not fail took so long until the head of the answer.
    @ivar left: bin → how many clients left, or had no more time, after so long.
    """

    __slots__ = ("errors", "left", "requests", "times")

    def __init__(self) -> None:
        self.requests = self.errors = 0
        self.times: dict[int, int] = {}
        self.left: dict[int, int] = {}

    def well(self, seconds: float) -> None:
        """One was answered."""
        at = bin_of(seconds)
        self.requests += 1
        self.times[at] = self.times.get(at, 0) + 1

    def failed(self) -> None:
        """One failed."""
        self.requests += 1
        self.errors += 1

    def broke(self) -> None:
        """One that was answered failed after all: it is among those that were well, of this period or of an earlier."""
        self.errors += 1

    def gone(self, seconds: float) -> None:
        """Nobody knows what would have become of one."""
        at = bin_of(seconds)
        self.left[at] = self.left.get(at, 0) + 1

    def add(self, other: Counts) -> None:
        """All of those besides."""
        self.requests += other.requests
        self.errors += other.errors
        for mine, more in ((self.times, other.times), (self.left, other.left)):
            for at, number in more.items():
                mine[at] = mine.get(at, 0) + number

    def plain(self) -> list[Any]:
        """As plain data, for another process."""
        return [self.requests, self.errors, _pairs(self.times), _pairs(self.left)]

    @classmethod
    def told(cls, plain: Sequence[Any]) -> Counts:
        """What C{plain} gave."""
        made = cls()
        made.requests, made.errors, times, left = plain
        made.times, made.left = dict(times), dict(left)
        return made

    def above(self, bound: float) -> tuple[int, int]:
        """How many surely took longer than that, and of how many."""
        late = sum([number for at, number in self.left.items() if edge(at) >= bound])
        slow = sum([number for at, number in self.times.items() if edge(at) >= bound])
        return slow + late, sum(self.times.values()) + late

    def quantile(self) -> float:
        """Nine of ten answers took no longer."""
        enough = QUANTILE * sum(self.times.values())
        seen = 0
        for at in sorted(self.times):
            seen += self.times[at]
            if seen >= enough:
                return edge(at + 1)
        return 0.0


def _pairs(numbers: dict[int, int]) -> list[list[int]]:
    return [[at, number] for at, number in numbers.items()]


class Comparison:
    """
    One target beside the others of its entry, over a window that moves on.

    @param terms: how much worse it may be.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._length = float(terms.window) / SLOTS
        self._slots: deque[tuple[int, Counts, Counts]] = deque()
        self._next = 0.0

    def see(self, judged: bool, counts: Counts, now: float) -> None:
        """Something became of requests to it, or to the others."""
        number = int(now / self._length)
        if not self._slots or self._slots[-1][0] != number:
            self._forget(number)
            self._slots.append((number, Counts(), Counts()))
        _, mine, theirs = self._slots[-1]
        (mine if judged else theirs).add(counts)

    def look(self, now: float) -> str:
        """Why the target should be taken back; empty = it should not, or the last look was just now."""
        if now < self._next:
            return ""
        self._next = now + LOOK
        self._forget(int(now / self._length))
        judged, others = Counts(), Counts()
        for _, mine, theirs in self._slots:
            judged.add(mine)
            others.add(theirs)
        return worse(judged, others, self.terms)

    def clear(self) -> None:
        """Forget everything: it begins anew."""
        self._slots.clear()

    def _forget(self, number: int) -> None:
        while self._slots and self._slots[0][0] <= number - SLOTS:
            self._slots.popleft()


def worse(judged: Counts, others: Counts, terms: Terms) -> str:
    """What is worse about one side; empty = nothing, as far as can be told."""
    return _fails(judged, others, terms) or _slow(judged, others, terms)


def _fails(judged: Counts, others: Counts, terms: Terms) -> str:
    least = terms.min_requests
    if judged.requests < least or others.requests < least or terms.error_margin >= 1:
        return ""
    mine, theirs = min(judged.errors, judged.requests), min(others.errors, others.requests)
    if mine / judged.requests - theirs / others.requests <= terms.error_margin:
        return ""
    if chance(mine, judged.requests, theirs, others.requests) > ALPHA:
        return ""
    return f"{mine} of {judged.requests} requests failed, and {theirs} of {others.requests} beside it"


def _slow(judged: Counts, others: Counts, terms: Terms) -> str:
    if not terms.latency_factor or sum(others.times.values()) < terms.min_requests:
        return ""
    usual = others.quantile()
    bound = max(usual * terms.latency_factor, usual + terms.latency_floor)
    mine, all_mine = judged.above(bound)
    theirs, all_theirs = others.above(bound)
    if all_mine < terms.min_requests or mine <= (1 - QUANTILE) * all_mine:
        return ""
    if mine / all_mine <= theirs / all_theirs or chance(mine, all_mine, theirs, all_theirs) > ALPHA:
        return ""
    return f"{mine} of {all_mine} answers took longer than {bound:.3g} s, and {theirs} of {all_theirs} beside it"


def chance(mine: int, all_mine: int, theirs: int, all_theirs: int) -> float:
    """
    How likely it is that so many of the first side, or more, have something that C{mine + theirs} of both sides have,
    when it has nothing to do with the side: Fisher's exact test, one-sided.
    """
    both, marked = all_mine + all_theirs, mine + theirs
    most = min(all_mine, marked)
    term = exp(
        _choose(marked, mine) + _choose(both - marked, all_mine - mine) - _choose(both, all_mine)
    )  # that it is exactly so many
    total = term
    for number in range(mine, most):
        term *= (all_mine - number) * (marked - number) / ((number + 1) * (both - marked - all_mine + number + 1))
        total += term
        if term < total * 1e-12:
            break
    return min(total, 1.0)


def _choose(all_: int, some: int) -> float:
    """The logarithm of how many choices there are."""
    return lgamma(all_ + 1) - lgamma(some + 1) - lgamma(all_ - some + 1)
