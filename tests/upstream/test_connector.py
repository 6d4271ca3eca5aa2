"""Rules of a connection attempt: DNS, TCP, codec, each with its clock and its failure."""

from __future__ import annotations

import errno
import gc
import weakref
from typing import Any

import pytest
import pytest_twisted
from fake_upstream import SERVFAIL, Codec, FakeConnection, FakeDns, Time, a, aaaa, ask
from twisted.internet import error
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from protogate.errors import ALWAYS, GATEWAY, UPSTREAM, Abort, Phase
from protogate.upstream.connector import MOST_ADDRESSES, Connector
from protogate.upstream.resolver import Resolver


class Times:
    dns = connect = tls = 0.0
    preface = b""


class Bench:
    """A connector, and the attempts it makes on a reactor that connects to nothing."""

    def __init__(self, host: str = "10.0.0.1", greets: bool = False, **timeouts: float) -> None:
        self.time = Time(**timeouts)
        self.reactor = MemoryReactorClock()
        self.dns = FakeDns()
        self.resolver = Resolver(self.time.wheel, self.dns, hosts="/nonexistent")
        self.codec: Any = Codec(greets)
        self.connector = Connector(self.reactor, self.resolver, self.codec, self.time.context, host, 8080)
        self.ready: list[Any] = []
        self.failed: list[Any] = []
        self.done: list[None] = []
        self.times = Times()

    def connect(self) -> Deferred[None]:
        self.deferred = self.connector.connect(self.ready.append, self.times)
        self.deferred.addCallbacks(self.done.append, lambda failure: self.failed.append(failure.value))
        return self.deferred

    @property
    def dialed(self) -> list[str]:
        return [client[0] for client in self.reactor.tcpClients]

    def accept(self, index: int = -1, transport: Any = None) -> FakeConnection | None:
        """TCP connects."""
        factory = self.reactor.tcpClients[index][2]
        protocol = factory.buildProtocol(IPv4Address("TCP", "10.0.0.1", 8080))
        if protocol is not None:
            protocol.makeConnection(StringTransport() if transport is None else transport)
        return protocol  # type: ignore[no-any-return]

    def refuse(self, problem: Exception | None = None, index: int = -1) -> None:
        """TCP does not connect."""
        factory, handle = self.reactor.tcpClients[index][2], self.reactor.connectors[index]
        factory.clientConnectionFailed(handle, Failure(problem or error.ConnectionRefusedError()))


def test_a_literal_is_dialed_at_once_and_the_reactor_is_told_no_timeout() -> None:
    bench = Bench()
    bench.connect()
    host, port, _, timeout, _ = bench.reactor.tcpClients[0]
    assert (host, port, timeout) == ("10.0.0.1", 8080, None)
    connection = bench.accept()
    assert bench.ready == [connection]
    assert bench.done == [None]
    assert not bench.failed
    assert bench.time.idle


def test_capacity_that_comes_back_is_passed_on() -> None:
    bench = Bench()
    bench.connect()
    connection = bench.accept()
    assert connection is not None
    connection.handle(ask())
    connection.answer()
    assert bench.ready == [connection, connection]


def test_each_phase_is_timed() -> None:
    bench = Bench("up.test", greets=True)
    bench.connect()
    bench.time.clock.advance(0.5)
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    bench.time.clock.advance(0.25)
    connection = bench.accept()
    assert connection is not None
    bench.time.clock.advance(0.25)
    connection.ready(connection)
    assert (bench.times.dns, bench.times.connect) == (0.5, 0.5)


def test_the_socket_sends_small_packets_at_once_and_notices_a_dead_peer() -> None:
    bench = Bench()
    bench.connect()
    options: list[tuple[str, bool]] = []

    from twisted.internet.interfaces import ITCPTransport
    from zope.interface import directlyProvides

    class Socket(StringTransport):
        def setTcpNoDelay(self, enabled: bool) -> None:
            options.append(("nodelay", enabled))

        def setTcpKeepAlive(self, enabled: bool) -> None:
            options.append(("keepalive", enabled))

    socket = Socket()
    directlyProvides(socket, ITCPTransport)
    bench.accept(transport=socket)
    assert options == [("nodelay", True), ("keepalive", True)]


