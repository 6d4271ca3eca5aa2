"""Ways to choose an endpoint, through a whole gateway, whatever is spoken to the upstream."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ServerFactory

from protogate.context import Context
from protogate.interfaces import IStreamCodec
from protogate.message import Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Raw

CODECS = ["http1", "http2", "sotp"]
KEY = "hash: {key: \"request.headers['x-user']\"}"

each_codec = pytest.mark.parametrize("codec", CODECS)


def configured(codec: str, words: str, places: int = 3, zones: str = "", gateway: str = "") -> str:
    """@param zones: of each endpoint, a letter each."""
    listed = ", ".join(
        f'{{url: "http://192.0.2.{number}:80"{f", zone: {zones[number - 1]}" if zones else ""}}}'
        for number in range(1, places + 1)
    )
    return f"""
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
{gateway}
upstreams: [{{name: shop, protocol: {codec}, endpoints: [{listed}], {words}}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
"""


class Server:
    """An endpoint that answers when a test says so, or at once."""

    def __init__(self, gateway: MemoryGateway, host: str, codec: str) -> None:
        self.waiting: list[Deferred[Response]] = []
        self.requests = self.connections = 0
        self.patient, self.status = True, 204
        self._gateway = gateway
        self._codec: IStreamCodec = find(IStreamCodec, codec)
        factory = ServerFactory()
        factory.noisy = False
        factory.buildProtocol = self._connected  # type: ignore[method-assign, assignment]
        gateway.reactor.listenTCP(80, factory, interface=host)

    def _connected(self, address: object) -> Any:
        self.connections += 1
        return self._codec.server(self, Context(self._gateway.service.wheel))  # type: ignore[arg-type]

    def handle(self, request: Request) -> Response | Deferred[Response]:
        self.requests += request.target == b"/"
        if not self.patient:
            return Response(self.status)
        answer: Deferred[Response] = Deferred()
        self.waiting.append(answer)
        return answer

    def answer(self, many: int = 1, response: Response | None = None) -> None:
        for _ in range(many):
            self.waiting.pop(0).callback(Response(204) if response is None else response)
        self._gateway.run()


class Scene:
    def __init__(self, gateway: MemoryGateway, codec: str, places: int = 3) -> None:
        self.gateway = gateway
        self.servers = [Server(gateway, f"192.0.2.{number}", codec) for number in range(1, places + 1)]
        self.clients: list[Raw] = []

    def send(self, many: int = 1, user: str = "") -> None:
        """So many requests, each on a connection of its own."""
        field = f"X-User: {user}\r\n" if user else ""
        for _ in range(many):
            client = self.gateway.client()
            client.send(f"GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n".encode())
            self.clients.append(client)
            self.gateway.run()

    def hurry(self) -> None:
        """From now on all answer at once."""
        for server in self.servers:
            server.patient = False
            server.answer(len(server.waiting))

    def shares(self, many: int) -> list[int]:
        """How many of these each endpoint gets."""
        before = [server.requests for server in self.servers]
        self.send(many)
        return [server.requests - old for server, old in zip(self.servers, before, strict=True)]

    @property
    def waiting(self) -> list[int]:
        return [len(server.waiting) for server in self.servers]

    @property
    def cluster(self) -> Any:
        assert self.gateway.service.clusters is not None
        return self.gateway.service.clusters.current["shop"]

    @property
    def loads(self) -> list[int]:
        """What the gateway believes each endpoint has to do."""
        return [endpoint.pool.load for endpoint in self.cluster.endpoints]

    @property
    def counts(self) -> dict[str, float]:
        return dict(self.gateway.service.counters.scope("upstream", "shop").counts)


# -- load


@each_codec
def test_load_is_what_an_endpoint_was_given_and_is_not_over(codec: str) -> None:
    with MemoryGateway(configured(codec, "pool: {maxPerEndpoint: 2}", 1)) as gateway:
        scene = Scene(gateway, codec, 1)
        (server,) = scene.servers
        assert scene.loads == [0]
        for many in range(1, 6):
            scene.send()
            assert scene.loads == [many], "those that wait for a connection, too"
        assert server.connections == (2 if codec == "http1" else 1)
        server.answer()
        assert scene.loads == [4]
        scene.clients[-1].reset()
        gateway.run()
        assert scene.loads == [3], "a client left"
        body = Giver(close=False)
        server.answer(1, Response(200, [], body.body))
        assert scene.loads == [3], "an answer that is not over"
        body.write(b"some")
        gateway.run()
        assert scene.loads == [3]
        body.finish()
        gateway.run()
        assert scene.loads == [2]
        scene.hurry()
        assert scene.loads == [0]


@each_codec
def test_an_endpoint_that_is_slow_gets_less(codec: str) -> None:
    with MemoryGateway(configured(codec, "balance: leastRequest", 2)) as gateway:
        scene = Scene(gateway, codec, 2)
        slow, fast = scene.servers
        scene.send(2)
        assert scene.waiting == [1, 1]
        fast.patient = False
        fast.answer()
        assert scene.shares(6) == [0, 6]
        slow.answer()
        assert scene.loads == [0, 0]
        scene.hurry()


@each_codec
def test_the_one_that_is_likely_to_be_sooner_gets_more(codec: str) -> None:
    with MemoryGateway(configured(codec, "balance: peakEwma", 2)) as gateway:
        scene = Scene(gateway, codec, 2)
        slow, fast = scene.servers
        scene.send(2)
        assert scene.waiting == [1, 1], "nobody knows yet"
        gateway.advance(0.1)
        fast.answer()
        gateway.advance(0.4)
        slow.answer()
        scene.hurry()
        assert scene.shares(6) == [0, 6]
        fast.patient = True
        scene.send()
        gateway.advance(2.0)
        fast.answer()
        fast.patient = False
        assert scene.shares(6) == [6, 0], "one peak is enough"


# -- keys


@each_codec
def test_a_key_stays_with_its_endpoint(codec: str) -> None:
    with MemoryGateway(configured(codec, f"balance: hash, {KEY}")) as gateway:
        scene = Scene(gateway, codec)
        scene.hurry()
        owners = {}
        for user in ("ann", "bob", "cid", "dan", "eve", "fay"):
            scene.send(3, user)
            address = {record.address for record in gateway.records[-3:]}
            assert len(address) == 1
            owners[user] = address.pop()
        assert len(set(owners.values())) > 1
        assert gateway.reload(configured(codec, f"balance: hash, {KEY}, deadlineHeader: x-left"))
        scene.send(1, "ann")
        assert gateway.records[-1].address == owners["ann"]
        assert scene.shares(6) == [2, 2, 2], "without a key by weight"


@each_codec
def test_a_key_that_many_have_does_not_bring_its_endpoint_down(codec: str) -> None:
    with MemoryGateway(configured(codec, f"balance: hash, {KEY}")) as gateway:
        scene = Scene(gateway, codec)
        scene.send(24, "everybody")
        assert max(scene.waiting) == 10, "of 24, a third times 1.25"
        assert sum(scene.waiting) == 24
        assert scene.counts["hash_overflow"] > 10
        scene.hurry()


def test_a_copy_and_what_is_given_instead_have_the_key_of_the_original() -> None:
    text = f"""
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams:
  - {{name: first, endpoints: [{{url: "http://192.0.2.9:80"}}]}}
  - name: shop
    balance: hash
    {KEY}
    endpoints: [{{url: "http://192.0.2.1:80"}}, {{url: "http://192.0.2.2:80"}}, {{url: "http://192.0.2.3:80"}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: first}}]}}]}}]
