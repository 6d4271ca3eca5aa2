"""New code in the place of the old, while clients are served."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from crowd import Crowd, alive, begin, code, crowd, gone, load
from test_workers import ask
from websockets.sync.client import connect

from gateways import WITHIN, Start, command, eventually, listening, origin, program, replace, wire
from neighbours import Neighbours, run

UPGRADED = "workers with the new code serve"


def upgrade(gateway: Crowd, version: str) -> None:
    """Install another version, and ask for it as an operator does."""
    before = gateway.log.count(UPGRADED)
    install(gateway.code, version)
    done = run([program("protogate"), "upgrade", "--pid", str(gateway.running.pid)])
    assert done.stdout == f"process {gateway.running.pid} was asked; its log says how it went\n".encode()
    gateway.says(UPGRADED, before + 1)


def install(folder: Path, version: str) -> None:
    """Replace the module."""
    text = (folder / "whereabouts.py").read_text()
    replace(folder / "whereabouts.py", re.sub(r'VERSION = "\w+"', f'VERSION = "{version}"', text))


@pytest.mark.parametrize("how", ["protogate", "twistd"])
def test_two_upgrades_lose_no_request_and_no_connection(neighbours: Neighbours, node: int, how: Start) -> None:
    sockets = origin(neighbours, "websocket_server.py").port
    to_sockets = {"targets": [{"url": f"http://127.0.0.1:{sockets}/echo"}]}
    # What is under way outlasts two upgrades, on a busy machine as well.
    settings = crowd(node, 2, gateway={"drain": "10m", "timeouts": {"responseStall": "10m", "clientStall": "10m"}})
    settings["routes"].insert(0, {"value": "/ws", "matcherType": "prefix", "routes": [to_sockets]})
    # One of them on Twisted's own reactor, in workers as in the supervisor.
    env = {"PROTOGATE_REACTOR": "epoll"} if how == "twistd" else {}
    gateway = begin(neighbours, settings, how, **env)
    assert ("on EPollReactor" in gateway.log) is (how == "twistd")
    pid, first = gateway.running.pid, gateway.workers()
    url = f"ws://127.0.0.1:{gateway.port}/ws"
    with (
        connect(url, open_timeout=WITHIN, close_timeout=WITHIN, proxy=None) as tunnel,
        wire(gateway.port) as download,
        load(gateway.port) as clients,
    ):
        tunnel.send("before")
        assert tunnel.recv(WITHIN) == "before"
        download.send(f"GET /hold/upgrade-{how} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        download.until(b"first\n")
        for version in ("two", "three"):
            upgrade(gateway, version)
            clients.goes_on()
            assert ask(gateway.port)[1]["x-version"] == version
        # What began under the first code is still there, in processes of the first code.
        tunnel.send("after")
        assert tunnel.recv(WITHIN) == "after"
        tunnel.close(1000)
        with wire(node) as behind:
            behind.send(f"GET /release/upgrade-{how} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert behind.answer()[1] == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    assert clients.lost == []
    assert len(clients.answered) >= 4, "workers of several generations answered"
    gone(*first)
    assert (" on UVReactor" in gateway.log) is (how == "protogate")
    assert gateway.running.pid == pid
    assert alive(pid)
    gateway.hangup(crowd(node, 1, "later"))  # the new program reloads as the old one did
    assert ask(gateway.port)[1]["x-mark"] == "later"
    gateway.running.signal(signal.SIGTERM)
    assert gateway.running.wait() == (0 if how == "protogate" else -signal.SIGTERM)
    records = gateway.records()
    assert len({record["id"] for record in records}) == len(records)
    gateway.healthy()


def test_code_that_does_not_start_changes_nothing_and_says_why(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    workers = gateway.workers()
    with load(gateway.port, 4) as clients:
        (gateway.code / "whereabouts.py").write_text("import nothing_of_that_name\n")
        gateway.running.signal(signal.SIGUSR2)
        gateway.says("no upgrade, all is as before: exit status 1")
        gateway.says("No module named 'nothing_of_that_name'")
        clients.goes_on()
        assert gateway.workers() == workers
        assert all(map(alive, workers))
    assert clients.lost == []
    code_again = gateway.code / "whereabouts.py"
    code_again.unlink()
    other = code(gateway.code / "other")
    (other / "whereabouts.py").rename(code_again)
    upgrade(gateway, "two")
    assert ask(gateway.port)[1]["x-version"] == "two"


def test_code_whose_workers_do_not_serve_leaves_the_old_ones_at_work(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    workers = gateway.workers()
    good = (gateway.code / "whereabouts.py").read_text()
    # Fine where it is tried; in a worker it is not.
    bad = "import sys\nif any('worker' in word for word in sys.orig_argv): sys.exit('not here')\n"
    with load(gateway.port, 4) as clients:
        (gateway.code / "whereabouts.py").write_text(bad + good)
        gateway.running.signal(signal.SIGUSR2)
        gateway.says("no upgrade, the workers that were there go on")
        clients.goes_on()
        assert all(map(alive, workers))
        (gateway.code / "whereabouts.py").write_text(good)
        upgrade(gateway, "two")
        clients.goes_on()
    assert clients.lost == []
    gone(*workers)


def test_a_daemon_keeps_its_pid_file(node: int, tmp_path: Path) -> None:
    replace(tmp_path / "gateway.yaml", crowd(node, 2))
    folder = code(tmp_path / "code")
    log = tmp_path / "daemon.log"
    subprocess.run(
        command("daemon", "gateway.yaml"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        timeout=WITHIN * 2,
        check=True,
    )
    pid = int((tmp_path / "daemon.pid").read_text())
    try:
        eventually(lambda: "workers serve" in log.read_text(), "it serves")
        port = listening(log.read_text())
        assert ask(port)[1]["x-version"] == "one"
        install(folder, "two")
        done = run([program("protogate"), "upgrade", "--pidfile", str(tmp_path / "daemon.pid")])
        assert done.returncode == 0, done.stderr
        eventually(lambda: UPGRADED in log.read_text(), "it is upgraded")
        assert ask(port)[1]["x-version"] == "two"
        assert int((tmp_path / "daemon.pid").read_text()) == pid
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not alive(pid), "it has ended")
        assert not (tmp_path / "daemon.pid").exists()
    finally:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in log.read_text()


def test_a_process_that_would_end_is_not_asked(neighbours: Neighbours) -> None:
    other = neighbours.python("-c", "import time; time.sleep(60)")
    done = run([program("protogate"), "upgrade", "--pid", str(other.pid)])
    assert (done.returncode, done.stderr) == (1, f"protogate upgrade: process {other.pid} is no gateway\n".encode())
    assert alive(other.pid)
    done = run([program("protogate"), "upgrade", "--pidfile", str(neighbours.directory / "none.pid")])
    assert done.returncode == 1
    assert b"No such file" in done.stderr
