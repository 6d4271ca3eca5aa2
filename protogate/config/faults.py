"""
Several faults of one configuration, as one exception.

Builders collect every fault they find and raise them together; C{path} of each is relative to the value that was
being built, and whoever called the builder puts its own place in front with L{under}.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from protogate.errors import ConfigError

if TYPE_CHECKING:
    from protogate.config.model import Config


class Rest(Protocol):
    """A configuration that has faults, without them."""

    @property
    def config(self) -> Config:
        """What is left."""

    def faults(self, more: Sequence[ConfigError]) -> ConfigFaults:
        """All: those known, and those that were found in C{config}, whose paths are as in it."""


class ConfigFaults(Exception):
    """
    What is wrong with a configuration; never empty.

    @ivar faults: each fault, in the order of the file where that is known.
    @ivar lines: each fault as one line for an operator; C{str()} is all of them.
    @ivar rest: what the others may still look at, to tell their faults in the same report, or None.
    """

    rest: Rest | None = None

    def __init__(self, faults: Iterable[ConfigError], lines: Sequence[str] | None = None) -> None:
        self.faults = list(faults)
        self.lines = [line(fault) for fault in self.faults] if lines is None else list(lines)
        super().__init__("\n".join(self.lines))


class Located(ConfigError):
    """
    A fault that knows its place in the text, where C{path} alone cannot tell: a duplicate key, a syntax error.

    @ivar position: line and column, both from 1.
    """

    def __init__(self, message: str, path: tuple[str | int, ...], position: tuple[int, int]) -> None:
        super().__init__(message, path)
        self.position = position


class AtKey(ConfigError):
    """A fault of a key itself, not of its value: C{path} ends with that key, and so does its place in the file."""


def at(fault: ConfigError, path: tuple[str | int, ...]) -> ConfigError:
    """The same fault, of what stands at C{path}."""
    if isinstance(fault, Located):
        return Located(fault.message, path, fault.position)
    return type(fault)(fault.message, path)


def under(fault: ConfigError, *path: str | int) -> ConfigError:
    """The same fault, seen from further up: C{path} is put in front of its own."""
    return at(fault, (*path, *fault.path))


def dotted(path: Sequence[str | int]) -> str:
    """C{routes[3].targets[0].weight}."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def line(fault: ConfigError) -> str:
    """C{routes[3].targets[0].weight: expected …}, for a fault whose file is not known."""
    path = dotted(fault.path)
    return printable(f"{path}: {fault.message}" if path else fault.message)


def printable(text: str) -> str:
    """On one line: what would break it, or the terminal, is escaped."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
