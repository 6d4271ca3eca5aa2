"""
Structured fields (RFC 9651), as far as signatures and digests of messages are written in them: dictionaries of items
and inner lists; of items strings, tokens, integers, bytes and booleans.

Rules
- What stands there twice has two readings: a key of a dictionary or a parameter that is repeated is an error, though
  RFC 9651 would take the last.
- What was read can be written again, in the one form that there is (RFC 9651, 4.1).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

MOST: Final = 64
"""Members of a dictionary, items of a list, parameters of one of them."""

_KEY: Final = re.compile(r"[a-z*][a-z0-9_.*-]*")
_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BYTES: Final = re.compile(r":([A-Za-z0-9+/]*={0,2}):")
_INTEGER: Final = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_BOOLEAN: Final = re.compile(r"\?([01])")
_TOKEN: Final = re.compile(r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*")
_BLANK: Final = re.compile(r"[ \t]*")
_SPACE: Final = re.compile(r" *")
_ESCAPED: Final = re.compile(r"\\(.)")


class Word(str):
    """A token: a text without quotation marks."""

    __slots__ = ()


Bare = str | Word | int | bytes | bool
Parameters = dict[str, Bare]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """A value and its parameters."""

    value: Bare
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Inner:
    """A list of items, and the parameters of the list."""

    items: tuple[Item, ...]
    parameters: Parameters


Member = Item | Inner


def dictionary(text: str) -> dict[str, Member]:
    """
    A dictionary (RFC 9651, 4.2.2); an empty text is an empty one.

    @raise ValueError: it is none; nothing of it is repeated.
    """
    reader = _Reader(text.strip(" "))
    members: dict[str, Member] = {}
    while not reader.done:
        key = reader.key()
        if key in members:
            raise ValueError("a key stands there twice")
        members[key] = reader.member() if reader.take("=") else Item(True, reader.parameters())
        if len(members) > MOST:
            raise ValueError(f"there are more than {MOST} members")
        reader.skip(_BLANK)
        if not reader.done:
            reader.need(",")
            reader.skip(_BLANK)
            if reader.done:
                raise ValueError("it ends with a comma")
    return members


def written(member: Member) -> str:
    """The text of a member."""
    if isinstance(member, Item):
        return _bare(member.value) + _written(member.parameters)
    return f"({' '.join(map(written, member.items))}){_written(member.parameters)}"


def _written(parameters: Parameters) -> str:
    return "".join(f";{name}" if value is True else f";{name}={_bare(value)}" for name, value in parameters.items())


def _bare(value: Bare) -> str:
    if isinstance(value, bool):
        return "?1" if value else "?0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f":{b64encode(value).decode('ascii')}:"
    if isinstance(value, Word):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Reader:
    """A place in a text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._text)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"expected {sign} at {self._at}")

    def key(self) -> str:
        match = _KEY.match(self._text, self._at)
        if match is None:
            raise ValueError(f"expected a key at {self._at}")
        self._at = match.end()
        return match[0]

    def member(self) -> Member:
        if not self.take("("):
            return self.item()
        items: list[Item] = []
        while True:
            self.skip(_SPACE)
            if self.take(")"):
                return Inner(tuple(items), self.parameters())
            if items and self._text[self._at - 1] != " ":
                raise ValueError(f"expected a space at {self._at}")
            items.append(self.item())
            if len(items) > MOST:
                raise ValueError(f"there are more than {MOST} items")

    def item(self) -> Item:
        return Item(self.bare(), self.parameters())

    def parameters(self) -> Parameters:
        found: Parameters = {}
        while self.take(";"):
            self.skip(_SPACE)
            name = self.key()
            if name in found:
                raise ValueError("a parameter stands there twice")
            found[name] = self.bare() if self.take("=") else True
            if len(found) > MOST:
                raise ValueError(f"there are more than {MOST} parameters")
        return found

    def bare(self) -> Bare:
        for pattern, value in _KINDS:
            match = pattern.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return value(match)
        raise ValueError(f"expected a string, a token, an integer, bytes or a boolean at {self._at}")


_KINDS: Final[list[tuple[re.Pattern[str], Callable[[re.Match[str]], Bare]]]] = [
    (_STRING, lambda match: _ESCAPED.sub(r"\1", match[1])),
    (_BYTES, lambda match: b64decode(match[1], validate=True)),
    (_INTEGER, lambda match: int(match[0])),
    (_BOOLEAN, lambda match: match[1] == "1"),
    (_TOKEN, lambda match: Word(match[0])),
]
