"""Endpoints that are looked at: servers of grpcio and Python's own, which fall ill, and are well again."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from crowd import begin, crowd, kill

from gateways import WITHIN, config, eventually, start, upstream, wire
from neighbours import Neighbours, free_port

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
SOON = {"interval": "400ms", "rise": 1, "fall": 3}
"""Found out soon, but not where a busy machine once or twice keeps an answer from coming."""


class GrpcServer:
    """Answers calls with its name, and health checks with what a test says."""

    def __init__(self, name: bytes) -> None:
        self.health, self.asked = SERVING, []  # type: tuple[bytes, list[bytes]]
        self._server = grpc.server(ThreadPoolExecutor(4))
        who = grpc.unary_unary_rpc_method_handler(lambda request, context: name)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("shop.Orders", {"Who": who}),
                grpc.method_handlers_generic_handler(
                    "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(self._check)}
                ),
            )
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def _check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked.append(request)
        return self.health

    def stop(self) -> None:
        self._server.stop(None).wait(WITHIN)


@pytest.fixture
def servers() -> Iterator[list[GrpcServer]]:
    made = [GrpcServer(b"one"), GrpcServer(b"two")]
    yield made
    for server in made:
        server.stop()


def test_a_server_of_grpc_that_says_it_does_not_serve_gets_no_call(
    neighbours: Neighbours, servers: list[GrpcServer]
) -> None:
    one, two = servers
    check = {"type": "grpc", "service": "shop.Orders", **SOON, "rise": 2}
    upstreams = [upstream("origin", one.port, two.port, protocol="http2", healthCheck=check)]
    listener = {"name": "web", "address": "127.0.0.1:0", "protocols": ["http2"]}
    gateway = start(neighbours, config(one.port, listeners=[listener], upstreams=upstreams))
    with grpc.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
        ask = channel.unary_unary("/shop.Orders/Who")

        def seen() -> set[bytes]:
            return {ask(b"", timeout=WITHIN) for _ in range(6)}

        assert seen() == {b"one", b"two"}
        one.health = NOT_SERVING
        gateway.says(f"upstream origin: 127.0.0.1:{one.port} is not well: it says NOT_SERVING")
        assert seen() == {b"two"}
        one.health = SERVING
        gateway.says(f"upstream origin: 127.0.0.1:{one.port} is well again")
        assert seen() == {b"one", b"two"}
        two.stop()
        gateway.says(f"upstream origin: 127.0.0.1:{two.port} is not well")
        assert seen() == {b"one"}
    assert set(one.asked) == {b"\n\x0bshop.Orders"}
    gateway.healthy()


class Page(BaseHTTPRequestHandler):
    """Its server's port; C{/health} as the server has it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        server.looks += self.path == "/health"
        ill = self.path == "/health" and server.ill
        content = str(server.server_port).encode()
        self.send_response(503 if ill else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[], Any]]:
    made: list[ThreadingHTTPServer] = []

    def begin() -> Any:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.ill, server.looks, server.daemon_threads = False, 0, True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        made.append(server)
        return server

    yield begin
    for server in made:
        server.shutdown()
        server.server_close()


def test_a_web_server_that_falls_ill_gets_no_request_and_one_that_dies_costs_none(
    neighbours: Neighbours, serve: Callable[[], Any]
) -> None:
    one, two = serve(), serve()
    check = {"path": "/health", **SOON}
    upstreams = [upstream("origin", one.server_port, two.server_port, healthCheck=check)]
    gateway = start(neighbours, config(one.server_port, upstreams=upstreams))

    def seen() -> set[int]:
        ports = set()
        for _ in range(6):
            with wire(gateway.port) as client:
                client.send(GET)
                head, content = client.answer()
                assert b" 200 " in head
                ports.add(int(content))
        return ports

    assert seen() == {one.server_port, two.server_port}
    one.ill = True
    eventually(lambda: seen() == {two.server_port}, "the one that is ill gets none")
    one.ill = False
    eventually(lambda: seen() == {one.server_port, two.server_port}, "both are well")
    two.shutdown()
    two.server_close()
    gateway.says(f"upstream origin: 127.0.0.1:{two.server_port} is not well")
    assert seen() == {one.server_port}
    gateway.healthy()


def test_workers_look_once_for_all_and_go_on_from_what_is_known_when_one_of_them_or_the_program_changes(
    neighbours: Neighbours, serve: Callable[[], Any]
) -> None:
    one, two, admin = serve(), serve(), free_port()
    check = {"path": "/health", **SOON, "interval": "500ms"}
    upstreams = [upstream("origin", one.server_port, two.server_port, healthCheck=check)]
    settings = crowd(one.server_port, 2, upstreams=upstreams, admin={"address": f"127.0.0.1:{admin}"})
    gateway = begin(neighbours, settings)

    def shares() -> list[float]:
        with urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=WITHIN) as page:
            text = page.read().decode()
        found = dict(
            re.findall(r'protogate_endpoint_share\{endpoint="127.0.0.1:(\d+)",upstream="origin"\} (\S+)', text)
        )
        return [float(found[str(server.server_port)]) for server in (one, two)]

    def seen() -> set[tuple[int, int]]:
        """By worker and server."""
        met = set()
        for _ in range(24):
            with wire(gateway.port) as client:
                client.send(GET)
                head, content = client.answer()
                pid = re.search(rb"x-pid: (\d+)", head)
                assert pid
                met.add((int(pid[1]), int(content)))
        return met

    before, began = one.looks, time.monotonic()
    eventually(lambda: one.looks - before >= 6, "it is looked at")
    assert time.monotonic() - began > 1.8, "one look in each interval, not one by each worker"
    one.ill = True
    gateway.says(f"127.0.0.1:{one.server_port} is not well: it answered 503")
    eventually(lambda: shares() == [0, 1], "all know")
    with urlopen(f"http://127.0.0.1:{admin}/endpoints", timeout=WITHIN) as page:
        told = json.load(page)["origin"]
    assert told[f"127.0.0.1:{one.server_port}"] == {
        "share": 0,
        "held": {"healthCheck": {"share": 0, "why": "it answered 503"}},
    }
    assert told[f"127.0.0.1:{two.server_port}"] == {"share": 1, "held": {}}
    assert {server for _, server in seen()} == {two.server_port}
    judge = re.search(r"worker \d+ \(pid (\d+)\): .*is not well", gateway.log)
    assert judge
    kill(int(judge[1]))
    gateway.says("judges endpoints from now on")
    gateway.serving(3)
    assert {server for _, server in seen()} == {two.server_port}, "the new one knows before it serves"
    assert gateway.log.count(f"{one.server_port} is not well") == 1
    gateway.running.signal(signal.SIGUSR2)
    gateway.says("upgrade: 2 workers with the new code serve")
    assert {server for _, server in seen()} == {two.server_port}
    assert gateway.log.count(f"{one.server_port} is not well") == 1
    one.ill = False
    gateway.says(f"127.0.0.1:{one.server_port} is well again")
    eventually(lambda: shares() == [1, 1], "all know")
    assert {server for _, server in seen()} == {one.server_port, two.server_port}
    gateway.healthy()
