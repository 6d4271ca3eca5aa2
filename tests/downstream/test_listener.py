"""Accepting, sniffing, draining."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from protogate.context import Context, Limits, Timeouts
from protogate.downstream.listener import Listener, Sniffer
from protogate.interfaces import IConnection, IStreamCodec
from protogate.wheel import Wheel


@implementer(IConnection, IHalfCloseableProtocol)
class Talk(Protocol):
    def __init__(self, name: str) -> None:
        self.name, self.closed, self.busy = name, Deferred[None](), 0
        self.got: list[bytes] = []
        self.ends: list[str] = []

    def dataReceived(self, data: bytes) -> None:
        self.got.append(data)

    def readConnectionLost(self) -> None:
        self.ends.append("read")

    def writeConnectionLost(self) -> None:
        self.ends.append("write")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ends.append("lost")
        self.closed.callback(None)

    def drain(self) -> None:
        self.ends.append("drain")

    def abort(self) -> None:
        self.ends.append("abort")
        self.connectionLost()


@implementer(IStreamCodec)
class Spoken:
    """Recognises what begins with its name."""

    alpn = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: list[Talk] = []

    def sniff(self, prefix: bytes) -> bool | None:
        name = self.name.encode()
        if prefix.startswith(name):
            return True
        return None if name.startswith(prefix) else False

    def server(self, service: Any, context: Context) -> Talk:
        self.made.append(Talk(self.name))
        return self.made[-1]

    def client(self, ready: Any, context: Context) -> Talk:
        raise AssertionError


class World:
    def __init__(self, *names: str, connections: int = 10) -> None:
        self.clock, self.counted = Clock(), list[str]()
        self.context = Context(
            Wheel(self.clock), Limits(connections=connections), Timeouts(client_header=5), self.counted.append
        )
        self.codecs = [Spoken(name) for name in names]
        service: Any = object()
        self.listener = Listener("web", self.codecs, service, self.context)

    def accept(self) -> tuple[Any, StringTransport]:
        protocol: Any = self.listener.buildProtocol(None)
        transport = StringTransport()
        if protocol is not None:
            protocol.makeConnection(transport)
        return protocol, transport


def test_one_protocol_is_not_guessed() -> None:
    world = World("abc")
    protocol, _ = world.accept()
    assert isinstance(protocol, Talk)
    assert world.listener.connections == {protocol}
    protocol.connectionLost()
    assert world.listener.connections == set()


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("name", ["abc", "abd"])
def test_the_first_bytes_choose_and_none_is_lost(name: str, size: int) -> None:
    world = World("abc", "abd")
    protocol, _ = world.accept()
    verifyObject(IConnection, protocol)
    text = name.encode() + b" hello"
    for at in range(0, len(text), size):
        protocol.dataReceived(text[at : at + size])
    (talk,) = (codec for codec in world.codecs if codec.made)
    assert talk.name == name
    assert b"".join(talk.made[0].got) == text
    assert talk.made[0].transport is protocol.transport
    assert world.listener.connections == {talk.made[0]}
    assert not any(world.context.wheel._slots.values())


def test_half_close_and_loss_reach_the_codec() -> None:
    world = World("abc", "abd")
    protocol, _ = world.accept()
    assert not IHalfCloseableProtocol.providedBy(protocol)
    protocol.dataReceived(b"abc")
    assert IHalfCloseableProtocol.providedBy(protocol)
    assert IConnection.providedBy(protocol)
    protocol.readConnectionLost()
    protocol.writeConnectionLost()
    protocol.connectionLost(Failure(ConnectionDone()))
    assert world.codecs[0].made[0].ends == ["read", "write", "lost"]
    assert world.listener.connections == set()


def test_what_nobody_knows_goes_to_the_first_codec() -> None:
    world = World("abc", "abd")
    protocol, _ = world.accept()
    protocol.dataReceived(b"xyz")
    assert world.codecs[0].made[0].got == [b"xyz"]
    assert "protocol_unknown" in world.counted


def test_silence_is_not_waited_for() -> None:
    world = World("abc", "abd")
    _, transport = world.accept()
    world.clock.advance(4.9)
    assert not transport.disconnected
    world.clock.advance(0.2)
    assert transport.disconnected
    assert "client_header_timeout" in world.counted


def test_lost_before_anything_was_said() -> None:
    world = World("abc", "abd")
    protocol, _ = world.accept()
    protocol.connectionLost(Failure(ConnectionDone()))
    assert world.listener.connections == set()
    world.clock.advance(10)


def test_one_connection_too_many_is_closed_at_once() -> None:
    world = World("abc", connections=2)
    kept = [world.accept()[0] for _ in range(2)]
    assert world.accept()[0] is None
    assert world.counted.count("connections_refused") == 1
    kept[0].connectionLost()
    assert world.accept()[0] is not None


def test_drain_ends_with_the_last_connection() -> None:
    world = World("abc", "abd")
    sniffing, transport = world.accept()
    protocol, _ = world.accept()
    protocol.dataReceived(b"abc")
    talk = world.codecs[0].made[0]
    done: list[None] = []
    world.listener.drain().addCallback(done.append)
    world.clock.advance(2.9)
    assert not transport.disconnecting, "its first bytes may be on their way"
    world.clock.advance(0.2)
    assert transport.disconnecting
    assert talk.ends == ["drain"]
    assert world.accept()[0] is None
    sniffing.connectionLost(Failure(ConnectionDone()))
    assert done == []
    talk.connectionLost()
    assert done == [None]
    world.listener.drain().addCallback(done.append)
    assert done == [None, None]


def test_what_was_accepted_before_a_drain_is_served() -> None:
    world = World("abc", "abd")
    protocol, transport = world.accept()
    world.listener.drain()
    protocol.dataReceived(b"abc")
    talk = world.codecs[0].made[0]
    assert (talk.ends, talk.got) == (["drain"], [b"abc"])
    world.clock.advance(10)
    assert not transport.disconnecting, "the codec minds its own end"
    talk.connectionLost()


def test_abort_drops_all() -> None:
    world = World("abc", "abd")
    _, transport = world.accept()
    protocol, _ = world.accept()
    protocol.dataReceived(b"abc")
    world.listener.abort()
    assert transport.disconnected
    assert world.codecs[0].made[0].ends == ["abort", "lost"]


def test_a_sniffer_that_was_never_connected_can_be_dropped() -> None:
    world = World("abc", "abd")
    protocol = world.listener.buildProtocol(None)
    assert isinstance(protocol, Sniffer)
    protocol.drain()
    protocol.abort()
