"""
How long a backtracking engine can take over a pattern.

An engine such as C{re} tries the ways to read a text one after the other.  There are many only where the pattern is
ambiguous, and that can be decided on its position automaton (Glushkov 1961), in which a state is one character of the
pattern, and a step reads it:

- *Exponential*: some state can be left and reached again in two ways that read the same text (A. Weber, H. Seidl, On
  the degree of ambiguity of finite automata, 1991: criterion EDA).  E.g. C{(a+)+}, C{(a|a)*}, C{(\\w+\\s?)*}.
- *Polynomial*: a loop p and a later loop q so that one text goes round p, from p to q, and round q (IDA).  Each such
  pair multiplies the time by the length of the text.  A search that may begin anywhere is a loop before the pattern.
  One pair is let pass (a square of at most 8 KiB, the limit of a header line); two are not: C{.*a.*b}, searched.

The check errs on the safe side: assertions count as nothing, and a part that may be empty must not be repeated.  What
it does not see are ambiguities without a loop, which a pattern has to spell out one by one (C{a?a?a?…aaa}).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_POSITIONS: Final = 1000
"""States of the automaton."""
MAX_STEPS: Final = 200_000
"""Work that one check may take: some 0.1 s."""
_COPIES: Final = 8
"""Counted repetitions up to this are written out; above, they are a loop."""
_BOUNDED: Final = 100
"""A loop of up to this many rounds multiplies nothing."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of these ranges: sorted, without overlap."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place that reads nothing.  C{begin}: it is only at the begin of the text."""

    begin: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of these."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """C{low} to C{high} times; None = without end."""

    item: Node
    low: int
    high: int | None


Node = Characters | Assertion | Sequence | Alternatives | Repeat


class _Complex(Exception):
    """Why the check gave up."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part of the pattern can begin with and end with, and whether it may be empty."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    empty: bool


_NOTHING: Final = _Part((), (), True)


class _Automaton:
    """
    @ivar sets: what each position reads.
    @ivar follow: the positions that may come next.
    @ivar double: steps that there are two of: an ambiguity if they are in a loop.
    """

    def __init__(self, node: Node, searched: bool, bounded: int) -> None:
        self._bounded = bounded
        self._copies = 1  # of what we are in
        self.sets: list[tuple[tuple[int, int], ...]] = []
        self.follow: list[dict[int, None]] = []
        self.double: set[tuple[int, int]] = set()
        self._overlaps: dict[tuple[int, int], bool] = {}
        self.steps = 0
        before = _NOTHING
        if searched:
            before = self._add(((0, 0x10FFFF),))
            self._join(before.last, before.first)
        part = self._part(node)
        self._join(before.last, part.first)
        self.last = frozenset(part.last)

    def _add(self, ranges: tuple[tuple[int, int], ...]) -> _Part:
        if len(self.sets) >= MAX_POSITIONS:
            raise _Complex
        self.sets.append(ranges)
        self.follow.append({})
        here = (len(self.sets) - 1,)
        return _Part(here, here, False)

    def _join(self, last: Iterable[int], first: Iterable[int]) -> None:
        for left in last:
            for right in first:
                self.work()
                if right in self.follow[left]:
                    self.double.add((left, right))
                self.follow[left][right] = None

    def _part(self, node: Node) -> _Part:
        match node:
            case Characters():
                return self._add(node.ranges)
            case Assertion():
                return _NOTHING
            case Sequence():
                part = _NOTHING
                for item in node.items:
                    part = self._then(part, self._part(item))
                return part
            case Alternatives():
                parts = [self._part(item) for item in node.items]
                first = tuple(position for part in parts for position in part.first)
                last = tuple(position for part in parts for position in part.last)
                return _Part(first, last, any(part.empty for part in parts))
            case Repeat():
                return self._repeat(node)

    def _then(self, left: _Part, right: _Part) -> _Part:
        self._join(left.last, right.first)
        return _Part(
            left.first + right.first if left.empty else left.first,
            left.last + right.last if right.empty else right.last,
            left.empty and right.empty,
        )

    def _repeat(self, node: Repeat) -> _Part:
        low, high = node.low, node.high
        if high == 0:
            return _NOTHING
        if high is not None and high * self._copies <= _COPIES:
            self._copies *= high
            part = _NOTHING
            for _ in range(low):
                part = self._then(part, self._part(node.item))
            # x{0,2} is (x(x)?)?: the only form in which each text is read in one way.
            parts = [self._part(node.item) for _ in range(high - low)]
            rest = _NOTHING
            for each in reversed(parts):
                rest = self._then(each, rest)
                rest = _Part(rest.first, rest.last, True)
            self._copies //= high
            return self._then(part, rest)
        part = self._part(node.item)
        if high is None or high > self._bounded:
            self._join(part.last, part.first)
        return _Part(part.first, part.last, part.empty or low == 0)

    def work(self) -> None:
        """Count one step of work."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise _Complex

    def overlap(self, left: int, right: int) -> bool:
        """Is there a character that both positions read?"""
        self.work()
        if left == right:
            return True
        key = (left, right) if left < right else (right, left)
        found = self._overlaps.get(key)
        if found is None:
            found = self._overlaps[key] = any(
                low <= top and bottom <= high for low, high in self.sets[left] for bottom, top in self.sets[right]
            )
        return found

    def loops(self) -> list[frozenset[int]]:
        """The sets of positions that can all be reached from each other, in the order of the pattern (Tarjan)."""
        return _Loops(self.follow).found[::-1]


class _Loops:
    """Tarjan's algorithm, without recursion."""

    def __init__(self, follow: list[dict[int, None]]) -> None:
        self.found: list[frozenset[int]] = []
        self._follow = follow
        self._index: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._calls: list[tuple[int, Iterator[int]]] = []
        for root in range(len(follow)):
            if root not in self._index:
                self._enter(root)
                while self._calls:
                    self._turn()

    def _enter(self, node: int) -> None:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._calls.append((node, iter(self._follow[node])))

    def _turn(self) -> None:
        index, low = self._index, self._low
        node, following = self._calls[-1]
        for other in following:
            if other not in index:
                self._enter(other)
                return
            low[node] = min(low[node], index[other] if other in low else low[node])
        self._calls.pop()
        if self._calls:
            above = self._calls[-1][0]
            low[above] = min(low[above], low[node])
        if low[node] == index[node]:
            at = self._stack.index(node)
            members = frozenset(self._stack[at:])
            del self._stack[at:]
            for member in members:
                del low[member]  # it is in no loop that is still open
            if len(members) > 1 or node in self._follow[node]:
                self.found.append(members)


