"""faultInject: what goes wrong on purpose."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from protogate.governance.faultinject import Cut, FaultInjectFactory, Slow
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect
from protogate.wheel import Wheel


class FaultInjectContract(ModuleContract, SynchronousTestCase):
    factory = FaultInjectFactory
    good = (
        {"abort": 503},
        {"truncate": "10B"},
        {"truncate": 0, "ratio": 0.5},
        {"rate": "1KiB"},
        {"delay": "1s", "ratio": 0},
    )
    bad = (
        ({}, ""),
        ({"ratio": 101, "abort": 503}, "ratio"),
        ({"ratio": "all", "abort": 503}, "ratio"),
        ({"ratio": True, "abort": 503}, "ratio"),
        ({"abort": 200}, "abort"),
        ({"abort": 503, "truncate": "1B"}, "abort"),
        ({"delay": 5}, "delay"),
        ({"rate": 0}, "rate"),
        ({"truncate": "some"}, "truncate"),
    )


def test_an_error_says_that_it_is_one_on_purpose():
    made = exchange()
    answer = FaultInjectFactory().build({"abort": 503}).process(made)
    assert (answer.status, answer.reason.detail, made.notes["fault"]) == (503, "on purpose", "503")
    assert b"error=proxy_internal_response" in answer.headers.get(b"proxy-status")


def test_so_many_of_a_hundred_are_hit():
    module = FaultInjectFactory().build({"abort": 503, "ratio": 20})
    hit = sum(module.process(exchange()) is not None for _ in range(2000))
    assert 300 < hit < 500
    assert FaultInjectFactory().build({"abort": 503, "ratio": 0}).process(exchange()) is None


def test_it_goes_on_later():
    clock = Clock()
    clock.advance(100)
    made, done = exchange(clock=clock), []
    FaultInjectFactory().build({"delay": "500ms"}).process(made).addCallback(done.append)
    clock.advance(0.45)
    assert done == []
    clock.pump([0.05] * 3)
    assert (done, made.notes["fault"]) == ([None], "0.5 s late")


def test_who_leaves_meanwhile_is_gone():
    clock = Clock()
    clock.advance(100)
    late = FaultInjectFactory().build({"delay": "10s", "abort": 503}).process(exchange(clock=clock))
    late.addErrback(lambda failure: None)
    late.cancel()
    clock.advance(1)
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("size", "pieces", "got"), [(0, [b"abc"], b""), (2, [b"abc"], b"ab"), (4, [b"abc", b"def"], b"abcd")]
)
def test_an_answer_breaks_off(size, pieces, got):
    clock = Clock()
    clock.advance(100)
    giver = Giver(pieces)
    taker = Taker(Cut(giver.body, size, Wheel(clock)))
    assert (taker.data, taker.ended) == (got, False)
    taker.resume()
    clock.pump([0.05] * 4)
    assert (taker.data, taker.reason.status, giver.stopped) == (got, 502, True)
    assert clock.getDelayedCalls() == []


def test_one_that_is_shorter_does_not():
    taker = Taker(Cut(Giver([b"abc"]).body, 3, Wheel(Clock())))
    assert (taker.data, taker.finished) == (b"abc", True)


class Slowly:
    def __init__(self, pieces, rate, **named):
        self.clock = Clock()
        self.clock.advance(100)
        self.giver = Giver(pieces, **named)
        self.taker = Taker(Slow(self.giver.body, rate, Wheel(self.clock)))

    def pass_by(self, seconds):
        self.clock.pump([0.05] * round(seconds * 20))


def test_an_answer_trickles():
    slowly = Slowly([b"x" * 5000, b"y" * 5000], 10_000, trailers=[(b"x-sum", b"7")])
    assert slowly.taker.size == 1000
    slowly.pass_by(0.6)
    assert 3000 <= slowly.taker.size <= 7000
    slowly.pass_by(1.6)
    assert slowly.taker.data == b"x" * 5000 + b"y" * 5000
    assert (slowly.taker.finished, slowly.taker.trailers) == (True, [(b"x-sum", b"7")])
    slowly.pass_by(1)
    assert slowly.clock.getDelayedCalls() == []


def test_who_pauses_gets_nothing_more():
    slowly = Slowly([b"x" * 5000], 10_000)
    slowly.taker.pause()
    size = slowly.taker.size
    slowly.pass_by(1)
    assert slowly.taker.size == size
    slowly.taker.resume()
    slowly.pass_by(1.5)
    assert slowly.taker.finished


def test_who_stops_and_what_breaks_off_end_it():
    slowly = Slowly([b"x" * 5000], 100)
    slowly.taker.stop()
    assert slowly.giver.stopped
    slowly.pass_by(1)
    assert slowly.clock.getDelayedCalls() == []


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: faultInject, condition: "request.path == '/cut'", actionParam: {truncate: 3B}}
  - {name: faultInject, condition: "request.path == '/late'", timeout: 9s, actionParam: {delay: 5s, abort: 504}}
"""


def test_in_a_gateway():
    with MemoryGateway(CONFIG) as gateway:
        ok = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), ok])
        client = gateway.client()
        client.send(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n")
        gateway.advance(0.5)
        assert client.received.endswith(b"\r\n\r\nhel")
        assert client.eof or client.lost is not None
        client = gateway.client()
        client.send(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
        gateway.advance(4.5)
        assert client.received == b""
        gateway.advance(1)
        assert client.received.startswith(b"HTTP/1.1 504 ")
        assert [record.notes["fault"] for record in gateway.records] == ["cut off after 3 bytes", "5 s late, 504"]
