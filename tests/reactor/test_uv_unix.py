"""UNIX sockets, and descriptors beside the bytes."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

from onuv import MEGABYTE, One, Recorder, UVReactor, on_uv, sleep, until
from twisted.internet import unix as theirs
from twisted.internet.address import UNIXAddress
from twisted.internet.error import ConnectError, ConnectionDone, FileDescriptorOverrun
from twisted.internet.interfaces import IFileDescriptorReceiver, IUNIXTransport
from zope.interface import implementer

from protogate.reactor import unix


@implementer(IFileDescriptorReceiver)
class Receiver(Recorder):
    """Takes descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptors: list[int] = []

    def fileDescriptorReceived(self, descriptor: int) -> None:
        self.note("descriptor")
        self.descriptors.append(descriptor)


async def pair(reactor: UVReactor, path: Path, server: Recorder, client: Recorder) -> None:
    """Connect the two."""
    reactor.listenUNIX(str(path), One(server))
    reactor.connectUNIX(str(path), One(client))
    await server.made
    await client.made


@on_uv
async def test_bytes_both_ways(reactor: UVReactor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server, client = Recorder(), Recorder()
    port = reactor.listenUNIX(str(path), One(server), mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reactor.connectUNIX(str(path), One(client))
    await server.made
    await client.made
    assert isinstance(server.transport, unix.Server)
    assert isinstance(client.transport, unix.Client)
    assert client.transport.getPeer() == server.transport.getHost() == port.getHost() == UNIXAddress(str(path))
    assert server.transport.getPeer() == client.transport.getHost() == UNIXAddress(None)
    assert repr(server.transport) == f"<Recorder #0 on {path}>"
    assert server.transport.logstr == f"Recorder,0,{path}"
    client.transport.setTcpNoDelay(True)
    assert client.transport.getTcpNoDelay() is False
    for _ in range(3):
        client.transport.write(MEGABYTE)
    await server.received(3 * len(MEGABYTE))
    server.transport.write(b"answer")
    await client.received(6)
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    await port.stopListening()
    assert not path.exists()


@on_uv
async def test_nobody_there(reactor: UVReactor, tmp_path: Path) -> None:
    attempt = One()
    reactor.connectUNIX(str(tmp_path / "nobody"), attempt)
    assert issubclass((await attempt.failed).type, ConnectError)


@on_uv
async def test_an_adopted_port(reactor: UVReactor, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    server = Recorder()
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(path)
        given.listen()
        reactor.adoptStreamPort(given.fileno(), socket.AF_UNIX, One(server))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(b"x")
            await server.received(1)


@on_uv
async def test_descriptors_go_before_the_bytes(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    assert isinstance(server.transport, theirs.Server)  # Twisted's own can read them
    reader, writer = os.pipe()
    client.transport.sendFileDescriptor(writer)
    client.transport.sendFileDescriptor(writer)
    client.transport.write(b"two of them")
    await server.received(11)
    assert server.events == ["made", "descriptor", "data", "descriptor", "data"]
    os.close(writer)
    os.write(server.descriptors[1], b"through")
    assert os.read(reader, 10) == b"through"
    for number in (reader, *server.descriptors):
        os.close(number)


@on_uv
async def test_a_client_that_takes_descriptors(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Recorder(), Receiver()
    await pair(reactor, tmp_path / "s", server, client)
    assert IUNIXTransport.providedBy(server.transport)
    assert IUNIXTransport.providedBy(client.transport)
    reader, writer = os.pipe()
    server.transport.sendFileDescriptor(reader)
    server.transport.write(b"x")
    await client.received(1)
    assert os.fstat(client.descriptors[0]).st_ino == os.fstat(reader).st_ino
    for number in (reader, writer, *client.descriptors):
        os.close(number)
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    await client.lost


@on_uv
async def test_descriptors_wait_for_a_peer_that_does_not_read(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    server.transport.pauseProducing()
    reader, writer = os.pipe()
    count = 0
    while client.transport._waiting is None:  # until the kernel takes no more
        client.transport.sendFileDescriptor(writer)
        client.transport.write(b"x")
        count += 1
        await sleep(reactor)
    client.transport.sendFileDescriptor(writer)
    client.transport.write(b"yz")
    client.transport.loseConnection()
    server.transport.resumeProducing()
    assert await server.lost is ConnectionDone
    assert len(server.data) == count + 2
    assert len(server.descriptors) == count + 1
    await client.lost
    for number in (reader, writer, *server.descriptors):
        os.close(number)


@on_uv
async def test_who_leaves_while_descriptors_wait_leaves_nothing_open(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    server.transport.pauseProducing()
    reader, writer = os.pipe()
    while client.transport._waiting is None:
        client.transport.sendFileDescriptor(writer)
        client.transport.write(b"x")
        await sleep(reactor)
    duplicate = client.transport._waiting
    client.transport.abortConnection()
    await client.lost
    assert not os.path.exists(f"/proc/self/fd/{duplicate}") or not os.path.isdir("/proc/self/fd")
    server.transport.resumeProducing()
    await server.lost
    client.transport.sendFileDescriptor(writer)  # silent
    for number in (reader, writer, *server.descriptors):
        os.close(number)


@on_uv
async def test_more_descriptors_than_bytes_end_the_connection(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    client.transport.write(b"x")
    client.transport.sendFileDescriptor(0)
    client.transport.sendFileDescriptor(0)
    assert await client.lost is FileDescriptorOverrun
    await server.lost


@on_uv
async def test_a_descriptor_that_is_none_ends_the_connection(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    client.transport.sendFileDescriptor(1_000_000)
    client.transport.write(b"x")
    await client.lost
    await server.lost
    assert not server.descriptors


@on_uv
async def test_many_descriptors_pause_a_producer(reactor: UVReactor, tmp_path: Path) -> None:
    server, client = Receiver(), Recorder()
    await pair(reactor, tmp_path / "s", server, client)
    told: list[str] = []

    class Pushed:
        def pauseProducing(self) -> None:
            told.append("pause")

        def resumeProducing(self) -> None:
            told.append("resume")

        def stopProducing(self) -> None:
            told.append("stop")

    producer: Any = Pushed()
    client.transport.registerProducer(producer, True)
    reader, writer = os.pipe()
    for _ in range(unix.DESCRIPTORS):
        client.transport.sendFileDescriptor(writer)
    assert not told
    client.transport.sendFileDescriptor(writer)
    assert told == ["pause"]
    client.transport.write(b"x" * (unix.DESCRIPTORS + 1))
    await until(reactor, lambda: "resume" in told)
    await server.received(unix.DESCRIPTORS + 1)
    client.transport.unregisterProducer()
    for number in (reader, writer, *server.descriptors):
        os.close(number)
