"""Endpoints that are told who the client is: what is sent first, and who shares a connection with whom."""

from __future__ import annotations

from typing import Any

import pytest
from fake_upstream import FakeAttempt, FakeConnection, FakeConnector, FakeDns, Outcome, Time, ask
from test_connector import Bench
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from zope.interface import directlyProvides

from protogate.config.model import Endpoint as Entry
from protogate.config.model import Gateway, PoolSettings, Seconds, Upstream
from protogate.message import Peer, Request
from protogate.proxyprotocol import SIGNATURE, encode
from protogate.upstream.cluster import Cluster
from protogate.upstream.means import Means
from protogate.upstream.pool import Pool, Stats
from protogate.upstream.resolver import Resolver
from protogate.wheel import Wheel

ONE, TWO = Peer("192.0.2.1", 1111, here=("198.51.100.1", 80)), Peer("192.0.2.2", 2222, here=("198.51.100.1", 80))


class Told:
    """A pool whose endpoint is told who the client is."""

    def __init__(self, most: int = 10, **timeouts: float) -> None:
        self.time = Time(**timeouts)
        self.connector = FakeConnector()
        settings = PoolSettings(idle=Seconds(30), max_per_endpoint=most)
        self.pool = Pool(self.connector, self.time.context, settings, "up.test:80", lambda peer: encode("v1", peer))

    @property
    def attempts(self) -> list[FakeAttempt]:
        return self.connector.attempts

    def ask(self, peer: Peer, fresh: bool = False) -> Outcome:
        request = self.request(peer)
        return Outcome(self.pool.fresh(request) if fresh else self.pool.handle(request))

    @staticmethod
    def request(peer: Peer) -> Request:
        request = ask()
        request.peer = peer
        return request

    def served(self, peer: Peer, most: int = 1) -> FakeConnection:
        """An idle connection that has served that client."""
        outcome = self.ask(peer)
        connection = self.attempts[-1].up(most)
        connection.answer()
        assert outcome.status == 200
        return connection


def test_a_connection_begins_with_who_its_client_is() -> None:
    bench = Told()
    bench.ask(ONE)
    bench.ask(TWO)
    assert [attempt.times.preface for attempt in bench.attempts] == [encode("v1", ONE), encode("v1", TWO)]


def test_a_connection_is_used_again_for_its_client_and_for_nobody_else() -> None:
    bench = Told()
    one = bench.served(ONE)
    two = bench.served(TWO)
    assert len(bench.attempts) == 2
    for _ in range(3):
        for peer, connection in ((ONE, one), (TWO, two)):
            outcome = bench.ask(peer)
            (asked, _), *_ = connection.asked
            assert asked.peer is peer
            connection.answer()
            assert outcome.status == 200
    assert len(bench.attempts) == 2


def test_requests_of_one_client_at_a_time_have_a_connection_each_unless_it_carries_more() -> None:
    bench = Told()
    for _ in range(3):
        bench.ask(ONE)
    connections = [attempt.up() for attempt in list(bench.attempts)]
    for connection in connections:
        connection.answer()
    again = [bench.ask(ONE) for _ in range(3)]
    assert len(bench.attempts) == 3, "all of them are known to be its"
    assert [len(connection.asked) for connection in connections] == [1, 1, 1]
    assert all(outcome.open for outcome in again)

    bench = Told()
    many = bench.served(ONE, most=10)
    for _ in range(5):
        bench.ask(ONE)
    assert len(many.asked) == 5
    bench.ask(TWO)
    assert len(many.asked) == 5


def test_a_connection_for_who_has_left_is_for_its_client_alone() -> None:
    bench = Told()
    bench.ask(ONE).cancel()
    other = bench.ask(TWO)
    connection = bench.attempts[0].up()
    assert not connection.asked
    assert other.open
    outcome = bench.ask(ONE)
    connection.answer()
    assert outcome.status == 200


def test_who_finds_no_room_has_the_longest_idle_closed() -> None:
    bench = Told(most=2)
    one, two = bench.served(ONE), bench.served(TWO)
    bench.ask(Peer("192.0.2.3", 3))
    assert (one.dead, two.dead) == (True, False)
    assert len(bench.attempts) == 3
    bench.attempts[2].up()
    assert bench.pool.stats() == Stats(open=2, idle=1, waiting=0, connecting=0)


def test_nobody_waits_for_the_connection_of_another_one_that_gets_free() -> None:
    bench = Told(most=1, queue=5)
    first = bench.ask(ONE)
    connection = bench.attempts[0].up()
    second = bench.ask(TWO)
    connection.answer()
    assert first.status == 200
    assert connection.dead
    assert not connection.asked
    bench.attempts[1].up().answer()
    assert second.status == 200


