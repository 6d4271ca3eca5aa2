"""A whole gateway that has too much to do: who is shed, what is accepted, and that all of it ends."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from protogate.admin.own import Own
from protogate.interfaces import IStreamCodec
from protogate.observe.counters import Counters
from protogate.overload.overload import EVERY, SELDOM, Overload
from protogate.plugins import names
from protogate.testing.caller import Caller
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CONFIG: dict[str, Any] = {
    "gateway": {
        "limits": {"connections": 20},
        "overload": {
            "memoryLimit": "64GiB",
            "lag": {"begin": "50ms", "full": "250ms"},
            "connections": {"begin": 50, "full": 80},
            "priorities": [
                {"name": "critical", "when": "request.path.startsWith('/pay')"},
                {"name": "default"},
                {"name": "bulk", "when": "request.path == '/bulk'"},
            ],
        },
    },
    "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
    "upstreams": [{"name": "origin", "endpoints": [{"url": "http://192.0.2.7:80"}]}],
    "routes": [{"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]}],
}
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


TURN = EVERY + 0.05
"""From one look to the next, on a clock that moves in steps."""


class Stage(MemoryGateway):
    """A gateway whose loop is as late as the test says."""

    def __init__(self, config: dict[str, Any] = CONFIG) -> None:
        super().__init__(config)
        self.service.overload.sources = dict.fromkeys(("memory", "descriptors"), lambda: 10.0)
        self.origin = self.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), NO_CONTENT] * 50] * 8)

    def late(self, seconds: float, looks: int = 1) -> None:
        """Have the loop be so late so many times."""
        for _ in range(looks):
            overload = self.service.overload
            overload._due -= seconds
            look = overload._call.getTime() if overload._call is not None else overload._reactor.seconds() + EVERY
            self.advance(look - overload._reactor.seconds() + 0.001)

    def source(self, name: str, value: float) -> None:
        self.service.overload.sources[name] = lambda: value
        self.advance(TURN * SELDOM)

    def get(self, path: str) -> tuple[int, bytes]:
        answer = self.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return int(answer[9:12]), answer

    def statuses(self) -> list[int]:
        return [self.get(path)[0] for path in ("/pay", "/", "/bulk")]


def test_a_loop_that_is_late_sheds_class_by_class_and_all_are_served_again() -> None:
    with Stage() as stage:
        assert stage.statuses() == [204, 204, 204]
        stage.late(0.0, 20)
        assert stage.statuses() == [204, 204, 204], "up to the mark all is well"
        stage.late(0.13, 100)  # about half of the way: the last class is gone
        assert 1 / 3 < stage.service.pressure()["lag"] < 2 / 3
        assert stage.get("/pay")[0] == 204
        status, answer = stage.get("/bulk")
        assert status == 503
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\nretry-after: " in head.lower()
        assert b'"detail":"overloaded"' in body
        stage.late(0.4, 250)
        assert stage.statuses() == [503, 503, 503]
        stage.advance(15)
        assert stage.statuses() == [204, 204, 204]
        counts = stage.service.counters.counts
        assert counts["requests_shed"] == 4
        assert counts["overloaded"] == 1, "it was one time, however it went up and down"
        shed = [record for record in stage.records if record.status == 503]
        assert [record.notes["shed"] for record in shed] == ["bulk", "critical", "default", "bulk"]
        assert {(record.who, record.error) for record in shed} == {
            ("gateway", "shed: there is more to do than can be done")
        }


def test_one_long_call_is_no_load_and_two_in_a_row_are() -> None:
    with Stage() as stage:
        for _ in range(5):
            stage.late(2.0)
            stage.late(0.0, 3)
        assert stage.service.pressure()["lag"] == 0.0
        stage.late(0.2, 2)
        assert 0 < stage.service.pressure()["lag"] < 1 / 3
        assert stage.statuses()[:2] == [204, 204]
        stage.advance(9)
        assert stage.service.pressure()["lag"] == 0.0


def test_who_is_asked_while_a_look_is_overdue_looks() -> None:
    with Stage() as stage:
        stage.late(0.3, 2)
        before = stage.service.pressure()["lag"]
        stage.service.overload._due -= 0.3
        stage.service.overload._looked -= 0.3
        stage.service.overload._expect()
        assert stage.get("/pay")[0] == 204
        after = stage.service.pressure()["lag"]
        assert after > before, "the loop did not come to it"
        assert stage.get("/pay")[0] == 204
        assert stage.service.pressure()["lag"] == after, "one has looked"


@pytest.mark.parametrize("what", ["memory", "descriptors"])
def test_what_is_all_in_use_is_waited_for_without_accepting_more(what: str) -> None:
    with Stage() as stage:
        stage.source(what, 96.0)
        client = stage.client()
        assert client.transport is None
        gauges = Own(stage.service).snapshot()["gauges"]
        assert gauges["listener"]["web"]["paused"] == 1
        assert gauges["resource"][what]["pressure"] > 0.1
        stage.source(what, 90.0)
        assert client.transport is None, "it is not well below yet"
        stage.source(what, 80.0)
        client.send(b"GET /pay HTTP/1.1\r\nHost: a\r\n\r\n")
        stage.run()
        assert client.received.startswith(b"HTTP/1.1 204")
        assert stage.service.counters.counts["accept_paused"] == 1


def test_a_listener_accepts_no_more_than_its_share_and_lets_idle_ones_go() -> None:
    with Stage() as stage:
        busy = [stage.client() for _ in range(3)]
        for client in busy:
            client.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
        idle = [stage.client() for _ in range(13)]
        stage.advance(TURN)
        late = stage.client()
        assert late.transport is None
        stage.advance(12)
        late.send(b"GET /pay HTTP/1.1\r\nHost: a\r\n\r\n")
        stage.run()
        assert late.received.startswith(b"HTTP/1.1 204"), "it was never refused"
        assert sum(client.eof for client in idle) >= 6
        assert not any(client.eof for client in busy)
        counts = stage.service.counters.counts
        assert counts["connections_refused"] == 0
        assert counts["connections_eased"] >= 6


def test_connections_are_a_reason_to_shed_as_far_as_they_are_busy() -> None:
    with Stage() as stage:
        busy = [stage.client() for _ in range(14)]
        for client in busy[:-1]:
            client.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
        stage.advance(5)
        assert stage.service.pressure()["connections"] == pytest.approx(0.5, abs=0.02)
        busy[-1].send(b"GET /bulk HTTP/1.1\r\nHost: a\r\n\r\n")
        stage.run()
        assert busy[-1].received == b"", "it was idle, and was let go"
        last = stage.client()
        last.send(b"GET /bulk HTTP/1.1\r\nHost: a\r\n\r\n")
        stage.run()
        assert last.received.startswith(b"HTTP/1.1 503")


def test_a_reload_keeps_what_was_seen_and_may_end_it_all() -> None:
    with Stage() as stage:
        stage.late(0.3, 150)
        stage.service.overload.sources = {}
        assert stage.reload(CONFIG)
        assert stage.service.pressure()["lag"] > 0.9
        assert stage.get("/bulk")[0] == 503
        stage.source("memory", 99.0)
        assert stage.reload({**CONFIG, "gateway": {}})
        assert stage.service.pressure() == {}
        assert stage.statuses() == [204, 204, 204]
        assert stage.reload(CONFIG)
        assert stage.service.pressure()["lag"] == 0.0


def test_who_is_told_by_nobody_is_not_looked_after() -> None:
    marks = {"full": 0}
    overload = dict.fromkeys(("memory", "connections", "descriptors"), marks) | {"lag": {"full": "0"}}
    with Stage({**CONFIG, "gateway": {"overload": overload}}) as stage:
        stage.late(5.0, 10)
        assert stage.service.pressure() == {}
        assert stage.statuses() == [204, 204, 204]


def test_a_source_that_goes_away_leaves_what_it_said_last() -> None:
    def gone() -> float:
        raise FileNotFoundError

    with Stage() as stage:
        stage.source("memory", 90.0)
        before = stage.service.pressure()["memory"]
        stage.service.overload.sources["memory"] = gone
        stage.advance(5)
        assert stage.service.pressure()["memory"] == before > 0


def test_nothing_is_looked_at_where_nothing_is_configured() -> None:
    clock = Clock()
    overload = Overload(clock, Counters(), list)
    overload.take(None, ())
    assert clock.getDelayedCalls() == []
    assert overload.pressure() == {}
    overload.stop()


@pytest.mark.parametrize("protocol", names(IStreamCodec))
def test_each_protocol_has_its_own_word_for_it(protocol: str) -> None:
    listeners = [{"name": "web", "address": "127.0.0.1:8080", "protocols": [protocol]}]
    with Stage({**CONFIG, "listeners": listeners}) as stage:
        stage.late(0.3, 150)
        caller = Caller(stage, protocol)
        got = [caller.ask(b"POST", b"/1001/get", body=b"hello") for _ in range(2)]
        assert [one.status for one in got] == [503, 503]
        assert got[0].headers.get(b"retry-after") in (b"1", b"2", b"3")
        assert [record.notes for record in stage.records] == [{"shed": "default"}] * 2
        stage.advance(15)
        stage.origin.received.clear()
        caller.close()
        caller = Caller(stage, protocol)
        assert caller.ask(b"POST", b"/1001/get", body=b"hello").status == 204


def test_a_call_of_grpc_ends_with_unavailable() -> None:
    listeners = [{"name": "web", "address": "127.0.0.1:8080", "protocols": ["http2"]}]
    with Stage({**CONFIG, "listeners": listeners}) as stage:
        stage.late(0.3, 150)
        fields = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        got = Caller(stage, "http2").ask(b"POST", b"/shop.Orders/Get", fields, b"\0\0\0\0\0")
        assert (got.status, got.headers.get(b"grpc-status")) == (200, b"14")
        assert stage.service.counters.counts["requests_shed"] == 1


def test_what_is_said_quickly_is_asked_at_each_look() -> None:
    class Source:
        quick = True
        asked = 0

        def __call__(self) -> float:
            self.asked += 1
            return 0.0

    with Stage() as stage:
        quick = stage.service.overload.sources["descriptors"] = Source()
        slow = stage.service.overload.sources["memory"] = Source()
        slow.quick = False  # type: ignore[misc]
        for _ in range(2 * SELDOM):
            stage.advance(TURN)
        assert quick.asked >= 2 * SELDOM
        assert slow.asked in (2, 3)
