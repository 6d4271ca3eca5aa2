"""Every clock alone: it starts where that is fair, nothing happens before its time, its end names phase and side."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from edge import GET, HOST, OK, PORT, SCRIPT, answer, answers, armed, config, counted, installed, module
from twisted.internet.defer import Deferred

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect

LATE = 0.2
"""Seconds by which a clock may be late: one turn of the wheel, and one of the tests' clock."""
LOOKS = 1 / 8
"""A stall is noticed by looking now and then: the share of its time by which that may be late."""
OFF = dict.fromkeys(
    (
        *("clientHeader", "clientIdle", "clientStall", "clientMinRate", "queue", "dns", "connect", "tls"),
        *("upstreamStall", "responseHead", "responseStall", "total"),
    ),
    0,
)
POST = b"POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
HUGE = 1 << 20


@contextmanager
def clocks(config_=None, /, **timeouts):
    """A gateway on which these clocks run, and no others."""
    made = config(**(config_ or {}))
    made["gateway"]["timeouts"] = {**OFF, **timeouts}
    with MemoryGateway(made) as gateway:
        yield gateway
        for _ in range(3):
            gateway.run()
        assert not [
            each for each in gateway.service.plan.clusters.values() if any(s.waiting for s in each.stats().values())
        ]


def judge(gateway, status, phase, who, counter, error=None, *, count=1):
    """The one record says this, and it was counted."""
    (made,) = [each for each in gateway.records if each.error]
    assert (made.status, made.phase, made.who) == (status, phase, who)
    if error is not None:
        assert made.proxy_error == error
    assert counted(gateway) == {counter: count}


def told(client, status, phase, who, error):
    """The client got the problem document that belongs to it."""
    got = answer(client.received)
    assert got.status == status
    assert got["proxy-status"] == f'edge-1; error={error}; details="{who} {phase}"'
    assert got["content-type"] == "application/problem+json"
    document = json.loads(got.body)
    assert document["status"] == status
    return got, document


# -- the client's phases


def test_client_header_is_absolute_from_the_first_byte():
    with clocks(clientHeader="10s") as gateway:
        client = gateway.client()
        gateway.advance(500)  # nothing was sent: not this clock
        head = GET % b"/slow"
        for at in range(9):
            client.send(head[at : at + 1])
            gateway.advance(1)
        client.send(head[9:10])
        gateway.advance(0.95)
        assert client.received == b""
        gateway.advance(0.05 + LATE)
        told(client, 408, "clientHeader", "client", "http_request_error")
        judge(gateway, 408, "clientHeader", "client", "client_header_timeout", "http_request_error")
        assert answer(client.received)["connection"] == "close"
        client.close()
        gateway.run()
        assert client.lost is not None


def test_client_header_of_a_later_request_starts_with_its_own_first_byte():
    with clocks(clientHeader="10s") as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        client.send(GET % b"/1")
        gateway.run()
        assert answer(client.take()).status == 200
        gateway.advance(100)
        client.send(b"GET /2")
        gateway.advance(9.95)
        client.send(b" HTTP/1.1\r\nHost: a.test\r\n\r\n")
        gateway.run()
        assert answer(client.take()).status == 200
        client.send(b"G")
        gateway.advance(10 + LATE)
        assert answer(client.take()).status == 408
        client.close()
        gateway.run()


