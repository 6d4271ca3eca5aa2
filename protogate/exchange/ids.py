"""
Ids of requests: 32 hex digits, 16 of the process and 16 of a number that goes up.

One is made for each request, so it is put together of two texts that are there: all digits but the last three, which
stay the same for L{PAGE} requests, and those three.
"""

from __future__ import annotations

import os
from typing import Final

PAGE: Final = 4096
_LAST: Final = [f"{number:03x}" for number in range(PAGE)]


class Ids:
    """What one process gives; two processes have nothing in common."""

    __slots__ = ("_at", "_first", "_page", "_process")

    def __init__(self) -> None:
        self._process = os.urandom(8).hex()
        # 13 digits, for the next few thousand years.
        self._page = (1 << 51) + int.from_bytes(os.urandom(4), "big")
        self._first, self._at = f"{self._process}{self._page:013x}", 0

    def next(self) -> str:
        """One that was not given before."""
        at = self._at
        if at == PAGE:
            self._page += 1
            self._first, at = f"{self._process}{self._page:013x}", 0
        self._at = at + 1
        return self._first + _LAST[at]
