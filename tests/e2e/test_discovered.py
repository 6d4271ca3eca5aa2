"""A worker is replaced while where endpoints are found is away: the gateway goes on with what it knew."""

from __future__ import annotations

import json
from pathlib import Path

from crowd import begin, crowd, gone, kill

from gateways import wire
from neighbours import Neighbours

GET = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_worker_that_comes_while_a_list_is_broken_serves_by_what_the_others_know(
    neighbours: Neighbours, node: int, tmp_path: Path
) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text(json.dumps([f"127.0.0.1:{node}"]))
    upstream = {"name": "origin", "discovery": {"file": str(path)}}
    gateway = begin(neighbours, crowd(node, 2, upstreams=[upstream]))
    first = gateway.workers()
    path.write_text("- {url: ")
    gateway.says("what it knew (1 endpoint) is used", 2)
    for count, pid in enumerate(first, 1):
        kill(pid)
        gone(pid)
        gateway.says("serves", 2 + count)
    assert not set(first) & set(gateway.workers())
    statuses = set()
    for _ in range(16):
        with wire(gateway.port) as client:
            client.send(GET)
            statuses.add(client.answer()[0].split(b" ", 2)[1])
    assert statuses == {b"200"}
    gateway.healthy()