def test_client_header_does_not_run_while_an_answer_is_owed():
    with clocks(clientHeader="10s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        client.send(GET % b"/1" + b"GET /2")
        gateway.advance(60)
        assert client.received == b""
        origin.connections[0].send(OK)
        gateway.run()
        assert answer(client.take()).status == 200
        gateway.advance(9.9)
        client.send(b" HTTP/1.1\r\nHost: a.test\r\n\r\n")
        gateway.run()
        origin.connections[0].send(OK)
        gateway.run()
        assert answer(client.take()).status == 200
        client.close()
        gateway.run()
        assert not counted(gateway)


@pytest.mark.parametrize("before", [False, True])
def test_client_idle_closes_without_a_word(before):
    with clocks(clientIdle="75s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        if before:
            client.send(GET % b"/1")
            gateway.advance(200)  # while an answer is owed nobody is idle
            assert client.lost is None
            origin.connections[0].send(OK)
            gateway.run()
            assert answer(client.take()).status == 200
        gateway.advance(74.9)
        assert not client.eof
        gateway.advance(0.1 + LATE)
        assert client.eof
        assert client.received == b""
        assert counted(gateway) == {"client_idle_timeout": 1}
        assert [each.error for each in gateway.records] == [""] * before


def test_client_idle_starts_anew_after_each_answer():
    with clocks(clientIdle="75s") as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        for _ in range(4):
            gateway.advance(70)
            client.send(GET % b"/")
            gateway.run()
            assert answer(client.take()).status == 200
        client.close()
        gateway.run()


def test_client_stall_of_an_upload():
    with clocks(clientStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % 100 + b"x")
        for _ in range(4):  # progress arms it again
            gateway.advance(29.9)
            client.send(b"x")
        gateway.advance(29.9)
        assert client.received == b""
        assert origin.received[0].endswith(b"\r\n\r\nxxxxx")
        gateway.advance(0.1 + LATE)
        told(client, 408, "clientStall", "client", "http_request_error")
        judge(gateway, 408, "clientStall", "client", "client_stall_timeout")
        assert gateway.records[0].received == 5
        assert origin.connections[0].lost is not None, "the truncation is visible to the upstream"
        client.close()
        gateway.run()


def test_client_stall_of_an_upload_does_not_run_while_the_upstream_is_slow():
    with clocks(clientStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % HUGE)
        gateway.run()
        origin.connections[0].transport.pauseProducing()
        client.send(b"x" * (HUGE - 1))
        gateway.advance(100)
        assert client.received == b""
        origin.connections[0].transport.resumeProducing()
        gateway.run()  # all of it flows: from here on it is the client's turn
        gateway.advance(29.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        told(client, 408, "clientStall", "client", "http_request_error")
        client.close()
        gateway.run()


def test_client_stall_of_a_download():
    with clocks(clientStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), SIZED % (HUGE + 1) + b"x" * HUGE])
        client = gateway.client()
        client.send(GET % b"/big")
        client.transport.pauseProducing()
        for _ in range(4):  # it takes some, now and then
            gateway.advance(29)
            assert not gateway.records
            client.transport.resumeProducing()
            gateway.reactor.net.most = 1000
            gateway.reactor.run(1)
            client.transport.pauseProducing()
        gateway.reactor.net.most = 1 << 62
        gateway.advance(29.9)
        assert not gateway.records
        gateway.advance(0.1 + 30 * LOOKS + LATE)
        judge(gateway, 200, "clientStall", "client", "client_stall_timeout")
        client.transport.resumeProducing()
        gateway.run()
        assert client.lost is not None
        assert not answer(client.received).whole
        assert origin.connections[0].lost is not None, "nobody reads it any more"


def test_client_stall_of_a_download_does_not_run_while_the_upstream_is_slow():
    with clocks(clientStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK[:-1]])
        client = gateway.client()
        client.send(GET % b"/big")
        gateway.advance(300)
        assert client.lost is None
        origin.connections[0].send(b"k")
        gateway.run()
        assert answer(client.received).body == b"ok"
        client.close()
        gateway.run()
        assert not counted(gateway)


def test_client_min_rate():
    with clocks(clientMinRate=1000) as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % HUGE)
        gateway.run()
        for _ in range(60):  # fast enough, measured over 10 s
            client.send(b"x" * 1100)
            gateway.advance(1)
        assert client.received == b""
        for _ in range(20):  # alive, but too slow for a whole window
            client.send(b"x" * 900)
            gateway.advance(1)
        told(client, 408, "clientMinRate", "client", "http_request_error")
        judge(gateway, 408, "clientMinRate", "client", "client_min_rate_timeout")
        assert origin.connections[0].lost is not None
        client.close()
        gateway.run()


