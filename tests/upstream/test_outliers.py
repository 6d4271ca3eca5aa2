"""Endpoints that do worse than they should: left alone, for how long, how many of them, and how they come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_upstream import Time
from hypothesis import given, settings
from hypothesis import strategies as st
from town import Process, upstream
from twisted.logger import capturedLogs, formatEvent

from protogate.build import build
from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.model import Outliers, Seconds
from protogate.upstream.breaker import RAMP
from protogate.upstream.outcome import ERROR, FAILED, NOTHING, WELL


def outliers(**more: Any) -> Outliers:
    return Outliers(**{name: Seconds(each) if name in ("ejection", "ramp") else each for name, each in more.items()})


class Scene(Process):
    """One process, with its time."""

    def __init__(self, count: int = 3, **more: Any) -> None:
        super().__init__(upstream(count, outliers=outliers(**more)), Time())

    def pass_by(self, seconds: float) -> None:
        self.time.pass_by(seconds)


def test_failures_in_a_row() -> None:
    scene = Scene()
    assert scene.see(1, *[ERROR, FAILED] * 2, WELL) == 1.0
    with capturedLogs() as logged:
        assert scene.see(1, *[ERROR] * 5) == 0.0
    assert scene.shares == [0.0, 1.0, 1.0]
    assert scene.why(1) == "5 failures in a row"
    assert scene.counted["outlier_ejected"] == 1
    (told,) = [formatEvent(event) for event in logged]
    assert told == "upstream shop: 10.0.0.1:80 is left alone for 30 s: 5 failures in a row"


def test_what_says_nothing_neither_counts_nor_breaks_a_row() -> None:
    """envoy#25487: a hundred overflows, a hundred clients that left."""
    scene = Scene()
    assert scene.see(1, *[NOTHING] * 200) == 1.0
    assert scene.see(1, ERROR, ERROR, NOTHING, ERROR, ERROR, NOTHING) == 1.0
    assert scene.see(1, ERROR) == 0.0


def test_a_share_of_failures() -> None:
    scene = Scene(consecutive=0, error_ratio=0.3)
    assert scene.see(2, *[WELL, WELL, ERROR] * 6) == 1.0, "fewer than say anything"
    assert scene.see(2, WELL, ERROR) == 0.0
    assert scene.why(2) == "7 of 20 failed within 10 s (7 answered 5xx)"


def test_what_is_long_ago_does_not_count() -> None:
    scene = Scene(consecutive=0)
    scene.see(2, *[ERROR] * 19)
    scene.pass_by(11)
    assert scene.see(2, *[ERROR] * 19) == 1.0


def test_it_comes_back_little_by_little() -> None:
    scene = Scene(ejection=30, ramp=8)
    scene.see(1, *[ERROR] * 5)
    scene.pass_by(29.5)
    assert scene.at(1).share == 0.0
    shares = []
    scene.pass_by(1.0)
    for _ in RAMP:
        shares.append(scene.at(1).share)
        scene.pass_by(2.0)
    assert tuple(shares) == RAMP
    assert scene.at(1).share == 1.0
    assert not scene.at(1).held
    assert scene.counted["outlier_returned"] == 1
    assert not scene.at(2).held


def test_one_that_is_still_bad_is_left_alone_for_longer_each_time() -> None:
    """envoy#1491: five 500s, the ejection ends, and still 500."""
    scene = Scene(ejection=10, max_ejection=Seconds(60))
    lengths = []
    for _ in range(5):
        assert scene.see(1, *[ERROR] * 5) == 0.0
        began = scene.time.clock.seconds()
        while not scene.at(1).share:
            scene.pass_by(0.5)
        lengths.append(round(scene.time.clock.seconds() - began))
    assert lengths == [10, 20, 40, 60, 60]
    assert scene.counted["outlier_ejected"] == 5


def test_that_is_forgotten_when_it_was_well_for_twice_as_long() -> None:
    scene = Scene(ejection=10, ramp=0)

    def length() -> float:
        scene.see(1, *[ERROR] * 5)
        began = scene.time.clock.seconds()
        while not scene.at(1).share:
            scene.pass_by(0.5)
        return round(scene.time.clock.seconds() - began)

    assert length() == 10
    scene.pass_by(15)
    assert length() == 20
    scene.pass_by(41)
    assert length() == 10


