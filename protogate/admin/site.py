"""
The pages for operators, in HTTP: /livez, /readyz, /metrics, /endpoints, /releases.

Rules
- Only for reading: GET and HEAD; nothing a peer sends changes anything.
- What a peer controls is bounded: connections, the size of a head and of a body that nobody wants, and how long all of
  it may take, reading the answer included.  Each connection has one request.
- An answer that has to be asked for elsewhere is waited for, not longer than L{PATIENCE}, and no longer than the peer.
- It knows nothing of what it shows: L{Watched} does.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from protogate.admin.endpoints import page
from protogate.admin.metrics import exposition
from protogate.observe.events import Limited
from protogate.observe.snapshot import Snapshot

CONNECTIONS: Final = 64
"""One more is closed at once."""
LIFE: Final = 15.0
"""Seconds from accept to the last byte of the answer."""
PATIENCE: Final = 5.0
"""Seconds in which workers must have told how they are."""
HEAD: Final = 8 * 1024
"""Bytes of a request's head."""
BODY: Final = 16 * 1024
"""Bytes of a body, all of which are thrown away."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_log = Logger()
_tell = Limited(_log.failure)


class Watched(Protocol):
    """What is shown: one process, or a supervisor that answers for its workers."""

    def unready(self) -> str | Deferred[str]:
        """
        Why no new traffic should be sent here, one line for people; empty = it may be.

        May fail, and may be cancelled: then it is not ready.
        """

    def snapshot(self) -> Snapshot | Deferred[Snapshot]:
        """What was counted so far.  May fail, and may be cancelled: then there is none."""

    def endpoints(self) -> dict[str, Any] | Deferred[dict[str, Any]]:
        """What is left to endpoints, see L{protogate.admin.endpoints}.  May fail, and may be cancelled."""

    def releases(self) -> dict[str, Any] | Deferred[dict[str, Any]]:
        """Which targets are judged, and why one is taken back.  May fail, and may be cancelled."""


class Site(http.HTTPFactory):
    """
    @param watched: what is shown.
    @param reactor: whose clock counts, and whose threads put metrics into words.
    @ivar open: connections right now.
    """

    noisy = False

    def __init__(self, watched: Watched, reactor: Any) -> None:
        super().__init__(reactor=reactor)
        self.timeOut = None  # each connection has one end, whatever it does meanwhile
        self.watched, self.threads = watched, reactor
        self.open: set[Channel] = set()

    # Without the access log of Twisted, and without the clock that it keeps for it.

    def startFactory(self) -> None:
        """Twisted."""

    def stopFactory(self) -> None:
        """Twisted."""

    def log(self, request: http.Request) -> None:
        """Twisted."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Twisted: None closes the connection."""
        return super().buildProtocol(addr) if len(self.open) < CONNECTIONS else None

    def abort(self) -> None:
        """Drop every connection."""
        for channel in list(self.open):
            transport: Any = channel.transport
            transport.abortConnection()


