"""TLS of uvloop's: both sides, what is negotiated, every way to fail and to end; and that of pyOpenSSL beside it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import certificates
import pytest
from onuv import MEGABYTE, Box, One, Recorder, UVReactor, on_uv, pair, sleep, until
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import SSL4ClientEndpoint, SSL4ServerEndpoint
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost, TimeoutError, UserError  # noqa: A004
from twisted.internet.interfaces import IHalfCloseableProtocol, IHandshakeListener, INegotiated, ITLSTransport
from twisted.internet.ssl import DefaultOpenSSLContextFactory
from zope.interface import implementer

from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport


class Hearing(One):
    """A factory of a server's that wants to hear of failed handshakes."""

    def __init__(self, protocol: Any = None) -> None:
        super().__init__(protocol)
        self.refused: Deferred[tuple[Any, Box]] = Deferred()

    def handshakeFailed(self, address: Any, reason: Any) -> None:
        self.refused.callback((address, Box(reason)))


def serve(reactor: UVReactor, factory: One, context: Any = None) -> int:
    """The port of a server."""
    given = certificates.server() if context is None else context
    port: int = reactor.listenSSL(0, factory, given, interface="127.0.0.1").getHost().port
    return port


async def secure(
    reactor: UVReactor, server: Recorder, client: Recorder, context: Any = None, trust: ssl.SSLContext | None = None
) -> None:
    """Connect the two."""
    port = serve(reactor, One(server), context)
    reactor.connectSSL("127.0.0.1", port, One(client), TLS(trust or certificates.client(), "localhost"))
    await server.made
    await client.made


def blocking(port: int, talk: Callable[[ssl.SSLSocket], None], name: str | None = None) -> threading.Thread:
    """A client in a thread of its own."""

    def work() -> None:
        plain = socket.create_connection(("127.0.0.1", port), 10)
        with certificates.client(name).wrap_socket(plain, server_hostname="localhost") as peer:
            talk(peer)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@implementer(IHandshakeListener)
class Listening(Recorder):
    """Knows, when it is connected, what was negotiated."""

    def connectionMade(self) -> None:
        self.alpn = self.transport.negotiatedProtocol
        super().connectionMade()

    def handshakeCompleted(self) -> None:
        self.note("handshake")


@on_uv
async def test_a_protocol_is_connected_when_everything_is_negotiated(reactor: UVReactor) -> None:
    server, client = Listening(), Listening()
    await secure(reactor, server, client)
    await sleep(reactor)
    assert server.events == client.events == ["made", "handshake"]
    assert server.alpn == client.alpn == b"h2"
    for transport in (server.transport, client.transport):
        assert INegotiated.providedBy(transport)
        assert not ITLSTransport.providedBy(transport)
    expected = ssl.PEM_cert_to_DER_cert(certificates.issued("localhost")[0].read_text())
    assert client.transport.getPeerCertificate() == expected
    assert server.transport.getPeerCertificate() is None
    assert server.transport.getHost() == client.transport.getPeer()
    assert server.transport.getPeer() == client.transport.getHost()
    assert client.transport.getTcpNoDelay()
    client.transport.write(b"ping")
    await server.received(4)
    server.transport.write(b"pong")
    await client.received(4)


@on_uv
async def test_who_wants_to_know_is_told_when_the_kernel_has_it(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client)
    told: list[tuple[bool, bool]] = []
    transport = client.transport
    transport.flushed = lambda whole: told.append((whole, transport.unsent() == 0))
    transport.write(b"x")
    transport.write(b"y")
    assert told == []
    await sleep(reactor)
    assert told == [(True, True)]
    server.transport.pauseProducing()
    while told[-1][0]:
        transport.write(MEGABYTE[:1000])  # so little that nothing waits above the socket when that is full
        await sleep(reactor)
    assert told[-1] == (False, False)
    server.transport.resumeProducing()
    await until(reactor, lambda: transport.unsent() == 0)
    transport.write(b"z")
    await sleep(reactor)
    assert set(told) == {(True, True), (False, False)}
    assert told[-1] == (True, True)


