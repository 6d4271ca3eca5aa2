"""
One stable hash decides who is gray: for routes and for modules.

Rules
- The same key has the same place everywhere and for ever: in every process, on every machine, in every version.  So
  nothing salts it, and the algorithm (BLAKE2b, RFC 7693) is part of the contract.
- Cohorts are nested: who is among the first 5 % is among the first 10 %.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_SCALE: Final = 1 << 48
"""48 bits: every quotient is exact in a float, so that none is rounded up to the end of the range."""


def fraction(key: str) -> float:
    """The place of key in [0, 1)."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / _SCALE


def position(key: str) -> float:
    """The place of key in [0, 100): who is below a ratio in percent belongs to it."""
    return fraction(key) * 100
