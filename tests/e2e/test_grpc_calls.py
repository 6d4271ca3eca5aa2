"""gRPC through a gateway, with grpcio on both sides; and gRPC-Web from Node and from a browser."""

from __future__ import annotations

import json
import queue
import socket
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import pytest
from multiplexed import ENGINES, engine
from secure import pair

from authority import Authority
from gateways import HERE, WITHIN, Gateway, config, eventually, origin, start, upstream, wire
from neighbours import Neighbours, free_port, need, run

MOST = 64 << 20
OPTIONS = [
    ("grpc.max_receive_message_length", MOST),
    ("grpc.max_send_message_length", MOST),
    ("grpc.enable_retries", 0),
]
PAGE = """<!doctype html><title>a page</title><script>{script}</script><script>
const there = 'http://127.0.0.1:' + location.port + '/shop.Orders/Count';
grpcweb(there, 'application/grpc-web-text', '[3, 2, 1]', {{}}).then((found) => {{
  fetch('/page?' + encodeURIComponent(JSON.stringify([found.messages, found.trailers, found.rest])));
}});
</script>"""


class World(NamedTuple):
    """
    A gateway between grpcio and grpcio.

    @ivar port: of the server behind, by itself.
    """

    gateway: Gateway
    channel: grpc.Channel
    port: int

    def unary(self, method: str, message: bytes = b"", **named: Any) -> Any:
        """The answer, and the call."""
        return self.channel.unary_unary(f"/{method}").with_call(message, timeout=named.pop("timeout", WITHIN), **named)

    def stream(self, method: str, message: bytes = b"", **named: Any) -> Any:
        """Answers as they come."""
        return self.channel.unary_stream(f"/{method}")(message, timeout=named.pop("timeout", WITHIN), **named)

    def failure(self, method: str, message: bytes = b"", **named: Any) -> Any:
        """What a call fails with."""
        with pytest.raises(grpc.RpcError) as caught:
            self.unary(method, message, **named)
        return caught.value

    def told(self) -> dict[str, int]:
        """What the server behind knows of its calls."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            found: dict[str, int] = json.loads(channel.unary_unary("/shop.Orders/Told")(b"", timeout=WITHIN))
        return found

    def record(self, method: str, **expected: Any) -> dict[str, Any]:
        """A line of the access log about a call, with these values in it; None = there is no such value."""

        def found() -> dict[str, Any] | None:
            for line in self.gateway.records():
                if line["target"] == f"/{method}" and all(line.get(key) == expected[key] for key in expected):
                    return line
            return None

        return eventually(found, f"a record of {method} with {expected}")

    def web(self, method: str, kind: str, message: str, **headers: str) -> dict[str, Any]:
        """What Node's fetch makes of a call of gRPC-Web."""
        argv = [
            need("node"),
            str(HERE / "grpcweb.js"),
            f"{self.gateway.url}/{method}",
            kind,
            message,
            json.dumps(headers),
        ]
        done = run(argv, timeout=WITHIN)
        assert done.returncode == 0, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def all_kinds(channel: grpc.Channel) -> None:
    """One call of each kind."""
    place = channel.unary_unary("/shop.Orders/Place")
    answer, call = place.with_call(b"an order", metadata=[("app-b-bin", b"\0\xff")], timeout=WITHIN)
    assert answer == b"an order"
    assert ("end-b-bin", b"\0\xff") in call.trailing_metadata()
    assert len(list(channel.unary_stream("/shop.Orders/Count")(b"[200, 1000]", timeout=WITHIN))) == 200
    total = channel.stream_unary("/shop.Orders/Total")(iter([b"x" * 1000] * 200), timeout=WITHIN)
    assert json.loads(total) == [200, 200_000]
    said: queue.Queue[bytes | None] = queue.Queue()
    answers = channel.stream_stream("/shop.Orders/Chat")(iter(said.get, None), timeout=WITHIN)
    for word in (b"one", b"two", b"three"):
        said.put(word)
        assert next(answers) == b"you said " + word
    said.put(None)
    assert list(answers) == []
    assert answers.code() is grpc.StatusCode.OK


