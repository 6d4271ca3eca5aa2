"""nginx and HAProxy, in front of the gateway and behind it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from websockets.sync.client import connect

from gateways import WITHIN, Gateway, config, eventually, origin, start, wire
from neighbours import Neighbours, free_port, need, run

UPLOAD = bytes(range(256)) * 4096


class Front(NamedTuple):
    """A proxy before the gateway."""

    port: int
    gateway: Gateway


@pytest.fixture(scope="module")
def trusting(company: Neighbours, node: int) -> Iterator[Gateway]:
    """A gateway that believes proxies of this machine; /ws goes to a server of WebSockets."""
    sockets = origin(company, "websocket_server.py").port
    gateway = start(
        company,
        config(
            node,
            gateway={"trustedProxies": ["127.0.0.0/8"]},
            routes=[
                {
                    "value": "/ws",
                    "matcherType": "prefix",
                    "routes": [{"targets": [{"url": f"http://127.0.0.1:{sockets}/echo"}]}],
                },
                {"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]},
            ],
            accessLog={"file": "access.log"},
        ),
        "twistd",
    )
    yield gateway
    gateway.healthy()


@pytest.fixture(scope="module")
def nginx(company: Neighbours, trusting: Gateway) -> Front:
    port = free_port()
    company.nginx(
        f"""
        map $http_upgrade $hop {{ default upgrade; '' ''; }}
        upstream gateway {{ server 127.0.0.1:{trusting.port}; keepalive 8; }}
        server {{
            listen 127.0.0.1:{port};
            client_max_body_size 0;
            location / {{
                proxy_pass http://gateway;
                proxy_http_version 1.1;
                proxy_request_buffering off;
                proxy_buffering off;
                proxy_set_header Host $http_host;
                proxy_set_header Connection $hop;
                proxy_set_header Upgrade $http_upgrade;
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                proxy_set_header X-Forwarded-Proto https;
            }}
        }}
        """,
        port,
    )
    return Front(port, trusting)


@pytest.fixture(scope="module")
def haproxy(company: Neighbours, trusting: Gateway) -> Front:
    port = free_port()
    company.haproxy(
        f"frontend web\n  bind 127.0.0.1:{port}\n  option forwardfor\n"
        f"  http-request set-header X-Forwarded-Proto https\n  default_backend gateway\n"
        f"backend gateway\n  option http-keep-alive\n  http-reuse always\n"
        f"  server gateway 127.0.0.1:{trusting.port}\n",
        port,
    )
    return Front(port, trusting)


@pytest.fixture(params=["nginx", "haproxy"])
def front(request: pytest.FixtureRequest) -> Front:
    found: Front = request.getfixturevalue(request.param)
    return found


def ask(
    port: int, method: str, path: str, body: Any = None, **fields: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as connection:
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, body=body, headers=headers)
        with connection.getresponse() as response:
            return response.status, response.headers, response.read()


def seen(headers: http.client.HTTPMessage) -> dict[str, str]:
    """The fields that the upstream saw."""
    fields = json.loads(headers["x-seen"])["fields"]
    return {name.lower(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}


def test_in_front_connections_are_kept(front: Front) -> None:
    for index in range(30):
        assert ask(front.port, "GET", f"/hello?{front.port}-{index}")[2] == b"hello\n"

    def mine() -> list[dict[str, Any]]:
        return [record for record in front.gateway.records() if f"?{front.port}-" in record["target"]]

    eventually(lambda: len(mine()) == 30, "30 records")
    assert len({record["clientPort"] for record in mine()}) <= 3  # of the proxy's connections to the gateway


def test_in_front_chunked_uploads_and_downloads_are_whole(front: Front) -> None:
    pieces = iter([UPLOAD[:100_000], UPLOAD[100_000:]])
    status, headers, body = ask(front.port, "POST", "/echo", pieces)
    assert (status, body) == (200, UPLOAD)
    assert "chunked" in seen(headers)["transfer-encoding"]
    assert ask(front.port, "GET", "/chunks/50")[2].endswith(b"chunk 49\n")
    assert len(ask(front.port, "GET", "/bytes/3000000")[2]) == 3_000_000


def test_in_front_who_asks_is_told_to_the_upstream(front: Front) -> None:
    _, headers, _ = ask(front.port, "GET", "/echo", x_forwarded_for="198.51.100.7")
    fields = seen(headers)
    assert [part.strip() for part in fields["x-forwarded-for"].split(",")] == ["198.51.100.7", "127.0.0.1", "127.0.0.1"]
    assert fields["x-forwarded-proto"] == "https"
    assert fields["host"] == f"127.0.0.1:{front.port}"


def test_in_front_early_refusals_arrive(front: Front) -> None:
    assert ask(front.port, "POST", "/refuse", b"u" * 300_000)[0] == 413


def test_in_front_websockets_pass(front: Front) -> None:
    with connect(
        f"ws://127.0.0.1:{front.port}/ws", open_timeout=WITHIN, close_timeout=WITHIN, max_size=None, proxy=None
    ) as connection:
        for message in ("text", b"\x00" * 300_000):
            connection.send(message)
            assert connection.recv(WITHIN) == message
        connection.close(1001, "away")
        assert connection.close_code == 1001


def test_in_front_wrk_sees_no_error(front: Front) -> None:
    done = run([need("wrk"), "-t1", "-c16", "-d1s", "--timeout", "20s", f"http://127.0.0.1:{front.port}/hello"])
    told = done.stdout.decode()
    assert re.search(r"\d\d+ requests in", told), told
    assert "Non-2xx" not in told
    assert "Socket errors" not in told


@pytest.fixture(scope="module")
def behind(company: Neighbours, node: int) -> Iterator[Gateway]:
    """A gateway before HAProxy, before Node."""
    port = free_port()
    company.haproxy(
        f"frontend web\n  bind 127.0.0.1:{port}\n  monitor-uri /haproxy-health\n  default_backend node\n"
        f"backend node\n  option http-keep-alive\n  server node 127.0.0.1:{node}\n"
        f"frontend down\n  bind 127.0.0.1:{(down := free_port())}\n  default_backend nobody\n"
        f"backend nobody\n  retries 0\n  server nobody 127.0.0.1:{free_port()}\n",
        port,
    )
    rules = [
        {"value": "/down", "matcherType": "prefix", "routes": [{"targets": [{"url": f"http://127.0.0.1:{down}"}]}]},
        {"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]},
    ]
    gateway = start(company, config(port, routes=rules))
    yield gateway
    gateway.healthy()


def test_haproxy_behind_answers_its_health_page(behind: Gateway) -> None:
    for _ in range(3):  # it closes the connection after this page
        status, _, body = ask(behind.port, "GET", "/haproxy-health")
        assert (status, b"Service ready" in body) == (200, True)


def test_haproxy_behind_keeps_connections_and_bodies_whole(behind: Gateway) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", behind.port, timeout=WITHIN)) as connection:
        connection.connect()
        used = connection.sock
        for index in range(50):
            upload = UPLOAD[: index * 1000]
            connection.request("POST", "/echo", body=iter([upload]) if index % 2 else upload)
            with connection.getresponse() as response:
                assert response.read() == upload
            assert connection.sock is used


def test_haproxy_behind_without_a_server_says_so_itself(behind: Gateway) -> None:
    status, headers, body = ask(behind.port, "GET", "/down")
    assert status == 503
    assert "via" in headers
    assert b"No server is available" in body


def test_haproxy_behind_passes_tunnels(behind: Gateway) -> None:
    with wire(behind.port) as client:
        client.send(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        client.until(b"welcome ")
        client.send(b"ping")
        assert client.exactly(4) == b"ping"


def test_nginx_behind_refuses_the_proxy_protocol_and_is_spoken_to_without(neighbours: Neighbours) -> None:
    plain, strict = free_port(), free_port()
    neighbours.nginx(
        f"server {{ listen 127.0.0.1:{plain}; return 200 plain; }}\n"
        f"server {{ listen 127.0.0.1:{strict} proxy_protocol; return 200 strict; }}",
        plain,
    )
    gateway = start(
        neighbours,
        config(
            plain,
            routes=[
                {"value": "/plain", "routes": [{"targets": [{"upstream": "origin"}]}]},
                {"value": "/strict", "routes": [{"targets": [{"url": f"http://127.0.0.1:{strict}"}]}]},
            ],
        ),
    )
    assert ask(gateway.port, "GET", "/plain")[2] == b"plain"
    # One that waits for a PROXY line hangs up on a request: that is an unusable upstream, not a fault of the client.
    status, headers, _ = ask(gateway.port, "GET", "/strict")
    assert status == 502
    assert "proxy-status" in headers
    gateway.healthy()


@pytest.fixture(scope="module")
def chain(company: Neighbours, trusting: Gateway) -> Iterator[Gateway]:
    """A gateway in front of another."""
    gateway = start(company, config(trusting.port, gateway={"name": "outer"}))
    yield gateway
    gateway.healthy()


def test_a_gateway_before_a_gateway_passes_everything(chain: Gateway) -> None:
    status, headers, body = ask(chain.port, "POST", "/echo", iter([UPLOAD[:70_000], UPLOAD[70_000:]]))
    assert (status, body) == (200, UPLOAD)
    fields = seen(headers)
    assert fields["via"] == "1.1 outer, 1.1 protogate"
    assert fields["x-forwarded-for"] == "127.0.0.1, 127.0.0.1"
    assert fields["host"] == f"127.0.0.1:{chain.port}"
    assert ", ".join(headers.get_all("via", [])) == "1.1 protogate, 1.1 outer"
    assert ask(chain.port, "HEAD", "/bytes/77")[1]["content-length"] == "77"
    assert ask(chain.port, "GET", "/empty")[0] == 204
    with wire(chain.port) as client:
        client.send(b"GET /hints HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 103 ")
        client.until(b"hinted")
    with wire(chain.port) as client:
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close, te\r\nTE: trailers\r\n"
            b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        )
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send(b"3\r\nabc\r\n0\r\nx-up: 7\r\n\r\n")
        assert client.rest().endswith(b'\r\n3\r\nabc\r\n0\r\nx-trailers: {"x-up":"7"}\r\n\r\n')


def test_a_websocket_through_two_gateways(chain: Gateway) -> None:
    url = f"ws://127.0.0.1:{chain.port}/ws"
    with connect(url, open_timeout=WITHIN, close_timeout=WITHIN, max_size=None, proxy=None) as connection:
        connection.send(b"\x01" * 300_000)
        assert connection.recv(WITHIN) == b"\x01" * 300_000
        connection.close(4000, "mine")
        assert connection.close_code == 4000
