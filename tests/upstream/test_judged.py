"""Outliers and breakers in a whole gateway, whatever its upstreams speak."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ServerFactory

from protogate.body import Whole
from protogate.context import Context
from protogate.errors import GATEWAY, Abort
from protogate.interfaces import IStreamCodec
from protogate.message import Request, Response
from protogate.plugins import find, names
from protogate.testing.boards import Boards
from protogate.testing.bodies import Giver
from protogate.testing.gateway import MemoryGateway
from protogate.testing.reactor import MemoryReactor

CODECS = tuple(names(IStreamCodec))
CALLS = [codec for codec in CODECS if codec != "http1"]
"""Those that can say how a call ended."""
CONFIG = """
gateway: {name: edge, timeouts: {total: 60s, responseHead: 1s}}
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - name: shop
    protocol: CODEC
    endpoints: [{url: "http://192.0.2.1:80"}, {url: "http://192.0.2.2:80"}, {url: "http://192.0.2.3:80"}]
    RULES
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
"""
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CALL = (
    b"POST /shop.Cart/Add HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web\r\n"
    b"Content-Length: 5\r\nConnection: close\r\n\r\n\0\0\0\0\0"
)
MESSAGE = b"\0\0\0\0\5hello"
GRPC = [(b"content-type", b"application/grpc")]
OFF = Abort("off", GATEWAY, 502)
OUTLIERS = "outliers: {ejection: 10s, ramp: 0}"


def configured(codec: str, rules: str = OUTLIERS) -> str:
    return CONFIG.replace("CODEC", codec).replace("RULES", rules)


class Server:
    """
    An endpoint.

    @ivar says: what it answers.
    """

    def __init__(self, gateway: MemoryGateway, host: str, codec: str) -> None:
        self.gateway, self.host = gateway, host
        self.codec: IStreamCodec = find(IStreamCodec, codec)
        self.requests = 0
        self.said: list[Any] = []
        self.says: Any = lambda request: Response(200, [], Whole(b"ok"))
        self.links: list[Any] = []
        self.start()

    def start(self) -> None:
        factory = ServerFactory()
        factory.noisy = False
        factory.buildProtocol = self._connected  # type: ignore[method-assign]
        self.port = self.gateway.reactor.listenTCP(80, factory, interface=self.host)

    def _connected(self, address: object) -> Any:
        made: Any = self.codec.server(self, Context(self.gateway.service.wheel))  # type: ignore[arg-type]
        self.links.append(made)
        return made

    def die(self) -> None:
        """Nothing listens any more, and what was connected is not."""
        self.port.stopListening()
        for each in self.links:
            if each.transport is not None:
                each.transport.abortConnection()
        self.links.clear()
        self.gateway.run()

    def handle(self, request: Request) -> Any:
        self.requests += 1
        return self.says(request)


class Scene:
    """A gateway with three endpoints."""

    def __init__(self, gateway: MemoryGateway, codec: str) -> None:
        self.gateway = gateway
        self.servers = [Server(gateway, f"192.0.2.{number}", codec) for number in (1, 2, 3)]
        self.bad = self.servers[0]

    def ask(self, times: int = 1, data: bytes = GET) -> list[int]:
        """The statuses of as many requests."""
        return [int(self.gateway.ask(data)[9:12]) for _ in range(times)]

    def gets(self, times: int = 30) -> list[int]:
        """How many of so many each endpoint gets."""
        before = [each.requests for each in self.servers]
        self.ask(times)
        return [each.requests - count for each, count in zip(self.servers, before, strict=True)]

    @property
    def counts(self) -> dict[str, float]:
        return dict(self.gateway.service.counters.scope("upstream", "shop").counts)


@pytest.mark.parametrize("codec", CODECS)
def test_an_endpoint_that_dies_costs_no_client_anything_and_comes_back(codec: str) -> None:
    with MemoryGateway(configured(codec)) as gateway:
        scene = Scene(gateway, codec)
        assert scene.gets() == [10, 10, 10]
        scene.bad.die()
        assert scene.ask(40) == [200] * 40
        assert scene.counts["outlier_ejected"] == 1
        refused = scene.counts["connect_failed"]
        assert refused == 5
        scene.ask(30)
        assert scene.counts["connect_failed"] == refused, "it is left alone"
        scene.bad.start()
        gateway.advance(10.2)
        assert scene.gets() == [10, 10, 10]
        assert scene.counts["outlier_returned"] == 1


@pytest.mark.parametrize("codec", CODECS)
def test_errors_that_go_on_after_its_time(codec: str) -> None:
    """envoy#1491."""
    with MemoryGateway(configured(codec)) as gateway:
        scene = Scene(gateway, codec)
        scene.bad.says = lambda request: Response(500)
        assert scene.ask(18).count(500) == 5
        for seconds in (10.2, 20.2, 40.2):
            assert scene.ask(12).count(500) == 0
            gateway.advance(seconds - 0.5)
            assert scene.ask(3).count(500) == 0
            gateway.advance(0.6)
            assert scene.ask(18).count(500) == 5


