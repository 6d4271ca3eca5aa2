"""Which endpoints are well: looked at again and again, on connections of their own."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.protocol import ServerFactory

from protogate.body import Whole
from protogate.build import build
from protogate.config.faults import ConfigFaults
from protogate.config.health import request_path, statuses
from protogate.context import Context
from protogate.errors import ConfigError
from protogate.interfaces import IStreamCodec
from protogate.message import Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver, Taker
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do
from protogate.upstream.health import patience
from protogate.upstream.probe import question

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - name: shop
    protocol: PROTOCOL
    endpoints: [{url: "SCHEME://192.0.2.1:80"}, {url: "SCHEME://192.0.2.2:80"}]
    healthCheck: {CHECK}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
"""
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HEALTH = b"/grpc.health.v1.Health/Check"
SERVING = b"\0\0\0\0\2\x08\x01"


def configured(check: str = "interval: 2s, timeout: 1s", codec: str = "http1") -> str:
    text = CONFIG.replace("CHECK", check).replace("PROTOCOL", codec)
    return text.replace("SCHEME", "h2c" if codec == "http2" else "http")


class Server:
    """An endpoint that speaks a codec."""

    def __init__(self, gateway: MemoryGateway, host: str, codec: str = "http1") -> None:
        self.requests: list[Request] = []
        self.looks: list[Request] = []
        self.well: Any = lambda request: Response(200, [], Whole(b"I am fine"))
        self._gateway, self._host = gateway, host
        self._codec: IStreamCodec = find(IStreamCodec, codec)
        self.connections, self.content = 0, b""
        self.start()

    def start(self) -> None:
        factory = ServerFactory()
        factory.noisy = False
        factory.buildProtocol = self._connected  # type: ignore[method-assign]
        self.port = self._gateway.reactor.listenTCP(80, factory, interface=self._host)

    def _connected(self, address: object) -> Any:
        self.connections += 1
        return self._codec.server(self, Context(self._gateway.service.wheel))  # type: ignore[arg-type]

    def handle(self, request: Request) -> Response:
        self.content = Taker(request.body).data if request.body is not None else b""
        look = b"health" in request.target or request.headers.get(b"user-agent") == b"protogate-health-check"
        (self.looks if look else self.requests).append(request)
        answer: Response = self.well(request) if look else Response(204)
        return answer


class Scene:
    """A gateway with two endpoints."""

    def __init__(self, gateway: MemoryGateway, codec: str = "http1") -> None:
        self.gateway = gateway
        self.one, self.two = (Server(gateway, host, codec) for host in ("192.0.2.1", "192.0.2.2"))

    def ask(self, times: int = 4) -> tuple[int, int]:
        """How many of these requests each endpoint gets."""
        before = len(self.one.requests), len(self.two.requests)
        for _ in range(times):
            assert b" 204 " in self.gateway.ask(GET)
        return len(self.one.requests) - before[0], len(self.two.requests) - before[1]

    @property
    def counts(self) -> dict[str, float]:
        return dict(self.gateway.service.counters.scope("upstream", "shop").counts)


def held(gateway: MemoryGateway) -> dict[str, str]:
    """Why which endpoints get nothing."""
    clusters = gateway.service.clusters
    assert clusters is not None
    return {each.address: each.held["healthCheck"][1] for each in clusters.current["shop"].endpoints if not each.up}


def test_one_that_is_not_well_gets_no_request_until_it_is_again() -> None:
    with MemoryGateway(configured("path: /health, interval: 2s, timeout: 1s, rise: 2, fall: 3")) as gateway:
        scene = Scene(gateway)
        # The first look comes within a second, each other one 1.8 to 2.2 s after the one before.
        assert scene.ask() == (2, 2)
        gateway.advance(1.1)
        assert [request.target for request in scene.one.looks] == [b"/health"]
        assert scene.one.looks[0].authority == b"192.0.2.1"
        scene.one.well = lambda request: Response(503)
        gateway.advance(4.2)
        assert scene.ask() == (2, 2), "twice is not three times"
        gateway.advance(2.6)
        assert scene.ask() == (0, 4)
        scene.one.well = lambda request: Response(204)
        gateway.advance(1.7)
        assert scene.ask() == (0, 4), "once is not twice"
        gateway.advance(3.0)
        assert scene.ask() == (2, 2)
        counts = scene.counts
        assert (counts["endpoint_down"], counts["endpoint_up"]) == (1, 1)
        assert counts["check_failed"] == 3 or counts["check_failed"] == 4
        assert [record.status for record in gateway.records] == [204] * 20, "looks are no requests"
        assert len(scene.one.looks) <= len(gateway.records)


