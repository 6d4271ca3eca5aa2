"""What must be forgotten when something was changed (RFC 9111, 4.4; RFC 9875, 3)."""

from __future__ import annotations

from urllib.parse import urljoin

from protogate.caching import groups
from protogate.caching.store import Store, Uri
from protogate.message import Response


class Changed:
    """
    A request that may change something.

    @param uri: what it is about.
    """

    def __init__(self, uri: Uri) -> None:
        self._uri = uri

    def forget(self, store: Store, response: Response, now: float) -> int:
        """
        Forget what the answer tells of (RFC 9111, 4.4; RFC 9875, 3).

        @return: how many answers are kept no longer.
        """
        if not response.protocol or not 200 <= response.status < 400:
            return 0
        scheme, authority, target = self._uri
        store.change(self._uri, now)
        gone = store.forget(self._uri)
        for name in (b"location", b"content-location"):
            for value in response.headers.all(name):
                other = _same_origin(scheme, authority, target, value)
                if other is not None and other != target:
                    store.change((scheme, authority, other), now)
                    gone += store.forget((scheme, authority, other))
        named = groups.groups(response.headers.all(b"cache-group-invalidation"))
        if named:
            store.change((scheme, authority), now)
            gone += store.forget_groups(scheme, authority, named)
        return gone


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
