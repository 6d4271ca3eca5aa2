"""
C{cache}: keeps answers of upstreams in memory, and gives them again, as a shared cache may (RFC 9111).

Rules
- Only answers to GET are kept; they answer GET and HEAD.  Whatever else was done to a URI makes the gateway forget it.
- Only what the upstream itself said is kept: no answer of another module, no failure of the gateway.
- An answer is found by what was asked: scheme, authority, target, route, and what C{by} adds; then by C{Vary}.
- It runs behind everything that decides who may ask: what is kept is given without asking the modules behind it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from protogate.caching import answering
from protogate.caching.asked import ALWAYS, Asked, asked, watched
from protogate.caching.changed import Changed
from protogate.caching.flight import Flight
from protogate.caching.freshness import Guess, freshness_of
from protogate.caching.purging import Purges, named, purges
from protogate.caching.store import Key, Store, Uri
from protogate.caching.stored import Place, Stored, usable
from protogate.caching.storing import Policy, unfit
from protogate.errors import CLIENT, Abort, ConfigError
from protogate.expression.template import Template
from protogate.governance.cacheagain import again
from protogate.governance.cachevisit import DRAINED, Visit
from protogate.governance.degradegive import NOTE as DEGRADED
from protogate.governance.means import Means
from protogate.governance.params import CONNECTION, FRAMING, Params
from protogate.governance.places import Places
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModuleFactory
from protogate.message import Request, Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

READ: Final = frozenset((b"GET", b"HEAD"))
SAFE: Final = frozenset((b"OPTIONS", b"TRACE", b"PROPFIND", b"REPORT", b"SEARCH", b"QUERY", b"CONNECT"))
"""Methods besides GET and HEAD that change nothing (RFC 9110, 9.2.1, and the registry of methods)."""
MEMORY: Final = 64 << 20
OBJECT: Final = 1 << 20
"""Bytes, unless said otherwise."""
CREDENTIALS: Final = ("authorization", "cookie")
TARGETED: Final = ("cdn-cache-control",)
WAIT: Final = 1.0
"""Seconds, unless said otherwise; less than the time that a module has."""
WAITING: Final = 1000
"""Requests that wait for the same answer; further ones ask for themselves."""
UNCACHED: Final = Abort(
    "cache: the client takes only what is kept, and there is no such answer",
    CLIENT,
    504,
    error="http_request_denied",
    detail="there is no stored response",
)
"""What C{only-if-cached} gives (RFC 9111, 5.2.1.7)."""
NEWS: Final = "cache"
"""What caches of other processes follow, see L{protogate.governance.news}."""
_PORTS: Final = {b"http": b":80", b"https": b":443"}


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What is kept, and how it is found: what was kept under other terms is not taken over.

    @ivar obey: what clients say of caching counts.
    @ivar by: what tells answers apart besides; empty = nothing does.
    """

    policy: Policy
    guess: Guess
    obey: bool
    by: str


