"""How connections and ports end, and what must survive it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from onuv import MEGABYTE, One, Recorder, UVReactor, listen, on_uv, pair, raw, sleep, until
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.protocol import Factory, Protocol

from protogate.reactor.transport import RESET


@on_uv
async def test_who_closes_sends_the_rest_first(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    server.transport.pauseProducing()
    for _ in range(20):
        client.transport.write(MEGABYTE)
    client.transport.loseConnection()
    client.transport.write(b"also")  # as in Twisted: it is not closed yet
    await sleep(reactor, 0.03)
    assert "lost" not in client.events
    server.transport.resumeProducing()
    assert await server.lost is ConnectionDone
    assert len(server.data) == 20 * len(MEGABYTE) + 4
    assert await client.lost is ConnectionDone


@on_uv
async def test_a_transport_that_is_lost_is_silent(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    transport = client.transport
    host, peer = transport.getHost(), transport.getPeer()
    transport.loseConnection()
    await client.lost
    transport.write(b"silent")
    transport.writeSequence([b"silent"])
    transport.loseConnection()
    transport.loseWriteConnection()
    transport.abortConnection()
    transport.pauseProducing()
    transport.resumeProducing()
    transport.setTcpNoDelay(False)
    transport.unregisterProducer()
    transport.connectionLost(None)
    assert transport.fileno() == -1
    assert not hasattr(transport, "socket")
    assert (transport.getHost(), transport.getPeer()) == (host, peer)
    await server.lost
    assert client.events == ["made", "lost"]


@on_uv
async def test_the_descriptor_is_closed_when_the_protocol_is_told(reactor: UVReactor) -> None:
    class Looking(Recorder):
        def connectionLost(self, reason: Any) -> None:
            with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
                os.fstat(self.number)
            assert self.handle.fileno() == -1  # it could be somebody else's by now
            super().connectionLost(reason)

    server = Looking()
    with await raw(reactor, server) as client:
        server.handle = server.transport.getHandle()
        server.number = server.transport.fileno()
        assert server.handle.getsockname() == client.getpeername()
        server.transport.loseConnection()
        await server.lost


@on_uv
async def test_who_aborts_resets(reactor: UVReactor) -> None:
    server = Recorder()
    with await raw(reactor, server) as client:
        server.transport.write(b"dropped")
        server.transport.abortConnection()
        server.transport.abortConnection()
        assert "lost" not in server.events
        assert await server.lost is ConnectionAborted
        with pytest.raises(ConnectionResetError):
            client.recv(10)


@on_uv
async def test_who_closes_the_socket_itself_closes_the_connection(reactor: UVReactor) -> None:
    server = Recorder()
    with await raw(reactor, server) as client:
        server.transport.socket.close()
        await server.lost
        assert client.recv(10) == b""


@on_uv
async def test_a_peer_that_resets_is_a_connection_lost(reactor: UVReactor) -> None:
    server = Recorder()
    client = await raw(reactor, server)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    assert await server.lost is ConnectionLost


@on_uv
async def test_a_peer_that_has_gone_while_we_write_is_a_connection_lost(reactor: UVReactor) -> None:
    server = Recorder()
    client = await raw(reactor, server)
    server.transport.pauseProducing()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    server.transport.write(b"x")
    assert await server.lost is ConnectionLost


@on_uv
async def test_a_peer_that_asks_and_resets_before_it_is_accepted_is_known(reactor: UVReactor) -> None:
    server = Recorder()
    client = socket.create_connection(listen(reactor, server))
    name = client.getsockname()
    client.sendall(b"asked")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    await server.made
    peer = server.transport.getPeer()
    assert (peer.host, peer.port) == name
    assert await server.lost is ConnectionLost
    assert server.data == b"asked"


def test_all_are_told_when_the_reactor_stops() -> None:
    server, client = Recorder(), Recorder()
    told: list[Any] = []

    @on_uv
    async def test(reactor: UVReactor) -> None:
        await pair(reactor, server, client)
        server.lost.addCallback(told.append)
        client.lost.addCallback(told.append)
        reactor.addSystemEventTrigger("after", "shutdown", lambda: told.append("after"))

    test()
    assert told == [ConnectionLost, ConnectionLost, "after"]
    assert not server.transport.reactor.native


@on_uv
async def test_a_reader_removed_by_hand_is_paused(reactor: UVReactor) -> None:
    server = Recorder()
    with await raw(reactor, server) as client:
        assert server.transport in reactor.getReaders()
        reactor.removeReader(server.transport)
        assert server.transport not in reactor.getReaders()
        client.sendall(b"x")
        await sleep(reactor, 0.02)
        assert not server.data
        reactor.addReader(server.transport)
        await server.received(1)
        server.transport.write(b"x")
        assert server.transport in reactor.getWriters()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@on_uv
async def test_thousands_of_connections_leave_no_descriptor_behind(reactor: UVReactor) -> None:
    class Brief(Recorder):
        """Half of them close at once, a quarter waits for the peer's close, a quarter aborts."""

        def connectionMade(self) -> None:
            super().connectionMade()
            self.transport.getHandle()
            if number % 4 < 2:
                self.transport.loseConnection()
            elif number % 4 == 2:
                self.transport.abortConnection()

    class Closing(Protocol):
        def dataReceived(self, data: bytes) -> None:
            self.transport.loseConnection()  # type: ignore[attr-defined]

        def connectionMade(self) -> None:
            self.transport.write(b"x")  # type: ignore[attr-defined]
            self.transport.loseConnection()  # type: ignore[attr-defined]

    port = reactor.listenTCP(0, Factory.forProtocol(Closing), interface="127.0.0.1", backlog=200)
    before = 0
    for number in range(60):
        if number == 4:  # what is made once, uvloop's reserve for instance, is there
            await until(reactor, lambda: not reactor.native)
            await sleep(reactor, 0.05)
            before = _descriptors()
        briefs = [Brief() for _ in range(50)]
        for brief in briefs:
            reactor.connectTCP("127.0.0.1", port.getHost().port, One(brief))
        for brief in briefs:
            await brief.lost
    await until(reactor, lambda: not reactor.native and _descriptors() <= before)