@on_uv
async def test_no_protocol_in_common_is_none(reactor: UVReactor) -> None:
    server, client = Listening(), Listening()
    await secure(reactor, server, client, trust=certificates.client(alpn=()))
    assert server.alpn is client.alpn is None


@on_uv
async def test_a_server_with_several_names(reactor: UVReactor) -> None:
    context = certificates.server("localhost")
    other = certificates.server("other.test")

    def choose(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        if name == "other.test":
            connection.context = other

    context.sni_callback = choose
    port = reactor.listenSSL(0, Many(), context, interface="127.0.0.1").getHost().port
    for name in ("localhost", "other.test"):
        client = Recorder()
        reactor.connectSSL("127.0.0.1", port, One(client), TLS(certificates.client(), name))
        await client.made
        expected = ssl.PEM_cert_to_DER_cert(certificates.issued(name)[0].read_text())
        assert client.transport.getPeerCertificate() == expected
    factory = One()
    reactor.connectSSL("127.0.0.1", port, factory, TLS(certificates.client(), "third.test"))
    assert (await factory.failed).type is ssl.SSLCertVerificationError


class Many(One):
    def buildProtocol(self, address: object) -> Recorder:
        return Recorder()


@on_uv
async def test_a_client_with_a_certificate(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client, certificates.server(clients=True), certificates.client("someone.test"))
    expected = ssl.PEM_cert_to_DER_cert(certificates.issued("someone.test")[0].read_text())
    assert server.transport.getPeerCertificate() == expected


@on_uv
async def test_a_client_without_the_certificate_that_is_required(reactor: UVReactor) -> None:
    factory = Hearing()
    port = serve(reactor, factory, certificates.server(clients=True))
    client = Recorder()
    reactor.connectSSL("127.0.0.1", port, One(client), TLS(certificates.client(), "localhost"))
    address, reason = await factory.refused
    assert issubclass(reason.type, ssl.SSLError)
    assert "certificate" in str(reason.value).lower()
    assert address.host == "127.0.0.1"
    await client.made  # TLS 1.3: to the client all was well
    assert await client.lost is ConnectionLost
    assert not factory.one.events


@on_uv
async def test_a_server_that_is_not_trusted(reactor: UVReactor) -> None:
    factory, attempt = Hearing(), One()
    port = serve(reactor, factory)
    reactor.connectSSL("127.0.0.1", port, attempt, TLS(ssl.create_default_context(), "localhost"))
    reason = await attempt.failed
    assert reason.type is ssl.SSLCertVerificationError
    assert issubclass((await factory.refused)[1].type, (ssl.SSLError, ConnectionLost))
    await until(reactor, lambda: not reactor.native)
    assert not attempt.one.events
    assert not factory.one.events


@on_uv
async def test_the_host_is_the_name_where_none_is_given(reactor: UVReactor) -> None:
    attempt = One()
    reactor.connectSSL("127.0.0.1", serve(reactor, One()), attempt, certificates.client())
    reason = await attempt.failed
    assert "127.0.0.1" in str(reason.value)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b""])
def test_who_does_not_speak_tls(said: bytes) -> None:
    @on_uv
    async def test(reactor: UVReactor) -> None:
        factory = Hearing()
        with socket.create_connection(("127.0.0.1", serve(reactor, factory))) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            reason = (await factory.refused)[1]
        assert reason.type is (ConnectionLost if not said else ssl.SSLError)
        await until(reactor, lambda: not reactor.native)

    test()


def test_a_factory_that_raises_over_a_failed_handshake_is_logged(flush_errors: Any) -> None:
    class Failing(One):
        def handshakeFailed(self, address: object, reason: object) -> None:
            called.callback(None)
            raise ZeroDivisionError

    called: Deferred[None] = Deferred()

    @on_uv
    async def test(reactor: UVReactor) -> None:
        socket.create_connection(("127.0.0.1", serve(reactor, Failing()))).close()
        await called

    test()
    assert len(flush_errors(ZeroDivisionError)) == 1


