"""
One stable hash decides who is gray: for routes and for modules.

Rules
- The same key has the same place everywhere and for ever: in every process, on every machine, in every version.  So
  nothing salts it, and the algorithm (BLAKE2b, RFC 7693) is part of the contract.
- Cohorts are nested: who is among the first 5 % is among the first 10 %.
- Who has no key goes by the address, and who has none by the request alone: see L{place}.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

DEFAULT: Final = "source.ip"
"""The key where a configuration names none."""
_SCALE: Final = 1 << 48
"""48 bits: every quotient is exact in a float, so that none is rounded up to the end of the range."""


def fraction(key: str) -> float:
    """The place of key in [0, 1)."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / _SCALE


def position(key: str) -> float:
    """The place of key in [0, 100): who is below a ratio in percent belongs to it."""
    return fraction(key) * 100


def place(exchange: Exchange, key: str) -> float:
    """
    The place of an exchange in [0, 100).

    @param key: of its user.  Where it is empty the address counts that it came from; where there is none, as through a
        UNIX socket, the id of the request: each for itself, and the same for all who look at it.
    """
    return position(key or exchange.source.ip or exchange.id)
