"""Types of the expression language.  All are known at load; nothing is null but the literal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """
    @ivar name: as messages spell it.
    @ivar element: of a list: the type of its elements, None when it has none.
    """

    name: str
    element: Type | None = None

    def __str__(self) -> str:
        if self.name != "list":
            return self.name
        return "an empty list" if self.element is None else f"list of {self.element}"

    @property
    def described(self) -> str:
        """With its article: C{an int}."""
        name = str(self)
        return name if name.startswith("an ") or name == "null" else f"{'an' if name == 'int' else 'a'} {name}"


BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
NULL: Final = Type("null")

NUMBERS: Final = frozenset({INT, UINT, DOUBLE})
ORDERED: Final = NUMBERS | {STRING, BOOL}
SCALARS: Final = ORDERED
"""What a template or a key may be made of."""


def list_of(element: Type | None) -> Type:
    """The type of a list with such elements."""
    return Type("list", element)


def is_list(kind: Type) -> bool:
    """Is it the type of a list?"""
    return kind.name == "list"


def comparable(left: Type, right: Type) -> bool:
    """May C{==} stand between them?  The numbers compare with each other, as in CEL; lists as their elements do."""
    if left == right or (left in NUMBERS and right in NUMBERS):
        return True
    if is_list(left) and is_list(right):
        return left.element is None or right.element is None or comparable(left.element, right.element)
    return False
