"""Rules of a cluster: endpoints, choice, discovery, retry; on a reactor that connects when a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from fake_upstream import (
    NXDOMAIN,
    SERVFAIL,
    Blunt,
    Codec,
    FakeBody,
    FakeConnection,
    FakeDns,
    FakeSink,
    Outcome,
    Time,
    a,
    aaaa,
    ask,
    lost,
    srv,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet import error
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.discovery.sources import source
from protogate.errors import ALWAYS, CLIENT_GONE, IDEMPOTENT, NEVER, UPSTREAM, Abort, ConfigError, Phase
from protogate.interfaces import IService
from protogate.message import Request, Response
from protogate.plugins import find
from protogate.upstream.cluster import Cluster, merged
from protogate.upstream.means import Means
from protogate.upstream.pool import Stats
from protogate.upstream.resolver import Resolver

GATEWAY = model.Gateway()


def upstream(*urls: str, **more: Any) -> model.Upstream:
    """A configuration; a URL may end in C{=weight}."""
    endpoints = []
    for url in urls:
        where, _, weight = url.partition("=")
        endpoints.append(model.Endpoint(url=f"http://{where}", weight=int(weight or 100)))
    return model.Upstream(name="up", endpoints=tuple(endpoints), **more)


class Bench:
    """
    A cluster whose every dial is answered at once.

    @ivar down: addresses that refuse.
    @ivar slow: addresses that say nothing.
    """

    def __init__(
        self,
        config: model.Upstream | str,
        gateway: model.Gateway = GATEWAY,
        start: bool = True,
        seed: int = 0,
        codec: Any = None,
    ) -> None:
        self.time = Time()
        self.reactor = MemoryReactorClock()
        self.dns = FakeDns()
        self.codec: Any = Codec() if codec is None else codec
        self.down: set[str] = set()
        self.slow: set[str] = set()
        self.dialed: list[str] = []
        self.at: dict[str, list[FakeConnection]] = {}
        plain = self.reactor.connectTCP

        def connect(host: str, port: int, factory: Any, timeout: Any = None) -> Any:
            handle = plain(host, port, factory, timeout)
            self.dialed.append(f"{host}:{port}")
            if host in self.down:
                factory.clientConnectionFailed(handle, Failure(error.ConnectionRefusedError()))
            elif host not in self.slow:
                connection = factory.buildProtocol(IPv4Address("TCP", host, port))
                self.at.setdefault(f"{host}:{port}", []).append(connection)
                connection.makeConnection(StringTransport())
            return handle

        self.reactor.connectTCP = connect  # type: ignore[method-assign]
        self.resolver = Resolver(self.time.wheel, self.dns, self.time.counted.append, "/nonexistent")
        self.means = Means(
            reactor=self.reactor,
            wheel=self.time.wheel,
            resolver=self.resolver,
            count=self.time.counted.append,
            random=Random(seed),
        )
        if isinstance(config, str):
            self.cluster = Cluster.unnamed(config, gateway, self.codec, self.means)
        else:
            self.cluster = Cluster.named(config, gateway, self.codec, self.means, None, source(config, find))
        if start:
            self.cluster.start()

    def ask(self, method: bytes = b"GET", **more: Any) -> tuple[Request, Outcome]:
        request = ask(method, **more)
        return request, Outcome(self.cluster.handle(request))

    @property
    def connections(self) -> list[FakeConnection]:
        return [connection for each in self.at.values() for connection in each]

    def busy(self) -> FakeConnection:
        """The one connection that has a request."""
        (connection,) = [each for each in self.connections if each.asked]
        return connection

    def where(self) -> str:
        """Where that is."""
        connection = self.busy()
        return next(address for address, each in self.at.items() if connection in each)

    def answered(self) -> str:
        """Send a request, answer it; where it went."""
        _, outcome = self.ask()
        where = self.where()
        self.busy().answer()
        assert outcome.status == 200
        return where

    def settled(self) -> bool:
        return all(stats.waiting == 0 and stats.open == stats.idle for stats in self.cluster.stats().values())


# -- choice


def test_it_is_a_service() -> None:
    verifyObject(IService, Bench(upstream("10.0.0.1:80")).cluster)


def test_endpoints_are_used_by_weight() -> None:
    bench = Bench(upstream("10.0.0.1:80=2", "10.0.0.2:80=1", "10.0.0.3:80=0"))
    assert Counter(bench.answered() for _ in range(30)) == {"10.0.0.1:80": 20, "10.0.0.2:80": 10}


def test_the_ledger_says_who_was_asked() -> None:
    bench = Bench(upstream("10.0.0.1:8080"))
    request, _ = bench.ask()
    ledger = request.ledger
    assert ledger is not None
    assert (ledger.attempts, ledger.address, ledger.chosen) == (1, "10.0.0.1:8080", 1000.0)
    assert ledger.connected == 1000.0


def test_a_request_without_a_ledger_gets_one() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    request = ask()
    request.ledger = None
    outcome = Outcome(bench.cluster.handle(request))
    bench.busy().answer()
    assert outcome.status == 200


def test_the_host_is_kept_or_replaced_by_the_endpoints_own() -> None:
    kept, _ = Bench(upstream("10.0.0.1:80")).ask()
    assert kept.authority == b"client.test"
    replaced, _ = Bench(upstream("10.0.0.1:8080", host="endpoint")).ask()
    assert replaced.authority == b"10.0.0.1:8080"
    assert replaced.host == "client.test"
    unnamed = Bench("http://test.ctrip.com:80")
    unnamed.dns.zone = {("A", "test.ctrip.com"): [a("test.ctrip.com", "10.0.0.7")], ("AAAA", "test.ctrip.com"): []}
    request, outcome = unnamed.ask()
    assert request.authority == b"test.ctrip.com"
    assert unnamed.where() == "10.0.0.7:80"
    unnamed.busy().answer()
    assert outcome.status == 200


def test_no_endpoint_is_503_with_retry_after() -> None:
    _, outcome = Bench(upstream("10.0.0.1:80=0")).ask()
    reason = outcome.reason
    assert (reason.status, reason.error, reason.who) == (503, "destination_unavailable", UPSTREAM)
    assert (b"retry-after", b"1") in reason.headers


def test_an_answer_at_once_is_handed_through() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    bench.answered()
    bench.connections[0].handle = lambda request: Response(204)  # type: ignore[method-assign, assignment, return-value]
    answer = bench.cluster.handle(ask())
    assert isinstance(answer, Response)
    kept = ask(b"PUT", FakeBody(5))
    inner = kept.body
    assert isinstance(bench.cluster.handle(kept), Response)
    assert kept.body is inner


# -- retry


def test_a_request_that_could_not_be_sent_goes_to_another_endpoint() -> None:
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80"))
    bench.down = {"10.0.0.1"}
    for _ in range(4):
        request, outcome = bench.ask(b"POST", body=FakeBody())
        assert bench.where() == "10.0.0.2:80"
        assert request.ledger is not None
        assert request.ledger.address == "10.0.0.2:80"
        bench.busy().answer()
        assert outcome.status == 200
    assert "10.0.0.1:80" in bench.dialed


def test_even_one_of_little_weight_is_tried_but_never_one_of_none() -> None:
    bench = Bench(upstream("10.0.0.1:80=1000", "10.0.0.2:80=1", "10.0.0.3:80=0"))
    bench.down = {"10.0.0.1"}
    _, outcome = bench.ask()
    assert bench.where() == "10.0.0.2:80"
    bench.busy().answer()
    assert outcome.status == 200
    bench.down = {"10.0.0.1", "10.0.0.2"}
    bench.connections[0].lose()
    _, outcome = bench.ask()
    assert outcome.reason.error == "connection_refused"
    assert "10.0.0.3:80" not in bench.dialed


def test_attempts_are_bounded() -> None:
    bench = Bench(upstream(*(f"10.0.0.{number}:80" for number in range(1, 9))))
    bench.down = {f"10.0.0.{number}" for number in range(1, 9)}
    request, outcome = bench.ask()
    assert (outcome.reason.status, outcome.reason.error, outcome.reason.who) == (502, "connection_refused", UPSTREAM)
    assert len(bench.dialed) == len(set(bench.dialed)) == 3
    assert request.ledger is not None
    assert request.ledger.attempts == 3


def test_an_endpoint_that_refuses_is_not_tried_twice() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    bench.down = {"10.0.0.1"}
    _, outcome = bench.ask()
    assert outcome.reason.error == "connection_refused"
    assert bench.dialed == ["10.0.0.1:80"]


def reused(*urls: str) -> Bench:
    """Every endpoint has one idle connection that has served before."""
    bench = Bench(upstream(*(urls or ("10.0.0.1:80",))))
    while len(bench.connections) < max(len(urls), 1):
        bench.answered()
    return bench


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"])
def test_an_old_connection_that_died_costs_nobody_an_idempotent_request(method: bytes) -> None:
    bench = reused()
    old = bench.connections[0]
    request, outcome = bench.ask(method)
    bench.time.clock.advance(2)
    old.lose()
    new = bench.busy()
    assert new is not old
    assert request.ledger is not None
    assert request.ledger.chosen == request.ledger.connected == 1002.0
    assert not request.ledger.reused
    new.answer()
    assert outcome.status == 200
    assert request.ledger.attempts == 2


def test_that_happens_once_only() -> None:
    bench = reused()
    _, outcome = bench.ask()
    bench.busy().lose()
    bench.busy().lose()
    assert outcome.reason.retry is IDEMPOTENT
    assert len(bench.connections) == 2


def test_a_new_connection_that_died_says_something_about_the_request() -> None:
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80"))
    _, outcome = bench.ask()
    bench.busy().lose()
    assert outcome.reason.error == "connection_terminated"
    assert len(bench.connections) == 1


@pytest.mark.parametrize("method", [b"POST", b"PATCH", b"get", b"CONNECT"])
def test_other_methods_are_not_sent_again_once_they_were_sent(method: bytes) -> None:
    bench = reused()
    _, outcome = bench.ask(method)
    bench.busy().lose()
    assert outcome.reason.retry is IDEMPOTENT
    assert len(bench.connections) == 1


def test_an_upgrade_is_not_sent_again_once_it_was_sent() -> None:
    bench = reused()
    request = ask()
    request.upgrade = b"websocket"
    request.body = FakeBody()
    inner = request.body
    outcome = Outcome(bench.cluster.handle(request))
    assert request.body is inner
    bench.busy().lose()
    assert outcome.reason.retry is IDEMPOTENT


def test_what_was_answered_in_part_is_not_sent_again() -> None:
    bench = reused()
    _, outcome = bench.ask()
    bench.busy().lose(lost(NEVER))
    assert outcome.reason.retry is NEVER


def test_what_was_refused_unread_goes_to_another_endpoint_or_a_fresh_connection_three_times_at_most() -> None:
    unread = Abort("refused stream", UPSTREAM, 502, ALWAYS)
    bench = reused("10.0.0.1:80", "10.0.0.2:80")
    _, outcome = bench.ask(b"POST")
    first = bench.where()
    bench.busy().refuse(unread)
    assert bench.where() != first
    bench.busy().refuse(unread)
    bench.time.pass_by(0.1)  # at once but for the first
    assert len(bench.connections) == 3
    bench.busy().refuse(unread)
    assert outcome.reason is unread
    alone = reused()
    _, outcome = alone.ask(b"POST")
    for _ in range(3):
        alone.busy().refuse(unread)
        alone.time.pass_by(0.1)
    assert outcome.reason is unread
    assert len(alone.connections) == 3


def test_nothing_is_sent_again_for_a_client_that_left() -> None:
    bench = reused()
    request, outcome = bench.ask()
    request.gone = CLIENT_GONE
    bench.busy().lose()
    assert outcome.reason.retry is IDEMPOTENT
    assert len(bench.connections) == 1


def test_who_waited_too_long_is_not_queued_again() -> None:
    pool = model.PoolSettings(max_per_endpoint=1, idle=model.Seconds(0))
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80", pool=pool))
    outcomes = [bench.ask()[1] for _ in range(4)]
    bench.time.pass_by(5.2)
    assert [outcome.open for outcome in outcomes] == [True, True, False, False]
    assert {outcome.reason.phase for outcome in outcomes[2:]} == {Phase.QUEUE}
    assert len(bench.cluster.stats()) == 2


def test_a_full_queue_sends_the_request_to_another_endpoint() -> None:
    pool = model.PoolSettings(max_per_endpoint=1, queue=1)
    bench = Bench(upstream("10.0.0.1:80=1000", "10.0.0.2:80=1", pool=pool))
    outcomes = [bench.ask()[1] for _ in range(3)]
    for connection in bench.connections:
        assert len(connection.asked) == 1
    assert len(bench.connections) == 2
    last = [bench.ask()[1] for _ in range(2)]
    assert last[-1].reason.error == "connection_limit_reached"
    assert all(outcome.open for outcome in outcomes)


def test_the_body_of_an_idempotent_request_is_sent_again_whole() -> None:
    bench = reused()
    body = FakeBody()
    request, outcome = bench.ask(b"PUT", body=body)
    first, second = FakeSink(), FakeSink()
    assert request.body is not None
    request.body.attach(first)
    body.sink.write(b"one ")
    request.body.stopProducing()  # what the codec does when its connection is lost
    assert not body.stopped
    bench.busy().lose()
    request.body.attach(second)
    body.sink.write(b"two")
    body.sink.finish()
    assert second.data == b"one two"
    assert second.finished
    bench.busy().answer()
    assert outcome.status == 200


def test_a_body_too_large_to_keep_is_not_sent_again() -> None:
    bench = reused()
    body = FakeBody()
    request, outcome = bench.ask(b"PUT", body=body)
    sink = FakeSink()
    assert request.body is not None
    request.body.attach(sink)
    body.sink.write(b"x" * 70_000)
    bench.busy().lose()
    assert outcome.reason.retry is IDEMPOTENT
    assert len(sink.data) == 70_000
    large = FakeBody(70_000)
    request, _ = bench.ask(b"PUT", body=large)
    assert request.body is large  # known from the start


@pytest.mark.parametrize("method", [b"POST", b"PATCH"])
def test_a_body_of_any_method_is_kept_where_it_may_be_refused_unread(method: bytes) -> None:
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80"))
    body = FakeBody()
    request, outcome = bench.ask(method, body=body)
    first, second, third = FakeSink(), FakeSink(), FakeSink()
    for sink, reason in ((first, Abort("refused", UPSTREAM, 502, ALWAYS)), (second, lost())):
        assert request.body is not None
        request.body.attach(sink)
        if sink is first:
            body.sink.write(b"all")
            body.sink.finish()
        assert (sink.data, sink.finished) == (b"all", True)
        bench.busy().lose(reason)
    bench.time.pass_by(1)
    assert outcome.reason.retry is IDEMPOTENT, "what may have been seen is not sent again"
    assert third.data == b""
    assert bench.settled()


def test_a_body_that_was_sent_in_part_is_not_sent_again() -> None:
    bench = Bench(upstream("10.0.0.1:80"), codec=Blunt())
    body = FakeBody()
    _, outcome = bench.ask(b"POST", body=body)
    body.attach(FakeSink())
    bench.busy().lose(Abort("refused", UPSTREAM, 502, ALWAYS))
    assert outcome.reason.retry is ALWAYS
    assert len(bench.connections) == 1


def test_a_body_nobody_took_stays_with_the_caller() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    bench.down = {"10.0.0.1"}
    body = FakeBody()
    request, outcome = bench.ask(b"PUT", body=body)
    assert outcome.reason.error == "connection_refused"
    assert request.body is body
    assert not body.attached


def test_a_body_is_let_go_of_when_the_answer_is_there() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    body = FakeBody()
    request, _ = bench.ask(b"PUT", body=body)
    assert request.body is not None
    request.body.attach(FakeSink())
    bench.busy().answer()
    assert request.body.attached
    request.body.stopProducing()
    assert body.stopped


def test_a_kept_body_is_stopped_when_the_request_is_cancelled() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    body = FakeBody()
    request, outcome = bench.ask(b"PUT", body=body)
    assert request.body is not None
    request.body.attach(FakeSink())
    outcome.cancel()
    assert isinstance(outcome.reason, CancelledError)
    assert body.stopped


# -- cancelling


def test_cancelling_reaches_whatever_is_current() -> None:
    bench = reused()
    _, outcome = bench.ask()
    bench.busy().lose()
    second = bench.busy()
    outcome.cancel()
    assert len(second.cancelled) == 1
    assert isinstance(outcome.reason, CancelledError)
    assert bench.settled()


def test_a_cancelled_request_leaves_the_queue_of_its_second_endpoint() -> None:
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80"))
    bench.down, bench.slow = {"10.0.0.1"}, {"10.0.0.2"}
    outcomes = [bench.ask()[1] for _ in range(2)]
    for outcome in outcomes:
        outcome.cancel()
        assert isinstance(outcome.reason, CancelledError)
    assert bench.settled()


@pytest.mark.parametrize("leave", ["answer", "lose", "cancel", "never", "tunnel"])
def test_with_one_connection_every_exit_leaves_room_for_the_next_request(leave: str) -> None:
    bench = Bench(upstream("10.0.0.1:80", pool=model.PoolSettings(max_per_endpoint=1)))
    bench.answered()
    _, outcome = bench.ask()
    connection = bench.busy()
    if leave == "cancel":
        outcome.cancel()
    elif leave == "answer":
        connection.answer(500)
    elif leave == "tunnel":
        connection.draining = True
        connection.answer(101)
    elif leave == "never":
        connection.lose(lost(NEVER))
    else:
        connection.lose()
        bench.busy().answer()
    assert outcome.times == 1
    bench.answered()
    assert bench.cluster.stats() == {"10.0.0.1:80": Stats(1, 1, 0, 0)}


# -- update


def test_what_an_update_leaves_alone_keeps_its_connections() -> None:
    bench = reused("10.0.0.1:80", "10.0.0.2:80")
    kept = bench.at["10.0.0.1:80"][0]
    gone = bench.at["10.0.0.2:80"][0]
    bench.cluster.update(upstream("10.0.0.3:80=10", "10.0.0.1:80=50"), GATEWAY, bench.codec)
    assert gone.dead
    assert not kept.dead
    assert Counter(bench.answered() for _ in range(12)) == {"10.0.0.1:80": 10, "10.0.0.3:80": 2}
    assert len(bench.at["10.0.0.1:80"]) == 1


def test_an_endpoint_that_is_taken_away_finishes_what_it_works_on() -> None:
    bench = Bench(upstream("10.0.0.1:80", "10.0.0.2:80"))
    while not bench.at.get("10.0.0.1:80"):
        bench.answered()
    for _ in range(8):
        bench.ask()
    working = [each for each in bench.at["10.0.0.1:80"] if each.asked]
    bench.cluster.update(upstream("10.0.0.2:80"), GATEWAY, bench.codec)
    assert working
    assert all(not each.dead for each in working)
    for each in working:
        each.answer()
        assert each.dead
    assert bench.cluster._leaving == {}


def test_who_waits_for_an_endpoint_that_is_taken_away_goes_to_another() -> None:
    pool = model.PoolSettings(max_per_endpoint=1)
    bench = Bench(upstream("10.0.0.1:80", pool=pool))
    _, first = bench.ask()
    _, second = bench.ask()
    old = bench.busy()
    bench.cluster.update(upstream("10.0.0.2:80", pool=pool), GATEWAY, bench.codec)
    assert len(old.served) == 1
    bench.at["10.0.0.2:80"][0].answer()
    old.answer()
    assert [first.status, second.status] == [200, 200]


def test_an_old_connection_lost_at_an_endpoint_that_was_taken_away_is_made_up_for_elsewhere() -> None:
    bench = reused()
    _, outcome = bench.ask()
    old = bench.busy()
    bench.cluster.update(upstream("10.0.0.2:80"), GATEWAY, bench.codec)
    old.lose()
    assert bench.where() == "10.0.0.2:80"
    bench.busy().answer()
    assert outcome.status == 200


def test_an_update_changes_clocks_host_and_pools_at_once() -> None:
    bench = reused()
    config = upstream(
        "10.0.0.1:80",
        host="endpoint",
        pool=model.PoolSettings(max_per_endpoint=7),
        timeouts=model.UpstreamTimeouts(queue=model.Seconds(9)),
    )
    bench.cluster.update(config, GATEWAY, bench.codec)
    request, _ = bench.ask()
    assert request.authority == b"10.0.0.1"
    (endpoint,) = bench.cluster.endpoints
    assert endpoint.pool.settings.max_per_endpoint == 7
    assert bench.cluster._context.timeouts.queue == 9.0
    assert len(bench.connections) == 1


def test_another_codec_means_other_connections() -> None:
    bench = reused()
    old = bench.connections[0]
    bench.cluster.update(upstream("10.0.0.1:80"), GATEWAY, Codec())  # type: ignore[arg-type]
    assert old.dead
    bench.answered()
    assert len(bench.connections) == 2


def test_an_unnamed_upstream_takes_the_clocks_of_the_gateway() -> None:
    bench = Bench("http://10.0.0.1:80")
    bench.answered()
    gateway = model.Gateway(timeouts=model.GatewayTimeouts(queue=model.Seconds(1)))
    bench.cluster.update(None, gateway, bench.codec)
    assert bench.cluster._context.timeouts.queue == 1.0
    bench.answered()
    assert len(bench.connections) == 1


def test_an_update_with_a_fault_changes_nothing() -> None:
    bench = reused()
    with pytest.raises(ConfigFaults):
        bench.cluster.update(upstream("10.0.0.2:99999"), GATEWAY, bench.codec)
    assert bench.answered() == "10.0.0.1:80"


def test_the_timeouts_of_an_upstream_stand_before_those_of_the_gateway() -> None:
    gateway = model.Gateway(timeouts=model.GatewayTimeouts(connect=model.Seconds(9), dns=model.Seconds(8)))
    own = model.UpstreamTimeouts(connect=model.Seconds(1), response_head=model.Seconds(0))
    timeouts = merged(upstream("a.test:80", timeouts=own), gateway)
    assert (timeouts.connect, timeouts.dns, timeouts.response_head, timeouts.tls) == (1.0, 8.0, 0.0, 5.0)


@pytest.mark.parametrize("origin", ["http://a.test:80/path", "a.test", "mini://a.test"])
def test_an_unnamed_upstream_needs_a_proper_origin(origin: str) -> None:
    with pytest.raises(ConfigError):
        Bench(origin)


# -- discovery


def found(dns: str = "up.test:8080", *urls: str) -> Bench:
    return Bench(upstream(*urls, discovery=model.Discovery(dns=dns), host="endpoint"))


def test_each_address_of_a_name_is_an_endpoint() -> None:
    bench = found()
    bench.dns.say("A", [a("up.test", "10.0.0.1"), a("up.test", "10.0.0.2")])
    bench.dns.say("AAAA", [aaaa("up.test", "2001:db8::1")])
    assert {bench.answered() for _ in range(9)} == {"10.0.0.1:8080", "10.0.0.2:8080", "2001:db8::1:8080"}
    assert sorted(bench.cluster.stats()) == ["10.0.0.1:8080", "10.0.0.2:8080", "[2001:db8::1]:8080"]
    request, _ = bench.ask()
    assert request.authority == b"up.test:8080"


def test_requests_that_come_before_the_first_answer_wait_for_it() -> None:
    bench = found()
    (_, first), (_, second) = bench.ask(), bench.ask()
    second.cancel()
    assert first.open
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    bench.busy().answer()
    assert first.status == 200
    assert isinstance(second.reason, CancelledError)


def test_one_that_waits_may_be_cancelled_while_another_is_served() -> None:
    bench = found()
    first = bench.cluster.handle(ask())
    second = Outcome(bench.cluster.handle(ask()))
    third = Outcome(bench.cluster.handle(ask()))
    first.addErrback(lambda _: second.cancel())  # type: ignore[union-attr]
    bench.dns.say("A", SERVFAIL)
    bench.dns.say("AAAA", SERVFAIL)
    assert isinstance(second.reason, CancelledError)
    assert third.reason.error == "dns_error"


def test_a_cluster_that_was_not_started_starts_with_the_first_request() -> None:
    config = upstream(discovery=model.Discovery(dns="up.test:80"))
    bench = Bench(config, start=False)
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.1")], ("AAAA", "up.test"): []}
    assert not bench.dns.asked
    assert bench.answered() == "10.0.0.1:80"
    bench = Bench(config, start=False)
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.1")], ("AAAA", "up.test"): []}
    bench.resolver.addresses("up.test")
    bench.slow = {"10.0.0.1"}
    _, outcome = bench.ask()
    assert outcome.open
    assert bench.dialed == ["10.0.0.1:80"]


def test_no_answer_in_time_is_told_and_again_when_one_asks_later() -> None:
    bench = found()
    _, outcome = bench.ask()
    bench.time.pass_by(3.1)
    assert (outcome.reason.phase, outcome.reason.error, outcome.reason.status) == (Phase.DNS, "dns_timeout", 504)
    assert bench.time.counted.count("dns_timeout") == 1
    _, again = bench.ask()
    assert again.reason.error == "dns_timeout"
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    bench.answered()


def test_a_failure_is_told_and_the_name_is_asked_for_again() -> None:
    bench = found()
    _, outcome = bench.ask()
    bench.dns.say("A", SERVFAIL)
    bench.dns.say("AAAA", SERVFAIL)
    assert outcome.reason.error == "dns_error"
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.1")], ("AAAA", "up.test"): []}
    bench.time.pass_by(5.2)
    bench.answered()


def test_endpoints_come_and_go_with_the_answers() -> None:
    bench = found()
    bench.dns.say("A", [a("up.test", "10.0.0.1", 10), a("up.test", "10.0.0.2", 10)])
    bench.dns.say("AAAA", [])
    while len(bench.connections) < 2:
        bench.answered()
    _, download = bench.ask()
    working = bench.busy()
    (idle,) = [each for each in bench.connections if each is not working]
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.3", 10)], ("AAAA", "up.test"): []}
    bench.time.pass_by(11.2)
    assert idle.dead
    assert not working.dead
    assert sorted(bench.cluster.stats()) == ["10.0.0.3:8080"]
    working.answer()
    assert download.status == 200
    assert working.dead
    assert {bench.answered() for _ in range(3)} == {"10.0.0.3:8080"}


@pytest.mark.parametrize("ttls", [(0, 30), (30, 0), (0, 0)])
def test_the_same_answer_with_another_ttl_changes_nothing(ttls: tuple[int, int]) -> None:
    bench = found()
    for ttl in ttls:
        bench.dns.zone = {
            ("A", "up.test"): [a("up.test", "10.0.0.1", ttl), a("up.test", "10.0.0.2", ttl)],
            ("AAAA", "up.test"): [],
        }
        if bench.dns.open:
            bench.dns.say("A", bench.dns.zone["A", "up.test"])
            bench.dns.say("AAAA", [])
        before = bench.cluster.endpoints, bench.cluster._election._balance
        bench.time.pass_by(3)
        assert (bench.cluster.endpoints, bench.cluster._election._balance) == before
    assert len(bench.dns.asked) <= 2 * 7  # a TTL of 0 is not one query per look


def test_a_name_is_not_looked_at_again_before_its_time() -> None:
    bench = found()
    bench.dns.say("A", [a("up.test", "10.0.0.1", 20)])
    bench.dns.say("AAAA", [])
    looked: list[str] = []
    look = bench.resolver.look

    def counted(host: str, services: bool = False) -> Any:
        looked.append(host)
        return look(host, services)

    bench.resolver.look = counted  # type: ignore[method-assign]
    bench.time.pass_by(19)
    assert not looked
    bench.time.pass_by(2)
    assert looked == ["up.test"]


def test_no_such_name_takes_the_endpoints_away_in_the_end_but_no_server_does_not() -> None:
    bench = found()
    bench.dns.say("A", [a("up.test", "10.0.0.1", 1)])
    bench.dns.say("AAAA", [])
    bench.answered()
    bench.dns.zone = {("A", "up.test"): SERVFAIL, ("AAAA", "up.test"): SERVFAIL}
    bench.time.pass_by(4000)
    bench.answered()
    bench.dns.zone = {("A", "up.test"): NXDOMAIN, ("AAAA", "up.test"): NXDOMAIN}
    bench.time.pass_by(6)
    bench.answered()
    bench.time.pass_by(60)
    _, outcome = bench.ask()
    assert (outcome.reason.status, outcome.reason.error) == (503, "destination_unavailable")


def test_srv_records_bring_ports_and_weights_of_the_best_priority() -> None:
    bench = found("_web._tcp.up.test")
    name = "_web._tcp.up.test"
    bench.dns.zone = {("A", "a.test"): [a("a.test", "10.0.0.1")], ("A", "b.test"): [a("b.test", "10.0.0.2")]}
    bench.dns.zone |= {("AAAA", "a.test"): [], ("AAAA", "b.test"): []}
    bench.dns.say("SRV", [srv(name, 1, 3, 81, "a.test"), srv(name, 1, 0, 82, "b.test"), srv(name, 2, 9, 83, "c.test")])
    assert Counter(bench.answered() for _ in range(8)) == {"10.0.0.1:81": 6, "10.0.0.2:82": 2}
    request, _ = bench.ask()
    assert request.authority in (b"a.test:81", b"b.test:82")


def test_endpoints_from_both_sources_and_the_same_twice() -> None:
    bench = found("up.test:80", "10.0.0.1:80=100", "10.0.0.9:80=100")
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    assert Counter(bench.answered() for _ in range(9)) == {"10.0.0.1:80": 6, "10.0.0.9:80": 3}


def test_another_source_after_an_update() -> None:
    bench = found()
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    bench.answered()
    other = upstream(discovery=model.Discovery(dns="new.test:80"))
    bench.cluster.update(other, GATEWAY, bench.codec, None, source(other, find))
    assert bench.answered() == "10.0.0.1:8080", "until the other one has answered"
    bench.dns.say("A", [a("new.test", "10.0.0.2")])
    bench.dns.say("AAAA", [])
    assert bench.answered() == "10.0.0.2:80"
    bench.cluster.update(upstream("10.0.0.5:80"), GATEWAY, bench.codec)
    assert bench.answered() == "10.0.0.5:80"
    bench.time.pass_by(120)
    assert len(bench.dns.asked) == 4


def test_looking_up_that_breaks_is_logged_and_told(flush_errors: Callable[..., list[Any]]) -> None:
    bench = found()
    _, outcome = bench.ask()
    waiting = bench.resolver._names["up.test", False]._waiting
    next(iter(waiting)).errback(ValueError("broken"))
    waiting.clear()
    assert outcome.reason.error == "dns_error"
    assert len(flush_errors(ValueError)) == 1


# -- the end


def test_drain_finishes_what_is_under_way() -> None:
    bench = Bench(upstream("10.0.0.1:80", pool=model.PoolSettings(max_per_endpoint=1)))
    (_, first), (_, second) = bench.ask(), bench.ask()
    told: list[None] = []
    bench.cluster.drain().addCallback(told.append)
    _, late = bench.ask()
    assert (late.reason.status, late.reason.error) == (503, "destination_unavailable")
    bench.busy().answer()
    bench.busy().answer()
    assert [first.status, second.status] == [200, 200]
    assert told == [None]
    bench.time.pass_by(6)
    assert bench.time.idle


def test_drain_ends_discovery_and_sends_away_who_hopes() -> None:
    bench = found()
    _, outcome = bench.ask()
    told: list[None] = []
    waited = bench.cluster.drain()
    waited.addCallback(told.append)
    assert outcome.reason.status == 503
    assert told == [None]
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    assert bench.cluster.endpoints == ()
    _, late = bench.ask()
    assert late.reason.status == 503
    bench.time.pass_by(6)
    assert bench.time.idle


def test_an_update_after_the_end_brings_nothing_back() -> None:
    bench = reused()
    bench.cluster.drain()
    bench.cluster.update(upstream("10.0.0.2:80"), GATEWAY, bench.codec)
    _, late = bench.ask()
    assert late.reason.status == 503


def test_stop_drops_everything() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    _, outcome = bench.ask()
    told: list[None] = []
    bench.cluster.stop().addCallback(told.append)
    assert outcome.reason is not None
    assert told == [None]
    bench.time.pass_by(6)
    assert bench.time.idle


def test_who_waits_for_the_end_may_give_up() -> None:
    bench = Bench(upstream("10.0.0.1:80"))
    _, outcome = bench.ask()
    told: list[None] = []
    waited = bench.cluster.drain()
    waited.addCallback(told.append)
    waited.cancel()
    assert told == [None]
    bench.busy().answer()
    assert outcome.status == 200


# -- whatever happens, in whatever order


@settings(max_examples=100)
@given(data=st.data(), endpoints=st.integers(1, 3), most=st.integers(1, 2))
def test_every_request_ends_once_and_is_never_served_twice_unless_that_is_safe(
    data: st.DataObject, endpoints: int, most: int
) -> None:
    pool = model.PoolSettings(max_per_endpoint=most, queue=3)
    urls = [f"10.0.0.{number}:80" for number in range(1, endpoints + 1)]
    bench = Bench(upstream(*urls, pool=pool), seed=data.draw(st.integers(0, 99)))
    asked: list[tuple[Request, Outcome]] = []
    refused: list[Request] = []
    steps = ["get", "get", "post", "answer", "answer", "lose", "never", "refuse", "cancel", "down", "less"]
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(steps))
        busy = [connection for connection in bench.connections if connection.asked]
        if step in ("get", "post"):
            asked.append(bench.ask(step.upper().encode()))
        elif step == "cancel" and asked:
            data.draw(st.sampled_from(asked))[1].cancel()
        elif step == "down":
            bench.down ^= {data.draw(st.sampled_from([url.partition(":")[0] for url in urls]))}
        elif step == "less":
            chosen = data.draw(st.lists(st.sampled_from(urls), min_size=1, unique=True))
            bench.cluster.update(upstream(*chosen, pool=pool), GATEWAY, bench.codec)
        elif busy:
            connection = data.draw(st.sampled_from(busy))
            if step == "answer":
                connection.answer()
            elif step == "refuse":
                refused.append(connection.asked[0][0])
                connection.refuse(Abort("refused", UPSTREAM, 502, ALWAYS))
            else:
                connection.lose(lost(NEVER if step == "never" else IDEMPOTENT))
        for request, outcome in asked:
            assert outcome.times <= 1
            assert request.ledger is not None
            assert request.ledger.attempts <= 3
    for _ in range(20):
        bench.time.pass_by(0.05)  # what was refused may be sent again in a while
        for connection in bench.connections:
            while connection.asked:
                connection.answer()
    assert all(outcome.times == 1 for _, outcome in asked)
    for request, _ in asked:
        served = sum(connection.served.count(request) for connection in bench.connections)
        unread = refused.count(request)
        # A POST reached an upstream that may have read it at most once; a GET once more after an old connection died.
        assert served - unread <= (1 if request.method == b"POST" else 2)
    assert bench.settled()
    told: list[None] = []
    bench.cluster.drain().addCallback(told.append)
    assert told == [None]
    bench.time.pass_by(6)
    assert bench.time.idle
