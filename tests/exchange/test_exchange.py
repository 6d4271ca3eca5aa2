"""The life of a request: which stage sees what, however it ends."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from protogate.body import Body, Whole
from protogate.errors import CLIENT, CLIENT_GONE, GATEWAY, UPSTREAM, Abort, Phase, Who
from protogate.exchange.exchange import Exchange
from protogate.exchange.forwarding import Forwarding
from protogate.exchange.plan import Plan
from protogate.message import Peer, Request, Response
from protogate.testing.exchange import PRE_UPSTREAM, exchange
from protogate.uri import LONGEST
from protogate.wheel import Wheel


class Step:
    """A bound module that does what a function does."""

    applies = None
    timeout = 2.0
    opens = True
    proceeds = False
    outlives = False
    order = 0

    def __init__(self, process: Callable[[Exchange], Any], name: str = "step", stage: str = "PRE_REQUEST") -> None:
        self.process, self.name, self.stage = process, name, stage
        self.outlives = stage == "POST_RESPONSE"

    def count(self, event: str) -> None:
        """Nobody asks."""


class Source:
    """Of a body."""

    stopped = False

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        self.stopped = True


class Sink:
    def __init__(self, body: Any) -> None:
        self.data, self.end = b"", None  # type: tuple[bytes, Any]
        body.attach(self)

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self, trailers: Any = None) -> None:
        self.end = ("finish", trailers)

    def abort(self, reason: Abort) -> None:
        self.end = ("abort", reason)


ROUTE = exchange(PRE_UPSTREAM).route


class World:
    """A plan whose parts are functions, and what came of it."""

    def __init__(self, **stages: list[Callable[[Exchange], Any]]) -> None:
        self.clock = Clock()
        self.wheel = Wheel(self.clock)
        self.asked: list[Request] = []
        self.records: list[Exchange] = []
        self.counted: list[str] = []
        self.logged: list[str] = []
        self.route: Any = ROUTE
        self.answer: Any = Response(200, [(b"x-a", b"1")])
        self.total = 0.0
        self.deadlines: dict[str, bytes] = {}
        self.body = 0
        self.reject = False
        self.stages = stages

    def router(self, exchange: Exchange) -> Any:
        return _value(self.route)

    def handle(self, request: Request) -> Any:
        self.asked.append(request)
        return _value(self.answer)

    def plan(self) -> Plan:
        world: Any = self
        steps = {
            name: [Step(f, f"{name}{i}", name.upper()) for i, f in enumerate(s)] for name, s in self.stages.items()
        }
        router: Any = type("Router", (), {"route": staticmethod(world.router)})()
        return Plan(
            name="edge",
            zone="PRO",
            wheel=self.wheel,
            router=router,
            rewrite=lambda request, route, target: request.target,
            clusters={"origin": world},
            forwarding=Forwarding("edge"),
            record=self.records.append,
            count=self.counted.append,
            total=self.total,
            deadlines=self.deadlines,
            body=self.body,
            reject=self.reject,
            **steps,  # type: ignore[arg-type]
        )

    def begin(self, request: Request | None = None) -> Any:
        request = self.request() if request is None else request
        self.exchange = Exchange(request, self.plan(), "web")
        self.result = self.exchange.begin()
        if isinstance(self.result, Deferred):
            self.ends: list[Any] = []
            self.result.addBoth(self.ends.append)
        return self.result

    def request(self, method: bytes = b"GET", target: bytes = b"/x?y=1", **more: Any) -> Request:
        return Request(method, target, authority=b"a.test", protocol="HTTP/1.1", peer=Peer("192.0.2.1", 9), **more)


def _value(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    return value() if callable(value) else value


def note(name: str) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.notes.setdefault("seen", []).append(name)


def seen(world: World) -> list[str]:
    return list(world.exchange.notes.get("seen", []))


ALL = {
    "pre_request": [note("pre_request")],
    "pre_upstream": [note("pre_upstream")],
    "pre_response": [note("pre_response")],
    "error": [note("error")],
    "post_response": [note("post_response")],
}


def problem(response: Response) -> dict[str, Any]:
    assert response.headers.get(b"content-type") == b"application/problem+json"
    return dict(json.loads(Sink(response.body).data))


def test_all_stages_in_order_without_a_deferred() -> None:
    world = World(**ALL)
    response = world.begin()
    assert response is world.answer
    assert response.headers[:2] == [(b"x-a", b"1"), (b"via", b"1.1 edge")]
    assert world.records == []
    world.exchange.closed(None)
    assert seen(world) == ["pre_request", "pre_upstream", "pre_response", "post_response"]
    assert world.records == [world.exchange]
    assert world.asked[0].headers.get(b"x-forwarded-for") == b"192.0.2.1"
    assert not world.clock.getDelayedCalls()


@pytest.mark.parametrize("stage", ["pre_request", "pre_upstream"])
def test_a_first_answer_short_circuits(stage: str) -> None:
    own = Response(403)
    world = World(**{**ALL, stage: [lambda exchange: own, note("never")]})
    assert world.begin() is own
    assert world.asked == []
    assert "never" not in seen(world)
    assert "pre_response" in seen(world)


def test_an_answer_of_pre_response_replaces_and_stops_the_other() -> None:
    source, own = Source(), Response(418)
    world = World(pre_response=[lambda exchange: own])
    world.answer = Response(200, body=Body(source))
    assert world.begin() is own
    assert source.stopped
    assert world.exchange.response is own


def _raise(exchange: Exchange) -> None:
    raise ValueError("secret detail")


def _abort(exchange: Exchange) -> None:
    raise Abort("no", CLIENT, 401, detail="who are you?", headers=[(b"www-authenticate", b"Basic")])


def _failing(exchange: Exchange) -> Deferred[None]:
    later: Deferred[None] = Deferred()
    exchange.wheel.after(1, lambda: later.errback(Abort("later", UPSTREAM, 503)))
    return later


async def _coroutine(exchange: Exchange) -> None:
    later: Deferred[None] = Deferred()
    exchange.wheel.after(1, lambda: later.callback(None))
    await later
    raise Abort("coroutine", CLIENT, 451)


@pytest.mark.parametrize(
    ("failing", "status", "logged"),
    [(_raise, 500, True), (_abort, 401, False), (_failing, 503, False), (_coroutine, 451, False)],
)
@pytest.mark.parametrize("stage", ["pre_request", "pre_upstream", "pre_response"])
def test_a_failing_module_leads_to_error_and_back(
    stage: str, failing: Any, status: int, logged: bool, flush_errors: Callable[..., list[Failure]]
) -> None:
    source = Source()
    world = World(**{**ALL, stage: [failing]})
    if stage == "pre_response":  # once: on the way back it succeeds
        calls: list[int] = []
        world.stages[stage] = [lambda exchange: failing(exchange) if not calls.append(1) and len(calls) == 1 else None]
    world.answer = Response(200, body=Body(source))
    response = world.begin()
    if isinstance(response, Deferred):
        world.clock.advance(1.1)
        (response,) = world.ends
    assert response.status == status
    document = problem(response)
    assert document["status"] == status
    assert document["requestId"] == world.exchange.id
    assert "secret" not in json.dumps(document)
    assert seen(world).count("error") == 1
    assert source.stopped == (stage == "pre_response")
    assert world.exchange.reason is not None
    if failing is _abort:
        assert document["detail"] == "who are you?"
        assert response.headers.get(b"www-authenticate") == b"Basic"
    flush_errors(ValueError)


def test_error_modules_may_answer_and_pre_response_runs_on_it() -> None:
    own = Response(302)
    world = World(pre_request=[_abort], error=[lambda exchange: own], pre_response=[note("pre_response")])
    assert world.begin() is own
    assert isinstance(world.exchange.error, Abort)
    assert seen(world) == ["pre_response"]


@pytest.mark.parametrize("stage", ["error", "pre_response"])
@pytest.mark.parametrize("failing", [_abort, _failing])
def test_a_failure_on_the_way_back_ends_plainly(stage: str, failing: Any) -> None:
    stages: dict[str, Any] = {"pre_request": [_abort], stage: [failing]}
    world = World(**stages)
    response = world.begin()
    if isinstance(response, Deferred):
        world.clock.advance(1.1)
        (response,) = world.ends
    assert response.status == (401 if failing is _abort else 503)
    problem(response)


@pytest.mark.parametrize(
    ("route", "status"),
    [(None, 404), (Abort("offline", CLIENT, 404), 404), (Abort("method", CLIENT, 405), 405), (RuntimeError("x"), 500)],
)
def test_routing_fails(route: Any, status: int, flush_errors: Callable[..., list[Failure]]) -> None:
    world = World(**ALL)
    world.route = route
    assert world.begin().status == status
    assert "error" in seen(world)
    flush_errors(RuntimeError)


def test_routing_may_wait() -> None:
    world, later = World(), Deferred[Any]()
    world.route = lambda: later
    world.begin()
    assert world.ends == []
    later.callback(ROUTE)
    assert world.ends == [world.answer]


@pytest.mark.parametrize("wait", [False, True])
def test_the_upstream_fails(wait: bool) -> None:
    world = World(**ALL)
    abort = Abort("10.0.0.1: refused", UPSTREAM, 502, error="connection_refused", phase=Phase.CONNECT)
    later: Deferred[Any] = Deferred()
    world.answer = (lambda: later) if wait else abort
    response = world.begin()
    if wait:
        later.errback(abort)
        (response,) = world.ends
    assert response.headers.get(b"proxy-status") == b'edge; error=connection_refused; details="upstream connect"'
    assert "10.0.0.1" not in json.dumps(problem(response))
    assert world.exchange.reason is abort


@pytest.mark.parametrize(
    ("target", "authority", "text"),
    [
        (b"/a/%zz", b"a.test", "path"),
        (b"/a/../../b", b"a.test", "path"),
        (b"/", b"a.test:99999", "host"),
        (b"/", b"[::1", "host"),
        (b"/", b"user@a.test", "host"),
    ],
)
def test_what_cannot_be_named_is_malformed_but_seen(target: bytes, authority: bytes, text: str) -> None:
    world = World(**ALL)
    request = world.request(target=target)
    request.authority = authority
    response = world.begin(request)
    assert response.status == 400
    assert text in problem(response)["detail"]
    assert seen(world) == ["pre_request", "error", "pre_response"]
    assert world.asked == []


def test_malformed_requests_are_seen_and_answered() -> None:
    world = World(**ALL)
    request = world.request()
    request.malformed = Abort("header too long", CLIENT, 431)
    assert world.begin(request).status == 431
    assert seen(world) == ["pre_request", "error", "pre_response"]


@pytest.mark.parametrize(("method", "target"), [(b"OPTIONS", b"*"), (b"CONNECT", b"")])
def test_targets_without_a_path(method: bytes, target: bytes) -> None:
    world = World()
    assert world.begin(world.request(method, target)) is world.answer
    assert world.exchange.request.path == target.decode()


def test_path_policy_reject() -> None:
    world = World()
    world.reject = True
    assert world.begin(world.request(target=b"/a//b")).status == 400
    assert world.begin(world.request(target=b"/a/b?c=//")).status == 200


def test_bodies_are_limited_by_length_and_by_counting() -> None:
    world = World()
    world.body = 10
    assert world.begin(world.request(b"POST", body=Whole(b"x" * 11))).status == 413
    assert world.begin(world.request(b"POST", body=Whole(b"x" * 10))).status == 200
    body = Body(Source())
    world.begin(world.request(b"POST", body=body))
    sink = Sink(world.asked[-1].body)
    body.write(b"x" * 11)
    assert sink.end is not None
    assert sink.end[1].status == 413
    tunnel = Body(Source())
    world.begin(world.request(b"GET", body=tunnel, upgrade=b"websocket"))
    assert world.asked[-1].body is tunnel


# -- cancel, guard, end


def test_a_client_that_left_is_never_revived() -> None:
    cancelled: list[Any] = []
    world = World(**ALL)
    world.answer = lambda: Deferred(cancelled.append)
    answer = world.begin()
    world.exchange.request.gone = CLIENT_GONE
    answer.cancel()
    assert len(cancelled) == 1
    assert world.ends[0].check(CancelledError)
    world.exchange.closed(CLIENT_GONE)
    assert seen(world) == ["pre_request", "pre_upstream", "post_response"]
    assert world.records[0].reason is CLIENT_GONE


def test_a_module_that_swallows_the_cancel_changes_nothing() -> None:
    later: Deferred[Any] = Deferred(lambda d: d.callback(None))
    world = World(pre_request=[lambda exchange: later], error=[note("error")])
    answer = world.begin()
    world.exchange.request.gone = CLIENT_GONE
    answer.cancel()
    assert world.asked == []
    assert isinstance(world.ends[0], Failure)
    assert seen(world) == []


def test_an_answer_faster_than_the_cancel_is_stopped() -> None:
    source = Source()
    later: Deferred[Any] = Deferred(lambda d: d.callback(Response(200, body=Body(source))))
    world = World()
    world.answer = lambda: later
    answer = world.begin()
    gone = world.exchange.request.gone = Abort("the client left", CLIENT, 499)
    answer.cancel()
    assert source.stopped
    assert world.ends[0].value is gone
    assert gone.__traceback__ is None, "codecs have one for all, which would grow"


def test_a_cancel_that_nobody_asked_for_is_an_error() -> None:
    later: Deferred[Any] = Deferred()
    world = World()
    world.answer = lambda: later
    world.begin()
    later.errback(CancelledError())
    assert world.ends[0].status == 500


def test_the_guard_answers_while_something_waits() -> None:
    world = World(**ALL)
    world.total = 5.0
    world.answer = Deferred
    world.begin()
    world.clock.advance(4.9)
    assert world.ends == []
    world.clock.advance(0.2)
    (response,) = world.ends
    assert response.status == 500
    assert problem(response)["title"] == "Async-Timeout-Processing"
    assert response.headers.get(b"proxy-status") == b'edge; error=proxy_internal_error; details="gateway total"'
    assert world.counted == ["total_timeout"]
    world.exchange.closed(None)
    assert seen(world) == ["pre_request", "pre_upstream", "error", "pre_response", "post_response"]
    assert len(world.records) == 1


def test_the_guard_answers_over_a_module_that_swallows_its_cancel() -> None:
    world = World(pre_request=[lambda exchange: Deferred(lambda d: d.callback(None))])
    world.total = 1.0
    world.begin()
    world.clock.advance(1.1)
    assert world.ends[0].status == 500


def test_the_guard_cuts_a_response_under_way() -> None:
    source = Source()
    world = World()
    world.total = 5.0
    body = Body(source)
    world.answer = Response(200, body=body)
    response = world.begin()
    sink = Sink(response.body)
    body.write(b"some")
    world.clock.advance(5.1)
    assert sink.data == b"some"
    assert sink.end is not None
    assert sink.end[1].phase is Phase.TOTAL
    assert source.stopped
    world.exchange.closed(sink.end[1])
    assert world.records[0].reason is sink.end[1]


def test_the_guard_leaves_tunnels_and_finished_exchanges_alone() -> None:
    world = World()
    world.total = 5.0
    body = Body(Source())
    world.answer = Response(101, body=body)
    assert world.begin(world.request(upgrade=b"websocket")).body is body
    world.clock.advance(6)
    assert world.counted == []
    world.answer = Response(204)
    world.begin()
    world.exchange.closed(None)
    world.clock.advance(6)
    assert world.counted == []


def test_post_response_may_wait_and_fail_and_answer(flush_errors: Callable[..., list[Failure]]) -> None:
    source, later = Source(), Deferred[Any]()
    world = World(post_response=[lambda exchange: later])
    world.begin()
    world.exchange.closed(None)
    assert world.records == []
    later.callback(Response(200, body=Body(source)))
    assert source.stopped
    assert len(world.records) == 1

    world = World(post_response=[_raise])
    world.begin()
    world.exchange.closed(None)
    assert len(world.records) == 1

    world = World(post_response=[lambda exchange: Response(200, body=Body(source))])
    world.begin()
    world.exchange.closed(None)
    assert len(world.records) == 1

    world = World(post_response=[_failing])
    world.begin()
    world.exchange.closed(None)
    world.clock.advance(1.1)
    assert len(world.records) == 1
    assert [failure.type for failure in flush_errors(ValueError, Abort)] == [ValueError]


def test_a_failure_after_the_head_is_the_reason_in_the_record() -> None:
    world, broken = World(), Abort("cut", UPSTREAM, 502)
    world.begin()
    world.exchange.closed(broken)
    assert world.exchange.reason is broken
    world.answer = Abort("first", UPSTREAM, 503)
    world.begin()
    world.exchange.closed(CLIENT_GONE)  # left while the problem was sent: the first reason stays
    assert world.exchange.reason is world.answer


def test_ids_and_traces() -> None:
    world = World()
    world.begin()
    first = world.exchange.id
    assert len(first) == 32
    assert world.exchange.id == first
    assert world.exchange.trace == first
    trace = b"0af7651916cd43dd8448eb211c80319c"
    for header, expected in ((b"00-" + trace + b"-b7ad6b7169203331-01", trace), (b"00-zz-1-01", None)):
        world.begin(world.request(headers=[(b"traceparent", header)]))
        assert world.exchange.trace == (expected.decode() if expected else world.exchange.id)
    assert world.exchange.id != first
    assert world.exchange.gateway.zone == "PRO"
    assert world.exchange.noted is None


def due(world: World, seconds: float, **more: Any) -> Request:
    """A request whose client waits for so many seconds."""
    request = world.request(**more)
    request.deadline = world.clock.seconds() + seconds
    return request


def test_the_deadline_of_a_client_ends_what_waits_with_504() -> None:
    world = World(**ALL)
    given_up: list[Any] = []
    world.answer = lambda: Deferred(given_up.append)
    world.begin(due(world, 2.0))
    world.clock.advance(1.9)
    assert world.ends == []
    world.clock.advance(0.2)
    (response,) = world.ends
    assert (response.status, len(given_up)) == (504, 1)
    assert problem(response)["detail"] == "deadline exceeded"
    assert response.headers.get(b"proxy-status") == b'edge; error=http_response_timeout; details="gateway deadline"'
    assert world.counted == ["deadline_exceeded"]
    world.exchange.closed(None)
    assert seen(world) == ["pre_request", "pre_upstream", "error", "pre_response", "post_response"]
    assert len(world.records) == 1


@pytest.mark.parametrize(
    ("marks", "who"),
    [
        ({}, GATEWAY),
        ({"connected": 1.0, "uploaded": 1.0}, UPSTREAM),
        ({"connected": 1.0}, CLIENT),
        ({"connected": 1.0, "uploaded": 1.0, "answered": 1.0}, GATEWAY),
    ],
)
def test_a_deadline_names_who_was_waited_for(marks: dict[str, float], who: Who) -> None:
    world = World()
    world.answer = Deferred
    world.begin(due(world, 2.0))
    for mark, at in marks.items():
        setattr(world.exchange.ledger, mark, at)
    world.clock.advance(2.1)
    reason = world.exchange.reason
    assert reason is not None
    assert (reason.who, reason.phase, reason.status) == (who, Phase.DEADLINE, 504)


@pytest.mark.parametrize(("total", "deadline", "status"), [(3.0, 2.0, 504), (2.0, 3.0, 500), (2.0, 2.0, 504)])
def test_of_total_and_deadline_the_earlier_one_holds(total: float, deadline: float, status: int) -> None:
    world = World()
    world.total = total
    world.answer = Deferred
    world.begin(due(world, deadline))
    world.clock.advance(1.9)
    assert world.ends == []
    world.clock.advance(0.2)
    assert world.ends[0].status == status


def test_a_deadline_that_is_over_already_ends_what_waits() -> None:
    world = World()
    world.answer = Deferred
    world.begin(due(world, -1.0))
    world.clock.advance(0.1)
    assert world.ends[0].status == 504


def test_a_deadline_cuts_a_response_under_way_but_no_tunnel() -> None:
    world = World()
    body = Body(Source())
    world.answer = Response(200, body=body)
    sink = Sink(world.begin(due(world, 2.0)).body)
    body.write(b"some")
    world.clock.advance(2.1)
    assert sink.data == b"some"
    assert sink.end is not None
    assert (sink.end[1].phase, sink.end[1].status) == (Phase.DEADLINE, 504)
    world.exchange.closed(sink.end[1])
    tunnel = Body(Source())
    world.answer = Response(101, body=tunnel)
    assert world.begin(due(world, 2.0, upgrade=b"websocket")).body is tunnel
    world.clock.advance(3)
    assert world.counted == ["deadline_exceeded"]


@pytest.mark.parametrize(
    ("value", "before", "deadline"),
    [
        (b"1500", None, 1.5),
        (b"1500", 9.0, 1.5),
        (b"1500", 1.0, 1.0),
        (b"9999999999", None, 9999999.999),
        (b"0", None, None),
        (b"-1", 9.0, 9.0),
        (b"1.5", None, None),
        (b"10000000000", None, None),
        ("１".encode(), None, None),
    ],
)
def test_a_deadline_in_a_field_of_the_listener_is_taken_out(
    value: bytes, before: float | None, deadline: float | None
) -> None:
    world = World()
    world.deadlines = {"web": b"x-wait"}
    request = world.request(headers=[(b"a", b"1"), (b"x-wait", value)])
    request.deadline = before
    world.begin(request)
    assert request.headers.get(b"x-wait") is None
    assert request.deadline == (None if deadline is None else pytest.approx(deadline))
    assert world.counted == ["invalid_deadline"] * (value not in (b"1500", b"9999999999"))


def test_a_field_of_another_listener_is_no_deadline() -> None:
    world = World()
    world.deadlines = {"other": b"x-wait"}
    request = world.request(headers=[(b"x-wait", b"1500")])
    world.begin(request)
    assert (request.headers.get(b"x-wait"), request.deadline) == (b"1500", None)
    world.deadlines = {"web": b"x-wait"}
    bare = world.request()
    world.begin(bare)
    assert bare.deadline is None


@pytest.mark.interpreted(reason="has a weak reference to a compiled Exchange")
@pytest.mark.parametrize("wait", [False, True])
def test_reference_counting_frees_an_exchange(wait: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        world = World(**ALL)
        world.total = 9.0
        later: Deferred[Any] = Deferred()
        if wait:
            world.answer = lambda: later
        world.begin()
        if wait:
            later.callback(Response(200))
        world.exchange.closed(None)
        request = world.exchange.request
        request.closed = print  # what the server codec does
        watch = weakref.ref(world.exchange)
        world.records.clear()
        world.asked.clear()
        del world.exchange, world.result, request
        if wait:
            del world.ends
            del later
            world.answer = None
        assert watch() is None
    finally:
        gc.enable()


def _refuse(exchange: Exchange) -> None:
    try:
        raise ValueError("inside")
    except ValueError:
        raise Abort("no", CLIENT, 403) from None


async def _refuse_later(exchange: Exchange) -> None:
    _refuse(exchange)


@pytest.mark.interpreted(reason="has a weak reference to a compiled Exchange")
@pytest.mark.parametrize("refuse", [_refuse, _refuse_later])
@pytest.mark.parametrize("stage", ["pre_request", "pre_upstream", "pre_response"])
def test_reference_counting_frees_one_that_was_refused(stage: str, refuse: Any) -> None:
    """Whoever is refused ten thousand times a second must leave no work to the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        world = World(**{stage: [refuse]})
        world.begin()
        assert world.exchange.response is not None
        assert world.exchange.response.status == 403
        world.exchange.closed(None)
        world.exchange.request.closed = print
        watch = weakref.ref(world.exchange)
        world.records.clear()
        world.asked.clear()
        if isinstance(world.result, Deferred):
            del world.ends
        del world.exchange, world.result
        assert watch() is None
    finally:
        gc.enable()