def test_late_answers_of_before_do_not_count() -> None:
    scene = Scene(ejection=10, ramp=0)
    scene.see(1, *[FAILED] * 5)
    scene.see(1, *[FAILED] * 5)
    scene.pass_by(10.5)
    assert scene.see(1, *[FAILED] * 50, seconds=12.0) == 1.0, "they began before"
    assert scene.see(1, *[FAILED] * 5, seconds=0.01) == 0.0


def test_it_can_fail_on_the_way_back() -> None:
    scene = Scene(ejection=10)
    scene.see(1, *[ERROR] * 5)
    scene.pass_by(11)
    assert scene.at(1).share == RAMP[0]
    assert scene.see(1, *[ERROR] * 5) == 0.0


@pytest.mark.parametrize(
    ("count", "share", "most"),
    [(1, 0.5, 0), (2, 0.5, 1), (2, 1.0, 1), (3, 0.5, 1), (4, 0.5, 2), (5, 1.0, 4), (9, 0.0, 1)],
)
def test_never_more_than_a_share_and_never_all(count: int, share: float, most: int) -> None:
    """envoy#2671: all are bad."""
    scene = Scene(count, max_share=share)
    for number in range(count):
        scene.see(number + 1, *[ERROR] * 12)
    assert scene.shares.count(0.0) == most
    assert scene.counted["outlier_ejected"] == most
    assert scene.counted["outlier_spared"] == 2 * (count - most)
    if most:
        scene.pass_by(41)
        for number in range(count):
            scene.see(number + 1, *[ERROR] * 5)
        assert scene.shares.count(0.0) == most


def test_who_is_held_down_by_others_counts_as_well() -> None:
    scene = Scene(3, max_share=0.67)
    scene.cluster.hold(scene.at(1), "healthCheck", 0.0, "unwell")
    assert scene.see(2, *[ERROR] * 5) == 0.0
    assert scene.see(3, *[ERROR] * 5) == 1.0
    scene = Scene(3)
    scene.cluster.hold(scene.at(1), "healthCheck", 0.0, "unwell")
    assert scene.see(1, *[ERROR] * 5) == 0.0
    assert "outliers" in scene.at(1).held, "one that is down already takes nobody away"


def slowly(scene: Scene, number: int, seconds: float, times: int = 25) -> float:
    for _ in range(times):
        scene.see(number, WELL, seconds=seconds)
        scene.time.clock.advance(0.01)
    return scene.at(number).share


def test_one_that_is_much_slower_than_the_others() -> None:
    scene = Scene(4, latency_factor=3.0)
    for number in (1, 2, 3):
        slowly(scene, number, 0.1)
    slowly(scene, 4, 0.6, 60)
    scene.pass_by(1.5)
    slowly(scene, 4, 0.6, 2)
    assert scene.shares == [1.0, 1.0, 1.0, 0.0]
    assert scene.why(4).startswith("its median answer took 0.5")


def test_one_that_is_slow_by_a_little_or_as_all_are() -> None:
    scene = Scene(3, latency_factor=3.0)
    for number, seconds in ((1, 0.002), (2, 0.002), (3, 0.09)):
        slowly(scene, number, seconds, 60)
    scene.pass_by(1.5)
    slowly(scene, 3, 0.09, 3)
    assert scene.shares == [1.0] * 3, "less than latencyFloor"
    scene = Scene(3, latency_factor=3.0)
    for _ in range(3):
        for number in (1, 2, 3):
            slowly(scene, number, 2.0, 40)
        scene.pass_by(1.0)
    assert scene.shares == [1.0] * 3
    scene = Scene(3, latency_factor=3.0)
    slowly(scene, 1, 2.0, 300)
    assert scene.shares == [1.0] * 3, "nobody to compare with"


def test_those_that_take_part_change() -> None:
    scene = Scene(3, latency_factor=3.0)
    for number in (1, 2, 3):
        slowly(scene, number, 0.1)
    scene.update(upstream(2, outliers=scene.cluster._watch.outliers.settings))  # type: ignore[union-attr]
    slowly(scene, 2, 1.0, 60)
    scene.pass_by(1.5)
    slowly(scene, 1, 0.1, 60)
    slowly(scene, 2, 1.0, 60)
    assert scene.shares == [1.0, 0.0]


