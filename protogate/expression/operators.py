"""
Closures for the operators.  Operands were checked: nothing here can fail.

Each closure that is made runs once per request, so common shapes have one of their own, and bytes are compared as
bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from protogate.expression.code import Code, Run, constant
from protogate.expression.types import BOOL, DOUBLE, INT, STRING, is_list

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PARTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}
SMALL: Final = 1000
DIGITS: Final = tuple([b"%d" % number for number in range(SMALL)])
"""Numbers below L{SMALL}, as most milliseconds, statuses and sizes are: to find one takes a fifth of writing it."""


def _bytes(text: str) -> bytes | None:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def compare(sign: str, left: Code, right: Code) -> Code:
    """C{== != < <= > >=} of comparable types."""
    test = _COMPARE[sign]
    if left.run is None and right.run is None:
        return constant(BOOL, test(left.value, right.value))
    if sign in ("==", "!="):
        if left.run is None:
            left, right = right, left
        if right.run is None:
            return Code(BOOL, _equal(left, right.value, sign == "=="))
    one, other = left.closure, right.closure
    return Code(BOOL, lambda exchange: test(one(exchange), other(exchange)))


def _equal(code: Code, value: Any, wanted: bool) -> Run:
    """Is it (not) that constant?"""
    if code.equals is not None:
        literal = _bytes(value)
        if literal is not None:
            same = code.equals(literal)
            return same if wanted else lambda exchange: not same(exchange)
    run = code.closure
    if wanted:
        return lambda exchange: run(exchange) == value
    return lambda exchange: run(exchange) != value


def among(left: Code, right: Code) -> Code:
    """C{left in right}, which is a list."""
    if right.run is not None:
        item, items = left.closure, right.run
        return Code(BOOL, lambda exchange: item(exchange) in items(exchange))
    if left.run is None:
        return constant(BOOL, left.value in right.value)
    if is_list(left.type):
        values: Any = right.value
    elif left.raw is not None:
        run = left.raw
        known = frozenset(literal for literal in map(_bytes, right.value) if literal is not None)
        return Code(BOOL, lambda exchange: run(exchange) in known)
    else:
        values = frozenset(right.value)
    find = left.run
    return Code(BOOL, lambda exchange: find(exchange) in values)


def part_of(name: str, text: Code, part: Code) -> Code:
    """startsWith, endsWith, contains."""
    test = PARTS[name]
    if part.run is not None:
        one, other = text.closure, part.run
        return Code(BOOL, lambda exchange: test(one(exchange), other(exchange)))
    value: Any = part.value
    if text.run is None:
        return constant(BOOL, test(text.value, value))
    run = text.run
    literal = None if text.raw is None else _bytes(value)
    if literal is not None and text.raw is not None:
        run, value = text.raw, literal
    if name == "startsWith":
        return Code(BOOL, lambda exchange: run(exchange).startswith(value))
    if name == "endsWith":
        return Code(BOOL, lambda exchange: run(exchange).endswith(value))
    return Code(BOOL, lambda exchange: value in run(exchange))


def all_of(runs: tuple[Run, ...]) -> Run:
    """C{&&} between one or more."""
    if len(runs) == 1:
        return runs[0]
    if len(runs) == 2:
        first, second = runs
        return lambda exchange: first(exchange) and second(exchange)

    def run(exchange: Any) -> bool:
        for test in runs:  # noqa: SIM110 - a generator costs more than the tests
            if not test(exchange):
                return False
        return True

    return run


def any_of(runs: tuple[Run, ...]) -> Run:
    """C{||} between one or more."""
    if len(runs) == 1:
        return runs[0]
    if len(runs) == 2:
        first, second = runs
        return lambda exchange: first(exchange) or second(exchange)

    def run(exchange: Any) -> bool:
        for test in runs:  # noqa: SIM110
            if test(exchange):
                return True
        return False

    return run


def rendered(code: Code) -> Code:
    """A scalar as the text it is in a template or a key."""
    if code.type == STRING:
        return code
    render: Callable[[Any], str] = str
    if code.type == BOOL:
        render = _bool
    elif code.type == DOUBLE:
        render = _double
    if code.run is None:
        return constant(STRING, render(code.value))
    run = code.run
    raw: Run | None = None
    if code.type == INT:
        raw = lambda exchange: _digits(run(exchange))  # noqa: E731
    return Code(STRING, lambda exchange: render(run(exchange)), raw=raw, plain=True)  # a number, true or false


def _digits(value: int) -> bytes:
    return DIGITS[value] if 0 <= value < SMALL else b"%d" % value


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _double(value: float) -> str:
    """The shortest text that is read as the same number; a whole one without its fraction, as CEL's string() does."""
    return repr(value).removesuffix(".0")
