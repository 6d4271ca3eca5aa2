"""
A gateway as its user starts it, and what its tests share: a client that speaks bytes, conditions that are waited for.

- Every wait is for a condition and has an end; nothing sleeps for a fixed time and hopes.
- C{GATEWAY_REACTOR=epoll} in the environment starts every gateway on that reactor of Twisted's; otherwise each runs on
  the one that it would choose.
- The gateway picks its port itself (port 0) and says which: no other program can be faster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pytest

from neighbours import Neighbour, Neighbours, need

WITHIN = 45.0
"""Seconds that anything may take: a lot, since the machine may be busy with something else."""
HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BIN = Path(sys.executable).parent
"""Where the commands of this very installation are."""

Start = Literal["twistd", "protogate", "daemon"]
T = TypeVar("T")
_LISTENER = re.compile(r"listener web on (?:127\.0\.0\.1|\[::1\]):(\d+)$", re.MULTILINE)


def eventually(look: Callable[[], T], what: str, within: float = WITHIN) -> T:
    """Wait until C{look()} gives something true, and return that."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {within:g} s", pytrace=False)
        time.sleep(0.02)
    return found


def program(name: str) -> str:
    """The full path of a command that belongs to the interpreter of the tests."""
    path = shutil.which(name, path=str(BIN))
    assert path is not None, f"{name} is not installed beside {sys.executable}"
    return path


def command(start: Start, config: Path | str) -> list[str]:
    """How a user starts a gateway.  The daemon's log is C{daemon.log}, its process id in C{daemon.pid}."""
    reactor = [f"--reactor={os.environ['GATEWAY_REACTOR']}"] if "GATEWAY_REACTOR" in os.environ else []
    if start == "twistd":
        return [program("twistd"), *reactor, "-n", "--pidfile=", "protogate", "-c", str(config)]
    if start == "daemon":
        return [
            program("twistd"), *reactor, "--pidfile=daemon.pid", "--logfile=daemon.log", "protogate", "-c", str(config),
        ]  # fmt: skip
    return [program("protogate"), "run", *reactor, "-c", str(config)]


def upstream(name: str, *ports: int, **settings: Any) -> dict[str, Any]:
    """An upstream on ports of this machine."""
    return {"name": name, "endpoints": [{"url": f"http://127.0.0.1:{port}"} for port in ports], **settings}


