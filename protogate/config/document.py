"""
The text of a configuration file as plain values, with the place of each.

Rules
- YAML 1.2 or JSON; bytes come in, and whatever they are, either a L{Document} or L{ConfigFaults} comes out.
- Values are shared where the text uses aliases: never change one.
- Places are worked out when somebody asks for the first time, by reading the text once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from protogate.config import jsontext, yamltext
from protogate.config.builder import Broken, Builder, Place, Position
from protogate.config.faults import AtKey, ConfigFaults, Located, line
from protogate.errors import ConfigError

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a file."""

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufffe\uffff]"
)
"""Control characters, line ends that are none to an editor, spaces of no width, and what turns the order of text."""

_PIECE: Final = 1 << 16
_LOOKS_LIKE_JSON: Final = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*[\"}]", re.ASCII)


class Document:
    """
    @ivar name: of the file, as it was given.
    @ivar value: what it says; may be dropped, positions do not need it.
    @ivar early: what is wrong with the text although it can be read, e.g. keys that are given twice.
    """

    __slots__ = ("_json", "_place", "_text", "early", "name", "value")

    def __init__(self, name: str, text: str, json: bool, value: Any, early: Sequence[Located] = ()) -> None:
        self.name, self.value, self.early = name, value, early
        self._text, self._json = text, json
        self._place: Place | None = None

    def position(self, path: Sequence[str | int], key: bool = False) -> Position:
        """
        Line and column, both from 1, of the value at C{path}, or of its key; of the innermost value around it that
        the text does hold when there is none.
        """
        place = self._place
        if place is None:
            builder = Builder(places=True)
            (jsontext if self._json else yamltext).read(self._text, builder)
            place = self._place = builder.place
        assert place is not None
        for index, part in enumerate(path):
            inner = place.inner.get(part)
            if inner is None:
                break
            place = inner
            if key and index == len(path) - 1 and place.key is not None:
                return place.key
        return place.position

    def forget(self) -> None:
        """
        Let go of the places, which are more than all values: of one after the other, since other threads wait while a
        whole tree goes at once.
        """
        place, self._place = self._place, None
        left = [] if place is None else [place]
        while left:
            inner = left.pop().inner
            while inner:
                left.append(inner.popitem()[1])

    def describe(self, fault: ConfigError) -> str:
        """C{gateway.yaml:42:7: routes[3].targets[0].weight: expected …}."""
        return describe(self.name, self.where(fault), fault)

    def where(self, fault: ConfigError) -> Position:
        """Line and column of a fault."""
        return fault.position if isinstance(fault, Located) else self.position(fault.path, isinstance(fault, AtKey))

    def faults(self, faults: Sequence[ConfigError]) -> ConfigFaults:
        """All of them in the order of the file, ready to be printed."""
        ordered = sorted(faults, key=self.where)
        return ConfigFaults(ordered, [self.describe(fault) for fault in ordered])


def describe(name: str, position: Position, fault: ConfigError) -> str:
    """One line for an operator."""
    return f"{name}:{position[0]}:{position[1]}: {line(fault)}"


def parse(data: bytes, name: str) -> Document:
    """
    What C{data} says.  JSON when C{name} ends with C{.json} or the text is JSON; else YAML.

    @raise ConfigFaults: it cannot be read.  What is wrong but for that is in L{Document.early}.
    """
    if len(data) > LARGEST:
        raise broken(name, f"the file has more than {LARGEST // 1024 // 1024} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _raised(name, [Located(message, (), _end(before))]) from None
    unseen = _unseen(text)
    if unseen is not None:
        message = f"the invisible character U+{ord(unseen[0]):04X} has no place in a text file; remove it"
        raise _raised(name, [Located(message, (), _end(text[: unseen.start()]))])
    if name.endswith(".json"):
        return _document(name, text, True)
    if _LOOKS_LIKE_JSON.match(text):
        try:
            return _document(name, text, True)
        except _NoJson:
            pass
    return _document(name, text, False)


class _NoJson(ConfigFaults):
    """The text is no JSON; it may be YAML."""


def _document(name: str, text: str, json: bool) -> Document:
    read = jsontext.read if json else yamltext.read
    builder = Builder(places=False)
    try:
        read(text, builder)
    except Broken as error:
        raise _raised(name, [*builder.faults, error.fault], _NoJson if json else ConfigFaults) from None
    if builder.faults:
        again = Builder(places=True)  # now with the lines that messages point back to
        read(text, again)
        return Document(name, text, json, builder.root, again.faults)
    return Document(name, text, json, builder.root)


def _end(before: str) -> Position:
    """Where the next character stands."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _unseen(text: str) -> re.Match[str] | None:
    """The first character that nobody sees; a piece at a time, so that other threads get their turn."""
    for start in range(0, len(text), _PIECE):
        found = _UNSEEN.search(text, start, start + _PIECE)
        if found is not None:
            return found
    return None


def broken(name: str, message: str) -> ConfigFaults:
    """A file that cannot even be read."""
    fault = ConfigError(message)
    return ConfigFaults([fault], [f"{name}: {message}"])


def _raised(name: str, faults: list[Located], kind: type[ConfigFaults] = ConfigFaults) -> ConfigFaults:
    faults = sorted(faults, key=lambda fault: fault.position)
    return kind(faults, [describe(name, fault.position, fault) for fault in faults])