def _routes() -> list[dict[str, Any]]:
    def to(name: str) -> list[dict[str, Any]]:
        return [{"targets": [{"upstream": name}]}]

    return [
        {"value": "/shop.Orders/", "matcherType": "prefix", "routes": to("orders")},
        {"type": "service", "value": "shop.Stock, shop.Suppliers", "routes": to("refused")},
        {"type": "service", "value": "shop.Silent", "routes": to("silent")},
        {"value": "/page", "routes": to("page")},
    ]


def _settings(port: int, silent: int) -> dict[str, Any]:
    return config(
        port,
        listeners=[{"name": "web", "address": "127.0.0.1:0", "protocols": ["http2", "http1"]}],
        upstreams=[
            upstream("orders", port, protocol="http2"),
            upstream("refused", free_port(), protocol="http2"),
            upstream("silent", silent, protocol="http2"),
            upstream("page", free_port()),
        ],
        routes=_routes(),
        modules=[
            {"name": "addResponseHeader", "actionParam": {"x-request-id": "${func.requestId}"}},
            {"name": "respond", "condition": "request.path.endsWith('/Secret')", "actionParam": {"status": 403}},
            {
                "name": "cors",
                "actionParam": {
                    "originPatterns": ["http://localhost:[0-9]+"],
                    "methods": ["POST"],
                    "headers": ["content-type", "x-grpc-web", "x-user-agent", "grpc-timeout"],
                },
            },
            {
                "name": "respond",
                "condition": "request.path == '/page'",
                "actionParam": {
                    "contentType": "text/html",
                    "body": PAGE.format(script=(HERE / "grpcweb.js").read_text()),
                },
            },
        ],
        gateway={"limits": {"body": "16MiB"}},
        accessLog={"file": "access.log"},
    )


@pytest.fixture(scope="module")
def world(company: Neighbours) -> Iterator[World]:
    server = origin(company, "grpc_server.py")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gateway = start(company, _settings(server.port, silent.getsockname()[1]))
        with grpc.insecure_channel(f"127.0.0.1:{gateway.port}", options=OPTIONS) as channel:
            yield World(gateway, channel, server.port)
    gateway.healthy()


# -- calls


def test_a_call_with_metadata_both_ways(world: World) -> None:
    metadata = [("app-a", "one, two"), ("app-b-bin", b"\0\xff\n"), ("app-a", "three")]
    answer, call = world.unary("shop.Orders/Place", b"an order", metadata=metadata)
    assert answer == b"an order"
    begun = [each for each in call.initial_metadata() if each.key.startswith("app-")]
    ended = [each for each in call.trailing_metadata() if each.key.startswith("end-")]
    assert sorted(begun) == sorted(metadata)
    assert sorted(ended) == sorted(("end-" + key[4:], value) for key, value in metadata)
    world.record("shop.Orders/Place", received=13, status=200, rpcStatus=0, service="shop.Orders", protocol="HTTP/2")


def test_calls_of_all_kinds(world: World) -> None:
    all_kinds(world.channel)


def test_large_messages(world: World) -> None:
    message = bytes(range(256)) * (40_000)
    answer, _ = world.unary("shop.Orders/Place", message)
    assert answer == message


def test_messages_stay_compressed(world: World) -> None:
    answer, call = world.unary("shop.Orders/Place", b"x" * 100_000, compression=grpc.Compression.Gzip)
    assert answer == b"x" * 100_000
    assert call.code() is grpc.StatusCode.OK
    eventually(
        lambda: any(50 < line["received"] < 10_000 for line in world.gateway.records()), "a record of so few bytes"
    )


# -- ends


def test_a_failure_at_once(world: World) -> None:
    failure = world.failure("shop.Orders/Fail")
    assert failure.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert failure.details() == "nicht möglich: 100 %\n"
    trailing = dict(failure.trailing_metadata())
    assert trailing["grpc-status-details-bin"] == b"\0\1\xfe"
    assert trailing["x-why"] == "so"
    assert "content-length" not in trailing  # what the server has not sent is no metadata
    world.record("shop.Orders/Fail", status=200, rpcStatus=9)


