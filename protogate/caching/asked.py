"""What a request says to a cache, in one look at its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protogate.caching.conditions import CONDITIONS, STRICT
from protogate.caching.directives import NO_CACHE, NOTHING, Control, of_request
from protogate.message import Field, Headers

OVERRIDES: Final = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))
"""Fields by which some origins take a GET for something else."""
UNSAID: Final = frozenset(
    (
        b"x-forwarded-host",
        b"x-forwarded-prefix",
        b"x-forwarded-scheme",
        b"x-forwarded-server",
        b"x-host",
        b"x-original-host",
        b"x-original-url",
        b"x-rewrite-url",
    )
)
"""
Fields by which some origins take a URI for another one, and do not say so in C{Vary}.  Answers to requests with one of
them are for requests with the same.
"""
CERTIFICATES: Final = frozenset((b"client-cert", b"x-forwarded-client-cert"))
"""Fields that say whose certificate a connection has: credentials always."""
_ALWAYS: Final = frozenset((b"authorization", b"proxy-authorization")) | CERTIFICATES
_OTHERS: Final = (
    frozenset((b"cache-control", b"pragma", b"range", b"if-range")) | CONDITIONS | STRICT | OVERRIDES | UNSAID
)


@dataclass(frozen=True, slots=True)
class Asked:
    """
    @ivar wishes: its directives.
    @ivar conditions: lines that a cache may answer.
    @ivar beyond: it asks what only the origin can answer.
    @ivar somebody: it says who asks.
    @ivar extra: what tells its answers apart besides.
    """

    wishes: Control = NOTHING
    conditions: list[Field] = field(default_factory=list)
    ranges: bytes | None = None
    if_range: bytes | None = None
    beyond: bool = False
    somebody: bool = False
    extra: tuple[str, ...] = ()


PLAIN: Final = Asked()


def watched(credentials: frozenset[bytes]) -> frozenset[bytes]:
    """Names of fields that say something to a cache."""
    return _OTHERS | _ALWAYS | credentials


def asked(headers: Headers, names: frozenset[bytes], obey: bool) -> Asked:
    """
    What a request says.

    @param names: L{watched}.
    @param obey: its directives count.
    """
    found = [each for each in headers if each[0] in names]
    if not found:
        return PLAIN
    said: dict[bytes, list[bytes]] = {}
    for name, value in found:
        said.setdefault(name, []).append(value)
    wishes = NOTHING
    if obey:
        lines = said.get(b"cache-control")
        if lines is not None:
            wishes = of_request(lines)
        elif b"no-cache" in b",".join(said.get(b"pragma", ())).lower():
            wishes = NO_CACHE
    ranges = said.get(b"range")
    conditions = said.get(b"if-range", [b""])
    return Asked(
        wishes,
        [each for each in found if each[0] in CONDITIONS],
        None if ranges is None else b",".join(ranges),
        b",".join(conditions) or None,
        any(name in STRICT or name in OVERRIDES for name in said),
        any(name not in _OTHERS for name in said),
        tuple(f"{name!r}={said[name]!r}" for name in sorted(said) if name in UNSAID),
    )