def test_calls_that_fail() -> None:
    """What gRPC says of a call in a head alone, beside status 200."""
    with MemoryGateway(configured("http2")) as gateway:
        scene = Scene(gateway, "http2")
        fields = [(b"content-type", b"application/grpc"), (b"grpc-status", b"14")]
        scene.bad.says = lambda request: Response(200, fields)
        scene.ask(18)
        assert scene.bad.requests == 5


@pytest.mark.parametrize("pieces", [[], [MESSAGE]], ids=["no message", "a message"])
@pytest.mark.parametrize("codec", CALLS)
def test_calls_that_fail_in_trailers_that_come_with_the_head(codec: str, pieces: list[bytes]) -> None:
    with MemoryGateway(configured(codec)) as gateway:
        scene = Scene(gateway, codec)
        for server, status in zip(scene.servers, (b"14", b"0", b"5"), strict=True):
            answers(server, pieces, status)
        scene.ask(60, CALL)
        assert scene.bad.requests == 5, "each counts as one that failed, and as nothing else"
        assert scene.counts["outlier_ejected"] == 1


@pytest.mark.parametrize(
    "rules",
    [
        "outliers: {consecutive: 0, errorRatio: 0.4, minRequests: 10, ramp: 0}",
        "circuitBreaker: {errorRatio: 0.4, minRequests: 10}",
    ],
    ids=["outliers", "circuitBreaker"],
)
@pytest.mark.parametrize("codec", CALLS)
def test_calls_that_fail_in_trailers_that_come_later(codec: str, rules: str) -> None:
    """They had been answered well for now."""
    with MemoryGateway(configured(codec, rules)) as gateway:
        scene = Scene(gateway, codec)
        for server, status in zip(scene.servers, (b"2", b"0", b"5"), strict=True):
            answers(server, [MESSAGE], status, gateway)
        for _ in range(36):
            client = gateway.client()
            client.send(CALL)
            gateway.advance(0.1)
            assert b" 200 " in client.received
        assert scene.bad.requests == 5, "ten is the least that says something: five good heads, five bad ends"
        assert [each.requests for each in scene.servers[1:]] in ([15, 16], [16, 15])


def answers(server: Server, pieces: list[bytes], status: bytes, later: MemoryGateway | None = None) -> None:
    """Have it answer calls so."""

    def says(request: Request) -> Response:
        trailers = [(b"grpc-status", status)]
        giver = Giver(pieces, None, trailers, close=later is None)
        if later is not None:
            later.reactor.callLater(0.01, giver.finish, trailers)
        return Response(200, GRPC, giver.body)

    server.says = says


@pytest.mark.parametrize("codec", CODECS)
def test_one_that_hangs(codec: str) -> None:
    with MemoryGateway(configured(codec)) as gateway:
        scene = Scene(gateway, codec)
        scene.bad.says = lambda request: Deferred()
        clients = [gateway.client() for _ in range(15)]
        for client in clients:
            client.send(GET)
        gateway.advance(5.3)
        assert sum(b" 504 " in client.received for client in clients) == 5
        assert scene.ask(20) == [200] * 20


