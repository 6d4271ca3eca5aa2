"""
C{setResponseHeader}: fields of the response, instead of those of that name that it has.

Each parameter is a field: name → text, template, or a list of them (one line each).
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


class SetResponseHeader:
    """@ivar warnings: fields that the codec may drop."""

    __slots__ = ("_fields", "_names", "warnings")

    def __init__(self, fields: Fields, warnings: list[ConfigError]) -> None:
        self._fields, self._names, self.warnings = fields.of, fields.names, warnings

    def process(self, exchange: Exchange) -> None:
        """Set the fields."""
        response = exchange.response
        if response is None:
            return
        headers = response.headers
        fields = self._fields(exchange)  # all of them first: a template may read what is replaced here
        headers.without(self._names)
        headers.extend(fields)


classImplements(SetResponseHeader, IModule)


@implementer(IModuleFactory)
class SetResponseHeaderFactory:
    """Makes L{SetResponseHeader}."""

    name = "setResponseHeader"
    stages = (PRE_RESPONSE,)
    guards = False

    def build(self, params: Mapping[str, object]) -> SetResponseHeader:
        """See L{IModuleFactory.build}."""
        reader = Params(params)
        lines = reader.lines()
        if not params:
            reader.fault("expected at least one field: name and value")
        reader.done()
        return SetResponseHeader(Fields(lines), reader.warnings)
