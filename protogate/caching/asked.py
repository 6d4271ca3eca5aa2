"""What a request says to a cache, in one look at its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protogate.caching.conditions import CONDITIONS, STRICT
from protogate.caching.directives import NO_CACHE, NOTHING, Control, of_request
from protogate.message import Field, Headers

OVERRIDES: Final = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))
"""Fields by which some origins take a GET for something else."""
REWRITES: Final = frozenset((b"x-original-url", b"x-rewrite-url", b"x-original-host", b"x-host"))
"""Fields by which some origins take a URI for another one, and which nobody has a good reason to send."""
TOLD: Final = frozenset(
    (b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-scheme", b"x-forwarded-server")
)
"""
What proxies in front say, some origins write into their answers, and nobody names in C{Vary}: answers to requests with
one of them are for requests with the same.
"""
ALWAYS: Final = frozenset((b"authorization", b"proxy-authorization", b"client-cert", b"x-forwarded-client-cert"))
"""Fields that say who asks, whatever the configuration says."""
_OTHERS: Final = (
    frozenset((b"cache-control", b"pragma", b"range", b"if-range")) | CONDITIONS | STRICT | OVERRIDES | REWRITES | TOLD
)
_BEYOND: Final = STRICT | OVERRIDES | REWRITES


@dataclass(frozen=True, slots=True)
class Asked:
    """
    @ivar wishes: its directives.
    @ivar conditions: lines that a cache may answer.
    @ivar beyond: it asks what only the origin can answer.
    @ivar somebody: it says who asks.
    @ivar told: what a proxy in front says, if one it is.
    """

    wishes: Control = NOTHING
    conditions: list[Field] = field(default_factory=list)
    ranges: bytes | None = None
    if_range: bytes | None = None
    beyond: bool = False
    somebody: bool = False
    told: tuple[str, ...] = ()


PLAIN: Final = Asked()


def watched(credentials: frozenset[bytes]) -> frozenset[bytes]:
    """Names of fields that say something to a cache."""
    return _OTHERS | ALWAYS | credentials


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
        any(name in _BEYOND for name in said),
        any(name not in _OTHERS for name in said),
        tuple(f"{name!r}={said[name]!r}" for name in sorted(said) if name in TOLD),
    )