@pytest.mark.parametrize("codec", CODECS)
def test_answers_that_break_off(codec: str) -> None:
    def says(request: Request) -> Response:
        giver = Giver([b"x" * 10], 100, close=False)
        gateway.reactor.callLater(0.01, giver.body.abort, OFF)
        return Response(200, [], giver.body)

    rules = "outliers: {consecutive: 0, errorRatio: 0.4, minRequests: 10, ramp: 0}"
    with MemoryGateway(configured(codec, rules)) as gateway:
        scene = Scene(gateway, codec)
        scene.bad.says = says
        for _ in range(30):
            gateway.ask(GET)
            gateway.advance(0.1)
        assert scene.counts["outlier_ejected"] == 1
        assert scene.gets(9)[0] == 0


@pytest.mark.parametrize("rules", [OUTLIERS, "circuitBreaker: {consecutive: 5}"], ids=["outliers", "circuitBreaker"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_clients_and_the_gateway_do_is_not_their_fault(codec: str, rules: str) -> None:
    """envoy#25487: a hundred clients that leave, a hundred requests that find the queue full."""
    with MemoryGateway(configured(codec, f"{rules}\n    pool: {{maxPerEndpoint: 1, queue: 1}}")) as gateway:
        scene = Scene(gateway, codec)
        waiting: list[Deferred[Response]] = []

        def says(request: Request) -> Deferred[Response]:
            waiting.append(Deferred())
            return waiting[-1]

        for server in scene.servers:
            server.says = says
        for _ in range(100):
            client = gateway.client()
            client.send(POST)
            gateway.run()
            client.close()
            gateway.run()
        for server in scene.servers:
            server.says = lambda request: Response(404)
        assert set(scene.ask(20)) == {404}
        assert not {name for name in scene.counts if name.startswith(("outlier", "breaker"))}
        if codec == "http1":
            for server in scene.servers:
                server.says = says
            clients = [gateway.client() for _ in range(100)]
            for client in clients:
                client.send(POST)
            gateway.run()
            assert sum(b" 503 " in client.received for client in clients) == 94
            for each in clients:
                each.close()
            gateway.run()
        assert not {name for name in scene.counts if name.startswith(("outlier", "breaker"))}


@pytest.mark.parametrize("codec", CODECS)
def test_all_are_bad_and_not_all_are_left_alone(codec: str) -> None:
    """envoy#2671."""
    with MemoryGateway(configured(codec)) as gateway:
        scene = Scene(gateway, codec)
        for server in scene.servers:
            server.says = lambda request: Response(500)
        assert scene.ask(60) == [500] * 60
        assert scene.gets(30).count(0) == 1
        assert "nobody_well" not in scene.counts


@pytest.mark.parametrize("codec", CODECS)
def test_what_alternates_moves_nothing(codec: str) -> None:
    """rubyist/circuitbreaker#31."""
    rules = "outliers: {errorRatio: 0.6, ramp: 0}\n    circuitBreaker: {errorRatio: 0.6, consecutive: 3}"
    with MemoryGateway(configured(codec, rules)) as gateway:
        scene = Scene(gateway, codec)
        turns = [Response(200), Response(500)] * 200

        scene.bad.says = lambda request: turns.pop()
        for _ in range(20):
            scene.ask(12)
            gateway.advance(0.5)
        assert not {name for name in scene.counts if name.startswith(("outlier", "breaker"))}


@pytest.mark.parametrize("codec", CODECS)
def test_a_breaker_refuses_at_once_and_closes(codec: str) -> None:
    rules = "circuitBreaker: {scope: upstream, errorRatio: 0, consecutive: 6, probes: 2, ramp: 4s}"
    with MemoryGateway(configured(codec, rules)) as gateway:
        scene = Scene(gateway, codec)
        for server in scene.servers:
            server.says = lambda request: Response(503)
        assert scene.ask(6) == [503] * 6
        asked = sum(server.requests for server in scene.servers)
        answer = gateway.ask(POST)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in answer
        assert b'proxy-status: edge; error=destination_unavailable; details="gateway"' in answer
        assert sum(server.requests for server in scene.servers) == asked
        record = gateway.records[-1]
        assert record.error == "upstream shop: the circuit breaker is open: 6 failures in a row"
        assert record.attempts in (0, None)
        for server in scene.servers:
            server.says = lambda request: Response(200)
        gateway.advance(5.2)
        assert scene.ask(2) == [200, 200]
        assert 1 <= scene.ask(20).count(200) <= 3
        gateway.advance(4.5)
        assert scene.ask(20) == [200] * 20
        assert (scene.counts["breaker_opened"], scene.counts["breaker_closed"]) == (1, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_breaker_of_each_endpoint(codec: str) -> None:
    rules = "circuitBreaker: {errorRatio: 0, consecutive: 3, probes: 1, ramp: 0}"
    with MemoryGateway(configured(codec, rules)) as gateway:
        scene = Scene(gateway, codec)
        scene.bad.die()
        assert scene.ask(30) == [200] * 30
        assert scene.counts["connect_failed"] == 3
        for server in scene.servers[1:]:
            server.die()
        answers = [gateway.ask(GET) for _ in range(6)]
        assert b"retry-after: 5\r\n" in answers[-1]
        assert b"destination_unavailable" in answers[-1]
        for server in scene.servers:
            server.start()
        gateway.advance(5.2)
        assert scene.ask(100) == [200] * 100, "one that is probed gets a twentieth"
        assert scene.gets() == [10, 10, 10]


def test_three_workers_are_one_gateway() -> None:
    boards = Boards()
    joined = [boards.join() for _ in range(3)]
    reactor = MemoryReactor()
    config = configured("http1")
    with MemoryGateway(config, reactor=reactor, board=joined[0]) as one:
        boards.lead(*joined)
        scene = Scene(one, "http1")
        others = [
            MemoryGateway(config.replace("8080", f"{8080 + at}"), reactor=reactor, board=joined[at]) for at in (1, 2)
        ]
        try:
            boards.run()
            scene.bad.says = lambda request: Response(500)
            statuses = []
            for _ in range(40):
                for gateway in (one, *others):
                    statuses.append(int(gateway.ask(POST)[9:12]))
                    reactor.advance(0.05)
                    boards.run()
            assert 5 <= statuses.count(500) <= 7
            assert 500 not in statuses[-100:]
            scene.bad.says = lambda request: Response(200)
            for _ in range(210):
                reactor.advance(0.05)
                boards.run()
            before = scene.bad.requests
            for gateway in (one, *others):
                for _ in range(9):
                    gateway.ask(POST)
            assert scene.bad.requests - before == 9
        finally:
            left = [each for gateway in others for each in gateway.stop()]
        assert not [each for each in left if "delayed call" not in each]


def test_a_reload_keeps_who_is_left_alone() -> None:
    with MemoryGateway(configured("http1")) as gateway:
        scene = Scene(gateway, "http1")
        scene.bad.says = lambda request: Response(500)
        scene.ask(18)
        assert gateway.reload(configured("http1", "outliers: {ejection: 20s, ramp: 0, consecutive: 3}"))
        assert scene.gets()[0] == 0
        gateway.advance(10.2)
        assert scene.ask(12).count(500) == 3
        assert gateway.reload(configured("http1", ""))
        assert scene.gets() == [10, 10, 10]


def test_an_address_that_dns_forgets_for_a_while() -> None:
    """Kong#7551: TTLs of 0 and 30, and answers that lack one of two addresses."""
    config = configured("http1", "outliers: {ejection: 60s, ramp: 0}")
    begin, end = config.index("endpoints:"), config.index("outliers:")
    config = config[:begin] + 'discovery: {dns: "up.test:80"}\n    ' + config[end:]
    with MemoryGateway(config.replace("up.test", "localhost")) as gateway:
        gateway.names.hosts["up.test"] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
        gateway.names.ttl = 0
        assert gateway.reload(config)
        scene = Scene(gateway, "http1")
        scene.bad.says = lambda request: Response(500)
        assert scene.ask(30).count(500) == 5
        for turn in range(10):
            gateway.names.ttl = (0, 30)[turn % 2]
            gateway.names.hosts["up.test"] = ["192.0.2.2", "192.0.2.1", "192.0.2.3"][turn % 3 :]
            gateway.advance(2.0)
            assert scene.gets(6)[0] == 0
        assert scene.counts["outlier_ejected"] == 1
