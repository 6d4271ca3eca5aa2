"""Calls of gRPC and gRPC-Web at a server codec: what the service behind is asked, and what the client is told."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from protogate.body import Whole
from protogate.context import Context
from protogate.errors import CLIENT, GATEWAY, UPSTREAM, Abort, overdue
from protogate.exchange import problem
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IBody, IService
from protogate.message import Field, Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.wheel import Wheel
from protogate_http.grpcservice import Grpc
from protogate_http.grpcweb import frame_of

GRPC = b"application/grpc"
WEB = b"application/grpc-web+proto"
TEXT = b"application/grpc-web-text"
MESSAGE = b"\x00\x00\x00\x00\x05hello"
OK = [(b"grpc-status", b"0")]


class Behind:
    """A service that answers what it is told to, and what stands before it."""

    def __init__(self, answer: Any = None) -> None:
        clock = Clock()
        clock.advance(1000)
        self.counts: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.answer = answer
        self.front = Grpc(self, Context(Wheel(clock), count=lambda event: self.counts.update([event])))

    def handle(self, request: Request) -> Any:
        self.requests.append(request)
        return self.answer(request) if callable(self.answer) else self.answer

    def ask(
        self,
        kind: bytes = GRPC,
        *fields: Field,
        body: IBody | None = None,
        method: bytes = b"POST",
        malformed: bool = False,
    ) -> Any:
        """One call; what it is answered."""
        request = Request(method, b"/shop.Orders/Place", [(b"content-type", kind), *fields], body)
        self.ledger = request.ledger = Ledger(1000.0)
        if malformed:
            request.malformed = Abort("malformed", CLIENT, 400)
        return self.front.handle(request)


def upstream(kind: bytes = GRPC, *fields: Field, status: int = 200, body: IBody | None = None) -> Response:
    """What an upstream answers."""
    return Response(status, [(b"content-type", kind), *fields], body, "HTTP/2")


def test_it_is_a_service() -> None:
    verifyObject(IService, Behind().front)


# -- gRPC


@pytest.mark.parametrize(
    ("method", "kind"),
    [(b"GET", GRPC), (b"POST", b"application/json"), (b"OPTIONS", WEB), (b"POST", b"application/grpcish")],
)
def test_what_is_no_call_passes_as_it_is(method: bytes, kind: bytes) -> None:
    answer = Response(404, [(b"content-type", b"text/plain")], Whole(b"what?"))
    behind = Behind(answer)
    assert behind.ask(kind, (b"grpc-timeout", b"1S"), method=method) is answer
    request = behind.requests[0]
    assert (request.deadline, request.service) == (None, "")
    assert request.headers == [(b"content-type", kind), (b"grpc-timeout", b"1S")]
    assert (answer.status, answer.headers) == (404, [(b"content-type", b"text/plain")])


def test_a_call_passes_untouched_but_for_its_deadline() -> None:
    behind = Behind(upstream())
    body = Giver([MESSAGE]).body
    fields = [(b"te", b"trailers"), (b"grpc-encoding", b"gzip"), (b"x-a-bin", b"AAE="), (b"grpc-timeout", b"1500m")]
    behind.ask(b"application/grpc+proto", *fields, body=body)
    request = behind.requests[0]
    assert request.headers == [(b"content-type", b"application/grpc+proto"), *fields[:-1]]
    assert request.deadline == 1001.5
    assert (request.service, request.operation) == ("shop.Orders", "Place")
    assert request.body is body


def test_what_is_no_timeout_is_for_the_upstream_to_judge() -> None:
    behind = Behind(upstream())
    behind.ask(GRPC, (b"grpc-timeout", b"soon"))
    assert behind.requests[0].deadline is None
    assert behind.requests[0].headers.get(b"grpc-timeout") == b"soon"
    assert behind.counts == {"invalid_deadline": 1}


def test_an_answer_passes_untouched_and_its_status_is_noted() -> None:
    answer = upstream(
        GRPC, (b"x-a", b"b"), body=Giver([MESSAGE], trailers=[(b"x-t", b"1"), (b"grpc-status", b"5")]).body
    )
    behind = Behind(answer)
    given = behind.ask()
    assert given is answer
    assert given.headers == [(b"content-type", GRPC), (b"x-a", b"b")]
    assert (behind.ledger.rpc, behind.counts) == (-1, {})
    taker = Taker(given.body)
    assert (taker.data, taker.trailers) == (MESSAGE, [(b"x-t", b"1"), (b"grpc-status", b"5")])
    assert behind.ledger.rpc == 5
    assert behind.counts == {"grpc_not_found": 1}


def test_an_answer_without_content_stays_one_head() -> None:
    answer = upstream(GRPC, (b"grpc-status", b"7"), (b"grpc-message", b"no"))
    behind = Behind(answer)
    assert behind.ask() is answer
    assert answer.body is None
    assert answer.headers[1:] == [(b"grpc-status", b"7"), (b"grpc-message", b"no")]
    assert behind.ledger.rpc == 7
    assert behind.counts == {"grpc_permission_denied": 1}


def test_a_status_beyond_those_of_grpc_counts_as_unknown_and_is_told_as_it_is() -> None:
    behind = Behind(upstream(GRPC, (b"grpc-status", b"99")))
    behind.ask()
    assert (behind.ledger.rpc, behind.counts) == (99, {"grpc_unknown": 1})


@pytest.mark.parametrize("trailers", [None, [(b"a", b"b")], [(b"grpc-status", b"fine"), (b"grpc-status", b"0")]])
def test_an_end_without_a_status_is_none(trailers: Any) -> None:
    behind = Behind(upstream(body=Giver([MESSAGE], trailers=trailers).body))
    Taker(behind.ask().body)
    assert (behind.ledger.rpc, behind.counts) == (-1, {})


def test_an_answer_that_breaks_off_has_no_status() -> None:
    giver = Giver([MESSAGE], close=False)
    behind = Behind(upstream(body=giver.body))
    taker = Taker(behind.ask().body)
    giver.abort(Abort("gone", UPSTREAM, 502))
    assert taker.reason is not None
    assert (behind.ledger.rpc, behind.counts) == (-1, {})


def test_an_answer_of_an_upstream_that_is_no_grpc_passes_as_it_is() -> None:
    body = Whole(b"<h1>Bad Gateway</h1>")
    answer = upstream(b"text/html", status=502, body=body)
    for kind in (GRPC, WEB, TEXT):
        assert Behind(answer).ask(kind) is answer
        assert (answer.status, answer.headers, answer.body) == (502, [(b"content-type", b"text/html")], body)


def test_an_answer_that_is_late_is_the_same() -> None:
    later: Deferred[Response] = Deferred()
    behind = Behind(later)
    assert behind.ask() is later
    later.callback(problem.answer(overdue(GATEWAY), "edge", "1"))
    assert behind.ledger.rpc == 4


def test_a_cancellation_reaches_whoever_is_asked_and_comes_back() -> None:
    cancelled: list[Any] = []
    behind = Behind(Deferred(cancelled.append))
    result = behind.ask()
    failures: list[Any] = []
    result.addErrback(failures.append)
    result.cancel()
    assert len(cancelled) == 1
    assert failures[0].check(CancelledError)
    assert behind.ledger.rpc == -1


# -- answers of the gateway's own


def test_an_error_of_the_gateway_is_a_head_with_a_status() -> None:
    abort = Abort("10.0.0.7 refused", UPSTREAM, 503, headers=[(b"retry-after", b"5")], error="connection_refused")
    own = problem.answer(abort, "edge", "1")
    body = own.body
    behind = Behind(own)
    given = behind.ask(b"application/grpc+proto; a=b")
    assert (given.status, given.body) == (200, None)
    assert dict(given.headers) == {
        b"content-type": b"application/grpc+proto",
        b"grpc-status": b"14",
        b"grpc-message": b"Service Unavailable",
        b"cache-control": b"no-store",
        b"proxy-status": b'edge; error=connection_refused; details="upstream"',
        b"retry-after": b"5",
    }
    assert body is not None
    assert body.attached  # somebody ended it
    assert own.status == 503  # what the record tells
    assert behind.ledger.rpc == 14
    assert behind.counts == {"grpc_unavailable": 1}


def test_so_is_an_answer_of_a_module() -> None:
    answer = Response(403, [(b"content-type", b"text/plain"), (b"content-language", b"en"), (b"x-why", b"who?")])
    given = Behind(answer).ask()
    assert given.headers == [
        (b"x-why", b"who?"), (b"content-type", GRPC), (b"grpc-status", b"7"), (b"grpc-message", b"Forbidden"),
    ]  # fmt: skip
    assert Behind(Response(599)).ask().headers.get(b"grpc-message") == b"status 599"


def test_a_module_may_answer_in_grpc() -> None:
    answer = Response(200, [(b"content-type", GRPC), (b"grpc-status", b"8")])
    assert Behind(answer).ask() is answer


def test_an_upstream_of_another_protocol_is_translated() -> None:
    answer = Response(409, [(b"content-type", b"text/plain"), (b"sotp-status", b"6")], Whole(b"there is one"), "SOTP/1")
    behind = Behind(answer)
    given = behind.ask()
    assert (given.status, given.body) == (200, None)
    assert (given.headers.get(b"grpc-status"), given.headers.get(b"grpc-message")) == (b"6", b"Conflict")
    assert behind.ledger.rpc == 6
    for alone in (412, 400):
        behind = Behind(Response(alone, [(b"content-type", GRPC), (b"sotp-status", b"9")], None, "SOTP/1"))
        given = behind.ask()
        assert (given.status, given.headers.get(b"grpc-status"), behind.ledger.rpc) == (200, b"9", 9)
    http = Response(412, [(b"content-type", GRPC)], None, "HTTP/2")
    assert Behind(http).ask() is http
    grpc = Response(200, [(b"content-type", GRPC)], Giver([MESSAGE], trailers=OK).body, "SOTP/1")
    assert Behind(grpc).ask() is grpc


def test_a_call_that_is_malformed_is_told_so() -> None:
    behind = Behind(lambda request: problem.answer(request.malformed, "edge", "1"))
    assert behind.ask(malformed=True).headers.get(b"grpc-status") == b"13"


# -- gRPC-Web


@pytest.mark.parametrize(("kind", "asked"), [(WEB, b"application/grpc+proto"), (TEXT, GRPC)])
def test_whoever_is_behind_sees_grpc_alone(kind: bytes, asked: bytes) -> None:
    sent = b64encode(MESSAGE) if kind == TEXT else MESSAGE
    behind = Behind(upstream())
    behind.ask(kind, (b"grpc-timeout", b"2S"), (b"x-grpc-web", b"1"), body=Giver([sent], len(sent)).body)
    request = behind.requests[0]
    assert request.headers == [(b"content-type", asked), (b"x-grpc-web", b"1"), (b"te", b"trailers")]
    assert request.deadline == 1002.0
    assert request.service == "shop.Orders"
    assert Taker(request.body).data == MESSAGE


@pytest.mark.parametrize(
    ("kind", "accept", "answered"),
    [
        (WEB, None, b"application/grpc-web+proto"),
        (TEXT, None, b"application/grpc-web-text+proto"),
        (WEB, b"application/grpc-web-text", b"application/grpc-web-text+proto"),
        (TEXT, b"text/html, application/grpc-web+proto;q=1", b"application/grpc-web+proto"),
        (TEXT, b"*/*", b"application/grpc-web-text+proto"),
        (WEB, b"application/grpc, application/x", b"application/grpc-web+proto"),
    ],
)
def test_a_client_of_grpc_web_reads_it(kind: bytes, accept: bytes | None, answered: bytes) -> None:
    fields = [] if accept is None else [(b"accept", accept)]
    behind = Behind(upstream(b"application/grpc+proto", body=Giver([MESSAGE], 10, OK).body))
    given = behind.ask(kind, *fields)
    assert given.headers == [(b"content-type", answered)]
    assert given.body.length is None
    taker = Taker(given.body)
    whole = [MESSAGE, frame_of(OK)]
    assert taker.got == ([b64encode(each) for each in whole] if b"text" in answered else whole)
    assert taker.finished
    assert taker.trailers is None
    assert behind.ledger.rpc == 0
    assert behind.counts == {"grpc_ok": 1}


@pytest.mark.parametrize("kind", [WEB, TEXT])
def test_what_is_a_head_alone_becomes_a_frame_that_a_page_can_read(kind: bytes) -> None:
    status = [(b"grpc-status", b"3"), (b"grpc-message", b"no%20id"), (b"grpc-status-details-bin", b"AAE=")]
    behind = Behind(upstream(GRPC, (b"x-a", b"b"), *status))
    given = behind.ask(kind)
    assert given.headers == [(b"content-type", kind.partition(b"+")[0]), (b"x-a", b"b")]
    frame = frame_of(status)
    assert Taker(given.body).data == (b64encode(frame) if kind == TEXT else frame)
    assert behind.ledger.rpc == 3


def test_an_error_of_the_gateway_is_such_a_frame() -> None:
    given = Behind(problem.answer(Abort("no rule matches", CLIENT, 404), "edge", "1")).ask(WEB)
    assert (given.status, given.headers.get(b"content-type")) == (200, WEB)
    assert given.headers.get(b"grpc-status") is None
    assert Taker(given.body).data == frame_of([(b"grpc-status", b"12"), (b"grpc-message", b"Not Found")])


def test_an_answer_without_anything_has_no_frame() -> None:
    given = Behind(upstream()).ask(WEB)
    assert (given.headers, given.body) == ([(b"content-type", b"application/grpc-web")], None)


def test_a_call_without_content_stays_one() -> None:
    behind = Behind(upstream())
    behind.ask(TEXT)
    assert behind.requests[0].body is None
