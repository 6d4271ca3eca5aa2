"""
An answer that is kept, and whether it answers another request (RFC 9111, 4, 4.1 and 4.2).

A selecting field is compared as text: lines joined, white space around commas dropped, and without case where the field
has none (C{Accept-Encoding}, C{Accept-Language}).
"""

from __future__ import annotations

import re
from typing import Final

from protogate.caching.content import PIECE, Content
from protogate.caching.directives import Control
from protogate.caching.freshness import Freshness, first_age
from protogate.message import Field, Headers

UNKEPT: Final = frozenset((b"proxy-authenticate", b"proxy-authentication-info", b"proxy-authorization", b"age"))
"""Fields of an answer that are for one client, or one moment (RFC 9111, 3.1)."""
OWN: Final = frozenset((b"content-encoding", b"content-length", b"content-md5", b"content-range", *UNKEPT))
"""What a 304 does not change of what is kept: it is about the content that is here (RFC 9111, 3.2)."""
BASE: Final = 1024
"""Bytes that an answer takes besides its content and its fields."""

_CASELESS: Final = frozenset((b"accept-encoding", b"accept-language"))
_BLANK: Final = re.compile(rb"[ \t]*+,[ \t]*+")

Place = tuple[str, ...]
"""What tells answers to one URI apart besides selecting fields: route, target, and what the configuration adds."""


class Stored:
    """
    @ivar place: see L{Place}.
    @ivar names: selecting fields, in order.
    @ivar values: theirs in the request.
    @ivar headers: without those of L{UNKEPT}.
    @ivar born: when it was made, on the clock that only goes forward.
    @ivar groups: RFC 9875.
    @ivar hold: until then it is not asked again in the background whether it is still good.
    @ivar used: a number that grows with each use of the memory, as it was when this was used.
    @ivar broken: until then its origin is taken to fail still, as it did when it was last asked.
    """

    __slots__ = (
        "_weight",
        "born",
        "broken",
        "content",
        "control",
        "groups",
        "headers",
        "hold",
        "lifetime",
        "names",
        "place",
        "status",
        "uri",
        "used",
        "values",
    )

    def __init__(
        self,
        uri: tuple[bytes, bytes, bytes],
        place: Place,
        status: int,
        headers: list[Field],
        names: tuple[bytes, ...],
        values: tuple[bytes, ...],
        content: Content | None,
    ) -> None:
        """@param content: None = there is no content."""
        self.uri, self.place, self.status, self.names, self.values = uri, place, status, names, values
        self.dress(Headers([field for field in headers if field[0] not in UNKEPT]))
        self.content = content
        self.control, self.lifetime, self.born = Control(), 0.0, 0.0
        self.broken = self.hold = 0.0
        self.groups: frozenset[str] = frozenset()
        self.used = 0

    def dress(self, headers: Headers) -> None:
        """Give it these fields."""
        self.headers = headers
        self._weight = BASE
        for name, value in headers:
            self._weight += len(name) + len(value) + PIECE

    def stamp(self, headers: Headers, freshness: Freshness, now: float, wall: float, delay: float) -> None:
        """It has come, or has been found to be still good, just now; see L{first_age}."""
        self.control, self.lifetime = freshness.control, freshness.lifetime
        self.born = now - first_age(headers, wall, delay)

    def merged(self, headers: Headers) -> Headers:
        """Its fields, with what a 304 says of them (RFC 9111, 3.2)."""
        fields = [field for field in headers if field[0] not in OWN]
        names = {name for name, _ in fields}
        return Headers([field for field in self.headers if field[0] not in names] + fields)

    def matches(self, request: Headers) -> bool:
        """Whether the selecting fields are the same."""
        for name, value in zip(self.names, self.values, strict=True):  # noqa: SIM110 - a generator costs as much
            if selecting(request, name) != value:
                return False
        return True

    def is_same(self, headers: Headers) -> bool:
        """Whether an answer to HEAD has the same validators and the same length as this one."""
        for name in (b"etag", b"last-modified"):
            if headers.get(name) not in (None, self.headers.get(name)):
                return False
        length, content = headers.get(b"content-length"), self.content
        return length is None or length == b"%d" % (0 if content is None else content.length or content.size)

    def stale_for(self, now: float) -> float:
        """Seconds since it ceased to be fresh; less than 0 = it still is."""
        return now - self.born - self.lifetime

    @property
    def strict(self) -> bool:
        """It must not be used stale, whatever a client says (RFC 9111, 4.2.4)."""
        control = self.control
        return control.no_cache or control.revalidate

    def tolerates(self, wish: int | None) -> bool:
        """Whether a client that takes it stale may have it so."""
        return wish is not None and not self.strict and self.control.s_maxage is None

    def excused(self, wish: int | None, otherwise: int, now: float) -> bool:
        """
        Whether it may be used though its origin fails (RFC 5861, 4).

        @param wish: seconds that the client allows.
        @param otherwise: seconds where the origin says nothing.
        """
        said = self.control.stale_if_error
        window = max(otherwise if said is None else said, wish or 0)
        return not self.strict and self.stale_for(now) <= window

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        content = self.content  # what is on its way is counted by whoever reads it
        inside = content.size + PIECE * len(content.pieces) if content is not None and content.complete else 0
        return self._weight + inside


def usable(stored: Stored, wishes: Control, now: float) -> str:
    """
    Whether what is kept answers a request as it is (RFC 9111, 4.2 and 5.2.1).

    @return: C{fresh}; C{stale} = it does though it is stale, since the client says so; C{behind} = it does, and should
        be asked for in the background (RFC 5861, 3); else why it does not: C{expired}, or C{request}.
    """
    if wishes.no_cache or (wishes.max_age is not None and now - stored.born > wishes.max_age):
        return "request"
    control, late = stored.control, stored.stale_for(now)
    if control.no_cache:
        return "expired"
    if wishes.min_fresh is not None and late > -wishes.min_fresh:
        return "request"
    if late < 0.0:
        return "fresh"
    if stored.tolerates(wishes.max_stale) and late <= (wishes.max_stale or 0):
        return "stale"
    window = control.stale_while_revalidate
    return "behind" if window is not None and late <= window and not stored.strict else "expired"


def selecting(request: Headers, name: bytes) -> bytes:
    """A selecting field of a request, as it is compared; a missing one is another than an empty one."""
    values = request.all(name)
    if not values:
        return b"\0"
    text = _BLANK.sub(b",", b",".join(values))
    return text.lower() if name in _CASELESS else text
