"""
What an upstream does with a request: chooses an endpoint and asks it, and others where that is safe and of use.

Rules
- Sent again is only what is safe (RFC 9110, 9.2.2), or what the configuration says: L{Trial}.  Asked twice at a time is
  only what it says: L{Race}.
- The usual case, an answer at the first attempt, costs one errback and no object of ours.
- Who watches attempts is told how each went; nobody does, nothing is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from protogate.config import model
from protogate.context import Context
from protogate.errors import Abort
from protogate.exchange.ledger import Ledger
from protogate.message import Request, Response
from protogate.promise import waits
from protogate.upstream.budget import Budget
from protogate.upstream.election import Election
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.hedges import Hedges
from protogate.upstream.judge import Probes
from protogate.upstream.means import Means
from protogate.upstream.outcome import ERROR, NOTHING, Outcome, answered, ended, failed
from protogate.upstream.race import Race
from protogate.upstream.refusal import gone
from protogate.upstream.retries import USUAL, Retries
from protogate.upstream.trial import Trial
from protogate.upstream.watch import Watch
from protogate.wheel import Timer


class Dispatcher:
    """
    @ivar name: of the upstream, for people.
    @ivar retries: when a request is sent again.
    """

    _watch: Watch

    def __init__(self, name: str, means: Means, context: Context, rename: bool) -> None:
        """@param rename: whether an endpoint is asked for by its own name."""
        self.name, self._means, self._context, self._rename = name, means, context, rename
        self._endpoints: dict[tuple[str, int, str], Endpoint] = {}
        self._election = Election(means.random, means.count, means.wheel)
        self._watchers: tuple[Watcher, ...] = ()
        self.retries, self._asked = USUAL, 0
        self._refusable = False  # whether its protocol can say that a request was refused unread
        self._budget = Budget(*_share(model.Retry()), 0, means.wheel.now())
        self._hedges: Hedges | None = None

    def now(self) -> float:
        """Seconds, by the clock for every wait."""
        return self._context.wheel.now()

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """
        See L{IService.handle}.  Notes in the ledger what was asked, and whom.  May set C{request.authority}, and
        C{request.body} to one that can be sent twice.
        """
        guard = self._watch.breakers
        return self._begin(request) if guard is None else guard.handle(request, self._begin)

    def _begin(self, request: Request) -> Response | Deferred[Response]:
        """Whoever guards this upstream lets it through."""
        endpoint = self._election.pick(request)
        if endpoint is None:
            return self._nobody(request)
        self._asked += 1
        self.mark(request, endpoint)
        hedges = self._hedges
        if hedges is not None and hedges.fits(request):
            return Race(self, request, hedges).begin(endpoint, hedges.delay())
        return self.attempt(request, endpoint)

    def attempt(self, request: Request, endpoint: Endpoint) -> Response | Deferred[Response]:
        """Ask this endpoint; then others, as far as that is safe and the configuration says so."""
        retries, body = self.retries, request.body
        if body is None:
            watched = retries.early and request.method in retries.methods
        else:
            watched = retries.keeps(request, body, self._refusable)
        if watched:
            return Trial(self, request).begin(endpoint)
        answer = self.ask(request, endpoint)
        if waits(answer):
            answer.addErrback(self._failed, request, endpoint)
        return answer

    def ask(self, request: Request, endpoint: Endpoint, fresh: bool = False) -> Response | Deferred[Response]:
        """
        One attempt, which those who watch are told of.

        @param fresh: whether it must be on a new connection.
        """
        pool = endpoint.pool
        if not self._watchers:
            return pool.fresh(request) if fresh else pool.handle(request)
        asked = Asked(self, request, endpoint, self._context.wheel.now(), self._watch.began(endpoint))
        answer = pool.fresh(request) if fresh else pool.handle(request)
        if waits(answer):
            return answer.addCallbacks(asked.answered, asked.failed)
        return asked.answered(answer)

    def spend(self) -> bool:
        """Take an attempt from the budget of C{retry}; False when there is none."""
        return self.spend_on(self._budget)

    def spend_on(self, budget: Budget) -> bool:
        """Take an attempt from a budget of this upstream; False when there is none."""
        return budget.take(self._asked, self._context.wheel.now())

    def count(self, event: str) -> None:
        """One more of that event of this upstream."""
        self._means.count(event)

    @property
    def random(self) -> Random:
        """Whatever is left to chance."""
        return self._means.random

    def timer(self, function: Callable[[], object]) -> Timer:
        """L{Wheel.timer}."""
        return self._context.wheel.timer(function)

    def mark(self, request: Request, endpoint: Endpoint) -> None:
        """Note that this endpoint is asked."""
        ledger = request.ledger
        if ledger is None:
            ledger = request.ledger = Ledger(self._context.wheel.now())
        if not ledger.chosen:
            ledger.chosen = self._context.wheel.now()
        ledger.attempts += 1
        ledger.address = endpoint.address
        if self._rename:
            request.host  # noqa: B018 - what the client asked for is worked out before it is gone
            request.authority = endpoint.place.authority

    def other(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The next endpoint that was not tried, and that no breaker keeps from another attempt; or None."""
        endpoint = self._election.other(request, tried)
        while endpoint is not None and not self.may(endpoint):  # where nobody is well, all are chosen from
            tried = [*tried, endpoint]
            endpoint = self._election.other(request, tried)
        return endpoint

    def may(self, endpoint: Endpoint) -> bool:
        """Whether breakers let one more attempt there, on top of those that requests begin with."""
        guard = self._watch.breakers
        return guard is None or guard.again(endpoint)

    def over(self, ledger: Ledger, response: Response | None, reason: Abort | None) -> None:
        """
        An answer is over, whose rest may say more of the endpoint than its head did.

        @param ledger: @param response: @param reason: see L{protogate.upstream.outcome.ended}.
        """
        if not self._watchers or ledger.blamed:
            return
        outcome = ended(ledger, response, reason)
        for endpoint in self._endpoints.values() if outcome is not NOTHING else ():
            if endpoint.address == ledger.address:
                self.ended(endpoint, outcome, 0.0)

    def ended(self, endpoint: Endpoint, outcome: Outcome, seconds: float) -> None:
        """
        Tell who watches how an attempt went.

        @param seconds: from the attempt's begin to the head of the answer.
        """
        for watcher in self._watchers:
            watcher.ended(endpoint, outcome, seconds)

    def _failed(self, failure: Failure, request: Request, endpoint: Endpoint) -> object:
        reason = failure.value
        if isinstance(reason, Abort) and (reason.retry or self.retries.timeout):
            return Trial(self, request).failed(failure, endpoint)
        return failure

    def _nobody(self, request: Request) -> Deferred[Response]:
        """There is no endpoint."""
        return fail(gone(f"upstream {self.name} has no endpoint"))

    # -- what the configuration says of it

    def _prepare(self, config: model.Upstream) -> None:
        """Watch what the choice needs to know; send again, and hedge, as a configuration says."""
        latencies = self._election.latencies
        self._watchers = () if latencies is None else (latencies,)
        if self._watch.settle(config.outliers, config.circuit_breaker):
            self._watchers = (*self._watchers, self._watch)
        self.retries = Retries(config.retry)
        share, floor = _share(config.retry)
        if (self._budget.share, self._budget.floor) != (share, floor):
            self._budget = Budget(share, floor, self._asked, self._context.wheel.now())
        self._hedge(config.hedge)

    def _hedge(self, config: model.Hedge | None) -> None:
        """Hedge as a configuration says; what was learnt counts while that is the same."""
        hedges = self._hedges
        if config is None:
            self._hedges = None
        elif hedges is None or hedges.config != config:
            now = self._context.wheel.now
            self._hedges = Hedges(config, Budget(config.budget / 100.0, float(config.floor), self._asked, now()), now)