def config(port: int, /, *, listen: int = 0, **parts: Any) -> dict[str, Any]:
    """One listener, one upstream, one rule for everything; C{parts} replace what they name."""
    return {
        "listeners": [{"name": "web", "address": f"127.0.0.1:{listen}"}],
        "upstreams": [upstream("origin", port)],
        "routes": [
            {"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]},
            {"type": "method", "value": "CONNECT", "routes": [{"targets": [{"upstream": "origin"}]}]},
        ],
        **parts,
    }


class Gateway:
    """
    One gateway, running.

    @ivar port: where it listens.
    @ivar file: its configuration.
    @ivar running: its process.
    """

    def __init__(self, running: Neighbour, file: Path) -> None:
        self.running, self.file = running, file
        self.port = listening(running.output())

    @property
    def url(self) -> str:
        """Where it answers, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it said so far."""
        return self.running.output()

    def says(self, text: str, times: int = 1) -> None:
        """Wait until it has said that so often."""
        eventually(lambda: self.log.count(text) >= times, f"the gateway says {text!r}; it said\n{self.log}")

    def write(self, settings: Mapping[str, Any] | str) -> None:
        """Replace its configuration in one step."""
        replace(self.file, settings)

    def hangup(self, settings: Mapping[str, Any]) -> None:
        """Replace its configuration, and wait until it is in force after a SIGHUP."""
        before = self.log.count("is in force")
        self.write(settings)
        self.running.signal(signal.SIGHUP)
        self.says("is in force", before + 1)

    def stop(self) -> None:
        """End it, and wait until it has: its last lines are written on the way out."""
        self.running.signal(signal.SIGTERM)
        self.running.wait()

    def records(self) -> list[dict[str, Any]]:
        """The lines of its access log, where that is C{access.log}."""
        return records(self.file.parent / "access.log")

    def healthy(self) -> None:
        """Nothing went wrong inside."""
        log = self.log
        assert "Traceback" not in log, log
        assert "Unhandled" not in log, log


def listening(log: str) -> int:
    """The port that a gateway's log tells of, or 0."""
    found = _LISTENER.search(log)
    return int(found[1]) if found else 0


def records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of an access log."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("ascii").splitlines(keepends=True) if line.endswith("\n")]


def replace(file: Path, settings: Mapping[str, Any] | str) -> None:
    """Write a configuration as deployments do: beside the old one, then in its place."""
    text = settings if isinstance(settings, str) else json.dumps(settings, indent=1)
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def start(neighbours: Neighbours, settings: Mapping[str, Any], how: Start = "protogate") -> Gateway:
    """Start a gateway in a directory of its own, ready when it has said where it listens."""
    home = neighbours.directory / f"gateway-{len(list(neighbours.directory.glob('gateway-*')))}"
    home.mkdir()
    file = home / "gateway.yaml"  # JSON is YAML
    replace(file, settings)
    running = neighbours.start(command(how, file), ready=lambda output: listening(output) > 0, cwd=home)
    return Gateway(running, file)


class Wire:
    """A client, or a server's side, that speaks bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(WITHIN)
        self._held = b""

    def send(self, data: bytes) -> None:
        """All of it."""
        self.socket.sendall(data)

    def half_close(self) -> None:
        """Nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def until(self, mark: bytes) -> bytes:
        """What comes, up to and with C{mark}."""
        while mark not in self._held:
            piece = self.socket.recv(65536)
            assert piece, f"closed before {mark!r}; came: {self._held!r}"
            self._held += piece
        head, _, self._held = self._held.partition(mark)
        return head + mark

    def exactly(self, count: int) -> bytes:
        """So many bytes."""
        while len(self._held) < count:
            piece = self.socket.recv(65536)
            assert piece, f"closed after {len(self._held)} of {count} bytes"
            self._held += piece
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def rest(self) -> bytes:
        """All that comes until the other side closes."""
        while piece := self.socket.recv(65536):
            self._held += piece
        taken, self._held = self._held, b""
        return taken

    def answer(self) -> tuple[bytes, bytes]:
        """Head and body of an answer with a Content-Length."""
        head = self.until(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)\r\n", head)
        assert length, head
        return head, self.exactly(int(length[1]))


@contextmanager
def wire(port: int) -> Iterator[Wire]:
    """A connection to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as connection:
        yield Wire(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def heads(answer: bytes) -> list[tuple[str, dict[str, str]]]:
    """Status line and fields of each head at the start of C{curl -i} output; field names in lower case."""
    found = []
    while answer.startswith(b"HTTP/"):
        head, _, answer = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        found.append((first, {name.lower(): value.strip() for name, _, value in pairs}))
    return found


def script(name: str) -> list[str]:
    """The command line of a helper beside the tests."""
    path = str(HERE / name)
    return [need("node"), path] if name.endswith(".js") else [sys.executable, path]


class Origin(NamedTuple):
    """A server behind the gateway."""

    port: int
    running: Neighbour


def origin(neighbours: Neighbours, name: str, cwd: Path | None = None, arguments: Sequence[str] = ()) -> Origin:
    """Start a server that is beside the tests; it prints C{listening PORT} when it does."""
    argv = [*script(name), *arguments]
    running = neighbours.start(argv, ready=lambda output: re.search(r"listening (\d+)\n", output) is not None, cwd=cwd)
    found = re.search(r"listening (\d+)\n", running.output())
    assert found
    return Origin(int(found[1]), running)
