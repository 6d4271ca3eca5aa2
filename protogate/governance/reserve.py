"""
What a client must not say, because modules of the gateway say it: fields that carry who was authenticated.

A module names them in C{reserves}; they are taken out of every request when it comes in, whoever sent it, before any
rule, condition or module sees it: also where that module does not run.  What it names in C{hides}, parameters of the
query that hold a secret, stands in no record.

Rules
- C{x_user} is C{x-user}: CGI, WSGI and their like see no difference; to some of them C{x.user} is the same as well.
- Trailers are held to the same: whoever merges them with the fields would be told.
- Values of hidden parameters are replaced where records are made; the request keeps them, for the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from protogate.body import Valve
from protogate.interfaces import IBody
from protogate.message import Field, alike

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.binding import Bound

HIDDEN: Final = b"***"
"""What records have in place of a secret."""
KNOWN: Final = 1000
LONGEST: Final = 64
"""How many names of fields are known, and bytes that they have."""


def reserve(stages: Mapping[str, Iterable[Bound]]) -> Reserve | None:
    """What all modules reserve, but for those in the shadow; None = nothing."""
    names: set[bytes] = set()
    for bound in chain.from_iterable(stages.values()):
        module: Any = bound.module
        if not bound.shadow:
            names.update(map(alike, getattr(module, "reserves", ())))
    return Reserve(frozenset(names)) if names else None


def hide(stages: Mapping[str, Iterable[Bound]]) -> Hide | None:
    """What all modules hide; None = nothing."""
    names: set[bytes] = set()
    for bound in chain.from_iterable(stages.values()):
        module: Any = bound.module
        names.update(name.encode("utf-8") for name in getattr(module, "hides", ()))
    return Hide(frozenset(names)) if names else None


class Reserve:
    """@param names: of fields, see L{alike}."""

    __slots__ = ("_known", "_names")

    def __init__(self, names: frozenset[bytes]) -> None:
        self._names = names
        self._known: dict[bytes, bool] = {}  # names that came: whether they are among them

    def __call__(self, exchange: Exchange) -> None:
        """Take out of a request what is reserved."""
        request = exchange.request
        headers, body = request.headers, request.body
        if self._among(headers):
            headers[:] = self._left(headers)
        if body is not None and request.upgrade is None:
            request.body = _Untold(body, self)

    def _among(self, fields: Iterable[Field]) -> bool:
        known = self._known
        for name, _ in fields:
            among = known.get(name)
            if self._ask(name) if among is None else among:
                return True
        return False

    def _ask(self, name: bytes) -> bool:
        among = alike(name) in self._names
        if len(name) <= LONGEST:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[name] = among
        return among

    def _left(self, fields: Iterable[Field]) -> list[Field]:
        names = self._names
        return [field for field in fields if alike(field[0]) not in names]

    def trailers(self, fields: Sequence[Field]) -> Sequence[Field]:
        """Those that may be passed on."""
        return self._left(fields) if self._among(fields) else fields


class Hide:
    """@param names: of parameters, decoded."""

    __slots__ = ("_names",)

    def __init__(self, names: frozenset[bytes]) -> None:
        self._names = names

    def __call__(self, target: bytes) -> bytes:
        """A target, as it may stand in a record."""
        path, mark, query = target.partition(b"?")
        pairs = query.split(b"&") if mark else []
        for index, pair in enumerate(pairs):
            name, equals, _ = pair.partition(b"=")
            if equals and unquote_to_bytes(name.replace(b"+", b" ")) in self._names:
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
