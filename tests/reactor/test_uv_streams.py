"""What is written and read, and who may stop whom: what Twisted's own suite does not ask."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from onuv import MEGABYTE, One, Recorder, UVReactor, listen, on_uv, pair, raw, sleep, until
from twisted.internet import interfaces
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python import log
from zope.interface import implementer
from zope.interface.verify import verifyObject

from protogate.reactor.transport import MOST


class Pausing(Recorder):
    """Does not want to read at first."""

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        super().connectionMade()


@pytest.mark.parametrize("said", [b"early", b""])
def test_who_pauses_in_connection_made_reads_neither_data_nor_the_end(said: bytes) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        server = Pausing()
        client = socket.create_connection(listen(reactor, server))
        client.sendall(said)
        client.close()
        await server.made
        await sleep(reactor, 0.05)
        assert server.events == ["made"]
        server.transport.resumeProducing()
        assert server.events == ["made"]  # not within the call
        assert await server.lost is ConnectionDone
        assert bytes(server.data) == said

    test()


@on_uv
async def test_who_pauses_again_before_what_was_held_came_gets_it_later(reactor: UVReactor) -> None:
    server = Pausing()
    client = await raw(reactor, server)
    client.sendall(b"held")
    await until(reactor, lambda: server.transport._held)
    server.transport.resumeProducing()
    server.transport.pauseProducing()
    await sleep(reactor, 0.02)
    assert server.events == ["made"]
    server.transport.resumeProducing()
    await server.received(4)
    client.sendall(b"more")
    await server.received(8)
    client.close()


@on_uv
async def test_what_was_held_is_dropped_by_who_closes(reactor: UVReactor) -> None:
    server = Pausing()
    with await raw(reactor, server) as client:
        client.sendall(b"held")
        await until(reactor, lambda: server.transport._held)
        server.transport.resumeProducing()
        server.transport.loseConnection()
        await server.lost
    assert server.events == ["made", "lost"]


@on_uv
async def test_nothing_comes_while_paused(reactor: UVReactor) -> None:
    class Stuttering(Recorder):
        paused = False

        def dataReceived(self, data: bytes) -> None:
            assert not self.paused
            self.data += data
            self.paused = True
            self.transport.pauseProducing()
            reactor.callLater(0.001, self.resume)

        def resume(self) -> None:
            self.paused = False
            self.transport.resumeProducing()

    server, client = Stuttering(), Recorder()
    await pair(reactor, server, client)
    for _ in range(5):
        client.transport.write(MEGABYTE)
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    assert len(server.data) == 5 * len(MEGABYTE)


@on_uv
async def test_what_is_written_in_one_turn_goes_out_in_one_piece(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    given: list[bytes] = []
    uv = client.transport._uv

    class Spy:
        def write(self, data: bytes) -> None:
            given.append(data)
            uv.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(uv, name)

    client.transport._uv = Spy()
    client.transport.write(b"one ")
    client.transport.writeSequence([b"two ", b"three ", b""])
    client.transport.write(b"")
    assert not given
    assert client.transport.unsent() == 14
    await server.received(14)
    assert given == [b"one two three "]
    assert client.transport.unsent() == 0


@on_uv
async def test_a_lot_does_not_wait_for_the_end_of_the_turn(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    client.transport.write(b"x" * MOST)
    assert client.transport.unsent() == MOST
    client.transport.write(b"x")
    assert client.transport.unsent() <= 1
    await server.received(MOST + 1)


@on_uv
async def test_unsent_counts_what_the_kernel_did_not_take(reactor: UVReactor) -> None:
    server, client = Pausing(), Recorder()
    await pair(reactor, server, client)
    for _ in range(20):
        client.transport.write(MEGABYTE)
        await sleep(reactor)
    before = client.transport.unsent()
    assert 5 * len(MEGABYTE) < before < 20 * len(MEGABYTE)
    server.transport.resumeProducing()
    await server.received(20 * len(MEGABYTE))
    await until(reactor, lambda: client.transport.unsent() == 0)
    client.transport.loseConnection()
    await client.lost
    assert client.transport.unsent() == 0


@on_uv
async def test_who_wants_to_know_is_told_when_it_was_sent(reactor: UVReactor) -> None:
    server, client = Pausing(), Recorder()
    await pair(reactor, server, client)
    told: list[tuple[bool, bool]] = []
    transport = client.transport
    transport.flushed = lambda whole: told.append((whole, transport.unsent() == 0))
    transport.write(b"x")
    transport.write(b"y")
    assert told == []
    await sleep(reactor)
    assert told == [(True, True)]
    while told[-1][0]:
        transport.write(MEGABYTE)
        await sleep(reactor)
    assert told[-1] == (False, False)
    server.transport.resumeProducing()
    await until(reactor, lambda: told[-1][0])
    assert told[-1] == (True, True)
    transport.abortConnection()
    await client.lost
    assert transport.flushed is None


@on_uv
async def test_only_bytes_are_written(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    wrong: Any
    for wrong in ("text", bytearray(b"x"), memoryview(b"x")):
        with pytest.raises(TypeError, match="must be bytes"):
            client.transport.write(wrong)
        with pytest.raises(TypeError, match="must be bytes"):
            client.transport.writeSequence([b"x", wrong])
    client.transport.write(b"right")
    await server.received(5)
    assert server.data == b"right"


@implementer(IPushProducer)
class Pushed:
    """A producer that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")

    def stopProducing(self) -> None:
        self.told.append("stop")


