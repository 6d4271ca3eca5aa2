"""circuitBreaker: who is refused, for how long, and what counts; over each codec."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.errors import CLIENT_GONE, UPSTREAM, Abort, departed
from protogate.exchange.exchange import Exchange
from protogate.expression import template
from protogate.governance.circuitbreaker import CircuitBreaker, CircuitBreakerFactory
from protogate.governance.stages import PRE_UPSTREAM
from protogate.interfaces import IStreamCodec
from protogate.message import Response
from protogate.plugins import names
from protogate.testing.bodies import Giver
from protogate.testing.caller import Caller, Got
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect

DOWN = Abort("refused", UPSTREAM, 502, error="connection_refused")


class CircuitBreakerContract(ModuleContract, SynchronousTestCase):
    factory = CircuitBreakerFactory
    good = (
        {},
        {"errorRatio": 0, "consecutive": 3},
        {"latency": "1s", "latencyQuantile": 0.5, "window": "1m", "minRequests": 5},
        {"key": "${request.headers['x-tenant']}", "keys": 10, "open": "1s", "maxOpen": "1s", "probes": 1, "ramp": 0},
        {"key": "all"},
    )
    bad = (
        ({"errorRatio": 50}, "errorRatio"),
        ({"errorRatio": True}, "errorRatio"),
        ({"errorRatio": 0}, ""),
        ({"latency": "1s", "latencyQuantile": 1}, "latencyQuantile"),
        ({"maxOpen": "1s"}, "maxOpen"),
        ({"probes": 0}, "probes"),
        ({"window": "1ms"}, "window"),
        ({"keys": 0}, "keys"),
        ({"scope": "route"}, "scope"),
    )


class Scene:
    """One such module, and what an upstream says to each who is let through."""

    def __init__(self, workers: int = 1, **params: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.counted: Counter[str] = Counter()
        self.workers = workers
        self.module: Any = None
        self.load(**params)

    def load(self, **params: Any) -> None:
        """Put other parameters in force."""
        given = {"minRequests": 10, "ramp": "4s", **params}
        if "${" in str(params.get("key")):
            given["key"] = template.compile(params["key"])
        made = CircuitBreakerFactory().build(given)
        made.start(FakeMeans(counted=self.counted, workers=self.workers), self.module)
        if self.module is not None:
            self.module.stop()
        self.module = made

    def made(self, key: str = "") -> Exchange:
        return exchange(PRE_UPSTREAM, headers=[(b"x-tenant", key.encode())] if key else [], clock=self.clock)

    def begin(self, said: Any, made: Exchange | None = None) -> Any:
        """Have the module guard what an upstream answers."""
        made = self.made() if made is None else made
        self.module.process(made)
        (function,) = made.promised()[2]
        return function(made, lambda: said)

    def ask(self, said: Any, made: Exchange | None = None) -> str:
        """What becomes of it."""
        given = fail(said) if isinstance(said, BaseException) else said
        answer = self.begin(given, made)
        if not isinstance(answer, Deferred):
            return "answered"
        errors: list[Any] = []
        answer.addErrback(errors.append)
        if isinstance(given, Deferred) and given is not answer:
            given.addErrback(lambda _: None)
        reason = errors[0].value if errors else None
        return "refused" if getattr(reason, "detail", "") == "the circuit breaker is open" else "failed"

    def well(self, times: int = 1) -> list[str]:
        return [self.ask(answer(200)) for _ in range(times)]

    def bad(self, times: int = 10) -> list[str]:
        return [self.ask(DOWN) for _ in range(times)]


def answer(status: int, protocol: str = "HTTP/1.1", body: Any = None) -> Response:
    return Response(status, [], body, protocol)


def test_it_opens_and_is_probed_and_closes() -> None:
    scene = Scene()
    with capturedLogs() as logged:
        assert scene.bad() == ["failed"] * 10
        assert scene.well(3) == ["refused"] * 3
        scene.clock.advance(5.0)
        assert scene.well(3) == ["answered"] * 3
        let = scene.well(100)
        assert let.count("answered") == 10
        for _ in range(4):
            scene.clock.advance(1.0)
            scene.well()
        assert scene.well(20) == ["answered"] * 20
    told = [formatEvent(event) for event in logged]
    key = "circuitBreaker 'everything to origin'"
    assert told == [
        f"{key} is open for 5 s: 10 of 10 failed within 10 s (10 gave no answer)",
        f"{key} is probed",
        f"{key} is closed",
    ]
    assert scene.counted["opened"] == scene.counted["probing"] == scene.counted["closed"] == 1
    assert scene.counted["refused_open"] == 3 + 90


def test_who_is_refused_is_told_when_to_come_again() -> None:
    scene = Scene()
    scene.bad()
    scene.clock.advance(2.0)
    made = scene.made()
    got: list[Any] = []
    scene.begin(answer(200), made).addErrback(got.append)
    refusal = got[0].value
    assert (refusal.status, refusal.error, refusal.headers) == (
        503,
        "destination_unavailable",
        [(b"retry-after", b"3")],
    )
    assert refusal.reason.startswith("circuitBreaker everything to origin: the circuit breaker is open: 10 of 10")
    assert made.notes == {"circuitBreaker": "10 of 10 failed within 10 s (10 gave no answer)"}


def test_probes_are_counted_until_they_are_over() -> None:
    scene = Scene(probes=2)
    scene.bad()
    scene.clock.advance(5.0)
    waiting: list[Deferred[Any]] = [Deferred(), Deferred()]
    for each in waiting:
        scene.begin(each)
    assert scene.well() == ["refused"]
    waiting[0].addErrback(lambda _: None)
    waiting[0].errback(CancelledError())
    another: Deferred[Any] = Deferred()
    scene.begin(another)
    assert scene.well() == ["refused"], "the place of one that left, and no other"
    for each in (waiting[1], another):
        each.callback(answer(200))
    assert scene.counted["opened"] == 1
    assert scene.well() == ["answered"]


def test_a_probe_that_fails_opens_it_for_longer() -> None:
    scene = Scene()
    scene.bad()
    for seconds in (5.0, 10.0, 20.0, 40.0, 60.0, 60.0):
        scene.clock.advance(seconds - 0.1)
        assert scene.well() == ["refused"]
        scene.clock.advance(0.2)
        assert scene.ask(answer(500)) == "answered"
        assert scene.well() == ["refused"]
        scene.clock.advance(-0.1)


@pytest.mark.parametrize(
    "said",
    [
        answer(404),
        answer(429),
        CLIENT_GONE,
        CancelledError(),
        Abort("the queue is full", status=503, error="connection_limit_reached"),
        answer(503, ""),
    ],
    ids=["404", "429", "client left", "cancelled", "our own limit", "answer of a module"],
)
def test_what_is_not_the_upstreams_fault_does_not_count(said: Any) -> None:
    """envoy#25487."""
    scene = Scene(consecutive=3)
    for _ in range(100):
        scene.ask(said)
    assert scene.counted["opened"] == 0
    assert scene.bad(3) == ["failed"] * 3


