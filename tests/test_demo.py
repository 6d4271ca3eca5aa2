"""The demo upstream, without sockets; and beside a command, with them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.server import Site

from neighbours import Neighbours, free_port, listens
from protogate.demo import STREAM_INTERVAL, Demo


class Client:
    """One connection to the site."""

    def __init__(self) -> None:
        self.clock = Clock()
        site = Site(Demo(self.clock), reactor=self.clock)
        self.transport = StringTransport()
        self.server = site.buildProtocol(None)
        self.server.makeConnection(self.transport)

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of the answer so far."""
        self.server.dataReceived(request)
        return self.read()

    def read(self) -> tuple[bytes, bytes]:
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        return head, body

    def leave(self) -> None:
        self.server.connectionLost(Failure(ConnectionDone()))


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.leave()


def test_any_path_is_greeted(client: Client) -> None:
    head, body = client.ask(b"GET /hotel?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["hello"] == "/hotel"


def test_echo_gives_back_what_arrived(client: Client) -> None:
    _, body = client.ask(b"PUT /echo?a=%20 HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nX-Two: 2\r\nContent-Length: 3\r\n\r\nabc")
    seen = json.loads(body)
    assert (seen["method"], seen["target"], seen["body"]) == ("PUT", "/echo?a=%20", "abc")
    assert [value for name, value in seen["headers"] if name == "x-two"] == ["1", "2"]


@pytest.mark.parametrize(("path", "status"), [("/status/404", 404), ("/status/200", 200), ("/status/99", 200)])
def test_status_answers_with_the_status_asked_for(client: Client, path: str, status: int) -> None:
    head, _ = client.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert head.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(("query", "seconds"), [("?ms=50", 0.05), ("", 1.0), ("?ms=no", 1.0)])
def test_slow_answers_when_its_time_has_come(client: Client, query: str, seconds: float) -> None:
    assert client.ask(f"GET /slow{query} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) == (b"", b"")
    client.clock.advance(seconds - 0.01)
    assert client.read() == (b"", b"")
    client.clock.advance(0.02)
    assert client.read()[0].startswith(b"HTTP/1.1 200 ")


def test_stream_sends_a_line_at_a_time(client: Client) -> None:
    _, body = client.ask(b"GET /stream?n=2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert body == b"7\r\nline 0\n\r\n"
    client.clock.advance(STREAM_INTERVAL)
    assert client.read()[1].endswith(b"7\r\nline 1\n\r\n")
    client.clock.advance(STREAM_INTERVAL)
    assert client.read()[1].endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("path", ["/slow", "/stream"])
def test_nothing_goes_on_for_a_client_that_left(path: str) -> None:
    client = Client()
    client.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    client.leave()
    assert not [call for call in client.clock.getDelayedCalls() if "deferLater" in str(call)]


def demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "protogate.demo", *arguments]


def test_it_suggests_a_request_once_its_command_listens_and_ends_with_it(neighbours: Neighbours) -> None:
    port, gateway = free_port(), free_port()
    url = f"http://127.0.0.1:{gateway}/hello"
    command = [sys.executable, "-m", "http.server", str(gateway), "--bind", "127.0.0.1"]
    argv = demo("--port", str(port), "--try", url, "--", *command)
    running = neighbours.start(argv, ready=lambda log: f"curl -i {url}" in log)
    assert listens(port)
    assert listens(gateway)
    running.signal(signal.SIGTERM)
    running.wait()
    assert not listens(gateway)


def test_the_exit_code_of_its_command_is_its_own(neighbours: Neighbours) -> None:
    running = neighbours.start(demo("--port", "0", "--", sys.executable, "-c", "raise SystemExit(7)"))
    assert running.wait() == 7


def test_a_command_killed_by_a_signal_is_a_failure(neighbours: Neighbours) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    running = neighbours.start(demo("--port", "0", "--", sys.executable, "-c", script))
    assert running.wait() == 1


def test_alone_it_serves_until_it_is_stopped(neighbours: Neighbours) -> None:
    port = free_port()
    running = neighbours.start(demo("--port", str(port)), port=port)
    running.signal(signal.SIGTERM)
    running.wait()
    assert not listens(port)


def test_a_port_in_use_is_said_in_one_line(neighbours: Neighbours) -> None:
    port = free_port()
    neighbours.start(demo("--port", str(port)), port=port)
    second = neighbours.start(demo("--port", str(port)))
    assert second.wait() == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.output()
    assert "Traceback" not in second.output()


def test_a_gateway_of_somebody_else_is_not_taken_for_ours(neighbours: Neighbours) -> None:
    taken = free_port()
    neighbours.start(demo("--port", str(taken)), port=taken)
    second = neighbours.start(demo("--port", "0", "--try", f"http://127.0.0.1:{taken}/", "--", "true"))
    assert second.wait() == 1
    assert f"somebody listens on 127.0.0.1:{taken} already" in second.output()
    assert "gateway on" not in second.output()
