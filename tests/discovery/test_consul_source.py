"""Instances in a Consul, in a whole gateway: blocking queries, weights, tokens, an index that goes back, garbage."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from sightings import Scene, at, config, consul_at, scene
from twisted.internet.defer import Deferred

from protogate.body import Whole
from protogate.config.faults import ConfigFaults
from protogate.message import Response
from protogate.testing.gateway import MemoryGateway


def two(made: Scene) -> None:
    for number in (1, 2):
        made.consul.register("shop", at(number), 80)


def test_instances_are_found_and_changes_are_known_at_once() -> None:
    with scene(consul_at(), before=two) as made:
        assert made.asked() == {1, 2}
        made.gateway.advance(2)
        assert len(made.consul.waiting) == 1
        made.consul.register("shop", at(3), 80, zone="b")
        made.gateway.run()
        assert made.asked(9) == {1, 2, 3}
        made.gateway.advance(1)
        made.consul.deregister("shop", at(1))
        made.gateway.advance(1)
        assert made.asked() == {2, 3}
        asked = len(made.consul.asked)
        made.gateway.advance(100)
        assert len(made.consul.asked) - asked in (4, 5), "a question each 20 s"
        assert made.count("discovery_failed") == 0


def test_it_is_asked_once_a_second_at_most() -> None:
    with scene(consul_at(), before=two) as made:
        asked = len(made.consul.asked)
        for _ in range(50):
            made.consul.changed()
            made.gateway.advance(0.1)
        assert 4 <= len(made.consul.asked) - asked <= 6


def test_weights_are_kept_in_proportion() -> None:
    def weighted(made: Scene) -> None:
        made.consul.register("shop", at(1), 80, weight=3)
        made.consul.register("shop", at(2), 80, weight=1)

    with scene(consul_at(), before=weighted) as made:
        assert Counter(made.ask() for _ in range(8)) == {1: 6, 2: 2}
        made.consul.services["shop"][0]["Service"]["Weights"]["Passing"] = 30_000
        made.consul.services["shop"][1]["Service"]["Weights"]["Passing"] = 10_000
        made.consul.changed()
        made.gateway.advance(1)
        assert Counter(made.ask() for _ in range(8)) == {1: 6, 2: 2}
        del made.consul.services["shop"][0]["Service"]["Weights"]
        made.consul.services["shop"][1]["Service"]["Weights"]["Passing"] = 0
        made.consul.changed()
        made.gateway.advance(2)
        assert Counter(made.ask() for _ in range(8)) == {1: 4, 2: 4}


def ailing(made: Scene) -> None:
    made.consul.register("shop", at(1), 80, tags=["v2", "eu"])
    made.consul.register("shop", at(2), 80, status="warning", tags=["v2"])
    made.consul.register("shop", at(3), 80, status="critical", tags=["v2"])


@pytest.mark.parametrize(
    ("options", "numbers"), [({}, {1}), ({"passing": False}, {1, 2}), ({"passing": False, "tags": ["v2", "eu"]}, {1})]
)
def test_those_that_are_not_well_or_not_meant_are_left_out(options: dict[str, object], numbers: set[int]) -> None:
    with scene(consul_at(datacenter="dc1", **options), before=ailing) as made:
        assert made.asked() == numbers
        assert b"dc=dc1" in made.consul.asked[0][1]


def test_an_instance_without_an_address_is_at_its_node() -> None:
    def bare(made: Scene) -> None:
        made.consul.register("shop", "", 80)["Node"]["Address"] = at(4)

    with scene(consul_at(), before=bare) as made:
        assert made.asked(2) == {4}


def test_zones_are_those_that_consul_knows() -> None:
    def placed(made: Scene) -> None:
        made.consul.register("shop", at(1), 80, zone="meta")
        made.consul.register("shop", at(2), 80)["Service"]["Locality"] = {"Region": "r", "Zone": "own"}
        made.consul.register("shop", at(3), 80)["Node"]["Locality"] = {"Zone": "node"}
        made.consul.register("shop", at(4), 80)

    with scene(consul_at(), before=placed) as made:
        clusters = made.gateway.service.clusters
        assert clusters is not None
        zones = [endpoint.place.zone for endpoint in clusters.current["origin"].endpoints]
        assert zones == ["meta", "own", "node", ""]


def test_while_it_is_away_all_goes_on() -> None:
    with scene(consul_at(), before=two) as made:
        made.consul.away = True
        made.gateway.advance(30)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
        made.consul.deregister("shop", at(1))
        made.consul.away = False
        made.gateway.advance(31)
        assert (made.asked(), made.stale) == ({2}, 0)


def test_one_that_takes_questions_and_never_answers_is_away() -> None:
    with scene(consul_at(), before=two) as made:
        made.consul.broken = lambda request: Deferred()
        made.gateway.advance(60)
        assert (made.asked(), made.stale) == ({1, 2}, 1)


def test_an_index_that_goes_back_asks_for_all() -> None:
    with scene(consul_at(), before=two) as made:
        made.gateway.advance(2)
        made.consul.deregister("shop", at(1))
        made.consul.reset()
        made.gateway.advance(4)
        assert made.asked() == {2}
        assert b"index=0" in made.consul.asked[-2][1]
        assert b"index=3" in made.consul.asked[-1][1]


def test_no_instance_any_more_is_doubted_for_a_while() -> None:
    with scene(consul_at(), before=two) as made:
        made.gateway.advance(1)
        made.consul.services["shop"] = []
        made.consul.changed()
        made.gateway.advance(50)
        assert made.asked() == {1, 2}
        made.gateway.advance(11)
        assert made.asked() == {"503"}


def test_a_token_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")

    def guarded(made: Scene) -> None:
        two(made)
        made.consul.token = "first"

    with scene(consul_at(token={"file": str(path)}), before=guarded) as made:
        assert made.asked() == {1, 2}
        made.consul.token = "second"
        made.gateway.advance(1)
        made.consul.changed()
        made.gateway.advance(5)
        assert made.stale == 1
        path.write_text("second\n")
        made.gateway.advance(31)
        assert made.stale == 0
        assert made.said('it answered 403: "ACL not found"')
        assert not any("first" in line or "second" in line for line in made.logged)


@pytest.mark.parametrize(
    ("value", "index", "why"),
    [
        ([], b"", "it tells no index"),
        ([], b"0", "it tells no index"),
        ({}, b"7", "expected a list, got an empty mapping"),
        ([5], b"7", "expected a mapping, got 5"),
        ([{"Node": {}}], b"7", "expected a mapping, got nothing"),
        ([{"Node": {}, "Service": {"Port": "80"}}], b"7", "none of 1 endpoints can be read"),
    ],
)
def test_an_answer_that_is_none_is_told_and_asked_for_again(value: object, index: bytes, why: str) -> None:
    def broken(made: Scene) -> None:
        two(made)
        body = json.dumps(value).encode()
        made.consul.broken = lambda request: Response(200, [(b"x-consul-index", index)], Whole(body))

    with scene(consul_at(), before=broken) as made:
        assert made.asked(1) == {"503"}
        assert why in str(made.gateway.records[-1].error)
        made.consul.broken = None
        made.gateway.advance(5)
        assert made.asked() == {1, 2}


def test_a_reload_goes_on_with_the_question_that_is_there() -> None:
    with scene(consul_at(), before=two) as made:
        made.gateway.advance(1)
        assert made.gateway.reload(config(consul_at(emptyFor="0")))
        made.gateway.advance(1)
        assert len(made.consul.asked) == 2
        made.consul.services["shop"] = []
        made.consul.changed()
        made.gateway.advance(1)
        assert made.asked(2) == {"503"}, "and the new settings hold"


def test_an_answer_that_takes_longer_than_it_may_is_a_fault() -> None:
    with pytest.raises(ConfigFaults) as caught:
        MemoryGateway(config(consul_at(wait="30s")))
    assert "may take 31.9 s on purpose" in str(caught.value)
    hub = {"name": "hub", "endpoints": [{"url": "http://192.0.2.92:8500"}], "timeouts": {"responseHead": "5m"}}
    with MemoryGateway(config({"consul": {"upstream": "hub", "service": "shop", "wait": "4m"}}, hub)) as gateway:
        assert gateway.service.built.warnings == ()
