"""
Programs of other people as neighbours of a gateway: nginx, HAProxy, Node, curl and what else a test may want.

- Nothing here touches an instance that the system runs: each is started by the test, in its own directory, on a free
  port of the loopback interface, and ended by its process id.
- C{need} skips a test whose program is not installed, except under C{CI=true}: there it fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import processes

READY = 45.0
"""Seconds within which a program must listen: a lot, since the machine may be busy with something else."""
STOP = 5.0
"""Seconds between asking a program to end and making it."""


def free_port() -> int:
    """
    As that of the benches, and one that will be given to no test in another process of pytest-xdist: each of these has
    ports of its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while (port := processes.free_port()) % workers != worker:
        pass
    return port


def need(command: str) -> str:
    """The full path of a program; without it the test is skipped, or fails under C{CI=true}."""
    path = shutil.which(command) or shutil.which(command, path="/usr/sbin:/usr/local/sbin:/sbin")
    if path is None:
        message = f"{command} is not installed; `make test` as root installs it (.ci/neighbours lists all)"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return path


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts on a TCP port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


class Neighbour:
    """
    One program that runs.

    @ivar pid: its process id.
    @ivar log: the file that has its standard output and standard error.
    """

    def __init__(
        self, argv: Sequence[str], log: Path, cwd: Path, env: Mapping[str, str] | None, ready: Callable[[str], bool]
    ) -> None:
        self.argv, self.log = argv, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        try:
            self._wait(ready)
        except BaseException:
            self.stop()
            raise

    def _wait(self, ready: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + READY
        while not ready(self.output()):
            code = self._process.poll()
            if code is not None:
                pytest.fail(f"{self.argv[0]} ended with {code}:\n{self.output()}", pytrace=False)
            if time.monotonic() > deadline:
                pytest.fail(f"{self.argv[0]} was not ready after {READY:g} s:\n{self.output()}", pytrace=False)
            time.sleep(0.01)

    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, timeout: float = READY) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(timeout)

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL if that is not enough."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP)


class Neighbours:
    """Starts them for one test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[Neighbour] = []

    def start(
        self,
        argv: Sequence[str],
        *,
        port: int | None = None,
        ready: Callable[[str], bool] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Neighbour:
        """Run a program; it is ready when C{ready(output)} says so, or when it listens on C{port}, or at once."""
        if ready is None:
            ready = (lambda _: True) if port is None else (lambda _: listens(port))
        log = self.directory / f"{Path(argv[0]).name}-{len(self._running)}.log"
        neighbour = Neighbour(argv, log, cwd or self.directory, env, ready)
        self._running.append(neighbour)
        return neighbour

    def stop(self) -> None:
        """End them all, the last one first."""
        while self._running:
            self._running.pop().stop()

    def nginx(self, http: str, port: int) -> Neighbour:
        """nginx with C{http} as the inside of its http block, ready when it listens on C{port}."""
        program = need("nginx")
        home = self.directory / f"nginx-{port}"
        home.mkdir()
        # Where the compiled-in defaults would be the system's.
        paths = "\n".join(
            f"  {name}_temp_path {home}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.geteuid() == 0 else ""
        config = home / "nginx.conf"
        config.write_text(
            f"{user}daemon off;\nworker_processes 1;\npid {home}/pid;\nerror_log stderr warn;\n"
            f"events {{ worker_connections 512; }}\nhttp {{\n  access_log off;\n{paths}\n{http}\n}}\n"
        )
        return self.start([program, "-p", str(home), "-e", "stderr", "-c", str(config)], port=port)

    def haproxy(self, sections: str, port: int) -> Neighbour:
        """HAProxy in HTTP mode with these frontends and backends, ready when it listens on C{port}."""
        program = need("haproxy")
        config = self.directory / f"haproxy-{port}.cfg"
        config.write_text(
            "global\n  maxconn 512\n  nbthread 1\n"
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n"
            f"{sections}\n"
        )
        return self.start([program, "-db", "-f", str(config)], port=port)

    def node(self, script: str, port: int) -> Neighbour:
        """Node with a script that listens on C{port}."""
        program = need("node")
        path = self.directory / f"node-{port}.js"
        path.write_text(script)
        return self.start([program, str(path)], port=port)

    def python(self, *arguments: str, port: int | None = None) -> Neighbour:
        """The interpreter that runs the tests."""
        return self.start([sys.executable, *arguments], port=port)


def run(argv: Sequence[str], *, timeout: float = 60.0, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """A program to its end.  It blocks: not for what needs this process's own reactor; see L{start}."""
    return subprocess.run(argv, input=data, capture_output=True, timeout=timeout, check=False)
