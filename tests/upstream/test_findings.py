"""What a source has found, and whether it still counts: first answers, silence, emptiness, sources that break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_upstream import Time
from zope.interface import implementer

from protogate.config import model
from protogate.errors import Abort
from protogate.interfaces import IDiscovery, IService
from protogate.upstream.discovery import Findings, key, spelled
from protogate.upstream.endpoint import Place, place
from protogate.upstream.means import Means


@implementer(IDiscovery)
class Source:
    """Does what a test says."""

    patience = 0.0

    def __init__(self) -> None:
        self.asks: dict[str, Any] = {}
        self.findings: Findings | None = None
        self.begin: Callable[[Findings], None] = lambda findings: None
        self.stopped = 0

    def start(self, findings: Findings) -> None:
        self.findings = findings
        self.begin(findings)

    def stop(self) -> None:
        self.stopped += 1


class Scene:
    def __init__(self, **settings: Any) -> None:
        self.time = Time(dns=3.0)
        self.source = Source()
        self.places: list[tuple[str, ...]] = []
        self.lost: list[Abort] = []
        self.services: dict[str, IService] = {}
        means = Means(
            reactor=None,  # type: ignore[arg-type]
            wheel=self.time.wheel,
            resolver=None,  # type: ignore[arg-type]
            count=self.time.counted.append,
            service=self.services.__getitem__,
        )
        config = model.Discovery(**{"plugin": {"fake": {}}, **settings})
        self.findings = Findings(
            "up", self.source, config, None, means, self.time.context, self._changed, self.lost.append
        )

    def _changed(self, places: Any) -> None:
        self.places.append(tuple(each.address for each in places))

    def start(self, *urls: str) -> Scene:
        self.findings.start()
        if urls:
            self.find(*urls)
        return self

    def find(self, *urls: str) -> None:
        self.findings.found([at(url) for url in urls])

    def end(self) -> None:
        self.findings.stop()
        assert self.time.idle


def at(url: str) -> Place:
    return place(f"http://{url}")


def test_what_is_found_is_told_when_it_is_other_than_before() -> None:
    scene = Scene().start("a:1", "b:1")
    scene.find("a:1", "b:1")
    scene.find("b:1", "a:1", "b:1")
    scene.find("b:1")
    assert scene.places == [("a:1", "b:1"), ("b:1", "a:1"), ("b:1",)]
    assert scene.time.counted == ["discovery_ok"] * 4
    scene.end()


def test_an_empty_first_answer_is_believed() -> None:
    scene = Scene().start()
    scene.findings.found([])
    assert scene.places == [()]
    assert scene.findings.answered
    scene.end()


def test_who_is_found_twice_is_there_as_it_stands_last() -> None:
    scene = Scene().start()
    scene.findings.found([place("http://a:1", 5), place("http://a:1", 7, "z")])
    assert scene.findings._places == (place("http://a:1", 7, "z"),)
    scene.end()


def test_the_first_answer_is_waited_for_not_longer_than_it_may_take() -> None:
    scene = Scene().start()
    scene.time.pass_by(2.9)
    assert not scene.lost
    scene.time.pass_by(0.3)
    (reason,) = scene.lost
    assert (reason.status, reason.error, reason.headers) == (503, "destination_unavailable", ((b"retry-after", b"1"),))
    assert reason is scene.findings.reason
    assert "fake has not answered for 3 s" in reason.reason
    scene.find("a:1")
    assert (scene.places, scene.findings.reason) == ([("a:1",)], None)
    scene.end()


def test_a_failure_before_the_first_answer_is_told_at_once() -> None:
    scene = Scene().start()
    scene.findings.failed("it is gone")
    assert [str(reason) for reason in scene.lost] == ["the endpoints of upstream up are not known: fake: it is gone"]
    own = Abort("mine", status=502)
    scene.findings.failed(own)
    assert scene.lost[1] is own
    scene.time.pass_by(10)
    assert len(scene.lost) == 2
    assert not scene.findings.stale
    scene.end()


def test_what_was_found_stays_while_its_source_is_away_and_not_for_ever() -> None:
    scene = Scene(stale_for=model.Seconds(100)).start("a:1")
    for _ in range(5):
        scene.findings.failed("away")
        scene.time.pass_by(10)
    assert (scene.places, scene.findings.stale) == ([("a:1",)], True)
    scene.time.pass_by(49)
    assert scene.places == [("a:1",)]
    scene.time.pass_by(2)
    assert scene.places == [("a:1",), ()]
    assert (scene.findings.stale, scene.time.counted.count("discovery_expired")) == (False, 1)
    scene.findings.failed("away")
    scene.time.pass_by(200)
    assert (scene.findings.stale, len(scene.places)) == (False, 2)
    scene.find("a:1")
    assert scene.places[2:] == [("a:1",)]
    scene.end()


def test_an_answer_between_begins_the_time_anew() -> None:
    scene = Scene(stale_for=model.Seconds(100)).start("a:1")
    for _ in range(3):
        scene.findings.failed("away")
        scene.time.pass_by(90)
        scene.find("a:1")
        assert not scene.findings.stale
    assert scene.places == [("a:1",)]
    scene.end()


def test_for_ever_is_for_ever() -> None:
    scene = Scene(stale_for=model.Seconds(0)).start("a:1")
    scene.findings.failed("away")
    scene.time.pass_by(500)
    assert scene.time.idle
    assert (scene.places, scene.findings.stale) == ([("a:1",)], True)
    scene.end()


def test_emptiness_is_doubted_and_believed_in_the_end() -> None:
    scene = Scene(empty_for=model.Seconds(30)).start("a:1")
    scene.findings.found([])
    scene.time.pass_by(20)
    scene.findings.found([])
    scene.time.pass_by(8)
    assert scene.places == [("a:1",)]
    scene.time.pass_by(4)
    assert scene.places == [("a:1",), ()]
    assert scene.time.counted.count("discovery_empty") == 1
    scene.findings.found([])
    assert len(scene.places) == 2
    scene.end()


def test_emptiness_that_passes_is_forgotten() -> None:
    scene = Scene(empty_for=model.Seconds(30)).start("a:1")
    scene.findings.found([])
    scene.time.pass_by(20)
    scene.find("b:1")
    scene.time.pass_by(60)
    assert scene.places == [("a:1",), ("b:1",)]
    scene.findings.found([])
    scene.time.pass_by(20)
    scene.findings.failed("away")  # what it said before it went is no longer sure
    scene.time.pass_by(60)
    assert scene.places == [("a:1",), ("b:1",)]
    scene.findings.found([])
    scene.time.pass_by(31)
    assert scene.places[2:] == [()]
    scene.end()


def test_emptiness_is_believed_at_once_where_that_is_wanted() -> None:
    scene = Scene(empty_for=model.Seconds(0)).start("a:1")
    scene.findings.found([])
    assert scene.places == [("a:1",), ()]
    scene.end()


def test_other_bounds_hold_at_once() -> None:
    scene = Scene(stale_for=model.Seconds(100), empty_for=model.Seconds(30)).start("a:1")

    def tune(**bounds: float) -> None:
        given = {name: model.Seconds(value) for name, value in bounds.items()}
        scene.findings.tune(model.Discovery(plugin={"fake": {}}, **given))

    scene.findings.failed("away")
    tune(stale_for=0, empty_for=30)
    scene.time.pass_by(150)
    tune(stale_for=50, empty_for=30)
    scene.time.pass_by(49)
    assert scene.places == [("a:1",)]
    scene.time.pass_by(2)
    assert scene.places == [("a:1",), ()]
    scene.find("a:1")
    scene.findings.found([])
    tune(stale_for=50, empty_for=0)
    scene.time.pass_by(0.1)
    assert scene.places[2:] == [("a:1",), ()]
    scene.end()


def test_a_source_is_started_and_stopped_once_and_heard_no_more() -> None:
    scene = Scene()
    scene.find("early:1")
    scene.start("a:1").start()
    scene.end()
    scene.findings.stop()
    assert scene.source.stopped == 1
    scene.find("late:1")
    scene.findings.failed("late")
    scene.findings.start()
    assert scene.places == [("a:1",)]
    assert scene.time.idle


def test_a_source_that_breaks_is_logged_and_told(flush_errors: Callable[..., list[Any]]) -> None:
    scene = Scene()

    def begin(findings: Findings) -> None:
        raise ZeroDivisionError

    scene.source.begin = begin
    scene.source.stop = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    scene.start()
    assert "it cannot be started" in str(scene.lost[0])
    scene.end()
    assert len(flush_errors(ZeroDivisionError)) == 2


def test_what_is_asked_is_handed_out() -> None:
    scene = Scene()
    scene.services["hub"] = "the hub"  # type: ignore[assignment]
    assert scene.findings.service("hub") == "the hub"
    with pytest.raises(LookupError):
        Means(reactor=None, wheel=scene.time.wheel, resolver=None).service("hub")  # type: ignore[arg-type]


def test_the_key_is_what_the_source_is_made_by() -> None:
    def made(discovery: model.Discovery | None, protocol: str = "") -> object:
        return key(model.Upstream(name="up", protocol=protocol, discovery=discovery))

    one = made(model.Discovery(dns="a:1"))
    assert one == made(model.Discovery(dns="a:1", stale_for=model.Seconds(5), empty_for=model.Seconds(0)))
    assert one != made(model.Discovery(dns="a:1", scheme="https"))
    assert one != made(model.Discovery(dns="a:1"), "http2")
    assert made(None) is None


def test_sources_have_names_for_people() -> None:
    consul, etcd = model.Consul(url="http://a", service="shop"), model.Etcd(url="http://a", prefix="/s/")
    settings = [
        model.Discovery(dns="a:1"),
        model.Discovery(file="/etc/list.yaml"),
        model.Discovery(etcd=etcd),
        model.Discovery(consul=consul),
        model.Discovery(plugin={"nacos": {}}),
    ]
    assert [spelled(each) for each in settings] == [
        "DNS (a:1)",
        "file (list.yaml)",
        "etcd (/s/)",
        "Consul (shop)",
        "nacos",
    ]
