"""Who is refused: class by class, in proportion, cheaply, in words that every protocol has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.config.faults import ConfigFaults
from protogate.config.load import loads
from protogate.errors import ALWAYS, Abort
from protogate.observe.counters import Counters
from protogate.overload.shedding import Class, Shedding, classes
from protogate.testing.exchange import exchange

THREE = """
    priorities:
      - {name: critical, when: "request.headers['x-class'] == 'critical'"}
      - {name: default}
      - {name: bulk, when: "request.headers['x-class'] == 'bulk' || request.path == '/bulk'"}
"""


def config(overload: str) -> Any:
    text = f"gateway:\n  overload:{overload or ' {}'}\nlisteners: [{{name: web, address: 'localhost:0'}}]\n"
    return loads(text.encode(), "gateway.yaml").config


def faults(overload: str) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(ConfigFaults) as raised:
        classes(config(overload))
    return {fault.path[2:]: fault.message for fault in raised.value.faults}


def shedding(chances: Sequence[float] = (0.5,), overload: str = THREE) -> Shedding:
    left = list(chances)
    return Shedding(classes(config(overload)), 1.0, Counters(), lambda: left.pop(0) if len(left) > 1 else left[0])


def shed(by: Shedding, kind: str = "") -> bool:
    asked = exchange(headers=[(b"x-class", kind.encode())] if kind else [])
    with suppress(Abort):
        by.process(asked)
        assert asked.noted is None
        return False
    assert asked.notes == {"shed": kind or "default"}
    return True


@pytest.mark.parametrize(
    ("level", "critical", "default", "bulk"),
    [(0.0, 0, 0, 0), (0.1, 0, 0, 0.3), (0.5, 0, 0.5, 1), (2 / 3, 0, 1, 1), (0.9, 0.7, 1, 1), (1.0, 1, 1, 1)],
)
def test_the_least_important_class_goes_first(level: float, critical: float, default: float, bulk: float) -> None:
    for kind, share in (("critical", critical), ("", default), ("bulk", bulk)):
        by = shedding([min(share + 0.001, 0.999), 0.0])
        by.follow(level)
        assert shed(by, kind) is (share == 1)
        by = shedding([share - 0.001, 0.0])
        by.follow(level)
        assert shed(by, kind) is (share > 0)


@settings(max_examples=50)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 8))
def test_no_class_suffers_before_all_below_it_are_gone(low: float, high: float, number: int) -> None:
    named: list[Class] = [(str(place), (lambda exchange: False) if place else None) for place in range(number)]
    by = Shedding(named, 1.0, Counters())
    low, high = sorted((low, high))
    by.follow(low)
    before = list(by._shares)
    by.follow(high)
    after = by._shares
    assert all(a <= b for a, b in zip(before, after, strict=True)), "more pressure sheds no class less"
    for upper, lower in pairwise(after):
        assert upper == 0 or lower > 1 - 1e-9
    assert sum(after) == pytest.approx(high * number, abs=1e-9)


def test_who_asks_for_a_field_that_is_not_there_is_in_no_class_by_it() -> None:
    def broken(exchange: Any) -> bool:
        raise KeyError("x-class")

    by = Shedding((("critical", broken), ("default", None)), 1.0, Counters(), lambda: 0.0)
    by.follow(0.1)
    assert shed(by)


def test_each_class_is_counted() -> None:
    counters = Counters()
    by = Shedding(classes(config(THREE)), 1.0, counters, lambda: 0.0)
    by.follow(1.0)
    assert shed(by, "bulk")
    assert shed(by)
    assert shed(by, "bulk")
    assert counters.counts["requests_shed"] == 3
    assert counters.scopes["priority", "bulk"].counts["requests_shed"] == 2
    counters.scope("priority", "gone")
    Shedding(classes(config("")), 1.0, counters)
    assert [name for kind, name in counters.scopes if kind == "priority"] == ["default"]


def test_not_everybody_comes_again_at_the_same_time() -> None:
    told = set()
    for chance in (0.0, 0.5, 0.99):
        by = Shedding(classes(config("")), 1.5, Counters(), lambda chance=chance: chance)
        by.follow(1.0)
        with pytest.raises(Abort) as raised:
            by.process(exchange())
        assert (raised.value.status, raised.value.retry) == (503, ALWAYS)
        told.add(dict(raised.value.headers)[b"retry-after"])
    assert told == {b"2", b"4", b"6"}


def test_without_classes_all_are_alike() -> None:
    assert classes(config("")) == (("default", None),)
    assert classes(loads(b"listeners: [{name: web, address: 'localhost:0'}]", "gateway.yaml").config) == ()


def test_what_cannot_be_is_told_with_its_place() -> None:
    assert faults("\n    priorities: [{name: a, when: 'true'}]") == {
        ("priorities",): "one class must be for all others: leave its when out"
    }
    told = faults("\n    priorities: [{name: a}, {name: a, when: '1'}, {name: b}]\n    lag: {full: 20ms}")
    assert told == {
        ("priorities", 1, "name"): '"a" is given twice',
        ("priorities", 1, "when"): "column 1: a condition must be a bool, this is an int",
        ("priorities", 2): '"a" is for all others already: say when',
        ("lag", "full"): "not more than begin, which is 20ms",
    }
    assert faults("\n    memory: {begin: 96}") == {("memory", "full"): "not more than begin, which is 96"}
