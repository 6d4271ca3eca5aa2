"""
C{rewriteMethod}: another method for the request.

Not for HEAD and CONNECT, neither from nor to: how long an answer is hangs on them (RFC 9110, 6.4.1), and the client has
asked with the one that it has asked with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

FIXED: Final = frozenset((b"HEAD", b"CONNECT"))
"""Methods that stay what they are."""


@implementer(IModule)
class RewriteMethod:
    """@param method: the new one."""

    __slots__ = ("_method",)

    def __init__(self, method: bytes) -> None:
        self._method = method

    def process(self, exchange: Exchange) -> None:
        """Change it."""
        request = exchange.request
        if request.method not in FIXED and request.upgrade is None:
            request.method = self._method


@implementer(IModuleFactory)
class RewriteMethodFactory:
    """Makes L{RewriteMethod}."""

    name = "rewriteMethod"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = False

    def build(self, params: Mapping[str, object]) -> RewriteMethod:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "method")
        text = reader.literal("method")
        if not reader.faults:
            reader.field(text, "method")
            if text != text.upper():
                reader.fault(f'methods are compared as they stand: write "{text.upper()}"', "method")
            elif text.encode("ascii", "replace") in FIXED:
                reader.fault(f"no request becomes {text}: the client does not know that it has asked so", "method")
        reader.done()
        return RewriteMethod(text.encode("ascii"))