@on_uv
async def test_a_push_producer_pauses_while_the_peer_does_not_read(reactor: UVReactor) -> None:
    server, client, producer = Pausing(), Recorder(), Pushed()
    await pair(reactor, server, client)
    transport = client.transport
    transport.registerProducer(producer, True)
    while not producer.told:
        transport.write(MEGABYTE)
        await sleep(reactor)
    assert producer.told == ["pause"]
    written = transport.unsent()
    server.transport.resumeProducing()
    await until(reactor, lambda: "resume" in producer.told)
    assert written > 65536
    assert transport.unsent() == 0  # all of it is gone by then
    with pytest.raises(RuntimeError, match="never unregistered"):
        transport.registerProducer(Pushed(), True)
    transport.abortConnection()
    await client.lost
    assert producer.told == ["pause", "resume", "stop"]
    late = Pushed()
    transport.registerProducer(late, True)
    assert late.told == ["stop"]


@on_uv
async def test_who_closes_waits_for_a_producer_that_is_paused(reactor: UVReactor) -> None:
    server, client, producer = Pausing(), Recorder(), Pushed()
    await pair(reactor, server, client)
    transport = client.transport
    transport.registerProducer(producer, True)
    while not producer.told:
        transport.write(MEGABYTE)
        await sleep(reactor)
    transport.loseConnection()
    server.transport.resumeProducing()
    await until(reactor, lambda: "resume" in producer.told)
    await sleep(reactor, 0.02)
    assert "lost" not in client.events
    transport.write(b"the rest")
    transport.unregisterProducer()
    await client.lost
    await server.lost
    assert server.data.endswith(b"the rest")


@on_uv
async def test_a_pull_producer_is_asked_when_nothing_is_left(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)

    class Pulled:
        left, most = 100, 0

        def resumeProducing(self) -> None:
            self.most = max(self.most, client.transport.unsent())
            if not self.left:
                client.transport.unregisterProducer()
                client.transport.loseConnection()
                return
            self.left -= 1
            client.transport.write(b"p" * 50_000)

        def stopProducing(self) -> None:
            raise AssertionError("it was done")

    producer = Pulled()
    client.transport.registerProducer(producer, False)
    await server.lost
    assert len(server.data) == 5_000_000
    assert producer.most == 0


@on_uv
async def test_stop_consuming_unregisters_and_closes(reactor: UVReactor) -> None:
    server, client, producer = Recorder(), Recorder(), Pushed()
    await pair(reactor, server, client)
    client.transport.registerProducer(producer, True)
    client.transport.stopConsuming()
    assert await client.lost is ConnectionDone
    assert producer.told == []
    server.transport.stopProducing()
    await server.lost


@implementer(IHalfCloseableProtocol)
class Half(Recorder):
    """Says how much it has read when the peer has said everything."""

    def readConnectionLost(self) -> None:
        self.events.append("read lost")
        self.transport.write(b"%d" % len(self.data))
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        self.events.append("write lost")


