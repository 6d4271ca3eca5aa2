"""The pages, over connections in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.protocol import ClientFactory

from protogate.admin.site import BODY, CONNECTIONS, HEAD, LIFE, PATIENCE, Site
from protogate.observe.counters import Counters
from protogate.observe.snapshot import Snapshot
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Raw

PAGES = ("/livez", "/readyz", "/metrics", "/endpoints", "/releases")


class Watched:
    """What a test wants to be shown."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.reason: str | Deferred[str] = ""
        self.taken: Snapshot | Deferred[Snapshot] | None = None
        self.asked = 0
        self.judged: dict[str, Any] = {}

    def unready(self) -> str | Deferred[str]:
        self.asked += 1
        return self.reason

    def snapshot(self) -> Snapshot | Deferred[Snapshot]:
        self.asked += 1
        return self.counters.snapshot() if self.taken is None else self.taken

    def endpoints(self) -> dict[str, Any]:
        return self.judged

    def releases(self) -> dict[str, Any]:
        return {"cart, entry 0: next": {"held": True, "why": "it is slow \u00e9"}}


class Scene:
    def __init__(self) -> None:
        self.reactor = MemoryReactor()
        self.watched = Watched()
        self.site = Site(self.watched, self.reactor)
        self.port = self.reactor.listenTCP(9901, self.site, interface="127.0.0.1")

    def client(self, data: bytes = b"") -> Raw:
        raw = Raw()
        factory = ClientFactory()
        factory.noisy = False
        factory.buildProtocol = lambda _: raw  # type: ignore[method-assign]
        self.reactor.connectTCP("127.0.0.1", 9901, factory)
        self.reactor.run()
        if data:
            raw.send(data)
            self.reactor.run()
        return raw

    def get(self, path: str, *fields: str, method: str = "GET") -> Raw:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *fields, "", ""]
        return self.client("\r\n".join(lines).encode())

    def left(self) -> list[Any]:
        return [*self.site.open, *self.reactor.getDelayedCalls()]


class Answer:
    def __init__(self, raw: Raw) -> None:
        head, _, self.body = raw.received.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        self.status = int(line.split()[1])
        self.fields = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
        assert raw.eof


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.reactor.run()
    assert made.left() == []


def test_it_is_alive(scene: Scene) -> None:
    answer = Answer(scene.get("/livez"))
    assert (answer.status, answer.body) == (200, b"alive\n")
    assert scene.watched.asked == 0


def test_it_is_ready_until_there_is_a_reason(scene: Scene) -> None:
    assert Answer(scene.get("/readyz")).status == 200
    scene.watched.reason = "it stops"
    answer = Answer(scene.get("/readyz"))
    assert (answer.status, answer.body) == (503, b"not ready: it stops\n")
    assert Answer(scene.get("/livez")).status == 200


def test_metrics_are_what_was_counted(scene: Scene) -> None:
    scene.watched.counters.scope("listener", "web").count("connections_accepted")
    answer = Answer(scene.get("/metrics"))
    assert answer.status == 200
    assert answer.fields["content-type"].startswith("text/plain; version=0.0.4")
    assert b'protogate_listener_events_total{event="connections_accepted",listener="web"} 1.0\n' in answer.body
    assert int(answer.fields["content-length"]) == len(answer.body)


def test_endpoints_are_told_in_json(scene: Scene) -> None:
    held = {"healthCheck": {"share": 0.0, "why": "it answered 503 \u00e9"}}
    scene.watched.judged = {"shop": {"192.0.2.7:80": {"share": 0.0, "held": held}}}
    answer = Answer(scene.get("/endpoints"))
    assert (answer.status, answer.fields["content-type"]) == (200, "application/json")
    assert answer.body.isascii()
    assert json.loads(answer.body) == scene.watched.judged


def test_releases_are_told_in_json(scene: Scene) -> None:
    answer = Answer(scene.get("/releases"))
    assert (answer.status, answer.fields["content-type"]) == (200, "application/json")
    assert answer.body.isascii()
    assert json.loads(answer.body) == scene.watched.releases()