def test_every_final_response_has_a_date() -> None:
    world = World()
    response = world.begin()
    assert parsedate_to_datetime(response.headers.get(b"date").decode()).tzname() == "UTC"
    world.answer = Response(200, [(b"date", b"then")])
    assert world.begin().headers.all(b"date") == [b"then"]
    world.answer = Response(101, body=Body(Source()))
    assert world.begin(world.request(upgrade=b"websocket")).headers.get(b"date") is None


@pytest.mark.parametrize("last", [Response(403), RuntimeError("broken")])
def test_what_is_answered_in_place_of_a_response_has_a_date_too(
    last: Any, flush_errors: Callable[..., list[Failure]]
) -> None:
    world = World(pre_response=[lambda exchange: _value(last)])
    assert world.begin().headers.get(b"date") is not None
    flush_errors(RuntimeError)


@pytest.mark.parametrize(
    ("method", "value", "status", "sent"),
    [
        (b"OPTIONS", b"0", 204, None),
        (b"TRACE", b"0", 501, None),
        (b"OPTIONS", b"1", 200, b"0"),
        (b"TRACE", b"010", 200, b"9"),
        (b"OPTIONS", b"x", 200, b"x"),
        (b"GET", b"0", 200, b"0"),
    ],
)
def test_max_forwards_is_counted_down(method: bytes, value: bytes, status: int, sent: bytes | None) -> None:
    world = World()
    assert world.begin(world.request(method, headers=[(b"max-forwards", value)])).status == status
    assert [request.headers.get(b"max-forwards") for request in world.asked] == ([] if sent is None else [sent])