# -- DNS


def test_a_name_is_resolved_first_and_its_addresses_are_tried_in_turn() -> None:
    bench = Bench("up.test")
    bench.connect()
    assert not bench.dialed
    bench.dns.say("AAAA", [aaaa("up.test", "2001:db8::1")])
    bench.dns.say("A", [a("up.test", "10.0.0.1"), a("up.test", "10.0.0.2")])
    assert bench.dialed == ["10.0.0.1"]
    bench.refuse()
    bench.refuse()
    assert bench.dialed == ["10.0.0.1", "10.0.0.2", "2001:db8::1"]
    connection = bench.accept()
    assert bench.ready == [connection]
    assert not bench.failed


def test_each_attempt_begins_with_another_address() -> None:
    bench = Bench("up.test")
    records = [a("up.test", f"10.0.0.{number}") for number in (1, 2)]
    bench.dns.zone = {("A", "up.test"): records, ("AAAA", "up.test"): [aaaa("up.test", "::1")]}
    for _ in range(3):
        bench.connect()
    assert bench.dialed == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]


def test_not_every_address_of_a_large_name_is_tried() -> None:
    bench = Bench("up.test")
    records = [a("up.test", f"10.0.0.{number}") for number in range(1, 20)]
    bench.dns.zone = {("A", "up.test"): records, ("AAAA", "up.test"): []}
    bench.connect()
    for _ in range(MOST_ADDRESSES):
        bench.refuse()
    assert len(bench.dialed) == MOST_ADDRESSES
    assert bench.failed[0].error == "connection_refused"


def test_dns_that_does_not_answer_in_time() -> None:
    bench = Bench("up.test", dns=2.0)
    bench.connect()
    bench.time.pass_by(2.1)
    reason = bench.failed[0]
    assert (reason.status, reason.phase, reason.error, reason.who, reason.retry) == (
        504, Phase.DNS, "dns_timeout", UPSTREAM, ALWAYS,
    )  # fmt: skip
    assert bench.times.dns == pytest.approx(2.05, abs=0.1)
    assert not bench.resolver._names["up.test", False]._waiting
    assert bench.time.counted[-1] == "dns_timeout"
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    assert not bench.dialed
    assert bench.time.idle


def test_dns_that_fails() -> None:
    bench = Bench("up.test")
    bench.connect()
    bench.dns.say("A", SERVFAIL)
    bench.dns.say("AAAA", SERVFAIL)
    reason = bench.failed[0]
    assert (reason.status, reason.phase, reason.error, reason.retry) == (502, Phase.DNS, "dns_error", ALWAYS)


def test_dns_that_breaks_is_reported_as_a_failure_to_resolve() -> None:
    bench = Bench("up.test")
    answer: Deferred[Any] = Deferred()
    bench.resolver.addresses = lambda host: answer  # type: ignore[method-assign]
    bench.connect()
    answer.errback(ValueError("broken"))
    assert bench.failed[0].error == "dns_error"
    assert "broken" in bench.failed[0].reason


# -- TCP


@pytest.mark.parametrize(
    ("problem", "kind", "status", "who"),
    [
        (error.ConnectionRefusedError(), "connection_refused", 502, UPSTREAM),
        (error.TCPTimedOutError(), "connection_timeout", 504, UPSTREAM),
        (error.NoRouteError(), "destination_ip_unroutable", 502, UPSTREAM),
        (error.getConnectError((errno.EHOSTUNREACH, "no route")), "destination_ip_unroutable", 502, UPSTREAM),
        (error.getConnectError((errno.ECONNREFUSED, "refused")), "connection_refused", 502, UPSTREAM),
        (error.getConnectError((errno.ETIMEDOUT, "timed out")), "connection_timeout", 504, UPSTREAM),
        (error.getConnectError((errno.ECONNRESET, "reset")), "connection_terminated", 502, UPSTREAM),
        (error.ConnectBindError(errno.EMFILE, "too many open files"), "proxy_internal_error", 503, GATEWAY),
        (error.getConnectError((errno.EADDRNOTAVAIL, "no port")), "proxy_internal_error", 503, GATEWAY),
        (ValueError(), "connection_terminated", 502, UPSTREAM),
    ],
)
def test_what_a_failed_connect_means(problem: Exception, kind: str, status: int, who: str) -> None:
    bench = Bench()
    bench.connect()
    bench.refuse(problem)
    (reason,) = bench.failed
    assert (reason.error, reason.status, reason.who, reason.retry, reason.phase) == (
        kind, status, who, ALWAYS, Phase.CONNECT,
    )  # fmt: skip
    assert "10.0.0.1:8080" in reason.reason
    assert "10.0.0.1" not in reason.detail
    assert bench.time.counted == ["connect_failed"]
    assert bench.time.idle


