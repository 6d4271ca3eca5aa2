"""
One copy of a request, from the moment when the original is asked to the end of its answer; and all that are under way.

Rules
- The original is asked first: the copy follows at the end of that turn of the event loop.
- Whatever becomes of the copy is counted, once, and is nothing to the original.
- It ends within a time, however its upstream behaves.  A client that leaves does not end it, when all of the request is
  there: slow answers would never be seen.
- It never holds its exchange, which holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Valve
from protogate.errors import Abort
from protogate.governance.copydifference import Said, Terms, differences
from protogate.governance.copytee import LAGS, UNWANTED, Trail
from protogate.governance.means import Means
from protogate.interfaces import IBody, ISink
from protogate.message import Field, Request, Response
from protogate.wheel import Timer

COPIED: Final = "copied"
_EVENTS: Final[tuple[str, ...]] = ("copy_1xx", "copy_2xx", "copy_3xx", "copy_4xx", "copy_5xx")
"""How it was answered: by the first digit of the status."""

Report = Callable[[list[str]], object]
"""Told what differs."""


class Copies:
    """
    Those under way.

    @ivar under: all of them.
    """

    def __init__(self) -> None:
        self.under: set[Copy] = set()

    def stop(self) -> None:
        """Give all of them up."""
        for copy in list(self.under):
            copy.give_up()


class Pair:
    """
    What is known of the two answers.

    @ivar original: None = not yet, or there is none.
    @ivar copy: as C{original}.
    """

    __slots__ = ("_heard", "_report", "copy", "original", "terms")

    def __init__(self, terms: Terms, report: Report) -> None:
        self.terms, self._report = terms, report
        self.original: Said | None = None
        self.copy: Said | None = None
        self._heard = False

    def hear(self, response: Response, over: Callable[[], None]) -> None:
        """
        The original is answered.

        @param over: called when there is no more to be heard; at once where there is no content.
        """
        said = self.original = Said(response, self.terms)
        if response.body is None:
            over()
        else:
            response.body = _Overheard(response.body, said, over)

    def compare(self, means: Means) -> None:
        """Both are over: say what differs, in a while."""
        original, copy = self.original, self.copy
        if original is None or copy is None or not original.whole or not copy.whole:
            means.count("uncompared")
            return
        terms, pool = self.terms, means.reactor.getThreadPool()
        found: Deferred[list[str]] = deferToThreadPool(means.reactor, pool, differences, original, copy, terms)
        found.addCallback(self._compared, means.count)
        found.addErrback(_uncompared, means.count)

    def _compared(self, found: list[str], count: Callable[[str], None]) -> None:
        count("differed" if found else "matched")
        if found:
            self._report(found)


def _uncompared(failure: Failure, count: Callable[[str], None]) -> None:
    count("uncompared")


class _Overheard(Valve):
    """The content of the original's answer, on its way to the client."""

    __slots__ = ("_over", "_said")

    def __init__(self, body: IBody, said: Said, over: Callable[[], None]) -> None:
        super().__init__(body)
        self._said: Said = said
        self._over: Callable[[], None] | None = over

    def write(self, data: bytes) -> None:
        super().write(data)
        self._said.add(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self._said.end(trailers)  # first: the exchange may be over with it
        super().finish(trailers)
        self._end()

    def abort(self, reason: Abort) -> None:
        super().abort(reason)
        self._end()

    def stopProducing(self) -> None:
        super().stopProducing()
        self._end()

    def _end(self) -> None:
        over, self._over = self._over, None
        if over is not None:
            over()


@implementer(ISink)
class Copy:
    """
    @ivar request: what is asked.
    """

    __slots__ = ("_body", "_copies", "_means", "_open", "_original", "_pair", "_pending", "_timer", "_trail", "request")

    def __init__(
        self, request: Request, length: int | None, lag: int, copies: Copies, means: Means, pair: Pair | None
    ) -> None:
        """
        @param length: of its content; less than 0 = it has none.
        @param lag: bytes of content that may be held.
        @param pair: where its answer is compared.
        """
        self.request, self._copies, self._means, self._pair = request, copies, means, pair
        self._trail: Trail | None = None
        if length is None or length >= 0:
            self._trail = Trail(length, lag, self._lost)
            request.body = self._trail.body
        self._open, self._original = True, pair is not None
        self._pending: Deferred[Response] | None = None
        self._body: IBody | None = None
        self._timer: Timer | None = None
        copies.under.add(self)

    @property
    def trail(self) -> Trail | None:
        """Where its content comes from."""
        return self._trail

    def begin(self, service: str, seconds: float) -> None:
        """
        Ask.

        @param service: whom.
        @param seconds: that all of it may take.
        """
        if not self._open:
            return
        self._means.count(COPIED)
        self._timer = self._means.wheel.after(seconds, self._late)
        answer = self._means.service(service).handle(self.request)
        if isinstance(answer, Deferred):
            self._pending = answer
            answer.addCallbacks(self._answered, self._failed)
        else:
            self._answered(answer)

    # -- the original

    def heard(self) -> None:
        """There is no more to be heard of the original's answer.  Harmless when said twice."""
        if self._original:
            self._original = False
            self._settle()

    def bereft(self) -> None:
        """The original's exchange is over."""
        self.heard()
        if self._trail is not None:
            self._trail.lose(UNWANTED)  # unless it is complete

    def hear(self, answer: Response | Deferred[Response]) -> None:
        """What the original is answered, or will be."""
        pair = self._pair
        if pair is None:
            return
        if isinstance(answer, Deferred):
            answer.addCallbacks(self._hear, self._unheard)
        else:
            pair.hear(answer, self.heard)

    def _hear(self, response: Response) -> Response:
        if self._pair is not None and self._original:
            self._pair.hear(response, self.heard)
        return response

    def _unheard(self, failure: Failure) -> Failure:
        self.heard()
        return failure

    # -- its answer

    def _answered(self, response: Response) -> None:
        self._pending, body = None, response.body
        if not self._open:  # given up, but the answer won
            if body is not None:
                body.stopProducing()
            return
        self._means.count(_EVENTS[response.status // 100 - 1])
        if self._pair is not None:
            self._pair.copy = Said(response, self._pair.terms)
        if body is None:
            self._end()
        else:
            self._body = body
            body.attach(self)

    def _failed(self, failure: Failure) -> None:
        self._pending = None
        if self._open:
            self._end("unanswered")

    def write(self, data: bytes) -> None:
        """L{ISink}."""
        if self._pair is not None and self._pair.copy is not None:
            self._pair.copy.add(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """L{ISink}."""
        self._body = None
        if self._pair is not None and self._pair.copy is not None:
            self._pair.copy.end(trailers)
        self._end()

    def abort(self, reason: Abort) -> None:
        """L{ISink}."""
        self._body = None
        self._end("broken_off")

    # -- its end

    def _lost(self) -> None:
        """Its content will never be complete."""
        trail = self._trail
        if self._open:
            self._end("dropped" if trail is not None and trail.broken is LAGS else "cut_off")

    def _late(self) -> None:
        self._end("late")

    def give_up(self) -> None:
        """Nobody wants to know any more."""
        if self._open:
            self._end("given_up")
        self._pair, self._original = None, False
        self._settle()

    def _end(self, event: str = "") -> None:
        """It is over."""
        self._open = False
        if event:
            self._means.count(event)
        timer, self._timer = self._timer, None
        pending, self._pending = self._pending, None
        body, self._body = self._body, None
        trail, self._trail = self._trail, None
        if timer is not None:
            timer.end()
        if pending is not None:
            pending.cancel()
        if body is not None:
            body.stopProducing()
        if trail is not None and not trail.body.attached:
            trail.body.stopProducing()  # nobody took it
        self._settle()

    def _settle(self) -> None:
        """When both are over there is something to compare, and nothing else to do."""
        if self._open or self._original:
            return
        self._copies.under.discard(self)
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.compare(self._means)
