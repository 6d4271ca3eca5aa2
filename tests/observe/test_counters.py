from __future__ import annotations

from protogate.observe.counters import OTHER, SCOPES, Counters


def test_events_are_counted_by_name() -> None:
    counters = Counters()
    for event in ("accepted", "accepted", "refused"):
        counters.count(event)
    assert counters.snapshot() == {("", "", "accepted"): 2, ("", "", "refused"): 1}


def test_what_a_scope_counts_is_in_the_total() -> None:
    counters = Counters()
    counters.scope("listener", "web").count("accepted")
    counters.scope("listener", "app").count("accepted")
    counters.scope("upstream", "web").count("refused")
    assert counters.snapshot() == {
        ("", "", "accepted"): 2,
        ("", "", "refused"): 1,
        ("listener", "web", "accepted"): 1,
        ("listener", "app", "accepted"): 1,
        ("upstream", "web", "refused"): 1,
    }


def test_a_scope_is_the_same_each_time() -> None:
    counters = Counters()
    assert counters.scope("listener", "web") is counters.scope("listener", "web")


def test_a_snapshot_is_not_live() -> None:
    counters = Counters()
    taken = counters.snapshot()
    counters.count("accepted")
    assert taken == {}


def test_scopes_are_bounded_and_the_rest_is_counted_together() -> None:
    counters = Counters()
    for number in range(SCOPES + 10):
        counters.scope("upstream", str(number)).count("connected")
    taken = counters.snapshot()
    assert taken["", "", "connected"] == SCOPES + 10
    assert taken["upstream", OTHER, "connected"] == 10
    assert len(taken) == SCOPES + 2


def test_what_left_the_configuration_is_forgotten_but_not_its_part_of_the_total() -> None:
    counters = Counters()
    for name in ("a", "b"):
        counters.scope("upstream", name).count("connected")
    counters.scope("listener", "b").count("accepted")
    counters.keep("upstream", {"a"})
    assert counters.snapshot() == {
        ("", "", "connected"): 2,
        ("", "", "accepted"): 1,
        ("upstream", "a", "connected"): 1,
        ("listener", "b", "accepted"): 1,
    }
