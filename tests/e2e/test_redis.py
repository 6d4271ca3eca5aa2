"""Redis, its command line and its client for Python, and a gateway between them that has learnt RESP."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distributions import EXAMPLES, install
from gateways import WITHIN, command, eventually, records
from neighbours import Neighbour, Neighbours, free_port, need
from pages import DOCS, Example, examples

redis = pytest.importorskip("redis")

SESSIONS = [example for example in examples(DOCS / "add-a-protocol.md") if "$ redis-cli " in example.text]
LARGE = 32 * 1024 * 1024
"""Bytes of a value: more than a gateway would ever hold."""


class Stand(NamedTuple):
    """A Redis, and the gateway before it."""

    store: int
    port: int
    web: int
    running: Neighbour
    home: Path

    def client(self, port: int | None = None) -> Any:
        """The client for Python; RESP3 is asked for by a command that is about the connection."""
        return redis.Redis(port=port or self.port, protocol=2, socket_timeout=WITHIN)

    def ask(self, method: str, path: str, data: bytes | None = None) -> tuple[int, bytes]:
        """Status and content of what HTTP is told."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def peak(self) -> int:
        """The most memory that the gateway ever had, in bytes."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.running.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    program = need("redis-server")
    home = tmp_path_factory.mktemp("stand")
    started, store = Neighbours(home), free_port()
    site = install("protogate-resp", home / "site")
    try:
        words = ["--port", str(store), "--bind", "127.0.0.1", "--save", "", "--dir", str(home)]
        started.start([program, *words], port=store)
        text = (EXAMPLES / "protogate-resp" / "gateway.yaml").read_text()
        text = text.replace(":6379", f":{store}").replace(":6380", ":0").replace(":8080", ":0")
        file = home / "gateway.yaml"
        file.write_text(text + "accessLog: {file: access.log}\n")
        listening = re.compile(r"listener (\w+) on 127\.0\.0\.1:(\d+)$", re.MULTILINE)
        running = started.start(
            command("protogate", file),
            ready=lambda output: len(listening.findall(output)) == 2,
            env={"PYTHONPATH": str(site)},
            cwd=home,
        )
        ports = dict(listening.findall(running.output()))
        yield Stand(store, int(ports["redis"]), int(ports["web"]), running, home)
        assert "Traceback" not in running.output(), running.output()
        assert "Unhandled" not in running.output(), running.output()
    finally:
        started.stop()


@pytest.mark.parametrize("example", SESSIONS, ids=str)
def test_the_session_of_the_page_goes_as_shown(stand: Stand, example: Example) -> None:
    need("redis-cli")
    need("curl")
    for part in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        words = shlex.split(line.replace("6380", str(stand.port)).replace("8080", str(stand.web)))
        done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN, check=False)
        assert done.stdout.strip() == expected.strip(), f"{line}: {done.stderr}"


def test_the_page_shows_a_session() -> None:
    assert SESSIONS


def test_values_come_back_as_they_were(stand: Stand) -> None:
    with stand.client() as client:
        for key, value in (("plain", b"x"), ("empty", b""), ("a b/c?d#%", b"\r\n$3\r\n"), ("ü", bytes(range(256)))):
            assert client.set(key, value)
            assert client.get(key) == value
            with stand.client(stand.store) as direct:
                assert direct.get(key) == value
        assert client.get("nobody") is None
        assert client.rpush("list", "a", "b") == 2
        assert client.lrange("list", 0, -1) == [b"a", b"b"]


def test_pipelined_commands_are_answered_in_order(stand: Stand) -> None:
    with stand.client() as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(500):
            pipeline.set(f"n:{number}", number)
            pipeline.get(f"n:{number}")
        assert pipeline.execute()[1::2] == [b"%d" % number for number in range(500)]


def test_a_large_value_streams(stand: Stand) -> None:
    with stand.client() as client:
        client.set("large", os.urandom(1 << 16))
        before, value = stand.peak(), os.urandom(LARGE)
        assert client.set("large", value)
        assert client.get("large") == value
        assert stand.ask("PUT", "/kv/large", value)[0] == 200
        assert stand.ask("GET", "/kv/large") == (200, value)
        assert stand.peak() - before < LARGE // 2


def test_commands_are_denied_by_name_and_by_key(stand: Stand) -> None:
    with stand.client(stand.store) as direct:
        direct.set("staff:1", "secret")
    with stand.client() as client:
        client.set("kept", "1")
        for words in (
            ("FLUSHALL",), ("CONFIG", "GET", "*"), ("GET", "staff:1"), ("get", "staff:1"), ("DEL", "kept", "staff:1"),
            ("MULTI",), ("SELECT", "1"),
        ):  # fmt: skip
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)
        assert client.get("kept") == b"1", "the connection is as good as before"
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("staff:1", b"x" * 5_000_000)  # told before all of it was read
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            client.rpush("kept", "2")
    statuses = [("GET", "/kv/staff:1", 403), ("GET", "/kv/staff%3A1", 400), ("FLUSHALL", "/kv/kept", 405)]
    assert [stand.ask(method, path)[0] for method, path, _ in statuses] == [status for *_, status in statuses]


def test_rates_are_limited_by_command(stand: Stand) -> None:
    with stand.client() as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(300):
            pipeline.exists("nobody")
        answers = pipeline.execute(raise_on_error=False)
        assert answers[:20] == [0] * 20
        refused = [str(answer) for answer in answers if answer != 0]
        assert refused
        assert all("429" in answer for answer in refused)
        assert client.lrange("nobody", 0, -1) == [], "another command has a limit of its own"
        assert client.ttl("nobody") == -2, "and this one has none"


def test_http_reads_writes_and_deletes_by_path(stand: Stand) -> None:
    assert stand.ask("GET", "/kv/page") == (404, b"")
    assert stand.ask("PUT", "/kv/page", b"<p>") == (200, b"OK")
    assert stand.ask("GET", "/kv/page") == (200, b"<p>")
    with stand.client() as client:
        assert client.get("page") == b"<p>"
    assert stand.ask("DELETE", "/kv/page") == (200, b"1")
    assert stand.ask("GET", "/kv/page") == (404, b"")


def test_each_command_has_its_record(stand: Stand) -> None:
    with stand.client() as client:
        client.set("recorded", "1")
        client.get("recorded")

    def found() -> list[dict[str, Any]]:
        return [line for line in records(stand.home / "access.log") if line["target"] == "/recorded"]

    eventually(lambda: len(found()) == 2, "two records")
    shown = [(line["method"], line["protocol"], line["status"]) for line in found()]
    assert shown == [("SET", "RESP", 200), ("GET", "RESP", 200)]