@mypyc_attr(native_class=False)
class Watcher(Protocol):
    """Who wants to know how attempts go."""

    def ended(self, endpoint: Endpoint, outcome: Outcome, seconds: float) -> None:
        """
        One is over: its head came, or it failed; and again, when the rest of an answer does not come, or says that it
        was an error.

        @param seconds: from its begin to then.
        """


class Asked:
    """An attempt that is watched."""

    __slots__ = ("_began", "_dispatcher", "_endpoint", "_probes", "_request")

    def __init__(
        self, dispatcher: Dispatcher, request: Request, endpoint: Endpoint, began: float, probes: Probes | None
    ) -> None:
        self._dispatcher, self._request, self._endpoint, self._began = dispatcher, request, endpoint, began
        self._probes = probes

    def answered(self, response: Response) -> Response:
        """A head came."""
        outcome = answered(response)
        if outcome is ERROR and self._request.ledger is not None:
            self._request.ledger.blamed = True
        self._tell(outcome)
        return response

    def failed(self, failure: Failure) -> Failure:
        """It came to nothing."""
        self._tell(failed(failure.value, self._request.ledger))
        return failure

    def _tell(self, outcome: Outcome) -> None:
        dispatcher = self._dispatcher
        dispatcher.ended(self._endpoint, outcome, dispatcher.now() - self._began)
        if self._probes is not None:
            dispatcher._watch.over(self._endpoint, self._probes)


def _share(retry: model.Retry) -> tuple[float, float]:
    return retry.budget / 100.0, float(retry.floor)