def test_metrics_are_in_the_words_that_are_asked_for(scene: Scene) -> None:
    answer = Answer(scene.get("/metrics", "Accept: application/openmetrics-text; version=1.0.0"))
    assert answer.fields["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_kept_and_no_connection(scene: Scene, path: str) -> None:
    answer = Answer(scene.get(f"{path}?x=1"))
    assert answer.status == 200
    assert answer.fields["connection"] == "close"
    assert answer.fields["cache-control"] == "no-store"
    assert "date" in answer.fields
    assert "server" not in answer.fields


@pytest.mark.parametrize("path", PAGES)
def test_head_is_get_without_a_body(scene: Scene, path: str) -> None:
    whole, head = Answer(scene.get(path)), Answer(scene.get(path, method="HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "X"])
def test_other_methods_are_refused(scene: Scene, method: str) -> None:
    answer = Answer(scene.get("/readyz", method=method))
    assert (answer.status, answer.fields["allow"]) == (405, "GET, HEAD")
    assert scene.watched.asked == 0


@pytest.mark.parametrize(
    "path", ["/", "/livez/", "/metrics.txt", "//livez", "/%6civez", "*", "http://x/livez", "/../livez"]
)
def test_other_paths_are_not_there(scene: Scene, path: str) -> None:
    answer = Answer(scene.get(path))
    assert (answer.status, answer.body) == (404, b"there are /endpoints, /livez, /metrics, /readyz, /releases\n")


# -- answers that take their time


def test_an_answer_may_come_later(scene: Scene) -> None:
    reason: Deferred[str] = Deferred()
    scene.watched.reason = reason
    client = scene.get("/readyz")
    scene.reactor.advance(PATIENCE - 1)
    assert client.received == b""
    reason.callback("worker 2 has not started yet")
    scene.reactor.run()
    assert Answer(client).body == b"not ready: worker 2 has not started yet\n"


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
def test_an_answer_that_does_not_come_is_503_and_is_given_up(scene: Scene, path: str) -> None:
    cancelled: list[Any] = []
    never: Deferred[Any] = Deferred(cancelled.append)
    scene.watched.reason = scene.watched.taken = never
    client = scene.get(path)
    scene.reactor.advance(PATIENCE + 0.1)
    assert Answer(client).status == 503
    assert len(cancelled) == 1


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
def test_nothing_is_asked_for_a_peer_that_left(scene: Scene, path: str) -> None:
    cancelled: list[Any] = []
    scene.watched.reason = scene.watched.taken = Deferred(cancelled.append)
    client = scene.get(path)
    client.close()
    scene.reactor.run()
    assert len(cancelled) == 1


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
def test_a_question_that_fails_is_503_and_logged(scene: Scene, path: str, flush_errors: Any) -> None:
    scene.watched.reason = scene.watched.taken = fail(ZeroDivisionError())
    assert Answer(scene.get(path)).status == 503
    assert len(flush_errors(ZeroDivisionError)) <= 1  # once a minute
    assert flush_errors(CancelledError) == []


# -- what a peer controls


def test_a_body_is_thrown_away(scene: Scene) -> None:
    answer = Answer(scene.client(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"))
    assert answer.status == 200


@pytest.mark.parametrize("framing", [b"Content-Length: 9999999", b"Transfer-Encoding: chunked"])
def test_a_large_body_is_not_read(scene: Scene, framing: bytes) -> None:
    client = scene.client(b"POST /livez HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n")
    chunk = b"%x\r\n%b\r\n" % (1024, b"x" * 1024) if b"chunked" in framing else b"x" * 1024
    sent = 0
    while client.lost is None and sent < 10 * BODY:
        client.send(chunk)
        sent += len(chunk)
        scene.reactor.run()
    assert client.lost is not None
    assert sent < 2 * BODY
    assert client.received == b""


def test_a_large_head_is_refused(scene: Scene) -> None:
    client = scene.client(b"GET /livez HTTP/1.1\r\n" + b"x-a: %b\r\n" % (b"y" * 1000) * (HEAD // 1000 + 1) + b"\r\n")
    assert client.received.startswith(b"HTTP/1.1 400 ")
    assert client.eof


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno field\r\n\r\n"])
def test_what_is_no_request_is_refused(scene: Scene, data: bytes) -> None:
    client = scene.client(data)
    assert client.received.startswith(b"HTTP/1.1 400 ")
    assert client.eof


@pytest.mark.parametrize("begin", [b"", b"GET /livez HTTP/1.1\r\n"])
def test_a_slow_peer_has_so_long_and_no_longer(scene: Scene, begin: bytes) -> None:
    client = scene.client(begin)
    for _ in range(int(LIFE) - 1):
        client.send(b"x-a: 1\r\n" if begin else b"")
        scene.reactor.advance(1)
    assert client.lost is None
    scene.reactor.advance(1.1)
    assert client.lost is not None


def test_a_peer_that_does_not_read_has_so_long(scene: Scene) -> None:
    for number in range(2000):
        scene.watched.counters.scope("upstream", f"upstream-{number}").count("connect_failed")
    raw = scene.client()
    raw.transport.pauseProducing()  # type: ignore[union-attr]
    raw.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    scene.reactor.run()
    assert scene.site.open
    scene.reactor.advance(LIFE + 0.1)
    assert not scene.site.open
    raw.close()
    scene.reactor.run()


def test_only_one_request_is_answered_on_a_connection(scene: Scene) -> None:
    client = scene.client(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    assert client.received.count(b"HTTP/1.1 ") == 1
    assert client.eof


def test_connections_are_bounded(scene: Scene) -> None:
    clients = [scene.client() for _ in range(CONNECTIONS)]
    assert scene.client().eof
    assert not any(client.eof for client in clients)
    clients[0].close()
    scene.reactor.run()
    assert Answer(scene.get("/livez")).status == 200
    scene.site.abort()
    scene.reactor.run()
    assert all(client.lost is not None for client in clients)