@pytest.mark.interpreted(reason="sets globals of a compiled module")
def test_the_memory_of_proper_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known: set[bytes] = set()
    monkeypatch.setattr("protogate.exchange.exchange.KNOWN", 3)
    monkeypatch.setattr("protogate.exchange.exchange._proper", known)
    world = World()
    for number in range(10):
        request = world.request()
        request.authority = b"host-%d.test" % number
        assert world.begin(request).status == 200
        assert request.authority in known
        assert len(known) <= 3
    known.clear()
    request = world.request()
    request.authority = b"a" * (LONGEST + 1)
    assert world.begin(request).status == 200
    assert not known


def promising(exchange: Exchange) -> None:
    exchange.fields.append((b"x-promised", b"1"))


def answering(exchange: Exchange) -> Response:
    return Response(200)


@pytest.mark.parametrize("later", [None, answering, _raise, _abort])
@pytest.mark.parametrize("upstream", [Response(204), Abort("no", UPSTREAM, 502)])
def test_fields_that_a_module_promised_are_in_whatever_is_answered(
    later: Any, upstream: Any, flush_errors: Callable[..., list[Failure]]
) -> None:
    world = World(pre_request=[promising], pre_response=[] if later is None else [later])
    world.answer = upstream
    response = world.begin()
    assert response.headers.all(b"x-promised") == [b"1"]
    flush_errors()


