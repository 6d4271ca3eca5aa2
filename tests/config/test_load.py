from __future__ import annotations

import gc
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import load as load_module
from protogate.config.faults import AtKey, ConfigFaults
from protogate.config.load import load, loads
from protogate.errors import ConfigError

CTRIP = Path(__file__).parent.parent / "fixtures" / "ctrip"

TEXT = b"""\
listeners:
  - name: web
    address: "127.0.0.1:0"
upstreams:
  - name: orders
    endpoints: [{url: "http://10.0.0.1:80", weight: 0}]
  - name: users
    endpoints: [{url: "http://10.0.0.2:80"}]
routes:
  - value: /
    routes:
      - targets: [{upstream: orders}]
accessLog: {file: logs/access.log}
"""


def fault(path: str | os.PathLike[str]) -> str:
    with pytest.raises(ConfigFaults) as caught:
        load(path)
    (line,) = caught.value.lines
    assert str(caught.value) == line
    return line


def test_a_file_is_loaded_with_its_warnings_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gateway.yaml").write_bytes(TEXT)
    loaded = load("gateway.yaml")
    assert loaded.name == "gateway.yaml"
    assert loaded.config.upstreams[1].name == "users"
    assert [loaded.describe(warning) for warning in loaded.warnings] == [
        "gateway.yaml:6:16: upstreams[0].endpoints: every endpoint has weight 0: this upstream gets no request",
        'gateway.yaml:7:11: upstreams[1].name: no route sends anything to the upstream "users", and no module asks it',
    ]


def test_the_stamp_tells_one_state_of_the_file_from_another(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_bytes(TEXT)
    loaded = load(path)
    assert loaded.stamp == load_module.stamp(path.stat())
    path.write_bytes(TEXT + b"\n")
    assert loaded.stamp != load_module.stamp(path.stat())


def test_paths_are_relative_to_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "gateway.yaml").write_bytes(TEXT)
    monkeypatch.chdir(tmp_path)
    log = load("etc/gateway.yaml").config.access_log
    assert log is not None
    assert log.file == str(tmp_path / "etc" / "logs" / "access.log")


@pytest.mark.parametrize("file", ["-", "/var/log/access.log"])
def test_other_names_of_the_log_stay(file: str) -> None:
    log = loads(TEXT.replace(b"logs/access.log", file.encode()), "etc/gateway.yaml").config.access_log
    assert log is not None
    assert log.file == file


def test_positions_and_faults_of_later_builders() -> None:
    loaded = loads(TEXT, "gateway.yaml")
    assert loaded.stamp is None
    assert loaded.position(("routes", 0, "value")) == (10, 12)
    assert loaded.position(("routes", 0, "priority")) == (10, 5)
    faults = loaded.faults([ConfigError("late", ("routes", 0)), AtKey("early", ("upstreams",))])
    assert str(faults) == "gateway.yaml:4:1: upstreams: early\ngateway.yaml:10:5: routes[0]: late"


