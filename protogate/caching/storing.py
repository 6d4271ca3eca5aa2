"""
Whether an answer may be kept for others (RFC 9111, 3), and what of it.

Rules
- Nothing is kept that the origin has not said something about: its freshness, or that others may have it.
- What belongs to somebody is kept only where the origin says so in so many words (3.5): somebody is whoever sends a
  credential, or is known to the gateway.
- An answer that sets a cookie is not kept, unless the configuration has the cookie left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protogate.caching.freshness import Freshness
from protogate.caching.stored import selecting
from protogate.message import Headers, Response

UNDERSTOOD: Final = frozenset(
    (200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422, 451)
) | frozenset((500, 501, 502, 503, 504, 505))
"""Statuses whose caching rules hold no surprise: for C{must-understand}."""
NEVER: Final = frozenset((206, 304, 401, 407, 425, 428, 429, 431, 511))
"""
Part of an answer; what is about what the client has; and what RFC 6585 and RFC 8470 forbid to keep, or what is only
about who asks.
"""
CREDENTIALS: Final = "credentials"
"""Why an answer is not kept that another request might have had kept."""
VARIABLES: Final = 16
"""Selecting fields that an answer may have."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch


@dataclass(frozen=True, slots=True)
class Policy:
    """
    What the configuration says of keeping.

    @ivar targeted: fields that hold instead of C{Cache-Control}, the most specific first.
    @ivar credentials: fields of requests that say who asks.
    @ivar strip: C{Set-Cookie} is left out of what is kept.
    """

    targeted: tuple[bytes, ...]
    credentials: frozenset[bytes]
    strip: bool


def unfit(response: Response, freshness: Freshness, policy: Policy, somebody: bool) -> str:
    """
    Why an answer to a GET is not kept, in a word; empty when it may be.

    @param somebody: the request says who asks.
    """
    control, status = freshness.control, response.status
    reasons = (
        (control.must_understand and status not in UNDERSTOOD, "not-understood"),
        (status in NEVER or status < 200, "status"),
        (control.no_store and not control.must_understand, "no-store"),
        (control.private, "private"),
        (somebody and not control.shared, CREDENTIALS),
        (not policy.strip and response.headers.get(b"set-cookie") is not None, "set-cookie"),
        (not freshness.explicit and freshness.lifetime <= 0.0, "not-explicit"),
    )
    return next((word for wrong, word in reasons if wrong), "")


def selected(response: Headers, asked: Headers, sent: Headers) -> tuple[tuple[bytes, ...], tuple[bytes, ...]] | None:
    """
    The names and values that select this answer (RFC 9111, 4.1); None when no other request could be answered with it.

    @param asked: fields of the request as a next one would be compared.
    @param sent: as the upstream had them.  Where the gateway has changed one of those that select, nobody can tell
        beforehand what another request would be given.
    """
    lines = response.all(b"vary")
    if not lines:
        return (), ()
    names = tuple(sorted({name.strip(b" \t").lower() for name in b",".join(lines).split(b",")} - {b""}))
    if len(names) > VARIABLES or not all(_TOKEN(name) for name in names) or b"*" in names:
        return None
    values = tuple(selecting(asked, name) for name in names)
    for name, value in zip(names, values, strict=True):
        if name not in KEYED and selecting(sent, name) != value:
            return None
    return names, values


KEYED: Final = frozenset((b"host", b"x-forwarded-host", b"x-forwarded-proto"))
"""What the gateway writes from what an answer is found by anyway."""