def test_an_answer_that_breaks_off_counts() -> None:
    scene = Scene(errorRatio=0, consecutive=2, minRequests=2)
    for _ in range(2):
        made = scene.made()
        scene.ask(answer(200, body=Whole(b"")), made)
        made.response = Response(200)
        made.closed(departed(True))
    assert scene.counted["opened"] == 0, "each had begun well"
    scene = Scene(errorRatio=0.5, minRequests=4)
    for _ in range(2):
        made = scene.made()
        scene.ask(answer(200, body=Whole(b"")), made)
        made.response = Response(200)
        made.closed(departed(True))
    assert scene.counted["opened"] == 1
    scene = Scene(errorRatio=0.5, minRequests=4)
    for _ in range(4):
        made = scene.made()
        scene.ask(answer(200, body=Whole(b"")), made)
        made.closed(CLIENT_GONE)
    assert scene.counted["opened"] == 0


def test_a_call_that_fails_after_its_head_counts() -> None:
    for status, opened in ((14, 1), (0, 0), (5, 0)):
        scene = Scene(errorRatio=0.5, minRequests=4)
        for _ in range(2):
            made = scene.made()
            said = made.response = answer(200, body=Whole(b"a message"))
            scene.ask(said, made)
            made.ledger.rpc = status
            made.closed(None)
        assert scene.counted["opened"] == opened


