"""However an exchange ends, there is exactly one record of it, and it says what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from edge import EVERYBODY, GET, HOST, OK, PORT, answer, config, installed, module, rule, to
from twisted.internet.defer import Deferred

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect, Raw, Upstream

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
POST = b"POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n"
HUGE = 1 << 20


@dataclass
class Stage:
    """A gateway, a client and an origin that a test plays."""

    gateway: MemoryGateway
    client: Raw
    origin: Upstream

    def send(self, data: bytes) -> None:
        self.client.send(data)
        self.gateway.run()

    def reply(self, data: bytes, at: int = -1) -> None:
        self.origin.connections[at].send(data)
        self.gateway.run()


@dataclass
class Case:
    """What is done, and what its record says."""

    play: Callable[[Stage], None]
    status: int
    error: str = ""
    who: str = ""
    phase: str = ""
    received: int = 0
    delivered: int | None = 0
    attempts: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    timeouts: dict[str, Any] = field(default_factory=dict)


def success(s):
    s.send(GET % b"/x?y")
    s.reply(OK)


def upload(s):
    s.send(POST % 5 + b"12345")
    s.reply(SIZED % 3 + b"abc")


def head_only(s):
    s.send(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n")
    s.reply(SIZED % 1234)


def not_modified(s):
    s.send(GET % b"/")
    s.reply(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")


def plain(s):
    s.send(GET % b"/")


def malformed(s):
    s.send(b"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n")


def half_a_head(s):
    s.send(b"GET /half HTTP/1.1\r\nHost: a")
    s.gateway.advance(1.2)


def cut_head(s):
    s.send(GET % b"/")
    s.origin.connections[0].send(b"HTTP/1.1 200")
    s.gateway.run()
    s.origin.connections[0].reset()
    s.gateway.run()


def cut_body(s):
    s.send(GET % b"/")
    s.reply(SIZED % 10 + b"1234")
    s.origin.connections[0].reset()
    s.gateway.run()


def nonsense(s):
    s.send(GET % b"/")
    s.reply(b"SMTP ready\r\n\r\n")


def left_before_the_head(s):
    s.send(GET % b"/")
    s.client.close()
    s.gateway.run()


def left_within_the_body(s):
    s.send(GET % b"/")
    s.reply(SIZED % 10 + b"1234")
    s.client.reset()
    s.gateway.run()


def left_within_the_upload(s):
    s.send(POST % 10 + b"123")
    s.client.reset()
    s.gateway.run()


def waits(s):
    s.send(GET % b"/")
    s.gateway.advance(1.4)


def stalls_up(s):
    s.send(POST % 10 + b"123")
    s.gateway.advance(1.4)


def stalls_down(s):
    s.client.transport.pauseProducing()
    s.send(GET % b"/")
    s.reply(SIZED % HUGE + b"x" * 300_000)
    s.gateway.advance(1.6)


def trickles(s):
    s.send(POST % 10)
    s.gateway.advance(10.2)


def not_taken(s):
    s.send(POST % HUGE)
    s.origin.connections[0].transport.pauseProducing()
    s.send(b"x" * HUGE)
    s.gateway.advance(1.6)


def stops(s):
    s.send(GET % b"/")
    s.reply(SIZED % 10 + b"1234")
    s.gateway.advance(1.4)


def queued(s):
    other = s.gateway.client()
    other.send(GET % b"/first")
    s.gateway.run()
    s.send(GET % b"/")
    s.gateway.advance(1.4)
    s.reply(OK)
    assert s.gateway.records.pop().target == "/first"
    other.close()
    s.gateway.run()


def tunnel(s):
    s.send(
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    s.reply(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    s.send(b"12345")
    s.reply(b"abc")
    s.client.finish()
    s.gateway.run()
    s.origin.connections[0].close()
    s.gateway.run()


def retried(s):
    s.send(GET % b"/warm")
    s.reply(OK)
    s.gateway.records.clear()
    s.client.take()
    s.send(GET % b"/")
    s.origin.connections[0].reset()
    s.gateway.run()
    s.reply(OK)


def early(s):
    s.send(POST % 10 + b"123")
    s.reply(SIZED % 2 + b"no")


def too_long(s):
    s.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")
    s.send(b"6\r\n123456\r\n")


ELSEWHERE = {"origin": {"endpoints": [{"url": "http://192.0.2.99"}]}}
CASES = {
    "success": Case(success, 200, delivered=2, more={"target": "/x?y", "route": "/", "upstream": "origin"}),
    "upload": Case(upload, 200, received=5, delivered=3, more={"method": "POST"}),
    "HEAD": Case(head_only, 200, more={"method": "HEAD"}),
    "304": Case(not_modified, 304),
    "answer of a module": Case(
        plain, 418, delivered=2, attempts=0, config={"modules": [module("respond", status=418, body="no")]}
    ),
    "denied by a module": Case(
        plain,
        403,
        "deny list",
        "client",
        delivered=None,
        attempts=0,
        config={"modules": [module("accessList", deny=EVERYBODY)]},
    ),
    "no rule": Case(plain, 404, "no rule", "client", "routing", delivered=None, attempts=0, config={"routes": []}),
    "not published": Case(
        plain,
        404,
        "not published",
        "client",
        "routing",
        delivered=None,
        attempts=0,
        config={"routes": [rule(published=False)]},
    ),
    "wrong method": Case(
        plain,
        405,
        "no rule for method",
        "client",
        "routing",
        delivered=None,
        attempts=0,
        config={"routes": [rule(methods=["PUT"])]},
    ),
    "no target": Case(
        plain,
        503,
        "weight 0",
        "gateway",
        "routing",
        delivered=None,
        attempts=0,
        config={"routes": [rule(routes=to({"upstream": "origin", "weight": 0}))]},
    ),
    "malformed": Case(malformed, 400, "malformed", "client", delivered=None, attempts=0, more={"malformed": True}),
    "half a head": Case(
        half_a_head,
        408,
        "clientHeader",
        "client",
        "clientHeader",
        delivered=None,
        attempts=0,
        more={"malformed": True, "target": "/half"},
        timeouts={"clientHeader": "1s"},
    ),
    "refused": Case(plain, 502, "refused", "upstream", "connect", delivered=None, config=ELSEWHERE),
    "no such name": Case(
        plain,
        502,
        "nowhere.test",
        "upstream",
        "dns",
        delivered=None,
        config={"origin": {"endpoints": [{"url": "http://nowhere.test"}]}},
    ),
    "cut within the response head": Case(cut_head, 502, "within its response head", "upstream", delivered=None),
    "cut within the response": Case(cut_body, 200, "within its response", "upstream", delivered=4),
    "nonsense": Case(nonsense, 502, "bad response", "upstream", delivered=None),
    "client left before the head": Case(left_before_the_head, 499, "the client left", "client"),
    "client left within the body": Case(left_within_the_body, 200, "the client left", "client", delivered=4),
    "client left within its upload": Case(left_within_the_upload, 499, "the client left", "client", received=3),
    "clientStall, upload": Case(
        stalls_up,
        408,
        "clientStall",
        "client",
        "clientStall",
        received=3,
        delivered=None,
        timeouts={"clientStall": "1s"},
    ),
    "clientStall, download": Case(
        stalls_down,
        200,
        "clientStall",
        "client",
        "clientStall",
        delivered=300_000,
        timeouts={"clientStall": "1s"},
    ),
    "clientMinRate": Case(
        trickles, 408, "clientMinRate", "client", "clientMinRate", delivered=None, timeouts={"clientMinRate": 10}
    ),
    "queue": Case(
        queued,
        503,
        "queue",
        "gateway",
        "queue",
        delivered=None,
        config={"origin": {"pool": {"maxPerEndpoint": 1}}},
        timeouts={"queue": "1s"},
    ),
    "connect": Case(
        waits, 504, "connect", "upstream", "connect", delivered=None, config=ELSEWHERE, timeouts={"connect": "1s"}
    ),
    "upstreamStall": Case(
        not_taken,
        504,
        "upstreamStall",
        "upstream",
        "upstreamStall",
        received=HUGE,
        delivered=None,
        timeouts={"upstreamStall": "1s"},
    ),
    "responseHead": Case(
        waits, 504, "responseHead", "upstream", "responseHead", delivered=None, timeouts={"responseHead": "1s"}
    ),
    "responseStall": Case(
        stops, 200, "responseStall", "upstream", "responseStall", delivered=4, timeouts={"responseStall": "1s"}
    ),
    "total": Case(waits, 500, "the whole exchange", "gateway", "total", delivered=None, timeouts={"total": "1s"}),
    "total, within the body": Case(
        stops, 200, "the whole exchange", "gateway", "total", delivered=4, timeouts={"total": "1s"}
    ),
    "tunnel": Case(tunnel, 101, received=5, delivered=3),
    "retry": Case(retried, 200, delivered=2, attempts=2),
    "early response": Case(early, 200, received=3, delivered=2),
    "body over the limit": Case(
        too_long,
        413,
        "too large",
        "client",
        received=5,
        delivered=None,
        config={"limits": {"body": "10B"}},
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fails", [False, True])
def test_one_record(name, fails, flush_errors):
    """With C{fails} there is a POST_RESPONSE module as well, which does not make it two, or none."""
    case = CASES[name]
    settings = dict(case.config)
    ran = []

    def last(exchange):
        ran.append(exchange)
        raise ValueError("a module fails at the very end")

    if fails:
        settings["modules"] = [
            *settings.get("modules", ()),
            module("last", "POST_RESPONSE", exceptionHandle_="continue"),
        ]
    with installed(last=last), MemoryGateway(config(timeouts=case.timeouts, **settings)) as gateway:
        gateway.reactor.silent.update({("192.0.2.99", PORT)} if case.timeouts else ())
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        stage = Stage(gateway, gateway.client(), origin)
        case.play(stage)
        (made,) = gateway.records
        assert made.status == case.status
        assert case.error in made.error
        assert bool(made.error) is bool(case.error)
        assert (made.who, made.phase) == (case.who, case.phase)
        assert made.received == case.received
        if case.delivered is not None:
            assert made.delivered == case.delivered
        else:
            assert made.delivered == len(answer(stage.client.received).body)
        assert made.attempts == case.attempts
        for key, value in case.more.items():
            assert getattr(made, key) == value
        assert made.listener == "web"
        assert made.ms.total >= made.ms.client_header
        stage.client.transport.resumeProducing()
        gateway.advance(1)
        for each in (stage.client, *origin.connections):
            if each.lost is None:
                each.close()
        gateway.advance(70)
        assert len(gateway.records) == 1, "and never another one"
        if fails:
            # A request that was sent anew has its record taken out of the list above.
            assert len(ran) >= 1
            assert ran[-1].ledger.end
            assert len(flush_errors(ValueError)) == len(ran)
    assert len(gateway.records) == 1


def test_a_module_that_waits_at_the_end_holds_its_record_back_but_nothing_else():
    waiting = []

    def last(exchange):
        waiting.append(Deferred())
        return waiting[-1]

    with (
        installed(last=last),
        MemoryGateway(config(modules=[module("last", "POST_RESPONSE", timeout_="2s")])) as gateway,
    ):
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK])
        client = gateway.client()
        for _ in range(2):
            client.send(GET % b"/")
            gateway.run()
            assert answer(client.take()).status == 200
        assert not gateway.records
        waiting[0].callback(None)
        assert len(gateway.records) == 1
        gateway.advance(2.2)  # it is waited for no longer than that
        assert len(gateway.records) == 2
        assert len(origin.connections) == 1
        client.close()
        gateway.run()


def test_every_answer_on_a_pipelined_connection_has_its_own_record():
    with MemoryGateway(config([rule("/a")])) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), OK])
        client = gateway.client()
        client.send((GET % b"/a/1") + (GET % b"/b") + (GET % b"/a/2") + b"BAD\r\n\r\n" + (GET % b"/a/3"))
        gateway.run()
        assert [(each.target, each.status) for each in gateway.records] == [
            ("/a/1", 200),
            ("/b", 404),
            ("/a/2", 200),
            ("-", 400),
        ]
        assert len({each.id for each in gateway.records}) == 4
        client.close()
        gateway.run()
