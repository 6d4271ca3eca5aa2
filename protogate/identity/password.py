"""
Hashes of passwords, as files have them: C{$scrypt$…}, C{$pbkdf2-sha256$…}, and bcrypt's C{$2b$…} of htpasswd -B.

Rules
- Only hashes that are slow on purpose.  What a file may ask for has bounds: nobody can be made to hash for a minute.
- To verify takes tens to hundreds of milliseconds, and lets other threads run: never on the event loop.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from importlib.util import find_spec
from typing import Final, Protocol

LONGEST: Final = 1024
"""Bytes of a password that are looked at all; a longer one is wrong."""
MEMORY: Final = 128 << 20
"""Bytes that one hash may take."""

_SCRYPT: Final = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_PBKDF2: Final = re.compile(r"\$pbkdf2-sha256\$(?:i=)?([0-9]{1,9})(?:,l=32)?\$([A-Za-z0-9+/.]+)\$([A-Za-z0-9+/.]+)")
_BCRYPT: Final = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_WEAK: Final = {
    "{SHA}": "SHA-1",
    "{SSHA}": "salted SHA-1",
    "{SHA256}": "SHA-256",
    "{SSHA256}": "salted SHA-256",
    "$apr1$": "MD5",
    "$1$": "MD5",
}


class Password(Protocol):
    """The hash of one."""

    def matches(self, password: bytes) -> bool:
        """Whether it is this one.  Takes its time."""


class Scrypt:
    """RFC 7914."""

    __slots__ = ("_hash", "_salt", "_settings")

    def __init__(self, ln: int, r: int, p: int, salt: bytes, made: bytes) -> None:
        """@raise ValueError: out of bounds."""
        if not (10 <= ln <= 20 and 1 <= r <= 32 and 1 <= p <= 16 and 128 * r << ln <= MEMORY):
            raise ValueError("scrypt: expected ln from 10 to 20, r to 32, p to 16, and 128 r 2^ln up to 128 MiB")
        self._settings, self._salt, self._hash = (1 << ln, r, p), salt, made

    def matches(self, password: bytes) -> bool:
        """See L{Password}."""
        return hmac.compare_digest(_scrypt(password, self._salt, self._settings, len(self._hash)), self._hash)


class Pbkdf2:
    """RFC 8018, with HMAC-SHA-256."""

    __slots__ = ("_hash", "_rounds", "_salt")

    def __init__(self, rounds: int, salt: bytes, made: bytes) -> None:
        """@raise ValueError: out of bounds."""
        if not 10_000 <= rounds <= 5_000_000:
            raise ValueError("pbkdf2-sha256: expected from 10,000 to 5,000,000 rounds")
        self._rounds, self._salt, self._hash = rounds, salt, made

    def matches(self, password: bytes) -> bool:
        """See L{Password}."""
        made = hashlib.pbkdf2_hmac("sha256", password, self._salt, self._rounds, len(self._hash))
        return hmac.compare_digest(made, self._hash)


class Bcrypt:
    """bcrypt looks at 72 bytes of a password: a longer one is wrong."""

    __slots__ = ("_text",)

    def __init__(self, cost: int, text: str) -> None:
        """@raise ValueError: out of bounds, or what verifies it is not installed."""
        if not 4 <= cost <= 16:
            raise ValueError("bcrypt: expected a cost from 4 to 16")
        if find_spec("bcrypt") is None:
            raise ValueError("bcrypt is not installed: pip install 'protogate[bcrypt]', or make another hash of it")
        self._text = text.encode("ascii")

    def matches(self, password: bytes) -> bool:
        """See L{Password}."""
        import bcrypt  # noqa: PLC0415 - an extra

        return len(password) <= 72 and b"\0" not in password and bcrypt.checkpw(password, self._text)


def parse(text: str) -> Password:
    """
    The hash that a text is.

    @raise ValueError: it is none, or a weak one; the text is not repeated.
    """
    if match := _SCRYPT.fullmatch(text):
        return Scrypt(int(match[1]), int(match[2]), int(match[3]), *_bytes(match[4], match[5]))
    if match := _PBKDF2.fullmatch(text):
        return Pbkdf2(int(match[1]), *_bytes(match[2].replace(".", "+"), match[3].replace(".", "+")))
    if match := _BCRYPT.fullmatch(text):
        return Bcrypt(int(match[1]), text)
    for start, name in _WEAK.items():
        if text.startswith(start):
            raise ValueError(f"{name} is too fast to keep a password secret; make another hash of it")
    raise ValueError("this is no hash of a password: expected $scrypt$…, $pbkdf2-sha256$… or $2b$…")


def make(password: bytes) -> str:
    """A hash of a password; takes its time.  Settings that OWASP advises: 32 MiB, three times."""
    salt = os.urandom(16)
    made = _scrypt(password, salt, (1 << 15, 8, 3), 32)
    return f"$scrypt$ln=15,r=8,p=3${_text(salt)}${_text(made)}"


def _scrypt(password: bytes, salt: bytes, settings: tuple[int, int, int], length: int) -> bytes:
    n, r, p = settings
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY, dklen=length)


def _bytes(salt: str, made: str) -> tuple[bytes, bytes]:
    found = [b64decode(text + "=" * (-len(text) % 4), validate=True) for text in (salt, made)]
    if not 8 <= len(found[0]) <= 64 or not 16 <= len(found[1]) <= 64:
        raise ValueError("expected a salt of 8 to 64 bytes and a hash of 16 to 64")
    return found[0], found[1]


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii").rstrip("=")