def test_one_that_failed_with_its_head_counts_once() -> None:
    scene = Scene(errorRatio=0, consecutive=2)
    made = scene.made()
    giver = Giver([])
    giver.finish([(b"grpc-status", b"14")])
    said = made.response = answer(200, body=giver.body)
    scene.ask(said, made)
    made.ledger.rpc = 14
    made.closed(None)
    assert scene.counted["opened"] == 0
    scene.bad(1)
    assert scene.counted["opened"] == 1


def test_answers_that_take_too_long() -> None:
    scene = Scene(errorRatio=0, latency="500ms", latencyQuantile=0.9)
    waiting: list[Deferred[Any]] = [Deferred() for _ in range(10)]
    for each in waiting:
        scene.begin(each)
    scene.clock.advance(1.0)
    for each in waiting:
        each.callback(answer(200))
    assert scene.counted["opened"] == 1


def test_what_began_before_says_nothing() -> None:
    scene = Scene()
    late: list[Deferred[Any]] = [Deferred() for _ in range(5)]
    for each in late:
        scene.begin(each).addErrback(lambda _: None)
    scene.clock.advance(0.1)
    scene.bad()
    scene.clock.advance(5.0)
    scene.well()
    for each in late:
        each.errback(DOWN)
    assert scene.counted["opened"] == 1
    assert scene.well(2) == ["answered"] * 2


def test_keys_have_breakers_of_their_own() -> None:
    scene = Scene(key="${request.headers['x-tenant']}")
    for _ in range(10):
        scene.ask(DOWN, scene.made("blue"))
    assert scene.ask(answer(200), scene.made("blue")) == "refused"
    assert scene.ask(answer(200), scene.made("green")) == "answered"


def test_so_many_keys_are_remembered_but_one_that_is_open_is_not_forgotten_for_others() -> None:
    scene = Scene(key="${request.headers['x-tenant']}", keys=3)
    for _ in range(10):
        scene.ask(DOWN, scene.made("blue"))
    for number in range(100):
        assert scene.ask(answer(200), scene.made(f"t{number}")) == "answered"
    assert len(scene.module.circuits) == 3
    assert scene.ask(answer(200), scene.made("blue")) == "refused"
    for name in ("red", "white"):
        for _ in range(10):
            scene.ask(DOWN, scene.made(name))
    assert scene.ask(answer(200), scene.made("another")) == "answered"
    assert scene.counted["no_room"] == 1
    assert set(scene.module.circuits) == {"blue", "red", "white"}


def test_a_worker_sees_its_part() -> None:
    scene = Scene(workers=4)
    scene.bad(2)
    assert scene.well() == ["answered"]
    scene = Scene(workers=4)
    scene.bad(3)
    assert scene.well() == ["refused"]


def test_a_reload_keeps_breakers_unless_it_asks_for_other_keys() -> None:
    scene = Scene()
    scene.bad()
    scene.load(open="1s", probes=1)
    assert scene.well() == ["refused"]
    scene.clock.advance(5.0)
    assert scene.ask(answer(500)) == "answered"
    scene.clock.advance(2.0)
    assert scene.well() == ["answered"]
    scene.bad()
    assert scene.well() == ["refused"]
    scene.load(key="all")
    assert scene.well() == ["answered"]


