"""
Everything at once: an upstream of which all is said that may be, a release, copies, and something to give instead.

    with mixture("http1", "http2") as town:
        ...

C{several} (two endpoints, two zones) is asked, C{next} is its new version, C{mirror} gets copies, C{spare} is asked
where C{several} fails.
"""

from __future__ import annotations

from typing import Any

from several import SCHEMES, Several

ONE = {"maxPerEndpoint": 1}
MARGIN: dict[str, Any] = {"full": 0}
"""Whatever the machine that runs the tests has left of it is not looked at."""
OVERLOAD = {
    "priorities": [{"name": "pay", "when": "request.headers['x-pay'] != ''"}, {"name": "default"}],
    "lag": MARGIN,
    "memory": MARGIN,
    "descriptors": MARGIN,
}
WORDS: dict[str, Any] = {
    "balance": "leastRequest",
    "slowStart": "2s",
    "zones": {"order": ["b"]},
    "retry": {"on": ["reset", "timeout", "unavailable"], "statuses": "503", "perTry": "1s", "budget": 100},
    "hedge": {"after": "400ms", "budget": 100},
    "outliers": {"consecutive": 3, "ejection": "2s", "ramp": "1s"},
    "circuitBreaker": {"consecutive": 8, "minRequests": 50, "open": "1s", "ramp": "1s"},
    "timeouts": {"queue": "2s", "connect": "1s"},
}
"""All that may be said of how an upstream is asked."""


def release(gray: int, **hold: Any) -> list[dict[str, Any]]:
    """Rules that send a part of the cohorts to C{next}."""
    targets = [{"upstream": "several"}, {"upstream": "next", "gray": gray, "hold": {"window": "10s", **hold}}]
    entry = {"cohort": "request.headers['x-user']", "targets": targets}
    return [{"name": "all", "value": "/", "matcherType": "prefix", "routes": [entry]}]


def helping() -> list[dict[str, Any]]:
    """Modules around an upstream."""
    return [
        {
            "name": "degrade",
            "ruleOrder": 10,
            "actionParam": {"give": [{"cached": {}}, {"upstream": "spare"}, {"answer": {"text": "later"}}]},
        },
        {"name": "circuitBreaker", "ruleOrder": 20, "actionParam": {"minRequests": 50, "open": "1s"}},
        {"name": "trafficCopy", "ruleOrder": 30, "actionParam": {"upstream": "mirror", "timeout": "2s", "compare": {}}},
    ]


def mixture(front: str, behind: str, gray: int = 50, **more: Any) -> Several:
    """
    @param front: @param behind: codecs.
    @param gray: percent of the cohorts that C{next} has.
    @param more: of C{several}.
    """
    scheme = SCHEMES[behind]
    endpoints = [
        {"url": f"{scheme}://192.0.2.{number}:80", "zone": zone} for number, zone in ((1, "a"), (2, "b"))
    ]  # fmt: skip
    town = Several(
        front,
        behind,
        modules=helping(),
        gateway={"zone": "a", "overload": OVERLOAD},
        upstreams=("next", "mirror", "spare"),
        **{"endpoints": endpoints, "pool": ONE, **WORDS, **more},
    )
    town.config["routes"] = release(gray)
    assert town.gateway.reload(town.config)
    return town


def held(town: Several) -> dict[str, tuple[int, int, int]]:
    """Pools that are not as idle ones are: who waits, connections being made, connections in use."""
    found = {}
    for name, cluster in town.gateway.service.plan.clusters.items():
        for address, stats in cluster.stats().items():
            state = (stats.waiting, stats.connecting, stats.open - stats.idle)
            if state != (0, 0, 0):
                found[f"{name} {address}"] = state
    return found
