"""A new configuration under traffic, by signal and by file."""

from __future__ import annotations

import http.client
import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from gateways import WITHIN, Start, config, eventually, origin, records, start, wire
from neighbours import Neighbours, free_port, listens, need


def ask(port: int, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as response:
            return response.status, response.headers, response.read()


def marked(port: int, mark: str, **parts: Any) -> dict[str, Any]:
    """A configuration whose answers say which one it is."""
    module = {"name": "addResponseHeader", "stage": "PRE_RESPONSE", "actionParam": {"x-mark": mark}}
    return config(port, modules=[module], **parts)


QUIET = {"watch": False}


@pytest.mark.parametrize("how", ["twistd", "protogate"])
def test_what_is_under_way_is_not_touched(neighbours: Neighbours, node: int, how: Start) -> None:
    sockets = origin(neighbours, "websocket_server.py").port
    gateway = start(neighbours, marked(node, "old", gateway=QUIET), how)
    fresh = marked(node, "new", gateway=QUIET)
    # To /ws of the old one; the new one has no such rule, nor the upstream.
    old = {
        **marked(node, "old", gateway=QUIET),
        "routes": [
            {
                "value": "/ws",
                "matcherType": "prefix",
                "routes": [{"targets": [{"url": f"http://127.0.0.1:{sockets}/echo"}]}],
            },
            *config(node)["routes"],
        ],
    }
    gateway.hangup(old)
    url = f"ws://127.0.0.1:{gateway.port}/ws"
    with (
        connect(url, open_timeout=WITHIN, close_timeout=WITHIN, proxy=None) as socket,
        wire(gateway.port) as download,
        wire(gateway.port) as kept,
    ):
        socket.send("before")
        assert socket.recv(WITHIN) == "before"
        download.send(f"GET /hold/{how} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert b"x-mark: old" in download.until(b"first\n")
        kept.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"x-mark: old" in kept.answer()[0]

        gateway.hangup(fresh)

        kept.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")  # the same connection, the next request
        assert b"x-mark: new" in kept.answer()[0]
        assert ask(gateway.port, "/ws")[0] == 404
        socket.send("after")
        assert socket.recv(WITHIN) == "after"
        assert ask(gateway.port, f"/release/{how}")[2] == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
        # Long after the upstream was removed: what uses it still does.
        socket.send("later")
        assert socket.recv(WITHIN) == "later"
        socket.close(1000, "done")
        assert socket.close_code == 1000
    gateway.healthy()


def test_a_changed_file_is_loaded_without_a_signal(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, marked(node, "one"))
    assert ask(gateway.port, "/hello")[1]["x-mark"] == "one"
    gateway.write(marked(node, "two"))
    eventually(lambda: ask(gateway.port, "/hello")[1]["x-mark"] == "two", "the file is loaded")
    gateway.healthy()


def test_a_broken_file_keeps_the_old_one_and_says_why(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, marked(node, "good"))
    gateway.write("listeners: [}\n")
    gateway.says("the configuration in force stays")
    assert ask(gateway.port, "/hello")[1]["x-mark"] == "good"
    gateway.write({**marked(node, "odd"), "modulse": []})
    gateway.running.signal(signal.SIGHUP)
    gateway.says("the configuration in force stays", 2)
    gateway.says("modulse")
    assert ask(gateway.port, "/hello")[1]["x-mark"] == "good"
    gateway.hangup(marked(node, "mended"))
    assert ask(gateway.port, "/hello")[1]["x-mark"] == "mended"
    gateway.healthy()


def test_ports_come_and_go(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, marked(node, "one", gateway=QUIET))
    second, taken = free_port(), free_port()
    web = {"name": "web", "address": "127.0.0.1:0"}
    both = [web, {"name": "more", "address": f"127.0.0.1:{second}"}]
    gateway.hangup(marked(node, "two", gateway=QUIET, listeners=both))
    assert ask(second, "/hello")[1]["x-mark"] == "two"
    with wire(second) as held:
        held.send(b"GET /hold/port HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        held.until(b"first\n")
        gateway.hangup(marked(node, "three", gateway=QUIET, listeners=[web]))
        eventually(lambda: not listens(second), "the port is closed")
        assert ask(gateway.port, "/release/port")[2] == b"yes\n"
        assert held.rest().endswith(b"0\r\n\r\n")
    # One that somebody else has: all stays as it was.
    neighbours.python("-m", "http.server", "--bind", "127.0.0.1", str(taken), port=taken)
    listeners = [web, {"name": "taken", "address": f"127.0.0.1:{taken}"}]
    gateway.write(marked(node, "four", gateway=QUIET, listeners=listeners))
    gateway.running.signal(signal.SIGHUP)
    gateway.says(f"cannot listen on 127.0.0.1:{taken}")
    assert ask(gateway.port, "/hello")[1]["x-mark"] == "three"
    gateway.healthy()


def test_an_upstream_can_be_exchanged_under_traffic(neighbours: Neighbours, node: int) -> None:
    other = origin(neighbours, "origin.js").port
    gateway = start(neighbours, marked(node, "0", gateway=QUIET))
    with wire(gateway.port) as client:
        for turn in range(1, 6):
            gateway.hangup(marked(other if turn % 2 else node, str(turn), gateway=QUIET))
            for _ in range(20):
                client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
                head, body = client.answer()
                assert (head[:13], body) == (b"HTTP/1.1 200 ", b"hello\n")
                assert f"\r\nx-mark: {turn}\r\n".encode() in head
    assert used(other) >= 2
    gateway.healthy()


def used(port: int) -> int:
    """Connections that an C{origin.js} has seen, this one among them."""
    return int(ask(port, "/count")[2])


def test_connections_to_an_upstream_survive_a_reload(neighbours: Neighbours) -> None:
    port = origin(neighbours, "origin.js").port
    gateway = start(neighbours, marked(port, "0", gateway=QUIET))
    for turn in range(1, 4):
        assert ask(gateway.port, "/count")[2] == b"1"
        gateway.hangup(marked(port, str(turn), gateway=QUIET))
    assert ask(gateway.port, "/count")[2] == b"1"
    gateway.healthy()


def test_a_load_does_not_notice_reloads(neighbours: Neighbours, node: int, tmp_path: Path) -> None:
    other = origin(neighbours, "origin.js").port
    # New ones of everything but the listener: modules, upstream, access log.
    turns = [
        marked([node, other][turn % 2], str(turn), gateway=QUIET, accessLog={"file": f"access-{turn}.log"})
        for turn in range(6)
    ]
    gateway = start(neighbours, turns[0], "twistd")
    argv = [need("wrk"), "-t1", "-c16", "-d2s", "--timeout", "20s", f"{gateway.url}/hello"]
    load = neighbours.start(argv, ready=lambda output: "2s test" in output)
    for settings in turns[1:]:
        gateway.hangup(settings)
    assert load.wait() == 0
    told = load.output()
    assert "Non-2xx" not in told
    assert "Socket errors" not in told
    answered = re.search(r"(\d+) requests in", told)
    assert answered, told
    gateway.stop()
    lines = [record for path in gateway.file.parent.glob("access-*.log") for record in records(path)]
    assert int(answered[1]) <= len(lines) <= int(answered[1]) + 16
    assert len({record["id"] for record in lines}) == len(lines)
    gateway.healthy()