CODECS = tuple(names(IStreamCodec))
LISTENERS = ", ".join(
    f'{{name: {name}, address: "127.0.0.1:{8080 + at}", protocols: [{name}]}}' for at, name in enumerate(CODECS)
)
CONFIG = f"""
listeners: [{LISTENERS}]
upstreams:
  - {{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}
  - {{name: cart, endpoints: [{{url: "http://192.0.2.8:80"}}]}}
routes:
  - {{value: /shop, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}
  - {{value: /cart, matcherType: prefix, routes: [{{targets: [{{upstream: cart}}]}}]}}
modules:
  - {{name: circuitBreaker, actionParam: {{errorRatio: 0, consecutive: 3, open: 5s, probes: 1, ramp: 0}}}}
"""
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("codec", CODECS)
def test_in_a_gateway(codec: str) -> None:
    def ask(gateway: MemoryGateway, path: bytes) -> Got:
        caller = Caller(gateway, codec, codec)
        got = caller.ask(b"GET", path, [], b"")
        caller.close()
        return got

    with MemoryGateway(CONFIG) as gateway:
        scripts = [[Expect(b"\r\n\r\n"), each] for each in (ERROR, ERROR, ERROR, OK, OK)]
        origin = gateway.upstream("192.0.2.7", 80, *scripts)
        gateway.upstream("192.0.2.8", 80, [Expect(b"\r\n\r\n"), OK])
        assert [ask(gateway, b"/shop/a").status for _ in range(3)] == [500] * 3
        got = ask(gateway, b"/shop/a")
        assert got.status == 503
        assert got.headers.get(b"retry-after") == b"5"
        status = got.headers.get(b"proxy-status")
        assert status is None or b"destination_unavailable" in status
        assert ask(gateway, b"/cart/a").status == 200
        assert len(origin.connections) == 3
        gateway.advance(5.1)
        assert [ask(gateway, b"/shop/a").status for _ in range(2)] == [200, 200]
        record = gateway.records[3]
        assert record.notes == {"circuitBreaker": "3 failures in a row"}
        assert record.error is not None
        assert "the circuit breaker is open" in record.error
        counts = gateway.service.counters.scope("module", "circuitBreaker", apart=True).counts
        assert (counts["opened"], counts["refused_open"], counts["closed"]) == (1, 1, 1)


def test_what_falls_back_is_asked_when_it_is_open(tmp_path: Path) -> None:
    """An error like any other: the ERROR stage has it."""
    page = '- {name: errorPage, actionParam: {pages: [{statuses: [503], text: "later"}]}}'
    with MemoryGateway(CONFIG + f"  {page}\n") as gateway:
        gateway.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), ERROR]] * 3)
        request = b"GET /shop HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        for _ in range(3):
            gateway.ask(request, "http1")
        assert gateway.ask(request, "http1").endswith(b"\r\n\r\nlater")


@pytest.mark.parametrize(
    ("order", "give", "status"),
    [(-1, "answer: {text: none}", 200), (1, "answer: {text: none}", 200), (-1, "upstream: cart", 200)],
)
def test_something_else_can_be_given(order: int, give: str, status: int) -> None:
    give = f"{{name: degrade, ruleOrder: {order}, actionParam: {{give: [{give}]}}}}"
    with MemoryGateway(f"{CONFIG}  - {give}\n") as gateway:
        gateway.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), ERROR]] * 3)
        gateway.upstream("192.0.2.8", 80, [Expect(b"\r\n\r\n"), OK])
        request = b"GET /shop HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        assert [int(gateway.ask(request, "http1")[9:12]) for _ in range(4)] == [500, 500, 500, status]


def test_what_it_has_learnt_is_kept_over_a_reload() -> None:
    request = b"GET /shop HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), ERROR]] * 3)
        for _ in range(3):
            gateway.ask(request, "http1")
        assert gateway.reload(CONFIG.replace("open: 5s", "open: 9s"))
        assert gateway.ask(request, "http1").startswith(b"HTTP/1.1 503 ")


def test_it_is_one() -> None:
    assert isinstance(CircuitBreakerFactory().build({}), CircuitBreaker)
