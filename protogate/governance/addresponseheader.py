"""
C{addResponseHeader}: fields for the response, beside those it has.

Each parameter is a field: name → text, template, or a list of them (one line each).  A field that is there already gets
one more line; nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zope.interface import classImplements, implementer

from protogate.errors import ConfigError
from protogate.governance.fields import Fields
from protogate.governance.params import Params
from protogate.governance.stages import PRE_RESPONSE
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange


class AddResponseHeader:
    """@ivar warnings: fields that the codec may drop."""

    __slots__ = ("_fields", "warnings")

    def __init__(self, fields: Fields, warnings: list[ConfigError]) -> None:
        self._fields, self.warnings = fields.of, warnings

    def process(self, exchange: Exchange) -> None:
        """Add the fields."""
        response = exchange.response
        if response is not None:
            response.headers.extend(self._fields(exchange))


classImplements(AddResponseHeader, IModule)


@implementer(IModuleFactory)
class AddResponseHeaderFactory:
    """Makes L{AddResponseHeader}."""

    name = "addResponseHeader"
    stages = (PRE_RESPONSE,)
    guards = False

    def build(self, params: Mapping[str, object]) -> AddResponseHeader:
        """See L{IModuleFactory.build}."""
        reader = Params(params)
        lines = reader.lines()
        if not params:
            reader.fault("expected at least one field: name and value")
        reader.done()
        return AddResponseHeader(Fields(lines), reader.warnings)
