"""What a request over HTTP/2 says of the connection that it comes over: many servers look (dotnet/aspnetcore#30532)."""

from __future__ import annotations

from typing import Any

import pytest
from ends import Wire, World
from twisted.internet.interfaces import ISSLTransport
from zope.interface import implementer

from h2frames import settings
from h2peer import Peer
from protogate.message import Request
from protogate_http.http2 import Http2


@implementer(ISSLTransport)
class Secret(Wire):
    """One with TLS."""


@pytest.mark.parametrize("upgrade", [None, b"websocket"])
@pytest.mark.parametrize(("wire", "scheme"), [(Wire, b"http"), (Secret, b"https")])
@pytest.mark.parametrize("asked", [b"http", b"https"])
@pytest.mark.parametrize("engine", ["ngh2", "h2"])
def test_the_scheme_is_that_of_the_connection(
    engine: str, asked: bytes, wire: Any, scheme: bytes, upgrade: bytes | None
) -> None:
    peer, world = Peer(False), World()
    transport = wire()
    client = Http2(engine).client(lambda connection: None, world.context)
    client.makeConnection(transport)
    client.dataReceived(settings((8, 1)))
    client.handle(Request(b"GET", b"/", authority=b"a.test", scheme=asked, upgrade=upgrade)).addErrback(lambda _: None)
    world.clock.advance(0)
    peer.feed(transport.data)
    assert dict(peer.messages[1].heads[0])[b":scheme"] == scheme
    assert peer.faults == []
    client.abort()
