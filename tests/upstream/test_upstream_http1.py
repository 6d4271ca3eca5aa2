"""Upstreams behind the real HTTP/1 codec, on memory connections: what reaches an upstream, and what a caller gets."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from fake_upstream import FakeSink, Outcome, ask

from protogate.body import Body
from protogate.config import model
from protogate.message import Request
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Do, Expect, Script, Upstream
from protogate.upstream.cluster import Cluster
from protogate.upstream.means import Means
from protogate.upstream.pool import Stats
from protogate.upstream.resolver import Resolver
from protogate.wheel import Wheel
from protogate_http.http1 import Http1

HEAD = Expect(b"\r\n\r\n")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Source:
    """Where a request body comes from."""

    stopped = paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.stopped = True


class Bench:
    """One upstream of one connection per endpoint; each endpoint plays its scripts."""

    def __init__(self, *endpoints: tuple[Script, ...], most: int = 1, **timeouts: float) -> None:
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor)
        self.servers: list[Upstream] = []
        urls = []
        for number, scripts in enumerate(endpoints, 1):
            server = Upstream(*scripts)
            self.servers.append(server)
            if scripts:
                self.reactor.listenTCP(80, server, interface=f"192.0.2.{number}")
            urls.append(model.Endpoint(url=f"http://192.0.2.{number}"))
        names: Any = Names()
        resolver = Resolver(self.wheel, names, hosts="/nonexistent")
        means = Means(reactor=self.reactor, wheel=self.wheel, resolver=resolver, random=Random(1))
        given = model.UpstreamTimeouts(**{name: model.Seconds(value) for name, value in timeouts.items()})
        config = model.Upstream(
            name="up", endpoints=tuple(urls), pool=model.PoolSettings(max_per_endpoint=most), timeouts=given
        )
        self.cluster = Cluster.named(config, model.Gateway(), Http1(), means)

    def ask(self, method: bytes = b"GET", body: Any = None) -> tuple[Request, Outcome]:
        request = ask(method, body)
        outcome = Outcome(self.cluster.handle(request))
        self.reactor.run()
        return request, outcome

    def done(self) -> None:
        """Nothing is left behind."""
        stopped: list[None] = []
        self.cluster.drain().addCallback(stopped.append)
        self.reactor.advance(80)
        assert stopped == [None]
        assert not self.reactor.clock.getDelayedCalls()

    def read(self, outcome: Outcome) -> bytes:
        """Take the body of an answer."""
        assert outcome.response is not None
        sink = FakeSink()
        body = outcome.response.body
        if body is not None:
            body.attach(sink)  # type: ignore[arg-type]
        self.reactor.run()
        return sink.data


def test_one_connection_serves_many_requests_and_is_closed_when_idle() -> None:
    bench = Bench(((HEAD, OK),))
    for _ in range(3):
        _, outcome = bench.ask()
        assert outcome.status == 200
        assert bench.read(outcome) == b"ok"
    assert len(bench.servers[0].connections) == 1
    bench.reactor.advance(31)
    assert bench.servers[0].connections[0].eof
    assert bench.cluster.stats() == {"192.0.2.1:80": Stats(0, 0, 0, 0)}
    bench.done()


@pytest.mark.parametrize("how", [Do.CLOSE, Do.RESET, Do.FIN])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_an_idle_connection_that_dies_just_as_it_is_used(how: Do, method: bytes) -> None:
    bench = Bench(((HEAD, OK, HEAD, how), (HEAD, OK)))
    _, first = bench.ask()
    assert bench.read(first) == b"ok"
    request, outcome = bench.ask(method)
    if method == b"GET":
        assert bench.read(outcome) == b"ok"
        assert request.ledger is not None
        assert (request.ledger.attempts, request.ledger.reused) == (2, False)
    else:
        assert (outcome.reason.status, outcome.reason.error) == (502, "connection_terminated")
    assert len(bench.servers[0].connections) == (2 if method == b"GET" else 1)
    bench.done()


def test_an_idle_connection_that_died_before_it_was_used_costs_nothing() -> None:
    bench = Bench(((HEAD, OK, Do.CLOSE), (HEAD, OK)))
    _, first = bench.ask()
    assert bench.read(first) == b"ok"
    request, second = bench.ask(b"POST")
    assert second.status == 200
    assert request.ledger is not None
    assert request.ledger.attempts == 1
    bench.done()


def test_part_of_an_answer_is_never_asked_for_again() -> None:
    bench = Bench(((HEAD, OK, HEAD, b"HTTP/1.1 2", Do.CLOSE), (HEAD, OK)))
    bench.read(bench.ask()[1])
    _, outcome = bench.ask()
    assert outcome.reason.status == 502
    assert len(bench.servers[0].connections) == 1
    bench.done()


def test_an_upload_to_a_dead_old_connection_is_sent_again_whole() -> None:
    bench = Bench(((HEAD, OK, HEAD, Do.RESET), (HEAD, Expect(b"0\r\n\r\n"), OK)))
    bench.read(bench.ask()[1])
    source = Source()
    body = Body(source)  # type: ignore[arg-type]
    body.write(b"first ")
    request = ask(b"PUT", body)
    outcome = Outcome(bench.cluster.handle(request))
    bench.reactor.run()
    body.write(b"second")
    body.finish()
    bench.reactor.run()
    assert bench.read(outcome) == b"ok"
    received = bench.servers[0].connections[1].received
    assert b"first " in received
    assert b"second" in received
    assert received.endswith(b"0\r\n\r\n")
    bench.done()


def test_a_post_goes_to_the_next_endpoint_when_the_first_refuses_with_its_body_untouched() -> None:
    bench = Bench((), ((HEAD, Expect(b"x" * 20_000), OK),))
    for _ in range(2):  # whichever is first
        body = Body(Source(), 20_000)  # type: ignore[arg-type]
        body.write(b"x" * 4_000)
        _, outcome = bench.ask(b"POST", body)
        body.write(b"x" * 16_000)
        body.finish()
        bench.reactor.run()
        assert bench.read(outcome) == b"ok"
    for received in bench.servers[1].received:
        assert received.count(b"POST / HTTP/1.1") == received.count(b"x" * 20_000) >= 1
    bench.done()


EXITS: dict[str, Script] = {
    "answer": (HEAD, OK),
    "close": (HEAD, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok", Do.CLOSE),
    "server error": (HEAD, b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"),
    "garbage": (HEAD, b"what?\r\n\r\n"),
    "interim and gone": (HEAD, b"HTTP/1.1 103 Early Hints\r\n\r\n", Do.CLOSE),
    "cut short": (HEAD, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", Do.CLOSE),
    "reset": (HEAD, Do.RESET),
    "silence": (HEAD, Do.SILENCE),
    "unsolicited": (HEAD, OK + OK),
}


def check_room(bench: Bench) -> None:
    """The one place of the pool is free: a normal request succeeds at once."""
    _, following = bench.ask()
    assert following.status == 200
    bench.read(following)
    (stats,) = bench.cluster.stats().values()
    assert (stats.open, stats.idle, stats.waiting, stats.connecting) == (1, 1, 0, 0)
    bench.done()


@pytest.mark.parametrize("leave", EXITS)
def test_with_one_connection_every_exit_leaves_room_for_the_next_request(leave: str) -> None:
    again: Script = (HEAD, OK) if leave != "server error" else (*EXITS[leave], HEAD, OK)
    bench = Bench((again if leave == "server error" else EXITS[leave], (HEAD, OK)))
    _, outcome = bench.ask()
    if leave == "silence":
        bench.reactor.advance(31)
        assert (outcome.reason.status, outcome.reason.error) == (504, "http_response_timeout")
    assert outcome.times == 1
    if outcome.response is not None:
        bench.read(outcome)
    check_room(bench)


def test_so_does_a_request_that_is_cancelled_while_it_waits() -> None:
    bench = Bench(((HEAD, OK),))
    outcome = Outcome(bench.cluster.handle(ask()))
    outcome.cancel()
    assert outcome.times == 1
    check_room(bench)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-le"])
@pytest.mark.parametrize("method", [b"GET", b"PUT"])
def test_so_does_a_request_that_is_cancelled_before_its_answer(said: bytes, method: bytes) -> None:
    bench = Bench(((HEAD, said or Do.SILENCE, *((Do.SILENCE,) if said else ())), (HEAD, OK)))
    source = Source()
    _, outcome = bench.ask(method, Body(source) if method == b"PUT" else None)  # type: ignore[arg-type]
    assert outcome.open
    outcome.cancel()
    assert outcome.times == 1
    assert source.stopped is (method == b"PUT")
    bench.reactor.run()
    check_room(bench)


def test_a_body_nobody_wants_frees_the_connection() -> None:
    bench = Bench(((HEAD, b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nok"), (HEAD, OK)))
    _, outcome = bench.ask()
    assert outcome.response is not None
    assert outcome.response.body is not None
    outcome.response.body.stopProducing()
    bench.reactor.run()
    _, following = bench.ask()
    assert bench.read(following) == b"ok"
    bench.done()


def test_requests_wait_for_the_one_connection_in_their_order() -> None:
    bench = Bench(((HEAD, OK),))
    outcomes = [Outcome(bench.cluster.handle(ask())) for _ in range(20)]
    bench.reactor.run()
    for outcome in outcomes:
        assert bench.read(outcome) == b"ok"
    assert len(bench.servers[0].connections) == 1
    bench.done()


def test_an_upstream_that_does_not_accept_is_a_504_of_the_connect_phase() -> None:
    bench = Bench(((HEAD, OK),), connect=2.0)
    bench.reactor.silent.add(("192.0.2.1", 80))
    _, outcome = bench.ask()
    bench.reactor.advance(2.2)
    assert (outcome.reason.status, outcome.reason.error) == (504, "connection_timeout")
    bench.done()
