"""
The memory: what is kept, by URI, within a number of bytes; what nobody has asked for longest goes first.

Rules
- What is on its way counts, too: half of all bytes at most may be on their way.
- Nothing in here knows a clock: what is stale stays until there is no room, for it may still be good.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from protogate.caching.stored import Place, Stored
from protogate.message import Headers

Uri = tuple[bytes, bytes, bytes]
"""Scheme, authority in lower case, and what is asked of it."""
Key = tuple[Uri, Place, bool]
"""What requests share an answer, as far as one can tell beforehand; True = they say who asks."""
VARIANTS: Final = 32
"""Answers to one URI; the one that nobody has asked for longest goes when there are more."""
ALONE: Final = 16_384
"""URIs that are remembered to have no answer for several requests."""


class Store:
    """
    @ivar limit: bytes.
    @ivar used: bytes of what is kept.
    @ivar coming: bytes of what is on its way.
    @ivar evicted: how many answers had to go since they were last counted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = self.coming = self.evicted = self._uses = 0
        self._shelves: dict[Uri, list[Stored]] = {}
        self._order: OrderedDict[Stored, int] = OrderedDict()  # their sizes; the one that goes first is first
        self._groups: dict[tuple[bytes, bytes, str], set[Stored]] = {}
        self._alone: OrderedDict[Key, float] = OrderedDict()
        self._cleared = -1.0  # when it was last asked to forget more than a URI
        self._changed: OrderedDict[Uri | tuple[bytes, bytes], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def resize(self, limit: int) -> None:
        """Keep to another limit."""
        self.limit = limit
        self._shrink()

    def find(self, uri: Uri, place: Place, request: Headers) -> Stored | None:
        """The latest answer for such a request."""
        shelf = self._shelves.get(uri)
        if shelf is None:
            return None
        for stored in reversed(shelf):
            if stored.place == place and (not stored.names or stored.matches(request)):
                self._order.move_to_end(stored)
                self._uses += 1
                stored.used = self._uses
                return stored
        return None

    def holds(self, uri: Uri) -> bool:
        """Whether there is any answer of it."""
        return uri in self._shelves

    def put(self, stored: Stored) -> None:
        """Keep it, instead of whatever was found for the same requests."""
        shelf = self._shelves.setdefault(stored.uri, [])
        old = [one for one in shelf if one.place == stored.place and one.values == stored.values]
        for one in (one for one in old if one.names == stored.names):
            self.drop(one)
        shelf = self._shelves.setdefault(stored.uri, shelf)
        if len(shelf) >= VARIANTS:
            self.drop(min(shelf, key=lambda one: one.used))
            shelf = self._shelves.setdefault(stored.uri, shelf)
        shelf.append(stored)
        self._uses += 1
        stored.used = self._uses
        self._order[stored] = 0
        for group in stored.groups:
            self._groups.setdefault((*stored.uri[:2], group), set()).add(stored)
        self.weigh(stored)

    def weigh(self, stored: Stored) -> None:
        """Its size has changed."""
        before = self._order.get(stored)
        if before is not None:
            size = stored.size
            self._order[stored] = size
            self.used += size - before
            self._shrink()

    def drop(self, stored: Stored) -> None:
        """Keep it no longer."""
        size = self._order.pop(stored, None)
        if size is None:
            return
        self.used -= size
        shelf = self._shelves[stored.uri]
        shelf.remove(stored)
        if not shelf:
            del self._shelves[stored.uri]
        for group in stored.groups:
            key = (*stored.uri[:2], group)
            members = self._groups[key]
            members.discard(stored)
            if not members:
                del self._groups[key]

    def forget(self, uri: Uri) -> int:
        """Keep no answer of it; says how many there were."""
        gone = list(self._shelves.get(uri, ()))
        for stored in gone:
            self.drop(stored)
        return len(gone)

    def forget_groups(self, scheme: bytes, authority: bytes, groups: Iterable[str]) -> int:
        """Keep no answer of an origin that is in one of the groups; says how many there were."""
        gone = {stored for group in groups for stored in self._groups.get((scheme, authority, group), ())}
        for stored in gone:
            self.drop(stored)
        return len(gone)

    def forget_all(self, test: Callable[[Stored], bool], now: float) -> int:
        """Keep nothing that passes the test, nor what was asked for before now; says how many there were."""
        self._cleared = now
        gone = [stored for stored in self._order if test(stored)]
        for stored in gone:
            self.drop(stored)
        return len(gone)

    # -- what is on its way

    def change(self, what: Uri | tuple[bytes, bytes], now: float) -> None:
        """A URI, or groups of an origin, were changed: what was asked before then is of yesterday."""
        self._changed.pop(what, None)
        self._changed[what] = now
        if len(self._changed) > ALONE:
            self._changed.popitem(last=False)

    def outdated(self, stored: Stored, asked: float) -> bool:
        """Whether it was changed since it was asked for."""
        at = max(self._cleared, self._changed.get(stored.uri, -1.0))
        if stored.groups:
            at = max(at, self._changed.get(stored.uri[:2], -1.0))
        return asked <= at

    def reserve(self, size: int) -> bool:
        """Make room for so many bytes that are on their way; False = there is none."""
        if self.coming + size > self.limit // 2:
            return False
        self.coming += size
        self._shrink()
        return True

    def release(self, size: int) -> None:
        """They are here, or will not come."""
        self.coming -= size

    def _shrink(self) -> None:
        while self._order and self.used + self.coming > self.limit:
            self.evicted += 1
            self.drop(next(iter(self._order)))

    # -- what several requests cannot share

    def set_alone(self, key: Key, until: float) -> None:
        """Until then nobody need wait for somebody else's answer."""
        self._alone.pop(key, None)
        self._alone[key] = until
        if len(self._alone) > ALONE:
            self._alone.popitem(last=False)

    def alone(self, key: Key, now: float) -> bool:
        """Whether everybody has to ask for themselves."""
        until = self._alone.get(key)
        if until is None:
            return False
        if until > now:
            return True
        del self._alone[key]
        return False

    def not_alone(self, key: Key) -> None:
        """There is an answer to share."""
        self._alone.pop(key, None)
