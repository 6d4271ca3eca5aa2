"""
The two halves of one request, as every codec needs them: Serving answers a peer, Calling asks one.

All rules about cancel, abort, early response and tunnels live here, so a codec only adds its bytes.  A codec
subclasses both and writes, per half:

    write(data)  end(trailers)     outgoing body: bytes, and its clean end
    reset(reason)                  break the exchange off so that the peer sees it; nothing is sent after it
    pauseProducing(), resumeProducing()  stop and go on reading the incoming body
    over()                         both directions ended cleanly: forget the stream, reuse the connection

and Serving also C{head(response, last)}, Calling also C{ask(request, last)}.  For what arrives it calls
C{received(data)}, C{ended(trailers)}, C{lost(reason)}; first Serving.open() and, when the read is used up, begin(), or
Calling.headed() and fire().  To hold the outgoing body back it calls pauseProducing and resumeProducing of
C{self.outgoing}.

Rules
- Each half is the sink of its outgoing body and the source of its incoming one.
- What is written while a message starts leaves in one piece: the connection is corked.
- C{request.closed} is called exactly once, when both directions are over; after that neither half refers to the
  request, so that no cycle waits for the garbage collector.
- Client gone: first the answer is cancelled or the response body stopped, then the request body aborted.  The other
  order looks like an upstream failure and invites a retry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from protogate.errors import CLIENT, CLIENT_GONE, GATEWAY, Abort
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IBody, IService, ISink
from protogate.message import Field, Request, Response, ignore, tunnels
from protogate.promise import Promise, waits

if TYPE_CHECKING:
    from protogate.connection import Connection

OPEN: Final = 0
"""One direction: bytes may flow."""
ENDED: Final = 1
"""One direction: ended cleanly."""
CUT: Final = 2
"""One direction: broken off, or unwanted."""

_log = Logger()


@mypyc_attr(allow_interpreted_subclasses=True)
class Half:
    """
    @ivar connection: the L{protogate.connection.Connection} it belongs to.
    @ivar request: the Request, until the half is over.
    @ivar response: the Response, once there is one.
    @ivar incoming: the body that is being read, or None.
    @ivar outgoing: the body that is being written, or None.
    @ivar reading: @ivar writing: OPEN, ENDED or CUT.
    @ivar tunnel: whether both directions are raw bytes by now.
    @ivar ledger: where to note times, or None.
    """

    __slots__ = (
        "connection",
        "incoming",
        "ledger",
        "outgoing",
        "reading",
        "request",
        "response",
        "tunnel",
        "writing",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.request: Request | None = None
        self.response: Response | None = None
        self.incoming: ISink | None = None
        self.outgoing: IBody | None = None
        self.ledger: Ledger | None = None
        self.reading = self.writing = OPEN
        self.tunnel = False

    # -- for the codec to fill in

    def write(self, data: bytes) -> None:
        """Sink: some bytes of the outgoing body."""
        raise NotImplementedError

    def end(self, trailers: Sequence[Field] | None) -> None:
        """The outgoing body is complete."""
        raise NotImplementedError

    def reset(self, reason: Abort) -> None:
        """Break off, so that the peer sees it."""
        raise NotImplementedError

    def over(self) -> None:
        """Both directions ended cleanly."""
        raise NotImplementedError

    def settle(self) -> None:
        """Whether one direction that ended ends the whole."""
        raise NotImplementedError

    def abort(self, reason: Abort) -> None:
        """Sink: the outgoing body will never be complete."""
        raise NotImplementedError

    def pauseProducing(self) -> None:
        """Source: read no more of the incoming body for now."""
        raise NotImplementedError

    def resumeProducing(self) -> None:
        """Source: go on reading."""
        raise NotImplementedError

    def stopProducing(self) -> None:
        """Source: nobody wants the rest of the incoming body."""
        raise NotImplementedError

    def lost(self, reason: Abort) -> None:
        """The peer is gone."""
        raise NotImplementedError

    # -- sink of the outgoing body

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        self.writing, self.outgoing = ENDED, None
        self.end(trailers)
        self.settle()

    # -- what the codec read

    def received(self, data: bytes) -> None:
        """Some bytes of the incoming body."""
        if self.reading == OPEN:
            assert self.incoming is not None
            self.incoming.write(data)

    def ended(self, trailers: Sequence[Field] | None = None) -> None:
        """The incoming body is complete."""
        if self.reading == OPEN:
            self.reading, incoming, self.incoming = ENDED, self.incoming, None
            self.settle()
            if incoming is not None:
                incoming.finish(trailers)

    # -- ends

    def cut(self, reason: Abort) -> bool:
        """Both directions end here and now; returns whether there was anything left to end."""
        if OPEN not in (self.reading, self.writing):
            return False
        incoming, outgoing = self.incoming, self.outgoing
        reading, self.reading, self.writing = self.reading, CUT, CUT
        self.incoming = self.outgoing = None
        if outgoing is not None:
            outgoing.stopProducing()
        if incoming is not None and reading == OPEN:
            incoming.abort(reason)
        return True


classImplements(Half, ISink, IPushProducer)


def close(request: Request | None, reason: Abort | None) -> None:
    """Tell the exchange, once, and let go of it."""
    if request is None:
        return
    closed, request.closed, request.interim = request.closed, ignore, ignore
    try:
        closed(reason)
    except Exception:
        _log.failure("request.closed() must not raise")


@mypyc_attr(allow_interpreted_subclasses=True)
class Serving(Half):
    """
    One request from a peer.

    The codec counts C{ledger.delivered} in its write().

    @ivar answer: the Deferred of the response while it is awaited.
    """

    __slots__ = ("_handling", "_reason", "answer")

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.answer: Deferred[Response] | None = None
        self._handling = False  # inside service.handle()
        self._reason = CLIENT_GONE  # why it was lost in there

    def head(self, response: Response, last: bool) -> None:
        """Write the head of the final response; last = no body follows."""
        raise NotImplementedError

    def without(self) -> None:
        """For head(): the answer has no content after all, and nobody reads its body; what is left is over."""
        outgoing, self.outgoing, self.writing = self.outgoing, None, ENDED
        if outgoing is not None:
            outgoing.stopProducing()
        self.settle()

    def open(self, request: Request, first: float = 0.0) -> None:
        """
        The head of a request was read.  C{request.body}, if any, was made with self as its source.

        @param first: when the first byte of the head was read, if that was earlier than now.
        """
        self.request = request
        self.incoming = request.body  # type: ignore[assignment]
        head = self.connection.now()
        ledger = self.ledger = request.ledger = Ledger(head, first)
        if request.body is None:
            ledger.uploaded = head

    def begin(self, service: IService) -> None:
        """Hand the request on: what was read of its body is in it."""
        request = self.request
        if request is None:
            return
        self._handling = True
        try:
            result: Any = service.handle(request)  # nobody promised that it is what it should be
        except Exception:
            _log.failure("handle() must not raise")
            self._handling = False
            if self.writing == OPEN:
                self.abort(Abort("internal error", GATEWAY, 500))
            else:
                self._leave(self._reason)
            return
        self._handling = False
        if self.writing != OPEN:  # lost inside handle()
            if waits(result):
                result.addCallbacks(self.respond, self.failed)
                result.cancel()
            else:
                self.respond(result)
            self._leave(self._reason)
        elif waits(result):
            self.answer = result
            result.addCallbacks(self.respond, self.failed)
        else:
            self.respond(result)

    def respond(self, response: object) -> None:
        """The final response is there."""
        if not isinstance(response, Response):
            self.failed(Failure(TypeError(f"handle() gave {response!r} instead of a Response")))
            return
        self.answer, body, request = None, response.body, self.request
        if request is None or self.writing != OPEN:  # cancelled, but the answer was faster
            if body is not None:
                body.stopProducing()
            return
        request.interim = ignore  # too late now; and no cycle is left to collect
        self.response = response
        self.tunnel = tunnels(request, response)
        if request.upgrade is not None and not self.tunnel:
            self.unwanted()  # there was no content, and now there is no tunnel
        connection = self.connection
        connection.cork()
        try:
            if body is None:
                self.writing = ENDED
                self.head(response, True)
                self.settle()
            else:
                self.outgoing = body
                self.head(response, False)
                if self.writing == OPEN:
                    body.attach(self)
        except Exception:
            _log.failure("a response could not be sent")
            self.writing = OPEN
            self.abort(Abort("internal error", GATEWAY, 500))
        finally:
            connection.uncork()

    def failed(self, failure: Failure) -> None:
        """No answer: break off."""
        self.answer, reason = None, failure.value
        if not isinstance(reason, Abort):
            if not isinstance(reason, CancelledError):
                _log.failure("handle() failed with something else than an Abort", failure)
            reason = Abort("internal error", GATEWAY, 500)
        if self.writing == OPEN:
            self.abort(reason)

    def received(self, data: bytes) -> None:
        if self.reading == OPEN:
            ledger, incoming = self.ledger, self.incoming
            assert ledger is not None
            assert incoming is not None
            ledger.received += len(data)
            incoming.write(data)

    def ended(self, trailers: Sequence[Field] | None = None) -> None:
        if self.ledger is not None:
            self.ledger.uploaded = self.connection.now()
        super().ended(trailers)

    def broken(self, reason: Abort) -> None:
        """The rest of the request will never come, but the peer is there and is still owed an answer."""
        if self.reading == OPEN:
            self.reading, incoming, self.incoming = CUT, self.incoming, None
            if incoming is not None:
                incoming.abort(reason)

    def abort(self, reason: Abort) -> None:
        """Sink: the response will never be complete."""
        outgoing, self.outgoing = self.outgoing, None
        if self.cut(reason):
            if outgoing is not None:
                outgoing.stopProducing()
            request, self.request = self.request, None  # reset() may come back as lost()
            self.response = None
            self.reset(reason)
            close(request, reason)

    def lost(self, reason: Abort) -> None:
        """The peer is gone, or gave up this request.  Cancel first: nobody may mistake this for an upstream failure."""
        request = self.request
        if request is None:
            return
        request.gone, request.interim = reason, ignore
        if self._handling:
            self._reason, self.writing = reason, CUT  # begin() goes on from here
            return
        answer, self.answer = self.answer, None
        if self.writing == OPEN and answer is not None:
            self.writing = CUT
            answer.cancel()
        self._leave(reason)

    def _leave(self, reason: Abort) -> None:
        self.cut(reason)
        request, self.request = self.request, None
        self.response = None
        close(request, reason)

    def stopProducing(self) -> None:
        """Source: the service does not want the rest of the request.  The response is what counts."""
        if self.reading == OPEN:
            self.unwanted()
            self.settle()

    def unwanted(self) -> None:
        self.reading, self.incoming = CUT, None
        self.resumeProducing()  # so that it is read and thrown away

    def settle(self) -> None:
        if self.writing == ENDED and (self.reading != OPEN or not self.tunnel):
            if self.reading == OPEN:  # early response: the rest of the upload is of no use to anybody
                incoming, self.incoming, self.reading = self.incoming, None, CUT
                if incoming is not None:
                    incoming.abort(Abort("the response was complete before the request", GATEWAY))
            request, self.request = self.request, None
            self.response = None
            close(request, None)
            self.over()


@mypyc_attr(allow_interpreted_subclasses=True)
class Calling(Half):
    """
    One request to a peer.

    The codec notes C{ledger.sent} when the last byte of the request was flushed.

    @ivar answer: the Deferred of the response while it is awaited.
    """

    __slots__ = ("answer",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.answer: Deferred[Response] | None = None

    def ask(self, request: Request, last: bool) -> None:
        """Write the head of the request; last = no body follows."""
        raise NotImplementedError

    def begin(self, request: Request) -> Deferred[Response]:
        """Start, and return the Deferred of the Response."""
        self.request, self.ledger = request, request.ledger
        answer = self.answer = Promise(self.cancelled)
        connection, body = self.connection, request.body
        connection.cork()
        try:
            if body is None:
                self.writing = ENDED
                self.ask(request, True)
            else:
                self.ask(request, False)
                if request.upgrade is None and self.writing == OPEN and not self.waits():
                    self.upload()
        except Exception:
            _log.failure("a request could not be sent")
            self.writing = OPEN
            self.fold(Abort("internal error", GATEWAY, 500))
        finally:
            connection.uncork()
        return answer

    def waits(self) -> bool:
        """Whether the peer is to say 100 Continue first; then the codec calls upload()."""
        return False

    def upload(self) -> None:
        """Start the outgoing body, unless that was done."""
        request = self.request
        if self.writing == OPEN and self.outgoing is None and request is not None:
            body = request.body
            if body is not None and not body.attached:
                self.outgoing = body
                body.attach(self)

    def headed(self, response: Response) -> None:
        """The final head; its body, if any, was made with self as its source.  fire() when this read is used up."""
        self.response = response
        self.incoming = response.body  # type: ignore[assignment]
        self.tunnel = tunnels(self.request, response)  # type: ignore[arg-type]
        if self.ledger is not None:
            self.ledger.answered = self.connection.now()

    def fire(self) -> None:
        """Hand the response on."""
        answer, self.answer = self.answer, None
        if answer is not None:
            if self.tunnel:
                self.upload()
            answer.callback(self.response)  # type: ignore[arg-type]

    def cancelled(self, answer: Deferred[Response]) -> None:
        """The canceller of the answer."""
        self.answer = None
        self.fold(Abort("cancelled", CLIENT, 499))

    def abort(self, reason: Abort) -> None:
        """Sink: the request will never be complete."""
        self.outgoing = None
        self.fold(reason)

    def stopProducing(self) -> None:
        """Source: nobody wants the rest of the response."""
        self.incoming = None
        self.fold(Abort("response unwanted", CLIENT, 499))

    def fold(self, reason: Abort) -> None:
        """Our side ends it."""
        if OPEN in (self.reading, self.writing):
            self.reset(reason)
        self.lost(reason)

    def lost(self, reason: Abort) -> None:
        """The peer is gone, or refused or reset this request.  A body never attached stays with the caller."""
        whole = self.reading == ENDED  # then the response counts, even if fire() is still to come
        self.cut(reason)
        answer = self.answer
        if answer is not None and not whole:
            self.answer = None
            answer.errback(reason)

    def settle(self) -> None:
        if self.reading == ENDED and (self.writing != OPEN or not self.tunnel):
            if self.writing == OPEN:
                outgoing, self.outgoing, self.writing = self.outgoing, None, CUT
                if outgoing is not None:
                    outgoing.stopProducing()
            self.over()
