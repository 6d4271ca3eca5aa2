"""nginx behind the gateway: static files, conditional and partial requests, and connections that it closes."""

from __future__ import annotations

import gzip
import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple

import pytest

from gateways import WITHIN, Gateway, config, start, upstream, wire
from neighbours import Neighbours, free_port

TEXT = b"All work and no play.\n" * 400


class Site(NamedTuple):
    """nginx, and the gateway in front of it."""

    port: int
    gateway: Gateway


class Answer(NamedTuple):
    """What came, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


@pytest.fixture(scope="module")
def site(company: Neighbours) -> Iterator[Site]:
    root = company.directory / "site"
    root.mkdir()
    (root / "text.txt").write_bytes(TEXT)
    (root / "large.bin").write_bytes(bytes(range(256)) * 40_000)
    (root / "empty.txt").write_bytes(b"")
    port = free_port()
    company.nginx(
        f"""
        types {{ text/html html; text/plain txt; }}
        keepalive_requests 100;
        server {{
            listen 127.0.0.1:{port};
            root {root};
            gzip on; gzip_types text/plain; gzip_min_length 1;
            gzip_proxied any;  # without it: nothing for who says Via
            location = /connection {{ return 200 "$connection $connection_requests"; }}
            location = /protocol {{ return 200 "$server_protocol $http_connection"; }}
            location /put/ {{ client_max_body_size 1k; return 204; }}
        }}
        """,
        port,
    )
    gateway = start(company, config(port, upstreams=[upstream("origin", port)]), "twistd")
    yield Site(port, gateway)
    gateway.healthy()


@pytest.fixture
def connection(site: Site) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", site.gateway.port, timeout=WITHIN)) as made:
        yield made


def ask(connection: http.client.HTTPConnection, method: str, path: str, **fields: str) -> Answer:
    """One request; C{accept_encoding} stands for C{Accept-Encoding}."""
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in fields.items()})
    with connection.getresponse() as response:
        return Answer(response.status, response.headers, response.read())


def test_a_file(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/text.txt")
    assert (answer.status, answer.body) == (200, TEXT)
    assert answer.headers["content-length"] == str(len(TEXT))
    assert answer.headers["server"].startswith("nginx")


def test_an_empty_file(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/empty.txt")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "0", b"")


def test_a_large_file(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "GET", "/large.bin").body == bytes(range(256)) * 40_000


def test_head_says_how_long_it_would_be_and_the_connection_goes_on(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "HEAD", "/text.txt")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, str(len(TEXT)), b"")
    assert ask(connection, "GET", "/text.txt").body == TEXT


def test_a_range_and_several(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/large.bin", range="bytes=10-19")
    assert (answer.status, answer.body) == (206, bytes(range(10, 20)))
    assert answer.headers["content-range"] == "bytes 10-19/10240000"
    answer = ask(connection, "GET", "/large.bin", range="bytes=0-1,5-6")
    assert answer.status == 206
    assert answer.headers["content-type"].startswith("multipart/byteranges")
    assert ask(connection, "GET", "/text.txt", range="bytes=999999-").status == 416


def test_what_has_not_changed_is_not_sent_again(connection: http.client.HTTPConnection) -> None:
    etag = ask(connection, "GET", "/text.txt")
    answer = ask(connection, "GET", "/text.txt", if_none_match=etag.headers["etag"])
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["etag"] == etag.headers["etag"]
    assert ask(connection, "GET", "/text.txt", if_none_match='"other"').status == 200


def test_a_compressed_body_of_unknown_length(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/text.txt", accept_encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert gzip.decompress(answer.body) == TEXT


def test_the_upstream_is_spoken_to_in_http_1_1_and_kept(site: Site, connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "GET", "/protocol").body == b"HTTP/1.1 "


def test_a_refusal_of_the_upstream_is_its_own(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "GET", "/nothing").status == 404
    connection.request("POST", "/text.txt", body=b"x")
    with connection.getresponse() as response:
        assert response.status == 405
        assert b"nginx" in response.read()


def test_an_upstream_that_closes_after_every_100_requests_costs_the_client_nothing(site: Site) -> None:
    get = b"GET /connection HTTP/1.1\r\nHost: a\r\n\r\n"
    post = b"POST /connection HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
    served: dict[bytes, int] = {}
    with wire(site.gateway.port) as client:
        for index in range(1000):
            client.send(post if index % 10 == 9 else get)
            head, body = client.answer()
            assert head.startswith(b"HTTP/1.1 200 "), (index, head)
            upstream, _, nth = body.partition(b" ")
            served[upstream] = int(nth)
    assert max(served.values()) == 100  # it did close them, and they were used to the end
    assert len(served) <= 11


def test_an_upload_that_the_upstream_refuses_while_it_comes(site: Site) -> None:
    with wire(site.gateway.port) as client:
        client.send(b"PUT /put/x HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n")

        def upload() -> None:
            with suppress(OSError):  # nobody has to read 30 MB of no use
                for _ in range(300):
                    client.send(b"u" * 100_000)

        sender = threading.Thread(target=upload)
        sender.start()
        try:
            head, body = client.answer()
        finally:
            sender.join()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"nginx" in body
