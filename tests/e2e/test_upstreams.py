"""Node and Python's http.server behind the gateway."""

from __future__ import annotations

import http.client
import signal
from contextlib import closing

import pytest

from gateways import WITHIN, Gateway, config, eventually, origin, start, wire
from neighbours import Neighbours, free_port

SIZE = 3_000_000


def get(gateway: Gateway, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of an answer, over a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WITHIN)) as connection:
        connection.request(method, path, body=body)
        with connection.getresponse() as response:
            return response.status, response.read()


def test_chunks_are_passed_on_as_they_come(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(b"GET /hold/chunk HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"transfer-encoding: chunked" in client.until(b"\r\n\r\n").lower()
        assert client.until(b"first\n") == b"6\r\nfirst\n"  # here, before the upstream goes on
        assert get(edge, "/release/chunk") == (200, b"yes\n")
        assert client.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"


def test_an_answer_without_a_body_is_followed_by_the_next(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(b"GET /empty HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        for _ in range(3):
            head = client.until(b"\r\n\r\n").lower()
            assert head.startswith(b"http/1.1 204 ")
            assert b"content-length" not in head
            assert b"transfer-encoding" not in head


def test_trailers_pass_both_ways(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close, te\r\nTE: trailers\r\nTrailer: x-up\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Up: 7\r\nContent-Length: 9\r\n\r\n"
        )
        assert client.rest().endswith(b'\r\n3\r\nabc\r\n0\r\nx-trailers: {"x-up":"7"}\r\n\r\n')


def test_early_hints_are_left_out_for_a_client_of_http_1_0(edge: Gateway) -> None:
    with wire(edge.port) as client:
        client.send(b"GET /hints HTTP/1.0\r\nHost: a\r\n\r\n")
        answer = client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nhinted")


@pytest.mark.parametrize("phase", ["wait", "hold"])
def test_a_client_that_leaves_takes_its_request_with_it(edge: Gateway, node: int, phase: str) -> None:
    name = f"left-{phase}"
    with wire(edge.port) as client, wire(node) as behind:

        def names(path: str) -> bytes:
            behind.send(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n".encode())
            return behind.answer()[1]

        client.send(f"GET /{phase}/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        if phase == "hold":
            client.until(b"first\n")
        eventually(lambda: f'"{name}"'.encode() in names("/waiting"), "the request is at the upstream")
        assert f'"{name}"'.encode() not in names("/gone")
        client.socket.close()
        eventually(lambda: f'"{name}"'.encode() in names("/gone"), "the upstream is told")
    (record,) = eventually(
        lambda: [record for record in edge.records() if record["target"] == f"/{phase}/{name}"], "its record"
    )
    assert (record["status"], record["who"]) == (499 if phase == "wait" else 200, "client")
    assert record["error"]


def test_connections_that_the_upstream_closes_when_idle_cost_nobody_an_answer(edge: Gateway) -> None:
    with wire(edge.port) as client:
        for index in range(300):
            client.send(b"GET /fickle HTTP/1.1\r\nHost: a\r\n\r\n")
            head, body = client.answer()
            assert (head[:13], body) == (b"HTTP/1.1 200 ", b"gone\n"), (index, head, body)


def test_an_upstream_that_is_down_is_a_502_and_one_that_comes_up_is_used(neighbours: Neighbours) -> None:
    port = free_port()
    gateway = start(neighbours, config(port))
    status, body = get(gateway, "/")
    assert status == 502
    assert b'"title"' in body
    neighbours.python("-m", "http.server", "--bind", "127.0.0.1", str(port), port=port)
    assert get(gateway, "/")[0] == 200
    gateway.healthy()


@pytest.fixture(scope="module")
def old(company: Neighbours) -> Gateway:
    """A gateway in front of Python's http.server."""
    root = company.directory / "files"
    root.mkdir()
    (root / "file.bin").write_bytes(b"f" * SIZE)
    return start(company, config(origin(company, "http10_server.py", root).port))


def test_answers_of_http_1_0_are_whole(old: Gateway) -> None:
    assert get(old, "/file.bin") == (200, b"f" * SIZE)
    assert get(old, "/echo", "POST", b"p" * 70_000) == (200, b"p" * 70_000)
    assert get(old, "/missing")[0] == 404
    assert get(old, "/file.bin", "HEAD") == (200, b"")


def test_a_body_that_ends_with_its_connection_leaves_that_of_the_client_open(old: Gateway) -> None:
    stream = b"".join(b"line %d\n" % index for index in range(1000))
    with closing(http.client.HTTPConnection("127.0.0.1", old.port, timeout=WITHIN)) as connection:
        connection.connect()
        used = connection.sock
        for _ in range(5):
            connection.request("GET", "/stream")
            with connection.getresponse() as response:
                assert response.headers["transfer-encoding"] == "chunked"
                assert response.read() == stream
            assert connection.sock is used


def test_an_upstream_cut_within_its_body_is_seen_by_the_client(neighbours: Neighbours) -> None:
    server = origin(neighbours, "origin.js")
    gateway = start(neighbours, config(server.port))
    with wire(gateway.port) as client:
        client.send(b"GET /hold/never HTTP/1.1\r\nHost: a\r\n\r\n")
        client.until(b"first\n")
        server.running.signal(signal.SIGKILL)
        came = b""
        with pytest.raises(ConnectionResetError):
            came = client.rest()
        assert not came.endswith(b"0\r\n\r\n")
    gateway.healthy()


def test_a_redirect_of_the_upstream_is_left_as_it_is(old: Gateway, company: Neighbours) -> None:
    (company.directory / "files" / "folder").mkdir()
    with wire(old.port) as client:
        client.send(b"GET /folder HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n")
        answer = client.rest()
    assert answer.startswith(b"HTTP/1.1 301 ")
    assert b"\r\nlocation: /folder/\r\n" in answer
