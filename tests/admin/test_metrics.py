from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from protogate.admin.metrics import COUNTS, DURATIONS, GAUGES, RESULTS, exposition
from protogate.observe.counters import Counters
from protogate.observe.histogram import BOUNDS, Histogram
from protogate.observe.snapshot import Snapshot, empty

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def samples(snapshot: Snapshot, accept: str = "") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Name and labels → value, as a reader of the page has them; one that stands there twice fails."""
    body, _ = exposition(snapshot, accept)
    families: Iterable[Any] = (open_metrics if accept else plain)(body.decode())
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(snapshot: Snapshot, name: str, **labels: str) -> float:
    return samples(snapshot)[name, frozenset(labels.items())]


def counted(**events: float) -> Snapshot:
    counters = Counters()
    for event, number in events.items():
        counters.add(event, number)
    return counters.snapshot()


def test_what_has_a_name_is_there_from_the_start() -> None:
    body = exposition(empty())[0].decode()
    families = {family.name: family for family in plain(body)}
    counters = {*RESULTS, "protogate_exchanges", *(name for name, _ in COUNTS.values())}
    assert {name for name, family in families.items() if family.type == "counter" and family.samples} == counters
    histograms = {name for name, _ in DURATIONS.values()}
    assert {name for name, family in families.items() if family.type == "histogram"} == histograms
    gauges = {name for name, _ in GAUGES.values()}
    assert {name for name, family in families.items() if family.type == "gauge"} == {
        *gauges,
        "protogate_build_info",
        "protogate_module_gauge",
        "protogate_endpoint_share",
        "protogate_endpoint_held",
    }
    for family in families.values():
        assert family.name.startswith("protogate_")
        assert family.documentation.endswith(".")
    assert all(number == 0 for (name, _), number in samples(empty()).items() if name != "protogate_build_info")


def test_exchanges_by_outcome_and_failures_by_who() -> None:
    taken = counted(exchanges=10, failed_client=1, failed_gateway=2, failed_upstream=3)
    assert value(taken, "protogate_exchanges_total", outcome="ok") == 4
    assert value(taken, "protogate_exchanges_total", outcome="failed") == 6
    assert [value(taken, "protogate_failures_total", who=who) for who in ("client", "gateway", "upstream")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("event", "name", "labels"),
    [
        ("answered_2xx", "protogate_responses_total", {"status": "2xx"}),
        ("answered_5xx", "protogate_responses_total", {"status": "5xx"}),
        ("reload_ok", "protogate_reloads_total", {"result": "ok"}),
        ("reload_failed", "protogate_reloads_total", {"result": "failed"}),
        ("worker_restarted", "protogate_worker_restarts_total", {}),
        ("loop_blocked", "protogate_loop_blocked_total", {}),
        ("loop_blocked_seconds", "protogate_loop_blocked_seconds_total", {}),
        ("loop_suspended", "protogate_loop_suspended_total", {}),
        ("access_log_dropped", "protogate_access_log_dropped_total", {}),
        ("malformed_head", "protogate_events_total", {"event": "malformed_head"}),
    ],
)
def test_an_event_is_shown_once(event: str, name: str, labels: dict[str, str]) -> None:
    taken = counted(**{event: 2.5})
    assert value(taken, name, **labels) == 2.5
    assert [key[0] for key, number in samples(taken).items() if number == 2.5] == [name]


def test_events_of_listeners_and_upstreams() -> None:
    counters = Counters()
    counters.scope("listener", "web").count("connections_accepted")
    counters.scope("upstream", "http://a.test:80").count("connect_failed")
    taken = counters.snapshot()
    accepted = {"listener": "web", "event": "connections_accepted"}
    assert value(taken, "protogate_listener_events_total", **accepted) == 1
    failed = {"upstream": "http://a.test:80", "event": "connect_failed"}
    assert value(taken, "protogate_upstream_events_total", **failed) == 1


def test_gauges() -> None:
    taken = empty()
    taken["gauges"] = {
        "": {"": {"workers": 4}},
        "listener": {"web": {"connections": 7, "requests": 2}, "app": {"connections": 1, "requests": 0}},
        "upstream": {"shop": {"connections": 5, "idle": 3, "waiting": 1}},
        "module": {"cache": {"bytes": 4096, "answers": 2}, "concurrencyLimit": {"busy": 3}},
    }
    assert value(taken, "protogate_module_gauge", module="cache", gauge="bytes") == 4096
    assert value(taken, "protogate_module_gauge", module="concurrencyLimit", gauge="busy") == 3
    assert value(taken, "protogate_workers") == 4
    assert value(taken, "protogate_connections_open", listener="web") == 7
    assert value(taken, "protogate_connections_open", listener="app") == 1
    assert value(taken, "protogate_requests_under_way", listener="web") == 2
    assert value(taken, "protogate_upstream_connections_open", upstream="shop") == 5
    assert value(taken, "protogate_upstream_connections_idle", upstream="shop") == 3
    assert value(taken, "protogate_upstream_requests_waiting", upstream="shop") == 1


def test_what_is_left_to_endpoints() -> None:
    taken = empty()
    taken["endpoints"] = {"shop": {"192.0.2.7:80": {"": 0.5, "outliers": 0.5}, "192.0.2.8:80": {"": 1.0}}}
    assert value(taken, "protogate_endpoint_share", upstream="shop", endpoint="192.0.2.7:80") == 0.5
    assert value(taken, "protogate_endpoint_share", upstream="shop", endpoint="192.0.2.8:80") == 1
    assert value(taken, "protogate_endpoint_held", upstream="shop", endpoint="192.0.2.7:80", by="outliers") == 0.5


def test_durations_are_histograms_with_every_bound() -> None:
    histogram = Histogram()
    for seconds in (0.003, 0.0031, 7.0, 5000.0):
        histogram.observe(seconds)
    taken = empty()
    taken["histograms"] = {"total": histogram.snapshot()}
    found = samples(taken)
    buckets = {
        float(dict(labels)["le"]): number
        for (name, labels), number in found.items()
        if name == "protogate_exchange_seconds_bucket"
    }
    assert list(buckets) == [*BOUNDS, math.inf]
    assert [buckets[at] for at in (0.002, 0.003, 0.004, 6.0, 7.0, 100.0, math.inf)] == [0, 1, 2, 2, 3, 3, 4]
    assert found["protogate_exchange_seconds_count", frozenset()] == 4
    assert found["protogate_exchange_seconds_sum", frozenset()] == pytest.approx(histogram.sum)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(name=names, accept=st.sampled_from(["", OPEN]))
def test_any_name_of_a_listener_comes_through(name: str, accept: str) -> None:
    counters = Counters()
    counters.scope("listener", name).count("connections_accepted")
    labels = frozenset({"listener": name, "event": "connections_accepted"}.items())
    assert samples(counters.snapshot(), accept)["protogate_listener_events_total", labels] == 1


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
@example("text/plain; version=x")
@example("application/openmetrics-text; version=9.9.9; escaping=x")
@example("text/plain;version=1.0.0;escaping=")
def test_whatever_is_accepted_there_is_a_page(accept: str) -> None:
    body, kind = exposition(empty(), accept)
    assert b"protogate_exchanges" in body
    assert "charset=utf-8" in kind
