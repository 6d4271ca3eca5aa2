"""The date of now as HTTP writes it (RFC 9110, 5.6.7), made once a second."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import ClassVar


class _Second:
    number: ClassVar[int] = -1
    text: ClassVar[bytes] = b""


def now() -> bytes:
    """C{b"Sun, 06 Nov 1994 08:49:37 GMT"}."""
    number = int(time.time())
    if number != _Second.number:
        _Second.number, _Second.text = number, formatdate(number, usegmt=True).encode("ascii")
    return _Second.text
