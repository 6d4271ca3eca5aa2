"""A release that is taken back by itself: real workers, of which one judges for all."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

import pytest
from crowd import begin, crowd, kill

from gateways import WITHIN, eventually, upstream, wire
from neighbours import Neighbours, free_port

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-user: %d\r\n\r\n"
TITLE = "shop, entry 0: next"


class Page(BaseHTTPRequestHandler):
    """Its server's port, or that it has failed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        content = str(server.server_port).encode()
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[int], Any]]:
    made: list[ThreadingHTTPServer] = []

    def begin(status: int) -> Any:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.status, server.daemon_threads = status, True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        made.append(server)
        return server

    yield begin
    for server in made:
        server.shutdown()
        server.server_close()


def test_workers_take_a_release_back_together_and_whoever_comes_later_knows(
    neighbours: Neighbours, serve: Callable[[int], Any]
) -> None:
    old, new, admin = serve(200), serve(500), free_port()

    def settings(percent: int) -> dict[str, Any]:
        hold = {"minRequests": 20, "window": "10s"}
        targets = [{"upstream": "old"}, {"upstream": "next", "gray": percent, "hold": hold}]
        entry = {"cohort": "request.headers['x-user']", "targets": targets}
        return crowd(
            old.server_port,
            2,
            upstreams=[upstream("old", old.server_port), upstream("next", new.server_port)],
            routes=[{"name": "shop", "value": "/", "matcherType": "prefix", "routes": [entry]}],
            admin={"address": f"127.0.0.1:{admin}"},
        )

    gateway = begin(neighbours, settings(50))

    def told() -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{admin}/releases", timeout=WITHIN) as page:
            found: dict[str, Any] = json.load(page)
        return found

    def seen(users: int = 40) -> set[tuple[int, int]]:
        """By worker and server."""
        met = set()
        for user in range(users):
            with wire(gateway.port) as client:
                client.send(GET % user)
                head, content = client.answer()
                pid = re.search(rb"x-pid: (\d+)", head)
                assert pid
                met.add((int(pid[1]), int(content)))
        return met

    assert {server for _, server in seen()} == {old.server_port, new.server_port}
    assert told() == {TITLE: {"held": False}}
    eventually(lambda: seen() and told()[TITLE]["held"], "it is taken back")
    assert "requests failed, and 0 of" in told()[TITLE]["why"]
    met = seen()
    assert {server for _, server in met} == {old.server_port}
    assert len({pid for pid, _ in met}) == 2
    judge = re.search(r"worker \d+ \(pid (\d+)\): .*next gets no requests any more", gateway.log)
    assert judge
    kill(int(judge[1]))
    gateway.serving(3)
    assert {server for _, server in seen()} == {old.server_port}, "the new one knows before it serves"
    assert eventually(lambda: told().get(TITLE, {}).get("why"), "the other one judges")
    gateway.hangup(settings(60))
    gateway.says("next gets requests again")
    eventually(lambda: new.server_port in {server for _, server in seen()}, "the entry is another one")
    assert gateway.log.count("gets no requests any more") == 1
