"""
A file of users and the hashes of their passwords: one a line, C{name:hash} as htpasswd writes it, or
C{name:hash:group,group}.

Rules
- The first fault of a file is told with its line; what stands in the line is not.
- Somebody who is not in it costs as much time as somebody who is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from protogate.identity import password
from protogate.identity.password import Password

SIZE: Final = 16 << 20
"""Bytes of a file."""


@dataclass(frozen=True, slots=True)
class User:
    """
    @ivar name: as people read it.
    @ivar password: the hash of it.
    @ivar groups: that it is in.
    """

    name: str
    password: Password
    groups: tuple[str, ...]


class Users:
    """
    @ivar digest: of the file: two with an equal one are equal.
    """

    __slots__ = ("_decoy", "_known", "digest")

    def __init__(self, known: dict[bytes, User], digest: bytes) -> None:
        self._known, self.digest = known, digest
        self._decoy = next((user.password for user in known.values()), None)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: bytes) -> User | None:
        """Who has that name."""
        return self._known.get(name)

    def verify(self, name: bytes, secret: bytes) -> bool:
        """Whether somebody has that name and that password.  Takes its time, whether there is such a name or not."""
        user = self._known.get(name)
        if user is not None:
            return user.password.matches(secret)
        if self._decoy is not None:
            self._decoy.matches(secret)
        return False


def parse(data: bytes) -> Users:
    """
    The users of a file.

    @raise ValueError: in which line is what.
    """
    known: dict[bytes, User] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, _, rest = text.partition(":")
        made, _, groups = rest.partition(":")
        if not name or not rest:
            raise ValueError(f"line {number}: expected name:hash or name:hash:group,group")
        key = name.encode("utf-8")
        if key in known:
            raise ValueError(f"line {number}: this name stands there twice")
        try:
            hashed = password.parse(made)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        listed = tuple(group for each in groups.split(",") if (group := each.strip()))
        known[key] = User(name, hashed, listed)
    return Users(known, hashlib.sha256(data).digest())