@on_uv
async def test_a_factory_need_not_hear_of_failed_handshakes(reactor: UVReactor) -> None:
    server = Recorder()
    port = serve(reactor, One(server))
    socket.create_connection(("127.0.0.1", port)).close()
    reactor.connectSSL("127.0.0.1", port, One(), TLS(certificates.client(), "localhost"))
    await server.made


@on_uv
async def test_a_handshake_has_a_time(reactor: UVReactor) -> None:
    factory = Hearing()
    port = serve(reactor, factory, TLS(certificates.server(), handshake=0.1))
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        await until(reactor, lambda: reactor.native)
        assert all(each.reading for each in reactor.native)
        assert (await factory.refused)[1].type is TimeoutError
        assert client.recv(1) == b""


@on_uv
async def test_an_attempt_ends_with_its_own_time_and_when_it_is_given_up(reactor: UVReactor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        attempt = One()
        reactor.connectSSL(*deaf.getsockname(), attempt, certificates.client(), timeout=0.1)
        assert (await attempt.failed).type is TimeoutError
        attempt = One()
        connector = reactor.connectSSL(*deaf.getsockname(), attempt, certificates.client())
        await until(reactor, lambda: reactor.native)
        connector.disconnect()
        assert (await attempt.failed).type is UserError
        await sleep(reactor, 0.02)
        for _ in range(2):
            peer, _address = deaf.accept()
            peer.settimeout(10)
            while peer.recv(10000):
                pass
            peer.close()


def test_a_reactor_that_stops_ends_handshakes() -> None:
    factory, begun = Hearing(), []

    @on_uv
    async def test(reactor: UVReactor) -> None:
        client = socket.create_connection(("127.0.0.1", serve(reactor, factory)), 10)
        await until(reactor, lambda: reactor.native)
        begun.extend([client, *reactor.native])

    test()
    client, handshake = begun
    assert not handshake.reactor.native
    assert client.recv(1) == b""
    client.close()
    assert not factory.refused.called
    assert not factory.one.events


@on_uv
async def test_who_closes_sends_the_rest_first_and_tells_the_peer(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client)
    server.transport.pauseProducing()
    for _ in range(20):
        client.transport.write(MEGABYTE)
    client.transport.loseConnection()
    await sleep(reactor, 0.05)
    assert "lost" not in client.events
    assert client.transport.unsent() > 0
    server.transport.resumeProducing()
    assert await server.lost is ConnectionDone
    assert len(server.data) == 20 * len(MEGABYTE)
    assert await client.lost is ConnectionDone


@on_uv
async def test_who_paused_loses_nothing_when_the_peer_leaves(reactor: UVReactor) -> None:
    server = Recorder()
    thread = blocking(serve(reactor, One(server)), lambda peer: peer.sendall(b"x" * 100_000) or peer.unwrap().close())
    await server.made
    server.transport.pauseProducing()
    await sleep(reactor, 0.1)
    had = len(server.data)
    await sleep(reactor, 0.05)
    assert len(server.data) == had
    server.transport.resumeProducing()
    assert await server.lost is ConnectionDone
    assert len(server.data) == 100_000
    thread.join()


@on_uv
async def test_who_pauses_in_connection_made_loses_nothing_either(reactor: UVReactor) -> None:
    class Pausing(Recorder):
        def connectionMade(self) -> None:
            self.transport.pauseProducing()
            super().connectionMade()
            made.set()

    server, made = Pausing(), threading.Event()

    def talk(peer: ssl.SSLSocket) -> None:
        assert made.wait(10)
        peer.sendall(b"early")
        peer.close()

    thread = blocking(serve(reactor, One(server)), talk)
    await server.made
    await sleep(reactor, 0.1)
    assert server.events == ["made"]
    server.transport.resumeProducing()
    assert await server.lost is ConnectionLost  # close() of Python's says no close_notify
    assert server.data == b"early"
    thread.join()


@on_uv
async def test_who_does_not_read_may_write_all_the_same(reactor: UVReactor) -> None:
    class Pausing(Recorder):
        def connectionMade(self) -> None:
            self.transport.pauseProducing()
            self.transport.write(b"welcome")
            super().connectionMade()

    server, client = Pausing(), Recorder()
    await secure(reactor, server, client)
    await client.received(7)


@on_uv
async def test_a_connection_that_is_cut_off_is_never_done(reactor: UVReactor) -> None:
    server = Recorder()
    thread = blocking(serve(reactor, One(server)), lambda peer: peer.sendall(b"half") or peer.shutdown(socket.SHUT_WR))
    assert await server.lost is ConnectionLost
    assert server.data == b"half"
    thread.join()


@on_uv
async def test_a_half_closeable_protocol_may_answer_once_more(reactor: UVReactor) -> None:
    @implementer(IHalfCloseableProtocol)
    class Half(Recorder):
        def readConnectionLost(self) -> None:
            self.note("read lost")
            self.transport.write(b"good bye")
            self.transport.loseConnection()
            reactor.callLater(0, self.transport.write, b"too late")

        def writeConnectionLost(self) -> None:
            raise AssertionError("there is no half close")

    server = Half()
    port = serve(reactor, One(server))
    client = Recorder()
    reactor.connectSSL("127.0.0.1", port, One(client), TLS(certificates.client(), "localhost"))
    await client.made
    client.transport.loseWriteConnection()
    client.transport.write(b"x")
    await server.received(1)
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    assert server.events == ["made", "data", "read lost", "lost"]
    assert await client.lost is ConnectionDone


def test_a_half_closeable_protocol_that_raises(flush_errors: Any) -> None:
    @implementer(IHalfCloseableProtocol)
    class Failing(Recorder):
        def readConnectionLost(self) -> None:
            raise ZeroDivisionError

    @on_uv
    async def test(reactor: UVReactor) -> None:
        server, client = Failing(), Recorder()
        await secure(reactor, server, client)
        client.transport.loseConnection()
        assert await server.lost is ZeroDivisionError
        await client.lost

    test()
    assert len(flush_errors(ZeroDivisionError)) == 1


@on_uv
async def test_who_aborts_resets(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client)
    server.transport.abortConnection()
    assert await server.lost is ConnectionAborted
    assert await client.lost is ConnectionLost


@on_uv
async def test_a_peer_that_does_not_answer_the_close_is_left(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client, TLS(certificates.server(), shutdown=0.1))
    client.transport.pauseProducing()
    server.transport.loseConnection()
    await server.lost
    assert client.events == ["made"]


@on_uv
async def test_a_push_producer_is_paced(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    await secure(reactor, server, client)
    server.transport.pauseProducing()

    class Pushed:
        left, paused, pauses = 200, False, 0

        def pauseProducing(self) -> None:
            self.paused, self.pauses = True, self.pauses + 1

        def resumeProducing(self) -> None:
            self.paused = False
            while self.left and not self.paused:
                self.left -= 1
                client.transport.write(b"p" * 100_000)
            if not self.left:
                client.transport.unregisterProducer()
                client.transport.loseConnection()

        def stopProducing(self) -> None:
            pass

    producer = Pushed()
    client.transport.registerProducer(producer, True)
    producer.resumeProducing()
    await sleep(reactor, 0.1)
    assert producer.paused
    assert producer.left > 100
    server.transport.resumeProducing()
    await server.lost
    assert len(server.data) == 20_000_000
    assert producer.pauses > 1


@on_uv
async def test_an_adopted_port_and_an_adopted_connection(reactor: UVReactor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        first, second = Recorder(), Recorder()
        port = reactor.adoptStreamPort(listening.fileno(), socket.AF_INET, One(first), certificates.server())
        one, two = Recorder(), Recorder()
        trust = TLS(certificates.client(), "localhost")
        reactor.connectSSL(*listening.getsockname(), One(one), trust)
        await first.made
        await port.stopListening()
        reactor.connectSSL(*listening.getsockname(), One(two), trust)
        await sleep(reactor, 0.02)
        accepted, _ = listening.accept()
    reactor.adoptStreamConnection(accepted.fileno(), socket.AF_INET, One(second), certificates.server())
    accepted.close()
    await two.made
    two.transport.write(b"x")
    await second.received(1)
    assert second.transport.negotiatedProtocol == b"h2"


@on_uv
async def test_over_unix_sockets(reactor: UVReactor, tmp_path: Any) -> None:
    path = str(tmp_path / "s")
    server, client, attempt = Recorder(), Recorder(), One()
    reactor.listenUNIX(path, One(server), tls=certificates.server())
    reactor.connectUNIX(path, One(client), tls=TLS(certificates.client(), "localhost"))
    await client.made
    client.transport.write(b"x")
    await server.received(1)
    assert server.transport.hostname == path
    reactor.connectUNIX(path, attempt, tls=TLS(certificates.client(), "elsewhere.test"))
    assert (await attempt.failed).type is ssl.SSLCertVerificationError
    with pytest.raises(TypeError, match="neither"):
        reactor.listenUNIX(f"{path}2", One(server), tls="certificate.pem")


@on_uv
async def test_endpoints_of_twisted_pass_the_context_on(reactor: UVReactor) -> None:
    server, client = Recorder(), Recorder()
    context: Any = certificates.server()
    trust: Any = TLS(certificates.client(), "localhost")
    port: Any = await SSL4ServerEndpoint(reactor, 0, context, interface="127.0.0.1").listen(One(server))
    await SSL4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port, trust).connect(One(client))
    client.transport.write(b"x")
    await server.received(1)


class OpenSSL(DefaultOpenSSLContextFactory):
    """pyOpenSSL's context of a server."""

    def __init__(self) -> None:
        certificate, key = certificates.issued("localhost")
        super().__init__(str(key), str(certificate), sslmethod=SSL.TLS_METHOD)


@on_uv
async def test_contexts_of_pyopenssl_mean_what_they_always_did(reactor: UVReactor) -> None:
    from twisted.internet.ssl import CertificateOptions

    server, client = Recorder(), Recorder()
    port = reactor.listenSSL(0, One(server), OpenSSL(), interface="127.0.0.1").getHost().port
    reactor.connectSSL("127.0.0.1", port, One(client), CertificateOptions())
    await client.made
    for _ in range(5):
        client.transport.write(MEGABYTE)
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    assert len(server.data) == 5 * len(MEGABYTE)


@on_uv
async def test_start_tls_with_pyopenssl(reactor: UVReactor) -> None:
    from twisted.internet.ssl import CertificateOptions

    server, client = Recorder(), Recorder()
    await pair(reactor, server, client)
    with pytest.raises(TypeError, match="pyOpenSSL"):
        server.transport.startTLS(certificates.server())
    server.transport.registerProducer(_Idle(), True)
    server.transport.startTLS(OpenSSL())
    client.transport.startTLS(CertificateOptions())
    client.transport.write(b"x" * 300_000)
    await server.received(300_000)
    assert "localhost" in client.transport.getPeerCertificate().to_cryptography().subject.rfc4514_string()
    server.transport.unregisterProducer()
    client.transport.loseConnection()
    assert await server.lost is ConnectionDone
    assert await client.lost is ConnectionDone
    client.transport.write(b"silent")
    client.transport.loseConnection()


class _Idle:
    def pauseProducing(self) -> None:
        pass

    resumeProducing = stopProducing = pauseProducing


@on_uv
async def test_what_comes_of_a_connection_that_was_given_up_in_its_handshake_is_nobodys(reactor: UVReactor) -> None:
    # uvloop's TLS hands on what it had read when the handshake ended, though the connection is dropped by then.
    transport = Transport(reactor)
    transport.data_received(b"a request")
    assert not transport.connected
    assert transport.protocol is None