@on_uv
async def test_half_close_goes_after_the_data_and_leaves_the_other_half(reactor: UVReactor) -> None:
    class Asking(Half):
        def readConnectionLost(self) -> None:
            self.events.append("read lost")
            self.transport.loseConnection()

    server, client = Half(), Asking()
    await pair(reactor, server, client)
    for _ in range(8):
        client.transport.write(MEGABYTE)
    client.transport.loseWriteConnection()
    client.transport.write(b"in time")  # as in Twisted: the rest has not gone yet
    await until(reactor, lambda: "write lost" in client.events)
    client.transport.write(b"too late")
    client.transport.loseWriteConnection()
    assert await server.lost is ConnectionDone
    assert await client.lost is ConnectionDone
    assert client.data == b"8000007"
    assert client.events == ["made", "write lost", "data", "read lost", "lost"]
    assert server.events == ["made", "data", "read lost", "lost"]


@on_uv
async def test_both_halves_closed_is_no_end_by_itself(reactor: UVReactor) -> None:
    class Open(Half):
        def readConnectionLost(self) -> None:
            self.events.append("read lost")

    server = Open()
    client = await raw(reactor, server)
    server.transport.loseWriteConnection()
    await until(reactor, lambda: "write lost" in server.events)
    await sleep(reactor)
    assert client.recv(1) == b""
    client.close()
    await until(reactor, lambda: "read lost" in server.events)
    await sleep(reactor, 0.02)
    assert server.events == ["made", "write lost", "read lost"]
    assert server.transport not in reactor.getReaders()
    server.transport.resumeProducing()  # there is nothing more to read
    server.transport.loseConnection()
    assert await server.lost is ConnectionDone


@on_uv
async def test_who_cannot_be_half_closed_is_told_of_the_end(reactor: UVReactor) -> None:
    server = Recorder()
    with await raw(reactor, server) as client:
        client.shutdown(socket.SHUT_WR)
        assert await server.lost is ConnectionDone


@pytest.mark.parametrize("where", ["dataReceived", "readConnectionLost", "writeConnectionLost", "resumeProducing"])
def test_what_a_protocol_raises_is_logged_and_ends_its_connection(where: str, flush_errors: Any) -> None:
    @implementer(IHalfCloseableProtocol)
    class Failing(Half):
        def resumeProducing(self) -> None:
            self.transport.write(b"x")
            if "made" in self.events:
                self.broken()

        def stopProducing(self) -> None:
            pass

        def broken(self, *_: object) -> None:
            raise ZeroDivisionError

    @on_uv
    async def test(reactor: UVReactor) -> None:
        server = Failing()
        setattr(server, where, server.broken if where != "resumeProducing" else server.resumeProducing)
        with await raw(reactor, server) as client:
            client.sendall(b"x")
            if where == "writeConnectionLost":
                server.transport.loseWriteConnection()
            elif where == "resumeProducing":
                server.events.clear()
                server.transport.registerProducer(server, False)
                server.events.append("made")
            else:
                client.shutdown(socket.SHUT_WR)
            assert await server.lost is ZeroDivisionError

    test()
    assert [failure.type for failure in flush_errors()] == [ZeroDivisionError]


def test_what_is_raised_at_the_end_is_logged_and_harms_no_other(flush_errors: Any) -> None:
    class Failing(Recorder):
        def connectionLost(self, reason: object) -> None:
            raise ZeroDivisionError

        def stopProducing(self) -> None:
            raise KeyError("stop")

    @on_uv
    async def test(reactor: UVReactor) -> None:
        client, factory = Failing(), One(Recorder())
        factory.one = client
        server = Recorder()
        reactor.connectTCP(*listen(reactor, server), factory)
        await client.made
        client.transport.registerProducer(client, True)
        client.transport.abortConnection()
        assert (await factory.gone).type.__name__ == "ConnectionAborted"
        await server.lost

    test()
    assert [failure.type for failure in flush_errors()] == [KeyError, ZeroDivisionError]


