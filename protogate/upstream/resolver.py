"""
Names to addresses, by TTL.

Rules
- Literals and C{localhost} (RFC 6761, 6.3) are answered at once, then what /etc/hosts knows; DNS is asked for the rest.
- One query under way per name, whoever asks.  An answer is kept for its TTL, but not less than a second nor more than
  an hour: a TTL of 0 must not mean one query per connection.
- An answer that grew old is still served while a new one is fetched, and for up to an hour when no server answers
  (RFC 8767); each time counts as C{dns_stale}.  "No such name" is an answer: it ends that.
- Who gave up waiting does not stop the query: its answer serves the next one.
- IPv4 answers do not wait for IPv6 ones for longer than 100 ms (as RFC 8305, 3).
"""

from __future__ import annotations

import os
import re
import socket
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IResolver
from twisted.names import client
from twisted.names.error import DomainError
from twisted.names.hosts import searchFileForAll
from twisted.python.filepath import FilePath

from protogate.context import uncounted
from protogate.errors import Abort
from protogate.observe.events import quietly
from protogate.upstream.query import LONGEST, RETRIES, SHORTEST, Query, in_order
from protogate.upstream.refusal import unresolved
from protogate.wheel import Wheel

HOSTS_TTL: Final = 60.0
"""Seconds after which /etc/hosts is looked at again."""
DOUBT: Final = 5.0
"""Seconds between two queries for a name whose addresses do not answer."""
OVERDUE: Final = float(sum(RETRIES))
"""Seconds after which a question has no answer, whatever becomes of it."""
MOST_NAMES: Final = 10_000
"""Names remembered; then those not needed any more are forgotten."""
NOTHING: Final = "no such name, or it has no address"
_V4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")


