"""Endpoints that are found in a real etcd: they come and go; it is away and back, compacted, guarded by a password."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gateways import WITHIN, Gateway, config, eventually, start
from neighbours import Neighbour, Neighbours, free_port, need

PREFIX = "/services/shop/"


class Etcd:
    """One etcd of our own."""

    def __init__(self, neighbours: Neighbours, home: Path) -> None:
        self._neighbours, self._home = neighbours, home
        self.port, self._peers = free_port(), free_port()
        self._token = ""
        self.running = self.start()

    def start(self) -> Neighbour:
        own, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peers}"
        words = ["--name=a", f"--data-dir={self._home}/etcd", "--unsafe-no-fsync"]
        words += [f"--listen-client-urls={own}", f"--advertise-client-urls={own}", f"--listen-peer-urls={peers}"]
        words += [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=a={peers}"]
        env = {"ETCD_UNSUPPORTED_ARCH": "arm64"}
        self.running = self._neighbours.start([need("etcd"), *words], port=self.port, env=env)
        eventually(self._serves, "etcd serves")
        return self.running

    def _serves(self) -> bool:
        try:
            return bool(self.ask("kv/range", key=coded("x")))
        except OSError:
            return False

    def ask(self, path: str, **words: Any) -> dict[str, Any]:
        headers = {"authorization": self._token} if self._token else {}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v3/{path}", json.dumps(words).encode(), headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=WITHIN) as answer:
            return dict(json.loads(answer.read()))

    def put(self, key: str, value: str) -> int:
        """The revision after it."""
        return int(self.ask("kv/put", key=coded(PREFIX + key), value=coded(value))["header"]["revision"])

    def delete(self, key: str) -> int:
        return int(self.ask("kv/deleterange", key=coded(PREFIX + key))["header"]["revision"])

    def guard(self, password: str) -> None:
        """From now on nobody reads who does not say who he is."""
        self.ask("auth/user/add", name="root", password="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/role/add", name="reader")
        permission = {"permType": "READ", "key": coded(PREFIX), "range_end": coded(PREFIX[:-1] + "0")}
        self.ask("auth/role/grant", name="reader", perm=permission)
        self.ask("auth/user/add", name="gateway", password=password)
        self.ask("auth/user/grant", user="gateway", role="reader")
        self.ask("auth/enable")
        self._token = self.ask("auth/authenticate", name="root", password="root")["token"]


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Who(BaseHTTPRequestHandler):
    """Says on which port it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        said = b"%d" % self.server.server_address[1]
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def ports() -> Iterator[list[int]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Who) for _ in range(2)]
    for server in servers:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield [server.server_address[1] for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


def asked(gateway: Gateway) -> set[int]:
    """Which servers answer; empty while none does."""
    found = set()
    for _ in range(6):
        try:
            with urllib.request.urlopen(gateway.url, timeout=WITHIN) as answer:
                found.add(int(answer.read()))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 503:
                raise
    return found


def become(gateway: Gateway, ports: set[int]) -> None:
    eventually(lambda: asked(gateway) == ports, f"the gateway asks {ports}; it said\n{gateway.log}")


def test_endpoints_are_found_as_they_come_and_go(neighbours: Neighbours, ports: list[int], tmp_path: Path) -> None:
    etcd = Etcd(neighbours, tmp_path)
    one, two = ports
    etcd.put("one", f"127.0.0.1:{one}")
    password = tmp_path / "password"
    password.write_text("secret\n")
    found = {"etcd": {"upstream": "etcd", "prefix": PREFIX}, "emptyFor": "0"}
    upstreams = [
        {"name": "origin", "endpoints": [], "discovery": found},
        {"name": "etcd", "endpoints": [{"url": f"http://127.0.0.1:{etcd.port}"}]},
    ]
    gateway = start(neighbours, config(0, upstreams=upstreams))
    become(gateway, {one})
    etcd.put("two", json.dumps({"url": f"http://127.0.0.1:{two}", "weight": 100, "zone": "b"}))
    become(gateway, {one, two})
    etcd.put("two", "nobody can read this")
    become(gateway, {one})
    gateway.says(f"{PREFIX}two: expected host:port")
    etcd.put("two", json.dumps({"Op": 0, "Addr": f"127.0.0.1:{two}", "Metadata": None}))
    become(gateway, {one, two})

    # while it is away all goes on; what changed and was compacted meanwhile is read when it is back
    etcd.running.stop()
    gateway.says("what it knew (2 endpoints) is used for up to 72h")
    assert asked(gateway) == {one, two}
    etcd.start()
    last = etcd.delete("one")
    etcd.ask("kv/compaction", revision=str(last))
    gateway.says("etcd (/services/shop/) answers")
    become(gateway, {two})

    # a password is asked for from now on, and the connection is made anew
    etcd.guard("secret")
    found["etcd"] |= {"username": "gateway", "password": {"file": str(password)}}
    gateway.hangup(config(0, upstreams=upstreams))
    become(gateway, {two})
    etcd.put("one", f"127.0.0.1:{one}")
    become(gateway, {one, two})
    etcd.delete("one")
    etcd.delete("two")
    become(gateway, set())
    gateway.healthy()
