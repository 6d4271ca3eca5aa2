"""The questions under way for one name, and what their answers mean together."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IResolver
from twisted.names import dns
from twisted.names.error import DNSNameError
from twisted.python.failure import Failure

from protogate.wheel import Timer, Wheel

SHORTEST: Final = 1.0
"""Seconds an answer is kept at least; also how long a failure is remembered."""
LONGEST: Final = 3600.0
"""Seconds an answer is kept at most; also how long an old one may be served when no server answers."""
GRACE: Final = 0.1
"""Seconds that IPv4 addresses wait for IPv6 ones."""
RETRIES: Final = (1, 2, 4)
"""Seconds after which a query is sent again; after the last it has failed."""
MOST_ALIASES: Final = 8
"""Links of a CNAME chain."""


@dataclass(frozen=True, slots=True, order=True)
class Service:
    """One SRV record (RFC 2782)."""

    priority: int
    weight: int
    host: str
    port: int


class Query:
    """The questions under way for one name: A and AAAA side by side, or SRV."""

    __slots__ = (
        "_asking",
        "_dns",
        "_error",
        "_found",
        "_grace",
        "_host",
        "_lost",
        "_nothing",
        "_open",
        "_services",
        "_ttl",
        "_values",
        "_wheel",
    )

    def __init__(
        self,
        wheel: Wheel,
        dns: IResolver,
        host: str,
        services: bool,
        found: Callable[[tuple[Any, ...], float], None],
        lost: Callable[[BaseException], None],
    ) -> None:
        self._wheel, self._dns, self._host, self._services = wheel, dns, host, services
        self._found, self._lost = found, lost
        self._asking: list[Deferred[Any]] = []
        self._open = 0  # questions without an answer
        self._values: list[Any] = []
        self._ttl = self._nothing = LONGEST  # of what there is; of there being nothing
        self._error: BaseException | None = None
        self._grace: Timer | None = None

    def start(self) -> None:
        """Ask; found() or lost() is called, perhaps before this returns."""
        self._open = 1 if self._services else 2
        if self._services:
            self._ask(self._host, dns.SRV, 0)
        else:
            self._ask(self._host, dns.A, 0)
            self._ask(self._host, dns.AAAA, 0)

    def close(self) -> None:
        """Whatever still comes is not wanted."""
        self._open = 0
        if self._grace is not None:
            self._grace.close()
        asking, self._asking = self._asking, []
        for question in asking:
            question.cancel()

    def _ask(self, name: str, kind: int, aliases: int) -> None:
        if not self._open:
            return  # the other question ended it
        resolver: Any = self._dns
        ask = {dns.A: resolver.lookupAddress, dns.AAAA: resolver.lookupIPV6Address, dns.SRV: resolver.lookupService}
        try:
            question: Deferred[Any] = ask[kind](name, RETRIES)
        except Exception:  # a name that cannot be spelled in DNS, or no socket to ask with
            self._failed(Failure())
            return
        self._asking.append(question)
        question.addCallbacks(self._answered, self._failed, (name, kind, aliases))
        question.addErrback(self._failed)  # what is no answer at all

    def _answered(self, result: Any, name: str, kind: int, aliases: int) -> None:
        if not self._open:
            return
        alias, ttl, values = name.lower(), LONGEST, []
        chain = {
            str(record.name).lower(): record for record in result[0] if record.type == dns.CNAME and kind != dns.CNAME
        }
        for _ in range(MOST_ALIASES):
            link = chain.get(alias)
            if link is None:
                break
            alias, ttl = str(link.payload.name).lower(), min(ttl, link.ttl)
        for record in result[0]:
            if record.type == kind and str(record.name).lower() == alias:
                values.append(_value(record.payload, kind))
                ttl = min(ttl, record.ttl)
        if values:
            self._ttl = min(self._ttl, ttl)
            self._values += [value for value in values if value is not None]
        elif alias != name.lower() and aliases < MOST_ALIASES:  # the server left the rest of the chain to us
            self._ttl = min(self._ttl, ttl)
            self._ask(alias, kind, aliases + 1)
            return
        else:
            self._nothing = min(self._nothing, _negative(result[1]))
        self._one(kind)

    def _failed(self, failure: Failure) -> None:
        if not self._open:
            return
        if failure.check(DNSNameError):  # an answer: there is no such name
            self._nothing = SHORTEST
        else:
            self._error = failure.value
        self._one(0)

    def _one(self, kind: int) -> None:
        self._open -= 1
        if not self._open:
            self._end()
        elif kind == dns.A and self._values:
            self._grace = self._wheel.after(GRACE, self._end)

    def _end(self) -> None:
        self.close()
        if self._values or self._error is None:
            values = tuple(sorted(self._values)) if self._services else in_order(self._values)
            self._found(values, self._ttl if values else self._nothing)
        else:
            self._lost(self._error)


def _value(payload: Any, kind: int) -> Any:
    if kind != dns.SRV:
        return payload.dottedQuad() if kind == dns.A else socket.inet_ntop(socket.AF_INET6, payload.address)
    target = str(payload.target).rstrip(".")
    # RFC 2782: a target of "." says that the service is decidedly not there
    return Service(payload.priority, payload.weight, target.lower(), payload.port) if target else None


def _negative(authority: Sequence[Any]) -> float:
    """How long "nothing there" is true (RFC 2308, 5)."""
    times = [min(record.ttl, record.payload.minimum) for record in authority if record.type == dns.SOA]
    return float(min(times, default=SHORTEST))


def in_order(addresses: Sequence[str]) -> tuple[str, ...]:
    """Each once; IPv4 first, otherwise in their order."""
    once = dict.fromkeys(addresses)
    return (*(one for one in once if ":" not in one), *(one for one in once if ":" in one))
