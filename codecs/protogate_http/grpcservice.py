"""
What a server codec of HTTP owes to calls of gRPC: it stands between a connection and the service that answers.

    C{grpc-timeout}            L{Request.deadline}, which the exchange enforces; client codecs write what is left of it
    C{/package.Service/M}      L{Request.service}, for rules and the record
    answers of the gateway     200 with C{grpc-status} and C{grpc-message}, and no content ("trailers-only")
    gRPC-Web                   gRPC for whoever is behind, and back again
    C{grpc-status}             noted in the ledger, and counted

Rules
- Requests that are no calls pass through as they are: a look at their method or their content type is all they cost.
- A call passes untouched but for C{grpc-timeout}, and so does whatever an upstream of HTTP answers, gRPC or not:
  clients know what to make of an HTTP status.  That of another protocol's upstream is only a translation.
- Whoever stands behind (modules, rules, upstreams) sees gRPC alone, never gRPC-Web.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from zope.interface import classImplements

from protogate.body import Whole
from protogate.interfaces import IService
from protogate.message import Field, Headers, Request, Response
from protogate_http.grpc import (
    CONTENT_TYPE,
    DETAILS,
    MESSAGE,
    STATUS,
    TIMEOUT,
    UNKNOWN,
    Kind,
    kind_of,
    message_of,
    number_of,
    seconds_of,
    service_of,
    status_of,
)
from protogate_http.grpcweb import Framed, Plain, Told, encoded, frame_of
from protogate_http.semantics import TE_TRAILERS

if TYPE_CHECKING:
    from protogate.context import Context
    from protogate.exchange.ledger import Ledger

_EVENTS: Final[tuple[str, ...]] = (
    "grpc_ok",
    "grpc_cancelled",
    "grpc_unknown",
    "grpc_invalid_argument",
    "grpc_deadline_exceeded",
    "grpc_not_found",
    "grpc_already_exists",
    "grpc_permission_denied",
    "grpc_resource_exhausted",
    "grpc_failed_precondition",
    "grpc_aborted",
    "grpc_out_of_range",
    "grpc_unimplemented",
    "grpc_internal",
    "grpc_unavailable",
    "grpc_data_loss",
    "grpc_unauthenticated",
)
"""What is counted of each status, by its number."""
_MOVED: Final = frozenset((STATUS, MESSAGE, DETAILS))
"""What of a head without content is a trailer."""


def named(request: Request) -> str:
    """The service that a request is a call of; empty = it is none."""
    call = request.method == b"POST" and kind_of(request.headers) is not None
    return service_of(request.target) if call else ""


class Grpc:
    """
    A service for server codecs of HTTP.

    @ivar service: whoever answers.
    """

    def __init__(self, service: IService, context: Context) -> None:
        self.service, self._context = service, context

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        kind = kind_of(request.headers) if request.method == b"POST" else None
        if kind is None:
            return self.service.handle(request)
        self._deadline(request)
        request.service = service_of(request.target)
        wanted = kind
        if kind.web:
            wanted = _wanted(request.headers, kind)
            _unweb(request, kind)
        answered = partial(self._answered, request.ledger, request.malformed is not None, wanted)
        result = self.service.handle(request)
        if isinstance(result, Response):  # that it is a Deferred is dear to ask
            return answered(result)
        return result.addCallback(answered)

    def _deadline(self, request: Request) -> None:
        """Take it out: for whoever is asked later, less is left."""
        timeout = request.headers.get(TIMEOUT)
        if timeout is None:
            return
        seconds = seconds_of(timeout)
        if seconds is None:
            self._context.count("invalid_deadline")
            return
        request.headers.remove(TIMEOUT)
        request.deadline = (self._context.wheel.now() if request.ledger is None else request.ledger.head) + seconds

    def _answered(self, ledger: Ledger | None, malformed: bool, wanted: Kind, response: Response) -> Response:
        kind = kind_of(response.headers)
        if response.protocol[:5] == "HTTP/":
            if kind is None:
                return response
        elif kind is None or (response.body is None and response.headers.get(STATUS) is None):
            # A head alone that has no grpc-status: what it means, the status of its own protocol says.
            response = _own(response, malformed, wanted)
        status, body = number_of(response.headers.get(STATUS)), response.body
        if status is not None:
            self._note(ledger, status)
        elif body is not None:
            response.body = Told(body, partial(self._ended, ledger))
        if wanted.web:
            _web(response, Kind(True, wanted.text, wanted.suffix if kind is None else kind.suffix))
        return response

    def _ended(self, ledger: Ledger | None, trailers: Sequence[Field] | None) -> None:
        for name, value in trailers or ():
            if name == STATUS:
                status = number_of(value)
                if status is not None:
                    self._note(ledger, status)
                return

    def _note(self, ledger: Ledger | None, status: int) -> None:
        self._context.count(_EVENTS[status if status < len(_EVENTS) else UNKNOWN])
        if ledger is not None:
            ledger.rpc = status


classImplements(Grpc, IService)


def _own(response: Response, malformed: bool, wanted: Kind) -> Response:
    """
    An answer that is nothing of HTTP's, in the words of gRPC.  A new one: the record tells of the one that the exchange
    knows, with its HTTP status.
    """
    if response.body is not None:
        response.body.stopProducing()
    headers = Headers([field for field in response.headers if not field[0].startswith(b"content-")])
    headers.set(CONTENT_TYPE, Kind(False, False, wanted.suffix).type())
    headers.set(STATUS, b"%d" % status_of(response, malformed))
    headers.set(MESSAGE, message_of(response))
    return Response(200, headers)


# -- gRPC-Web


def _wanted(headers: Headers, kind: Kind) -> Kind:
    """What a client of gRPC-Web wants to read: what it accepts, where that is one of the two, else what it sent."""
    for value in headers.all(b"accept"):
        for each in value.split(b","):
            accepted = kind_of(Headers([(CONTENT_TYPE, each.strip(b" \t"))]))
            if accepted is not None and accepted.web:
                return Kind(True, accepted.text, kind.suffix)
    return kind


def _unweb(request: Request, kind: Kind) -> None:
    """Make it a call of gRPC."""
    request.headers.set(CONTENT_TYPE, Kind(False, False, kind.suffix).type())
    request.headers.set(*TE_TRAILERS)
    if kind.text and request.body is not None:
        request.body = Plain(request.body)


def _web(response: Response, kind: Kind) -> None:
    """Make it an answer of gRPC-Web."""
    headers, body = response.headers, response.body
    headers.set(CONTENT_TYPE, kind.type())
    if body is not None:
        response.body = Framed(body, kind.text)
        return
    trailers = [field for field in headers if field[0] in _MOVED]
    if trailers:
        # In the content a page can read them, in the head only where CORS says so.
        headers[:] = [field for field in headers if field[0] not in _MOVED]
        frame = frame_of(trailers)
        response.body = Whole(encoded(frame) if kind.text else frame)