def test_a_failure_after_messages(world: World) -> None:
    answers = world.stream("shop.Orders/Count", b"[2, 0, 1]")
    assert [next(answers), next(answers)] == [b"0 ", b"1 "]
    with pytest.raises(grpc.RpcError):
        next(answers)
    assert answers.code() is grpc.StatusCode.DATA_LOSS
    assert answers.details() == "half of it was lost"


@pytest.mark.parametrize("message", [b"", b"one"])
def test_a_call_that_is_cancelled_ends_behind_too(world: World, message: bytes) -> None:
    before = world.told()
    answers = world.stream("shop.Orders/Wait", message)
    if message:
        assert next(answers) == message
    eventually(lambda: world.told()["running"] == before["running"] + 1, "the call has begun")
    answers.cancel()
    eventually(lambda: world.told()["cancelled"] == before["cancelled"] + 1, "it is cancelled behind")
    world.record("shop.Orders/Wait", status=200 if message else 499, who="client", rpcStatus=None)


def test_a_server_that_dies_in_the_middle_is_no_end(world: World, company: Neighbours) -> None:
    victim = origin(company, "grpc_server.py")
    gateway = start(company, _settings(victim.port, world.port))
    with grpc.insecure_channel(f"127.0.0.1:{gateway.port}", options=OPTIONS) as channel:
        answers = channel.unary_stream("/shop.Orders/Die")(b"last words", timeout=WITHIN)
        assert next(answers) == b"last words"
        with pytest.raises(grpc.RpcError):
            next(answers)
        assert answers.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/shop.Orders/Place")(b"", timeout=WITHIN)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    gateway.healthy()


# -- deadlines


def test_a_server_is_told_what_is_left(world: World) -> None:
    answer, _ = world.unary("shop.Orders/Left", timeout=20)
    assert 5 < json.loads(answer) <= world.record("shop.Orders/Left")["deadline"] / 1000
    endless, _ = world.unary("shop.Orders/Left", timeout=None)
    assert json.loads(endless) is None


def test_a_deadline_ends_a_call_everywhere(world: World) -> None:
    before = world.told()
    answers = world.stream("shop.Orders/Wait", timeout=2)
    with pytest.raises(grpc.RpcError):
        next(answers)
    assert answers.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: world.told()["cancelled"] == before["cancelled"] + 1, "it is over behind")


def test_the_gateway_keeps_a_deadline_that_nobody_else_does(world: World) -> None:
    found = world.web("shop.Silent/Listen", "application/grpc-web", "", **{"grpc-timeout": "300m"})
    assert found["trailers"] == {"grpc-status": "4", "grpc-message": "deadline exceeded"}
    world.record("shop.Silent/Listen", status=504, rpcStatus=4, phase="deadline", deadline=300)


# -- what the gateway says


@pytest.mark.parametrize(
    ("method", "code", "details", "status"),
    [
        ("shop.Carts/Open", grpc.StatusCode.UNIMPLEMENTED, "Not Found", 404),
        ("shop.Stock/Look", grpc.StatusCode.UNAVAILABLE, "the upstream refused the connection", 502),
        ("shop.Orders/Secret", grpc.StatusCode.PERMISSION_DENIED, "Forbidden", 403),
    ],
)
def test_errors_of_the_gateway_have_a_status(
    world: World, method: str, code: grpc.StatusCode, details: str, status: int
) -> None:
    failure = world.failure(method)
    assert (failure.code(), failure.details()) == (code, details)
    number = dict(failure.trailing_metadata())["x-request-id"]
    world.record(method, id=number, status=status, rpcStatus=code.value[0])
    with pytest.raises(grpc.RpcError) as caught:
        world.channel.stream_unary(f"/{method}")(iter([b"x" * 1000] * 20), timeout=WITHIN)
    assert caught.value.code() is code  # also while messages are on their way


def test_too_much_is_resource_exhausted(world: World) -> None:
    failure = world.failure("shop.Orders/Place", b"x" * (17 << 20))
    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.details() == "the body may have 16777216 bytes"


# -- over TLS, with either engine


