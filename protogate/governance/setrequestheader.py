"""
C{setRequestHeader}: fields of the request, instead of those of the same name.

Each parameter is a field: name → text, template, or a list of them (one line each).  C{host} sets the authority of the
request, which is where a Request has its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import classImplements, implementer

from protogate.errors import GATEWAY, Abort, ConfigError, Phase
from protogate.governance.fields import Fields
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.uri import authority

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.message import Field, Request

_FORWARDING: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))


class SetRequestHeader:
    """@ivar warnings: fields that do not reach the upstream as they are written here."""

    __slots__ = ("_fields", "_host", "_names", "_parsed", "warnings")

    def __init__(self, fields: Fields, warnings: list[ConfigError]) -> None:
        self._fields, self.warnings = fields.of, warnings
        self._names: frozenset[bytes] | None = None if fields.single else fields.names
        self._host = b"host" in fields.names
        self._parsed = not fields.names.isdisjoint((b"host", b"cookie"))

    def process(self, exchange: Exchange) -> None:
        """Set the fields."""
        request = exchange.request
        headers, names = request.headers, self._names
        fields = self._fields(exchange)  # all of them first: a template may read what is replaced here
        if self._host:
            fields = self._rehost(request, fields)
        if names is None:  # one line of each
            for name, value in fields:
                headers.set(name, value)
        else:
            headers.without(names)
            headers.extend(fields)
        if self._parsed:
            request.forget()

    def _rehost(self, request: Request, fields: list[Field]) -> list[Field]:
        """Set the authority; the fields that are left."""
        host = next(value for name, value in fields if name == b"host")
        try:
            authority(host)
        except ValueError as error:
            raise Abort(f"setRequestHeader: host: {error}", GATEWAY, 500, phase=Phase.MODULE) from None
        request.authority = host
        return [field for field in fields if field[0] != b"host"]


classImplements(SetRequestHeader, IModule)


@implementer(IModuleFactory)
class SetRequestHeaderFactory:
    """Makes L{SetRequestHeader}."""

    name = "setRequestHeader"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = False

    def build(self, params: Mapping[str, object]) -> SetRequestHeader:
        """See L{IModuleFactory.build}."""
        reader = Params(params)
        lines = reader.lines()
        if not params:
            reader.fault("expected at least one field: name and value")
        names: dict[bytes, str] = {}
        for written in params:
            name = written.lower().encode("utf-8")
            if name in names:
                reader.fault(f"{written} is {names[name]} again: write one of them, with a list of values", written)
            names[name] = written
            if name in _FORWARDING or (name.startswith(b"x-forwarded-") and name != b"x-forwarded-client-cert"):
                reader.warn(f"{written} is written anew by the gateway behind this module", written)
        hosts = [line for line in lines if line[0] == b"host"]
        if len(hosts) > 1:
            reader.fault("a request has one host", names[b"host"])
        elif hosts and hosts[0][2] is None and not reader.faults:
            try:
                authority(hosts[0][1])
            except ValueError as error:
                reader.fault(str(error), names[b"host"])
        reader.done()
        return SetRequestHeader(Fields(lines), reader.warnings)
