"""
A file of keys of an API: one a line, C{sha256:DIGEST OWNER expires=TIME name=value …}.

Rules
- Only digests stand there: who reads the file can show no key.  A plain SHA-256 is enough for keys that were made at
  random; it would not be for what people think of.
- One owner may have several keys: that is how they are changed without a moment in which none works.
- The first fault of a file is told with its line; what stands in the line is not.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

SIZE: Final = 64 << 20
"""Bytes of a file."""
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2}))?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """
    @ivar owner: whose it is.
    @ivar expires: seconds since the epoch from when on it is good no longer; 0 = never.
    @ivar claims: what else the line says.
    """

    owner: str
    expires: float
    claims: dict[str, Any]


Keys = dict[bytes, Key]
"""By the SHA-256 of each key."""


def digest_of(key: bytes) -> str:
    """As a line begins."""
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


def parse(data: bytes) -> Keys:
    """
    The keys of a file.

    @raise ValueError: in which line is what.
    """
    keys: Keys = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            digest, key = _read(text.split())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if digest in keys:
            raise ValueError(f"line {number}: this key stands there twice")
        keys[digest] = key
    return keys


def _read(words: list[str]) -> tuple[bytes, Key]:
    match = _DIGEST.fullmatch(words[0])
    if match is None or len(words) < 2 or "=" in words[1]:
        raise ValueError("expected sha256:DIGEST OWNER, as `protogate credential key` makes it")
    claims: dict[str, Any] = {}
    expires = 0.0
    for word in words[2:]:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in claims or (name == "expires" and expires):
            raise ValueError("expected name=value behind the owner, each name once")
        if name == "expires":
            expires = moment(value)
        else:
            claims[name] = value
    return bytes.fromhex(match[1]), Key(words[1], expires, claims)


def moment(text: str) -> float:
    """
    Seconds since the epoch: of a day (its beginning, in UTC) or of a time with its zone (RFC 3339).

    @raise ValueError: it is none.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("expected a time such as 2027-01-31 or 2027-01-31T12:00:00Z")
    if "T" not in text:
        text += "T00:00:00Z"
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError("expires: there is no such time") from None