@pytest.mark.parametrize("name", ENGINES)
def test_calls_over_tls_on_both_sides(world: World, company: Neighbours, tmp_path: Path, name: str) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("shop.test", ["shop.test", "127.0.0.1"])
    server = origin(company, "grpc_server.py", arguments=(str(issued.cert), str(issued.key)))
    settings = config(
        server.port,
        listeners=[
            {
                "name": "web",
                "address": "127.0.0.1:0",
                "protocols": ["http2", "http1"],
                "tls": {"certificates": [pair(issued)]},
            }
        ],
        upstreams=[
            {
                "name": "origin",
                "endpoints": [{"url": f"h2://127.0.0.1:{server.port}"}],
                "tls": {"ca": str(authority.file)},
            }
        ],
    )
    with engine(name, tmp_path):
        gateway = start(company, settings)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{gateway.port}", credentials, OPTIONS) as channel:
        all_kinds(channel)
        message = bytes(range(256)) * 8000
        assert channel.unary_unary("/shop.Orders/Place")(message, timeout=WITHIN) == message
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/shop.Orders/Fail")(b"", timeout=WITHIN)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        left = json.loads(channel.unary_unary("/shop.Orders/Left")(b"", timeout=20))
        assert 5 < left < 21
    gateway.healthy()


# -- over SOTP


@pytest.fixture(scope="module")
def carried(world: World, company: Neighbours) -> Iterator[World]:
    """As C{world}, with SOTP between two gateways."""

    def parts(value: str) -> dict[str, Any]:
        routes = [{"value": value, "matcherType": "prefix", "routes": [{"targets": [{"upstream": "next"}]}]}]
        return {"routes": routes, "accessLog": {"file": "access.log"}}

    front = {"name": "web", "address": "127.0.0.1:0"}
    far = start(
        company,
        config(
            world.port,
            listeners=[{**front, "protocols": ["sotp"]}],
            upstreams=[upstream("next", world.port, protocol="http2")],
            **parts("/shop.Orders/"),
        ),
    )
    links = [{"url": f"sotp://127.0.0.1:{far.port}"}]
    near = start(
        company,
        config(
            far.port,
            listeners=[{**front, "protocols": ["http2"]}],
            upstreams=[{"name": "next", "protocol": "sotp", "endpoints": links}],
            **parts("/"),
        ),
    )
    with grpc.insecure_channel(f"127.0.0.1:{near.port}", options=OPTIONS) as channel:
        yield World(near, channel, world.port)
    near.healthy()
    far.healthy()


def test_sotp_carries_calls(carried: World) -> None:
    all_kinds(carried.channel)


def test_sotp_carries_how_calls_end(carried: World) -> None:
    failure = carried.failure("shop.Orders/Fail")
    assert (failure.code(), failure.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "nicht möglich: 100 %\n")
    assert dict(failure.trailing_metadata())["grpc-status-details-bin"] == b"\0\1\xfe"
    answers = carried.stream("shop.Orders/Count", b"[1, 0, 1]")
    assert next(answers) == b"0 "
    with pytest.raises(grpc.RpcError):
        next(answers)
    assert answers.code() is grpc.StatusCode.DATA_LOSS
    answer, _ = carried.unary("shop.Orders/Left", timeout=20)
    assert 5 < json.loads(answer) <= carried.record("shop.Orders/Left")["deadline"] / 1000
    before = carried.told()
    answers = carried.stream("shop.Orders/Wait", b"one")
    assert next(answers) == b"one"
    answers.cancel()
    eventually(lambda: carried.told()["cancelled"] == before["cancelled"] + 1, "it is cancelled behind")


def test_errors_of_a_gateway_beyond_sotp_have_their_status(carried: World) -> None:
    failure = carried.failure("shop.Carts/Open")
    assert (failure.code(), failure.details()) == (grpc.StatusCode.NOT_FOUND, "Not Found")
    carried.record("shop.Carts/Open", status=404, rpcStatus=5)


