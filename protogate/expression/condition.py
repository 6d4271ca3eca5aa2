"""
Conditions and keys: text of the configuration → closure over the exchange.  The language: L{protogate.expression}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from protogate.expression import compiler
from protogate.expression.code import Code
from protogate.expression.names import CONDITION, RESPONSE
from protogate.expression.operators import rendered
from protogate.expression.parser import parse
from protogate.expression.tree import Fault
from protogate.expression.types import BOOL, SCALARS

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

    Condition = Callable[[Exchange], bool]
    Key = Callable[[Exchange], str]


def ALWAYS_TRUE(exchange: Any) -> bool:
    """The condition that holds whatever comes: who finds it may leave the call out (see L{always})."""
    return True


def ALWAYS_FALSE(exchange: Any) -> bool:
    """The condition that never holds."""
    return False


def always(condition: Condition) -> bool:
    """Does this condition always hold, so that nobody needs to ask it?"""
    return condition is ALWAYS_TRUE


def never(condition: Condition) -> bool:
    """Does this condition never hold, so that what hangs on it can never come?"""
    return condition is ALWAYS_FALSE


def compile(text: str, *, response: bool = False) -> Condition:  # noqa: A001
    """
    A function that tells whether the condition holds.

    @param text: e.g. C{request.headers['x-canary'] == '1'}.
    @param response: may it ask for C{response}?  True from the stage PRE_RESPONSE on, and for the access log.
    @raise ConfigError: with the column.
    """
    code = _code(text, response)
    if code.type != BOOL:
        raise Fault(f"a condition must be a bool, this is {code.type.described}", 0).within(text)
    if code.run is None:
        return ALWAYS_TRUE if code.value else ALWAYS_FALSE
    return cast("Condition", code.run)


def expression(text: str, *, response: bool = False) -> Key:
    """
    A function that gives the value of an expression as text, as keys of C{sticky} and C{grayKey} want it: strings as
    they are, C{true} and C{false}, numbers as CEL writes them.

    @param text: e.g. C{request.cookies['sid']}.
    @raise ConfigError: with the column.
    """
    code = _code(text, response)
    if code.type not in SCALARS:
        raise Fault(f"a key must be a string, a number or a bool, this is {code.type.described}", 0).within(text)
    return cast("Key", rendered(code).closure)


def _code(text: str, response: bool) -> Code:
    names = {**CONDITION, "response": RESPONSE} if response else CONDITION
    try:
        return compiler.compile(parse(text)[0], names)
    except Fault as fault:
        raise fault.within(text) from None
