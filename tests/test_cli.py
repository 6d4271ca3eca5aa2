"""The command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from protogate.cli import main

FINE = """
listeners: [{name: web, address: "127.0.0.1:0"}]
upstreams: [{name: orders, endpoints: [{url: "http://127.0.0.1:9"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: orders}]}]}]
"""
UNUSED = FINE.replace("routes:", "# routes:")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    status = main(arguments, out)
    return status, out.getvalue()


def test_check_of_a_fine_file(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(FINE)
    assert run("check", "-c", "gateway.yaml") == (
        0,
        "gateway.yaml: fine: 1 listener, 1 upstream, 1 route, 0 modules\n",
    )


def test_check_prints_warnings_and_succeeds(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(UNUSED)
    status, text = run("check", "-c", "gateway.yaml")
    assert status == 0
    first, last = text.splitlines()
    assert first.startswith("gateway.yaml:3:")
    assert first.endswith("(warning)")
    assert last == "gateway.yaml: fine: 1 listener, 1 upstream, 0 routes, 0 modules; 1 warning"


def test_a_strict_check_takes_warnings_for_faults(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(UNUSED)
    plain, strict = run("check", "-c", "gateway.yaml"), run("check", "--strict", "-c", "gateway.yaml")
    assert plain == (0, strict[1])
    assert strict[0] == 1
    (folder / "gateway.yaml").write_text(FINE)
    assert run("check", "--strict", "-c", "gateway.yaml")[0] == 0


FAULTY = """
listeners: [{name: web, address: "127.0.0.1:0", protocols: [http9]}]
upstreams: [{name: orders, protocol: sotp9, endpoints: [{url: "http://127.0.0.1:9"}]}]
routes: [{value: "(", matcherType: regex, routes: [{condition: "requst.path", targets: [{upstream: orders}]}]}]
modules: [{name: nothing}, {name: respond, condition: "1"}]
accessLog: {file: a.log, always: "response.statu == 1"}
"""


def test_every_fault_of_every_part_comes_in_one_report_in_file_order(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(FAULTY)
    for command in (["check"], ["routes"], ["explain", "GET /"]):
        status, text = run(*command, "-c", "gateway.yaml")
        assert status == 1
        *lines, last = text.splitlines()
        assert last == f"gateway.yaml: {len(lines)} faults"
        places = [line.split(": ")[1] for line in lines]
        assert places[:4] == [
            "listeners[0].protocols[0]",
            "upstreams[0].protocol",
            "routes[0].value",
            "routes[0].routes[0].condition",
        ]
        assert set(places[4:]) == {"modules[0].name", "modules[1].condition", "accessLog.always"}
        assert lines[0].startswith("gateway.yaml:2:")


def test_a_file_that_is_not_there(folder: Path) -> None:
    status, text = run("check", "-c", "missing.yaml")
    assert status == 1
    assert text.splitlines() == [
        "missing.yaml: the file cannot be opened: No such file or directory",
        "missing.yaml: 1 fault",
    ]


def test_routes_and_explain(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(FINE)
    status, text = run("routes", "-c", "gateway.yaml")
    assert (status, text.splitlines()[0]) == (0, "routes[0] uri prefix /")
    status, text = run("explain", "-c", "gateway.yaml", "GET http://a.test/x", "-H", "X-A: b", "--from", "192.0.2.1")
    assert status == 0
    assert "  source  192.0.2.1" in text


def test_a_question_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "gateway.yaml").write_text(FINE)
    assert run("explain", "-c", "gateway.yaml", "GET") == (2, "")
    assert "protogate explain: expected a method and a URL" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["check"], ["nothing"], ["explain", "-c", "x"]])
def test_what_is_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: protogate" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["--help"], ["run", "--help"], ["explain", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert "protogate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain", "-c", "gateway.yaml", "/", "--from", "999"], "explain: expected the address of a client"),
        (["explain", "-c", "gateway.yaml", "/", "--status", "99"], "explain: expected the status of an answer"),
        (["run", "-c", "gateway.yaml", "--reactor", "none"], "run: no reactor named 'none'; installed: "),
        (["upgrade", "--pidfile", "gone.pid"], "upgrade: gone.pid: No such file or directory"),
        (["upgrade", "--pidfile", "gateway.yaml"], "upgrade: gateway.yaml: "),
        (["upgrade", "--pid", "999999999"], "upgrade: process 999999999: No such process"),
        (["decode", "http1", "gone"], "decode: gone: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_with_what_it_is_about(
    arguments: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "gateway.yaml").write_text(FINE)
    assert run(*arguments)[0] in {1, 2}
    assert capsys.readouterr().err.startswith(f"protogate {told}")


def test_an_upgrade_is_a_signal_to_whoever_understands_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    try:
        assert run("upgrade", "--pid", str(os.getpid())) == (
            0,
            f"process {os.getpid()} was asked; its log says how it went\n",
        )
        (folder / "gw.pid").write_text(f"{os.getpid()}\n")
        assert run("upgrade", "--pidfile", "gw.pid")[0] == 0
        assert heard == [signal.SIGUSR2] * 2
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert run("upgrade", "--pid", str(os.getpid())) == (1, "")
        assert "is no gateway" in capsys.readouterr().err
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not the id of a process"),
        ("1_2", "'1_2' is not the id of a process"),
        ("\xe4", "is not the id of a process"),
        ("4194304", "No such process"),
        (None, "No such file"),
    ],
)
def test_an_upgrade_of_nothing(folder: Path, text: str | None, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    if text is not None:
        (folder / "gw.pid").write_text(text)
    assert run("upgrade", "--pidfile", "gw.pid") == (1, "")
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "-4711", "99999999999999999999"])
def test_an_upgrade_is_never_for_more_than_one_process(
    folder: Path, number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill(pid: int, number: int) -> None:
        raise AssertionError(f"kill({pid}, {number})")  # 0 would be this process's group, -1 everybody

    monkeypatch.setattr(os, "kill", kill)
    (folder / "gw.pid").write_text(number)
    assert run("upgrade", "--pidfile", "gw.pid") == (1, "")
    assert f"{number!r} is not the id of a process" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", f"--pid={number}"])
    assert ended.value.code == 2


def test_python_dash_m(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(FINE)
    done = subprocess.run(
        [sys.executable, "-m", "protogate", "check", "-c", "gateway.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "fine" in done.stdout
