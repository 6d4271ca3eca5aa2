"""
A request that may need another attempt.

    what came of the last one                       sent again, when C{retry}             at               budget
    no connection took it                           always                                another          no
    a connection was made, and closed before it     always                                another; or the  no; yes
    could be used                                                                         same
    a connection that had served before was lost    the method is one of C{methods}; once the same, fresh  yes
    it was refused unread                           always                                another, or the  yes
                                                                                          same, fresh
    the connection was lost before the head         C{on} has reset; C{methods}           another, or same yes
    a clock of the upstream ran out                 C{on} has timeout; C{methods}         another, or same yes
    an answer with one of C{statuses}               C{methods}                            another, or same yes
    an answer that says it is not available (RPC)   C{on} has unavailable; C{methods}     another, or same yes

and always only while the body is whole: None, not attached, or kept by a Replay.  There are C{attempts} in all.

Rules
- An endpoint that could not be connected to is not tried a second time: the connector went through all its addresses.
  A request whose queue clock ran out has waited enough and is not queued again.
- Whom a circuit breaker refuses is not asked, be it the one who was asked before; nor is somebody asked behind a pause
  who was found not to be well meanwhile, while there is another one.
- What an upstream that fails every time is sent on top is held to a budget (L{protogate.upstream.budget}).  That nobody
  could be connected to costs nothing of it: nothing was sent.
- A pause comes before each attempt that the budget is asked for; but not where a connection was most likely closed
  while idle, nor for the first time that a request is refused unread: whoever refuses so is mostly about to go.
- What an attempt came to that is not the last stands in the ledger.
- Of an answer that is not passed on the body is stopped.  A client that left, or whose time is over, is never followed:
  cancelling the answer ends pause and attempt alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from protogate.body import Replay
from protogate.errors import ALWAYS, IDEMPOTENT, UPSTREAM, Abort, Phase, timeout
from protogate.interfaces import IBody
from protogate.message import Request, Response
from protogate.promise import waits
from protogate.upstream.outcome import FAILED, said
from protogate.upstream.refusal import TERMINATED, unwell

if TYPE_CHECKING:
    from protogate.upstream.dispatcher import Dispatcher
    from protogate.upstream.endpoint import Endpoint
    from protogate.wheel import Timer

CLOCKS: Final = (Phase.UPSTREAM_STALL, Phase.RESPONSE_HEAD)
"""Those of an upstream that took the request."""


class Trial:
    """One request from its first attempt to its last; made when it is watched from there, or at the first failure."""

    __slots__ = (
        "_attempts",
        "_began",
        "_body",
        "_current",
        "_dispatcher",
        "_endpoint",
        "_failures",
        "_fresh",
        "_overdue",
        "_paid",
        "_pause",
        "_renewed",
        "_replay",
        "_request",
        "_retries",
        "_timer",
        "_tried",
        "_unreached",
    )

    def __init__(self, dispatcher: Dispatcher, request: Request) -> None:
        self._dispatcher, self._request, self._retries = dispatcher, request, dispatcher.retries
        self._tried: list[Endpoint] = []
        self._unreached: list[Endpoint] = []
        self._attempts = 1
        self._failures = 0
        self._began = 0.0
        self._renewed = self._overdue = self._fresh = self._paid = False
        self._body: IBody | None = None
        self._replay: Replay | None = None
        self._endpoint: Endpoint | None = None
        self._current: Deferred[Response] | None = None
        self._pause: Deferred[None] | None = None
        self._timer: Timer | None = None

    def begin(self, endpoint: Endpoint) -> Response | Deferred[Response]:
        """The first attempt, with a body that is kept."""
        body = self._body = self._request.body
        if body is not None:
            self._request.body = self._replay = Replay(body, self._retries.buffer)
        return self._ask(endpoint, False)

    def failed(self, failure: Failure, endpoint: Endpoint) -> Response | Failure | Deferred[Response]:
        """An attempt failed: another one, or the failure."""
        reason, dispatcher = failure.value, self._dispatcher
        self._current = None
        if self._overdue:
            self._overdue = False
            failure = self._cut_off(endpoint)
            reason = failure.value
        self._tried.append(endpoint)
        if not isinstance(reason, Abort) or not self._may(reason):
            return self._final(failure)
        ledger = self._request.ledger
        connected = ledger is not None and ledger.connected != 0.0
        if connected:
            self._paid = False
        if reason.retry is ALWAYS and not connected:
            left = reason.error == TERMINATED
            if not left:
                self._unreached.append(endpoint)
            following = dispatcher.other(self._request, self._tried)
            at_once = following is not None
            if following is None and any(each not in self._unreached for each in self._tried):
                following = self._charged(endpoint, False, not left)  # one that can be reached, although it failed
                at_once = left and self._failures == 1  # a server that restarts: who accepted was about to go
        elif reason.retry is IDEMPOTENT and ledger is not None and ledger.reused and not self._renewed:
            self._renewed = self._fresh = at_once = True
            following = endpoint if self._asks(endpoint) else dispatcher.other(self._request, self._tried)
            if following is not None and not self._afforded():
                following = None
        else:
            following = self._charged(endpoint, True, False)
            at_once = reason.retry is ALWAYS and self._failures == 1
        if following is None:
            return self._final(failure)
        if ledger is not None:
            ledger.given_up(dispatcher.now(), reason.reason)
        return self._again(following) if at_once else self._paused(following)

    def _cut_off(self, endpoint: Endpoint) -> Failure:
        """It took longer than one attempt may."""
        dispatcher, ledger = self._dispatcher, self._request.ledger
        # Who waited until others were over says nothing of the endpoint.
        if (ledger is not None and ledger.connected != 0.0) or endpoint.pool.stats().connecting:
            dispatcher.ended(endpoint, FAILED, dispatcher.now() - self._began)
        return Failure(timeout(Phase.RESPONSE_HEAD, UPSTREAM, self._retries.each))

    def _may(self, reason: Abort) -> bool:
        request, body, retries = self._request, self._request.body, self._retries
        if request.gone is not None or self._attempts >= retries.attempts or reason.phase is Phase.QUEUE:
            return False
        if body is not None and body.attached:
            return False
        return reason.retry is ALWAYS or self._told_to(reason)

    def _told_to(self, reason: Abort) -> bool:
        """Whether it is sent again although the upstream may have seen it."""
        request, retries = self._request, self._retries
        if request.method not in retries.methods or request.upgrade is not None or reason.who is not UPSTREAM:
            return False
        if reason.phase in CLOCKS:
            return retries.timeout
        ledger = request.ledger
        stale = ledger is not None and ledger.reused and not self._renewed
        return reason.retry is IDEMPOTENT and (retries.reset or stale)

    def _charged(self, endpoint: Endpoint, fresh: bool, alone: bool) -> Endpoint | None:
        """
        Who is asked next, if the budget has an attempt left.

        @param endpoint: who was asked last; it is asked again where there is no other.
        @param fresh: whether on a new connection, where it was asked before.
        @param alone: whether it must not be.
        """
        dispatcher = self._dispatcher
        following = dispatcher.other(self._request, self._tried)
        self._fresh = fresh and following is None
        if following is None:  # all were tried: from the beginning, but for whom nobody can connect to
            self._tried = [*self._unreached, endpoint]
            following = dispatcher.other(self._request, self._tried)
        if following is None and not alone and self._asks(endpoint):
            following = endpoint
        if following is None or not self._afforded():
            return None
        self._failures += 1
        return following

    def _asks(self, endpoint: Endpoint) -> bool:
        """Whether one that was asked may be asked again."""
        return not endpoint.pool.draining and self._dispatcher.may(endpoint)

    def _afforded(self) -> bool:
        """Whether the budget has an attempt left; one that nobody could be connected to for has not been spent."""
        if self._paid or self._dispatcher.spend():
            self._paid = True
            return True
        self._dispatcher.count("retry_budget_empty")
        return False

    def _paused(self, endpoint: Endpoint) -> Deferred[Response]:
        """Another attempt, after a pause."""
        self._endpoint = endpoint
        pause: Deferred[None] = Deferred(self._woken)
        self._pause = pause
        self._clock().set(self._retries.pause(self._failures, self._dispatcher.random))
        return pause.addCallbacks(self._resumed, self._left)

    def _clock(self) -> Timer:
        timer = self._timer
        if timer is None:
            timer = self._timer = self._dispatcher.timer(self._late)
        return timer

    def _late(self) -> None:
        """The pause is over, or the time of an attempt."""
        pause, current = self._pause, self._current
        if pause is not None:
            self._pause = None
            pause.callback(None)
        elif current is not None and self._endpoint is not None:
            self._overdue = True
            current.cancel()

    def _woken(self, _: Deferred[None]) -> None:
        self._pause = None

    def _resumed(self, _: None) -> Response | Failure | Deferred[Response]:
        endpoint, dispatcher = self._endpoint, self._dispatcher
        assert endpoint is not None
        if not endpoint.up or not self._asks(endpoint):
            other = dispatcher.other(self._request, self._tried)
            if other is not None:
                endpoint = other
            elif not self._asks(endpoint):
                return self._final(Failure(unwell(endpoint.address)))
        return self._again(endpoint)

    def _left(self, failure: Failure) -> Failure:
        return self._final(failure)

    def _again(self, endpoint: Endpoint) -> Response | Deferred[Response]:
        self._attempts += 1
        ledger = self._request.ledger
        if ledger is not None:
            ledger.again()
        self._dispatcher.count("retry_sent")
        self._dispatcher.mark(self._request, endpoint)
        fresh, self._fresh = self._fresh, False
        return self._ask(endpoint, fresh)

    def _ask(self, endpoint: Endpoint, fresh: bool) -> Response | Deferred[Response]:
        self._endpoint = endpoint
        answer = self._dispatcher.ask(self._request, endpoint, fresh)
        if not waits(answer):
            return self._answered(answer, endpoint)
        each = self._retries.each
        if each and self._request.method in self._retries.methods:
            self._current, self._began = answer, self._dispatcher.now()
            self._clock().set(each)
        answer.addCallbacks(self._answered, self.failed, callbackArgs=(endpoint,), errbackArgs=(endpoint,))
        return answer

    def _answered(self, response: Response, endpoint: Endpoint) -> Response | Deferred[Response]:
        retries = self._retries
        self._current, self._overdue = None, False  # it may have come in the same moment
        self._paid = False
        if self._attempts < retries.attempts and retries.failed(response) and self._whole():
            self._tried.append(endpoint)
            following = self._charged(endpoint, False, not retries.patient(response))
            if following is not None:
                body, response.body = response.body, None
                if body is not None:
                    body.stopProducing()
                ledger = self._request.ledger
                if ledger is not None:
                    ledger.given_up(self._dispatcher.now(), said(response), response.status)
                return self._paused(following)
        self._release()
        return response

    def _whole(self) -> bool:
        request, replay = self._request, self._replay
        if request.method not in self._retries.methods or request.upgrade is not None or request.gone is not None:
            return False
        return request.body is None if replay is None else replay.free

    def _final(self, failure: Failure) -> Failure:
        replay, body = self._replay, self._body
        self._release()
        if replay is not None and body is not None and body.attached:
            replay.stopProducing()  # while it was whole, the connection could only take itself off
        return failure

    def _release(self) -> None:
        """There will be no other attempt."""
        self._current = None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        replay, self._replay = self._replay, None
        body, self._body = self._body, None
        if replay is None or body is None:
            return
        if body.attached:
            replay.release()
        else:
            self._request.body = body  # nobody took it: it stays with the caller
