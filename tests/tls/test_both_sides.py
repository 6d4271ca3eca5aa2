"""A listener and a connector with TLS between them, over both libraries and real sockets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from both import on_both
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTCP
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from zope.interface import implementer

from authority import Authority, Issued
from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.context import Context, Timeouts
from protogate.downstream.listener import Listener
from protogate.errors import Abort, Phase
from protogate.interfaces import IClientConnection, INegotiated, IService
from protogate.message import Request, Response
from protogate.tls import client as asked
from protogate.tls import native
from protogate.tls import server as offered
from protogate.tls.client import Client
from protogate.tls.files import Reading
from protogate.tls.layer import is_native, prepare
from protogate.tls.server import Server
from protogate.upstream.connector import Connector, Trust
from protogate.upstream.link import Link
from protogate.wheel import Wheel
from protogate_http.http1 import Http1


@implementer(IService)
class Answering:
    """Tells who asks."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(204)


@implementer(INegotiated)
class Picky(Http1):
    """Wants to be agreed on."""


def serving(issued: Issued, **settings: Any) -> Server:
    pair = model.CertificateFiles(cert=str(issued.cert), key=str(issued.key))
    alpn = settings.pop("alpn", (b"http/1.1",))
    return offered.server(model.ListenerTls(certificates=(pair,), **settings), alpn, Reading())


def asking(authority: Authority | None = None, issued: Issued | None = None, **settings: Any) -> Client:
    if authority is not None:
        settings["ca"] = str(authority.file)
    if issued is not None:
        settings.update(cert=str(issued.cert), key=str(issued.key))
    return asked.client(model.UpstreamTls(**settings), (b"http/1.1",), Reading())


class Both:
    """The two sides on one reactor."""

    def __init__(self, reactor: Any, server: Server | None, client: Client, codec: Any = None, **clocks: float) -> None:
        self.reactor, self.counted = reactor, list[str]()
        self.wheel = Wheel(reactor, now=reactor.seconds)
        context = Context(self.wheel, timeouts=Timeouts(**clocks), count=self.counted.append)
        self.service = Answering()
        self.listener = Listener("web", [Http1()], self.service, context)
        self.listener.tls = server
        self.port = reactor.listenTCP(0, self.listener, interface="127.0.0.1")
        self.ready: list[IClientConnection] = []
        for side in (server, client):
            if side is not None:
                prepare(side, is_native(reactor))
        resolver: Any = None
        where = self.port.getHost().port
        self.connector = Connector(
            reactor, resolver, codec or Http1(), context, "127.0.0.1", where, Trust(client), "shop.test"
        )
        pool: Any = None
        self.times = Link(pool, None)

    def connect(self) -> Deferred[None]:
        return self.connector.connect(self.ready.append, self.times)

    async def request(self) -> Response:
        answer = self.ready[-1].handle(Request(b"GET", b"/", authority=b"shop.test"))
        return await answer if isinstance(answer, Deferred) else answer

    async def close(self) -> None:
        for connection in self.ready:
            connection.abort()
        self.listener.abort()
        await self.port.stopListening()
        await until(self.reactor, lambda: not self.listener.connections)
        self.wheel.stop()


class Mute(Protocol):
    """Never says anything."""

    made: ClassVar[list[Mute]] = []

    def connectionMade(self) -> None:
        self.made.append(self)

    def connectionLost(self, reason: Any = None) -> None:
        self.made.remove(self)


def instead(both: Both, kind: type[Protocol]) -> Any:
    """Somebody else at the other end; the port."""
    port = both.reactor.listenTCP(0, Factory.forProtocol(kind), interface="127.0.0.1")
    both.connector.port = port.getHost().port
    return port


async def until(reactor: Any, condition: Callable[[], object]) -> None:
    """Wait for it."""
    while not condition():
        await deferLater(reactor, 0.005)


async def refused(attempt: Deferred[None]) -> Abort:
    """Why there is no connection."""
    try:
        await attempt
    except Abort as reason:
        return reason
    raise AssertionError("there is a connection")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@on_both
