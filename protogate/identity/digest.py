"""
Digests of content (RFC 9530): the field Content-Digest, and a body that is held to it on its way.

Rules
- All algorithms that are known must agree, and one of them must be there.
- A body is passed on as it comes, one piece behind: until its last piece turned out to be right nobody has all of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

from protogate.body import Valve
from protogate.errors import Abort
from protogate.identity.structured import Item, dictionary
from protogate.interfaces import IBody
from protogate.message import Field

KNOWN: Final = {"sha-256": "sha256", "sha-512": "sha512"}


def wanted(values: Sequence[bytes]) -> dict[str, bytes]:
    """
    What lines of Content-Digest say: digests by the name that hashlib has for the algorithm.

    @raise ValueError: nothing that could be checked.
    """
    members = dictionary(b", ".join(values).decode("ascii"))
    found: dict[str, bytes] = {}
    for name, algorithm in KNOWN.items():
        member = members.get(name)
        if member is not None:
            if not isinstance(member, Item) or not isinstance(member.value, bytes):
                raise ValueError(f"{name} is not written as bytes")
            found[algorithm] = member.value
    if not found:
        raise ValueError(f"expected {' or '.join(KNOWN)}")
    return found


class Digested(Valve):
    """A body that breaks off with C{reason} when it is not the one that was meant."""

    __slots__ = ("_busy", "_end", "_hashes", "_held", "_paused", "_reason", "_wanted")

    def __init__(self, body: IBody, digests: dict[str, bytes], reason: Abort) -> None:
        super().__init__(body)
        self._wanted, self._reason = digests, reason
        self._hashes: list[Any] = [hashlib.new(name) for name in digests]
        self._held = b""
        self._busy = self._paused = False
        self._end: tuple[Sequence[Field] | None] | None = None  # all was written: only the end is left to be told

    def write(self, data: bytes) -> None:
        for each in self._hashes:
            each.update(data)
        before, self._held = self._held, data
        if before:
            super().write(before)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        for each, digest in zip(self._hashes, self._wanted.values(), strict=True):
            if not hmac.compare_digest(each.digest(), digest):
                self._held = b""
                self.cut(self._reason)
                return
        self._end = (trailers,)
        if self._held:
            self._busy = True
            super().write(self._held)
            self._busy = False
        if not self._paused:
            super().finish(trailers)

    def pauseProducing(self) -> None:
        self._paused = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._end is None:
            super().resumeProducing()
        elif not self._busy:
            super().finish(self._end[0])
