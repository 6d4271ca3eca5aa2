"""What is left of a faulty configuration, and where it stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.build import build
from protogate.config.convert import convert
from protogate.config.faults import ConfigFaults
from protogate.config.salvage import Salvage

LISTENER = {"name": "web", "address": "127.0.0.1:0"}


def salvage(value: Any) -> Salvage:
    return Salvage(value, convert(value)[1])


def rule(**more: Any) -> dict[str, Any]:
    return {"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "a"}]}], **more}


def test_faulty_values_go_and_the_rest_stays_where_it_was() -> None:
    value = {
        "listeners": [LISTENER],
        "gateway": {"name": 5, "zone": "PRO"},
        "routes": [
            rule(priority="high"),
            {"routes": 1},
            rule(
                value="/b",
                routes=[
                    {"targets": []},
                    {"targets": [{"upstream": 1}, {"upstream": "b", "weight": -1}]},
                    {"targets": 3},
                ],
            ),
        ],
        "modules": [{"name": "a", "stage": 4}, {"nam": "b"}, {"name": "c", "timeout": 3}],
    }
    left = salvage(value)
    config = left.config
    assert config is not None
    assert (config.gateway.name, config.gateway.zone) == ("protogate", "PRO")
    assert [one.value for one in config.routes] == ["/", "/b"]
    assert config.routes[0].priority == 0
    assert [target.upstream for target in config.routes[1].routes[0].targets] == ["none", "b"]
    assert [module.name for module in config.modules] == ["c"]
    assert left.place(("routes", 1, "routes", 0, "condition")) == ("routes", 2, "routes", 1, "condition")
    assert left.place(("routes", 1, "routes", 0, "targets", 1)) == ("routes", 2, "routes", 1, "targets", 1)
    assert left.place(("modules", 0, "actionParam", "x", 3)) == ("modules", 2, "actionParam", "x", 3)
    assert left.place(("gateway", "name")) == ("gateway", "name")
    assert value["routes"][1] == {"routes": 1}, "the document is as it was"


@pytest.mark.parametrize("listeners", [[], "none", [{}], [{"name": ""}], None])
def test_a_file_without_listeners_can_be_looked_at(listeners: Any) -> None:
    left = salvage({"listeners": listeners, "routes": [rule()]})
    assert left.config is not None
    assert len(left.config.routes) == 1
    assert salvage({"routes": [rule()]}).config is not None


@pytest.mark.parametrize("value", [None, 5, [], "text"])
def test_nothing_is_left_of_what_is_no_mapping(value: Any) -> None:
    assert salvage(value).config is None


KEYS = "listeners upstreams routes modules gateway name address value targets upstream url endpoints stage"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_it_never_fails(value: Any) -> None:
    left = salvage(value)
    if left.config is not None:
        for index in range(len(left.config.routes)):
            assert left.place(("routes", index))[0] == "routes"


FAULTY = """
gateway: {name: 5, bad: 1}
upstreams:
  - {name: a, endpoints: [{url: "http://127.0.0.1:1", weight: many}], protocol: nope}
routes:
  - {value: /x, routes: [{targets: [{upstream: b}]}]}
  - value: /y
    routes:
      - {condition: "requst", targets: [{upstream: a, weight: 2000}]}
  - {value: "(", matcherType: regex, published: true, published: false, routes: [{targets: [{upstream: a}]}]}
modules:
  - {name: nothing, timeout: 5}
  - {name: respond, stage: 4, condition: "y"}
  - {name: respond, condition: "y", grayRatio: 200}
accessLog: {file: x, always: "z"}
"""


def test_one_report_tells_what_every_part_finds(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(FAULTY)
    with pytest.raises(ConfigFaults) as raised:
        build(str(path))
    places = [line.removeprefix(str(path)).split(": ")[:2] for line in raised.value.lines]
    assert places == [
        [":2:1", 'the key "listeners" is missing'],
        [":2:17", "gateway.name"],
        [":2:20", "gateway.bad"],
        [":4:63", "upstreams[0].endpoints[0].weight"],
        [":4:81", "upstreams[0].protocol"],
        [":6:48", "routes[0].routes[0].targets[0].upstream"],
        [":9:21", "routes[1].routes[0].condition"],
        [":9:63", "routes[1].routes[0].targets[0].weight"],
        [":10:13", "routes[2].value"],
        [":10:55", "routes[2].published"],
        [":12:12", "modules[0].name"],
        [":12:30", "modules[0].timeout"],
        [":13:28", "modules[1].stage"],
        [":14:32", "modules[2].condition"],
        [":14:48", "modules[2].grayRatio"],
        [":15:30", "accessLog.always"],
    ]