@on_uv
async def test_who_closes_in_connection_made_closes_no_stranger(reactor: UVReactor) -> None:
    class Brief(Recorder):
        def connectionMade(self) -> None:
            super().connectionMade()
            self.transport.loseConnection()

    port = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1", backlog=200).getHost().port
    for _ in range(20):
        briefs = [Brief() for _ in range(20)]
        for brief in briefs:
            reactor.connectTCP("127.0.0.1", port, One(brief))
        for brief in briefs:
            assert await brief.lost is ConnectionDone


@on_uv
async def test_a_port_that_stopped_refuses_and_can_be_opened_anew(reactor: UVReactor) -> None:
    port = reactor.listenTCP(0, One(), interface="127.0.0.1")
    number = port.getHost().port
    assert port in reactor.getReaders()
    await port.stopListening()
    assert port not in reactor.getReaders()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", number), 2)
    server = Recorder()
    again = reactor.listenTCP(number, One(server), interface="127.0.0.1")
    with socket.create_connection(("127.0.0.1", number), 2):
        await server.made
    await again.stopListening()


@on_uv
async def test_a_port_that_pauses_leaves_connections_in_the_queue(reactor: UVReactor) -> None:
    server = Recorder()
    port = reactor.listenTCP(0, One(server), interface="127.0.0.1")
    port.stopReading()
    with socket.create_connection(("127.0.0.1", port.getHost().port), 2):
        await sleep(reactor, 0.03)
        assert not server.events
        port.startReading()
        port.startReading()
        await server.made


def test_a_port_survives_that_accept_fails(flush_errors: Any) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        server = Recorder()
        port = reactor.listenTCP(0, One(server), interface="127.0.0.1")
        port.socket.shutdown(socket.SHUT_RDWR)  # from now on accept() says EINVAL
        await sleep(reactor, 0.02)
        port.socket.listen(5)
        with socket.create_connection(port.socket.getsockname(), 2) as client:
            client.sendall(b"x")
            await server.received(1)

    test()
    assert {failure.value.errno for failure in flush_errors(OSError)} == {errno.EINVAL}


EXHAUSTED = """
import errno, os, resource, socket, sys
sys.path[:0] = sys.argv[1:]
from onuv import One, Recorder, listen, run, sleep

async def main(reactor):
    await sleep(reactor)  # uvloop needs descriptors of its own to begin
    server = Recorder()
    where = listen(reactor, server)
    clients = [socket.socket() for _ in range(20)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    spare = []
    try:
        while True:
            spare.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE
    try:
        for client in clients:
            client.connect(where)
        await sleep(reactor, 0.05)
        assert not server.events
    finally:
        for number in spare:
            os.close(number)
    for client in clients:
        client.settimeout(5)
        try:
            assert client.recv(1) == b""  # dropped
        except ConnectionResetError:
            pass
    client = socket.create_connection(where, 5)
    client.sendall(b"x")
    await server.received(1)
    print("fine")

run(main)
"""


def test_a_process_without_descriptors_drops_connections_and_accepts_again_when_it_has_some() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
