"""
A snapshot in the words of Prometheus: names, labels, help.

Rules
- What the tables below name is always there, from 0 on: a rate needs a first value.
- Every other event is one sample of a family for events, by its name in the counters: nothing counted is missing.
- It only reads plain data, so it may run in any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from protogate.observe.histogram import BOUNDS
from protogate.observe.snapshot import Bins, Number, Shares, Snapshot

Plain = Mapping[str, tuple[str, str]]

COUNTS: Final[Plain] = {
    "worker_restarted": ("protogate_worker_restarts", "Workers that ended without being asked to, and were replaced."),
    "loop_blocked": ("protogate_loop_blocked", "Calls that held the event loop up."),
    "loop_blocked_seconds": ("protogate_loop_blocked_seconds", "How long calls held the event loop up."),
    "loop_suspended": ("protogate_loop_suspended", "Times that the whole process did not get to run."),
    "access_log_dropped": ("protogate_access_log_dropped", "Records that the access log had no room for."),
}
"""Event → family and help."""
RESULTS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "protogate_failures": (
        "who",
        "Exchanges that failed, by whose fault it was.",
        {"client": "failed_client", "gateway": "failed_gateway", "upstream": "failed_upstream"},
    ),
    "protogate_responses": (
        "status",
        "Answers, by the class of their status.",
        {f"{digit}xx": f"answered_{digit}xx" for digit in range(1, 6)},
    ),
    "protogate_reloads": (
        "result",
        "Configurations that were loaded anew.",
        {"ok": "reload_ok", "failed": "reload_failed"},
    ),
}
"""Family → label, help, and which event stands for each value of the label."""
GAUGES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("listener", "connections"): ("protogate_connections_open", "Connections of clients that are open."),
    ("listener", "requests"): ("protogate_requests_under_way", "Requests that are under way."),
    ("upstream", "connections"): ("protogate_upstream_connections_open", "Connections to upstreams that are open."),
    ("upstream", "idle"): ("protogate_upstream_connections_idle", "Those of them that serve no request."),
    ("upstream", "waiting"): ("protogate_upstream_requests_waiting", "Requests that wait for a connection."),
    ("upstream", "stale"): (
        "protogate_upstream_discovery_stale",
        "Processes that use endpoints whose source is away.",
    ),
    ("listener", "paused"): ("protogate_accept_paused", "Processes that accept nothing for now."),
    ("resource", "pressure"): (
        "protogate_pressure",
        "How near to its end something is in a process, 0 to 1; of all processes together.",
    ),
    ("release", "held"): ("protogate_release_held", "Targets that may be taken back: 1 = it is."),
    ("", "workers"): ("protogate_workers", "Processes that serve requests."),
}
"""Kind and gauge → family and help."""
DURATIONS: Final[Plain] = {
    "total": ("protogate_exchange_seconds", "From the first byte of a request to the end of its answer."),
    "gateway": ("protogate_gateway_seconds", "What of it the gateway took until the upstream was asked."),
    "upstream": (
        "protogate_upstream_seconds",
        "What of it the upstream took, from being asked to the head of its answer.",
    ),
}
"""Histogram → family and help."""
KINDS: Final = ("listener", "upstream", "module", "priority")
"""Kinds of scopes; each is a label."""


class _Collected(list[Metric]):
    """As much of a registry as an encoder asks for."""

    def collect(self) -> Iterable[Metric]:
        return self


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """
    The whole page, and its content type.

    @param accept: what the reader would like to have: its C{Accept} field.
    """
    try:
        encoder, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is none
        encoder, kind = choose_encoder("")
    return encoder(_Collected(families(snapshot))), kind


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Everything, one after the other."""
    counts = snapshot["counts"]
    totals = counts.get("", {}).get("", {})
    yield InfoMetricFamily("protogate_build", "The program.", {"version": _version()})
    yield _outcomes(totals)
    told = {"exchanges"}
    for name, (label, text, values) in RESULTS.items():
        yield _labelled(name, text, label, {value: totals.get(event, 0) for value, event in values.items()})
        told.update(values.values())
    for event, (name, text) in COUNTS.items():
        yield CounterMetricFamily(name, text, totals.get(event, 0))
        told.add(event)
    for (kind, gauge), (name, text) in GAUGES.items():
        yield _gauge(name, text, kind, gauge, snapshot["gauges"].get(kind, {}))
    yield from _shares(snapshot.get("endpoints", {}))
    for key, (name, text) in DURATIONS.items():
        yield _histogram(name, text, snapshot["histograms"].get(key))
    others = {event: number for event, number in totals.items() if event not in told}
    yield _labelled("protogate_events", "What else happened, by name.", "event", others)
    for kind in KINDS:
        yield _events(kind, counts.get(kind, {}))
    yield _gauges("module", snapshot["gauges"].get("module", {}))


def _outcomes(totals: Mapping[str, Number]) -> Metric:
    failed = sum(totals.get(event, 0) for event in RESULTS["protogate_failures"][2].values())
    values = {"ok": totals.get("exchanges", 0) - failed, "failed": failed}
    return _labelled("protogate_exchanges", "Requests that are over, whatever became of them.", "outcome", values)


def _labelled(name: str, text: str, label: str, values: Mapping[str, Number]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _events(kind: str, scopes: Mapping[str, Mapping[str, Number]]) -> Metric:
    family = CounterMetricFamily(
        f"protogate_{kind}_events", f"What happened, by {kind} and by name.", labels=[kind, "event"]
    )
    for name, events in scopes.items():
        for event, number in events.items():
            family.add_metric([name, event], number)
    return family


def _gauges(kind: str, scopes: Mapping[str, Mapping[str, Number]]) -> Metric:
    """Those whose names are somebody else's."""
    family = GaugeMetricFamily(
        f"protogate_{kind}_gauge", f"How much of something there is, by {kind} and by name.", labels=[kind, "gauge"]
    )
    for name, numbers in scopes.items():
        for gauge, number in numbers.items():
            family.add_metric([name, gauge], number)
    return family


def _gauge(name: str, text: str, kind: str, gauge: str, scopes: Mapping[str, Mapping[str, Number]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[kind] if kind else [])
    for scope, numbers in scopes.items():
        if gauge in numbers:
            family.add_metric([scope] if kind else [], numbers[gauge])
    return family


def _shares(upstreams: Shares) -> Iterator[Metric]:
    whole = GaugeMetricFamily(
        "protogate_endpoint_share",
        "What is left of the weight of an endpoint, 0 to 1.",
        labels=["upstream", "endpoint"],
    )
    held = GaugeMetricFamily(
        "protogate_endpoint_held",
        "What one of those who judge it leaves to an endpoint, where that is not all.",
        labels=["upstream", "endpoint", "by"],
    )
    for upstream, endpoints in upstreams.items():
        for endpoint, shares in endpoints.items():
            for by, share in shares.items():
                if by:
                    held.add_metric([upstream, endpoint, by], share)
                else:
                    whole.add_metric([upstream, endpoint], share)
    yield whole
    yield held


def _histogram(name: str, text: str, taken: Bins | None) -> Metric:
    bins = [] if taken is None else taken["bins"]
    buckets: list[Any] = []
    below = 0
    for at, bound in enumerate((*BOUNDS, inf)):
        below += bins[at] if at < len(bins) else 0
        buckets.append((repr(bound) if bound < inf else "+Inf", below))
    return HistogramMetricFamily(name, text, buckets, 0.0 if taken is None else taken["sum"])


@cache
def _version() -> str:
    try:
        return version("protogate")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
