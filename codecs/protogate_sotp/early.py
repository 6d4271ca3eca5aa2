"""
Requests of a client that wait for the server's HELLO: it alone says that their heads are not too large.

Rules
- Nothing of them was sent: when the HELLO does not come, they may be sent elsewhere.
- They have the time that an answer has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from protogate.errors import Abort
    from protogate.message import Request, Response


class Held:
    """
    One of them.

    @ivar answer: what its caller waits for.
    @ivar until: when it is no longer waited for.
    """

    __slots__ = ("_forget", "_request", "_under", "answer", "until")

    def __init__(self, request: Request, until: float, forget: Callable[[Held], None]) -> None:
        self._request, self._forget, self.until = request, forget, until
        self._under: Deferred[Response] | None = None
        self.answer: Deferred[Response] = Deferred(self._cancelled)

    def begin(self, handle: Callable[[Request], Deferred[Response]]) -> None:
        """There is a HELLO."""
        self._under = handle(self._request)
        self._under.chainDeferred(self.answer)

    def _cancelled(self, answer: Deferred[Response]) -> None:
        if self._under is None:
            self._forget(self)
        else:
            self._under.cancel()


class Early:
    """All of them on one connection."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Held] = []

    def wait(self, request: Request, until: float) -> Deferred[Response]:
        """One more."""
        held = Held(request, until, self._held.remove)
        self._held.append(held)
        return held.answer

    def begin(self, handle: Callable[[Request], Deferred[Response]]) -> None:
        """There is a HELLO."""
        while self._held:
            self._held.pop(0).begin(handle)

    def end(self, reason: Abort, now: float | None = None) -> None:
        """There will be none; or, for those that have waited until now, it is too late."""
        for held in list(self._held):
            if held in self._held and (now is None or held.until <= now):
                self._held.remove(held)
                held.answer.errback(reason)
