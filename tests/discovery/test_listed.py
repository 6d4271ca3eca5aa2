"""Endpoints in a file: what it may say, what is wrong with it, and what becomes of it while the gateway runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sightings import Scene, at, config, scene

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.forgiven import forgiving
from protogate.discovery.entries import Entries
from protogate.discovery.listed import Listed, places
from protogate.errors import ConfigError
from protogate.testing.discovery import FakeFindings
from protogate.testing.gateway import MemoryGateway

ENTRY = Entries(model.Upstream(name="up", discovery=model.Discovery(file="f")))


def write(path: Path, text: str) -> None:
    """In one step."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def read(text: str, name: str = "list.yaml") -> list[tuple[str, int, str]]:
    return [(each.address, each.weight, each.zone) for each in places(text.encode(), name, ENTRY)]


def test_yaml_and_json_say_the_same() -> None:
    yaml = '# ours\n- 192.0.2.1:80\n- {url: "http://192.0.2.2:81", weight: 50, zone: b}\n'
    json = '["192.0.2.1:80", {"url": "http://192.0.2.2:81", "weight": 50, "zone": "b"}]'
    assert read(yaml) == [("192.0.2.1:80", 100, ""), ("192.0.2.2:81", 50, "b")]
    assert read(json, "list.json") == read(json) == read(yaml)
    assert read("[]") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty; no endpoints are written []"),
        ("# nothing\n", "the file is empty"),
        ("a: 1", "list.yaml:1:1: expected a list of endpoints, got a mapping"),
        ("- a:1\n- {url: 'b:1', wieght: 3}", 'list.yaml:2:16: [1].wieght: unknown key; did you mean "weight"?'),
        ("- a:1\n- {url: 'b:1', weight: 1001}", "list.yaml:2:24: [1].weight: expected a whole number from 0 to 1000"),
        ("- {url: 'b:1', zone: 5}", "[0].zone: expected a text, got 5"),
        ("- a:1\n- http://A:1", "list.yaml:2:3: [1]: this is [0] already; give that one the weight of both"),
        ("- a", "[0]: expected host:port or the URL of an endpoint"),
        ("- https://a:1", '[0]: "https" is not what this discovery finds'),
        ("- [", "list.yaml:2:1: this is no YAML"),
        ("- {url: a:1, url: b:1}", "list.yaml:1:14: [0].url"),
        ("- 5", "[0]: expected host:port or the URL of an endpoint, got 5"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises((ConfigFaults, ValueError)) as caught:
        read(text)
    assert why in str(caught.value)


def test_there_are_not_more_than_can_be() -> None:
    with pytest.raises(ValueError, match="more than 10000 endpoints"):
        read("\n".join(f"- a:{each + 1}" for each in range(10_001)))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text("-[]{}:,\"' \nab1", max_size=60).map(str.encode))
def test_whatever_a_file_holds_it_is_a_list_or_a_fault(data: bytes) -> None:
    try:
        made = places(data, "list.yaml", ENTRY)
    except (ConfigFaults, ValueError):
        return
    assert isinstance(made, tuple)


def test_a_file_that_is_not_there_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Listed(str(tmp_path / "list.yaml"), ENTRY)
    with pytest.raises(ConfigFaults, match=r"discovery\.file: .*list\.yaml: No such file"):
        MemoryGateway(config({"file": str(tmp_path / "list.yaml")}))


# -- while it runs


def listed(path: Path, **more: Any) -> dict[str, Any]:
    write(path, f"- {at(1)}:80\n- {at(2)}:80\n")
    return {"file": str(path), **more}


def test_changes_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path)) as made:
        assert made.asked() == {1, 2}
        write(path, f"- {{url: 'http://{at(3)}', weight: 10}}\n- {at(4)}:80\n")
        made.gateway.advance(3)
        assert made.asked(22) == {3, 4}
        assert not made.logged


def test_a_bad_file_keeps_the_last_good_one_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path)) as made:
        write(path, f"- {at(3)}:80\n- nonsense\n")
        made.gateway.advance(3)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
        assert made.said("list.yaml:2:3: [1]: expected host:port")
        write(path, f"- {at(3)}:80\n")
        made.gateway.advance(3)
        assert (made.asked(), made.stale) == ({3}, 0)


