"""
A gateway with several workers, a module that tells which of them it runs in, and clients that notice what they lose.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from gateways import WITHIN, Gateway, Start, command, config, eventually, listening, replace
from neighbours import Neighbours

PLUGIN = """
from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin
whereabouts = Plugin(IModuleFactory, "whereabouts", "whereabouts.Factory")
"""
MODULE = """
import os, threading, time
from zope.interface import implementer
from protogate.interfaces import IModule, IModuleFactory

VERSION = "one"

@implementer(IModule)
class Whereabouts:
    warnings = ()

    def process(self, exchange):
        if exchange.request.target == b"/hang":
            time.sleep(60)
        here = f"{os.getpid()}/{threading.get_ident()}"
        exchange.notes.setdefault("here", []).append(here)
        if exchange.response is not None:
            exchange.response.headers.set(b"x-pid", str(os.getpid()).encode())
            exchange.response.headers.set(b"x-version", VERSION.encode())

@implementer(IModuleFactory)
class Factory:
    name = "whereabouts"
    stages = ("PRE_REQUEST", "PRE_UPSTREAM", "PRE_RESPONSE", "POST_RESPONSE")
    guards = False

    def build(self, params, stage=None):
        return Whereabouts()
"""
STAGES = ("PRE_REQUEST", "PRE_UPSTREAM", "PRE_RESPONSE", "POST_RESPONSE")


def crowd(port: int, workers: int | str, mark: str = "0", /, **parts: Any) -> dict[str, Any]:
    """A configuration with workers whose answers say which they are of, and which worker they are from."""
    where = [{"name": "whereabouts", "stage": stage} for stage in STAGES]
    module = {"name": "addResponseHeader", "stage": "PRE_RESPONSE", "actionParam": {"x-mark": mark}}
    gateway = {"watch": False, "workers": workers, **parts.pop("gateway", {})}
    return config(port, gateway=gateway, modules=[*where, module], accessLog={"file": "access.log"}, **parts)


def code(folder: Path) -> Path:
    """Make the module, where a gateway's PYTHONPATH may lead."""
    plugins = folder / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "whereabouts_plugin.py").write_text(PLUGIN)
    (folder / "whereabouts.py").write_text(MODULE)
    return folder


class Crowd(Gateway):
    """
    A gateway with workers.

    @ivar code: the folder of its module.
    """

    code: Path

    def workers(self) -> list[int]:
        """The processes that serve, by slot: those that said so last."""
        found: dict[str, int] = {}
        for slot, pid in re.findall(r"worker (\d+) \(pid (\d+)\) serves", self.log):
            found[slot] = int(pid)
        return [found[slot] for slot in sorted(found)]

    def serving(self, number: int) -> None:
        """Wait until so many workers in all have begun to serve since the start."""
        self.says(" serves\n", number)


def begin(
    neighbours: Neighbours, settings: Mapping[str, Any], how: Start | Literal["nobody"] = "protogate", **env: str
) -> Crowd:
    """Start one, perhaps by twistd and as nobody; ready when its first workers serve."""
    home = neighbours.directory / f"crowd-{len(list(neighbours.directory.glob('crowd-*')))}"
    home.mkdir()
    file = home / "gateway.yaml"
    replace(file, settings)
    folder = code(home / "code")
    line = command("twistd" if how == "nobody" else how, file)
    if how == "nobody":
        line[1:1] = ["--uid=nobody", "--gid=nogroup"]
    wanted = "workers serve" if settings["gateway"]["workers"] else ""
    running = neighbours.start(
        line,
        ready=lambda output: listening(output) > 0 and wanted in output,
        cwd=home,
        env={"PYTHONPATH": str(folder), **env},
    )
    made = Crowd(running, file)
    made.code = folder
    return made


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def gone(*pids: int) -> None:
    """Wait until these processes are gone."""
    eventually(lambda: not any(map(alive, pids)), f"processes {pids} are gone")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that this test's gateway started."""
    os.kill(pid, number)


class Client(threading.Thread):
    """
    Asks one request after the other on a kept connection, and makes a new one when it is told to.

    @ivar answered: how often each worker answered.
    @ivar lost: for each request without an answer: the worker its connection belonged to (0 = not known), and why.
    """

    def __init__(self, port: int, pause: float) -> None:
        super().__init__(daemon=True)
        self._port, self._pause = port, pause
        self._over = threading.Event()
        self.answered: Counter[int] = Counter()
        self.lost: list[tuple[int, str]] = []
        self.marks: set[str] = set()

    def run(self) -> None:
        """Until C{finish()}."""
        connection: socket.socket | None = None
        pid = 0
        number = 0
        while not self._over.is_set():
            try:
                if connection is None:
                    pid = 0
                    connection = socket.create_connection(("127.0.0.1", self._port), timeout=WITHIN)
                number += 1
                connection.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
                head = self._answer(connection)
                found = re.search(rb"x-pid: (\d+)", head)
                assert found
                pid = int(found[1])
                self.answered[pid] += 1
                if b"\r\nconnection: close" in head:
                    connection.close()
                    connection = None
            except (OSError, AssertionError) as error:
                self.lost.append((pid, repr(error)))
                if connection is not None:
                    connection.close()
                connection = None
            self._over.wait(self._pause)
        if connection is not None:
            connection.close()

    def _answer(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"hello\n"):
            piece = connection.recv(65536)
            assert piece, f"closed after {data!r}"
            data += piece
        assert data.startswith(b"HTTP/1.1 200 "), data
        return data

    def finish(self) -> None:
        """Stop, after the request under way."""
        self._over.set()
        self.join(WITHIN)
        assert not self.is_alive(), "a client waits for its answer"


class Load:
    """Several clients."""

    def __init__(self, port: int, clients: int, pause: float) -> None:
        self.clients = [Client(port, pause) for _ in range(clients)]

    @property
    def answered(self) -> Counter[int]:
        """Of all."""
        return sum((Counter(client.answered) for client in self.clients), Counter())

    @property
    def lost(self) -> list[tuple[int, str]]:
        """Of all."""
        return [each for client in self.clients for each in client.lost]

    def goes_on(self, answers: int = 50) -> None:
        """Wait for so many more answers: also of clients that hang."""
        before = [client.answered.total() + len(client.lost) for client in self.clients]
        least = max(answers // len(self.clients), 1)
        eventually(
            lambda: all(
                client.answered.total() + len(client.lost) >= at + least
                for client, at in zip(self.clients, before, strict=True)
            ),
            "every client gets answers",
        )


@contextmanager
def load(port: int, clients: int = 8, pause: float = 0.02) -> Iterator[Load]:
    """Clients at work, with pauses: there is more to do on this machine."""
    made = Load(port, clients, pause)
    for client in made.clients:
        client.start()
    try:
        made.goes_on()
        yield made
    finally:
        for client in made.clients:
            with suppress(AssertionError):
                client.finish()
    for client in made.clients:
        client.finish()


def holder(pids: list[int], port: int, of: int) -> list[int]:
    """Which of these processes have the connection between C{port}, here, and the client's port C{of}."""
    wanted = f"0100007F:{port:04X} 0100007F:{of:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if f"{fields[1]} {fields[2]}" == wanted:
            inode = f"socket:[{fields[9]}]"
            return [pid for pid in pids if inode in _descriptors(pid)]
    return []


def _descriptors(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(each))
    return found


def within(seconds: float) -> float:
    """A deadline."""
    return time.monotonic() + seconds