def noting(name: str, seen: list[tuple[str, int]], answer: Response | None = None) -> Callable[[Exchange], None]:
    """A module that wants to see what is answered."""

    def see(exchange: Exchange) -> Response | None:
        assert exchange.response is not None
        seen.append((name, exchange.response.status))
        return answer

    return lambda exchange: exchange.upon(see)


def test_who_wants_to_sees_the_answer_and_gives_another_one_the_last_who_asked_first() -> None:
    seen: list[tuple[str, int]] = []
    other = Response(203)
    world = World(
        pre_request=[noting("first", seen), noting("second", seen, other)],
        pre_response=[lambda exchange: exchange.response.headers.append((b"x-last", b"1"))],
    )
    world.answer = Response(204)
    assert world.begin() is other
    assert seen == [("second", 204), ("first", 203)]
    assert other.headers.get(b"date")
    assert other.headers.get(b"x-last") == b"1"


def test_failures_are_answers_too_and_what_fails_behind_is_seen_again(
    flush_errors: Callable[..., list[Failure]],
) -> None:
    seen: list[tuple[str, int]] = []
    world = World(pre_request=[noting("it", seen)], pre_response=[_raise])
    world.answer = Abort("no", UPSTREAM, 502)
    assert world.begin().status == 500
    assert seen == [("it", 502)]
    world = World(pre_request=[noting("it", seen)], pre_response=[_raise])
    world.answer = Response(200)
    assert world.begin().status == 500
    assert seen[1:] == [("it", 200), ("it", 500)]
    flush_errors()


