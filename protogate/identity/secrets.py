"""
A file of keys that verify signatures: one a line, C{ID OWNER SECRET name=value …}.  The secret is one that both sides
share, in Base64 of either alphabet, with or without padding; or C{ed25519:KEY}, the public half of what the other side
keeps for itself.

The first fault of a file is told with its line; what stands in the line is not.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
SIZE: Final = 16 << 20
"""Bytes of a file."""
LEAST: Final = 16
"""Bytes of a secret."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Secret:
    """
    @ivar owner: whose it is.
    @ivar algorithm: L{HMAC} or L{ED25519}: by its name in RFC 9421, 6.2.
    @ivar verifies: C{verifies(text, signature)}: is that its signature?
    @ivar claims: what else the line says.
    """

    owner: str
    algorithm: str
    verifies: Callable[[bytes, bytes], bool] = field(repr=False)
    claims: dict[str, Any]


def shared(owner: str, value: bytes, claims: dict[str, Any]) -> Secret:
    """One that both sides share."""
    return Secret(owner, HMAC, partial(_mac, value), claims)


def _mac(secret: bytes, text: bytes, signature: bytes) -> bool:
    return hmac.compare_digest(hmac.digest(secret, text, sha256), signature)


def _signed(key: Ed25519PublicKey, text: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True


Secrets = dict[str, Secret]
"""By their names."""


def parse(data: bytes) -> Secrets:
    """
    The secrets of a file.

    @raise ValueError: in which line is what.
    """
    found: Secrets = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            secret = _read(words)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if words[0] in found:
            raise ValueError(f"line {number}: this ID stands there twice")
        found[words[0]] = secret
    return found


def _read(words: list[str]) -> Secret:
    kind, colon, rest = words[2].partition(":") if len(words) > 2 else ("", "", "")
    text = rest if colon else kind
    if kind != ED25519 if colon else not text:
        raise ValueError("expected ID OWNER SECRET, as `protogate credential secret` makes it, or ID OWNER ed25519:KEY")
    value = _bytes(text)
    claims: dict[str, Any] = {}
    for word in words[3:]:
        name, equals, given = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in claims:
            raise ValueError("expected name=value behind the secret, each name once")
        claims[name] = given
    if colon:
        if len(value) != 32:
            raise ValueError("a key of Ed25519 has 32 bytes")
        return Secret(words[1], ED25519, partial(_signed, Ed25519PublicKey.from_public_bytes(value)), claims)
    if len(value) < LEAST:
        raise ValueError(f"a secret has {LEAST} bytes at least")
    return shared(words[1], value, claims)


def _bytes(text: str) -> bytes:
    plain = text.rstrip("=").translate({ord("+"): "-", ord("/"): "_"})
    try:
        if not _BASE64.fullmatch(text):
            raise ValueError
        return urlsafe_b64decode(plain + "=" * (-len(plain) % 4))
    except ValueError:
        raise ValueError("the secret is not Base64") from None
