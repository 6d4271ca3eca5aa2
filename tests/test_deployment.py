"""The files in C{examples/} that are for systemd and for containers say what holds for this program."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from neighbours import Neighbours, free_port, need
from pages import DOCS, ROOT, codes, table
from protogate import cli
from protogate.admin.metrics import COUNTS, DURATIONS, GAUGES, KINDS, RESULTS
from protogate.config import model
from protogate.config.load import load

EXAMPLES = ROOT / "examples"
SERVICE = EXAMPLES / "systemd" / "protogate.service"
SOCKET = EXAMPLES / "systemd" / "protogate.socket"
CONFIG = "/etc/protogate/gateway.yaml"


def unit(path: Path) -> dict[str, list[str]]:
    """Key → its values, in their order; a key may stand in one section only."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


# -- systemd


def test_the_service_runs_checks_and_reloads_this_program() -> None:
    keys = unit(SERVICE)
    (start,) = keys["ExecStart"]
    check, kill = keys["ExecReload"]
    for words, command in ((start, "run"), (check, "check")):
        program, *arguments = shlex.split(words)
        assert Path(program).name == "protogate"
        parsed = cli.parser().parse_args(arguments)
        assert (parsed.command, parsed.config) == (command, CONFIG)
    assert kill == "/bin/kill -HUP $MAINPID"
    assert keys["Type"] == ["notify"]
    assert keys["NotifyAccess"] == ["main"]
    assert float(keys["WatchdogSec"][0]) > 0


def test_the_service_is_given_the_time_to_drain() -> None:
    keys = unit(SERVICE)
    gateway = model.Gateway()
    assert keys["KillMode"] == ["mixed"]
    assert float(keys["TimeoutStopSec"][0]) > gateway.drain + gateway.drain_delay + 2  # the access log's last lines


def test_the_service_may_do_little() -> None:
    keys = unit(SERVICE)
    for key in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute"):
        assert keys[key] == ["yes"]
    assert keys["ProtectSystem"] == ["strict"]
    assert keys["CapabilityBoundingSet"] == keys["AmbientCapabilities"] == ["CAP_NET_BIND_SERVICE"]
    assert int(keys["LimitNOFILE"][0]) >= 65536


def test_systemd_has_nothing_to_say_against_the_units() -> None:
    done = subprocess.run(
        [need("systemd-analyze"), "verify", SERVICE, SOCKET], capture_output=True, text=True, check=False
    )
    # It looks for the program, too; it is where the unit says on the machine that it is for.
    lines = [line for line in done.stderr.splitlines() if "/opt/protogate/bin/protogate is not executable" not in line]
    assert [line for line in lines if "protogate" in line] == []


