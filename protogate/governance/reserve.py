"""
What a client must not say, because modules of the gateway say it: fields that carry who was authenticated.

A module names them in C{reserves}; they are taken out of every request when it comes in, whoever sent it, before any
rule, condition or module sees it: also where that module does not run.  What it names in C{hides}, parameters of the
query that hold a secret, stands in no record.

Rules
- C{x_user} is C{x-user}: CGI, WSGI and their like see no difference.
- Trailers are held to the same: whoever merges them with the fields would be told.
- Values of hidden parameters are replaced where records are made of them; the request keeps them for the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from protogate.body import Valve
from protogate.interfaces import IBody
from protogate.message import Field

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.binding import Bound

HIDDEN: Final = b"***"
"""What records have in place of a secret."""


def reserve(stages: Mapping[str, Iterable[Bound]]) -> Callable[[Exchange], None] | None:
    """What all modules reserve and hide; None = nothing."""
    names: set[bytes] = set()
    parameters: set[bytes] = set()
    for each in chain.from_iterable(stages.values()):
        module: Any = each.module
        names.update(_canonical(name) for name in getattr(module, "reserves", ()))
        parameters.update(name.encode("utf-8") for name in getattr(module, "hides", ()))
    return Reserve(frozenset(names), frozenset(parameters)) if names or parameters else None


class Reserve:
    """
    @param names: of fields, with C{-} for C{_}.
    @param parameters: of queries, decoded.
    """

    __slots__ = ("_names", "_parameters")

    def __init__(self, names: frozenset[bytes], parameters: frozenset[bytes]) -> None:
        self._names, self._parameters = names, parameters

    def __call__(self, exchange: Exchange) -> None:
        """Take out what is reserved, and hide what is hidden."""
        request = exchange.request
        if self._names:
            headers = request.headers
            if self._among(headers):
                headers[:] = self._left(headers)
            body = request.body
            if body is not None and request.upgrade is None:
                request.body = _Untold(body, self)
        if self._parameters and b"?" in request.target:
            method, authority, target = exchange.line
            exchange.line = method, authority, self._hidden(target)

    def _among(self, fields: Iterable[Field]) -> bool:
        names = self._names
        for name, _ in fields:  # noqa: SIM110 - a generator costs more than the tests
            if name in names or (b"_" in name and _canonical(name) in names):
                return True
        return False

    def _left(self, fields: Iterable[Field]) -> list[Field]:
        names = self._names
        return [field for field in fields if _canonical(field[0]) not in names]

    def trailers(self, fields: Sequence[Field]) -> Sequence[Field]:
        """Those that may be passed on."""
        return self._left(fields) if self._among(fields) else fields

    def _hidden(self, target: bytes) -> bytes:
        path, mark, query = target.partition(b"?")
        pairs = query.split(b"&")
        for index, pair in enumerate(pairs):
            name, equals, _ = pair.partition(b"=")
            if equals and unquote_to_bytes(name.replace(b"+", b" ")) in self._parameters:
                pairs[index] = name + equals + HIDDEN
        return path + mark + b"&".join(pairs)


class _Untold(Valve):
    """A body without the trailers that are reserved."""

    __slots__ = ("_reserve",)

    def __init__(self, body: IBody, reserve: Reserve) -> None:
        super().__init__(body)
        self._reserve = reserve

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        super().finish(self._reserve.trailers(trailers) if trailers else trailers)


def _canonical(name: bytes) -> bytes:
    return name.replace(b"_", b"-")
