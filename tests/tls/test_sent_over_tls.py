"""A client of HTTP/2 knows over TLS when its request has left, too: either library, either engine, real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from both import on_both
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from zope.interface import implementer

from authority import Authority
from protogate.config import model
from protogate.context import Context, Timeouts
from protogate.downstream.listener import Listener
from protogate.errors import Abort
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IClientConnection, IService
from protogate.message import Request, Response
from protogate.testing import Giver, Taker
from protogate.tls import client as asked
from protogate.tls import server as offered
from protogate.tls.files import Reading
from protogate.tls.layer import is_native, prepare
from protogate.upstream.connector import Connector, Trust
from protogate.upstream.link import Link
from protogate.wheel import Wheel
from protogate_http.http2 import Http2

ENGINES = pytest.mark.parametrize("engine", ["ngh2", "h2"])
PATIENCE = 0.4
"""Seconds for the head of an answer."""
SLACK = 3.0
"""Seconds that a busy machine may add; without being told, the next look would come later."""


@implementer(IService)
class Silent:
    """Reads what it is asked, and says nothing."""

    def handle(self, request: Request) -> Deferred[Response]:
        """L{IService}."""
        if request.body is not None:
            Taker(request.body)
        return Deferred()


class Pair:
    """A client, and a server with TLS, on one reactor."""

    def __init__(self, reactor: Any, engine: str, authority: Authority) -> None:
        self.reactor = reactor
        self.wheel = Wheel(reactor, now=reactor.seconds)
        context = Context(self.wheel, timeouts=Timeouts(response_head=PATIENCE))
        issued = authority.issue("shop.test")
        files = model.CertificateFiles(cert=str(issued.cert), key=str(issued.key))
        codec, alpn = Http2(engine), (b"h2",)
        self.listener = Listener("web", [codec], Silent(), context)
        self.listener.tls = offered.server(model.ListenerTls(certificates=(files,)), alpn, Reading())
        client = asked.client(model.UpstreamTls(ca=str(authority.file)), alpn, Reading())
        for side in (self.listener.tls, client):
            prepare(side, is_native(reactor))
        self.port = reactor.listenTCP(0, self.listener, interface="127.0.0.1")
        where = self.port.getHost().port
        resolver: Any = None
        self.connector = Connector(reactor, resolver, codec, context, "127.0.0.1", where, Trust(client), "shop.test")
        self.ready: list[IClientConnection] = []

    async def connect(self) -> IClientConnection:
        pool: Any = None
        await self.connector.connect(self.ready.append, Link(pool, None))
        while not self.ready:
            await deferLater(self.reactor, 0.005)
        return self.ready[0]

    async def close(self) -> None:
        self.ready[0].abort()
        self.listener.abort()
        await self.port.stopListening()
        while self.listener.connections:
            await deferLater(self.reactor, 0.005)
        self.wheel.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@ENGINES
@on_both
async def test_the_clock_of_the_answer_runs_from_the_last_byte_on(
    reactor: Any, engine: str, authority: Authority
) -> None:
    pair = Pair(reactor, engine, authority)
    connection = await pair.connect()
    for upload in (None, Giver([b"x" * 30_000], 30_000)):
        body = None if upload is None else upload.body
        request = Request(b"GET" if body is None else b"POST", b"/", body=body, authority=b"shop.test")
        began = reactor.seconds()
        ledger = request.ledger = Ledger(began)
        answer = connection.handle(request)
        assert isinstance(answer, Deferred)
        with pytest.raises(Abort, match="responseHead"):
            await answer
        assert began <= ledger.sent < began + SLACK
        assert PATIENCE <= reactor.seconds() - ledger.sent < PATIENCE + SLACK
    await pair.close()
