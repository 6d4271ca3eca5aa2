"""The whole gateway on memory links."""

from __future__ import annotations

import pytest

from protogate.config.faults import ConfigFaults
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect, Upstream

CONFIG = """
gateway: {name: memory, timeouts: {responseHead: 5s}}
listeners:
  - {name: web, address: "127.0.0.1:8080"}
  - {name: local, address: "unix:/run/protogate-memory.sock"}
upstreams:
  - {name: origin, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: named, endpoints: [{url: "http://origin.test:81"}]}
routes:
  - {name: all, value: /, matcherType: prefix, routes: [{targets: [{upstream: origin}]}]}
  - {name: named, value: /named, matcherType: prefix, routes: [{targets: [{upstream: named}]}]}
"""
GET = b"GET %s HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SCRIPT = [Expect(b"\r\n\r\n"), OK]


def test_a_request_through_the_whole_gateway_byte_by_byte():
    for most in (1, 1 << 20):
        with MemoryGateway(CONFIG, most=most) as gateway:
            origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
            answer = gateway.ask(GET % b"/x")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\nok")
            assert origin.received[0].startswith(b"GET /x HTTP/1.1\r\n")
            assert [(made.status, made.route) for made in gateway.records] == [(200, "all")]
            client = gateway.client("local")
            client.send(GET % b"/y")
            gateway.run()
            assert client.take().startswith(b"HTTP/1.1 200 ")
            assert client.received == b""
            assert len(origin.connections) == 1, "the upstream connection was reused"
            link = gateway.link(origin.connections[0])
            assert link.ends[1][0] is origin.connections[0]


def test_names_come_from_the_fake_name_server():
    with MemoryGateway(CONFIG) as gateway:
        gateway.names.hosts["origin.test"] = ["192.0.2.9"]
        gateway.upstream("192.0.2.9", 81, SCRIPT)
        assert gateway.ask(GET % b"/named").startswith(b"HTTP/1.1 200 ")
        assert "origin.test" in gateway.names.asked


def test_clocks_are_the_tests():
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, [Do.SILENCE])
        client = gateway.client(address=("127.0.0.9", 1234))
        client.send(GET % b"/slow")
        gateway.advance(4)
        assert client.received == b""
        gateway.advance(3)
        assert client.received.startswith(b"HTTP/1.1 504 ")


def test_reload_by_mapping_and_by_text():
    with MemoryGateway(CONFIG) as gateway:
        assert not gateway.reload("listeners: []\nnonsense: 1\n")
        assert gateway.reload(CONFIG.replace("value: /named", "value: /other"))
        gateway.upstream("192.0.2.7", 80, SCRIPT)
        assert gateway.ask(GET % b"/named").startswith(b"HTTP/1.1 200 ")
    mapping = {
        "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
        "routes": [],
        "modules": [{"name": "respond", "stage": "PRE_REQUEST", "actionParam": {"status": 200, "body": "pong"}}],
    }
    with MemoryGateway(mapping) as gateway:
        assert gateway.ask(GET % b"/").endswith(b"pong")


def test_faults_are_raised():
    with pytest.raises(ConfigFaults):
        MemoryGateway("nonsense: 1")


def test_unknown_listener_and_link():
    with MemoryGateway(CONFIG) as gateway:
        with pytest.raises(LookupError, match="no listener 'x'; there are web, local"):
            gateway.client("x")
        stranger = Upstream().buildProtocol(None)
        with pytest.raises(LookupError, match="no link of this gateway"):
            gateway.link(stranger)


def test_what_stays_behind_is_told():
    with (
        pytest.raises(AssertionError, match="left behind by the gateway: a delayed call"),
        MemoryGateway(CONFIG) as gateway,
    ):
        gateway.reactor.callLater(1e6, print)
    gateway.stop()


def test_an_error_inside_is_not_hidden_by_what_stays_behind():
    def fail():
        with MemoryGateway(CONFIG) as gateway:
            gateway.reactor.callLater(1e6, print)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_its_folder_goes_also_when_it_cannot_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gateway = MemoryGateway(CONFIG)
    gateway.reactor.callLater(0.5, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gateway.stop()
    assert list(tmp_path.iterdir()) == []
