"""What operators and a service manager see of a gateway that runs: its pages, its notifications, inherited sockets."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateways import WITHIN, Gateway, Wire, command, config, eventually, listening, replace, wire
from neighbours import Neighbours, free_port, need

GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
DONE = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


REQUESTS = ("protogate_requests_under_way", "web")


class Manager:
    """The service manager's end of NOTIFY_SOCKET; C{heard} is every message so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def hears(self, key: str, times: int = 1) -> dict[str, str]:
        """Wait until it was told so often; gives the last one."""

        def look() -> dict[str, str] | None:
            while True:
                try:
                    text = self._socket.recv(65536).decode()
                except BlockingIOError:
                    break
                self.heard.append(dict(line.split("=", 1) for line in text.split("\n")))
            found = [message for message in self.heard if key in message]
            return found[times - 1] if len(found) >= times else None

        return eventually(look, f"{key} is told {times} times") or {}

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@contextmanager
def asked(upstream: socket.socket) -> Iterator[Wire]:
    """The upstream's end of a request that came; its answer is to be L{DONE}."""
    connection, _ = upstream.accept()
    with connection:
        made = Wire(connection)
        made.until(b"\r\n\r\n")
        yield made


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page for operators."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def metrics(port: int) -> dict[tuple[str, ...], float]:
    """(name, label value …) → number."""
    status, text = ask(port, "/metrics")
    assert status == 200
    families: Any = text_string_to_metric_families(text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def begin(
    neighbours: Neighbours, settings: dict[str, Any], words: list[str] | None = None, **env: str
) -> tuple[Gateway, Path]:
    file = neighbours.directory / "gateway.yaml"
    replace(file, settings)
    words = [*(words or ()), *command("protogate", file)]
    running = neighbours.start(words, ready=lambda output: listening(output) > 0, env=env)
    return Gateway(running, file), file


@pytest.mark.parametrize("workers", [0, 2])
def test_a_gateway_from_its_start_to_its_stop(neighbours: Neighbours, manager: Manager, workers: int) -> None:
    admin, silent = free_port(), socket.create_server(("127.0.0.1", 0))
    settings = config(
        silent.getsockname()[1],
        gateway={"workers": workers, "drain": "20s", "watch": False},
        admin={"address": f"127.0.0.1:{admin}"},
    )
    gateway, file = begin(neighbours, settings, NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="400000")
    with silent:
        manager.hears("READY")
        manager.hears("WATCHDOG", 3)
        eventually(lambda: ask(admin, "/readyz")[0] == 200, "it is ready")
        assert ask(admin, "/livez") == (200, "alive\n")

        with wire(gateway.port) as client:
            client.send(GET)
            with asked(silent) as upstream:
                eventually(lambda: metrics(admin).get(REQUESTS) == 1, "one request is under way")
                assert metrics(admin)["protogate_upstream_connections_open", "origin"] == 1
                upstream.send(DONE)
            client.until(b"\r\n\r\n")
        with wire(gateway.port) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")  # no Host
            client.rest()
        eventually(lambda: metrics(admin).get(("protogate_exchanges_total", "failed")) == 1, "a failure is counted")
        found = metrics(admin)
        assert found["protogate_exchanges_total", "ok"] == 1
        assert found["protogate_failures_total", "client"] == 1
        assert found["protogate_listener_events_total", "connections_accepted", "web"] == 2

        assert len([message for message in manager.heard if "READY" in message]) == 1
        gateway.running.signal(signal.SIGHUP)
        assert int(manager.hears("RELOADING")["MONOTONIC_USEC"]) > 0
        manager.hears("READY", 2)
        eventually(lambda: metrics(admin).get(("protogate_reloads_total", "ok")) == 1, "the reload is counted")
        file.write_text("listeners: 7")
        gateway.running.signal(signal.SIGHUP)
        manager.hears("READY", 3)  # what was in force still is
        eventually(lambda: metrics(admin).get(("protogate_reloads_total", "failed")) == 1, "so is one that failed")
        assert ask(admin, "/readyz")[0] == 200

        with wire(gateway.port) as client:
            client.send(GET)
            with asked(silent) as upstream:
                gateway.running.signal(signal.SIGTERM)
                manager.hears("STOPPING")
                status, text = ask(admin, "/readyz")
                assert status == 503
                assert "stop" in text
                assert ask(admin, "/livez")[0] == 200
                upstream.send(DONE)
            assert b" 204 " in client.until(b"\r\n\r\n")
        assert gateway.running.wait() == 0
    gateway.healthy()


SLOW = """
import time
from zope.interface import implementer
from protogate.interfaces import IModule, IModuleFactory

@implementer(IModule)
class Slow:
    def process(self, exchange):
        time.sleep(0.3)

@implementer(IModuleFactory)
class SlowFactory:
    name, stages, guards = "slow", ("PRE_REQUEST",), False

    def build(self, params):
        return Slow()
"""
DROP_IN = """
from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin

slow = Plugin(IModuleFactory, "slow", "acme_slow.SlowFactory")
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_module_that_blocks_is_named_and_counted(neighbours: Neighbours, workers: int) -> None:
    site, admin = neighbours.directory / "site", free_port()
    (site / "twisted" / "plugins").mkdir(parents=True)
    (site / "acme_slow.py").write_text(SLOW)
    (site / "twisted" / "plugins" / "acme_slow_plugin.py").write_text(DROP_IN)
    settings = config(
        free_port(),
        gateway={"workers": workers},
        admin={"address": f"127.0.0.1:{admin}"},
        modules=[{"name": "slow", "stage": "PRE_REQUEST"}],
    )
    gateway, _ = begin(neighbours, settings, PYTHONPATH=str(site))
    with wire(gateway.port) as client:
        client.send(GET)
        client.until(b"\r\n\r\n")
    eventually(lambda: metrics(admin).get(("protogate_loop_blocked_total",), 0) >= 1, "it is counted")
    assert metrics(admin)["protogate_loop_blocked_seconds_total",] > 0.1
    gateway.says(f"{site / 'acme_slow.py'}:9 Slow.process")
    gateway.healthy()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_gateway_takes_over_the_socket_that_systemd_opened(neighbours: Neighbours, workers: int) -> None:
    tool, port = need("systemd-socket-activate"), free_port()
    file = neighbours.directory / "gateway.yaml"
    settings = config(1, gateway={"workers": workers})
    settings["listeners"][0]["address"] = f"127.0.0.1:{port}"
    replace(file, settings)
    words = [tool, "-l", f"127.0.0.1:{port}", "--fdname=web", *command("protogate", file)]
    running = neighbours.start(words, ready=lambda output: "Listening on" in output)
    with wire(port) as client:  # nobody is there yet who could accept
        client.send(GET)
        assert b" 502 " in client.until(b"\r\n\r\n")
    assert "handed over" not in running.output()
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert "Traceback" not in running.output()
