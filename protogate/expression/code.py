"""What a part of an expression is compiled to: a constant, a closure, a map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from protogate.expression.types import BOOL, INT, STRING, Type

Run = Callable[[Any], Any]
"""Takes the exchange."""

_SEMICOLON: Final = b"cookie"


@dataclass(frozen=True, slots=True)
class Code:
    """
    A value.

    @ivar type: its type.
    @ivar run: gives it; None for a constant.
    @ivar value: the constant.
    @ivar raw: gives the bytes of a string that is read from bytes: C{run(x) == raw(x).decode("latin-1")}.  Comparing
        bytes saves the decoding.
    @ivar equals: C{equals(literal)} makes one closure for 'is it these bytes?'.
    @ivar latin: the string was decoded from bytes as latin-1, so that is how to get them back.
    @ivar plain: the string is visible ASCII, whoever sends what: it can be written as it is.
    """

    type: Type
    run: Run | None = None
    value: Any = None
    raw: Run | None = None
    equals: Callable[[bytes], Run] | None = None
    latin: bool = False
    plain: bool = False

    @property
    def closure(self) -> Run:
        """C{run}, also of a constant."""
        if self.run is not None:
            return self.run
        value = self.value
        return lambda exchange: value


def constant(kind: Type, value: object) -> Code:
    """A constant."""
    return Code(kind, None, value)


class Pairs:
    """A map from strings to strings that is a dict."""

    def __init__(self, get: Run, latin: bool = False) -> None:
        self._get, self._latin = get, latin

    def item(self, key: Code) -> Code:
        """C{map[key]}: the empty string when it is not there."""
        get = self._get
        if key.run is None:
            name = key.value
            return Code(STRING, lambda exchange: get(exchange).get(name, ""), latin=self._latin)
        find = key.run
        return Code(STRING, lambda exchange: get(exchange).get(find(exchange), ""), latin=self._latin)

    def holds(self, key: Code) -> Code:
        """C{key in map}."""
        get = self._get
        if key.run is None:
            name = key.value
            return Code(BOOL, lambda exchange: name in get(exchange))
        find = key.run
        return Code(BOOL, lambda exchange: find(exchange) in get(exchange))

    def size(self) -> Code:
        """C{size(map)}."""
        get = self._get
        return Code(INT, lambda exchange: len(get(exchange)))


def joined(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """
    The lines of that name as one value (RFC 9110, 5.3), lines of Cookie as RFC 9113, 8.2.3 wants them; empty when there
    is none.
    """
    found: bytes | None = None
    for key, value in fields:
        if key == name:
            found = value if found is None else found + (b"; " if name == _SEMICOLON else b", ") + value
    return found or b""


class Fields:
    """
    A map that is a list of header lines.  Names are the same whatever their case.

    @ivar check: C{check(name)} raises ValueError for a constant name that is never there.
    """

    def __init__(self, get: Run, check: Callable[[bytes], None]) -> None:
        self._get, self._check = get, check

    def _name(self, key: Code) -> bytes | Run:
        if key.run is not None:
            find = key.run
            # What is not latin-1 becomes "?", which is in no field name (RFC 9110, 5.6.2).
            return lambda exchange: find(exchange).lower().encode("latin-1", "replace")
        name: bytes = key.value.lower().encode("latin-1", "replace")
        self._check(name)
        return name

    def item(self, key: Code) -> Code:
        """C{map[key]}: the empty string when it is not there.  Raises ValueError for a name that is never there."""
        get, name = self._get, self._name(key)
        if not isinstance(name, bytes):
            find = name
            raw: Run = lambda exchange: joined(get(exchange), find(exchange))  # noqa: E731
            return Code(STRING, lambda exchange: raw(exchange).decode("latin-1"), raw=raw, latin=True)

        def equals(literal: bytes) -> Run:
            def run(exchange: Any) -> bool:
                found = b""
                for each, value in get(exchange):
                    if each == name:
                        if found:
                            return joined(get(exchange), name) == literal
                        found = value
                return found == literal

            return run

        return Code(
            STRING,
            lambda exchange: joined(get(exchange), name).decode("latin-1"),
            raw=lambda exchange: joined(get(exchange), name),
            equals=equals,
            latin=True,
        )

    def holds(self, key: Code) -> Code:
        """C{key in map}.  Raises ValueError for a name that is never there."""
        get, name = self._get, self._name(key)
        if isinstance(name, bytes):
            return Code(BOOL, lambda exchange: name in [key for key, _ in get(exchange)])
        find = name
        return Code(BOOL, lambda exchange: find(exchange) in [key for key, _ in get(exchange)])

    def size(self) -> Code:
        """C{size(map)}."""
        get = self._get
        return Code(INT, lambda exchange: len({key for key, _ in get(exchange)}))


class Found:
    """
    A map whose values somebody looks up.

    @ivar kind: the type of its values.
    """

    def __init__(self, kind: Type, find: Callable[[Any, str], Any], names: Callable[[Any], Collection[str]]) -> None:
        """
        @param find: C{find(exchange, name)}: the value; empty when it is not there.
        @param names: what names it has.
        """
        self.kind, self._find, self._names = kind, find, names

    def item(self, key: Code) -> Code:
        """C{map[key]}."""
        find, name = self._find, key.value
        if key.run is None:
            return Code(self.kind, lambda exchange: find(exchange, name))
        run = key.run
        return Code(self.kind, lambda exchange: find(exchange, run(exchange)))

    def holds(self, key: Code) -> Code:
        """C{key in map}."""
        names, run = self._names, key.closure
        return Code(BOOL, lambda exchange: run(exchange) in names(exchange))

    def size(self) -> Code:
        """C{size(map)}."""
        names = self._names
        return Code(INT, lambda exchange: len(names(exchange)))


Table = Fields | Pairs | Found
"""A map from strings to strings, or lists of strings."""