def test_who_fails_to_see_the_answer_has_failed_it(flush_errors: Callable[..., list[Failure]]) -> None:
    world = World(pre_request=[lambda exchange: exchange.upon(_raise)])
    world.answer = Response(200)
    assert world.begin().status == 500
    flush_errors()


def test_what_is_to_be_done_afterwards_is_done_once_and_first(flush_errors: Callable[..., list[Failure]]) -> None:
    done: list[str] = []
    made: list[Exchange] = []

    def module(exchange: Exchange) -> None:
        made.append(exchange)
        exchange.after(lambda: 1 // 0)
        exchange.after(lambda: done.append("after"))

    def last(exchange: Exchange) -> None:
        done.append("post")

    world = World(pre_request=[module], post_response=[last])
    world.clock.advance(1)
    world.begin()
    assert done == []
    world.exchange.closed(None)
    assert done == ["after", "post"]
    assert [failure.type for failure in flush_errors(ZeroDivisionError)] == [ZeroDivisionError]
    made[0].after(lambda: done.append("late"))
    assert done == ["after", "post", "late"], "who comes too late is not forgotten"


def asking(name: str, seen: list[tuple[str, int]], answer: Response | None = None) -> Callable[[Exchange], None]:
    """A module that wants to have the upstream asked through it."""

    def ask(exchange: Exchange, ask: Callable[[], Any]) -> Any:
        seen.append((name, len(exchange.request.headers.all(b"via"))))
        return ask() if answer is None else answer

    return lambda exchange: exchange.through(ask)


def test_the_upstream_is_asked_through_those_who_want_to_be_in_between_the_last_is_next_to_it() -> None:
    seen: list[tuple[str, int]] = []
    world = World(pre_request=[asking("first", seen)], pre_upstream=[asking("second", seen)])
    world.answer = Response(200, protocol="HTTP/1.1")
    assert world.begin().headers.get(b"via") == b"1.1 edge"
    assert seen == [("first", 1), ("second", 1)]
    assert len(world.asked) == 1


def test_one_in_between_may_answer_by_itself_and_that_is_no_answer_of_an_upstream() -> None:
    seen: list[tuple[str, int]] = []
    world = World(pre_upstream=[asking("it", seen, Response(203))])
    assert world.begin().headers.get(b"via") is None
    assert world.asked == []


def test_what_one_in_between_waits_for_ends_with_the_client() -> None:
    world = World(pre_upstream=[asking("it", [])])
    cancelled: list[Any] = []
    world.answer = Deferred(cancelled.append)
    world.begin()
    world.exchange.request.gone = CLIENT_GONE
    world.result.cancel()
    assert len(cancelled) == 1
    assert world.ends[0].check(CancelledError)
