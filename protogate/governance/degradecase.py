"""
One request that is degraded, or may be: what stands between its exchange and the upstream.

It never holds its exchange, which holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from protogate.errors import ALWAYS, NEVER, UPSTREAM, Abort
from protogate.governance.degradegive import Others, Resent
from protogate.governance.degradekept import Sought
from protogate.message import Response, tunnels
from protogate.promise import waits

if TYPE_CHECKING:
    from protogate.exchange.exchange import Ask, Exchange
    from protogate.governance.degrade import Degrade


class Case:
    """
    @ivar why: the upstream is not to be asked; empty = it is.
    @ivar sought: what a last good answer is found by.
    @ivar resent: what the request is sent again with.
    @ivar retry: whether what failed may have been done.
    @ivar left: another upstream is still to be asked, ...
    @ivar at: ... which comes there in the list.
    @ivar over: something was given, or nothing could be.
    """

    __slots__ = ("_module", "at", "left", "over", "resent", "retry", "sought", "why")

    def __init__(self, module: Degrade, why: str, sought: Sought | None) -> None:
        self._module, self.why, self.sought = module, why, sought
        self.resent: Resent | None = None
        self.retry = ALWAYS
        self.left = self.over = False
        self.at = 0

    def ask(self, exchange: Exchange, ask: Ask) -> Response | Deferred[Response]:
        """Stands between the exchange and its upstream."""
        module = self._module
        if module.others:
            self.resent = Resent(exchange.request)
        if not self.why:
            return self._ask(exchange, ask)
        given: Any = module.give(exchange, self, self.why, Others.ASKED, self.at) if self.left else None
        if given is None:
            return self._usual(None, exchange, ask)  # type: ignore[no-any-return]
        if waits(given):
            given.addCallback(self._usual, exchange, ask)
            return given
        return given  # type: ignore[no-any-return]

    def _usual(self, given: Response | None, exchange: Exchange, ask: Ask) -> Any:
        """Nothing could be given: the upstream is asked after all."""
        if given is not None:
            return given
        self.over = True
        if self.resent is not None and self.resent.body is not None:
            if not self.resent.possible:
                return Failure(Abort("nothing could be given instead", UPSTREAM, 502, NEVER))
            exchange.request.body = self.resent.body
        return self._ask(exchange, ask)

    # -- the upstream

    def _ask(self, exchange: Exchange, ask: Ask) -> Response | Deferred[Response]:
        answer = ask()
        if waits(answer):
            answer.addCallbacks(self._answered, self._failed, callbackArgs=(exchange,), errbackArgs=(exchange,))
            return answer
        return self._answered(answer, exchange)  # type: ignore[no-any-return]

    def _answered(self, response: Response, exchange: Exchange) -> Any:
        module = self._module
        if tunnels(exchange.request, response):
            return response
        why = "" if self.over else module.when.answered(exchange, response)
        if not why:
            if self.resent is not None:
                self.resent.release()
            if module.last is not None and self.sought is not None and response.protocol:
                module.last.keep(exchange, self.sought, response)
            return response
        self.retry = NEVER
        given: Any = module.instead(exchange, self, why)
        if waits(given):
            return given.addCallbacks(self._instead, _dropped, callbackArgs=(response,), errbackArgs=(response,))
        return self._instead(given, response)

    def _instead(self, given: Response | None, response: Response) -> Response:
        """One of both."""
        self._done()
        if given is None:
            return response
        if response.body is not None:
            response.body.stopProducing()
        return given

    def _failed(self, failure: Failure, exchange: Exchange) -> Any:
        reason = failure.value
        why = "" if self.over or exchange.request.gone is not None else self._module.when.failed(reason)
        if not why:
            return failure
        assert isinstance(reason, Abort)
        self.retry = reason.retry if exchange.ledger.connected else ALWAYS  # nobody took it, e.g. a breaker is open
        given: Any = self._module.instead(exchange, self, why)
        if waits(given):
            return given.addCallback(self._or_failure, failure)
        return self._or_failure(given, failure)

    def _or_failure(self, given: Response | None, failure: Failure) -> Response | Failure:
        self._done()
        return failure if given is None else given

    def _done(self) -> None:
        self.over = True
        if self.resent is not None:
            self.resent.release()

    # -- failures elsewhere

    def seen(self, exchange: Exchange) -> Response | None:
        """What is answered: a failure of something else than the upstream can still be helped."""
        response = exchange.response
        if self.over or response is None or response.reason is None:
            return None
        why = self._module.when.failed(response.reason)
        if not why:
            return None
        given: Any = self._module.instead(exchange, self, why, Others.SKIPPED)
        self.over = True
        if given is None:
            return None
        if response.body is not None:
            response.body.stopProducing()
        return given  # type: ignore[no-any-return]


def _dropped(failure: Failure, response: Response) -> Failure:
    """Nobody waits for either of them any more."""
    if response.body is not None:
        response.body.stopProducing()
    return failure
