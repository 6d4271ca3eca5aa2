"""Memory wires behave as Twisted's TCP transports do."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Protocol
from zope.interface import implementer
from zope.interface.verify import verifyObject

from protogate.testing.transport import CLIENT, SERVER, Link, Net, Wire


class Recorder(Protocol):
    def __init__(self):
        self.log = []
        self.got = b""

    def dataReceived(self, data):
        self.got += data

    def connectionLost(self, reason):
        self.log.append(reason.type)


@implementer(IHalfCloseableProtocol)
class Half(Recorder):
    def readConnectionLost(self):
        self.log.append("fin read")

    def writeConnectionLost(self):
        self.log.append("fin sent")


class Producer:
    def __init__(self):
        self.log = []

    def pauseProducing(self):
        self.log.append("pause")

    def resumeProducing(self):
        self.log.append("resume")

    def stopProducing(self):
        self.log.append("stop")


def pair(kind=Recorder, **named):
    a, b = kind(), kind()
    return a, b, Link(a, b, **named)


def settle(link, most=1 << 30):
    while link.step(most):
        pass


def test_is_a_tcp_transport():
    wire = Wire()
    verifyObject(ITCPTransport, wire)
    assert (wire.getHost(), wire.getPeer()) == (SERVER, CLIENT)
    wire.setTcpNoDelay(1)
    wire.setTcpKeepAlive(True)
    assert wire.getTcpNoDelay() is True
    assert wire.getTcpKeepAlive() is True
    with pytest.raises(TypeError, match="takes bytes, got str"):
        wire.write("text")


def test_a_wire_alone_keeps_what_was_written_piece_by_piece():
    wire = Wire()
    wire.write(b"abc")
    wire.write(b"")
    wire.writeSequence([b"d", b"ef"])
    assert (wire.unsent(), wire.value(), wire.pieces(), wire.writes) == (6, b"abcdef", [b"abc", b"def"], 2)
    assert wire.take(4) == b"abcd"
    assert wire.value() == b"ef"
    wire.clear()
    assert (wire.unsent(), wire.value(), wire.peak) == (0, b"", 6)


def test_addresses_of_a_link():
    here, there = IPv4Address("TCP", "127.0.0.9", 5), IPv4Address("TCP", "127.0.0.8", 80)
    a, b, _ = pair(client=here, server=there)
    assert (a.transport.getHost(), a.transport.getPeer()) == (here, there)
    assert (b.transport.getHost(), b.transport.getPeer()) == (there, here)


def test_step_carries_at_most_that_many_bytes_each_way():
    a, b, link = pair()
    a.transport.write(b"hello")
    b.transport.write(b"world")
    assert link.step(2)
    assert (a.got, b.got) == (b"wo", b"he")
    settle(link, 1)
    assert (a.got, b.got) == (b"world", b"hello")
    assert not link.step()


def test_producer_is_paused_beyond_the_bound_and_resumed_when_empty():
    a, _, link = pair(high=10)
    producer = Producer()
    a.transport.registerProducer(producer, True)
    a.transport.write(b"x" * 10)
    assert producer.log == []
    a.transport.write(b"x")
    a.transport.write(b"x")
    assert producer.log == ["pause", "pause"]
    link.step(6)
    assert producer.log == ["pause", "pause"]
    link.step(6)
    assert producer.log == ["pause", "pause", "resume"]
    with pytest.raises(RuntimeError, match="was never unregistered"):
        a.transport.registerProducer(Producer(), True)
    link.reset()
    assert producer.log[3:] == ["stop"]
    late = Producer()
    a.transport.registerProducer(late, True)
    assert late.log == ["stop"]


def test_pull_producer_is_asked_each_time_the_buffer_is_empty():
    wire, producer = Wire(), Producer()
    wire.registerProducer(producer, False)
    wire.write(b"x" * 100000)
    wire.take(1)
    assert producer.log == ["resume"]
    wire.clear()
    assert producer.log == ["resume", "resume"]


def test_a_paused_reader_sees_neither_bytes_nor_fin_nor_reset():
    for end in ("loseConnection", "abortConnection"):
        a, b, link = pair()
        b.transport.pauseProducing()
        if end == "loseConnection":
            a.transport.write(b"last")
        getattr(a.transport, end)()
        settle(link)
        assert (b.got, b.log) == (b"", [])
        b.transport.resumeProducing()
        settle(link)
        assert b.log == [ConnectionDone if end == "loseConnection" else ConnectionLost]
        assert b.got == (b"last" if end == "loseConnection" else b"")


def test_close_sends_what_is_left_first():
    a, b, link = pair()
    a.transport.write(b"last words")
    a.transport.loseConnection()
    link.step(4)
    assert a.log == b.log == []
    settle(link)
    assert b.got == b"last words"
    assert a.log == b.log == [ConnectionDone]
    assert link.dead
    a.transport.write(b"too late")
    a.transport.resumeProducing()
    assert (a.transport.unsent(), a.transport.reading) == (0, False)


def test_close_waits_for_a_paused_producer():
    a, b, link = pair(high=3)
    chunks = [b" even", b" more"]

    class Source(Producer):
        def resumeProducing(self):
            a.transport.write(chunks.pop(0))

    a.transport.registerProducer(Source(), True)
    a.transport.write(b"many")
    a.transport.loseConnection()
    link.step()
    assert (a.log, b.got) == ([], b"many")
    link.step()
    assert (a.log, b.got) == ([], b"many even")
    a.transport.unregisterProducer()
    settle(link)
    assert (a.log, b.got) == ([ConnectionDone], b"many even more")


def test_closing_with_unread_bytes_is_a_reset_for_the_peer():
    a, b, link = pair()
    a.transport.pauseProducing()
    b.transport.write(b"never read")
    a.transport.loseConnection()
    settle(link)
    assert (a.log, b.log) == ([ConnectionDone], [ConnectionLost])


def test_writing_to_a_closed_end_is_answered_with_a_reset_after_its_fin():
    a, b, link = pair(Half)
    a.transport.loseConnection()
    settle(link)
    assert (a.log, b.log) == ([ConnectionDone], ["fin read"])
    b.transport.write(b"anybody there?")
    settle(link)
    assert b.log == ["fin read", ConnectionLost]


def test_abort_drops_what_was_written():
    a, b, link = pair()
    a.transport.write(b"dropped")
    a.transport.abortConnection()
    a.transport.write(b"ignored")
    settle(link)
    assert (a.log, b.log, b.got) == ([ConnectionAborted], [ConnectionLost], b"")


def test_half_close_leaves_the_other_way_open_and_two_do_not_end_the_connection():
    a, b, link = pair(Half)
    a.transport.write(b"last")
    a.transport.loseWriteConnection()
    a.transport.write(b"ignored")
    settle(link)
    assert (b.got, a.log, b.log) == (b"last", ["fin sent"], ["fin read"])
    b.transport.write(b"still open")
    b.transport.loseWriteConnection()
    settle(link)
    assert (a.got, a.log, b.log) == (b"still open", ["fin sent", "fin read"], ["fin read", "fin sent"])
    assert not link.dead
    a.transport.loseConnection()
    assert a.log[-1] is ConnectionDone, "at once: there is nothing left to send"
    b.transport.loseConnection()
    settle(link)
    assert link.dead
    assert b.log[-1] is ConnectionDone


def test_reading_again_after_a_half_close_reads_it_again():
    a, b, link = pair(Half)
    a.transport.loseWriteConnection()
    settle(link)
    b.transport.resumeProducing()
    settle(link)
    assert b.log == ["fin read", "fin read"]


def test_half_close_ends_the_connection_of_a_plain_protocol():
    a, b, link = pair()
    a.transport.loseWriteConnection()
    settle(link)
    assert a.log == b.log == [ConnectionDone]


def test_cut_is_heard_only_by_who_writes():
    a, b, link = pair()
    link.cut(0)
    settle(link)
    assert (a.log, b.log) == ([ConnectionLost], [])
    b.transport.write(b"x")
    settle(link)
    assert b.log == [ConnectionLost]


def test_transport_as_producer_stops_by_closing():
    a, b, link = pair()
    a.transport.stopProducing()
    settle(link)
    assert a.log == b.log == [ConnectionDone]


def test_on_lost_is_called_after_the_protocol():
    a, _, link = pair()
    a.transport.on_lost = lambda failure: a.log.append(("on_lost", failure.type))
    link.reset()
    link.reset()
    assert a.log == [ConnectionLost, ("on_lost", ConnectionLost)]


def test_net_runs_until_quiet_and_forgets_dead_links():
    net = Net(most=1)
    a, b = Recorder(), Recorder()
    net.link(a, b)
    net.turn(lambda: a.transport.write(b"turn"))
    net.run(until=lambda: b.got == b"tu")
    assert b.got == b"tu"
    net.run()
    assert b.got == b"turn"
    a.transport.loseConnection()
    net.run()
    assert net.links == []


def test_net_says_so_when_links_never_rest(monkeypatch):
    monkeypatch.setattr("protogate.testing.transport.ROUNDS", 50)
    net = Net()

    def again():
        net.turn(again)

    again()
    net.run(rounds=10)
    with pytest.raises(AssertionError, match="still move after 50 rounds"):
        net.run()