async def test_a_request_passes_and_both_know_what_was_negotiated(reactor: Any, authority: Authority) -> None:
    us = authority.issue("us.test")
    server = serving(authority.issue("shop.test"), client_auth=model.ClientAuth(ca=str(authority.file)))
    both = Both(reactor, server, asking(authority, us))
    await both.connect()
    assert (await both.request()).status == 204
    (request,) = both.service.requests
    peer, session = request.peer, request.peer.session
    assert session is not None
    assert (peer.ip, peer.tls, request.scheme) == ("127.0.0.1", True, b"https")
    assert (session.version, session.alpn, session.name) == ("TLSv1.3", b"http/1.1", "shop.test")
    assert session.cipher.startswith("TLS_")
    assert session.certificate is not None
    assert session.certificate.subject == "CN=us.test"
    assert both.times.tls > 0
    assert both.counted.count("tls_handshakes") == 2
    await both.close()


@on_both
async def test_a_session_is_resumed_with_the_same_endpoint(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("shop.test")), asking(authority))
    for _ in range(3):
        await both.connect()
        await both.request()
    assert both.counted.count("tls_resumed") == 4, "both sides, twice"
    trust = both.connector.trust
    assert trust is not None
    trust.client = asking(authority)
    prepare(trust.client, is_native(reactor))
    await both.connect()
    await both.request()
    assert both.counted.count("tls_resumed") == 4, "not under other rules"
    await both.close()


@on_both
async def test_a_stranger_is_not_the_upstream(reactor: Any, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger")
    both = Both(reactor, serving(stranger.issue("shop.test")), asking(authority))
    reason = await refused(both.connect())
    assert (reason.status, reason.error, reason.phase) == (502, "tls_certificate_error", Phase.TLS)
    assert "certificate verify failed: " in reason.reason
    await until(reactor, lambda: both.counted.count("tls_failed") == 2)
    await both.close()


@on_both
async def test_one_with_another_name_is_not_the_upstream(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("other.test")), asking(authority))
    reason = await refused(both.connect())
    assert (reason.status, reason.error) == (502, "tls_certificate_error")
    assert "shop.test" in reason.reason
    await both.close()


@on_both
async def test_who_is_not_verified_may_be_anybody(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("other.test")), asking(verify=False))
    await both.connect()
    assert (await both.request()).status == 204
    await both.close()


@on_both
async def test_a_name_for_all_endpoints_takes_the_place_of_their_own(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("other.test")), asking(authority, server_name="other.test"))
    await both.connect()
    await both.request()
    session = both.service.requests[0].peer.session
    assert session is not None
    assert session.name == "other.test"
    await both.close()


@on_both
async def test_an_address_is_verified_as_one(reactor: Any, authority: Authority) -> None:
    server = serving(authority.issue("it", ["127.0.0.1"]))
    both = Both(reactor, server, asking(authority, server_name="127.0.0.1"))
    await both.connect()
    await both.request()
    both.connector.trust = Trust(asking(authority, server_name="127.0.0.2"))
    assert "127.0.0.2" in (await refused(both.connect())).reason
    await both.close()


@on_both
async def test_a_protocol_that_must_be_agreed_on_is_not_guessed(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("shop.test"), alpn=()), asking(authority), Picky())
    reason = await refused(both.connect())
    assert (reason.status, reason.error) == (502, "tls_protocol_error")
    assert "did not agree by ALPN to speak http1" in reason.reason
    assert "tls_not_agreed" in both.counted
    await both.close()


@on_both
async def test_one_who_does_not_answer_is_given_up_by_a_clock_of_its_own(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, None, asking(authority), tls=0.1, connect=20)
    port = instead(both, Mute)
    reason = await refused(both.connect())
    assert (reason.status, reason.phase) == (504, Phase.TLS)
    assert both.counted.count("tls_timeout") == 1
    assert both.times.tls >= 0.1
    await until(reactor, lambda: not Mute.made)
    await port.stopListening()
    await both.close()


