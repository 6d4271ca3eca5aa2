"""
The last good answers, for when there is no better one.

Rules
- Kept and given by the rules of the C{cache} module: only answers to GET; never what is private, what belongs to
  somebody, what sets a cookie, or what must be asked about each time; C{Vary} tells them apart.
- Good is what was answered well.  An answer that says that there is nothing, or not for everybody, takes away what was
  kept; so does a request that changes something.
- Content is kept as it flows to the client, at the client's pace; what breaks off, or is too large, is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from protogate.body import Valve
from protogate.caching import answering
from protogate.caching.asked import Asked, asked, watched
from protogate.caching.changed import Changed
from protogate.caching.content import PIECE, Content
from protogate.caching.freshness import Guess, freshness_of
from protogate.caching.store import Store, Uri
from protogate.caching.stored import Place, Stored
from protogate.caching.storing import Policy, selected, unfit
from protogate.errors import Abort
from protogate.expression.template import Template
from protogate.governance.cache import READ, SAFE, uri_of
from protogate.governance.places import Places
from protogate.interfaces import IBody
from protogate.message import Headers, Response, tunnels

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

GOOD: Final = frozenset((200, 203, 204, 301, 308))
BUSY: Final = frozenset((408, 429))
"""Statuses that are about the moment: they say nothing of what is kept."""
PAUSE: Final = 1.0
"""Seconds in which an answer is not kept anew."""
_ASKED_ABOUT: Final = "not-explicit"
"""Why an answer is not kept that says nothing of caches."""


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What is kept, and how it is found: what was kept under other terms is not taken over.

    @ivar silent: answers that say nothing of caches are kept, too.
    @ivar by: what tells answers apart besides; empty = nothing does.
    """

    policy: Policy
    silent: bool
    by: str


@dataclass(frozen=True, slots=True, eq=False)
class Sought:
    """
    What an answer to one request is kept, and found, by.

    @ivar place: None = nowhere.
    @ivar headers: of the request, as a next one would be compared.
    """

    uri: Uri
    place: Place | None
    said: Asked
    headers: Headers
    began: float
    somebody: bool
    changes: bool


class LastGood:
    """
    @ivar store: what is kept.
    """

    name = "cached"

    def __init__(self, terms: Terms, by: Template | None, memory: int, size: int, age: int) -> None:
        """
        @param size: bytes of content that is kept.
        @param age: seconds past its freshness for which an answer may be given, where the origin does not say.
        """
        self.terms, self.store = terms, Store(memory)
        self._memory, self.size, self._age = memory, size, age
        self._places = Places(by)
        self._names = watched(terms.policy.credentials)

    def succeed(self, before: LastGood) -> None:
        """Take over what was kept, if it was by the same terms."""
        if before.terms == self.terms:
            self.store = before.store
            self.store.resize(self._memory)

    def seek(self, exchange: Exchange) -> Sought:
        """Before the upstream is asked, and the target rewritten."""
        request = exchange.request
        said = asked(request.headers, self._names, False)
        plain = request.body is None and request.upgrade is None and not said.beyond
        place = self._places.of(exchange, said.told) if request.method in READ and plain else None
        somebody = said.somebody or exchange.identity is not None
        changes = request.method not in READ and request.method not in SAFE
        began = exchange.wheel.now()
        return Sought(uri_of(request), place, said, Headers(request.headers), began, somebody, changes)

    def give(self, exchange: Exchange, sought: Sought) -> Response | None:
        """What is kept for it, if it may still be given."""
        if sought.place is None:
            return None
        stored, now = self.store.find(sought.uri, sought.place, sought.headers), exchange.wheel.now()
        if stored is None or not stored.excused(None, self._age, now):
            return None
        # Conditions may be those of a cache of ours: all of it is never wrong.
        said = replace(sought.said, conditions=[])
        return answering.answer(stored, said, exchange.request.method == b"HEAD", now, time.time(), b"")

    def keep(self, exchange: Exchange, sought: Sought, response: Response) -> None:
        """An upstream has answered: keep that, if it may be."""
        now, store = exchange.wheel.now(), self.store
        if sought.changes and not tunnels(exchange.request, response):
            changed = Changed.by(sought.uri, response)
            if changed is not None:
                changed.forget(store, now)
        if sought.place is None or exchange.request.method != b"GET":
            return
        old, status = store.find(sought.uri, sought.place, sought.headers), response.status
        if status not in GOOD:
            if old is not None and 400 <= status < 500 and status not in BUSY:
                store.drop(old)
            return
        if old is not None and old.hold > now:
            return
        somebody = sought.somebody or exchange.identity is not None  # a module behind may have found it out
        made = self._made(exchange, sought, response, now, somebody)
        if made is None:
            if old is not None and not somebody:
                store.drop(old)  # the next one may not be given to everybody
            return
        made.hold = now + PAUSE
        if response.body is None:
            self.put(made, sought.began)
        elif (response.body.length or 0) <= self.size:
            response.body = _Kept(response.body, self, made, sought.began)

    def put(self, made: Stored, began: float) -> None:
        """Keep it, unless it was changed since it was asked for."""
        if not self.store.outdated(made, began):
            self.store.put(made)

    def _made(
        self, exchange: Exchange, sought: Sought, response: Response, now: float, somebody: bool
    ) -> Stored | None:
        policy, wall = self.terms.policy, time.time()
        freshness = freshness_of(response.status, response.headers, policy.targeted, Guess(), wall)
        why = unfit(response, freshness, policy, somebody)
        names = selected(response.headers, sought.headers, exchange.request.headers)
        if (why and not (why == _ASKED_ABOUT and self.terms.silent)) or names is None:
            return None
        fields = [field for field in response.headers if not (policy.strip and field[0] == b"set-cookie")]
        assert sought.place is not None
        made = Stored(sought.uri, sought.place, response.status, fields, *names, None)
        made.stamp(response.headers, freshness, now, wall, 0.0)
        return None if made.strict else made


class _Kept(Valve):
    """The content of an answer that is kept when all of it has come."""

    __slots__ = ("_began", "_last", "_made", "_pieces", "_reserved", "_size")

    def __init__(self, body: IBody, last: LastGood, made: Stored, began: float) -> None:
        super().__init__(body)
        self._last, self._made, self._began = last, made, began
        self._pieces: list[bytes] | None = []
        self._size = self._reserved = 0

    def write(self, data: bytes) -> None:
        super().write(data)
        pieces, last = self._pieces, self._last
        if pieces is None:
            return
        self._size += len(data)
        if self._size > last.size or not last.store.reserve(len(data) + PIECE):
            self._drop()
            return
        self._reserved += len(data) + PIECE
        pieces.append(data)

    def stopProducing(self) -> None:
        self._drop()
        super().stopProducing()

    def finish(self, trailers: Sequence[tuple[bytes, bytes]] | None = None) -> None:
        pieces, made = self._pieces, self._made
        self._drop()
        if pieces is not None:
            content = Content.of([b"".join(pieces)] if pieces else [])
            content.trailers = trailers
            made.content = content
            self._last.put(made, self._began)
        super().finish(trailers)

    def abort(self, reason: Abort) -> None:
        self._drop()
        super().abort(reason)

    def _drop(self) -> None:
        """Keep nothing more of it."""
        self._pieces = None
        self._last.store.release(self._reserved)
        self._reserved = 0