class Question(http.Request):
    """One request.  What it sends beside its line and its fields is read, as far as it must be, and forgotten."""

    channel: Any
    _asked: Deferred[Any] | None = None
    _late: IDelayedCall | None = None
    _unwanted = 0

    def parseCookies(self) -> None:
        """Twisted: there are none."""

    def gotLength(self, length: int | None) -> None:
        """Twisted."""
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted."""
        self._unwanted += len(data)
        if self._unwanted > BODY:
            self.channel.transport.abortConnection()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Twisted."""
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.process()

    def process(self) -> None:
        """Answer."""
        found = PAGES.get(self.path)
        if found is None:
            self.answer(404, "there are " + ", ".join(sorted(each.decode() for each in PAGES)))
        elif self.method not in (b"GET", b"HEAD"):
            self.responseHeaders.setRawHeaders(b"allow", [b"GET, HEAD"])
            self.answer(405, "only GET and HEAD")
        else:
            found(self)

    # -- pages

    def live(self) -> None:
        """The event loop turns: otherwise nobody could say so."""
        self.answer(200, "alive")

    def ready(self) -> None:
        """Whether to send traffic."""
        self._ask(self.channel.factory.watched.unready, self._told, 503, "not ready: the workers do not tell")

    def metrics(self) -> None:
        """All that was counted."""
        self._ask(self._exposition, self._shown, 503, "the counters could not be had")

    def endpoints(self) -> None:
        """What is left to each endpoint, and why."""
        self._ask(self._judged, self._shown, 503, "what is known of endpoints could not be had")

    def releases(self) -> None:
        """Which targets are taken back, and why."""
        self._ask(self._held, self._shown, 503, "what is known of releases could not be had")

    def _judged(self) -> Deferred[tuple[bytes, str]]:
        return _paged(self.channel.factory.watched.endpoints)

    def _held(self) -> Deferred[tuple[bytes, str]]:
        return _paged(self.channel.factory.watched.releases)

    def _told(self, reason: str) -> None:
        if reason:
            self.answer(503, f"not ready: {reason}")
        else:
            self.answer(200, "ready")

    def _exposition(self) -> Deferred[tuple[bytes, str]]:
        reactor, accept = self.channel.factory.threads, self.getHeader("accept") or ""
        taken: Deferred[Any] = maybeDeferred(self.channel.factory.watched.snapshot)
        # Many listeners and upstreams make many lines: the event loop has better things to do.
        return taken.addCallback(
            lambda snapshot: deferToThreadPool(reactor, reactor.getThreadPool(), exposition, snapshot, accept)
        )

    def _shown(self, made: tuple[bytes, str]) -> None:
        body, kind = made
        self.respond(200, body, kind)

    # -- means

    def _ask(self, function: Callable[[], Any], tell: Callable[[Any], None], status: int, otherwise: str) -> None:
        asked = self._asked = maybeDeferred(function)
        self._late = self.channel.factory.reactor.callLater(PATIENCE, asked.cancel)
        asked.addCallbacks(tell, self._failed, errbackArgs=(status, otherwise))
        asked.addErrback(lambda failure: _log.failure("an answer to an operator failed", failure))

    def _failed(self, failure: Failure, status: int, otherwise: str) -> None:
        if self._late is not None and self._late.active():
            # Not ours: nobody cancelled it.
            _tell("an operator's question could not be answered", failure=failure)
        self.answer(status, otherwise)

    def answer(self, status: int, text: str) -> None:
        """Answer with a line."""
        self.respond(status, f"{text}\n".encode("utf-8", "replace"), TEXT)

    def respond(self, status: int, body: bytes, kind: str) -> None:
        """Answer, if somebody is still there."""
        self._over()
        if self._disconnected:
            return
        self.setResponseCode(status)
        headers = self.responseHeaders
        headers.setRawHeaders(b"date", [http.datetimeToString()])
        headers.setRawHeaders(b"content-type", [kind.encode()])
        headers.setRawHeaders(b"content-length", [b"%d" % len(body)])
        headers.setRawHeaders(b"cache-control", [b"no-store"])
        headers.setRawHeaders(b"x-content-type-options", [b"nosniff"])
        self.write(body)  # type: ignore[no-untyped-call]
        self.finish()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: nobody waits for the answer any more."""
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        asked = self._asked
        self._over()
        if asked is not None:
            asked.cancel()

    def _over(self) -> None:
        self._asked = None
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = None


def _paged(ask: Callable[[], Any]) -> Deferred[tuple[bytes, str]]:
    found: Deferred[Any] = maybeDeferred(ask)
    return found.addCallback(lambda found: (page(found), JSON))


PAGES: Final[dict[bytes, Callable[[Question], None]]] = {
    b"/livez": Question.live,
    b"/readyz": Question.ready,
    b"/metrics": Question.metrics,
    b"/endpoints": Question.endpoints,
    b"/releases": Question.releases,
}


class Channel(http.HTTPChannel):
    """One connection, for one request."""

    factory: Site
    requestFactory = Question
    totalHeadersSize = HEAD
    maxHeaders = 64
    _end: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Twisted."""
        super().connectionMade()  # type: ignore[no-untyped-call]
        transport: Any = self.transport
        self.factory.open.add(self)
        self._end = self.factory.reactor.callLater(LIFE, transport.abortConnection)

    def checkPersistence(self, request: http.Request, version: bytes) -> bool:
        """Twisted: never."""
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self.factory.open.discard(self)
        if self._end is not None and self._end.active():
            self._end.cancel()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


Site.protocol = Channel  # type: ignore[assignment]  # Twisted's wraps it for HTTP/2
