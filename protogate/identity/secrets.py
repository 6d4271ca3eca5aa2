"""
A file of secrets that both sides share: one a line, C{ID OWNER SECRET name=value …}; the secret in Base64, of either
alphabet, with or without padding.

The first fault of a file is told with its line; what stands in the line is not.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any, Final

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
    @ivar value: for HMAC.
    @ivar claims: what else the line says.
    """

    owner: str
    value: bytes
    claims: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Secret of {self.owner}>"


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
    if len(words) < 3 or not _BASE64.fullmatch(words[2]):
        raise ValueError("expected ID OWNER SECRET, as `protogate credential secret` makes it")
    text = words[2].rstrip("=").translate({ord("+"): "-", ord("/"): "_"})
    try:
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise ValueError("the secret is not Base64") from None
    if len(value) < LEAST:
        raise ValueError(f"a secret has {LEAST} bytes at least")
    claims: dict[str, Any] = {}
    for word in words[3:]:
        name, equals, given = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in claims:
            raise ValueError("expected name=value behind the secret, each name once")
        claims[name] = given
    return Secret(words[1], value, claims)
