from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from protogate.observe.counters import Counters
from protogate.observe.snapshot import Bins, Snapshot, Totals, empty, merge


def counted(number: int, *, listener: str = "web", open_now: int = 0, bins: Bins | None = None) -> Snapshot:
    """A worker that accepted so many connections."""
    return {
        "counts": {"": {"": {"accepted": number}}, "listener": {listener: {"accepted": number}}},
        "gauges": {"listener": {listener: {"connections": open_now}}} if open_now else {},
        "histograms": {} if bins is None else {"total": bins},
    }


def accepted(taken: Snapshot) -> float:
    return taken["counts"][""][""]["accepted"]


def test_nothing_adds_up_to_nothing() -> None:
    assert merge([]) == merge([empty(), empty()]) == empty()


def test_events_gauges_and_histograms_add_up() -> None:
    one = counted(3, open_now=2, bins={"bins": [1, 0, 2], "sum": 0.5})
    other = counted(4, listener="app", open_now=1, bins={"bins": [1], "sum": 0.25})
    assert merge([one, other]) == {
        "counts": {"": {"": {"accepted": 7}}, "listener": {"web": {"accepted": 3}, "app": {"accepted": 4}}},
        "gauges": {"listener": {"web": {"connections": 2}, "app": {"connections": 1}}},
        "histograms": {"total": {"bins": [2, 0, 2], "sum": 0.75}},
    }


def test_of_what_is_left_to_an_endpoint_the_least_counts() -> None:
    one, other, third = counted(1), counted(1), counted(1)
    one["endpoints"] = {"shop": {"a:80": {"": 1.0}, "b:80": {"": 0.5, "outliers": 0.5}}}
    other["endpoints"] = {"shop": {"a:80": {"": 0.0, "healthCheck": 0.0}, "c:80": {"": 1.0}}}
    before = json.dumps([one, other])
    assert merge([one, third, other])["endpoints"] == {
        "shop": {"a:80": {"": 0.0, "healthCheck": 0.0}, "b:80": {"": 0.5, "outliers": 0.5}, "c:80": {"": 1.0}}
    }
    assert json.dumps([one, other]) == before
    totals = Totals()
    share = totals.join()
    share.take(one)
    share.end()
    assert "endpoints" not in totals.whole()


def test_what_is_added_up_stays_as_it_is() -> None:
    one, other = counted(3, bins={"bins": [1], "sum": 0.5}), counted(4, bins={"bins": [0, 1], "sum": 1.0})
    before = json.dumps([one, other])
    whole = merge([one, other])
    merge([whole, one])
    assert json.dumps([one, other]) == before


def test_it_survives_json_and_msgspec() -> None:
    counters = Counters()
    counters.scope("listener", "wéb").count("accepted")
    taken = merge([counters.snapshot(), counted(1, open_now=1, bins={"bins": [0, 1], "sum": 0.1})])
    assert json.loads(json.dumps(taken)) == taken
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(taken), type=Snapshot) == taken


def test_a_worker_stands_for_what_it_said_last() -> None:
    totals = Totals()
    one, other = totals.join(), totals.join()
    one.take(counted(5))
    one.take(counted(6))
    other.take(counted(1))
    assert accepted(totals.whole()) == 7
    assert accepted(totals.whole()) == 7


def test_what_a_worker_counted_outlives_it_and_what_it_had_does_not() -> None:
    totals = Totals()
    one, other = totals.join(), totals.join()
    one.take(counted(5, open_now=3, bins={"bins": [2], "sum": 1.0}))
    other.take(counted(1, open_now=1))
    one.end()
    whole = totals.whole()
    assert accepted(whole) == 6
    assert whole["gauges"] == {"listener": {"web": {"connections": 1}}}
    assert whole["histograms"] == {"total": {"bins": [2], "sum": 1.0}}


def test_what_comes_after_the_end_is_not_counted_twice() -> None:
    totals = Totals()
    share = totals.join()
    share.take(counted(5))
    share.end()
    share.end()
    share.take(counted(7))
    assert accepted(totals.whole()) == 5


def test_what_left_the_configuration_is_forgotten_of_the_dead() -> None:
    totals = Totals()
    for listener in ("web", "app"):
        share = totals.join()
        share.take(counted(1, listener=listener))
        share.end()
    totals.keep("listener", ["web"])
    totals.keep("upstream", [])
    assert totals.whole()["counts"] == {"": {"": {"accepted": 2}}, "listener": {"web": {"accepted": 1}}}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["count", "take", "end"]))))
def test_totals_never_go_down(steps: list[tuple[int, str]]) -> None:
    totals = Totals()
    workers = [(Counters(), totals.join()) for _ in range(4)]
    before: float = 0
    for at, step in steps:
        counters, share = workers[at]
        if step == "count":
            counters.count("accepted")
        elif step == "take":
            share.take(counters.snapshot())
        else:
            share.end()
            workers[at] = Counters(), totals.join()
        now = totals.whole()["counts"].get("", {}).get("", {}).get("accepted", 0)
        assert now >= before
        before = now
