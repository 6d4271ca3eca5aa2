"""Requests that came before it was known which endpoints there are."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from protogate.errors import Abort
from protogate.message import Request, Response
from protogate.promise import waits

Answer = Response | Deferred[Response]


class Hopes:
    """
    @param ask: asks an endpoint, if there is one.
    """

    def __init__(self, ask: Callable[[Request], Answer]) -> None:
        self._ask = ask
        self._hoping: dict[Deferred[None], None] = {}

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._hoping)

    def enter(self, request: Request) -> Deferred[Response]:
        """One more waits: until it is known, or it is given up."""
        hope: Deferred[None] = Deferred(self._gave_up)
        self._hoping[hope] = None
        return hope.addCallback(self.ask, request)

    def ask(self, _: None, request: Request) -> Deferred[Response]:
        """It is known: ask one."""
        answer = self._ask(request)
        if waits(answer):
            return answer
        done: Deferred[Response] = Deferred()
        done.callback(answer)
        return done

    def know(self) -> None:
        """There are endpoints, or it is known that there are none: whoever waits goes on."""
        hoping, self._hoping = self._hoping, {}
        for hope in hoping:
            if not hope.called:  # one may be cancelled while another is served
                hope.callback(None)

    def end(self, reason: Abort) -> None:
        """It will not be known: whoever waits is told why."""
        hoping, self._hoping = self._hoping, {}
        for hope in hoping:
            if not hope.called:
                hope.errback(reason)

    def _gave_up(self, hope: Deferred[None]) -> None:
        self._hoping.pop(hope, None)