@implementer(ILiveModule)
class Cache:
    """
    @ivar store: what is kept.
    @ivar flights: what is being asked.
    @ivar terms: see L{Terms}.
    @ivar credentials: fields of requests that say who asks.
    @ivar object: bytes of content that is kept.
    @ivar excuse: seconds that what is stale is used while its origin fails, where that says nothing.
    """

    keeps: ClassVar[bool] = True

    def __init__(
        self,
        terms: Terms,
        by: Template | None,
        memory: int,
        size: int,
        wait: float,
        excuse: int,
        tell: bool,
        purge: Followed[Purges] | None = None,
    ) -> None:
        """
        @param wait: seconds to wait for somebody else's answer; 0 = nobody does.
        @param tell: whether clients are sent C{Cache-Status}.
        @param purge: what an operator has forgotten.
        """
        self.terms, self.object, self.excuse = terms, size, excuse
        self._memory, self._wait, self._tell = memory, wait, tell
        self.waits = wait, ("wait",)
        self._names = watched(terms.policy.credentials)
        self.credentials = ALWAYS | terms.policy.credentials
        self._places = Places(by)
        self.store = Store(memory)
        self.flights: dict[Key, Flight] = {}
        self._means: Means | None = None
        self._purge = purge
        self._purged = Purges() if purge is None or purge.value is None else purge.value
        url = None if purge is None else purge.source.url
        self.asks = {} if url is None else {url.service: ("purge", "url")}

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}."""
        self._means = means
        means.gauge("bytes", lambda: self.store.used)
        means.gauge("answers", lambda: len(self.store))
        same = isinstance(before, Cache) and before.terms == self.terms
        if same:
            self.store, self.flights = before.store, before.flights
            self.store.resize(self._memory)
        if means.news is not None:
            means.news.follow(NEWS, self._heard)
        purge = self._purge
        if purge is not None:
            old = before._purge if same else None
            if old is not None and old.source == purge.source:
                self._purged = before._purged
                if purge.value is not None:
                    self._forget(purge.value)
            purge.start(means, old, self._forget)

    def stop(self) -> None:
        """See L{ILiveModule.stop}.  What is under way goes on."""
        if self._means is not None and self._means.news is not None:
            self._means.news.leave(NEWS, self._heard)
        if self._purge is not None:
            self._purge.stop()

    def _forget(self, lines: Purges) -> None:
        """An operator has something forgotten: whatever stands in the list once more than before."""
        new, self._purged = lines - self._purged, lines
        if new and self._means is not None:
            for _ in range(self.store.forget_all(named(new), self._means.wheel.now())):
                self.count("purged")

    def count(self, event: str) -> None:
        """One more."""
        if self._means is not None:
            self._means.count(event)
            if self.store.evicted:
                for _ in range(self.store.evicted):
                    self._means.count("evicted")
                self.store.evicted = 0

    # -- IModule

    def process(self, exchange: Exchange) -> Response | Deferred[Response | None] | None:
        """Answer, wait for an answer that somebody else asks for, or pass it on."""
        request = exchange.request
        method = request.method
        if method not in READ:
            if method not in SAFE:
                exchange.upon(partial(self._changed, uri_of(request)))
            return None
        if request.body is not None or request.upgrade is not None:
            self._pass(exchange, "bypass")
            return None
        said = asked(request.headers, self._names, self.terms.obey)
        place = self._places.of(exchange, said.told)
        if place is None or said.beyond or said.wishes.no_store:
            self._pass(exchange, "bypass", said)
            return None
        return self._read(exchange, uri_of(request), place, said)

    def rehearse(self, exchange: Exchange) -> None:
        """In the shadow nothing is kept, so nobody need wait for somebody else's answer."""
        exchange.upon(_unheard)

    def _read(
        self, exchange: Exchange, uri: Uri, place: Place, said: Asked
    ) -> Response | Deferred[Response | None] | None:
        request, now = exchange.request, exchange.wheel.now()
        stored = self.store.find(uri, place, request.headers)
        why = "uri-miss"
        if stored is not None:
            why = usable(stored, said.wishes, now)
            if why == "behind":
                self._ask_behind(exchange, stored, said)
            if why in ("fresh", "stale", "behind") or (why == "expired" and self.broken(stored, said, now)):
                self.count("hit" if why == "fresh" else "stale_served")
                return self.give(exchange, stored, said)
            why = "stale" if why == "expired" else why
        elif self.store.holds(uri):
            why = "vary-miss"
        if said.wishes.only_if_cached or request.method == b"HEAD" or said.ranges is not None:
            self._pass(exchange, why if said.ranges is None else "partial", said, stored)
            return None
        return self._ask(exchange, Visit(self, exchange, uri, place, said, stored, why))

    def _ask(self, exchange: Exchange, visit: Visit) -> Deferred[Response | None] | None:
        """Have the upstream asked, once for all who want the same."""
        key = visit.key
        self.count("miss")
        if not self._wait or self.store.alone(key, exchange.wheel.now()):
            visit.go(exchange)
            return None
        flight = self.flights.get(key)
        if flight is None:
            flight = self.flights[key] = Flight()
            visit.lead(exchange, flight)
            return None
        if visit.asked.wishes.no_cache or len(flight) >= WAITING:
            visit.go(exchange)
            return None
        return flight.wait(exchange.wheel, self._wait).addCallback(visit.told, exchange, flight)

    def landed(self, key: Key, flight: Flight) -> None:
        """Nobody waits for it any more."""
        if self.flights.get(key) is flight:
            del self.flights[key]

    def _ask_behind(self, exchange: Exchange, stored: Stored, said: Asked) -> None:
        """Ask in the background whether it is still good: when the client has been answered."""
        now = exchange.wheel.now()
        if stored.hold <= now:
            stored.hold = now + DRAINED
            self.count("asked_behind")
            exchange.wheel.soon(partial(again, self, exchange, stored, said))

    def broken(self, stored: Stored, said: Asked, now: float) -> bool:
        """Whether its origin failed a moment ago, and it may be used instead."""
        return stored.broken > now and stored.excused(said.wishes.stale_if_error, self.excuse, now)

    # -- answers

    def give(self, exchange: Exchange, stored: Stored, said: Asked, how: str = "") -> Response:
        """What is kept, for one client."""
        now = exchange.wheel.now()
        status = b""
        exchange.notes["cache"] = how or "hit"
        if self._tell:
            status = self.status(exchange, how or "hit", f"ttl={int(-stored.stale_for(now))}")
        return answering.answer(stored, said, exchange.request.method == b"HEAD", now, time.time(), status)

    def status(self, exchange: Exchange, *words: str) -> bytes:
        """A member of C{Cache-Status} (RFC 9211)."""
        name = exchange.plan.forwarding.pseudonym
        identifier = name if name[:1].isalpha() else f'"{name}"'  # a token of RFC 9651 begins with a letter
        return "; ".join((identifier, *words)).encode("latin-1")

    def tell(self, exchange: Exchange, response: Response, *words: str) -> None:
        """Let the record and the client know what was done."""
        exchange.notes["cache"] = "; ".join(words)
        if self._tell:
            response.headers.append((b"cache-status", self.status(exchange, *words)))

    def _pass(self, exchange: Exchange, why: str, said: Asked | None = None, stored: Stored | None = None) -> None:
        """It is none of ours."""
        if said is not None and said.wishes.only_if_cached:
            self.count("only_if_cached")
            raise UNCACHED
        self.count("bypassed")
        if stored is not None and said is not None and said.somebody and not stored.control.shared:
            stored = None  # what somebody is told says nothing of it
        exchange.upon(partial(self._passed, why, stored))

    def _passed(self, why: str, stored: Stored | None, exchange: Exchange) -> None:
        response = exchange.response
        if response is None or not response.protocol or DEGRADED in (exchange.noted or ()):
            return
        if stored is not None and exchange.request.method == b"HEAD" and response.status == stored.status:
            self._compare(stored, response, exchange)
        self.tell(exchange, response, f"fwd={why}", f"fwd-status={response.status}")

    def _compare(self, stored: Stored, response: Response, exchange: Exchange) -> None:
        """An answer to HEAD tells whether what is kept is still the same (RFC 9111, 4.3.5)."""
        why = "" if stored.is_same(response.headers) else "changed"
        why = why or self.freshen(stored, response, exchange, somebody=False)
        if why:
            self.store.drop(stored)
            self.count("invalidated")

    def freshen(
        self, stored: Stored, response: Response, exchange: Exchange, somebody: bool, delay: float = 0.0
    ) -> str:
        """
        What is kept has been found to be still good.

        @param response: says so.
        @param somebody: the request says who asked.
        @param delay: seconds since then.
        @return: why it may not be kept with what the response says; then it is as it was.
        """
        terms, wall = self.terms, time.time()
        headers = stored.merged(response.headers)
        freshness = freshness_of(stored.status, headers, terms.policy.targeted, terms.guess, wall)
        why = unfit(Response(stored.status, headers), freshness, terms.policy, somebody)
        if not why:
            stored.dress(headers)
            stored.stamp(response.headers, freshness, exchange.wheel.now(), wall, delay)
            self.store.weigh(stored)
        return why

    def _changed(self, uri: Uri, exchange: Exchange) -> None:
        """Something may have been changed (RFC 9111, 4.4)."""
        response, means = exchange.response, self._means
        changed = None if response is None else Changed.by(uri, response)
        if changed is None:
            return
        for _ in range(changed.forget(self.store, exchange.wheel.now())):
            self.count("invalidated")
        if means is not None and means.news is not None:
            means.news.tell(NEWS, changed.plain())

    def _heard(self, news: Sequence[Any] | None) -> None:
        """Something was changed, by way of another process; None = there is no telling what."""
        means = self._means
        if means is None:
            return
        now = means.wheel.now()
        if news is None:
            gone = self.store.forget_all(lambda stored: True, now)
        else:
            gone = sum(Changed.told(each).forget(self.store, now) for each in news)
        for _ in range(gone):
            self.count("invalidated")


