"""
What modules that limit have in common: by what they tell clients apart, where they count, and what they say to who had
too much.

Fields are those of draft-ietf-httpapi-ratelimit-headers-10 (2025): C{RateLimit-Policy: "name";q=100;w=1} for what is
granted, C{RateLimit: "name";r=7;t=3} for what is left of it and when all of it is there again; and C{Retry-After}
(RFC 9110, 10.2.3) with 429 (RFC 6585, 4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from socket import inet_ntoa
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr
from twisted.logger import Logger

from protogate.config.scalar import shown
from protogate.context import uncounted
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.expression import cidr
from protogate.expression.template import Template
from protogate.governance.params import Params
from protogate.governance.redis import Redis
from protogate.governance.redissettings import RedisSettings
from protogate.message import Field
from protogate.observe.events import Limited

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

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

_log = Logger()
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


FRAME: Final = ("key", "cost", "name", "keys", "headers", "redis", "whenStoreFails")
"""Parameters that L{Frame.read} reads."""


@dataclass(frozen=True, slots=True)
class Frame:
    """
    What all modules that count are told.

    @ivar key: by what exchanges are counted; C{text} is how it is written.
    @ivar cost: of an exchange, in units.
    @ivar name: of the limit.
    @ivar most: keys that are told apart.
    @ivar always: every answer tells what is left, not only a refusal.
    @ivar store: where it is counted for all; None = nowhere.
    @ivar fails: C{local}, C{open} or C{closed}: what holds without the store.
    """

    key: Key
    text: str
    cost: int | Template
    name: str
    most: int
    always: bool
    store: RedisSettings | None
    fails: str

    @classmethod
    def read(cls, reader: Params, most: int, what: str) -> Frame:
        """
        Of a module's parameters C{FRAME}.

        @param most: that a request may cost, and C{what} that is.
        """
        key, text = read_key(reader)
        cost = read_cost(reader)
        if isinstance(cost, int) and cost > most and not reader.faults:
            reader.fault(f"more than the {what}, which is {shown(most)}: no request would ever pass", "cost")
        name = read_name(reader)
        keys = reader.integer("keys", KEYS, 1, MOST_KEYS)
        return cls(key, text, cost, name, keys, reader.flag("headers"), reader.redis("redis"), read_fails(reader))


@mypyc_attr(allow_interpreted_subclasses=True)
class Limit:
    """
    What all modules that count do.

    @ivar waits: see L{protogate.governance.binding.Bound}.
    """

    asks: Mapping[str, tuple[str | int, ...]] = {}

    def __init__(self, kind: str, frame: Frame) -> None:
        """@param kind: name of the module, for people."""
        self._kind, self._frame = kind, frame
        self._key: Key = frame.key
        self._name, self._always, self._fails = frame.name, frame.always, frame.fails
        store = frame.store
        self.waits: tuple[float, tuple[str, ...]] = (0.0, ()) if store is None else store.waits
        self._workers = 1
        self._redis: Redis | None = None
        self._count: Callable[[str], None] = uncounted
        self._warn = Limited(_log.warn)

    def _begin(self, means: Means) -> Redis | None:
        """It is in force; the connection to the store, if there is one."""
        self._count, self._workers = means.count, means.workers
        store = self._frame.store
        self._redis = None if store is None else means.redis(store)
        return self._redis

    def _succeeds(self, other: Limit) -> bool:
        """Whether it counts the same."""
        return (other._frame.text, other._name) == (self._frame.text, self._name)

    def stop(self) -> None:
        """L{protogate.interfaces.ILiveModule}."""
        redis, self._redis = self._redis, None
        if redis is not None:
            redis.release()

    def _crowd(self) -> None:
        """There are more keys than it may tell apart."""
        self._count("keys_shared")
        text = "{kind} {name}: more than {most} keys: those that are new are counted together"
        self._warn(text, kind=self._kind, name=self._name, most=self._frame.most)

    def _closed(self, told: Told, reset: float) -> Abort:
        """For everybody, where the store is gone and C{whenStoreFails} is C{closed}; it is counted."""
        self._count("limited")
        return told.refusal(f"{self._kind}: the store is gone, and without it nobody is let in", 1.0, reset)


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