def test_systemd_finds_the_service_safe() -> None:
    words = [need("systemd-analyze"), "security", "--offline=yes", "--no-pager", SERVICE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    (level,) = re.findall(r"exposure level for protogate\.service: ([0-9.]+)", done.stdout)
    assert float(level) < 2.0


def test_the_socket_is_the_one_of_the_service_and_of_a_listener() -> None:
    assert SOCKET.stem == SERVICE.stem
    keys = unit(SOCKET)
    (listener,) = re.findall(
        r"^# listeners: \[\{name: (\w+), address: \"0\.0\.0\.0:(\d+)\"\}\]$", SOCKET.read_text(), re.M
    )
    assert (keys["FileDescriptorName"], keys["ListenStream"]) == ([listener[0]], [listener[1]])
    assert "Accept" not in keys


# -- containers


def statements() -> Iterator[tuple[str, str]]:
    """Of the Dockerfile."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.M))
    for line in text.splitlines():
        if line:
            word, _, rest = line.partition(" ")
            yield word, rest


def last(word: str) -> str:
    """The statement of that kind that counts in the image: of the last stage."""
    stage = list(statements())
    begin = max(at for at, (name, _) in enumerate(stage) if name == "FROM")
    (found,) = [rest for name, rest in stage[begin:] if name == word]
    return found


def test_every_statement_is_one_that_docker_knows() -> None:
    known = {"FROM", "ARG", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in statements()} <= known
    assert all(re.fullmatch(r"python:3\.\d+-slim( AS \w+)?", rest) for name, rest in statements() if name == "FROM")


def test_the_image_runs_this_program_itself_and_not_as_root() -> None:
    program, *arguments = json.loads(last("ENTRYPOINT")) + json.loads(last("CMD"))
    assert Path(program).name == "protogate"
    parsed = cli.parser().parse_args(arguments)
    assert (parsed.command, parsed.config) == ("run", CONFIG)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER"))
    assert int(last("EXPOSE")) >= 1024
    assert last("STOPSIGNAL") == "SIGTERM"


def test_the_image_has_the_program_that_was_built() -> None:
    (built,) = (found for name, rest in statements() if name == "RUN" for found in re.findall(r"-m venv (\S+)", rest))
    assert last("COPY") == f"--from=build {built} {built}"
    for program in (json.loads(last("ENTRYPOINT"))[0], health()[0]):
        assert program.startswith(f"{built}/bin/")


def test_docker_is_given_all_that_the_package_is_built_from() -> None:
    lines = (EXAMPLES / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml",
        "hatch_build.py",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
    ]
    for path in needed:
        assert f"!{path.partition('/')[0]}" in rules
        assert not any(fnmatch(path, rule.removeprefix("**/")) for rule in rules[1:] if not rule.startswith("!"))


def test_the_image_is_built_from_extras_that_there_are_and_compiled_on_request() -> None:
    given = dict(rest.split("=", 1) for name, rest in statements() if name == "ARG")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(given["EXTRAS"].split(",")) <= set(extras)
    install = next(rest for name, rest in statements() if name == "RUN" and "pip install" in rest)
    assert re.search(r'HATCH_BUILD_HOOK_ENABLE_CUSTOM="\$COMPILED" \S+/pip install \S.*"/src\[\$EXTRAS\]"$', install)
    assert given["COMPILED"] == "", "off, as everywhere"


def health() -> list[str]:
    """The command of the HEALTHCHECK."""
    words: list[str] = json.loads(re.sub(r"^.*?CMD ", "", last("HEALTHCHECK")))
    return words


ADMIN = """
gateway: {drain: 20s}
listeners: [{name: web, address: "127.0.0.1:8080"}]
admin: {address: "127.0.0.1:9901"}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{url: "http://127.0.0.1:9"}]}]}]
"""


def test_the_health_check_tells_a_gateway_that_serves(tmp_path: Path, neighbours: Neighbours) -> None:
    web, admin = free_port(), free_port()
    path = tmp_path / "gateway.yaml"
    path.write_text(ADMIN.replace("8080", str(web)).replace("9901", str(admin)))
    words = [sys.executable, *(word.replace("9901", str(admin)) for word in health()[1:])]
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0
    neighbours.python("-m", "protogate", "run", "-c", str(path), port=web)
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_the_health_check_asks_where_the_example_answers() -> None:
    address = load(EXAMPLES / "container.yaml").config.admin
    assert address is not None
    (port,) = re.findall(r"'127\.0\.0\.1', (\d+)", health()[-1])
    assert address.address == f"0.0.0.0:{port}"
    assert f'admin: {{address: "127.0.0.1:{port}"}}' in (EXAMPLES / "Dockerfile").read_text()


# -- the page about metrics


def test_every_metric_is_in_the_table() -> None:
    rows = {codes(row[0])[0]: row[1:] for row in table("metrics.md", "Metric")}
    counters = {"protogate_exchanges", "protogate_events", *RESULTS, *(name for name, _ in COUNTS.values())}
    counters |= {f"protogate_{kind}_events" for kind in KINDS}
    assert {name for name, (kind, *_) in rows.items() if kind == "counter"} == {f"{name}_total" for name in counters}
    assert {name for name, (kind, *_) in rows.items() if kind == "histogram"} == {
        name for name, _ in DURATIONS.values()
    }
    gauges = {name for name, _ in GAUGES.values()} | {"protogate_build_info", "protogate_module_gauge"}
    gauges |= {"protogate_endpoint_share", "protogate_endpoint_held"}
    assert {name for name, (kind, *_) in rows.items() if kind == "gauge"} == gauges
    for name, (label, _, values) in RESULTS.items():
        assert codes(rows[f"{name}_total"][1])[:2] == [label, next(iter(values))]
    for (kind, _), (name, _) in GAUGES.items():
        assert codes(rows[name][1])[:1] == ([kind] if kind else [])
    resources = {name for name in model.Overload.__struct_fields__ if hasattr(getattr(model.Overload(), name), "full")}
    assert set(codes(rows["protogate_pressure"][1])[1:]) == resources


def test_questions_name_metrics_that_there_are() -> None:
    text = (DOCS / "metrics.md").read_text()
    rows = {codes(row[0])[0] for row in table("metrics.md", "Metric")}
    for name in re.findall(r"protogate_[a-z_]+", "".join(row[1] for row in table("metrics.md", "Question"))):
        assert name.removesuffix("_bucket") in rows
    assert text.count("protogate_") > len(rows)
