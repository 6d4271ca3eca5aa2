"""
A request that may need another attempt.

    failure says   sent again when                                                            where
    NEVER          never
    IDEMPOTENT     the method is idempotent, the connection had served before (so that it      the same endpoint,
                   was most likely closed while idle), no upgrade was asked; once              a fresh connection
    ALWAYS         another endpoint was not tried yet                                          there
    ALWAYS         there is no other, and a connection had taken the request                   the same, fresh

and always only while the body is whole: None, not attached, or kept by a Replay of at most 64 KiB, which idempotent
methods get.  A request whose queue clock ran out has waited enough and is not queued again.

An endpoint that could not be connected to is not tried a second time: the connector went through all its addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from protogate.body import Replay
from protogate.errors import ALWAYS, Abort, Phase
from protogate.interfaces import IBody
from protogate.message import Request, Response
from protogate.promise import waits

if TYPE_CHECKING:
    from protogate.upstream.cluster import Cluster
    from protogate.upstream.endpoint import Endpoint

MOST_ATTEMPTS: Final = 3
REPLAY: Final = 64 * 1024
"""Bytes of a request body that are kept for another attempt."""
IDEMPOTENT_METHODS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""RFC 9110, 9.2.2; the methods whose bodies are kept."""


def replayable(request: Request, body: IBody) -> bool:
    """Whether it is worth keeping this body for another attempt."""
    return request.upgrade is None and not body.attached and (body.length is None or body.length <= REPLAY)


class Trial:
    """One request from its first attempt to its last; made when there is a body to keep, or at the first failure."""

    __slots__ = ("_attempts", "_body", "_cluster", "_renewed", "_replay", "_request", "_tried")

    def __init__(self, cluster: Cluster, request: Request) -> None:
        self._cluster, self._request = cluster, request
        self._tried: list[Endpoint] = []
        self._attempts = 1
        self._renewed = False
        self._body: IBody | None = None
        self._replay: Replay | None = None

    def begin(self, endpoint: Endpoint) -> Response | Deferred[Response]:
        """The first attempt, with a body that is kept."""
        body = self._body = self._request.body
        assert body is not None
        self._request.body = self._replay = Replay(body, REPLAY)
        return self._ask(endpoint, False)

    def failed(self, failure: Failure, endpoint: Endpoint) -> Response | Failure | Deferred[Response]:
        """An attempt failed: another one, or the failure."""
        self._tried.append(endpoint)
        reason = failure.value
        if not isinstance(reason, Abort) or not self._may(reason):
            return self._final(failure)
        ledger = self._request.ledger
        connected = ledger is not None and ledger.connected != 0.0
        fresh = False
        following: Endpoint | None = None
        if reason.retry is ALWAYS:
            following = self._cluster.other(self._request, self._tried)
            if following is None and connected and not endpoint.pool.draining:
                following, fresh = endpoint, True
        elif ledger is not None and ledger.reused and not self._renewed:
            following = self._cluster.other(self._request, self._tried) if endpoint.pool.draining else endpoint
            fresh = True
        if following is None:
            return self._final(failure)
        self._renewed = self._renewed or fresh
        self._attempts += 1
        if ledger is not None:
            ledger.connected = ledger.sent = ledger.answered = ledger.dns = ledger.connect = ledger.tls = 0.0
            ledger.chosen, ledger.reused = 0.0, False
        self._cluster.mark(self._request, following)
        return self._ask(following, fresh)

    def _may(self, reason: Abort) -> bool:
        request, body = self._request, self._request.body
        if request.gone is not None or self._attempts >= MOST_ATTEMPTS or reason.phase is Phase.QUEUE:
            return False
        if body is not None and body.attached:
            return False
        if reason.retry is ALWAYS:
            return True
        return bool(reason.retry) and request.method in IDEMPOTENT_METHODS and request.upgrade is None

    def _ask(self, endpoint: Endpoint, fresh: bool) -> Response | Deferred[Response]:
        answer = self._cluster.ask(self._request, endpoint, fresh)
        if waits(answer):
            answer.addCallbacks(self._answered, self.failed, errbackArgs=(endpoint,))
            return answer
        return self._answered(answer)

    def _answered(self, response: Response) -> Response:
        self._release()
        return response

    def _final(self, failure: Failure) -> Failure:
        replay, body = self._replay, self._body
        self._release()
        if replay is not None and body is not None and body.attached:
            replay.stopProducing()  # while it was whole, the connection could only take itself off
        return failure

    def _release(self) -> None:
        """There will be no other attempt."""
        replay, self._replay = self._replay, None
        body, self._body = self._body, None
        if replay is None or body is None:
            return
        if body.attached:
            replay.release()
        else:
            self._request.body = body  # nobody took it: it stays with the caller