def literal(host: str) -> bool:
    """Whether it is an IP address in its text form (IPv6 without brackets, perhaps with a zone), not a name."""
    if ":" not in host:
        return _V4.fullmatch(host) is not None
    address, percent, zone = host.partition("%")
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):  # the latter is for NUL
        return False
    return bool(zone) == bool(percent)


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a name stands for.

    @ivar values: addresses, or L{protogate.upstream.query.Service}s; never empty unless the name surely stands for
        nothing.
    @ivar until: when to ask again, seconds on the wheel's clock.
    @ivar away: no name server has answered the last question, or this one in time: this is an old answer.
    """

    values: tuple[Any, ...]
    until: float
    away: bool = False


class Resolver:
    """
    @param dns: who is asked: L{System} for what /etc/resolv.conf says, or anything that provides IResolver.
    @param count: told C{"dns_query"}, C{"dns_failure"}, C{"dns_stale"}.
    @param hosts: path of a hosts(5) file.
    """

    def __init__(
        self,
        wheel: Wheel,
        dns: IResolver,
        count: Callable[[str], None] = uncounted,
        hosts: str = "/etc/hosts",
    ) -> None:
        self.wheel, self.dns, self.count = wheel, dns, count
        self._hosts = FilePath(os.fsencode(hosts))
        self._names: dict[tuple[str, bool], Name] = {}
        self._closed = False

    def addresses(self, host: str) -> Sequence[str] | Deferred[Sequence[str]]:
        """
        The addresses of a host, IPv4 first; at once where they are known.  The Deferred may be cancelled; it fails with
        an L{Abort} that says 502 C{dns_error}.
        """
        answer = self.look(host)
        if isinstance(answer, Deferred):
            return answer.addCallback(_addresses, host)
        if not answer.values:
            return fail(unresolved(host, NOTHING))
        return answer.values

    def look(self, host: str, services: bool = False) -> Answer | Deferred[Answer]:
        """The same with its TTL, or its SRV records.  No such name gives an empty answer, not a failure."""
        if self._closed:
            return fail(unresolved(host, "the resolver was closed"))
        if not services and literal(host):
            return Answer((host,), self.wheel.now() + LONGEST)
        name = self._name(host, services)
        return name.ask()

    def doubt(self, host: str) -> None:
        """An address of it did not answer: ask again now, unless that was done a moment ago."""
        name = self._names.get((host.lower().rstrip("."), False))
        if name is not None and not self._closed:
            name.doubt()

    def close(self) -> None:
        """Forget everything and ask no more; who waits is told so."""
        self._closed = True
        names, self._names = self._names, {}
        for name in names.values():
            name.close()
        stop = getattr(self.dns, "stop", None)
        if stop is not None:
            stop()

    def local(self, host: str) -> tuple[str, ...]:
        """What is known of it without DNS."""
        found = searchFileForAll(self._hosts, host.encode("ascii", "replace"))
        if not found and (host == "localhost" or host.endswith(".localhost")):
            found = ["127.0.0.1", "::1"]
        return in_order(found)

    def _name(self, host: str, services: bool) -> Name:
        key = (host.lower().rstrip("."), services)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MOST_NAMES:
                self._forget()
            name = self._names[key] = Name(self, *key)
        return name

    def _forget(self) -> None:
        now = self.wheel.now()
        self._names = {key: name for key, name in self._names.items() if name.needed(now)}


class Name:
    """All that is known of one name."""

    __slots__ = ("_answer", "_asked", "_failed", "_host", "_query", "_reason", "_resolver", "_services", "_waiting")

    def __init__(self, resolver: Resolver, host: str, services: bool) -> None:
        self._resolver, self._host, self._services = resolver, host, services
        self._answer: Answer | None = None
        self._reason: Abort | None = None  # of the last failure
        self._failed = 0.0  # until when that is the answer
        self._asked = 0.0
        self._query: Query | None = None
        self._waiting: dict[Deferred[Answer], None] = {}

    def ask(self) -> Answer | Deferred[Answer]:
        """See Resolver.look()."""
        now, answer = self._resolver.wheel.now(), self._answer
        if answer is not None and answer.until > now:
            return answer
        if self._query is None:
            if self._failed > now:
                return self._after(now)
            local = () if self._services else self._resolver.local(self._host)
            if local:
                answer = self._answer = Answer(local, now + HOSTS_TTL)
                return answer
            self._start(now)
            if self._query is None:  # it ended at once
                answer = self._answer
                return answer if answer is not None and answer.until > now else self._after(now)
        if self._usable(now):
            return self._stale(now)
        waiter: Deferred[Answer] = Deferred(self._cancelled)
        self._waiting[waiter] = None
        return waiter

    def doubt(self) -> None:
        """See Resolver.doubt()."""
        now = self._resolver.wheel.now()
        if self._query is None and self._asked + DOUBT <= now:
            self._asked = now  # also where a file answers: it is not read at each failure
            if not self._local():
                self._start(now)

    def needed(self, now: float) -> bool:
        """Whether it would be wrong to forget it."""
        return self._query is not None or (self._answer is not None and self._answer.until > now)

    def close(self) -> None:
        """See Resolver.close()."""
        query, self._query = self._query, None
        if query is not None:
            query.close()
        self._tell(unresolved(self._host, "the resolver was closed"))

    def _usable(self, now: float) -> bool:
        """Whether there is an old answer that may still be served."""
        answer = self._answer
        return answer is not None and bool(answer.values) and answer.until + LONGEST > now

    def _stale(self, now: float) -> Answer:
        assert self._answer is not None
        self._resolver.count("dns_stale")
        away = self._reason is not None or (self._query is not None and self._asked + OVERDUE < now)
        return Answer(self._answer.values, now + SHORTEST, away)

    def _after(self, now: float) -> Answer | Deferred[Answer]:
        """What to say a moment after a failure."""
        if self._usable(now):
            return self._stale(now)
        assert self._reason is not None
        return fail(self._reason)

    def _local(self) -> bool:
        return not self._services and bool(self._resolver.local(self._host))

    def _start(self, now: float) -> None:
        resolver = self._resolver
        self._asked = now
        resolver.count("dns_query")
        query = self._query = Query(resolver.wheel, resolver.dns, self._host, self._services, self._found, self._lost)
        query.start()

    def _found(self, values: tuple[Any, ...], ttl: float) -> None:
        now = self._resolver.wheel.now()
        self._query = self._reason = None
        self._answer = Answer(values, now + min(max(ttl, SHORTEST), LONGEST))
        self._tell(self._answer)

    def _lost(self, error: BaseException) -> None:
        self._query = None
        self._resolver.count("dns_failure")
        self._reason = unresolved(self._host, _words(error))
        self._failed = self._resolver.wheel.now() + SHORTEST
        self._tell(self._reason)

    def _tell(self, result: Answer | Abort) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if waiter.called:  # given up while another one was told
                continue
            if isinstance(result, Abort):
                waiter.errback(result)
            else:
                waiter.callback(result)

    def _cancelled(self, waiter: Deferred[Answer]) -> None:
        self._waiting.pop(waiter, None)


def _addresses(answer: Answer, host: str) -> Sequence[str]:
    if not answer.values:
        raise unresolved(host, NOTHING)
    return answer.values


def _words(error: BaseException) -> str:
    # A DomainError carries the whole message of the server, of which its class says what matters.
    name = type(error).__name__
    return name if isinstance(error, DomainError) else f"{name}: {error}"


class System(client.Resolver):
    """
    The name servers of a resolv.conf(5), asked over UDP, and TCP for what does not fit.  Its search list is not used:
    names are complete.  A query is nothing to tell the log of.
    """

    def __init__(self, reactor: Any, resolv: str = "/etc/resolv.conf", servers: Sequence[tuple[str, int]] = ()) -> None:
        self._parseCall: Any = None
        quietly(super().__init__, None if servers else resolv, list(servers) or None, RETRIES, reactor)

    def stop(self) -> None:
        """No longer watch the file, and close what is open."""
        if self._parseCall is not None and self._parseCall.active():
            self._parseCall.cancel()
        for protocol in list(self.connections):
            protocol.transport.loseConnection()

    def _connectedProtocol(self, interface: str = "") -> Any:
        """Twisted: a port of its own for each query, on which it cannot be guessed."""
        protocol: Any = quietly(super()._connectedProtocol, interface)
        port = protocol.transport
        port.connectionLost = partial(_unheard, port.__class__, weakref.ref(port))
        return protocol


def _unheard(kind: Any, port: weakref.ref[Any], reason: Any = None) -> None:
    """What a port does when it is closed."""
    quietly(kind.connectionLost, port(), reason)