def test_an_address_that_does_not_answer_in_time_gives_way_to_the_next() -> None:
    bench = Bench("up.test", connect=1.0)
    bench.dns.zone = {
        ("A", "up.test"): [a("up.test", "10.0.0.1"), a("up.test", "10.0.0.2")],
        ("AAAA", "up.test"): [],
    }
    bench.connect()
    given_up: list[bool] = []
    bench.reactor.connectors[0].disconnect = lambda: given_up.append(True)
    bench.time.pass_by(1.1)
    assert given_up == [True]
    assert bench.dialed == ["10.0.0.1", "10.0.0.2"]
    assert bench.accept(0) is None  # too late
    bench.refuse(index=0)  # so says the reactor of what was given up
    assert not bench.failed
    bench.time.pass_by(1.1)
    (reason,) = bench.failed
    assert (reason.status, reason.phase, reason.error) == (504, Phase.CONNECT, "connection_timeout")
    assert bench.times.connect == pytest.approx(2.1, abs=0.1)
    assert bench.time.counted.count("connect_timeout") == 2
    assert bench.time.idle


def test_no_clock_runs_when_it_is_off() -> None:
    bench = Bench("up.test", dns=0.0, connect=0.0)
    bench.connect()
    bench.time.pass_by(60)
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.dns.say("AAAA", [])
    bench.time.pass_by(60)
    assert not bench.failed
    bench.accept()
    assert len(bench.ready) == 1


def test_an_address_that_fails_makes_the_resolver_ask_again() -> None:
    bench = Bench("up.test", connect=60.0)
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.1", 3600)], ("AAAA", "up.test"): []}
    bench.connect()
    bench.time.clock.advance(10)
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.9", 3600)], ("AAAA", "up.test"): []}
    bench.refuse()
    bench.connect()
    assert bench.dialed == ["10.0.0.1", "10.0.0.9"]


def test_a_reactor_that_fails_at_once() -> None:
    bench = Bench("up.test")
    bench.dns.zone = {("A", "up.test"): [a("up.test", "10.0.0.1"), a("up.test", "10.0.0.2")], ("AAAA", "up.test"): []}
    plain = bench.reactor.connectTCP

    def connect(host: str, port: int, factory: Any, timeout: Any = None) -> Any:
        handle = plain(host, port, factory, timeout)
        factory.clientConnectionFailed(handle, Failure(error.ConnectionRefusedError()))
        return handle

    bench.reactor.connectTCP = connect  # type: ignore[method-assign]
    bench.connect()
    assert bench.dialed == ["10.0.0.1", "10.0.0.2"]
    assert [reason.error for reason in bench.failed] == ["connection_refused"]


# -- the codec


def test_a_connection_that_closes_before_it_is_ready() -> None:
    bench = Bench(greets=True)
    bench.connect()
    connection = bench.accept()
    assert connection is not None
    connection.lose()
    (reason,) = bench.failed
    assert (reason.error, reason.status, reason.retry) == ("connection_terminated", 502, ALWAYS)
    connection.ready(connection)
    assert not bench.ready
    assert bench.time.idle


def test_a_connection_that_is_never_ready() -> None:
    bench = Bench(greets=True, connect=1.0)
    bench.connect()
    connection = bench.accept()
    assert connection is not None
    bench.time.pass_by(1.1)
    (reason,) = bench.failed
    assert (reason.phase, reason.error) == (Phase.CONNECT, "connection_timeout")
    assert connection.dead
    connection.ready(connection)
    assert not bench.ready


