from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from protogate.config import document, schema
from protogate.config.faults import ConfigFaults
from protogate.config.load import loads
from protogate.config.model import Config

ROOT = Path(__file__).parent.parent.parent
SHIPPED = json.loads(files("protogate.config").joinpath("schema.json").read_text("utf-8"))


def valid(value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SHIPPED).is_valid(value))


def test_the_shipped_schema_is_up_to_date() -> None:
    """If not: C{python -m protogate.config.schema > protogate/config/schema.json}."""
    assert files("protogate.config").joinpath("schema.json").read_text("utf-8") == schema.text()


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SHIPPED)


def test_every_key_is_described() -> None:
    for name, definition in SHIPPED["$defs"].items():
        assert definition["description"], name
        for key, prop in definition["properties"].items():
            assert prop["description"], (name, key)
    assert set(SHIPPED["$defs"]["Config"]["properties"]) == set(Config.__struct_encode_fields__)


def test_defaults_are_written_as_in_the_file() -> None:
    timeouts, limits = SHIPPED["$defs"]["GatewayTimeouts"], SHIPPED["$defs"]["GatewayLimits"]
    assert timeouts["properties"]["connect"]["default"] == "3s"
    assert timeouts["properties"]["total"]["default"] == "0"
    assert limits["properties"]["headers"]["default"] == "64KiB"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid_and_load(path: Path) -> None:
    assert valid(document.parse(path.read_bytes(), path.name).value)
    assert loads(path.read_bytes(), path.name).config.listeners


BASE: dict[str, Any] = {"listeners": [{"name": "web", "address": "127.0.0.1:0"}]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"gateway": {"drain": 0, "timeouts": {"connect": "250ms"}, "limits": {"body": "1GiB"}, "workers": 0}},
        {"gateway": {"workers": "auto"}},
        {"gateway": {"workers": 256, "pinning": True, "hangTimeout": "5s", "drainDelay": 0}},
        {
            "upstreams": [
                {"name": "a", "endpoints": [{"url": "http://a"}], "discovery": None, "timeouts": {"connect": None}}
            ]
        },
        {"upstreams": [{"name": "a", "discovery": {"dns": "a:80"}}]},
        {
            "routes": [
                {"value": "/", "properties": {"a": "b"}, "routes": [{"targets": [{"url": "http://a", "weight": 0}]}]}
            ]
        },
        {"modules": [{"name": "m", "actionParam": {"a": [1, None]}, "grayRatio": 0.5, "timeoutHandle": ""}]},
        {"accessLog": {"file": "-", "sample": 0}},
    ],
)
def test_schema_and_loader_take_the_same(more: dict[str, Any]) -> None:
    assert valid({**BASE, **more})
    assert loads(json.dumps({**BASE, **more}).encode(), "a.json").config


@pytest.mark.parametrize(
    "more",
    [
        {"listeners": []},
        {"listener": []},
        {"gateway": {"drain": 5}},
        {"gateway": {"drain": "5 s"}},
        {"gateway": {"limits": {"body": "1G"}}},
        {"gateway": {"limits": {"connections": 0}}},
        {"gateway": {"pathPolicy": "none"}},
        {"gateway": {"workers": -1}},
        {"gateway": {"workers": 257}},
        {"gateway": {"workers": "many"}},
        {"gateway": None},
        {"upstreams": [{"name": "a"}]},
        {"upstreams": [{"name": "", "discovery": {"dns": "a:80"}}]},
        {"upstreams": [{"name": "a", "endpoints": [{"url": "http://a", "weight": 1001}]}]},
        {"routes": [{"value": "/", "routes": []}]},
        {"routes": [{"value": "/", "properties": {"a": 1}, "routes": [{"targets": [{"url": "http://a"}]}]}]},
        {"routes": [{"value": "/", "routes": [{"targets": [{}]}]}]},
        {"routes": [{"value": "/", "routes": [{"targets": [{"url": "http://a", "upstream": "a"}]}]}]},
        {"modules": [{"name": "m", "grayRatio": 101}]},
        {"accessLog": {}},
    ],
)
def test_schema_and_loader_refuse_the_same(more: dict[str, Any]) -> None:
    assert not valid({**BASE, **more})
    with pytest.raises(ConfigFaults):
        loads(json.dumps({**BASE, **more}).encode(), "a.json")