def test_a_factory_that_raises_or_refuses_does_not_stop_its_port(flush_errors: Any) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        good = Recorder()

        class Moody(Factory):
            calls = 0

            def buildProtocol(self, address: object) -> Protocol | None:
                self.calls += 1
                if self.calls < 4:
                    raise KeyError(self.calls)
                return None if self.calls == 4 else good

        port = reactor.listenTCP(0, Moody(), interface="127.0.0.1").getHost().port
        for _ in range(4):
            client = Recorder()
            reactor.connectTCP("127.0.0.1", port, One(client))
            await client.lost
        reactor.connectTCP("127.0.0.1", port, One())
        await good.made

    test()
    assert [failure.type for failure in flush_errors()] == [KeyError] * 3


def test_connection_made_that_raises_ends_the_connection(flush_errors: Any) -> None:
    class Failing(Recorder):
        def connectionMade(self) -> None:
            raise ZeroDivisionError

    @on_uv
    async def test(reactor: UVReactor) -> None:
        server = Failing()
        client = Recorder()
        reactor.connectTCP(*listen(reactor, server), One(client))
        assert await server.lost is ZeroDivisionError
        await client.lost

    test()
    assert len(flush_errors(ZeroDivisionError)) == 1


@on_uv
async def test_who_logs_while_reading_is_named(reactor: UVReactor) -> None:
    seen: list[str] = []

    class Logging(Recorder):
        logPrefix: Any = Recorder.logPrefix

        def dataReceived(self, data: bytes) -> None:
            log.msg("in")
            super().dataReceived(data)

    def observe(event: dict[str, Any]) -> None:
        if event["message"] in {("in",), ("out",)}:
            seen.append(event["system"])

    log.addObserver(observe)
    server = Logging()
    client = await raw(reactor, server)
    client.sendall(b"x")
    await server.received(1)
    await sleep(reactor)
    log.msg("out")
    prefix, Logging.logPrefix = Logging.logPrefix, None
    client.sendall(b"x")
    await server.received(2)
    Logging.logPrefix = prefix
    log.removeObserver(observe)
    client.close()
    assert seen == ["Logging,0,127.0.0.1", "-", "(buggy logPrefix method)"]


@on_uv
async def test_a_transport_keeps_what_its_interfaces_promise(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    for transport in (server.transport, client.transport):
        for interface in (
            interfaces.ITCPTransport,
            interfaces.ITLSTransport,
            interfaces.IConsumer,
            interfaces.IPushProducer,
            interfaces.IHalfCloseableDescriptor,
            interfaces.ISystemHandle,
            interfaces.ILoggingContext,
        ):
            assert verifyObject(interface, transport)


@on_uv
async def test_coroutines_of_asyncio_run_beside(reactor: UVReactor) -> None:
    async def theirs() -> int:
        await asyncio.sleep(0.001)
        waited: Deferred[None] = sleep(reactor, 0.001)
        await waited.asFuture(reactor.loop)
        return 7

    assert await Deferred.fromFuture(asyncio.ensure_future(theirs(), loop=reactor.loop)) == 7


def test_what_nobody_caught_on_the_loop_is_logged(flush_errors: Any) -> None:
    seen: list[str] = []

    @on_uv
    async def test(reactor: UVReactor) -> None:
        def broken() -> None:
            raise ZeroDivisionError

        reactor.loop.call_soon(broken)
        await sleep(reactor, 0.01)
        globalLogPublisher.addObserver(observe)
        reactor.loop.call_exception_handler({"message": "odd"})
        globalLogPublisher.removeObserver(observe)

    def observe(event: Any) -> None:
        if event["log_level"] is LogLevel.error:
            seen.append(formatEvent(event))

    test()
    assert seen == ["uvloop: odd"]
    assert len(flush_errors(ZeroDivisionError)) == 1


@pytest.mark.parametrize("paused", [False, True])
def test_what_a_peer_said_before_it_broke_the_connection_is_read_although_a_write_fails(paused: bool) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        server = Recorder()
        client = await raw(reactor, server)
        server.transport.write(b"never read")
        await sleep(reactor, 0.02)
        if paused:
            server.transport.pauseProducing()
        client.sendall(b"no more")
        client.close()  # a reset: something was not read
        server.transport.write(b"x" * (MOST + 1))  # before the loop has read anything
        assert await server.lost is ConnectionLost
        assert bytes(server.data) == (b"" if paused else b"no more")

    test()
