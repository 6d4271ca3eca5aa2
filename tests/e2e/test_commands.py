"""The commands, most as a shell runs them: what they print, where, and their exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gateways import ROOT, WITHIN, Start, command, config, eventually, program, replace
from neighbours import Neighbours, free_port, listens, need, run
from protogate.cli import main

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
BOTH: list[Start] = ["twistd", "protogate"]
FAULTS = """\
gateway: {zome: PRO}
listeners:
  - {name: web, address: "127.0.0.1:%d"}
upstreams:
  - {name: a, endpoints: [{url: "ftp://127.0.0.1:1"}]}
routes:
  - {value: /, matcherType: prefix, routes: [{targets: [{upstream: b, weight: many}]}]}
"""


def protogate(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    return subprocess.run(
        [program("protogate"), *arguments], capture_output=True, text=True, timeout=WITHIN * 2, check=False, cwd=cwd
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_fine(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(example)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-1].startswith(f"{example}: fine: ")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_explained(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routes", "-c", str(example)]) == 0
    out, err = capsys.readouterr()
    names = [rule["name"] for rule in yaml.safe_load(example.read_text()).get("routes", []) if "name" in rule]
    assert ([name for name in names if name not in out], err) == ([], "")
    assert main(["explain", "-c", str(example), "GET http://a.test/hotel/order/1", "-H", "X-Mine: 1"]) == 0
    out, err = capsys.readouterr()
    assert "rules tried" in out
    assert err == ""


def test_explain_tells_what_becomes_of_a_request() -> None:
    example = str(ROOT / "examples" / "gateway.yaml")
    assert f"{example}: fine: " in protogate("check", "-c", example).stdout
    done = protogate("explain", "-c", example, "GET http://a.test/hotel/order/1")
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "route   everything, entry 0",
        "-> GET /hotel/order/1",
        "respond: does not apply",
        "addResponseHeader: applies",
    ):
        assert line in done.stdout
    assert "NOT PUBLISHED" in protogate("routes", "-c", example).stdout
    assert "answer  404" in protogate("explain", "-c", example, "GET http://a.test/private/x").stdout


@pytest.mark.parametrize("arguments", [[], ["check"], ["explain", "-c", "x.yaml"], ["fly", "-c", "x.yaml"]])
def test_what_is_not_understood_is_exit_status_2(arguments: list[str]) -> None:
    done = protogate(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: protogate")


@pytest.mark.parametrize("question", ["GET", "http://a.test/ GET", "GET ftp://a.test/"])
def test_a_question_that_is_none_is_exit_status_2(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-c", str(EXAMPLES[0]), question]) == 2
    assert capsys.readouterr().err.startswith("protogate explain: ")


def test_a_configuration_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = protogate("check", "-c", "missing.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "missing.yaml" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("how", ["check", "run", "twistd", "daemon"])
def test_every_fault_is_told_before_anything_starts(how: str, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "gateway.yaml").write_text(FAULTS % port)
    argv = {
        "check": [program("protogate"), "check", "-c", "gateway.yaml"],
        "run": command("protogate", "gateway.yaml"),
        "twistd": command("twistd", "gateway.yaml"),
        "daemon": command("daemon", "gateway.yaml"),  # before it goes to the background, where somebody sees them
    }[how]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN * 2, check=False, cwd=tmp_path)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "Traceback" not in told
    lines = [line for line in told.splitlines() if line.startswith("gateway.yaml:")]
    assert [line.split(":")[1] for line in lines if re.match(r"gateway\.yaml:\d+:\d+: ", line)] == list("1577"), told
    assert "zome" in told
    assert "zone" in told  # what was meant
    assert not listens(port)
    assert not (tmp_path / "daemon.pid").exists()


@pytest.mark.parametrize("how", BOTH)
def test_a_port_in_use_is_said_in_one_line(how: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "gateway.yaml"
        replace(file, config(free_port(), listen=port))
        done = subprocess.run(
            command(how, file), capture_output=True, text=True, timeout=WITHIN * 2, check=False, cwd=tmp_path
        )
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "Traceback" not in told
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in told
    assert "listeners[0].address" in told


def test_a_daemon_with_a_port_in_use_does_not_come_up_and_logs_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        replace(tmp_path / "gateway.yaml", config(free_port(), listen=port))
        done = subprocess.run(
            command("daemon", "gateway.yaml"), cwd=tmp_path, capture_output=True, timeout=WITHIN * 2, check=False
        )
    assert done.returncode == 1
    assert b"gateway.yaml:" in done.stderr + done.stdout  # twistd passes on the first 100 bytes of a reason
    reason = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    eventually(lambda: reason in (tmp_path / "daemon.log").read_text(), "the log has all of it")
    eventually(lambda: not (tmp_path / "daemon.pid").exists(), "it has ended")


def test_twistd_knows_the_command_from_anywhere() -> None:
    done = subprocess.run(
        [program("twistd"), "--help"], capture_output=True, text=True, timeout=WITHIN, check=True, cwd="/"
    )
    assert re.search(r"^ +protogate +A protocol-agnostic API gateway", done.stdout, re.MULTILINE)


def test_make_run_answers_to_the_line_that_it_prints(neighbours: Neighbours, tmp_path: Path) -> None:
    port, demo = free_port(), free_port()
    # The same recipe, in a place of its own, on the installation that runs the tests.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    (tmp_path / "pyproject.toml").touch()
    installed = tmp_path / ".venv"
    (installed / "bin").mkdir(parents=True)
    for name, path in (("python", sys.executable), ("protogate", program("protogate"))):
        (installed / "bin" / name).write_text(f'#!/bin/sh\nexec "{path}" "$@"\n')
        (installed / "bin" / name).chmod(0o755)
    for stamp in ("made.stamp", "run.stamp"):
        (installed / stamp).touch()
    argv = [need("make"), "run", f"PORT={port}", f"DEMO_PORT={demo}"]
    running = neighbours.start(argv, ready=lambda output: "curl -i" in output, cwd=tmp_path)
    printed = re.search(r"^ +(curl -i \S+)$", running.output(), re.MULTILINE)
    assert printed
    done = run([need("curl"), "-sS", *printed[1].split()[1:]])
    assert done.returncode == 0
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nx-service-call: " in head
    assert json.loads(body) == {"hello": "/hello", "from": "the demo upstream"}
    assert run([need("curl"), "-sS", f"http://127.0.0.1:{port}/ping"]).stdout == b"pong\n"
    os.killpg(running.pid, signal.SIGINT)  # Ctrl-C reaches everybody
    running.wait()
    eventually(lambda: not listens(port) and not listens(demo), "both have ended")
    assert "Traceback" not in running.output()