# -- gRPC-Web


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text+proto"])
def test_a_client_of_grpc_web(world: World, kind: str) -> None:
    found = world.web("shop.Orders/Place", kind, "größer", **{"app-a": "b"})
    assert found.pop("reads") >= 1
    assert found == {
        "messages": ["größer"],
        "trailers": {"grpc-status": "0", "grpc-message": "", "end-a": "b"},
        "broken": False,
        "status": 200,
        "type": kind.replace("+proto", ""),
        "begun": "b",
        "rest": 0,
    }
    world.record("shop.Orders/Place", protocol="HTTP/1.1", rpcStatus=0, service="shop.Orders")


@pytest.mark.parametrize("kind", ["application/grpc-web", "application/grpc-web-text"])
def test_streams_and_failures_of_grpc_web(world: World, kind: str) -> None:
    found = world.web("shop.Orders/Count", kind, "[300, 1000, 1]")
    assert [message.split()[0] for message in found["messages"]] == [str(index) for index in range(300)]
    assert found["trailers"] == {"grpc-status": "15", "grpc-message": "half of it was lost"}
    found = world.web("shop.Orders/Fail", kind, "")
    assert found["messages"] == []
    assert found["trailers"]["grpc-status"] == "9"
    assert found["trailers"]["grpc-message"] == "nicht m%C3%B6glich: 100 %25%0A"
    assert world.web("shop.Carts/Open", kind, "")["trailers"] == {"grpc-status": "12", "grpc-message": "Not Found"}


def test_messages_of_grpc_web_come_while_the_call_goes_on(world: World) -> None:
    before = world.told()
    with wire(world.gateway.port) as client:
        client.send(
            b"POST /shop.Orders/Wait HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc-web\r\n"
            b"Content-Length: 8\r\n\r\n\x00\x00\x00\x00\x03now"
        )
        head = client.until(b"\r\n\r\n")
        assert b"\r\ncontent-type: application/grpc-web\r\n" in head.lower()
        assert client.until(b"now").endswith(b"\x00\x00\x00\x00\x03now")
    eventually(lambda: world.told()["cancelled"] == before["cancelled"] + 1, "who leaves cancels the call")


def test_grpc_web_over_http2(world: World) -> None:
    argv = [
        need("curl"), "-sS", "--http2-prior-knowledge", "--data-binary", "@-",
        "-H", "content-type: application/grpc-web", "-w", "%{http_version} %{content_type}",
        f"{world.gateway.url}/shop.Orders/Count",
    ]  # fmt: skip
    done = run(argv, data=b"\x00\x00\x00\x00\x06[2, 0]", timeout=WITHIN)
    assert done.stdout == (
        b"\x00\x00\x00\x00\x020 \x00\x00\x00\x00\x021 "
        b"\x80\x00\x00\x00\x20grpc-status: 0\r\ngrpc-message: \r\n2 application/grpc-web"
    ), done.stderr


def test_what_is_no_base64_is_told_so(world: World) -> None:
    with wire(world.gateway.port) as client:
        client.send(
            b"POST /shop.Orders/Place HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc-web-text\r\n"
            b"Content-Length: 8\r\n\r\n!!!!!!!!"
        )
        head, body = client.answer()
    assert head.startswith(b"HTTP/1.1 200 ")
    status = b"grpc-status: 3\r\ngrpc-message: the content is not Base64\r\n"
    assert b64decode(body) == b"\x80\x00\x00\x00%c%b" % (len(status), status)


def test_a_page_of_another_origin_calls(world: World, company: Neighbours, tmp_path: Path) -> None:
    argv = [
        need("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
        f"--user-data-dir={tmp_path}", f"http://localhost:{world.gateway.port}/page",
    ]  # fmt: skip
    browser = company.start(argv)

    def told() -> list[str]:
        return [each["target"] for each in world.gateway.records() if each["target"].startswith("/page?")]

    (target,) = eventually(told, f"the end of the page; the browser says {browser.output()}", 60)
    browser.stop()
    trailers = {"grpc-status": "15", "grpc-message": "half of it was lost"}
    assert json.loads(unquote(target.partition("?")[2])) == [["0 xx", "1 xx", "2 xx"], trailers, 0]
    world.record("shop.Orders/Count", status=204)  # the preflight