def _unheard(exchange: Exchange) -> None:
    """Of an answer, in the shadow."""


def uri_of(request: Request) -> Uri:
    """What an answer is found by."""
    scheme = request.scheme
    return scheme, request.authority.lower().removesuffix(_PORTS.get(scheme, b":")), request.target


@implementer(IModuleFactory)
class CacheFactory:
    """Makes L{Cache}."""

    name = "cache"
    stages = (PRE_UPSTREAM,)
    guards = False

    def build(self, params: Mapping[str, object]) -> Cache:
        """See L{IModuleFactory.build}."""
        reader = Params(
            params,
            "memory",
            "objectSize",
            "by",
            "wait",
            "targeted",
            "credentials",
            "stripCookies",
            "heuristic",
            "heuristicMax",
            "staleIfError",
            "requestDirectives",
            "cacheStatus",
            "purge",
        )
        memory = reader.size("memory", MEMORY, 64 << 10, 1 << 40)
        size = reader.size("objectSize", min(OBJECT, memory // 4), 1, 1 << 40)
        if size > memory // 4:
            reader.fault("more than a quarter of the memory", "objectSize")
        by = reader.text("by", "")
        if by and isinstance(by, str):
            reader.fault("expected a template such as \"${request.headers['x-tenant']}\"", "by")
        policy = Policy(
            _fields(reader, "targeted", TARGETED),
            frozenset(_fields(reader, "credentials", CREDENTIALS)),
            reader.flag("stripCookies"),
        )
        guess = Guess(
            reader.integer("heuristic", 0, 0, 100) / 100, reader.seconds("heuristicMax", 86_400.0, 1.0, 86_400.0 * 366)
        )
        if "heuristicMax" in reader and "heuristic" not in reader:
            reader.fault("nothing is guessed without heuristic", "heuristicMax")
        wait = reader.seconds("wait", WAIT, 0.0, 60.0)
        excuse = int(reader.seconds("staleIfError", 0.0))
        tell, obey = reader.flag("cacheStatus", True), reader.flag("requestDirectives", True)
        purge = _followed(reader)
        reader.done()
        template = by if isinstance(by, Template) else None
        terms = Terms(policy, guess, obey, "" if template is None else template.text)
        return Cache(terms, template, memory, size, wait, excuse, tell, purge)


def _followed(reader: Params) -> Followed[Purges] | None:
    source = reader.source("purge")
    if source is None:
        return None
    followed = Followed(source, purges)
    try:
        followed.load()
    except ConfigError as error:
        reader.fault(error.message, "purge")
    return followed


def _fields(reader: Params, name: str, otherwise: tuple[str, ...]) -> tuple[bytes, ...]:
    """Names of fields; an empty list is one."""
    if name not in reader:
        return tuple(each.encode("ascii") for each in otherwise)
    given = reader.given(name)
    words = [] if given == [] else reader.words(name)
    fields = tuple(reader.field(word, name) for word in words)
    for word, field in zip(words, fields, strict=True):
        if field in FRAMING or field in CONNECTION:
            reader.fault(f"{word} belongs to the codec: no module sees it", name)
    return fields