def test_what_alternates_changes_nothing() -> None:
    with MemoryGateway(configured("interval: 2s, timeout: 1s, rise: 2, fall: 3")) as gateway:
        scene = Scene(gateway)
        answers = [Response(200), Response(500)] * 30
        scene.one.well = lambda request: answers.pop()
        gateway.advance(40)
        assert len(scene.one.looks) > 15
        assert scene.ask() == (2, 2)
        assert "endpoint_down" not in scene.counts


def test_when_none_is_well_all_get_their_share() -> None:
    with MemoryGateway(configured("interval: 1s, timeout: 1s, fall: 1")) as gateway:
        scene = Scene(gateway)
        scene.one.well = scene.two.well = lambda request: Response(503)
        gateway.advance(2)
        assert scene.ask() == (2, 2)
        assert scene.counts["nobody_well"] >= 1


@pytest.mark.parametrize(
    ("check", "well", "up"),
    [
        ("statuses: 200-399", lambda request: Response(301), True),
        ("statuses: '200,204'", lambda request: Response(201), False),
        ("body: fine", lambda request: Response(200, [], Whole(b"I am fine")), True),
        ("body: fine", lambda request: Response(200, [], Whole(b"not today")), False),
        ("body: fine", lambda request: Response(200, [], Whole(b"x" * 70_000)), False),
        ("method: HEAD, path: '/health?deep=1'", lambda request: Response(204), True),
    ],
)
def test_what_is_well(check: str, well: Any, up: bool) -> None:
    with MemoryGateway(configured(f"{check}, interval: 1s, timeout: 1s, fall: 1")) as gateway:
        scene = Scene(gateway)
        scene.one.well, scene.two.well = well, lambda request: Response(200, [], Whole(b"fine"))
        gateway.advance(1.1)
        assert scene.ask()[0] == (2 if up else 0)
        if "deep" in check:
            assert (scene.one.looks[0].method, scene.one.looks[0].target) == (b"HEAD", b"/health?deep=1")


def test_who_refuses_and_who_says_nothing_is_not_well() -> None:
    with MemoryGateway(configured("interval: 2s, timeout: 1s, fall: 1")) as gateway:
        scene = Scene(gateway)
        scene.one.port.stopListening()
        gateway.advance(1.2)
        assert scene.ask() == (0, 4)
        scene.one.start()
        gateway.advance(5)
        assert scene.ask() == (2, 2)
        gateway.reactor.silent.add(("192.0.2.1", 80))
        scene.one.port.stopListening()
        gateway.advance(4)
        assert scene.ask() == (0, 4)


def test_a_look_that_takes_all_its_time_is_not_the_last() -> None:
    with MemoryGateway(configured("interval: 1s, timeout: 1s, fall: 1, rise: 1")) as gateway:
        scene = Scene(gateway)
        gateway.reactor.silent.add(("192.0.2.1", 80))
        scene.one.port.stopListening()
        for _ in range(3):
            gateway.advance(4)
            assert scene.ask() == (0, 4)
        gateway.reactor.silent.clear()
        scene.one.start()
        gateway.advance(2.5)
        assert scene.ask() == (2, 2)


