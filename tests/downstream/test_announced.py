"""Connections that begin with a PROXY header."""

from __future__ import annotations

from typing import Any

import pytest
from test_listener import Talk, World
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.testing import StringTransport
from zope.interface.verify import verifyObject

from protogate.config.model import ProxyProtocol
from protogate.downstream.proxies import Proxies
from protogate.interfaces import IConnection
from protogate.message import Peer, peer_of
from protogate.proxyprotocol import SIGNATURE, encode
from protogate.tls.session import Session

PROXY = IPv4Address("TCP", "10.1.2.3", 4567)
ELSEWHERE = IPv4Address("TCP", "192.0.2.9", 4567)
CLIENT = Peer("203.0.113.5", 999, True, Session("TLSv1.3", "x"), ("198.51.100.7", 443))


class Entry(World):
    """A listener that believes proxies in 10.0.0.0/8."""

    def __init__(self, *names: str, mode: Any = "required", connections: int = 10) -> None:
        super().__init__(*names, connections=connections)
        self.listener.proxies = Proxies(ProxyProtocol(trusted=("10.0.0.0/8", "2001:db8::/32"), mode=mode))
        self.said: list[str] = []
        self.listener.distrust = lambda text, **fields: self.said.append(text.format(suppressed=0, **fields)) or True

    def come(self, address: Any = PROXY) -> tuple[Any, StringTransport]:
        protocol: Any = self.listener.buildProtocol(address)
        transport = StringTransport(peerAddress=address)
        if protocol is not None:
            protocol.makeConnection(transport)
        return protocol, transport

    @property
    def talks(self) -> list[Talk]:
        return [talk for codec in self.codecs for talk in codec.made]


@pytest.mark.parametrize("names", [("abc",), ("abd", "abc")])
@pytest.mark.parametrize("header", [encode("v1", CLIENT), encode("v2", CLIENT)])
def test_the_codec_sees_whom_the_proxy_tells_of_and_every_byte_behind_it(names: tuple[str, ...], header: bytes) -> None:
    data = header + b"abc hello"
    for size in (1, 7, len(header), len(data)):
        world = Entry(*names)
        protocol, transport = world.come()
        verifyObject(IConnection, protocol)
        for at in range(0, len(data), size):
            protocol.dataReceived(data[at : at + size])
        (talk,) = world.talks
        assert b"".join(talk.got) == b"abc hello"
        peer = peer_of(talk.transport)
        assert (peer.ip, peer.port, peer.here) == ("203.0.113.5", 999, ("198.51.100.7", 443))
        assert peer.tls is header.startswith(SIGNATURE)
        assert world.listener.connections == {talk}
        assert world.counted == ["connections_accepted", "proxy_headers"]
        assert not any(world.context.wheel._slots.values()), "a clock is left"
        protocol.connectionLost()
        assert talk.ends == ["lost"]
        assert not transport.disconnecting


def test_one_codec_is_there_as_soon_as_the_header_is() -> None:
    world = Entry("abc")
    protocol, _ = world.come()
    protocol.dataReceived(encode("v1", CLIENT))
    assert [talk.got for talk in world.talks] == [[]]


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0", encode("v2", Peer())])
def test_a_connection_of_the_proxys_own_is_the_proxys(header: bytes) -> None:
    world = Entry("abc")
    protocol, _ = world.come()
    protocol.dataReceived(header)
    assert peer_of(world.talks[0].transport).ip == "10.1.2.3"


@pytest.mark.parametrize("mode", ["required", "optional"])
def test_a_header_that_is_wrong_costs_the_connection(mode: str) -> None:
    world = Entry("abc", mode=mode)
    protocol, transport = world.come()
    protocol.dataReceived(b"PROXY TCP4 nonsense\r\nabc")
    assert transport.disconnected
    protocol.connectionLost()
    assert not world.talks
    assert not world.listener.connections
    assert "proxy_header_invalid" in world.counted
    (said,) = world.said
    assert "no PROXY header is taken from 10.1.2.3: the line of version 1 is not in its form" in said


def test_a_trusted_proxy_must_tell_where_that_is_required() -> None:
    world = Entry("abc")
    protocol, transport = world.come()
    protocol.dataReceived(b"abc")
    assert transport.disconnected
    assert not world.talks
    assert "proxy_header_missing" in world.counted


def test_where_it_is_optional_who_tells_nothing_is_a_client() -> None:
    world = Entry("abc", mode="optional")
    protocol, transport = world.come()
    protocol.dataReceived(b"abc")
    assert world.talks[0].got == [b"abc"]
    assert peer_of(world.talks[0].transport).ip == "10.1.2.3"
    assert not transport.disconnected
    assert "proxy_headers" not in world.counted


