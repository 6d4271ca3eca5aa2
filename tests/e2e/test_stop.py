"""SIGTERM: what is under way ends well, nothing new begins, and the process says how it went."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack, suppress

import pytest

from gateways import Start, Wire, config, eventually, start, wire
from neighbours import Neighbours, listens

CODE = {"protogate": 0, "twistd": -signal.SIGTERM}
"""twistd ends by the signal that ended it; systemd takes both for a clean end."""
BOTH = pytest.mark.parametrize("how", ["protogate", "twistd"])

WAITING = 150
"""Clients; more than a port accepts in one turn of its loop, and no more than are answered soon on a busy machine."""


def ask(behind: Wire, path: str) -> bytes:
    """The answer of the upstream itself; it has a length."""
    behind.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return behind.answer()[1]


@BOTH
def test_requests_under_way_are_completed_and_idle_clients_are_let_go(
    neighbours: Neighbours, node: int, how: Start
) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "access.log"}), how)
    held, waits = f"/hold/a-{how}", f"/wait/b-{how}"
    with (
        wire(node) as behind,
        wire(gateway.port) as idle,
        wire(gateway.port) as download,
        wire(gateway.port) as waiting,
    ):
        idle.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        idle.answer()
        download.send(f"GET {held} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        download.until(b"first\n")
        waiting.send(f"GET {waits} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        eventually(lambda: f'"b-{how}"'.encode() in ask(behind, "/waiting"), "the request is at the upstream")

        gateway.running.signal(signal.SIGTERM)

        eventually(lambda: not listens(gateway.port), "the port is closed")
        assert idle.rest() == b""
        assert ask(behind, f"/release/a-{how}") == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"  # and closed, although the client would have gone on
        assert ask(behind, f"/release/b-{how}") == b"yes\n"
        answer = waiting.rest()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(f"released b-{how}\n".encode())
    assert gateway.running.wait() == CODE[how]
    assert {record["target"] for record in gateway.records()} == {"/hello", held, waits}
    gateway.healthy()


@pytest.mark.parametrize(("reactor", "workers"), [("epoll", 0), ("protogate-uv", 0), ("epoll", 2), ("protogate-uv", 2)])
def test_whom_the_kernel_has_accepted_is_answered(
    neighbours: Neighbours, node: int, monkeypatch: pytest.MonkeyPatch, reactor: str, workers: int
) -> None:
    monkeypatch.setenv("GATEWAY_REACTOR", reactor)
    settings = config(node, gateway={"workers": workers}, accessLog={"file": "access.log"})
    gateway = start(neighbours, settings)
    gateway.says(" serves\n", workers)
    serving = [int(pid) for pid in re.findall(r"\(pid (\d+)\) serves", gateway.log)]
    processes = serving or [gateway.running.pid]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)  # nobody gets to accept anything
    with ExitStack() as stack:
        clients = [stack.enter_context(wire(gateway.port)) for _ in range(WAITING)]
        for client in clients:
            client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        gateway.running.signal(signal.SIGTERM)
        if workers:
            gateway.says("is to leave", workers)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        for client in clients:
            assert client.answer()[1] == b"hello\n"
    assert gateway.running.wait() == 0
    assert len(gateway.records()) == WAITING
    gateway.healthy()


@BOTH
def test_the_wait_has_an_end(neighbours: Neighbours, node: int, how: Start) -> None:
    gateway = start(neighbours, config(node, gateway={"drain": "500ms"}, accessLog={"file": "access.log"}), how)
    with wire(gateway.port) as download:
        download.send(f"GET /hold/long-{how} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        download.until(b"first\n")
        gateway.running.signal(signal.SIGTERM)
        came = b""
        with suppress(ConnectionResetError):
            came = download.rest()
        assert b"0\r\n\r\n" not in came  # cut, and seen to be cut
        assert gateway.running.wait() == CODE[how]
    assert [record["target"] for record in gateway.records()] == [f"/hold/long-{how}"]
    gateway.healthy()


def test_a_second_gateway_can_take_the_port_at_once(neighbours: Neighbours, node: int) -> None:
    first = start(neighbours, config(node))
    with wire(first.port) as client:
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        client.answer()
        first.running.signal(signal.SIGTERM)
        assert first.running.wait() == 0
        second = start(neighbours, config(node, listen=first.port))
    assert second.port == first.port
    with wire(second.port) as client:
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.answer()[1] == b"hello\n"


def test_an_interrupt_at_a_terminal_ends_it_as_well(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, config(node))
    gateway.running.signal(signal.SIGINT)
    assert gateway.running.wait() == CODE["protogate"]
    gateway.healthy()


@BOTH
def test_what_drains_is_not_disturbed_by_a_late_reload_or_a_second_request_to_stop(
    neighbours: Neighbours, node: int, how: Start
) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "access.log"}), how)
    held = f"/hold/late-{how}"
    with wire(node) as behind, wire(gateway.port) as download:
        download.send(f"GET {held} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        download.until(b"first\n")
        gateway.running.signal(signal.SIGTERM)
        eventually(lambda: not listens(gateway.port), "the port is closed")
        gateway.running.signal(signal.SIGHUP)
        gateway.running.signal(signal.SIGTERM)
        assert ask(behind, f"/release/late-{how}") == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    assert gateway.running.wait() == CODE[how]
    assert [record["target"] for record in gateway.records()] == [held]
    gateway.healthy()


@BOTH
def test_an_interrupt_while_it_drains_ends_the_wait(neighbours: Neighbours, node: int, how: Start) -> None:
    gateway = start(neighbours, config(node, gateway={"drain": "1h"}, accessLog={"file": "access.log"}), how)
    with wire(gateway.port) as download:
        download.send(f"GET /hold/hurry-{how} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        download.until(b"first\n")
        gateway.running.signal(signal.SIGINT)
        eventually(lambda: not listens(gateway.port), "the port is closed")
        gateway.running.signal(signal.SIGINT)
        gateway.running.wait()
        with suppress(ConnectionResetError):
            assert b"0\r\n\r\n" not in download.rest()
    gateway.says("requests under way are cut off")
    assert [record["who"] for record in gateway.records()] == ["gateway"]
    gateway.healthy()