def test_a_connection_that_closes_later_is_no_failure_of_the_attempt() -> None:
    bench = Bench()
    bench.connect()
    connection = bench.accept()
    assert connection is not None
    connection.lose()
    assert not bench.failed


# -- cancelling


@pytest.mark.parametrize("phase", ["dns", "tcp", "codec"])
def test_a_cancelled_attempt_lets_go_of_everything(phase: str) -> None:
    bench = Bench("up.test", greets=True)
    bench.connect()
    connection = None
    if phase != "dns":
        bench.dns.say("A", [a("up.test", "10.0.0.1")])
        bench.dns.say("AAAA", [])
    if phase == "codec":
        connection = bench.accept()
    disconnected: list[bool] = []
    for handle in bench.reactor.connectors:
        handle.disconnect = lambda: disconnected.append(True)
    bench.deferred.cancel()
    assert isinstance(bench.failed[0], CancelledError)
    if phase == "tcp":
        assert disconnected
        assert bench.accept() is None
    if connection is not None:
        assert connection.dead
    bench.time.pass_by(20)
    assert len(bench.failed) == 1
    assert bench.time.idle


# -- on a real reactor


@pytest_twisted.ensureDeferred
async def test_on_a_real_reactor_with_a_name_that_resolves_to_loopback() -> None:
    from twisted.internet import reactor as installed

    reactor: Any = installed
    time, served = Time(), Factory.forProtocol(Protocol)
    resolver = Resolver(time.wheel, FakeDns(), hosts="/nonexistent")
    port = reactor.listenTCP(0, served, interface="127.0.0.1")
    closed: Deferred[None] = Deferred()

    class Connection(FakeConnection, Protocol):
        def connectionMade(self) -> None:
            self.ready(self)

        def connectionLost(self, reason: Any = None) -> None:
            closed.callback(None)

        makeConnection = Protocol.makeConnection

    codec: Any = Codec()
    codec.client = lambda ready, context: Connection(ready)
    ready: list[Any] = []
    connector = Connector(reactor, resolver, codec, time.context, "localhost", port.getHost().port)
    await connector.connect(ready.append, Times())
    transport = ready[0].transport
    assert transport.getTcpNoDelay()
    assert transport.getTcpKeepAlive()
    number = port.getHost().port
    await port.stopListening()
    transport.loseConnection()
    await closed
    connector = Connector(reactor, resolver, codec, time.context, "127.0.0.1", number)
    with pytest.raises(Abort) as caught:
        await connector.connect(ready.append, Times())
    assert caught.value.error == "connection_refused"
    assert len(ready) == 1


@pytest_twisted.ensureDeferred
async def test_giving_up_on_a_real_reactor_leaves_nothing_behind() -> None:
    from twisted.internet import reactor as installed

    reactor: Any = installed
    time = Time()
    codec: Any = Codec()
    port = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    resolver = Resolver(time.wheel, FakeDns(), hosts="/nonexistent")
    connector = Connector(reactor, resolver, codec, time.context, "127.0.0.1", port.getHost().port)
    attempt = connector.connect(lambda connection: None, Times())
    attempt.cancel()
    with pytest.raises(CancelledError):
        await attempt
    assert not codec.made
    await port.stopListening()


def test_an_attempt_does_not_wait_for_the_garbage_collector() -> None:
    bench = Bench()
    bench.connect()
    connection = bench.accept()
    assert connection is not None
    dial, handle = bench.reactor.tcpClients.pop()[2], bench.reactor.connectors.pop()
    handle.transport = connection.transport  # as Twisted's connectors have one, which refers to them
    connection.lose()
    dial.clientConnectionLost(handle, Failure(error.ConnectionDone()))
    assert handle.transport is None
    seen = weakref.ref(dial.attempt)
    enabled = gc.isenabled()
    gc.disable()
    try:
        bench.ready.clear()
        bench.codec.made.clear()
        del dial, connection, bench.deferred
        assert seen() is None
    finally:
        if enabled:
            gc.enable()
