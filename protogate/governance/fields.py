"""
Fields that a module writes: constants, or what templates give.

Rules
- What stands there only once, or never differs, is told apart at load, not for each exchange.
- The list for an exchange may be everybody's: nobody changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protogate.expression.template import Template
from protogate.message import Field

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Line = tuple[bytes, bytes, Template | None]
"""A field: name, value, and the template that makes the value at request time instead."""


class Fields:
    """
    @ivar of: C{of(exchange)}: the fields as they are for one exchange.  Do not change the list.
    @ivar names: all their names.
    @ivar single: no name stands there twice.
    """

    __slots__ = ("names", "of", "single")

    def __init__(self, lines: list[Line], exact: bool = False) -> None:
        """@param exact: what a template gives is empty, rather than shortened, where no field can hold it."""
        self.names = frozenset([name for name, _, _ in lines])
        self.single = len(self.names) == len(lines)
        self.of: Callable[[Exchange], list[Field]] = _writer(lines, exact)


def _writer(lines: list[Line], exact: bool) -> Callable[[Exchange], list[Field]]:
    if all(template is None for _, _, template in lines):
        constant = [(name, value) for name, value, _ in lines]
        return lambda exchange: constant
    made = [
        (name, value, None if template is None else template.exact() if exact else template.header)
        for name, value, template in lines
    ]
    if len(made) == 1:
        one, _, only = made[0]
        assert only is not None
        return lambda exchange: [(one, only(exchange))]
    return lambda exchange: [(name, value if make is None else make(exchange)) for name, value, make in made]
