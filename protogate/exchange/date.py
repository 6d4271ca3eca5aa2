"""The date of now as HTTP writes it (RFC 9110, 5.6.7), made once a second."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Final


class _Second:
    __slots__ = ("number", "text")

    def __init__(self) -> None:
        self.number, self.text = -1, b""


_last: Final = _Second()


def now() -> bytes:
    """C{b"Sun, 06 Nov 1994 08:49:37 GMT"}."""
    number = int(time.time())
    if number != _last.number:
        _last.number, _last.text = number, formatdate(number, usegmt=True).encode("ascii")
    return _last.text