def test_waiting_for_room_has_an_end() -> None:
    bench = Told(most=1, queue=5)
    bench.ask(ONE)
    bench.attempts[0].up()
    second = bench.ask(TWO)
    bench.time.pass_by(5.1)
    assert second.reason.status == 503


def test_a_failed_attempt_fails_the_request_it_was_made_for() -> None:
    bench = Told()
    one, two = bench.ask(ONE), bench.ask(TWO)
    bench.attempts[0].down()
    assert one.reason.error == "connection_refused"
    assert two.open


def test_a_fresh_connection_tells_the_same() -> None:
    bench = Told()
    bench.served(ONE)
    bench.ask(ONE, fresh=True)
    assert bench.attempts[1].times.preface == encode("v1", ONE)


def test_nothing_is_left_of_clients_that_are_gone() -> None:
    bench = Told(most=3)
    for number in range(20):
        bench.served(Peer("192.0.2.1", number))
    assert len(bench.pool._of) == 3
    bench.time.pass_by(31)
    assert bench.pool.stats() == Stats(0, 0, 0, 0)
    assert not bench.pool._of
    done: list[None] = []
    bench.pool.drain().addCallback(done.append)
    assert done == [None]
    assert bench.time.idle


def test_without_being_told_of_clients_they_share() -> None:
    connector = FakeConnector()
    pool = Pool(connector, Time().context, PoolSettings())
    first = Outcome(pool.handle(Told.request(ONE)))
    connection = connector.attempts[0].up()
    connection.answer()
    second = Outcome(pool.handle(Told.request(TWO)))
    connection.answer()
    assert (first.status, second.status) == (200, 200)
    assert connector.attempts[0].times.preface == b""


# -- sending it


class Halves(FakeConnection):
    """Hears of half closes."""

    def __init__(self, ready: Any) -> None:
        super().__init__(ready)
        directlyProvides(self, IHalfCloseableProtocol)
        self.heard: list[Any] = []

    def makeConnection(self, transport: Any) -> None:
        transport.write(b"codec")
        super().makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        self.heard.append(data)

    def readConnectionLost(self) -> None:
        self.heard.append("read")

    def writeConnectionLost(self) -> None:
        self.heard.append("write")

    def connectionLost(self, reason: Any) -> None:
        self.heard.append("lost")
        self.end()


@pytest.mark.parametrize("halves", [True, False])
def test_it_is_sent_before_anything_of_the_codecs_which_hears_all_that_follows(halves: bool) -> None:
    bench = Bench()
    bench.times.preface = b"who "
    made: list[Halves] = []

    def client(ready: Any, context: Any) -> Halves:
        made.append(Halves(ready))
        if not halves:
            directlyProvides(made[-1])
        return made[-1]

    bench.codec.client = client
    bench.connect()
    transport = StringTransport()
    protocol: Any = bench.accept(transport=transport)
    assert transport.value() == b"who codec"
    assert bench.ready == made
    protocol.dataReceived(b"answer")
    assert IHalfCloseableProtocol.providedBy(protocol) is halves
    if halves:
        protocol.readConnectionLost()
        protocol.writeConnectionLost()
    protocol.connectionLost(connectionDone)
    assert made[0].heard == [b"answer", *(["read", "write"] if halves else []), "lost"]
    assert bench.time.idle


def test_each_new_connection_of_a_cluster_tells_the_version_now_in_force() -> None:
    reactor, clock = MemoryReactorClock(), Clock()
    wheel = Wheel(clock)
    means = Means(reactor=reactor, wheel=wheel, resolver=Resolver(wheel, FakeDns(), hosts="/nonexistent"))
    codec, made = Bench().codec, list[Halves]()

    def client(ready: Any, context: Any) -> Halves:
        made.append(Halves(ready))
        return made[-1]

    codec.client = client

    def entry(version: Any) -> Upstream:
        return Upstream(name="up", endpoints=(Entry(url="http://10.0.0.1:80"),), proxy_protocol=version)

    def told() -> bytes:
        Outcome(cluster.handle(Told.request(ONE)))
        transport = StringTransport()
        reactor.tcpClients[-1][2].buildProtocol(None).makeConnection(transport)
        return transport.value()

    cluster = Cluster.named(entry("off"), Gateway(), codec, means)
    assert told() == b"codec"
    cluster.update(entry("v1"), Gateway(), codec)
    assert told() == b"PROXY TCP4 192.0.2.1 198.51.100.1 1111 80\r\ncodec"
    cluster.update(entry("v2"), Gateway(), codec)
    assert told().startswith(SIGNATURE)
    dialed = len(reactor.tcpClients)
    cluster.update(entry("v2"), Gateway(), codec)
    made[-1].answer()
    Outcome(cluster.handle(Told.request(ONE)))
    assert len(reactor.tcpClients) == dialed, "what did not change is kept"
