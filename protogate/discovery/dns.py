"""
The endpoints behind a name, looked up again each time its TTL is over.

Rules
- A and AAAA give one place per address; SRV gives one per record, of the records with the lowest priority only.
- An old answer that the resolver makes do with (RFC 8767) is used, and is no sign that a name server is there.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config.address import SCHEMES, name_to_resolve
from protogate.errors import Abort
from protogate.interfaces import IDiscovery, IDiscoveryFactory
from protogate.upstream.discovery import Findings
from protogate.upstream.endpoint import Place, own
from protogate.upstream.query import SHORTEST
from protogate.upstream.refusal import unresolved
from protogate.upstream.resolver import Answer
from protogate.wheel import Timer

AGAIN: Final = 5.0
"""Seconds until a name is asked for again after a failure."""

_log = Logger()


@implementer(IDiscovery)
class Names:
    """
    @param host: the name.
    @param port: of the endpoints; None = by SRV records.
    @param scheme: how they are spoken to.
    """

    patience = 0.0

    def __init__(self, host: str, port: int | None, scheme: str) -> None:
        self.asks: dict[str, Any] = {}
        self.host, self.port, self.scheme = host, port, scheme
        self._findings: Findings | None = None
        self._asking: Deferred[Answer] | None = None
        self._timer: Timer | None = None

    def start(self, findings: Findings) -> None:
        """L{IDiscovery}."""
        self._findings = findings
        self._timer = findings.wheel.timer(self._ask)
        self._ask()

    def stop(self) -> None:
        """L{IDiscovery}."""
        self._findings = None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def _ask(self) -> None:
        assert self._findings is not None
        result = self._findings.resolver.look(self.host, self.port is None)
        if isinstance(result, Deferred):
            self._asking = result
            result.addCallbacks(self._answer, self._failed)
        else:
            self._answer(result)

    def _answer(self, answer: Answer) -> None:
        self._asking, findings = None, self._findings
        if findings is None or self._timer is None:
            return
        self._timer.set(max(answer.until - findings.wheel.now(), SHORTEST))
        if not answer.away or not findings.answered:
            findings.found(places(answer, self.host, self.port, self.scheme))
        if answer.away:
            findings.failed("no name server answers")

    def _failed(self, failure: Failure) -> None:
        self._asking, findings = None, self._findings
        if findings is None or self._timer is None:
            return
        reason = failure.value
        if not isinstance(reason, Abort):
            _log.failure("looking up {name} broke", failure, name=self.host)
            reason = unresolved(self.host, repr(reason))
        self._timer.set(AGAIN)
        findings.failed(reason)


def places(answer: Answer, host: str, port: int | None, scheme: str) -> tuple[Place, ...]:
    """What an answer means."""
    means = SCHEMES[scheme]
    if port is not None:
        authority = own(host, port, means.port)
        return tuple(Place(address, port, authority, tls=means.tls, identity=host) for address in answer.values)
    best = min((service.priority for service in answer.values), default=0)
    return tuple(
        # RFC 2782: weight 0 means 'hardly ever', not 'never'
        Place(
            service.host,
            service.port,
            own(service.host, service.port, means.port),
            service.weight or 1,
            tls=means.tls,
        )
        for service in answer.values
        if service.priority == best
    )


@implementer(IDiscoveryFactory)
class NamesFactory:
    """Makes L{Names}."""

    name = "dns"
    options = str

    def build(self, options: str, entry: Any) -> Names:
        """L{IDiscoveryFactory}."""
        return Names(*name_to_resolve(options), entry.scheme)