modules: [MODULE]
"""
    given = "{name: degrade, actionParam: {name: less, when: {errors: true}, give: [{upstream: shop}]}}"
    for module in ("{name: trafficCopy, actionParam: {upstream: shop}}", given):
        with MemoryGateway(text.replace("MODULE", module)) as gateway:
            scene = Scene(gateway, "http1")
            scene.hurry()
            if module is not given:
                Server(gateway, "192.0.2.9", "http1").patient = False
            owners = set()
            for user in ("ann", "bob", "cid", "dan", "eve", "fay"):
                before = [server.requests for server in scene.servers]
                scene.send(4, user)
                more = [server.requests - old for server, old in zip(scene.servers, before, strict=True)]
                assert sorted(more) == [0, 0, 4]
                owners.add(more.index(4))
            assert len(owners) > 1


# -- zones


@each_codec
def test_a_share_is_moved_by_one_number_and_all_else_is_kept(codec: str) -> None:
    def words(own: int, other: int) -> str:
        return configured(codec, f"zones: {{schedule: {{A: {own}, B: {other}}}}}", 2, "AB")

    with MemoryGateway(words(100, 0)) as gateway:
        scene = Scene(gateway, codec, 2)
        scene.hurry()
        assert scene.shares(10) == [10, 0]
        assert gateway.reload(words(70, 30))
        assert scene.shares(10) == [7, 3]
        made = [server.connections for server in scene.servers]
        for server in scene.servers:
            server.patient = True
        scene.send(10)
        assert scene.waiting == [7, 3]
        assert gateway.reload(words(0, 100))
        scene.hurry()
        assert scene.shares(10) == [0, 10]
        assert gateway.reload(words(50, 50))
        assert scene.shares(10) == [5, 5]
        if codec != "http1":  # where the ten at a time need ten connections
            assert [server.connections for server in scene.servers] == made
        assert {record.status for record in gateway.records} == {204}


@each_codec
def test_a_zone_without_room_hands_on(codec: str) -> None:
    words = "zones: {}, pool: {maxPerEndpoint: 1}"
    with MemoryGateway(configured(codec, words, 2, "AB", "gateway: {zone: A}")) as gateway:
        scene = Scene(gateway, codec, 2)
        scene.send(3)
        if codec == "http1":
            assert scene.waiting == [1, 1]
            assert scene.loads == [2, 1], "the third waits in its own zone: there is no room anywhere"
            assert scene.counts["zone_spilled"] == 1
        else:
            assert scene.waiting == [3, 0], "one connection carries them all"
        scene.hurry()


def test_a_zone_that_fails_is_left_and_found_again() -> None:
    check = "healthCheck: {path: /health, statuses: '204', interval: 1s, timeout: 500ms, rise: 1, fall: 1}"
    words = f"zones: {{}}, slowStart: 10s, {check}"
    with MemoryGateway(configured("http1", words, 4, "AABB", "gateway: {zone: B}")) as gateway:
        scene = Scene(gateway, "http1", 4)
        scene.hurry()
        gateway.advance(2)
        assert scene.shares(10) == [0, 0, 5, 5]
        for server in scene.servers[2:]:
            server.patient = True  # looks get no answer
        gateway.advance(3)
        assert scene.shares(10) == [5, 5, 0, 0]
        for server in scene.servers[2:]:
            server.patient = False
            server.answer(len(server.waiting))
        gateway.advance(2)
        assert 2 <= sum(scene.shares(20)[2:]) <= 8, "a tenth of it or two, times 1.4"
        gateway.advance(11)
        assert scene.shares(10) == [0, 0, 5, 5]


# -- slow start


def test_a_new_endpoint_starts_slowly_and_those_of_the_beginning_do_not() -> None:
    with MemoryGateway(configured("http1", "slowStart: 20s", 2)) as gateway:
        scene = Scene(gateway, "http1", 3)
        scene.hurry()
        assert scene.shares(20) == [10, 10, 0]
        assert gateway.reload(configured("http1", "slowStart: 20s", 3))
        assert scene.shares(21) == [10, 10, 1]
        gateway.advance(10.1)
        assert sum(scene.shares(51)[:2]) == 40
        gateway.advance(10.1)
        assert scene.shares(30) == [10, 10, 10]


# -- with those who judge

JUDGED = "outliers: {consecutive: 3, errorRatio: 0, ejection: 10s, ramp: 100ms, maxShare: 0.5}"


@pytest.mark.parametrize("way", ["", "balance: leastRequest", "balance: peakEwma", f"balance: hash, {KEY}"])
def test_one_that_fails_is_left_alone_whatever_the_way(way: str) -> None:
    with MemoryGateway(configured("http1", f"{way}{', ' if way else ''}{JUDGED}")) as gateway:
        scene = Scene(gateway, "http1")
        bad = scene.servers[0]
        scene.hurry()
        bad.status = 500
        users = [f"user-{number}" for number in range(40)]
        for user in users:
            scene.send(1, user)
        assert bad.requests == 3, "each further one went elsewhere"
        endpoint = scene.cluster.endpoints[0]
        assert (endpoint.share, set(endpoint.held)) == (0.0, {"outliers"})
        bad.status = 204
        before = [record.address for record in gateway.records if record.status == 500]
        gateway.advance(12)
        assert endpoint.share == 1.0
        for user in users:
            scene.send(1, user)
        assert bad.requests > 4, "it is back"
        assert before == ["192.0.2.1:80"] * 3


@pytest.mark.parametrize("way", ["", "balance: leastRequest", "balance: peakEwma", f"balance: hash, {KEY}"])
def test_a_broken_circuit_is_tried_whatever_the_way(way: str) -> None:
    judged = "circuitBreaker: {errorRatio: 0, consecutive: 3, open: 5s, probes: 2, ramp: 100ms}"
    with MemoryGateway(configured("http1", f"{way}{', ' if way else ''}{judged}, slowStart: 1s")) as gateway:
        scene = Scene(gateway, "http1")
        bad = scene.servers[0]
        scene.hurry()
        bad.status = 500
        users = [f"user-{number}" for number in range(60)]
        for user in users:
            scene.send(1, user)
        assert bad.requests == 3
        bad.status = 204
        gateway.advance(5.5)
        endpoint = scene.cluster.endpoints[0]
        for _ in range(30):
            if endpoint.share == 1.0:
                break
            for user in users[:20]:
                scene.send(1, user)
            gateway.advance(0.5)
        assert endpoint.share == 1.0
        gateway.advance(1.1)  # it starts slowly
        before = bad.requests
        for user in users:
            scene.send(1, user)
        assert bad.requests - before > 6
