"""Attempts, and connections and ports that somebody else made."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
from onuv import One, Recorder, UVReactor, listen, on_uv, pair, sleep, until
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import (
    ConnectBindError,
    ConnectionDone,
    ConnectionRefusedError,  # noqa: A004 - Twisted's
    DNSLookupError,
    TimeoutError,  # noqa: A004 - Twisted's
    UnsupportedAddressFamily,
    UserError,
)
from twisted.internet.protocol import DatagramProtocol, Factory


def full() -> tuple[Any, list[socket.socket]]:
    """Where nobody answers, as long as the sockets are open."""
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(0)
    crowd = [socket.socket() for _ in range(4)]
    for each in crowd:
        each.setblocking(False)
        each.connect_ex(deaf.getsockname())
    return deaf.getsockname(), [deaf, *crowd]


@on_uv
async def test_failures_have_the_names_that_twisted_gives_them(reactor: UVReactor) -> None:
    async def failure(*where: Any, **how: Any) -> type[BaseException]:
        factory = One()
        reactor.connectTCP(*where, factory, **how)
        return (await factory.failed).type

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await failure("127.0.0.1", port) is ConnectionRefusedError
    assert await failure("no-such-host.invalid", 80) is DNSLookupError
    where, crowd = full()
    assert await failure(*where, timeout=0.1) is TimeoutError
    for each in crowd:
        each.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Twisted forgets to close its socket
@on_uv
async def test_an_address_to_connect_from_that_is_taken(reactor: UVReactor) -> None:
    factory = One()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        reactor.connectTCP("127.0.0.1", 1, factory, bindAddress=taken.getsockname())
        assert (await factory.failed).type is ConnectBindError


@on_uv
async def test_an_attempt_can_be_given_up(reactor: UVReactor) -> None:
    where, crowd = full()
    factory = One()
    connector = reactor.connectTCP(*where, factory)
    await sleep(reactor, 0.02)
    connector.disconnect()
    assert (await factory.failed).type is UserError
    for each in crowd:
        each.close()


@on_uv
async def test_an_attempt_given_up_just_when_it_was_connected_has_no_protocol(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    factory = One(client)
    connector = reactor.connectTCP(*listen(reactor, server), factory)
    attempt = connector.transport
    await until(reactor, lambda: attempt._transport is not None or client.events)
    if not client.events:  # uvloop has the socket, and tells in the next turn
        connector.stopConnecting()
        assert (await factory.failed).type is UserError
        assert await server.lost is ConnectionDone
        assert not client.events


@on_uv
async def test_a_connector_connects_again(reactor: UVReactor) -> None:
    class Again(One):
        left = 3

        def buildProtocol(self, address: object) -> Recorder:
            self.one = Recorder()
            self.one.made.addCallback(lambda one: one.transport.loseConnection())
            return self.one

        def clientConnectionLost(self, connector: Any, reason: Any) -> None:
            self.left -= 1
            if self.left:
                connector.connect()
            else:
                super().clientConnectionLost(connector, reason)

    factory = Again()
    port = reactor.listenTCP(0, Factory.forProtocol(Recorder), interface="127.0.0.1")
    reactor.connectTCP("127.0.0.1", port.getHost().port, factory)
    await factory.gone
    assert factory.left == 0


@pytest.mark.parametrize(("host", "kind"), [("127.0.0.1", IPv4Address), ("::1", IPv6Address)])
def test_addresses(host: str, kind: type) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        server, client = Recorder(), Recorder()
        built: list[object] = []
        factory = One(server)
        factory.buildProtocol = partial(_seen, built, server)  # type: ignore[method-assign]
        port = reactor.listenTCP(0, factory, interface=host)
        connector = reactor.connectTCP(host, port.getHost().port, One(client))
        await server.made
        await client.made
        assert client.transport.getPeer() == port.getHost() == server.transport.getHost()
        assert client.transport.getHost() == server.transport.getPeer() == built[0]
        assert type(built[0]) is kind
        assert connector.transport is client.transport
        assert repr(server.transport) == f"<Recorder #0 on {port.getHost().port}>"
        assert repr(port.getHost().port) in repr(client.transport)
        assert client.transport.logstr == "Recorder,client"

    if host == "::1" and not _six():
        pytest.skip("there is no IPv6 here")
    test()


def _seen(addresses: list[Any], protocol: Recorder, address: object) -> Recorder:
    addresses.append(address)
    return protocol


def _six() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@on_uv
async def test_options_of_tcp(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    assert client.transport.getTcpNoDelay()
    client.transport.setTcpNoDelay(False)
    assert not client.transport.getTcpNoDelay()
    assert not server.transport.getTcpKeepAlive()
    server.transport.setTcpKeepAlive(True)
    assert server.transport.getTcpKeepAlive()


@on_uv
async def test_an_adopted_port_leaves_the_given_descriptor_alone(reactor: UVReactor) -> None:
    server = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as given:
        port = reactor.adoptStreamPort(given.fileno(), socket.AF_INET, One(server))
        with socket.create_connection(given.getsockname()) as client:
            client.sendall(b"x")
            await server.received(1)
            await port.stopListening()
            # The queue is the kernel's, and the next one takes it over.
            with socket.create_connection(given.getsockname()) as second:
                successor = Recorder()
                reactor.adoptStreamPort(given.fileno(), socket.AF_INET, One(successor))
                second.sendall(b"y")
                await successor.received(1)
            client.sendall(b"z")
            await server.received(2)


@on_uv
async def test_an_adopted_connection(reactor: UVReactor) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, name = listening.accept()
    for family, sock, peer in ((socket.AF_INET, accepted, client), (socket.AF_UNIX, ours, theirs)):
        server, factory = Recorder(), One()
        seen: list[Any] = []
        factory.buildProtocol = partial(_seen, seen, server)  # type: ignore[method-assign]
        transport = reactor.adoptStreamConnection(sock.fileno(), family, factory)
        sock.close()
        await server.made
        assert server.transport is transport
        assert len(seen) == 1
        if family == socket.AF_INET:
            assert seen == [IPv4Address("TCP", *name)]
        peer.sendall(b"x")
        await server.received(1)
        peer.close()
        assert await server.lost is ConnectionDone


@on_uv
async def test_who_wants_no_adopted_connection_closes_it(reactor: UVReactor) -> None:
    class Refusing(Factory):
        def buildProtocol(self, address: object) -> None:
            return None

    class Failing(Factory):
        def buildProtocol(self, address: object) -> None:
            raise ZeroDivisionError

    for refuses in (Refusing(), Failing()):
        ours, theirs = socket.socketpair()
        if isinstance(refuses, Refusing):
            assert reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, refuses) is None
        else:
            with pytest.raises(ZeroDivisionError):
                reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, refuses)
        ours.close()
        assert theirs.recv(1) == b""
        theirs.close()


@on_uv
async def test_families_that_are_no_streams_of_ours(reactor: UVReactor) -> None:
    with socket.socket() as sock:
        for adopt in (reactor.adoptStreamPort, reactor.adoptStreamConnection):
            with pytest.raises(UnsupportedAddressFamily):
                adopt(sock.fileno(), -1, One())


@on_uv
async def test_datagrams(reactor: UVReactor) -> None:
    class Echo(DatagramProtocol):
        def datagramReceived(self, datagram: bytes, addr: Any) -> None:
            self.transport.write(datagram, addr)  # type: ignore[union-attr]

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        given.bind(("127.0.0.1", 0))
        given.setblocking(False)
        port = reactor.adoptDatagramPort(given.fileno(), socket.AF_INET, Echo())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.sendto(b"x" * 1200, given.getsockname())
            answer: list[bytes] = []

            def look() -> bool:
                try:
                    answer.append(client.recv(2000))
                except BlockingIOError:
                    return False
                return True

            await until(reactor, look)
            assert answer == [b"x" * 1200]
        await port.stopListening()
