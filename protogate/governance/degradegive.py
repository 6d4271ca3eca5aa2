"""
What is given in place of an answer: one of its own, another upstream's.

Rules
- What is given is not for caches, or it would stay when all is well again: but for an own answer that says otherwise.
- Another upstream is asked anew, and sent what the first one was, but for the path, and for conditions and ranges that
  are about what the first one has.  What has a body is sent again only while that is whole; what may have been done
  already only where doing it twice is doing it once.
- An answer of another upstream that tells of a failure of its own is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from protogate.body import Replay
from protogate.caching.conditions import CONDITIONS
from protogate.errors import ALWAYS, Retry
from protogate.exchange.ledger import Ledger
from protogate.expression.template import Template
from protogate.governance.errorpage import Page
from protogate.governance.fields import Fields
from protogate.governance.means import Means
from protogate.governance.respond import EMPTY
from protogate.governance.rewritepath import along
from protogate.interfaces import IBody
from protogate.message import Headers, Request, Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

NOTE: Final = "degraded"
"""Under which a record tells of it."""
IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""Methods with which asking twice is asking once (RFC 9110, 9.2.2)."""
NO_STORE: Final = (b"cache-control", b"no-store")
READS: Final = frozenset((b"GET", b"HEAD"))
FAILURES: Final = 500
"""Status from which on another upstream has failed, too."""
_ABOUT: Final = CONDITIONS | {b"range", b"if-range"}
_FRESH: Final = frozenset((b"cache-control", b"expires", b"pragma", b"cdn-cache-control", b"surrogate-control"))
REPLAY: Final = 64 * 1024
"""Bytes of a request body that are kept for it."""


class Others(Enum):
    """What becomes of other upstreams when something is to be given."""

    ASKED = "asked"
    SKIPPED = "skipped"
    """Nobody can wait."""
    LEFT = "left"
    """They are asked later, and what comes behind them is tried then."""


class Own:
    """
    An answer of its own.

    @param page: its content; None = there is none.
    """

    name = "answer"
    __slots__ = ("_fields", "_page", "_status")

    def __init__(self, status: int, fields: Fields, page: Page | None) -> None:
        self._status, self._fields, self._page = status, fields, page

    def give(self, exchange: Exchange) -> Response:
        """It."""
        response = Response(self._status, self._fields.of(exchange))
        if self._page is not None and self._status not in EMPTY:
            self._page.show(exchange, response)
        if b"cache-control" not in self._fields.names:
            response.headers.append(NO_STORE)
        return response


class Other:
    """
    Another upstream; or the same one, asked something else.

    @ivar upstream: its name.
    """

    name = "upstream"
    __slots__ = ("_path", "upstream")

    def __init__(self, upstream: str, path: str | Template) -> None:
        """@param path: empty = that of the request."""
        self.upstream, self._path = upstream, path

    def ask(self, exchange: Exchange, means: Means, resent: Resent) -> Response | Deferred[Response] | None:
        """
        Ask it.

        @return: None = it cannot be asked.
        """
        first = exchange.request
        if first.upgrade is not None or not resent.possible:
            return None
        target = along(self._path, exchange, first.target)
        if target == first.target and exchange.target is not None and exchange.target.upstream == self.upstream:
            return None  # the very same question
        reads = first.method in READS
        headers = Headers([each for each in first.headers if each[0] not in _ABOUT] if reads else first.headers)
        request = first.again(headers, resent.body)
        request.target = target
        request.authority, request.interim, request.deadline = resent.authority, first.interim, first.deadline
        request.key = exchange.plan.key(exchange, self.upstream)
        request.ledger = resent.ledger = Ledger(exchange.wheel.now())
        return means.service(self.upstream).handle(request)


class Resent:
    """
    What a request is sent again with.

    @ivar authority: as it was before an upstream was asked.
    @ivar body: that is kept; None = there is none, or it is not.
    @ivar ledger: of the other upstream that was asked last.
    """

    __slots__ = ("_lost", "authority", "body", "ledger")

    def __init__(self, request: Request) -> None:
        """Keep the body of a request that is about to be sent, if it is small."""
        self.authority = request.authority
        self.ledger: Ledger | None = None
        self.body: Replay | None = None
        body: IBody | None = request.body
        if body is not None and (body.length is None or body.length <= REPLAY):
            self.body = request.body = Replay(body, REPLAY)
        self._lost = body is not None and self.body is None

    @property
    def possible(self) -> bool:
        """Whether it can be sent right now."""
        return not self._lost and (self.body is None or self.body.free)

    def given(self, ledger: Ledger, now: float, why: str) -> None:
        """
        The other upstream's answer counts, not that of the first.

        @param ledger: of the exchange, is to tell of it.
        """
        other = self.ledger
        if other is not None:
            if ledger.address:
                ledger.given_up(now, why)
            ledger.adopt(other)
            ledger.attempts += other.attempts

    def release(self) -> None:
        """It will not be sent again."""
        if self.body is not None:
            self.body.release()


def uncached(headers: Headers) -> None:
    """Let no cache keep it."""
    headers.without(_FRESH)
    headers.append(NO_STORE)


def twice(method: bytes, retry: Retry) -> bool:
    """Whether a request may be sent to somebody else, too."""
    return retry is ALWAYS or method in IDEMPOTENT


KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "cached": ("memory", "objectSize", "maxAge", "by", "silent", "credentials", "stripCookies"),
    "answer": ("status", "headers", "html", "json", "text"),
}
"""Kinds of what is given besides another upstream, and their parameters."""
