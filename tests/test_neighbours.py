"""Programs of other people: how they are looked for, started and ended; what `.ci/neighbours` says of missing ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neighbours import Neighbours, free_port, listens, need, run

ROOT = Path(__file__).parent.parent
MISSING = "no-such-program"


def test_a_program_is_found_wherever_it_is() -> None:
    assert Path(need("sh")).is_absolute()


def test_without_its_program_a_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=MISSING):
        need(MISSING)


def test_without_its_program_a_test_fails_on_a_build_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=MISSING):
        need(MISSING)


def test_a_free_port_is_one_that_nobody_listens_on() -> None:
    assert not listens(free_port())


def test_a_program_that_ends_instead_of_listening_fails_with_what_it_said(neighbours: Neighbours) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)ended with 3.*my reason"):
        neighbours.python("-c", "print('my reason', flush=True); raise SystemExit(3)", port=free_port())


def test_a_program_that_ignores_sigterm_is_ended_all_the_same(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neighbours.STOP", 0.1)
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    running = neighbours.start([sys.executable, "-c", script], ready=lambda output: "up" in output)
    running.stop()
    assert running.wait() == -signal.SIGKILL


def test_real_neighbours_answer(neighbours: Neighbours) -> None:
    curl = need("curl")
    nginx, haproxy, node = free_port(), free_port(), free_port()
    neighbours.nginx(f"server {{ listen 127.0.0.1:{nginx}; return 200 nginx; }}", nginx)
    answer = "return status 200 content-type text/plain string haproxy"
    neighbours.haproxy(f"frontend web\n  bind 127.0.0.1:{haproxy}\n  http-request {answer}", haproxy)
    neighbours.node(
        f"require('http').createServer((_, answer) => answer.end('node')).listen({node}, '127.0.0.1')", node
    )
    answers = [run([curl, "-s", f"http://127.0.0.1:{port}/"]).stdout for port in (nginx, haproxy, node)]
    assert answers == [b"nginx", b"haproxy", b"node"]


@pytest.fixture
def stranger(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who is not root, and has none of the neighbours."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NEIGHBOURS": f"sh:dash {MISSING}:some-package"}


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_missing_neighbours_are_named_and_matter_on_a_build_machine(
    stranger: dict[str, str], ci: str, code: int
) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "neighbours"], env={**stranger, "CI": ci}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "not installed: some-package\n" in done.stderr
    assert "dash" not in done.stderr


def test_neighbours_that_are_there_are_not_mentioned(stranger: dict[str, str]) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "neighbours"], env={**stranger, "NEIGHBOURS": "sh:dash"}, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_python_that_is_too_old_or_missing_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "venv", MISSING, tmp_path / "venv"],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no Python >= 3.11 found" in done.stderr


def test_no_port_is_given_twice() -> None:
    """Two servers of one test would share it."""
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == len(ports)


def test_the_kernel_gives_a_free_port_to_nobody_else() -> None:
    """Whoever asked for one has the time to listen on it, and a server to come back to it."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low <= 10_000 and high == 65_535:
        pytest.skip("it keeps all ports for itself")
    assert not low <= free_port() <= high


def test_processes_of_one_run_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    found = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found.append({free_port() for _ in range(20)})
    assert not found[0] & found[1]
