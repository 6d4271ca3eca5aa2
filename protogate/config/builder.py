"""
Values from the events of a parser, YAML's or JSON's: scalars, containers, anchors.

Rules
- A value is a str, int, float, bool, None, list or dict with str keys; nothing else can come out.
- Every fault is kept and building goes on, unless there is nothing to go on with: then L{Broken} is raised.
- An alias is the very object of its anchor.  How much all aliases together stand for is bounded ("billion laughs").
- Places (line and column of every key and value) cost more than the values do, so they are kept only on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protogate.config.faults import Located

DEPTH: Final = 64
"""Containers within each other."""
ALIASED: Final = 100_000
"""Values that all aliases of a file together may stand for."""

Position = tuple[int, int]
"""Line and column, both from 1."""


class Broken(Exception):
    """The text cannot be read any further: L{fault} says why."""

    def __init__(self, message: str, position: Position, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.fault = Located(message, path, position)


class Place:
    """
    Where a value stands.

    @ivar position: where the value begins.
    @ivar key: where its key begins, or None in a list.
    @ivar inner: the places within, by key or index.
    """

    __slots__ = ("inner", "key", "position")

    def __init__(self, position: Position, key: Position | None) -> None:
        self.position, self.key = position, key
        self.inner: dict[str | int, Place] = {}


class _Frame:
    """A container that is not closed yet."""

    __slots__ = ("anchor", "dropped", "key", "keyed", "place", "start", "value")

    def __init__(self, value: Any, place: Place | None, anchor: str | None, start: int) -> None:
        self.value = value
        self.place = place
        self.anchor = anchor
        self.start = start  # how many nodes there were before this one
        self.key = ""  # of the value that comes next
        self.keyed = False  # a mapping: the key was there
        self.dropped = False  # a mapping: the value that comes next has no place


class Builder:
    """
    One document.

    @ivar root: the value, once everything is closed.
    @ivar place: its place, with C{places}.
    @ivar faults: what is wrong so far.
    @ivar locate: line and column of a mark; marks are what the reader has at hand, and are looked at when needed only.
    """

    def __init__(self, places: bool) -> None:
        self.locate: Callable[[Any], Position] = lambda mark: mark
        self.root: Any = None
        self.place: Place | None = None
        self.faults: list[Located] = []
        self._places = places
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, Place | None, int] | None] = {}
        self._nodes = 0
        self._aliased = 0

    @property
    def wants_key(self) -> bool:
        """Whether the next value is the key of a mapping."""
        return bool(self._stack) and type(self._stack[-1].value) is dict and not self._stack[-1].keyed

    def path(self) -> tuple[str | int, ...]:
        """Where we are."""
        path: list[str | int] = []
        for frame in self._stack:
            if type(frame.value) is list:
                path.append(len(frame.value))
            elif frame.keyed:
                path.append(frame.key)
        return tuple(path)

    def fault(self, message: str, mark: Any) -> None:
        """Note a fault at the present path."""
        self.faults.append(Located(message, self.path(), self.locate(mark)))

    def broken(self, message: str, mark: Any) -> Broken:
        """The fault at the present path that ends everything."""
        return Broken(message, self.locate(mark), self.path())

    def key(self, key: str, mark: Any) -> None:
        """The key of the value that comes next."""
        frame = self._stack[-1]
        frame.keyed, frame.key = True, key
        if key in frame.value:
            first = frame.place.inner[key].key if frame.place is not None else None
            before = f", first in line {first[0]}" if first is not None else ""
            self.fault(f"this key is given twice{before}; keep one of them", mark)
            frame.dropped = True
        elif frame.place is not None:
            position = self.locate(mark)
            frame.place.inner[key] = Place(position, position)

    def bad_key(self) -> None:
        """A key that is none; the value that comes next is dropped."""
        frame = self._stack[-1]
        frame.keyed, frame.key, frame.dropped = True, "?", True

    def scalar(self, value: Any, mark: Any, anchor: str | None = None) -> None:
        """A value that is neither list nor mapping."""
        self._nodes += 1
        place = self._put(value, mark)
        if anchor is not None:
            self._anchors[anchor] = (value, place, 1)

    def open(self, value: list[Any] | dict[str, Any], mark: Any, anchor: str | None = None) -> None:
        """A list or a mapping begins."""
        if len(self._stack) == DEPTH:
            raise Broken(f"more than {DEPTH} levels deep", self.locate(mark))
        start = self._nodes
        self._nodes += 1
        place = Place(self.locate(mark), None) if self._places else None
        if anchor is not None:
            self._anchors[anchor] = None
        self._stack.append(_Frame(value, place, anchor, start))

    def close(self) -> None:
        """The innermost list or mapping is complete."""
        frame = self._stack.pop()
        place = self._put(frame.value, None, frame.place)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (frame.value, place, self._nodes - frame.start)

    def alias(self, name: str, mark: Any) -> None:
        """The value of an anchor, once more."""
        if name not in self._anchors:
            self.fault(f"there is no anchor &{name} before this alias; text that begins with * needs quotes", mark)
            self._put(None, mark)
            return
        known = self._anchors[name]
        if known is None:
            self.fault(f"the alias *{name} stands within its own anchor &{name}", mark)
            self._put(None, mark)
            return
        value, place, nodes = known
        self._nodes += nodes
        self._aliased += nodes
        if self._aliased > ALIASED:
            raise self.broken(f"the aliases of this file stand for more than {ALIASED} values", mark)
        copy: Place | None = None
        if place is not None:
            copy = Place(self.locate(mark), None)
            copy.inner = place.inner
        self._put(value, mark, copy)

    def _put(self, value: Any, mark: Any, place: Place | None = None) -> Place | None:
        if self._places and place is None:
            place = Place(self.locate(mark), None)
        if not self._stack:
            self.root, self.place = value, place
            return place
        frame = self._stack[-1]
        inside = frame.value
        if type(inside) is list:
            if frame.place is not None and place is not None:
                frame.place.inner[len(inside)] = place
            inside.append(value)
            return place
        if not frame.keyed:  # a container or an alias that stands for a key
            self.bad_key()
            return place
        key, frame.keyed = frame.key, False
        if frame.dropped:
            frame.dropped = False
            return place
        if frame.place is not None and place is not None:
            place.key = frame.place.inner[key].key
            frame.place.inner[key] = place
        inside[key] = value
        return place
