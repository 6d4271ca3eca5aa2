from __future__ import annotations

import json

from protogate.observe.counters import OTHER, SCOPES, Counters


def test_events_are_counted_by_name() -> None:
    counters = Counters()
    for event in ("accepted", "accepted", "refused"):
        counters.count(event)
    assert counters.snapshot()["counts"] == {"": {"": {"accepted": 2, "refused": 1}}}


def test_what_a_scope_counts_is_in_the_total() -> None:
    counters = Counters()
    counters.scope("listener", "web").count("accepted")
    counters.scope("listener", "app").count("accepted")
    counters.scope("upstream", "web").count("refused")
    assert counters.snapshot()["counts"] == {
        "": {"": {"accepted": 2, "refused": 1}},
        "listener": {"web": {"accepted": 1}, "app": {"accepted": 1}},
        "upstream": {"web": {"refused": 1}},
    }


def test_amounts_add_up_in_the_scope_and_in_the_total() -> None:
    counters = Counters()
    counters.add("blocked_seconds", 0.25)
    counters.scope("listener", "web").add("blocked_seconds", 0.5)
    assert counters.snapshot()["counts"] == {
        "": {"": {"blocked_seconds": 0.75}},
        "listener": {"web": {"blocked_seconds": 0.5}},
    }


def test_a_scope_is_the_same_each_time() -> None:
    counters = Counters()
    assert counters.scope("listener", "web") is counters.scope("listener", "web")


def test_a_snapshot_is_not_live() -> None:
    counters = Counters()
    scope = counters.scope("listener", "web")
    taken = counters.snapshot()
    scope.count("accepted")
    assert taken["counts"] == {"": {"": {}}, "listener": {"web": {}}}


def test_a_snapshot_is_plain_data() -> None:
    counters = Counters()
    counters.scope("listener", "web").count("accepted")
    counters.add("blocked_seconds", 0.25)
    assert json.loads(json.dumps(counters.snapshot())) == counters.snapshot()


def test_scopes_are_bounded_and_the_rest_is_counted_together() -> None:
    counters = Counters()
    for number in range(SCOPES + 10):
        counters.scope("upstream", str(number)).count("connected")
    taken = counters.snapshot()["counts"]
    assert taken[""][""]["connected"] == SCOPES + 10
    assert taken["upstream"][OTHER]["connected"] == 10
    assert len(taken["upstream"]) == SCOPES + 1


def test_what_left_the_configuration_is_forgotten_but_not_its_part_of_the_total() -> None:
    counters = Counters()
    for name in ("a", "b"):
        counters.scope("upstream", name).count("connected")
    counters.scope("listener", "b").count("accepted")
    counters.keep("upstream", {"a"})
    assert counters.snapshot()["counts"] == {
        "": {"": {"connected": 2, "accepted": 1}},
        "upstream": {"a": {"connected": 1}},
        "listener": {"b": {"accepted": 1}},
    }


def test_what_is_counted_apart_is_counted_there_only() -> None:
    counters = Counters()
    scope = counters.scope("module", "limit", apart=True)
    scope.count("refused")
    scope.add("seconds", 0.5)
    assert dict(counters.counts) == {}
    assert counters.snapshot()["counts"]["module"] == {"limit": {"refused": 1, "seconds": 0.5}}
    assert scope.tally is counters.tally
