"""
C{removeHeader}: takes fields out of what is on its way: the request in PRE_REQUEST and PRE_UPSTREAM, the response in
PRE_RESPONSE.

C{names} is a list of field names; one that ends with C{*} stands for all that begin so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zope.interface import classImplements, implementer

from protogate.governance.params import CONNECTION, FRAMING, Params
from protogate.governance.stages import PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.message import Field


class RemoveHeader:
    """
    @param names: whole names, in lower case.
    @param prefixes: beginnings of names, in lower case.
    """

    __slots__ = ("_names", "_parsed", "_prefixes")

    def __init__(self, names: frozenset[bytes], prefixes: tuple[bytes, ...]) -> None:
        self._names, self._prefixes = names, prefixes
        self._parsed = b"cookie" in names or b"cookie".startswith(prefixes)

    def process(self, exchange: Exchange) -> None:
        """Take the fields out."""
        response = exchange.response
        headers: list[Field] = exchange.request.headers if response is None else response.headers
        names, prefixes = self._names, self._prefixes
        if prefixes:
            kept = [field for field in headers if field[0] not in names and not field[0].startswith(prefixes)]
        else:
            kept = [field for field in headers if field[0] not in names]
        if len(kept) == len(headers):
            return
        headers[:] = kept
        if response is None and self._parsed:
            exchange.request.forget()


classImplements(RemoveHeader, IModule)


@implementer(IModuleFactory)
class RemoveHeaderFactory:
    """Makes L{RemoveHeader}."""

    name = "removeHeader"
    stages = (PRE_UPSTREAM, PRE_REQUEST, PRE_RESPONSE)
    guards = False

    def build(self, params: Mapping[str, object]) -> RemoveHeader:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "names")
        names: set[bytes] = set()
        prefixes: list[bytes] = []
        entries = reader.items("names")
        for index, entry in enumerate(entries):
            prefix = isinstance(entry, str) and entry.endswith("*")
            name = reader.field(entry[:-1] if prefix else entry, "names", index)
            if prefix:
                prefixes.append(name)
            elif name in FRAMING or name in CONNECTION:
                reader.fault(f"{entry} belongs to the codec and is never among the fields here", "names", index)
            elif name == b"host":
                reader.fault(
                    "host is no field here but the authority of the request: it cannot be taken out", "names", index
                )
            else:
                names.add(name)
        if not entries and not reader.faults:
            reader.fault("expected at least one field name", "names")
        reader.done()
        return RemoveHeader(frozenset(names), tuple(prefixes))
