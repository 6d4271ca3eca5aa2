"""
C{rewriteQuery}: other parameters in the query; the path stays as it is.

Rules
- In this order: C{keep} (all others go), C{remove}, C{set} (instead of all of that name), C{add} (beside them).
- Names are compared as they are meant, percent-encoding and all; what is not named is passed on byte for byte.
- What templates give is a value: it is percent-encoded, and cannot become a parameter of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from zope.interface import implementer

from protogate.expression.template import Template
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Pair = tuple[bytes, bytes, "bytes | Template"]
"""Name as it is meant, name as it is written, value as it is written."""
SAFE: Final = "-._~!$'()*,;:@/?"
"""What may stand in a query as it is (RFC 3986, 3.4), and ends no parameter."""


def name_of(part: bytes) -> bytes:
    """The name of a parameter, as it is meant."""
    return unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))


@implementer(IModule)
class RewriteQuery:
    """
    @param keep: names; None = all.
    @param remove: names.
    @param put: set instead of those that there are.
    @param add: added beside them.
    """

    __slots__ = ("_add", "_gone", "_keep", "_put")

    def __init__(
        self, keep: frozenset[bytes] | None, remove: frozenset[bytes], put: list[Pair], add: list[Pair]
    ) -> None:
        self._keep, self._put, self._add = keep, put, add
        self._gone = remove.union(name for name, _, _ in put)

    def process(self, exchange: Exchange) -> None:
        """Change the query."""
        request = exchange.request
        target = request.target
        if not target.startswith(b"/"):
            return  # OPTIONS * and CONNECT have none
        path, _, query = target.partition(b"?")
        keep, gone = self._keep, self._gone
        parts = []
        for part in query.split(b"&") if query else ():
            name = name_of(part)
            if name not in gone and (keep is None or name in keep):
                parts.append(part)
        for _, written, value in (*self._put, *self._add):
            if isinstance(value, Template):
                value = _encoded(value(exchange))  # noqa: PLW2901 - the same value, written
            parts.append(written + b"=" + value)
        made = path + b"?" + b"&".join(parts) if parts else path
        if made != target:
            request.target = made
            request.forget()


def _encoded(text: str) -> bytes:
    return quote(text, safe=SAFE, errors="replace").encode("ascii")


@implementer(IModuleFactory)
class RewriteQueryFactory:
    """Makes L{RewriteQuery}."""

    name = "rewriteQuery"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = False

    def build(self, params: Mapping[str, object]) -> RewriteQuery:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "keep", "remove", "set", "add")
        if not params:
            reader.fault("expected keep, remove, set, or add")
        keep = _names(reader, "keep") if "keep" in reader else None
        remove = _names(reader, "remove")
        put, add = _pairs(reader, params, "set"), _pairs(reader, params, "add")
        reader.done()
        return RewriteQuery(keep, remove, put, add)


def _names(reader: Params, name: str) -> frozenset[bytes]:
    found = []
    for index, text in enumerate(reader.items(name)):
        if isinstance(text, str) and text:
            found.append(text.encode("utf-8"))
        else:
            reader.fault(f"expected the name of a parameter, got {shown(text)}", name, index)
    return frozenset(found)


def _pairs(reader: Params, params: Mapping[str, object], name: str) -> list[Pair]:
    given = params.get(name, {})
    if not isinstance(given, Mapping):
        reader.fault(f"expected a mapping of names and values, got {shown(given)}", name)
        return []
    found: list[Pair] = []
    for key, value in given.items():
        if not isinstance(key, str) or not key:
            reader.fault(f"expected the name of a parameter, got {shown(key)}", name)
        elif isinstance(value, Template):
            found.append((key.encode("utf-8"), _encoded(key), value))
        elif isinstance(value, str):
            found.append((key.encode("utf-8"), _encoded(key), _encoded(value)))
        else:
            reader.fault(f"expected a text, got {shown(value)}; put it in quotes", name, key)
    return found
