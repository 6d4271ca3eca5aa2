"""
The connections to one endpoint, as one IService.

Rules
- There is no lease: a request is given to a connection in the very call in which that connection was found to have
  capacity, so there is nothing to return and nothing to leak.  The pool counts nothing a connection could tell it.
- Connecting belongs to the pool, not to the request that caused it: a cancelled request leaves the queue, and the
  connection serves the next one.
- Who finds no connection waits (L{protogate.upstream.waiting}).  The connection used last is used next, so that those
  not needed grow old and are closed.
- One attempt until a connection has shown what it can carry, then as many as the queue needs.
- Who must have a fresh connection shares it with others who must, as far as it carries them: one that closes under many
  requests, or refuses them, is not followed by as many.
- A failed attempt fails one waiting request, or all when nothing else is up or coming.
- With C{announce} a connection belongs to who is told at its start: it is made for one request, and used again only for
  those of the same client.  Nobody waits for another one's connection; who finds no room has the longest idle closed.
- One timer for who waits, one for idle connections; neither is on the wheel after the pool has drained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from protogate.config.model import PoolSettings
from protogate.context import Context
from protogate.errors import ALWAYS, GATEWAY, Abort, Phase
from protogate.interfaces import IClientConnection, IService
from protogate.message import Peer, Request, Response
from protogate.upstream.link import Gate, Link, note, tell
from protogate.upstream.refusal import full, gone
from protogate.upstream.waiting import Waiting, refuse

_log = Logger()


@mypyc_attr(native_class=False)
class Times(Protocol):
    """Where an attempt notes how long its phases took (seconds, 0.0 = did not happen), and what it is to send first."""

    dns: float
    connect: float
    tls: float
    preface: bytes


@mypyc_attr(native_class=False)
class Connect(Protocol):
    """What a pool needs of a connector (L{protogate.upstream.connector.Connector})."""

    def connect(self, ready: Callable[[IClientConnection], None], times: Times) -> Deferred[None]:
        """
        Start one attempt.  Either C{ready(connection)} is called, from then on each time capacity rises from 0, or
        the Deferred fails with an L{Abort}: never both, and one of them always.  Cancelling it gives the attempt up.
        """


@dataclass(frozen=True, slots=True)
class Stats:
    """
    A look at a pool.

    @ivar open: connections.
    @ivar idle: those of them without a request.
    @ivar waiting: requests without a connection.
    @ivar connecting: attempts under way.
    """

    open: int
    idle: int
    waiting: int
    connecting: int


class Pool:
    """
    @param connector: makes connections.
    @param context: clocks; C{timeouts.queue} is read for each request that waits.
    @param name: of the endpoint, for people, e.g. C{10.0.0.11:8080}.
    @param announce: what a connection for that client begins with, before anything of a protocol; None = with nothing.
    @ivar settings: limits now in force; may be replaced at any time.
    """

    def __init__(
        self,
        connector: Connect,
        context: Context,
        settings: PoolSettings | None = None,
        name: str = "the endpoint",
        announce: Callable[[Peer], bytes] | None = None,
    ) -> None:
        self._announce = announce
        self._connector, self._context, self._wheel, self.name = connector, context, context.wheel, name
        self.settings = PoolSettings() if settings is None else settings
        self._links: dict[Link, None] = {}
        self._free: dict[Link, None] = {}  # had capacity when last seen; the one idle longest first
        self._attempts: dict[Link, Deferred[None] | None] = {}
        self._own = 0  # attempts of them that are made for one request first of all
        self._waiting = Waiting(self, context)
        self._of: dict[bytes, dict[Link, None]] = {}  # those with a preface, by that
        self._room = 0  # connections that are being closed for those
        self._each = 0  # capacity of the newest connection; 0 = not known
        self._several = False  # whether a connection has carried more than one request at a time
        self._draining = False
        self._drained: list[Deferred[None]] = []
        self._reaper = self._wheel.timer(self._reap)

    @property
    def draining(self) -> bool:
        """Whether it takes no new requests."""
        return self._draining

    @property
    def load(self) -> int:
        """Requests that were given to it and are not over: under way or waiting."""
        links, queue = self._links, self._waiting
        waiting = len(queue.usual) + len(queue.fresh) + self._own
        if not self._several:  # who carries one at a time is busy, or was put aside
            return len(links) - len(self._free) + waiting
        for link in links:
            connection = link.connection
            if connection is not None:
                waiting += connection.busy
        return waiting

    @property
    def full(self) -> bool:
        """Whether one more request would wait until others are over."""
        return not self._free and len(self._links) + len(self._attempts) >= self.settings.max_per_endpoint

    def stats(self) -> Stats:
        """How things are right now."""
        idle = sum(1 for link in self._links if link.connection is not None and not link.connection.busy)
        own = sum(1 for link in self._attempts if link.gate is not None)
        return Stats(len(self._links), idle, self._waiting.number + own, len(self._attempts))

    # -- requests

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """See L{IService.handle}.  Fails with 503 when it drains, its queue is full, or waiting took too long."""
        if self._announce is not None:
            return self._handle_of(request, self._announce(request.peer))
        free = self._free
        while free:
            link = free.popitem()[0]
            connection = link.connection
            if connection is not None and connection.capacity > 0:
                return self._give(link, request)
            # busy, draining or dead: it says so itself when that changes
        return self._enter(request, False, b"")

    def fresh(self, request: Request) -> Response | Deferred[Response]:
        """Like handle(), on a connection that is not made yet: for one that an old connection lost."""
        return self._enter(request, True, b"" if self._announce is None else self._announce(request.peer))

    def _handle_of(self, request: Request, preface: bytes) -> Response | Deferred[Response]:
        """On a connection of that client's."""
        for link in self._of.get(preface, ()):
            connection = link.connection
            if link in self._free and connection is not None and connection.capacity > 0:
                del self._free[link]
                return self._give(link, request)
        return self._enter(request, True, preface)

    def _enter(self, request: Request, fresh: bool, preface: bytes) -> Deferred[Response]:
        if self._draining:
            return fail(gone(f"{self.name} takes no new requests"))
        if self._waiting.number >= self.settings.queue:
            self._context.count("queue_full")
            return fail(full(self.name, self.settings.queue))
        answer: Deferred[Response] = self._waiting.enter(request, fresh, preface).addCallback(self._give, request)
        if len(self._waiting.fresh) > self._carried(self._room):
            self._evict()
        self._grow()
        return answer

    def _give(self, link: Link, request: Request) -> Response | Deferred[Response]:
        """Hand over, here and now."""
        connection = link.connection
        assert connection is not None
        ledger, uses, now = request.ledger, link.uses, self._wheel.now()
        if ledger is not None:
            ledger.connected = now
            ledger.reused = uses > 0
        link.uses = uses = uses + 1
        if self._context.deadline:
            tell(request, self._context.deadline, now)
        try:
            answer = connection.handle(request)
        except Exception:  # it must not, and nobody knows what state it is in: nothing may leak
            connection.abort()
            raise
        if uses == self.settings.max_reuse:
            connection.drain()
        elif connection.capacity > 0:
            self._several = True
            self._rest(link, now)
        return answer

    def _pass(self, gate: Gate, link: Link) -> None:
        if not link.uses and gate.request.ledger is not None:
            note(gate.request, link)
        gate.callback(link)

    def _cancelled(self, gate: Deferred[Link]) -> None:
        assert isinstance(gate, Gate)
        if gate.link is not None:  # the attempt goes on, for whoever comes next
            gate.link.gate = None
            gate.link = None
            self._own -= 1
        self._waiting.leave(gate)
        self.settle()

    # -- connections

    def _grow(self) -> None:
        """As many attempts as the queue needs; but one only until a connection has shown what it can carry."""
        usual, fresh = self._waiting.usual, self._waiting.fresh
        while len(self._links) + len(self._attempts) < self.settings.max_per_endpoint:
            shared = len(self._attempts) - self._own
            if len(fresh) > self._carried():
                self._attempt(fresh.popitem(last=False)[0])
            elif usual and (not shared or (self._each and len(usual) > shared * self._each)):
                self._attempt(None)
            else:
                break

    def _carried(self, room: int = 0) -> int:
        """How many of those who wait for a fresh connection need none more: of the attempts, and of so much room."""
        each = self._each if self._each and self._announce is None else 1
        return self._own * (each - 1) + room * each

    def spared(self) -> tuple[int, int]:
        """For how many of those who wait connections are being made: of who wants a fresh one, and of the others."""
        return self._carried(), (len(self._attempts) - self._own) * max(self._each, 1)

    def _attempt(self, gate: Gate | None) -> None:
        link = Link(self, gate)
        if gate is not None:
            gate.link = link
            self._own += 1
        self._attempts[link] = None
        attempt = self._connector.connect(link.ready, link)
        if link in self._attempts:  # neither ready nor given up while connect() ran
            self._attempts[link] = attempt
        elif link.connection is None:
            attempt.cancel()
        attempt.addErrback(self._failed, link)

    def _joined(self, link: Link, connection: IClientConnection) -> None:
        """The first ready() of an attempt."""
        if self._attempts.pop(link, link) is link:  # given up before; connectors do not let this happen
            connection.abort()
            return
        self._links[link] = None
        if link.preface:
            self._of.setdefault(link.preface, {})[link] = None
        self._each = connection.capacity
        connection.closed.addCallback(self._closed, link)
        gate, link.gate = link.gate, None
        if gate is not None:
            gate.link = None
            self._own -= 1
            self._pass(gate, link)
        fresh = self._waiting.fresh
        while fresh and self._announce is None and connection.capacity > 0:
            self._pass(fresh.popitem(last=False)[0], link)
        self._ready(link, connection)
        if self._waiting.overdue:
            self._waiting.look()
        self._grow()

    def _ready(self, link: Link, connection: IClientConnection) -> None:
        waiting = self._waiting
        usual, newest = waiting.usual, waiting.standing.on
        while usual and connection.capacity > 0:
            self._pass(usual.popitem(last=newest)[0], link)
        if connection.capacity > 0:
            if len(waiting.fresh) > self._carried(self._room):
                self._replace(link, connection)
            elif self._draining:
                connection.drain()
            else:
                self._rest(link, self._wheel.now())
        if waiting.clock.active:
            waiting.settle()
        if self._draining:
            self.settle()

    def _rest(self, link: Link, now: float) -> None:
        link.since = now
        self._free[link] = None
        if not self._reaper.active and self.settings.idle:
            self._reaper.set(self.settings.idle)

    def _closed(self, result: None, link: Link) -> None:
        self._links.pop(link, None)
        self._free.pop(link, None)
        if link.preface:
            its = self._of[link.preface]
            del its[link]
            if not its:
                del self._of[link.preface]
        link.connection = None  # no cycle is left
        if link.replaced:
            self._room -= 1
        self._grow()
        self.settle()
        return result

    def _failed(self, failure: Failure, link: Link) -> None:
        """One attempt failed: it takes one request with it, or all when there is no other hope."""
        if self._attempts.pop(link, link) is link:
            return  # given up by us
        reason = failure.value
        if not isinstance(reason, Abort):
            _log.failure("an attempt to connect to {name} broke", failure, name=self.name)
            reason = Abort(
                f"{self.name}: {reason!r}", GATEWAY, 502, ALWAYS, error="proxy_internal_error", phase=Phase.CONNECT
            )
        if not self._links:
            self._each = 0
        waiting = self._waiting
        gate, link.gate = link.gate, None
        if gate is not None:
            gate.link = None
            self._own -= 1
            refuse((gate,), reason, link)
        elif self._links or len(self._attempts) > self._own:
            if waiting.usual:
                refuse((waiting.usual.popitem(last=False)[0],), reason, link)
        else:
            refused = tuple(waiting.usual)
            waiting.usual.clear()
            refuse(refused, reason, link)
        if waiting.overdue:
            waiting.look()
        waiting.settle()
        self._grow()
        self.settle()

    def _reap(self) -> None:
        """Close what was idle for too long."""
        now, idle, free = self._wheel.now(), self.settings.idle, self._free
        while free and idle:
            link = next(iter(free))
            if link.since + idle > now:
                self._reaper.set(link.since + idle - now)
                return
            del free[link]
            connection = link.connection
            if connection is None:
                continue
            if connection.busy:  # several at a time: nobody says when the last one ends
                link.since, free[link] = now, None
            else:
                connection.drain()

    def _evict(self) -> None:
        """Make room for a new connection, at the cost of the one that is idle longest, or of one with room to spare."""
        if len(self._links) + len(self._attempts) < self.settings.max_per_endpoint:
            return
        chosen: Link | None = None
        for link in self._free:
            if link.connection is not None and (chosen is None or not link.connection.busy):
                chosen = link
                if not link.connection.busy:
                    break
        if chosen is not None and chosen.connection is not None:
            self._replace(chosen, chosen.connection)

    def _replace(self, link: Link, connection: IClientConnection) -> None:
        """Close it as soon as it is idle: a request that must have a new connection needs its place."""
        self._free.pop(link, None)
        link.replaced = True
        self._room += 1
        connection.drain()

    # -- the end

    def shed(self, reason: Abort) -> None:
        """
        Who waits for a connection is told this instead.  Attempts that are under way go on, for whoever comes next.
        """
        refused = (*self._waiting.clear(), *filter(None, [link.gate for link in self._attempts]))
        for link in self._attempts:
            if link.gate is not None:
                link.gate.link = None
                link.gate = None
        self._own = 0
        refuse(refused, reason)

    def drain(self, reason: Abort | None = None) -> Deferred[None]:
        """
        Take no new request; close idle connections now and the others when their requests have ended.

        @param reason: what waiting requests are told.  Without one they are still served.
        @return: fires when everything is released.  Cancelling it changes nothing.
        """
        self._draining = True
        if reason is not None:
            self.shed(reason)
        for link in list(self._free):
            if link.connection is not None and not link.connection.busy:
                self._free.pop(link, None)
                link.connection.drain()
        drained: Deferred[None] = Deferred(ignore_cancel)
        self._drained.append(drained)
        self.settle()
        return drained

    def abort(self) -> None:
        """Drop everything now: what the end of a drain's patience leads to."""
        self.drain(gone(f"{self.name} was closed"))
        for link in list(self._links):
            if link.connection is not None:
                link.connection.abort()

    def settle(self) -> None:
        """While draining: let go of what nobody needs any more, and say so when nothing is left."""
        if not self._draining or self._waiting.number or self._own:
            return
        self._free.clear()
        attempts, self._attempts = self._attempts, {}
        for attempt in attempts.values():
            if attempt is not None:
                attempt.cancel()
        for link in list(self._links):
            if link.connection is not None:
                link.connection.drain()
        if not self._links:
            self._waiting.clock.end()
            self._reaper.end()
            drained, self._drained = self._drained, []
            for each in drained:
                if not each.called:
                    each.callback(None)


classImplements(Pool, IService)


def ignore_cancel(deferred: Deferred[None]) -> None:
    """Who waited is told at once; what was waited for goes on."""
    deferred.callback(None)
