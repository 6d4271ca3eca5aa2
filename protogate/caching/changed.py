"""What must be forgotten when something was changed (RFC 9111, 4.4; RFC 9875, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urljoin

from protogate.caching import groups
from protogate.caching.store import Store, Uri
from protogate.message import Response

GROUPS: Final = b"cache-group-invalidation"


class Changed:
    """
    What was changed, of one origin.

    @ivar scheme: of it, and C{authority}, in lower case.
    @ivar targets: what was asked of it.
    @ivar groups: of answers.
    """

    __slots__ = ("authority", "groups", "scheme", "targets")

    def __init__(self, scheme: bytes, authority: bytes, targets: Sequence[bytes], groups: Sequence[str] = ()) -> None:
        self.scheme, self.authority, self.targets, self.groups = scheme, authority, targets, groups

    @classmethod
    def by(cls, uri: Uri, response: Response) -> Changed | None:
        """
        What an answer to an unsafe method tells of (RFC 9111, 4.4; RFC 9875, 3).

        @param uri: what the request was about.
        @return: None when it has changed nothing.
        """
        if not response.protocol or not 200 <= response.status < 400:
            return None
        scheme, authority, target = uri
        targets = {target: None}
        for name in (b"location", b"content-location"):
            for value in response.headers.all(name):
                other = _same_origin(scheme, authority, target, value)
                if other is not None:
                    targets[other] = None
        return cls(scheme, authority, list(targets), list(groups.groups(response.headers.all(GROUPS))))

    def forget(self, store: Store, now: float) -> int:
        """
        Forget it.

        @return: how many answers are kept no longer.
        """
        gone, origin = 0, (self.scheme, self.authority)
        for target in self.targets:
            store.change((*origin, target), now)
            gone += store.forget((*origin, target))
        if self.groups:
            store.change(origin, now)
            gone += store.forget_groups(*origin, self.groups)
        return gone

    def plain(self) -> list[Any]:
        """For another process."""
        texts = [target.decode("latin-1") for target in self.targets]
        return [self.scheme.decode("latin-1"), self.authority.decode("latin-1"), texts, list(self.groups)]

    @classmethod
    def told(cls, plain: Any) -> Changed:
        """By another process."""
        scheme, authority, targets, named = plain
        return cls(
            scheme.encode("latin-1"), authority.encode("latin-1"), [each.encode("latin-1") for each in targets], named
        )


def _same_origin(scheme: bytes, authority: bytes, target: bytes, reference: bytes) -> bytes | None:
    """The target that a reference means; None where it is of another origin, or none."""
    base = (scheme + b"://" + authority).decode("latin-1")
    try:
        url = urljoin(base + target.decode("latin-1"), reference.decode("latin-1"))
    except ValueError:
        return None
    url = url.partition("#")[0]
    if not url.startswith(base):
        return None
    rest = url[len(base) :]
    if rest[:1] == "?":
        rest = "/" + rest
    return (rest or "/").encode("latin-1") if rest[:1] in ("", "/") else None
