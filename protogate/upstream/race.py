"""
A request that is asked a second time, of another endpoint, when its answer takes longer than most do (hedging).

Rules
- The head that comes first is the answer; the other attempt is cancelled in the same moment, which its codec tells the
  upstream.  While one is under way, a failure of the other is not passed on; nor is an answer of the second that tells
  of one: without it the client would have waited for the first.
- The second attempt is a single one: it is not sent again.  The first goes its own way (L{protogate.upstream.trial}).
  What C{perTry} says holds for both.
- How long a first attempt took at least that was given up counts among the answers, or each quantile would be of those
  only that were quicker than the one before.
- What interim responses there are come from the first.
- Cancelling the answer cancels both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from protogate.errors import UPSTREAM, Abort, Phase, timeout
from protogate.exchange.ledger import Ledger
from protogate.message import Headers, Request, Response
from protogate.promise import Promise, waits
from protogate.upstream.hedges import Hedges
from protogate.upstream.outcome import FAILED, WELL, answered, said

if TYPE_CHECKING:
    from protogate.upstream.dispatcher import Dispatcher
    from protogate.upstream.endpoint import Endpoint
    from protogate.wheel import Timer


class Race:
    """One request and its two attempts."""

    __slots__ = (
        "_began",
        "_dispatcher",
        "_done",
        "_endpoint",
        "_failure",
        "_first",
        "_hedges",
        "_other",
        "_overdue",
        "_request",
        "_second",
        "_timer",
        "_twin",
    )

    def __init__(self, dispatcher: Dispatcher, request: Request, hedges: Hedges) -> None:
        self._dispatcher, self._request, self._hedges = dispatcher, request, hedges
        self._endpoint: Endpoint | None = None
        self._other: Endpoint | None = None
        self._began, self._overdue = 0.0, False
        self._first: Deferred[Response] | None = None
        self._second: Deferred[Response] | None = None
        self._done: Deferred[Response] | None = None
        self._timer: Timer | None = None
        self._twin: Request | None = None
        self._failure: Failure | None = None

    def begin(self, endpoint: Endpoint, delay: float) -> Response | Deferred[Response]:
        """
        The first attempt.

        @param delay: seconds until the second; 0.0 = there is none.
        """
        self._began = self._dispatcher.now()
        first = self._dispatcher.attempt(self._request, endpoint)
        if not waits(first):
            return first
        self._endpoint, self._first = endpoint, first
        done = Promise(self._cancelled)
        self._done = done
        first.addCallbacks(self._answered, self._failed)
        if delay and not done.called:  # it may have failed at once
            self._timer = self._dispatcher.timer(self._hedge)
            self._timer.set(delay)
        return done

    def _hedge(self) -> None:
        """It takes long; or the second attempt does."""
        dispatcher, request = self._dispatcher, self._request
        if self._twin is not None:
            self._cut_off()
            return
        if self._first is None or request.gone is not None:
            return
        other = self._elsewhere()
        if other is None:
            return
        if not dispatcher.spend_on(self._hedges.budget):
            dispatcher.count("hedge_budget_empty")
            return
        dispatcher.count("hedge_sent")
        if request.ledger is not None:
            request.ledger.attempts += 1  # whatever comes of it
        twin, self._other = _twin(request), other
        self._twin = twin
        dispatcher.mark(twin, other)
        second = dispatcher.ask(twin, other)
        if not waits(second):
            self._answered_too(second)
            return
        self._second = second
        each = dispatcher.retries.each
        if each and self._timer is not None:
            self._timer.set(each)
        second.addCallbacks(self._answered_too, self._failed_too)

    def _elsewhere(self) -> Endpoint | None:
        """Somebody who is not asked already: the first attempt may be at another endpoint than it began with."""
        dispatcher, request, ledger = self._dispatcher, self._request, self._request.ledger
        assert self._endpoint is not None
        asked = [self._endpoint]
        other = dispatcher.other(request, asked)
        if other is not None and ledger is not None and ledger.address == other.address:
            asked.append(other)
            other = dispatcher.other(request, asked)
        return other

    def _cut_off(self) -> None:
        """The second attempt takes longer than one may."""
        second = self._second
        if second is not None:
            self._overdue = True
            second.cancel()

    def _answered(self, response: Response) -> None:
        self._first = None
        if self._done is None:
            _stop(response)  # cancelled, but the answer had been on its way
            return
        if self._second is not None:
            self._beside("the first attempt was quicker")
        if answered(response) is WELL:
            self._hedges.took(self._dispatcher.now() - self._began)
        self._finish(response)

    def _answered_too(self, response: Response) -> None:
        self._second = None
        if self._done is None:
            _stop(response)
        elif self._first is not None and answered(response) is not WELL:
            _stop(response)
            self._beside(said(response), response.status)
        else:
            self._won(response)

    def _won(self, response: Response) -> None:
        """The second attempt was quicker."""
        dispatcher, request, twin, failure = self._dispatcher, self._request, self._twin, self._failure
        assert twin is not None
        dispatcher.count("hedge_won")
        ledger, other = request.ledger, twin.ledger
        if ledger is not None and other is not None:
            ledger.given_up(dispatcher.now(), "the second attempt was quicker" if failure is None else _why(failure))
            ledger.adopt(other)
            if ledger.past is not None:
                ledger.past.hedged = True
        request.authority = twin.authority
        self._outlasted()
        self._finish(response)

    def _failed(self, failure: Failure) -> None:
        self._first = None
        if self._done is None:
            return  # cancelled, or nobody's any more
        if self._second is None:
            self._end(failure)
        else:
            self._failure = failure

    def _failed_too(self, failure: Failure) -> None:
        self._second = None
        dispatcher, other = self._dispatcher, self._other
        if self._overdue and other is not None:
            each = dispatcher.retries.each
            dispatcher.ended(other, FAILED, each)
            failure = Failure(timeout(Phase.RESPONSE_HEAD, UPSTREAM, each))
        if self._done is None:
            return
        self._beside(_why(failure))
        if self._first is None:
            self._end(self._failure or failure)

    def _cancelled(self, _: Deferred[Response]) -> None:
        """The client left."""
        self._done = None
        if self._second is not None:
            self._beside("no answer either")
            self._outlasted()
        self._quit()

    def _beside(self, why: str, status: int = 0) -> None:
        """Note what became of the second attempt."""
        ledger, twin = self._request.ledger, self._twin
        if ledger is not None and twin is not None and twin.ledger is not None:
            ledger.beside(twin.ledger, self._dispatcher.now(), why, status)

    def _outlasted(self) -> None:
        """The first attempt is given up, and would have taken longer."""
        if self._first is not None:
            self._hedges.took(self._dispatcher.now() - self._began)

    def _end(self, failure: Failure) -> None:
        done, self._done = self._done, None
        self._quit()
        if done is not None:
            done.errback(failure)

    def _finish(self, response: Response) -> None:
        done, self._done = self._done, None
        self._quit()
        if done is not None:
            done.callback(response)

    def _quit(self) -> None:
        """Whatever is still under way is of no use."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        first, self._first = self._first, None
        second, self._second = self._second, None
        if first is not None:
            first.cancel()
        if second is not None:
            second.cancel()
        self._failure = None


def _twin(request: Request) -> Request:
    """The same once more; what the second attempt makes of it is its own."""
    twin = request.again(Headers(request.headers))
    twin.key, twin.deadline = request.key, request.deadline
    twin.ledger = Ledger() if request.ledger is None else Ledger(request.ledger.head)
    return twin


def _why(failure: Failure) -> str:
    reason = failure.value
    return reason.reason if isinstance(reason, Abort) else type(reason).__name__


def _stop(response: Response) -> None:
    if response.body is not None:
        response.body.stopProducing()