def test_an_address_that_is_away_for_a_while_comes_back_as_it_was() -> None:
    """Kong#7551: what is known belongs to an address, whatever DNS says in between."""
    scene = Scene(3, ejection=30)
    scene.see(3, *[ERROR] * 5)
    rules = scene.cluster._watch.outliers.settings  # type: ignore[union-attr]
    for _ in range(3):
        scene.update(upstream(2, outliers=rules))
        assert scene.shares == [1.0, 1.0]
        scene.pass_by(3)
        scene.update(upstream(3, outliers=rules))
        assert scene.shares == [1.0, 1.0, 0.0]
    scene.update(upstream(2, outliers=rules))
    scene.pass_by(25)
    scene.update(upstream(3, outliers=rules))
    assert scene.shares == [1.0, 1.0, RAMP[1]]
    assert scene.see(3, *[ERROR] * 5) == 0.0
    scene.update(upstream(2, outliers=rules))
    scene.pass_by(59)
    assert "10.0.0.3:80" in scene.cluster._watch.outliers.entries  # type: ignore[union-attr]
    scene.pass_by(300)
    scene.update(upstream(1, outliers=rules))
    assert list(scene.cluster._watch.outliers.entries) == ["10.0.0.1:80"]  # type: ignore[union-attr]


def test_a_reload_keeps_what_it_does_not_change() -> None:
    scene = Scene(3, ejection=30)
    scene.see(1, *[ERROR] * 5)
    scene.see(2, *[ERROR] * 4)
    scene.update(upstream(3, outliers=outliers(ejection=30), balance="weighted"))
    assert scene.shares == [0.0, 1.0, 1.0]
    scene.update(upstream(3, outliers=outliers(ejection=7, max_share=1.0)))
    assert scene.shares == [0.0, 1.0, 1.0]
    assert scene.see(2, ERROR) == 0.0, "it had four"
    scene.pass_by(7.2)
    assert scene.shares == [0.0, RAMP[0], 1.0], "the first one was to stay for half a minute"
    scene.update(upstream(3))
    assert scene.shares == [1.0] * 3
    assert scene.see(1, *[ERROR] * 50) == 1.0
    assert scene.cluster._watchers == ()
    scene.update(upstream(3, outliers=outliers()))
    assert scene.see(1, *[ERROR] * 5) == 0.0


def test_an_upstream_that_ends_leaves_no_timer() -> None:
    scene = Scene(3)
    scene.see(1, *[ERROR] * 5)
    scene.cluster.stop()
    scene.pass_by(1.0)
    assert scene.time.idle


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("consecutive: 0, errorRatio: 0", "no endpoint would ever be an outlier"),
        ("latencyFactor: 1", "expected more than 1"),
        ("ejection: 10m", "less than ejection"),
        ("interval: 0", "interval"),
        ("maxShare: 2", "maxShare"),
        ("consecutiveErrors: 3", "consecutive"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "gateway.yaml").write_text(
        f"""
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.1"}}], outliers: {{{text}}}}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
"""
    )
    with pytest.raises(ConfigFaults, match=why) as caught:
        build(str(tmp_path / "gateway.yaml"))
    assert "upstreams[0].outliers" in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_happens_never_too_many_are_left_alone_and_all_come_back(data: st.DataObject) -> None:
    count, share = data.draw(st.integers(1, 6), "endpoints"), data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]), "share")
    scene = Scene(count, max_share=share, consecutive=3, min_requests=5, ejection=2, ramp=1)
    most = min(max(int(count * share), 1), count - 1)
    for _ in range(data.draw(st.integers(1, 30), "steps")):
        number = data.draw(st.integers(1, count), "endpoint")
        match data.draw(st.sampled_from(["bad", "well", "down", "up", "time"]), "step"):
            case "bad":
                scene.see(number, *[ERROR] * data.draw(st.integers(1, 8), "times"))
            case "well":
                scene.see(number, *[WELL] * data.draw(st.integers(1, 8), "times"))
            case "down":
                scene.cluster.hold(scene.at(number), "healthCheck", 0.0, "unwell")
            case "up":
                scene.cluster.hold(scene.at(number), "healthCheck", 1.0)
            case "time":
                scene.pass_by(data.draw(st.sampled_from([0.1, 1.0, 3.0]), "seconds"))
        alone = [each for each in scene.cluster.endpoints if each.held.get("outliers", (1.0, ""))[0] <= 0.0]
        assert len(alone) <= most
    scene.pass_by(320)
    assert not any("outliers" in each.held for each in scene.cluster.endpoints)


def test_the_defaults_are_fine() -> None:
    assert model.Upstream(name="a", outliers=Outliers()).outliers == Outliers()
