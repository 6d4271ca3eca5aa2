"""
What is left behind: memory under large bodies and idle connections, and everything after a storm of faults.

The first ones are small runs of the benches, which tell more: bench/README.md.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import Counter
from itertools import count

import pytest
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

import bodies
import idle
import reload
import soak
from processes import cells
from protogate.loading import WARNINGS
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect, Script

pytestmark = pytest.mark.unwatched

KNOWN = 512
"""What remembers hosts is cut to so many."""
WARM, HOSTS = 500, 10 * KNOWN
"""The second one fills it ten times, and leaves as many in it as there were."""
BATCH = 20
SOCKETS = 200
LEAST = 64 * 1024
"""Bytes of our own allocations that a soak may leave."""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_bodies_of_any_size_flow_through_little_memory() -> None:
    figures = bodies.run(mib=128, seconds=2)
    assert len(figures) == 4
    assert all(figure.fine for figure in figures), cells(bodies.HEADINGS, *(figure.row() for figure in figures))
    fast, slow = figures[:2], figures[2:]
    assert all(figure.moved == 128 << 20 for figure in fast)
    assert all(1 << 20 < figure.moved < 16 << 20 for figure in slow)


def test_idle_connections_cost_little() -> None:
    figures = idle.run(connections=1_000, seconds=1)
    assert len(figures) == 2
    assert all(figure.fine for figure in figures), cells(idle.HEADINGS, *(figure.row() for figure in figures))


def test_a_storm_of_faults_leaves_nothing_behind_not_even_to_the_garbage_collector() -> None:
    outcome = soak.run(requests=3_000, phases=2, every=1, collector=False)
    assert not outcome.faults, f"{outcome.table()}\n{outcome.notes}"


def test_requests_are_answered_while_a_large_configuration_is_loaded() -> None:
    figures, faults = reload.run(rules=300, reloads=3, rounds=1, most=1.0)
    assert not faults
    assert figures[1].latency < 2.0


CONFIG = {
    "gateway": {"name": "edge", "watch": False},
    "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
    "upstreams": [{"name": "up", "endpoints": [{"url": "http://192.0.2.7:80"}], "pool": {"idle": "1s"}}],
    "routes": [{"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "up"}]}]}],
    "modules": [{"name": "addResponseHeader", "actionParam": {"x-host": "${request.host}"}}],
}


class Soak:
    """A gateway without sockets under many hosts and many tunnels."""

    def __init__(self, gateway: MemoryGateway, script: Script) -> None:
        self._gateway = gateway
        self._origin = gateway.upstream("192.0.2.7", 80, script)
        self._number = count()

    def hosts(self, requests: int) -> None:
        """So many requests, each for another host, on ten connections."""
        for first in range(10):
            client = self._gateway.client()
            for batch in range(first, requests, 10 * BATCH):
                number = len(range(batch, min(requests, batch + 10 * BATCH), 10))
                for _ in range(number):
                    client.send(b"GET /a HTTP/1.1\r\nHost: h%d.test\r\n\r\n" % next(self._number))
                self._gateway.run()
                assert client.take().count(b"\r\n\r\nok") == number
            client.close()
            self._gateway.run()

    def sockets(self, number: int) -> None:
        """So many WebSockets, opened and closed: in turn by the upstream, by a reset, and by a FIN."""
        for each in range(number):
            client = self._gateway.client()
            client.send(UPGRADE)
            self._gateway.run()
            assert client.take().startswith(b"HTTP/1.1 101 ")
            if each % 3 == 0:
                client.send(b"bye")
                self._gateway.run()
                assert client.eof
                client.close()
            elif each % 3 == 1:
                client.reset()
            else:
                client.send(b"bye")
                client.close()
            self._gateway.run()
            assert client.lost is not None

    def settle(self) -> None:
        """Let every idle connection and every clock end."""
        self._gateway.advance(300)
        for connection in self._origin.connections:
            connection.close()
        self._gateway.run()
        self._gateway.records.clear()  # what follows is the test kit's own memory
        self._gateway.reactor.links.clear()
        self._origin.connections.clear()
        gc.collect()

    def ours(self) -> Counter[str]:
        """How many objects there are of each type of the gateway, the test kit left out."""
        found: Counter[str] = Counter()
        for one in gc.get_objects():
            module = str(type(one).__module__)
            if module.startswith(("protogate.", "protogate_http.")) and not module.startswith("protogate.testing."):
                found[f"{module}.{type(one).__qualname__}"] += 1
        return found

    def allocated(self) -> int:
        """Bytes that code of the gateway has allocated."""
        taken = tracemalloc.take_snapshot().filter_traces(
            [
                tracemalloc.Filter(True, "*/protogate/*"),
                tracemalloc.Filter(True, "*/protogate_http/*"),
            ]
        )
        kept = taken.filter_traces([tracemalloc.Filter(False, "*/protogate/testing/*")])
        return sum(statistic.size for statistic in kept.statistics("filename"))


def test_hosts_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protogate.exchange.forwarding.KNOWN", KNOWN)
    monkeypatch.setattr("protogate.exchange.exchange.KNOWN", KNOWN)
    monkeypatch.setattr("protogate.exchange.exchange._proper", set())
    files = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        with MemoryGateway(CONFIG) as gateway:
            storm = Soak(gateway, [Expect(b"\r\n\r\n"), ANSWER])
            storm.hosts(WARM)
            storm.settle()
            objects, size, inside = storm.ours(), storm.allocated(), len(os.listdir("/proc/self/fd"))
            storm.hosts(HOSTS)
            storm.settle()
            assert not storm.ours() - objects
            assert storm.allocated() - size < LEAST
            assert len(os.listdir("/proc/self/fd")) == inside
    finally:
        tracemalloc.stop()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def test_closed_websockets_leave_nothing() -> None:
    with MemoryGateway(CONFIG) as gateway:
        storm = Soak(gateway, [Expect(b"\r\n\r\n"), SWITCH, Expect(b"bye"), Do.CLOSE])
        storm.sockets(10)
        storm.settle()
        objects = storm.ours()
        storm.sockets(SOCKETS)
        storm.settle()
        assert not storm.ours() - objects
        assert gateway.service.counters.counts["exchanges"] == SOCKETS + 10


def test_a_thousand_warnings_do_not_hold_a_reload_up() -> None:
    told: list[str] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "protogate.loading" and event["log_level"] is LogLevel.warn:
            told.append(formatEvent(event))

    rule = CONFIG["routes"][0]  # type: ignore[index]
    hidden = [dict(rule, value=f"/{number}.*", matcherType="regex") for number in range(WARNINGS + 7)]
    with MemoryGateway(CONFIG) as gateway:
        globalLogPublisher.addObserver(observe)
        try:
            assert gateway.reload({**CONFIG, "routes": [rule, *hidden]})
        finally:
            globalLogPublisher.removeObserver(observe)
        assert len(gateway.service.built.warnings) == WARNINGS + 7
    assert len(told) == WARNINGS + 1
    assert "7 more warnings" in told[-1]
