"""
The syntax tree of an expression.  Every node knows where it stands (C{at}, an offset into the text) and how deep it is;
the parser bounds the depth, so whoever walks a tree may recurse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protogate.errors import ConfigError
from protogate.expression.types import Type

MAX_DEPTH: Final = 32


class Fault(Exception):
    """
    One fault of an expression.

    @ivar message: what is wrong.
    @ivar at: offset into the text.
    """

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message, self.at = message, at

    def within(self, text: str) -> ConfigError:
        """As a ConfigError that says the column (and the line, when there are several), both from 1."""
        line = text.count("\n", 0, self.at)
        column = self.at - (text.rfind("\n", 0, self.at) if line else -1)
        where = f"line {line + 1}, column {column}" if "\n" in text else f"column {column}"
        return ConfigError(f"{where}: {self.message}")


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    at: int
    depth: int
    type: Type
    value: object


@dataclass(frozen=True, slots=True)
class Listing:
    """C{[a, b]}."""

    at: int
    depth: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A name that stands for itself: C{request}."""

    at: int
    depth: int
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """C{of.name}; C{at} is that of C{name}."""

    at: int
    depth: int
    of: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """C{of[key]}; C{at} is that of the bracket."""

    at: int
    depth: int
    of: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Call:
    """C{of.name(arguments)}, or C{name(arguments)} with C{of} None; C{at} is that of C{name}."""

    at: int
    depth: int
    of: Node | None
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """C{! -}."""

    at: int
    depth: int
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Relation:
    """C{== != < <= > >= in}; C{at} is that of the operator."""

    at: int
    depth: int
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """C{&&} or C{||} between two or more: chains lie flat."""

    at: int
    depth: int
    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """C{test ? yes : no}; C{at} is that of the question mark."""

    at: int
    depth: int
    test: Node
    yes: Node
    no: Node


Node = Literal | Listing | Name | Member | Index | Call | Unary | Relation | Logic | Choice