def test_a_file_that_is_gone_is_told_and_its_coming_back_noticed(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path)) as made:
        path.rename(tmp_path / "aside")
        made.gateway.advance(3)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
        assert made.said("there is no such file any more")
        (tmp_path / "aside").rename(path)
        made.gateway.advance(3)
        assert (made.asked(), made.stale) == ({1, 2}, 0)


def test_an_empty_list_is_doubted_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path, emptyFor="30s")) as made:
        write(path, "[]")
        made.gateway.advance(20)
        assert made.asked() == {1, 2}
        made.gateway.advance(15)
        assert made.asked() == {"503"}


def test_a_reload_keeps_what_is_in_force_where_the_file_is_bad_now(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path)) as made:
        write(path, "nonsense")
        assert not made.gateway.reload(config({"file": str(path)}, timeouts={"connect": "1s"}))
        assert made.asked() == {1, 2}


def test_it_goes_with_endpoints_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with scene(listed(path), endpoints=[{"url": f"http://{at(4)}"}]) as made:
        assert made.asked(9) == {1, 2, 4}


def test_relative_paths_are_relative_to_the_configuration() -> None:
    with MemoryGateway(config({"dns": "a.test:80"})) as gateway:
        folder = Path(gateway._path).parent
        write(folder / "list.yaml", f"- {at(1)}:80\n")
        assert gateway.reload(config({"file": "list.yaml"}))
        discovery = gateway.service.built.config.upstreams[0].discovery
        assert discovery is not None
        assert discovery.file == str(folder / "list.yaml")


def test_what_stays_keeps_its_connections(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"

    def keep(made: Scene) -> bytes:
        return made.gateway.ask(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")

    with scene(listed(path)) as made:
        for _ in range(4):
            keep(made)
        one, two = made.servers[1].connections, made.servers[2].connections
        write(path, f"- {{url: 'http://{at(1)}', weight: 7, zone: a}}\n")
        made.gateway.advance(3)
        for _ in range(3):
            keep(made)
        assert ([each.eof for each in one], [each.eof for each in two]) == ([False], [True])


class Own:
    """A source by itself, with what a test needs to hurry it."""

    def __init__(self, path: Path) -> None:
        write(path, f"- {at(1)}:80\n")
        self.source, self.findings = Listed(str(path), ENTRY), FakeFindings()
        self.source.start(self.findings)  # type: ignore[arg-type]


def test_a_change_while_it_is_read_is_read_as_well(tmp_path: Path) -> None:
    own = Own(tmp_path / "list.yaml")
    own.source._changed()
    own.source._changed()
    own.source._changed()
    own.findings.reactor.run()
    assert len(own.findings.places) == 3, "at the start, and twice"
    own.source._changed()
    own.source.stop()
    own.source._changed()
    own.source._gone()
    own.findings.reactor.run()
    assert (len(own.findings.places), own.findings.trouble) == (3, [])


def test_reading_that_breaks_is_logged_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_errors: Callable[..., list[Any]]
) -> None:
    own = Own(tmp_path / "list.yaml")
    monkeypatch.setattr("protogate.discovery.listed.reading", lambda *_: 1 / 0)
    own.source._changed()
    own.findings.reactor.run()
    assert own.findings.trouble == ["division by zero"]
    assert len(flush_errors(ZeroDivisionError)) == 1
    own.source._changed()
    own.source.stop()
    own.findings.reactor.run()
    assert len(own.findings.trouble) == 1
    flush_errors(ZeroDivisionError)


def test_where_it_was_in_force_already_a_fault_is_trouble_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    write(path, "- {url: \n")
    with pytest.raises(ConfigError):
        Listed(str(path), ENTRY)
    with forgiving():
        source, findings = Listed(str(path), ENTRY), FakeFindings()
    source.start(findings)  # type: ignore[arg-type]
    findings.reactor.run()
    assert (findings.places, len(findings.trouble)) == ([], 2), "it is read again at once"
    assert "list.yaml" in findings.trouble[0]
    write(path, f"- {at(1)}:80\n")
    for _ in range(4):
        findings.reactor.run()
        findings.reactor.clock.advance(1)
    findings.reactor.run()
    assert [[each.host for each in places] for places in findings.places] == [[at(1)]]
    source.stop()


def test_one_that_is_mended_before_it_starts_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    with forgiving():
        source, findings = Listed(str(path), ENTRY), FakeFindings()
    write(path, f"- {at(1)}:80\n")
    source.start(findings)  # type: ignore[arg-type]
    findings.reactor.run()
    assert len(findings.places) == 1
    source.stop()
