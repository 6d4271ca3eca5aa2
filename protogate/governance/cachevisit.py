"""
One request on its way through the cache to the upstream, and what becomes of the answer.

It never holds its exchange, which holds it: nothing of the two is left to the garbage collector.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from protogate.caching import groups
from protogate.caching.answering import not_modified
from protogate.caching.asked import Asked
from protogate.caching.conditions import CONDITIONS, tag_of, unmodified, validators, weakly
from protogate.caching.content import PIECE, Content, Fill
from protogate.caching.drain import Drain
from protogate.caching.flight import GO, LEAD, LOOK, Flight, Word
from protogate.caching.freshness import freshness_of
from protogate.caching.store import Key, Uri
from protogate.caching.stored import Place, Stored, usable
from protogate.caching.storing import CREDENTIALS, selected, unfit
from protogate.errors import CLIENT
from protogate.governance.degradegive import NOTE as DEGRADED
from protogate.interfaces import IBody
from protogate.message import Headers, Response
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.cache import Cache

FAILURES: Final = frozenset((500, 502, 503, 504))
"""Answers that tell of a failure (RFC 5861, 4)."""
NO_ROOM: Final = "no-room"
"""Why an answer is not kept that might have been at another time."""
ALONE: Final = 60.0
"""Seconds that a URI is remembered to have nothing to share."""
DRAINED: Final = 60.0
"""Seconds that an answer may take that no client reads."""
FEW: Final = 16
"""Pieces of content that stay as they came, however small."""
SMALL: Final = 1024
"""Bytes of a piece that is worth its place."""
BROKEN: Final = 1.0
"""Seconds that an origin is taken to fail when it has."""


class Visit:
    """
    @ivar uri: what it is about.
    @ivar place: what it is about, too.
    @ivar asked: what the request says.
    @ivar key: with whom it may share an answer.
    @ivar stored: what is kept for it, and cannot be used as it is; or None.
    """

    def __init__(
        self, cache: Cache, exchange: Exchange, uri: Uri, place: Place, asked: Asked, stored: Stored | None, why: str
    ) -> None:
        """@param why: C{fwd} of C{Cache-Status}."""
        self.uri, self.place, self.asked, self.stored = uri, place, asked, stored
        self._somebody = asked.somebody or exchange.identity is not None
        self.key: Key = (uri, place, self._somebody)
        self._cache, self._why, self._wheel = cache, why, exchange.wheel
        self._headers = exchange.request.headers
        self._conditions = asked.conditions
        self._began = 0.0
        self._flight: Flight | None = None
        self._asks = False  # the upstream has been sent validators of ours
        self._over = False
        self._filling = False  # those who wait wait for the content

    # -- before the upstream is asked

    def go(self, exchange: Exchange) -> None:
        """Ask: nobody waits for the answer."""
        cache, stored, request = self._cache, self.stored, exchange.request
        self._began = self._wheel.now()
        self._headers = Headers(request.headers)
        if stored is None and cache.store.alone(self.key, self._began):
            self._conditions = []  # the origin answers them: nothing is kept anyway
        elif self._conditions:
            request.headers.without(CONDITIONS)
        if stored is not None:
            ours = validators(stored.headers)
            request.headers.extend(ours)
            self._asks = bool(ours)
        exchange.upon(self.answered)

    def lead(self, exchange: Exchange, flight: Flight) -> None:
        """Ask, for others, too."""
        self._flight = flight
        exchange.after(self._left)
        self.go(exchange)

    def told(self, word: Word, exchange: Exchange, flight: Flight) -> Response | None:
        """It has waited for what somebody else asks."""
        cache, now = self._cache, self._wheel.now()
        if word is LEAD:
            self.lead(exchange, flight)
            return None
        if word is LOOK:
            stored = cache.store.find(self.uri, self.place, exchange.request.headers)
            if stored is not None:
                use = usable(stored, self.asked.wishes, now)
                if use in ("fresh", "stale", "behind") or cache.broken(stored, self.asked, now):
                    cache.count("collapsed")
                    return cache.give(exchange, stored, self.asked, f"fwd={self._why}; collapsed")
                self.stored = stored
        self.go(exchange)
        return None

    def _left(self) -> None:
        """The exchange is over."""
        self._over = True
        if not self._filling:
            self._fail()

    # -- the answer

    def answered(self, exchange: Exchange) -> Response | None:
        """Whatever is to be answered is here."""
        response = exchange.response
        if self._over or response is None:
            return None
        self._over = True
        self._somebody = self._somebody or exchange.identity is not None  # a module behind may have found it out
        stored = self.stored
        if not response.protocol or DEGRADED in (exchange.noted or ()):
            # Not the upstream's: a failure, or what another module says.
            reason = response.reason
            if reason is not None and reason.who is not CLIENT:
                return self._failed(exchange, response)
            self._fail()
            return None
        if response.status == 304 and stored is not None and self._asks:
            return self._good(exchange, response, stored)
        if response.status in FAILURES and stored is not None:
            return self._failed(exchange, response)
        return self._judge(exchange, response)

    def _failed(self, exchange: Exchange, response: Response) -> Response | None:
        """The origin fails."""
        cache, stored, now = self._cache, self.stored, self._wheel.now()
        if stored is not None and stored.excused(self.asked.wishes.stale_if_error, cache.excuse, now):
            stored.broken = now + BROKEN
            if response.body is not None:
                response.body.stopProducing()
            cache.count("stale_served")
            self._land(LOOK)
            said = f"; fwd-status={response.status}" if response.protocol else ""
            return cache.give(exchange, stored, self.asked, f"fwd={self._why}{said}; detail=stale-if-error")
        if response.protocol:
            return self._judge(exchange, response)
        self._fail()
        return None

    def _good(self, exchange: Exchange, response: Response, stored: Stored) -> Response:
        """What is kept is still good (RFC 9111, 4.3.4)."""
        cache = self._cache
        if response.body is not None:
            response.body.stopProducing()
        before, tag = tag_of(stored.headers), tag_of(response.headers)
        why = "changed" if tag and before and weakly(tag) != weakly(before) else ""
        why = why or cache.freshen(stored, response, exchange, self._somebody, self._wheel.now() - self._began)
        if not why:
            cache.count("revalidated")
            self._share(stored)
        elif why != CREDENTIALS:
            cache.store.drop(stored)  # it is about something else, or nothing for others any more: given this once
        self._land(GO if why else LOOK)
        return cache.give(exchange, stored, self.asked, f"fwd={self._why}; fwd-status=304")

    def _judge(self, exchange: Exchange, response: Response) -> Response | None:
        """A new answer: keep it, if that may be."""
        cache = self._cache
        store, policy = cache.store, cache.terms.policy
        wall = time.time()
        freshness = freshness_of(response.status, response.headers, policy.targeted, cache.terms.guess, wall)
        why = unfit(response, freshness, policy, self._somebody)
        names = None if why else selected(response.headers, self._headers, exchange.request.headers)
        if not why and names is None:
            why = "vary"
        length = None if response.body is None else response.body.length
        if not why and length is not None and length > cache.object:
            why = "too-large"
        if not why and length and not store.reserve(length):
            why = NO_ROOM
        if why or names is None:
            self._unkept(exchange, response, why)
            return None
        fields = [field for field in response.headers if not (policy.strip and field[0] == b"set-cookie")]
        content = None if response.body is None else Content(length)
        made = Stored(self.uri, self.place, response.status, fields, *names, content)
        made.groups = groups.groups(response.headers.all(b"cache-groups"))
        now = self._wheel.now()
        made.stamp(response.headers, freshness, now, wall, now - self._began)
        cache.tell(exchange, response, f"fwd={self._why}", f"fwd-status={response.status}", "stored")
        return self._keep(response, made)

    def _unkept(self, exchange: Exchange, response: Response, why: str) -> None:
        cache = self._cache
        if response.status < 500:
            if self.stored is not None and why != CREDENTIALS:
                cache.store.drop(self.stored)  # there is a newer one
            if why != NO_ROOM:
                self._set_alone()
            self._land(GO)
        else:
            self._fail()
        cache.count("not_stored")
        cache.tell(exchange, response, f"fwd={self._why}", f"fwd-status={response.status}", f"detail={why}")

    def _keep(self, response: Response, made: Stored) -> Response | None:
        cache, content, body = self._cache, made.content, response.body
        if content is None or body is None:
            self._stored(made)
            self._land(LOOK)
            return self._conditional(response)
        keeping = Keeping(cache, self, made, content)
        fill = Fill(body, content, keeping.room, keeping.wanted, keeping.ended)
        response.body = copy = content.copy()
        if keeping.early:
            # It is known to fit: whoever wants the same reads along.
            self._stored(made)
            self._land(LOOK)
        self._filling = self._flight is not None
        other = self._conditional(response, copy)
        if other is not None:
            keeping.drain(copy, self._wheel)
        fill.begin()
        return other

    def _conditional(self, response: Response, copy: IBody | None = None) -> Response | None:
        """
        304, for a client that has it already.

        @param copy: the body, where somebody else sees to it.
        """
        headers = response.headers
        if not self._conditions or response.status != 200 or headers.get(b"set-cookie") is not None:
            return None
        if not unmodified(self._conditions, headers, time.time()):
            return None
        if response.body is not None and response.body is not copy:
            response.body.stopProducing()
        return not_modified(headers)

    # -- what is kept

    def _stored(self, made: Stored) -> None:
        store = self._cache.store
        if not store.outdated(made, self._began):
            self._cache.count("stored")
            store.put(made)
            self._share(made)

    def _share(self, stored: Stored) -> None:
        """Whether the next ones may wait for each other."""
        store = self._cache.store
        if stored.lifetime > 0.0 and not stored.control.no_cache:
            store.not_alone(self.key)
        else:
            self._set_alone()

    def _set_alone(self) -> None:
        self._cache.store.set_alone(self.key, self._wheel.now() + ALONE)

    # -- those who wait

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it."""
        return self._flight is not None and len(self._flight) > 0

    def _land(self, word: Word) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            self._cache.landed(self.key, flight)
            flight.land(word)

    def _fail(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None and not flight.fail():
            self._cache.landed(self.key, flight)

    def kept(self, made: Stored, whole: bool, early: bool, passing: bool) -> None:
        """
        The content has come, or will not.

        @param whole: it is here.
        @param early: it was kept as soon as it began.
        @param passing: it was too large.
        """
        store = self._cache.store
        if whole:
            if early:
                store.weigh(made)
            else:
                self._stored(made)
            self._land(LOOK)
            return
        store.drop(made)
        self._cache.count("too_large" if passing else "cut_off")
        if passing:
            self._set_alone()
            self._land(GO)
        else:
            self._fail()


class Keeping:
    """
    The content of an answer on its way into the memory.

    @ivar early: its length is known, so there is room for it.
    """

    def __init__(self, cache: Cache, visit: Visit, made: Stored, content: Content) -> None:
        self._cache, self._visit, self._made, self._content = cache, visit, made, content
        self.early = content.length is not None
        self._reserved = content.length or 0
        self._drain: Drain | None = None

    def room(self, size: int) -> bool:
        """Is there room for one more piece?"""
        store = self._cache.store
        if self.early:
            store.coming += PIECE
            self._reserved += PIECE
            return True
        if self._content.size + size > self._cache.object or not store.reserve(size + PIECE):
            return False
        self._reserved += size + PIECE
        return True

    def wanted(self) -> bool:
        """Whether somebody wants it who does not read it."""
        return self._drain is not None or self._visit.awaited

    def drain(self, copy: IBody, wheel: Wheel) -> None:
        """Read it though the client has it already."""
        self._drain = Drain(copy, wheel, DRAINED, self._drained)
        self._drain.begin()

    def ended(self, whole: bool) -> None:
        """It is here, or will not be."""
        content, made = self._content, self._made
        self._cache.store.release(self._reserved)
        fill, drain = content.fill, self._drain
        pieces = content.pieces
        if whole and len(pieces) > FEW and content.size < len(pieces) * SMALL:
            made.content = Content.of([b"".join(pieces)])  # those who read it already have the other one
            made.content.trailers = content.trailers
        self._visit.kept(made, whole, self.early, fill is not None and fill.passing)
        if drain is not None and not whole:
            drain.stop()

    def _drained(self) -> None:
        self._drain = None
