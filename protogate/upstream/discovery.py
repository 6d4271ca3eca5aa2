"""
The endpoints behind a name, looked up again each time its TTL is over.

Rules
- A and AAAA give one place per address; SRV gives one per record, of the records with the lowest priority only.
- "No such name" takes all places away.  While no server answers, the places stay as they are.
- It owns one timer and one question; stop() ends both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.context import Context
from protogate.errors import ALWAYS, UPSTREAM, Abort, Phase, timeout
from protogate.upstream.endpoint import Place, Source
from protogate.upstream.query import SHORTEST
from protogate.upstream.resolver import Answer, Resolver

AGAIN: Final = 5.0
"""Seconds until a name is asked for again after a failure."""

_log = Logger()


class Discovery:
    """
    @param found: called with the places each time there is an answer.
    @param lost: called with the reason when there was none so far, and none came in the time of C{timeouts.dns}.
    @ivar answered: whether there was ever an answer.
    @ivar reason: why there was none so far, or None while it is still awaited.
    """

    def __init__(
        self,
        source: Source,
        resolver: Resolver,
        context: Context,
        found: Callable[[Sequence[Place]], None],
        lost: Callable[[Abort], None],
    ) -> None:
        self.source, self._resolver, self._context = source, resolver, context
        self._found, self._lost = found, lost
        self.answered = False
        self.reason: Abort | None = None
        self._running = False
        self._asking: Deferred[Answer] | None = None
        self._timer = context.wheel.timer(self._ask)
        self._clock = context.wheel.timer(self._late)

    def start(self) -> None:
        """Begin; harmless when begun."""
        if not self._running:
            self._running = True
            self._ask()

    def stop(self) -> None:
        """Ask no more."""
        self._running = False
        self._timer.close()
        self._clock.close()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def _ask(self) -> None:
        result = self._resolver.look(self.source.host, self.source.port is None)
        if not isinstance(result, Deferred):
            self._answer(result)
            return
        self._asking = result
        limit = self._context.timeouts.dns
        if limit and not self.answered:
            self._clock.set(limit)
        result.addCallbacks(self._answer, self._failed)

    def _answer(self, answer: Answer) -> None:
        self._end()
        if not self._running:
            return
        self.answered, self.reason = True, None
        self._timer.set(max(answer.until - self._context.wheel.now(), SHORTEST))
        self._found(places(self.source, answer))

    def _failed(self, failure: Failure) -> None:
        self._end()
        if not self._running:
            return
        reason = failure.value
        if not isinstance(reason, Abort):
            _log.failure("looking up {name} broke", failure, name=self.source.host)
            reason = Abort(
                f"cannot resolve {self.source.host}: {reason!r}",
                UPSTREAM,
                502,
                ALWAYS,
                error="dns_error",
                phase=Phase.DNS,
            )
        self._timer.set(AGAIN)
        self._fail(reason)

    def _late(self) -> None:
        self._context.count("dns_timeout")
        self._fail(timeout(Phase.DNS, UPSTREAM, self._context.timeouts.dns, ALWAYS))

    def _fail(self, reason: Abort) -> None:
        if not self.answered:
            self.reason = reason
            self._lost(reason)

    def _end(self) -> None:
        self._asking = None
        self._clock.close()


def places(source: Source, answer: Answer) -> tuple[Place, ...]:
    """What an answer means."""
    if source.port is not None:
        authority = source.own(source.host, source.port)
        return tuple(
            Place(address, source.port, authority, tls=source.tls, identity=source.host) for address in answer.values
        )
    best = min((service.priority for service in answer.values), default=0)
    return tuple(
        # RFC 2782: weight 0 means 'hardly ever', not 'never'
        Place(service.host, service.port, source.own(service.host, service.port), service.weight or 1, tls=source.tls)
        for service in answer.values
        if service.priority == best
    )
