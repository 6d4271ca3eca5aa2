"""
Where a request carries a credential: a field, the C{Authorization} field, a cookie, a parameter of the query.

Rules
- A credential that stands there twice has two readings: refused, never "the first one".
- What was found can be taken out again, so that it ends here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from mypy_extensions import mypyc_attr

from protogate.errors import CLIENT, Abort
from protogate.message import Field, Request

LONGEST: Final = 8192
"""Bytes that a credential may have."""

_AUTHORIZATION: Final = b"authorization"
_HOLE: Final = re.compile(rb"[ \t]*;[ \t]*")


@mypyc_attr(native_class=False)
class Place(Protocol):
    """
    One of them.

    @ivar header: name of the field that it is in, or part of; empty for the query.
    @ivar parameter: name of the parameter of the query; else empty.
    """

    header: bytes
    parameter: str

    def find(self, request: Request) -> bytes | None:
        """
        What stands there; None = nothing does.

        @raise Abort: 400, it stands there twice; what it is can be told by nobody.
        """

    def remove(self, request: Request) -> None:
        """Take out what was found."""


class Header:
    """
    The value of a field.

    @param name: in lower case.
    """

    parameter = ""

    def __init__(self, name: bytes) -> None:
        self.header = name

    def __str__(self) -> str:
        return f"the field {self.header.decode('ascii')}"

    def find(self, request: Request) -> bytes | None:
        """See L{Place}."""
        found: bytes | None = None
        name = self.header
        fields: list[Field] = request.headers  # compiled, a list needs no iterator
        for key, value in fields:
            if key == name:
                if found is not None:
                    raise twice(str(self))
                found = value
        return found

    def remove(self, request: Request) -> None:
        """See L{Place}."""
        request.headers.remove(self.header)


class Authorization(Header):
    """
    What C{Authorization} says behind a scheme (RFC 9110, 11.4); a field with another scheme is none of ours.

    @param scheme: its case does not matter.
    """

    def __init__(self, scheme: str) -> None:
        super().__init__(_AUTHORIZATION)
        self._scheme = scheme.lower().encode("ascii")
        self._length = len(self._scheme)
        self._usual = scheme.encode("ascii") + b" "  # as nearly everybody writes it

    def find(self, request: Request) -> bytes | None:
        """See L{Place}.  Empty when nothing follows the scheme."""
        value: bytes | None = None
        fields: list[Field] = request.headers
        for key, each in fields:
            if key == b"authorization":
                if value is not None:
                    raise twice(str(self))
                value = each
        if value is None:
            return None
        length = self._length
        if value.startswith(self._usual):
            return value[length:].lstrip(b" ")
        if value[:length].lower() != self._scheme or value[length : length + 1] not in (b" ", b""):
            return None
        return value[length:].lstrip(b" ")


class Cookie:
    """
    The value of a cookie, over all lines of C{Cookie}.

    @param name: its case matters.
    """

    header = b"cookie"
    parameter = ""

    def __init__(self, name: bytes) -> None:
        self._start = name + b"="

    def __str__(self) -> str:
        return f"the cookie {self._start[:-1].decode('latin-1')}"

    def find(self, request: Request) -> bytes | None:
        """See L{Place}."""
        found: bytes | None = None
        start = self._start
        for key, line in request.headers:
            if key == b"cookie" and start in line:
                for pair in _HOLE.split(line) if b";" in line else (line,):
                    if pair.startswith(start):
                        if found is not None:
                            raise twice(str(self))
                        found = pair[len(start) :]
        return found

    def remove(self, request: Request) -> None:
        """See L{Place}."""
        headers, start = request.headers, self._start
        kept = []
        for field in headers:
            if field[0] == b"cookie" and start in field[1]:
                line = b"; ".join([pair for pair in _HOLE.split(field[1]) if not pair.startswith(start)])
                if line:
                    kept.append((field[0], line))
            else:
                kept.append(field)
        headers[:] = kept
        request.forget()


class Query:
    """
    The value of a parameter of the query, decoded.

    @param name: decoded; its case matters.
    """

    header = b""

    def __init__(self, name: str) -> None:
        self.parameter = name
        self._name = name.encode("utf-8")

    def __str__(self) -> str:
        return f"the parameter {self.parameter}"

    def find(self, request: Request) -> bytes | None:
        """See L{Place}."""
        found: bytes | None = None
        for pair in request.target.partition(b"?")[2].split(b"&"):
            name, equals, value = pair.partition(b"=")
            if equals and _plain(name) == self._name:
                if found is not None:
                    raise twice(str(self))
                found = _plain(value)
        return found

    def remove(self, request: Request) -> None:
        """See L{Place}."""
        path, _, query = request.target.partition(b"?")
        pairs = [pair for pair in query.split(b"&") if _plain(pair.partition(b"=")[0]) != self._name]
        request.target = path + b"?" + b"&".join(pairs) if pairs else path
        request.forget()


def find(places: Sequence[Place], request: Request) -> tuple[Place, bytes] | None:
    """
    What stands in one of these places; None = in none.

    @raise Abort: 400, there is more than one.
    """
    found: tuple[Place, bytes] | None = None
    for place in places:
        value = place.find(request)
        if value is not None:
            if found is not None:
                raise twice(f"{found[0]} and {place}")
            found = place, value
    return found


def headers(places: Iterable[Place]) -> frozenset[bytes]:
    """Names of the fields that they are in."""
    return frozenset(place.header for place in places) - {b""}


def parameters(places: Iterable[Place]) -> frozenset[str]:
    """Names of the parameters that they are in."""
    return frozenset(place.parameter for place in places) - {""}


def twice(where: str) -> Abort:
    """The Abort for a credential with two readings."""
    return Abort(
        f"more than one credential: {where}",
        CLIENT,
        400,
        error="http_request_error",
        detail="more than one credential",
    )


def _plain(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" ")) if b"%" in text or b"+" in text else text
