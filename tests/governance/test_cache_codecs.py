"""cache: what one client got over one protocol another one is given over another."""

from __future__ import annotations

import pytest

from protogate.interfaces import IStreamCodec
from protogate.plugins import names
from protogate.testing.caller import Caller
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CODECS = tuple(names(IStreamCodec))
LISTENER = '{name: %s, address: "127.0.0.1:%d", protocols: [%s]}'
CONFIG = f"""
listeners: [{", ".join(LISTENER % (name, 8080 + at, name) for at, name in enumerate(CODECS))}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}]
routes: [{{value: /1001, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules: [{{name: cache}}]
"""
CONTENT = b"x" * 100_000
HEAD = b'HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\netag: "a"\r\ncontent-length: 100000\r\n\r\n'


@pytest.mark.parametrize("second", CODECS)
@pytest.mark.parametrize("first", CODECS)
def test_over_one_and_over_another(first, second):
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), HEAD + CONTENT])
        got = []
        for codec, headers in ((first, []), (second, []), (second, [(b"if-none-match", b'"a"')])):
            caller = Caller(gateway, codec, codec)
            got.append(caller.ask(b"GET", b"/1001/get", headers))
            caller.close()
        assert [one.status for one in got] == [200, 200, 304]
        assert [one.content for one in got] == [CONTENT, CONTENT, b""]
        assert [one.headers.get(b"cache-status") for one in got] == [
            b"protogate; fwd=uri-miss; fwd-status=200; stored",
            b"protogate; hit; ttl=60",
            b"protogate; hit; ttl=60",
        ]
        assert origin.received[0].count(b"GET ") == 1


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_client_leaves_half_read_another_one_gets_whole(codec):
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), HEAD + CONTENT[:50_000], Expect(b"never")])
        first, second = Caller(gateway, codec, codec), Caller(gateway, codec, codec)
        asked = first.ask(b"GET", b"/1001/get"), second.ask(b"GET", b"/1001/get")
        assert [one.status for one in asked] == [200, 200]
        first.close()
        origin.connections[0].send(CONTENT[50_000:])
        gateway.run()
        assert asked[1].content == CONTENT
        assert asked[1].whole
        second.close()
        assert len(origin.connections) == 1