def reason(node: Node, searched: bool) -> str:
    """Why the pattern can take too long; empty when it cannot."""
    empty = _repeats_empty(node)
    if empty:
        return empty
    try:
        automaton = _Automaton(node, False, 0)
        if any(_exponential(automaton, loop) for loop in automaton.loops()):
            return "a repetition can read the same text in several ways, so the time can double with each character"
        searched = searched and not _begins(node)
        automaton = _Automaton(node, searched, _BOUNDED)
        if _degree(automaton, ends=not searched or _asserts(node)) > 1:
            hint = "; begin it with ^, or" if searched else ";"
            return (
                "three repetitions can share the same text, so the time can grow with its third power"
                f"{hint} test its parts one by one"
            )
    except _Complex:
        return "it is too large to be checked"
    return ""


def _repeats_empty(node: Node) -> str:
    match node:
        case Sequence() | Alternatives():
            return next(filter(None, map(_repeats_empty, node.items)), "")
        case Repeat():
            if (node.high is None or node.high > 1) and _empty(node.item):
                return "a part that may be empty is repeated"
            return _repeats_empty(node.item)
    return ""


def _empty(node: Node) -> bool:
    match node:
        case Characters():
            return False
        case Assertion():
            return True
        case Sequence():
            return all(map(_empty, node.items))
        case Alternatives():
            return any(map(_empty, node.items))
        case Repeat():
            return node.low == 0 or _empty(node.item)


def _begins(node: Node) -> bool:  # noqa: PLR0911
    """Can it match at the begin of the text only?"""
    match node:
        case Assertion():
            return node.begin
        case Sequence():
            for item in node.items:
                if _begins(item):
                    return True
                if not isinstance(item, Assertion):
                    return False
            return False
        case Alternatives():
            return all(map(_begins, node.items))
        case Repeat():
            return node.low > 0 and _begins(node.item)
    return False


def _asserts(node: Node) -> bool:
    """Is there a place in it, which can fail behind a loop that could not?"""
    match node:
        case Assertion():
            return True
        case Sequence() | Alternatives():
            return any(map(_asserts, node.items))
        case Repeat():
            return _asserts(node.item)
    return False


def _exponential(automaton: _Automaton, loop: frozenset[int]) -> bool:
    """Can two different ways through the loop read the same text and come together again?"""
    if any(left in loop and right in loop for left, right in automaton.double):
        return True
    following = {position: [each for each in automaton.follow[position] if each in loop] for position in loop}
    seen: set[tuple[int, int]] = set()
    todo = [(position, position) for position in loop]
    while todo:
        left, right = todo.pop()
        for one in following[left]:
            for other in following[right]:
                if not automaton.overlap(one, other):
                    continue
                if one == other:
                    if left != right:
                        return True
                    continue  # every such pair is where we began
                pair = (one, other) if one < other else (other, one)
                if pair not in seen:
                    seen.add(pair)
                    todo.append(pair)
    return False


def _degree(automaton: _Automaton, ends: bool) -> int:
    """The largest number of pairs of loops, one behind the other, that share text."""
    loops = [loop for loop in automaton.loops() if ends or not loop <= automaton.last]
    reach = [_reached(automaton, loop) for loop in loops]
    degrees = [0] * len(loops)  # of what ends with this loop
    for second, loop in enumerate(loops):
        for first in range(second):
            if not loop <= reach[first]:
                continue
            degrees[second] = max(degrees[second], degrees[first])
            if degrees[first] + 1 > degrees[second] and _shares(automaton, loops[first], loop):
                degrees[second] = degrees[first] + 1
    return max(degrees, default=0)


def _reached(automaton: _Automaton, start: frozenset[int]) -> set[int]:
    seen = set(start)
    todo = list(start)
    while todo:
        for position in automaton.follow[todo.pop()]:
            if position not in seen:
                seen.add(position)
                todo.append(position)
    return seen


def _shares(automaton: _Automaton, first: frozenset[int], second: frozenset[int]) -> bool:
    """Is there a text that goes round p in first, from p to q, and round q in second?"""
    overlap, follow = automaton.overlap, automaton.follow
    for p in first:
        for q in second:
            seen = {(p, p, q)}
            todo = [(p, p, q)]
            while todo:
                a, b, c = todo.pop()
                for x in follow[a]:
                    if x not in first:
                        continue
                    for y in follow[b]:
                        if not overlap(x, y):
                            continue
                        for z in follow[c]:
                            if z not in second or not (overlap(x, z) and overlap(y, z)):
                                continue
                            if (x, y, z) == (p, q, q):
                                return True
                            if (x, y, z) not in seen:
                                seen.add((x, y, z))
                                todo.append((x, y, z))
    return False