@on_both
async def test_an_attempt_that_nobody_wants_any_more_leaves_nothing(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, None, asking(authority))
    port = instead(both, Mute)
    attempt = both.connect()
    await until(reactor, lambda: Mute.made)
    await deferLater(reactor, 0.02)
    attempt.cancel()
    with pytest.raises(CancelledError):
        await attempt
    await until(reactor, lambda: not Mute.made)
    await port.stopListening()
    await both.close()


class Leaving(Protocol):
    """Closes as soon as something comes."""

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.loseConnection()


class Insecure(Protocol):
    """Does not speak TLS."""

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("kind", [Leaving, Insecure])
@on_both
async def test_one_who_does_not_speak_tls_is_told_apart(
    reactor: Any, authority: Authority, kind: type[Protocol]
) -> None:
    both = Both(reactor, None, asking(authority))
    port = instead(both, kind)
    reason = await refused(both.connect())
    left = kind is Leaving
    assert (reason.status, reason.error) == (502, "connection_terminated" if left else "tls_protocol_error")
    assert ("left" in reason.reason) == left
    await port.stopListening()
    await both.close()


@on_both
async def test_a_client_that_refuses_says_so_and_is_heard(reactor: Any, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    server = serving(Authority(tmp_path / "other", "stranger").issue("shop.test"))
    both = Both(reactor, server, asking(authority))
    told: list[str] = []
    both.listener.complain = lambda text, **fields: told.append(fields["why"])  # type: ignore[assignment,func-returns-value]
    await refused(both.connect())
    await until(reactor, lambda: told)
    assert "alert unknown ca" in told[0]
    await both.close()


@on_both
async def test_a_server_that_refuses_says_so_and_is_heard(reactor: Any, authority: Authority) -> None:
    server = serving(authority.issue("shop.test"), ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
    both = Both(reactor, server, asking(authority, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    _only_tls_1_2(both)
    reason = await refused(both.connect())
    assert (reason.status, reason.error) == (502, "tls_alert_received")
    assert "handshake failure" in reason.reason
    await both.close()


def _only_tls_1_2(both: Both) -> None:
    """What the configuration has no word for."""
    trust = both.connector.trust
    assert trust is not None
    assert trust.client is not None
    (context,) = trust.client.contexts.values()
    if hasattr(context, "maximum_version"):
        context.maximum_version = native.VERSIONS["1.2"]
    else:
        from OpenSSL import SSL

        context.set_max_proto_version(SSL.TLS1_2_VERSION)


@on_both
async def test_a_listener_may_drop_who_is_in_the_middle_of_a_handshake(reactor: Any, authority: Authority) -> None:
    both = Both(reactor, serving(authority.issue("shop.test")), asking(authority))

    class Half(Protocol):
        lost = False

        def connectionMade(self) -> None:
            transport: Any = self.transport
            transport.write(b"\x16\x03\x01\x02\x00\x01")

        def connectionLost(self, reason: Any = None) -> None:
            self.lost = True

    half = Half()
    factory: Any = Factory()
    factory.buildProtocol = lambda address: half
    from twisted.internet.endpoints import TCP4ClientEndpoint

    tcp: IReactorTCP = reactor
    await TCP4ClientEndpoint(tcp, "127.0.0.1", both.port.getHost().port).connect(factory)  # type: ignore[arg-type]
    await until(reactor, lambda: both.listener.connections)
    await deferLater(reactor, 0.05)
    both.listener.abort()
    await until(reactor, lambda: half.lost)
    assert not both.listener.connections
    await both.close()


def test_all_that_is_wrong_is_told_in_one_go() -> None:
    config = model.UpstreamTls(ca="/nowhere.pem", verify=False, cert="/x.pem", ciphers="FAST")
    with pytest.raises(ConfigFaults) as caught:
        asked.client(config, (), Reading())
    assert [fault.path for fault in caught.value.faults] == [("ca",), ("cert",), ("ciphers",), ("ca",)]
    with pytest.raises(ConfigFaults, match="cert is missing"):
        asked.client(model.UpstreamTls(key="/x.key"), (), Reading())
    with pytest.raises(ConfigFaults, match=r"/x.pem: No such file"):
        asked.client(model.UpstreamTls(cert="/x.pem", key="/x.key"), (), Reading())
