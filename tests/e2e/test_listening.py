"""Where a gateway listens, and how it goes to the background."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from gateways import WITHIN, command, config, eventually, listening, replace, start, wire
from neighbours import Neighbours, listens, need, run


def test_on_ipv6(neighbours: Neighbours, node: int) -> None:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        gateway = start(neighbours, config(node, listeners=[{"name": "web", "address": "[::1]:0"}]))
        done = run([need("curl"), "-sS", "-g", f"http://[::1]:{gateway.port}/hello"])
        assert done.stdout == b"hello\n"
        gateway.healthy()
        return
    pytest.skip("this machine has no ::1")


def test_on_a_unix_socket(neighbours: Neighbours, node: int, tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    listeners = [{"name": "web", "address": "127.0.0.1:0"}, {"name": "local", "address": f"unix:{path}"}]
    gateway = start(neighbours, config(node, listeners=listeners), "twistd")
    done = run([need("curl"), "-sS", "--unix-socket", str(path), "http://a/hello", "http://a/bytes/300000"])
    assert done.stdout == b"hello\n" + b"x" * 300_000
    gateway.running.signal(signal.SIGTERM)
    gateway.running.wait()
    assert not path.exists()
    gateway.healthy()


def test_in_the_background(node: int, tmp_path: Path) -> None:
    replace(tmp_path / "gateway.yaml", config(node, accessLog={"file": "access.log"}))
    # twistd waits for its child to have started: where this ends, the port is open.
    done = subprocess.run(
        command("daemon", "gateway.yaml"), cwd=tmp_path, capture_output=True, timeout=WITHIN * 2, check=False
    )
    pid = 0
    with suppress(OSError, ValueError):
        pid = int((tmp_path / "daemon.pid").read_text())
    try:
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        port = listening((tmp_path / "daemon.log").read_text())
        with wire(port) as client:
            client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.answer()[1] == b"hello\n"
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not (tmp_path / "daemon.pid").exists(), "it has ended")
        assert not listens(port)
        assert (tmp_path / "access.log").read_text().count("\n") == 1
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
