"""Who speaks something else, or says what only others would understand: seen at once, and passed on to nobody."""

from __future__ import annotations

import pytest
from edge import EVERYBODY, GET, HOST, PORT, SCRIPT, answer, config, counted, fetch, fields, heads, module

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)


@pytest.mark.parametrize("most", [1, 65536])
@pytest.mark.parametrize("data", [b"GET /\r\n", b"SSH-2.0-x\r\n", HELLO, b"GET / http/1.1\r\n", b"GET  / HTTP/1.1\r\n"])
def test_a_client_of_another_protocol_is_told_at_once(data, most):
    with MemoryGateway(config(), most=most) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        client.send(data)
        gateway.run()
        got = answer(client.received)
        assert (got.status, got["connection"]) == (400, "close")
        assert counted(gateway)["malformed_head"] == 1
        client.close()
        gateway.run()
        assert not origin.connections


@pytest.mark.parametrize("most", [1, 65536])
@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"HTTP/1.1 200 OK\r\nX: y\nZ: a\r\n"]
)
def test_an_upstream_of_another_protocol_is_not_waited_for(data, most):
    with MemoryGateway(config(), most=most) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), data])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        assert answer(client.received).status == 502
        client.close()
        gateway.run()


@pytest.mark.parametrize("target", [b"/a?b#c", b"/a#c", b"http://a.test/a?b#c"])
def test_a_fragment_is_nothing_for_a_server(target):
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, target).status == 400
        assert not origin.connections


def test_fields_that_cgi_would_take_for_others_stay_outside():
    forged = (
        *(b"X_Forwarded_For: 192.0.2.66", b"X-Forwarded_Host: evil.test", b"X_Real_IP: 192.0.2.66"),
        *(b"Content_Length: 9", b"Transfer_Encoding: chunked", b"Proxy: http://evil.test", b"X_Mine: stays"),
    )
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", *forged).status == 200
        got = fields(heads(origin.connections[0])[0])
        assert [name for name in got if "_" in name or name == "proxy"] == ["x_mine"]
        assert got["x-forwarded-for"] == ["127.0.0.1"]


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_nobody_passes_for_the_proxy_by_naming_away_his_own_address(header):
    guard = module("accessList", allow=["127.0.0.0/8"])
    said = b"X-Forwarded-For: 203.0.113.9" if header == "x-forwarded-for" else b"Forwarded: for=203.0.113.9"
    with MemoryGateway(config(modules=[guard], trustedProxies=EVERYBODY, trustedHeader=header)) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", said).status == 403
        assert fetch(gateway, "/", said, b"Connection: close, " + header.encode()).status == 403


def test_a_request_that_goes_round_in_circles_is_stopped():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", b"Via: " + b"1.1 edge-1, " * 7 + b"1.0 edge-2").status == 200
        got = fetch(gateway, "/", b"Via: " + b"1.1 edge-1, " * 7 + b"1.0 edge-2, 1.1 edge-1 (here again)")
        assert got.status == 502
        assert "error=proxy_loop_detected" in got["proxy-status"]
        assert len(origin.connections) == 1


def test_an_answer_in_http_1_0_says_so_in_via():
    with MemoryGateway(config()) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"])
        assert fetch(gateway, "/")["via"] == "1.0 edge-1"