def test_who_waits_for_an_endpoint_that_is_found_not_to_be_well_is_sent_elsewhere() -> None:
    text = configured("interval: 2s, timeout: 1s, fall: 1").replace(
        "    protocol:", "    pool: {maxPerEndpoint: 1}\n    protocol:"
    )
    with MemoryGateway(text) as gateway:
        scene = Scene(gateway)
        scene.one.port.stopListening()
        gateway.upstream("192.0.2.1", 80, *[[Do.SILENCE]] * 5)  # it takes one request, and answers none
        clients = [gateway.client() for _ in range(6)]
        for client in clients:
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            gateway.run()
        answered = [client for client in clients if b" 204 " in client.received]
        assert len(answered) == 3
        gateway.advance(2.2)
        answered = [client for client in clients if b" 204 " in client.received]
        assert len(answered) == 5, "all but the one that was sent"
        assert all(record.attempts == 2 for record in gateway.records[3:])


def test_it_is_enough_to_be_connected() -> None:
    with MemoryGateway(configured("type: connect, interval: 1s, timeout: 1s, fall: 1")) as gateway:
        scene = Scene(gateway)
        gateway.advance(1.1)
        assert (scene.one.looks, scene.one.connections > 0) == ([], True)
        scene.one.port.stopListening()
        gateway.advance(1.2)
        assert scene.ask() == (0, 4)


@pytest.mark.parametrize("codec", ["http2", "sotp"])
def test_a_sign_of_life_where_the_protocol_has_one(codec: str) -> None:
    with MemoryGateway(configured("type: ping, interval: 1s, timeout: 1s, fall: 1, rise: 1", codec)) as gateway:
        scene = Scene(gateway, codec)
        gateway.advance(2.5)
        assert scene.one.looks == scene.one.requests == [], "it is no request"
        assert scene.counts["check_ok"] >= 4
        assert "check_failed" not in scene.counts
        assert scene.ask() == (2, 2)
        scene.one.port.stopListening()
        gateway.advance(1.2)
        assert scene.ask() == (0, 4)
        scene.one.start()
        gateway.advance(1.2)
        assert scene.ask() == (2, 2)


@pytest.mark.parametrize("codec", ["http2", "sotp"])
def test_who_takes_a_connection_and_shows_no_sign_of_life_is_not_well(codec: str) -> None:
    with MemoryGateway(configured("type: ping, interval: 2s, timeout: 1s, fall: 1", codec)) as gateway:
        scene = Scene(gateway, codec)
        scene.one.port.stopListening()
        gateway.upstream("192.0.2.1", 80, *[[]] * 5)  # it takes what comes, and says nothing
        gateway.advance(2.1)
        assert held(gateway) == {"192.0.2.1:80": "not well within 1 s"}


def test_who_closes_instead_of_a_sign_of_life_is_not_well() -> None:
    with MemoryGateway(configured("type: ping, interval: 2s, timeout: 1s, fall: 1", "sotp")) as gateway:
        scene = Scene(gateway, "sotp")
        scene.one.port.stopListening()
        gateway.upstream("192.0.2.1", 80, *[[Do.CLOSE]] * 5)
        gateway.advance(1.1)
        assert list(held(gateway)) == ["192.0.2.1:80"]
        assert "closed" in held(gateway)["192.0.2.1:80"]


def test_being_refused_once_changes_nothing() -> None:
    with MemoryGateway(configured("interval: 2s, timeout: 1s, rise: 2, fall: 3")) as gateway:
        scene = Scene(gateway)
        gateway.advance(1.1)
        scene.one.port.stopListening()
        gateway.advance(2.2)
        scene.one.start()
        assert scene.counts["check_failed"] == 1
        assert scene.ask() == (2, 2)
        gateway.advance(10)
        assert scene.counts["check_failed"] == 1
        assert "endpoint_down" not in scene.counts