def test_faults_of_types_and_of_the_whole_come_in_one_go() -> None:
    with pytest.raises(ConfigFaults) as caught:
        loads(TEXT.replace(b"weight: 0", b"weight: many").replace(b"upstream: orders", b"upstream: order"), "g.yaml")
    assert caught.value.lines == [
        'g.yaml:6:53: upstreams[0].endpoints[0].weight: expected a number from 0 to 1000, got "many"',
        'g.yaml:12:30: routes[0].routes[0].targets[0].upstream: there is no upstream "order"; did you mean "orders"?',
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    assert fault(path) == f"{path}: the file cannot be opened: No such file or directory"
    assert "null byte" in fault("a\0b")


def test_a_folder(tmp_path: Path) -> None:
    assert fault(tmp_path) == f"{tmp_path}: this is a folder; name a file within it"


def test_a_fifo_that_nobody_writes_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "fifo.yaml"
    os.mkfifo(path)
    assert fault(path) == f"{path}:1:1: the file is empty; it needs listeners at least"


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_bytes(TEXT)

    def broken(handle: int, count: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(load_module.os, "read", broken)
    assert fault(path) == f"{path}: the file cannot be read: Input/output error"


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert fault(path) == f"{path}: the file has more than 64 MiB"


def test_ctrips_samples_load_unchanged() -> None:
    route = json.loads((CTRIP / "ctrip-route.json").read_text())
    module = json.loads((CTRIP / "ctrip-module.json").read_text())
    text = json.dumps(
        {"listeners": [{"name": "web", "address": "127.0.0.1:0"}], "routes": [route], "modules": [module]}
    )
    for name in ("gateway.json", "gateway.yaml"):
        loaded = loads(text.encode(), name)
        (rule,) = loaded.config.routes
        assert (rule.type, rule.value, rule.matcher_type) == ("uri", "/hotel/order", "prefix")
        assert rule.tags == ("owner_admin", "org_framework", "appId_123456")
        assert rule.properties == {"core": "true"}
        (entry,) = rule.routes
        assert (entry.condition, entry.zone) == ("true", "PRO")
        assert (entry.targets[0].url, entry.targets[0].weight) == ("http://test.ctrip.com/hotel", 100)
        (bound,) = loaded.config.modules
        assert (bound.name, bound.stage, bound.rule_order, bound.gray_ratio) == (
            "addResponseHeader",
            "PRE_RESPONSE",
            0,
            100,
        )
        assert bound.action_param == module["actionParam"]
        assert (bound.condition, bound.exception_handle) == ("true", "return")
        assert loaded.warnings == []


def test_ctrips_samples_may_be_pasted_into_yaml() -> None:
    text = (
        "listeners: [{name: web, address: '127.0.0.1:0'}]\nroutes:\n- "
        + (CTRIP / "ctrip-route.json").read_text().replace("\n", "\n  ")
        + "\nmodules:\n- "
        + (CTRIP / "ctrip-module.json").read_text().replace("\n", "\n  ")
    )
    config = loads(text.encode(), "gateway.yaml").config
    assert config.routes[0].value == "/hotel/order"
    assert config.modules[0].action_param["connection"] == "keep-alive"


def test_loading_changes_nothing_and_gives_the_same_again() -> None:
    assert loads(TEXT, "g.yaml").config == loads(TEXT, "g.yaml").config


def test_what_was_loaded_is_no_work_for_the_garbage_collector() -> None:
    config = loads(TEXT, "g.yaml").config
    assert not any(gc.is_tracked(part) for part in (config, config.routes[0], config.upstreams[0].endpoints[0]))


AS_JSON = json.dumps(
    {"listeners": [{"name": "web", "address": "127.0.0.1:0"}], "gateway": {"name": "a"}}, indent=1
).encode()


@pytest.mark.parametrize(("text", "name"), [(TEXT, "g.yaml"), (AS_JSON, "g.json")])
def test_nothing_of_it_waits_for_the_garbage_collector(text: bytes, name: str) -> None:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        loaded = loads(text, name)
        loaded.position(("listeners", 0, "name"))
        loaded.forget()
        del loaded
        assert gc.collect() == 0
    finally:
        if enabled:
            gc.enable()


@pytest.mark.parametrize(("text", "name"), [(TEXT, "g.yaml"), (AS_JSON, "g.json")])
def test_places_that_were_forgotten_are_worked_out_anew(text: bytes, name: str) -> None:
    loaded = loads(text, name)
    loaded.forget()
    before = loaded.position(("listeners", 0, "address"))
    loaded.forget()
    loaded.forget()
    assert loaded.position(("listeners", 0, "address")) == before
    assert before > loaded.position(("listeners", 0))


@given(st.lists(st.sampled_from(TEXT.decode().split(" ")) | st.text(max_size=3), max_size=40).map(" ".join))
def test_any_text_is_a_configuration_or_faults_with_places(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    with suppress(ConfigFaults):
        assert loads(data, "g.yaml").config.listeners


@given(st.integers(0, len(TEXT) - 1), st.binary(max_size=3))
def test_a_broken_byte_is_a_configuration_or_faults(place: int, patch: bytes) -> None:
    with suppress(ConfigFaults):
        assert loads(TEXT[:place] + patch + TEXT[place + 1 :], "g.yaml").config.listeners
