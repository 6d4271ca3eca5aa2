"""Twisted's endpoints run on the memory reactor as on a real one."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    TCP6ServerEndpoint,
    UNIXClientEndpoint,
    UNIXServerEndpoint,
)
from twisted.internet.error import (
    CannotListenError,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,  # noqa: A004
    DNSLookupError,
    NotConnectingError,
    TimeoutError,  # noqa: A004
    UserError,
)
from twisted.internet.interfaces import IReactorFromThreads, IReactorTCP, IReactorTime, IReactorUNIX
from twisted.internet.protocol import ClientFactory, Factory
from twisted.internet.threads import deferToThreadPool
from zope.interface.verify import verifyObject

from protogate.testing.reactor import START, MemoryReactor
from protogate.testing.upstream import Do, Expect, Raw, Upstream


class Client(ClientFactory):
    noisy = False

    def __init__(self, protocol=Raw):
        self.log, self.made, self.kind = [], None, protocol

    def doStart(self):
        self.log.append("start")

    def doStop(self):
        self.log.append("stop")

    def startedConnecting(self, connector):
        self.log.append("connecting")

    def buildProtocol(self, addr):
        self.made = self.kind() if self.kind else None
        return self.made

    def clientConnectionFailed(self, connector, reason):
        self.log.append(("failed", reason.type))

    def clientConnectionLost(self, connector, reason):
        self.log.append(("lost", reason.type))


@pytest.fixture
def reactor():
    return MemoryReactor()


def result(deferred):
    box = []
    deferred.addBoth(box.append)
    return box


def test_provides_what_it_says(reactor):
    for interface in (IReactorTime, IReactorTCP, IReactorUNIX, IReactorFromThreads):
        verifyObject(interface, reactor)


def test_tcp_endpoints_meet(reactor):
    port = result(
        TCP4ServerEndpoint(reactor, 0, interface="127.0.0.5").listen(upstream := Upstream([Expect(b"?"), b"!"]))
    )[0]
    where = port.getHost()
    assert where == IPv4Address("TCP", "127.0.0.5", where.port)
    made = result(TCP4ClientEndpoint(reactor, "127.0.0.5", where.port).connect(Factory.forProtocol(Raw)))
    assert made == [], "not before the next turn"
    reactor.run()
    client = made[0]
    client.send(b"how are you?")
    reactor.run()
    assert (client.received, upstream.received) == (b"!", [b"how are you?"])
    assert client.transport.getPeer() == where
    assert upstream.connections[0].transport.getPeer() == client.transport.getHost()


def test_addresses_of_ipv6_and_unix(reactor):
    six = result(TCP6ServerEndpoint(reactor, 80, interface="::1").listen(Upstream()))[0]
    assert six.getHost() == IPv6Address("TCP", "::1", 80)
    result(UNIXServerEndpoint(reactor, "/run/memory.sock").listen(upstream := Upstream()))
    made = result(UNIXClientEndpoint(reactor, "/run/memory.sock").connect(Factory.forProtocol(Raw)))
    reactor.run()
    made[0].send(b"x")
    reactor.run()
    assert upstream.received == [b"x"]
    assert made[0].transport.getPeer() == UNIXAddress("/run/memory.sock")


def test_a_listener_on_any_address_is_found(reactor):
    reactor.listenTCP(80, upstream := Upstream())
    reactor.listenTCP(81, six := Upstream(), interface="::")
    reactor.connectTCP("127.0.0.1", 80, Client(), bindAddress=("127.0.0.77", 4000))
    reactor.connectTCP("::1", 81, Client())
    reactor.run()
    assert upstream.connections[0].transport.getPeer() == IPv4Address("TCP", "127.0.0.77", 4000)
    assert len(six.connections) == 1


def test_one_address_is_listened_on_once_until_it_is_free(reactor):
    port = reactor.listenTCP(80, Upstream())
    with pytest.raises(CannotListenError):
        reactor.listenTCP(80, Upstream())
    port.stopListening()
    port.stopListening()
    reactor.listenTCP(80, Upstream())


def test_nobody_listens(reactor):
    factory = Client()
    reactor.connectTCP("127.0.0.1", 1, factory)
    reactor.run()
    assert factory.log == ["start", "connecting", ("failed", ConnectionRefusedError), "stop"]


def test_nobody_answers(reactor):
    reactor.silent.add(("127.0.0.1", 1))
    factory = Client()
    reactor.connectTCP("127.0.0.1", 1, factory, timeout=3)
    reactor.advance(2.9)
    assert factory.log == ["start", "connecting"]
    reactor.advance(0.2)
    assert factory.log[2:] == [("failed", TimeoutError), "stop"]
    forever = Client()
    reactor.connectTCP("127.0.0.1", 1, forever, timeout=None)
    reactor.advance(100)
    assert forever.log == ["start", "connecting"]


def test_giving_up(reactor):
    reactor.listenTCP(1, Upstream())
    factory = Client()
    reactor.connectTCP("127.0.0.1", 1, factory).disconnect()
    reactor.run()
    assert factory.log[2:] == [("failed", UserError), "stop"]
    pending = TCP4ClientEndpoint(reactor, "127.0.0.1", 1).connect(Factory.forProtocol(Raw))
    failure = result(pending)
    pending.cancel()
    assert failure[0].check(CancelledError, Exception)
    reactor.run()
    connector = reactor.connectTCP("127.0.0.1", 1, factory)
    reactor.run()
    with pytest.raises(NotConnectingError):
        connector.stopConnecting()
    with pytest.raises(RuntimeError):
        connector.connect()


def test_a_lost_connection_is_told_and_may_be_made_again(reactor):
    reactor.listenTCP(1, upstream := Upstream([b"bye", Do.CLOSE]))
    factory = Client()
    connector = reactor.connectTCP("127.0.0.1", 1, factory)
    reactor.run()
    assert factory.made.received == b"bye"
    assert factory.log == ["start", "connecting"], "a half-closeable end only read a FIN"
    connector.disconnect()
    reactor.run()
    assert factory.log[2:] == [("lost", ConnectionDone), "stop"]
    assert connector.getDestination() == IPv4Address("TCP", "127.0.0.1", 1)
    connector.disconnect()
    connector.connect()
    reactor.run()
    assert len(upstream.connections) == 2


def test_a_factory_that_wants_no_connection(reactor):
    class No(Upstream):
        def buildProtocol(self, addr):
            return None

    reactor.listenTCP(1, No())
    factory = Client()
    reactor.connectTCP("127.0.0.1", 1, factory)
    reactor.run()
    assert factory.made.eof
    factory.made.send(b"hello?")
    reactor.run()
    assert isinstance(factory.made.lost, ConnectionLost)
    unwilling = Client(None)
    reactor.connectTCP("127.0.0.1", 1, unwilling)
    reactor.run()
    assert unwilling.log == ["start", "connecting"]


def test_names(reactor):
    reactor.names["a.test"] = "127.0.0.3"
    assert result(reactor.resolve("a.test")) == ["127.0.0.3"]
    assert result(reactor.resolve("127.0.0.4")) == ["127.0.0.4"]
    assert result(reactor.resolve("b.test"))[0].check(DNSLookupError)
    reactor.listenTCP(80, upstream := Upstream(), interface="127.0.0.3")
    reactor.connectTCP("a.test", 80, Client())
    reactor.run()
    assert len(upstream.connections) == 1


def test_time_moves_in_steps_and_only_when_told(reactor):
    seen = []
    reactor.callLater(0.12, lambda: seen.append(round(reactor.seconds() - START, 2)))
    reactor.callLater(0, seen.append, "now")
    reactor.run()
    assert seen == ["now"]
    assert len(reactor.getDelayedCalls()) == 1
    reactor.advance(1)
    assert seen == ["now", 0.15]
    assert reactor.seconds() == pytest.approx(START + 1)


def test_threads_are_turns(reactor):
    log = []
    reactor.callFromThread(log.append, 1)
    reactor.callInThread(log.append, 2)
    pool = reactor.getThreadPool()
    good = result(deferToThreadPool(reactor, pool, lambda: "done"))
    bad = result(deferToThreadPool(reactor, pool, lambda: 1 / 0))
    pool.callInThreadWithCallback(None, log.append, 3)
    pool.callInThread(log.append, 4)
    assert log == good == bad == []
    reactor.run()
    assert (log, good) == ([1, 2, 3, 4], ["done"])
    assert bad[0].check(ZeroDivisionError)


def test_rounds(reactor, monkeypatch):
    monkeypatch.setattr("protogate.testing.reactor.ROUNDS", 20)

    def again():
        reactor.callFromThread(again)

    again()
    reactor.run(rounds=3)
    reactor.run(until=lambda: True)
    with pytest.raises(AssertionError, match="still busy after 20 rounds"):
        reactor.run()
