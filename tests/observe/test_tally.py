from __future__ import annotations

from typing import Any

import pytest

from protogate.exchange.ledger import Ledger
from protogate.message import Response
from protogate.observe.counters import Counters
from protogate.observe.histogram import BOUNDS
from protogate.observe.snapshot import Snapshot
from protogate.observe.tally import Tally
from protogate.testing.exchange import exchange as real
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
routes:
  - {value: /shop, matcherType: prefix, routes: [{targets: [{url: "http://192.0.2.7:80"}]}]}
  - {value: /slow, matcherType: prefix, routes: [{targets: [{url: "http://192.0.2.8:80"}]}]}
"""


def exchange(status: int | None = 200, **marks: float) -> Any:
    """One that is over, with these marks in its ledger; it ends 10 s after its head."""
    ledger = Ledger(head=100.0)
    ledger.end = 110.0
    for name, value in marks.items():
        setattr(ledger, name, value)
    made = real()
    made.ledger, made.response = ledger, None if status is None else Response(status)
    return made


def taken(*exchanges: Any) -> Snapshot:
    counters = Counters()
    for each in exchanges:
        counters.tally.note(each)
    return counters.snapshot()


def seen(snapshot: Snapshot, name: str) -> tuple[list[float], float]:
    """Bounds of the bins that something is in, and the sum."""
    histogram = snapshot["histograms"][name]
    return [BOUNDS[at] for at, number in enumerate(histogram["bins"]) if number], histogram["sum"]


def test_answers_by_the_class_of_their_status() -> None:
    snapshot = taken(*(exchange(status) for status in (101, 200, 204, 302, 404, 404, 599)), exchange(None))
    assert snapshot["counts"][""][""] == {
        "answered_1xx": 1,
        "answered_2xx": 2,
        "answered_3xx": 1,
        "answered_4xx": 2,
        "answered_5xx": 1,
    }


def test_earlier_attempts_are_not_of_the_gateway_s_making() -> None:
    made = exchange(chosen=100.25, answered=101.0)
    made.ledger.given_up(103.0, "too late")
    made.ledger.again()
    made.ledger.chosen, made.ledger.answered = 104.0, 105.0
    snapshot = taken(made)
    assert seen(snapshot, "gateway")[1] == pytest.approx(0.25)
    assert seen(snapshot, "upstream")[1] == pytest.approx(1.0)


def test_the_phases_of_an_exchange_with_an_upstream() -> None:
    snapshot = taken(exchange(first=99.0, chosen=100.5, answered=103.5))
    assert seen(snapshot, "total") == ([20.0], 11.0)
    assert seen(snapshot, "gateway") == ([0.5], 0.5)
    assert seen(snapshot, "upstream") == ([3.0], 3.0)


def test_an_upstream_that_never_answered_took_all_the_rest() -> None:
    assert seen(taken(exchange(chosen=100.5)), "upstream") == ([10.0], 9.5)


def test_what_the_gateway_answers_itself_is_its_own() -> None:
    snapshot = taken(exchange(404))
    assert seen(snapshot, "gateway") == ([10.0], 10.0)
    assert "upstream" not in snapshot["histograms"]


def test_a_head_that_never_came_is_the_client_s() -> None:
    made = exchange(None)
    made.ledger.head, made.ledger.first = 0.0, 105.0
    snapshot = taken(made)
    assert seen(snapshot, "total")[1] == pytest.approx(5.0)
    assert snapshot["histograms"]["gateway"]["sum"] == 0.0


def test_nothing_is_told_before_there_is_something() -> None:
    snapshot = taken()
    assert snapshot == {"counts": {"": {"": {}}}, "gauges": {}, "histograms": {}}


def test_scopes_share_the_one_of_the_whole() -> None:
    counters = Counters()
    assert counters.scope("listener", "web").tally is counters.tally


def test_every_exchange_of_a_gateway_can_be_told() -> None:
    """Whatever became of it: answered, refused, malformed, without an upstream, given up."""
    exchanges: list[Any] = []
    with MemoryGateway(CONFIG) as gateway:
        record = gateway.service.plan.record
        object.__setattr__(gateway.service.plan, "record", lambda each: (exchanges.append(each), record(each)))
        gateway.reactor.silent.add(("192.0.2.8", 80))
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        for data in (b"GET /shop HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /no HTTP/1.1\r\nHost: x\r\n\r\n", b"GET\r\n\r\n"):
            gateway.ask(data)
        client = gateway.client()
        client.send(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        gateway.run()
        client.reset()
        gateway.run()
    tally = Tally()
    for each in exchanges:
        tally.note(each)
    assert len(exchanges) == 4
    assert sum(tally.total.bins) == sum(tally.gateway.bins) == 4
    assert (tally.answered[2], tally.answered[4]) == (1, 2)
    assert min(tally.total.sum, tally.gateway.sum, tally.upstream.sum) >= 0
