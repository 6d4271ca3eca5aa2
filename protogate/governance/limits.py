"""
What modules that limit have in common: by what they tell clients apart, and what they say to who had too much.

Fields are those of draft-ietf-httpapi-ratelimit-headers-10 (2025): C{RateLimit-Policy: "name";q=100;w=1} for what is
granted, C{RateLimit: "name";r=7;t=3} for what is left of it and when all of it is there again; and C{Retry-After}
(RFC 9110, 10.2.3) with 429 (RFC 6585, 4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from math import ceil
from socket import inet_ntoa
from typing import TYPE_CHECKING, Final

from protogate.config.scalar import shown
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.expression import cidr
from protogate.expression.template import Template
from protogate.governance.params import Params
from protogate.message import Field

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

LONGEST: Final = 64
"""Characters of a key that is remembered as it is; a longer one is remembered by its hash.  So is every one in a store,
unless it is an address: keys may be credentials."""
KEYS: Final = 100_000
"""Keys that are remembered unless the configuration says another number."""
MOST_KEYS: Final = 1_000_000
HIGHEST: Final = 1_000_000_000
"""What a request may cost."""
NETWORK: Final = 64
"""Bits of an IPv6 address that tell clients apart: whoever has one has all addresses behind these (RFC 6177)."""

LOCAL: Final = "local"
OPEN: Final = "open"
CLOSED: Final = "closed"
"""What holds without the store: each worker's own part, nothing, or nobody is let in."""

Key = Callable[["Exchange"], str]
"""By what an exchange is counted."""

_name = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII).fullmatch
_number = re.compile(r"[0-9]{1,9}", re.ASCII).fullmatch


def client(exchange: Exchange) -> str:
    """Whom a request comes from: its address, or the network of an IPv6 one."""
    ip = exchange.source.ip
    if ":" not in ip:
        return ip
    number = cidr.number(ip)
    if number is None:
        return ip
    version, bits = number
    return f"{bits >> (128 - NETWORK):x}/{NETWORK}" if version == 6 else inet_ntoa(bits.to_bytes(4))


def read_key(reader: Params, everybody: bool = False) -> tuple[Key, str]:
    """
    The parameter C{key}: a template or a text.

    @param everybody: without it all exchanges are counted together; else each client by itself.
    @return: and its text, by which it is known whether it changed.
    """
    if "key" not in reader:
        return ((lambda exchange: ""), "") if everybody else (client, "source.ip")
    given = reader.text("key")
    if isinstance(given, str):
        return (lambda exchange: given), given
    template: Template = given
    longest = 0 if "redis" in reader else LONGEST

    def key(exchange: Exchange) -> str:
        text = template(exchange)
        return text if len(text) <= longest else hashed(text)

    return key, template.text


def hashed(text: str) -> str:
    """A long key, short."""
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read_name(reader: Params) -> str:
    """The parameter C{name}, which gateways share a limit under, and clients see."""
    name = reader.literal("name", "default")
    if not _name(name):
        reader.fault(f"expected a name of letters, digits and _ . -, 64 at most, got {shown(name)}", "name")
    if "redis" in reader and "name" not in reader:
        reader.fault("name is missing: under it the limit is shared with all who name it so", "name")
    return name


def read_cost(reader: Params) -> int | Template:
    """The parameter C{cost}: a number or a template that gives one."""
    if isinstance(reader.given("cost"), Template):
        return reader.text("cost")  # type: ignore[return-value]
    return reader.integer("cost", 1, 1, HIGHEST)


def read_fails(reader: Params) -> str:
    """The parameter C{whenStoreFails}."""
    if "whenStoreFails" in reader and "redis" not in reader:
        reader.fault("there is no store that could fail: say redis, or remove this", "whenStoreFails")
    return reader.choice("whenStoreFails", LOCAL, LOCAL, OPEN, CLOSED)


def price(cost: int | Template, exchange: Exchange) -> int:
    """
    What an exchange costs.

    @raise Abort: the template gives no number.
    """
    if isinstance(cost, int):
        return cost
    text = cost(exchange)
    if _number(text) is None:
        raise Abort(f"cost: expected a number, got {shown(text)}", GATEWAY, 500, error="proxy_internal_error")
    return int(text)


def whole(seconds: float) -> int:
    """Seconds in whole ones, rounded up; sums of fractions are not exact."""
    return max(ceil(seconds - 0.001), 0)


class Told:
    """
    What clients are told of one limit.

    @param quota: units …
    @param window: … in so many seconds.
    """

    __slots__ = ("_name", "policy")

    def __init__(self, name: str, quota: int, window: int) -> None:
        self._name = name.encode("ascii")
        self.policy: Field = (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (self._name, quota, window))

    def fields(self, left: float, reset: float) -> list[Field]:
        """
        @param left: units.
        @param reset: seconds until all of them are there.
        """
        return [self.policy, (b"ratelimit", b'"%b";r=%d;t=%d' % (self._name, max(left, 0), whole(reset)))]

    def refusal(self, reason: str, wait: float, reset: float) -> Abort:
        """
        For who had too much.

        @param wait: seconds until it makes sense to try again.
        """
        return Abort(
            reason,
            CLIENT,
            429,
            error="http_request_denied",
            detail="too many requests",
            headers=[(b"retry-after", b"%d" % max(whole(wait), 1)), *self.fields(0, reset)],
        )