@pytest.mark.parametrize(
    ("content", "trailers", "up"),
    [
        (SERVING, [(b"grpc-status", b"0")], True),
        (b"\0\0\0\0\2\x08\x02", [(b"grpc-status", b"0")], False),
        (b"\0\0\0\0\0", [(b"grpc-status", b"0")], False),
        (SERVING[:-1], [(b"grpc-status", b"0")], False),
        (b"", [(b"grpc-status", b"5")], False),
        (SERVING, [], False),
    ],
    ids=["serving", "not serving", "unknown", "cut off", "no such service", "no status"],
)
def test_the_protocol_of_grpc(content: bytes, trailers: Any, up: bool) -> None:
    check = "type: grpc, service: shop.v1.Cart, interval: 1s, timeout: 1s, fall: 1"
    with MemoryGateway(configured(check, "http2")) as gateway:
        scene = Scene(gateway, "http2")
        kind = [(b"content-type", b"application/grpc")]
        scene.one.well = lambda request: Response(200, kind, Giver([content] if content else [], None, trailers).body)
        scene.two.well = lambda request: Response(200, kind, Giver([SERVING], None, [(b"grpc-status", b"0")]).body)
        gateway.advance(1.1)
        look = scene.one.looks[0]
        assert (look.method, look.target, look.body is not None) == (b"POST", HEALTH, True)
        assert scene.one.content == b"\0\0\0\0\x0e\n\x0cshop.v1.Cart"
        assert scene.ask() == ((2, 2) if up else (0, 4))


def test_a_long_name_of_a_service_is_one() -> None:
    from protogate.config.model import HealthCheck

    request = question(HealthCheck(type="grpc", service="s" * 200), b"a")
    assert request is not None
    assert Taker(request.body).data == b"\0\0\0\0\xcb\n\xc8\x01" + b"s" * 200


def test_a_reload_keeps_what_was_found_out_and_looks_anew() -> None:
    check = "interval: 1s, timeout: 1s, fall: 1, rise: 2"
    with MemoryGateway(configured(check)) as gateway:
        scene = Scene(gateway)
        scene.one.well = lambda request: Response(503)
        gateway.advance(1.2)
        assert scene.ask() == (0, 4)
        assert gateway.reload(configured(f"{check}, path: /other"))
        assert scene.ask() == (0, 4)
        gateway.advance(1.2)
        assert scene.one.looks[-1].target == b"/other"
        assert gateway.reload(configured(check).replace(f"healthCheck: {{{check}}}", "healthCheck: null"))
        assert scene.ask() == (2, 2)
        looks = len(scene.one.looks)
        gateway.advance(5)
        assert len(scene.one.looks) == looks


def test_what_is_no_endpoint_any_more_is_looked_at_no_more() -> None:
    with MemoryGateway(configured("interval: 1s, timeout: 1s")) as gateway:
        scene = Scene(gateway)
        gateway.advance(1.5)
        assert gateway.reload(configured("interval: 1s, timeout: 1s").replace('{url: "http://192.0.2.1:80"}, ', ""))
        looks = len(scene.one.looks)
        gateway.advance(5)
        assert len(scene.one.looks) == looks
        assert len(scene.two.looks) > 3


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ("interval: 1s, timeout: 2s", "no longer than interval"),
        ("interval: 1s, timeout: 0", "no longer than interval"),
        ("path: health", "expected a path"),
        ("path: '/a#b'", "expected a path"),
        ("statuses: 2xx", "expected statuses"),
        ("type: tcp", "connect"),
        ("type: ping", "http1 has no sign of life: take http, grpc or connect"),
        ("fall: 0", "1"),
        ("method: POST", "GET"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Any, check: str, why: str) -> None:
    (tmp_path / "gateway.yaml").write_text(configured(check))
    with pytest.raises(ConfigFaults, match=why) as caught:
        build(str(tmp_path / "gateway.yaml"))
    assert "upstreams[0].healthCheck" in str(caught.value)


def test_statuses() -> None:
    assert statuses("200,204, 300-302") == {200, 204, 300, 301, 302}
    for text in ("", "200-", "299-200", "600", "٢٠٠", "200;204"):
        with pytest.raises(ConfigError):
            statuses(text)
    assert request_path("/a?b=c") == "/a?b=c"


@pytest.mark.parametrize(("said", "seconds"), [("interval: 10s", 2.0), ("interval: 1s", 1.0), ("timeout: 3s", 3.0)])
def test_a_look_may_take_two_seconds_or_the_interval(said: str, seconds: float) -> None:
    with MemoryGateway(configured(f"type: connect, {said}")) as gateway:
        check = gateway.service.built.config.upstreams[0].health_check
        assert check is not None
        assert patience(check) == seconds