def test_client_min_rate_gives_ten_seconds():
    with clocks(clientMinRate=1) as gateway:
        gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        gateway.advance(100)
        client.send(POST % HUGE)
        gateway.advance(9.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        told(client, 408, "clientMinRate", "client", "http_request_error")
        client.close()
        gateway.run()


def test_client_min_rate_does_not_run_while_the_upstream_is_slow():
    with clocks(clientMinRate=1000) as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % HUGE)
        gateway.run()
        origin.connections[0].transport.pauseProducing()
        client.send(b"x" * (HUGE - 5000))
        gateway.advance(100)
        assert client.received == b""
        origin.connections[0].transport.resumeProducing()
        gateway.run()
        gateway.advance(9.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        told(client, 408, "clientMinRate", "client", "http_request_error")
        client.close()
        gateway.run()


# -- on the way to the upstream


def test_queue():
    with clocks({"origin": {"pool": {"maxPerEndpoint": 1}}}, queue="5s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        first, second = gateway.client(), gateway.client()
        first.send(GET % b"/1")
        gateway.advance(60)  # being served is not waiting
        second.send(GET % b"/2")
        gateway.advance(4.95)
        assert second.received == b""
        gateway.advance(0.05 + LATE)
        got, _ = told(second, 503, "queue", "gateway", "connection_limit_reached")
        assert got["retry-after"]
        judge(gateway, 503, "queue", "gateway", "queue_timeout", "connection_limit_reached")
        assert len(origin.connections) == 1
        origin.connections[0].send(OK)
        gateway.run()
        assert answer(first.received).status == 200
        for each in (first, second):
            each.close()
        gateway.run()


def test_dns():
    with clocks({"origin": {"endpoints": [{"url": "http://slow.test"}]}}, dns="3s") as gateway:
        asked = []
        gateway.names._lookup = lambda *_: asked.append(Deferred()) or asked[-1]
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(2.95)
        assert client.received == b""
        gateway.advance(0.05 + LATE)
        told(client, 504, "dns", "upstream", "dns_timeout")
        judge(gateway, 504, "dns", "upstream", "dns_timeout", "dns_timeout")
        client.close()
        gateway.run()


def test_connect():
    with clocks(connect="3s") as gateway:
        gateway.reactor.silent.add((HOST, PORT))
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(2.95)
        assert client.received == b""
        gateway.advance(0.05 + LATE)
        told(client, 504, "connect", "upstream", "connection_timeout")
        judge(gateway, 504, "connect", "upstream", "connect_timeout", "connection_timeout")
        client.close()
        gateway.run()


def test_queue_does_not_run_while_a_connection_is_being_made():
    with clocks(queue="1s", connect="3s") as gateway:
        gateway.reactor.silent.add((HOST, PORT))
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(2.95)
        assert client.received == b""
        gateway.advance(0.05 + LATE)
        told(client, 504, "connect", "upstream", "connection_timeout")
        client.close()
        gateway.run()


# -- the upstream's phases


def test_upstream_stall_starts_when_nothing_flows_and_anew_with_progress():
    with clocks(upstreamStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % HUGE)
        gateway.advance(200)  # nothing is there to be flushed: the client is what is slow
        upstream = origin.connections[0]
        upstream.transport.pauseProducing()
        client.send(b"x" * HUGE)
        for _ in range(3):
            gateway.advance(29)
            assert client.received == b""
            upstream.transport.resumeProducing()
            gateway.reactor.net.most = 1000
            gateway.reactor.run(1)
            upstream.transport.pauseProducing()
        gateway.reactor.net.most = 1 << 62
        gateway.advance(29.9)
        assert client.received == b""
        gateway.advance(0.1 + 30 * LOOKS + LATE)
        told(client, 504, "upstreamStall", "upstream", "connection_write_timeout")
        judge(gateway, 504, "upstreamStall", "upstream", "upstream_stall_timeout", "connection_write_timeout")
        upstream.transport.resumeProducing()
        gateway.run()
        assert upstream.lost is not None
        client.close()
        gateway.run()


def test_upstream_stall_of_a_head_alone():
    with clocks(upstreamStall="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK])
        client = gateway.client()
        client.send(GET % b"/1")
        gateway.run()
        client.take()
        origin.connections[0].transport.pauseProducing()
        client.send(GET % b"/2")
        gateway.advance(29.9)
        assert client.received == b""
        gateway.advance(0.1 + 30 * LOOKS + LATE)
        told(client, 504, "upstreamStall", "upstream", "connection_write_timeout")
        client.close()
        gateway.run()


def test_response_head_starts_with_the_last_flushed_byte():
    with clocks(responseHead="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % 10)
        for _ in range(10):  # a slow upload does not use it up
            gateway.advance(25)
            assert client.received == b""
            client.send(b"x")
        gateway.advance(29.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        told(client, 504, "responseHead", "upstream", "http_response_timeout")
        judge(gateway, 504, "responseHead", "upstream", "response_head_timeout", "http_response_timeout")
        assert origin.connections[0].lost is not None
        client.close()
        gateway.run()


def test_response_head_waits_for_what_the_upstream_did_not_take_yet():
    with clocks(responseHead="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(POST % 50_000)
        gateway.run()
        upstream = origin.connections[0]
        upstream.transport.pauseProducing()
        client.send(b"x" * 50_000)
        gateway.advance(100)
        assert client.received == b""
        upstream.transport.resumeProducing()
        gateway.run()
        assert len(upstream.received) > 50_000
        gateway.advance(29.9)
        assert client.received == b""
        gateway.advance(0.1 + 100 / 4 + LATE)  # when the kernel took it, only looking tells
        told(client, 504, "responseHead", "upstream", "http_response_timeout")
        client.close()
        gateway.run()


def test_response_head_is_not_put_off_by_interim_responses_or_part_of_a_head():
    with clocks(responseHead="30s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(10)
        origin.connections[0].send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        gateway.advance(10)
        origin.connections[0].send(b"HTTP/1.1 200 OK\r\n")
        gateway.advance(9.9)
        assert answer(client.take()).status == 103
        gateway.advance(0.1 + LATE)
        told(client, 504, "responseHead", "upstream", "http_response_timeout")
        client.close()
        gateway.run()


def test_response_stall():
    with clocks(responseStall="60s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(500)  # no head yet: another clock
        assert client.received == b""
        origin.connections[0].send(SIZED % 10)
        for _ in range(4):
            gateway.advance(59.9)
            assert client.lost is None
            origin.connections[0].send(b"x")
        gateway.advance(59.9)
        assert client.lost is None
        gateway.advance(0.1 + LATE)
        assert client.lost is not None
        got = answer(client.received)
        assert (got.status, got.body, got.whole) == (200, b"xxxx", False)
        judge(gateway, 200, "responseStall", "upstream", "response_stall_timeout", "connection_read_timeout")
        assert origin.connections[0].lost is not None


def test_response_stall_of_a_chunked_body_shows_no_last_chunk():
    with clocks(responseStall="60s") as gateway:
        gateway.upstream(
            HOST, PORT, [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
        )
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(60 + LATE)
        assert client.received.endswith(b"\r\n3\r\nabc\r\n")
        assert client.lost is not None


def test_response_stall_does_not_run_while_the_client_is_slow():
    with clocks(responseStall="60s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), SIZED % HUGE])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        client.transport.pauseProducing()
        origin.connections[0].send(b"x" * (HUGE - 1))
        gateway.advance(600)
        client.transport.resumeProducing()
        gateway.run()
        gateway.advance(59.9)
        assert client.lost is None
        assert not gateway.records
        gateway.advance(0.1 + LATE)
        assert client.lost is not None
        judge(gateway, 200, "responseStall", "upstream", "response_stall_timeout")


def test_an_upstream_may_have_clocks_of_its_own():
    with clocks({"origin": {"timeouts": {"responseHead": "1s"}}}, responseHead="30s") as gateway:
        gateway.upstream(HOST, PORT, [Do.SILENCE])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(0.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        told(client, 504, "responseHead", "upstream", "http_response_timeout")
        client.close()
        gateway.run()


# -- the whole


def never(exchange):
    return Deferred()


WAITS = {
    "module": {"modules": [module("never", "PRE_REQUEST", timeout_=0)]},
    "prepared": {"modules": [module("never", "PRE_UPSTREAM", timeout_=0)]},
    "connect": {"origin": {"endpoints": [{"url": "http://192.0.2.99"}]}},
    "response": {},
    "back": {"modules": [module("never", "PRE_RESPONSE", timeout_=0, condition_="response.status == 200")]},
}


@pytest.mark.parametrize("where", WAITS)
@pytest.mark.parametrize("upload", [False, True])
def test_total_before_the_head(where, upload):
    with installed(never=never), clocks(WAITS[where], total="8s") as gateway:
        gateway.reactor.silent.add(("192.0.2.99", PORT))
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK] if where == "back" else [Do.SILENCE])
        client = gateway.client()
        client.send(POST % 10 + b"x" if upload else GET % b"/")
        gateway.advance(7.9)
        assert client.received == b""
        gateway.advance(0.1 + LATE)
        _, document = told(client, 500, "total", "gateway", "proxy_internal_error")
        assert document["title"] == "Async-Timeout-Processing"
        judge(gateway, 500, "total", "gateway", "total_timeout", "proxy_internal_error")
        if where in ("response", "back"):
            assert origin.connections[0].eof or not upload
        client.close()
        gateway.run()


def test_total_within_the_body_shows_the_truncation():
    with clocks(total="8s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK[:-1]])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.advance(7.9)
        assert client.lost is None
        gateway.advance(0.1 + LATE)
        assert client.lost is not None
        assert not answer(client.received).whole
        judge(gateway, 200, "total", "gateway", "total_timeout")
        assert origin.connections[0].lost is not None


def test_total_within_the_body_reaches_a_client_that_reads_nothing():
    with clocks(total="8s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), SIZED % (HUGE + 1) + b"x" * HUGE])
        client = gateway.client()
        client.send(GET % b"/")
        client.transport.pauseProducing()
        gateway.advance(8 + LATE)
        judge(gateway, 200, "total", "gateway", "total_timeout")
        assert origin.connections[0].lost is not None
        client.transport.resumeProducing()
        gateway.run()
        assert client.lost is not None


def test_total_is_not_for_tunnels():
    with clocks(total="8s") as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        client.send(
            b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        gateway.advance(1)
        origin.connections[0].send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        gateway.run()
        assert answer(client.take()).status == 101
        gateway.advance(100)
        origin.connections[0].send(b"hello")
        client.send(b"you")
        gateway.run()
        assert client.received == b"hello"
        assert origin.connections[0].received.endswith(b"you")
        client.close()
        gateway.run()
        assert not counted(gateway)


def test_total_ends_with_the_exchange_not_with_the_connection():
    with clocks(total="8s") as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        for _ in range(5):
            client.send(GET % b"/")
            gateway.advance(5)
            assert answer(client.take()).status == 200
        client.close()
        gateway.run()
        assert not counted(gateway)


# -- what is left


def test_no_clock_costs_a_delayed_call_and_none_is_left():
    on = dict.fromkeys(OFF, "20s") | {"clientMinRate": 1}
    with clocks(**on) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        reactor, calls = gateway.reactor, []
        later = reactor.clock.callLater

        def counting(delay, *rest, **named):
            calls.append(delay)
            return later(delay, *rest, **named)

        reactor.clock.callLater = counting
        client = gateway.client()
        before = len(calls)
        for _ in range(200):
            client.send(GET % b"/")
            gateway.run()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
            gateway.run()
        assert len(answers(client.received)) == 400
        assert len(calls) - before <= 1, "nothing but the turn of the wheel"
        assert armed(gateway.service.wheel) <= 4, "the connections' own, and the pool's"
        client.close()
        gateway.advance(61)
        assert armed(gateway.service.wheel) == 0
        assert not reactor.getDelayedCalls()