def test_who_is_not_trusted_is_closed_before_a_byte_is_read_where_it_is_required() -> None:
    world = Entry("abc")
    for address in (ELSEWHERE, IPv6Address("TCP", "2001:db9::1", 1)):
        protocol, _ = world.come(address)
        assert protocol is None
    assert world.counted == ["proxy_untrusted"] * 2
    assert "192.0.2.9: it is not trusted" in world.said[0]


def test_a_header_of_somebody_who_is_not_trusted_is_nothing_but_bytes() -> None:
    world = Entry("abc", mode="optional")
    protocol, _ = world.come(ELSEWHERE)
    protocol.dataReceived(encode("v1", CLIENT))
    assert world.talks[0].got == [encode("v1", CLIENT)]
    assert peer_of(world.talks[0].transport).ip == "192.0.2.9"


def test_a_header_is_nothing_but_bytes_where_nobody_is_asked_for_one() -> None:
    world = Entry("abc")
    world.listener.proxies = None
    protocol, _ = world.come()
    protocol.dataReceived(encode("v2", CLIENT))
    assert world.talks[0].got == [encode("v2", CLIENT)]
    assert peer_of(world.talks[0].transport).ip == "10.1.2.3"


@pytest.mark.parametrize(
    "address",
    [PROXY, IPv6Address("TCP", "2001:db8::7", 1), IPv6Address("TCP", "::ffff:10.0.0.1", 1), UNIXAddress(b"/run/x")],
)
def test_trusted_is_who_is_in_a_network_or_may_use_the_socket(address: Any) -> None:
    world = Entry("abc")
    protocol, _ = world.come(address)
    protocol.dataReceived(encode("v1", CLIENT))
    assert peer_of(world.talks[0].transport).ip == "203.0.113.5"


def test_a_header_that_takes_too_long_costs_the_connection() -> None:
    world = Entry("abc", "abd")
    protocol, transport = world.come()
    protocol.dataReceived(b"PROXY TCP4 ")
    world.clock.advance(4.9)
    assert not transport.disconnected
    world.clock.advance(0.2)
    assert transport.disconnected
    assert "proxy_header_timeout" in world.counted


def test_what_comes_after_the_header_has_the_whole_clock_again() -> None:
    world = Entry("abc", "abd")
    protocol, transport = world.come()
    world.clock.advance(4.9)
    protocol.dataReceived(encode("v1", CLIENT))
    world.clock.advance(4.9)
    assert not transport.disconnected
    world.clock.advance(0.2)
    assert transport.disconnected
    assert "client_header_timeout" in world.counted


def test_no_clock_where_there_is_none() -> None:
    world = Entry("abc")
    world.context.timeouts = type(world.context.timeouts)(client_header=0)
    _, transport = world.come()
    world.clock.advance(1e6)
    assert not transport.disconnected


def test_a_connection_that_ends_within_the_header_is_over() -> None:
    world = Entry("abc")
    protocol, _ = world.come()
    protocol.dataReceived(b"PROX")
    assert world.listener.connections == {protocol}
    protocol.connectionLost()
    assert not world.listener.connections
    assert not any(world.context.wheel._slots.values())


@pytest.mark.parametrize("names", [("abc",), ("abc", "abd")])
def test_a_drain_waits_for_what_is_on_its_way(names: tuple[str, ...]) -> None:
    world = Entry(*names)
    protocol, transport = world.come()
    protocol.dataReceived(b"PROXY ")
    drained: list[None] = []
    world.listener.drain().addCallback(drained.append)
    world.clock.advance(2.9)
    protocol.dataReceived(encode("v1", CLIENT)[6:])
    world.clock.advance(2.9)
    protocol.dataReceived(b"abc")
    (talk,) = world.talks
    assert talk.ends == ["drain"]
    assert talk.got == [b"abc"]
    assert not transport.disconnecting
    talk.connectionLost()
    assert drained == [None]


def test_a_drain_does_not_wait_for_silence() -> None:
    world = Entry("abc")
    _, transport = world.come()
    world.listener.drain()
    world.clock.advance(3.1)
    assert transport.disconnecting


def test_one_connection_too_many_is_closed_whoever_it_is_from() -> None:
    world = Entry("abc", connections=1)
    world.come()
    assert world.come()[0] is None
    assert world.come(ELSEWHERE)[0] is None
    assert world.counted == ["connections_accepted", "connections_refused", "connections_refused"]
