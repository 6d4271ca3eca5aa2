"""
Who speaks HTTP/2 restarts, reloads or says GOAWAY while there is load: the gateway, and the servers behind it.  No
request is lost.
"""

from __future__ import annotations

import random
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from crowd import begin, crowd
from envoys import cluster, envoy, listener
from h2wire import H2, LAST, REFUSED, connected
from multiplexed import ENGINES, engine
from secure import client, pair
from test_upgrade import upgrade

from authority import Authority
from gateways import WITHIN, Gateway, config, eventually, origin, start, wire
from neighbours import Neighbours, free_port, need

BOTH = ["http2", "http1"]


class Crowd2:
    """
    Clients with many streams under way, who go elsewhere when they are told to.

    @ivar answered: how many requests.
    @ivar lost: those without a whole answer that the server had not refused: what came.
    @ivar moves: how often a client was told to leave.
    """

    def __init__(
        self, port: int, path: str, context: ssl.SSLContext | None = None, clients: int = 3, content: bytes = b""
    ) -> None:
        """@param content: what is posted, by one request of two."""
        self._content = content
        self._port, self._path, self._context, self._over = port, path, context, threading.Event()
        self.answered, self.moves = 0, 0
        self.lost: list[Any] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._connection()
        except BaseException as error:
            self.lost.append(repr(error))

    def _connection(self) -> None:
        with connected(self._port, self._context) as there:
            under_way: set[int] = set()
            refused: list[Any] = []  # which a GOAWAY must explain, that may come with the next read
            while not (self._over.is_set() or there.goaways):
                while len(under_way) < 8:
                    under_way.add(self._ask(there))
                if not any(there.told[number].over for number in under_way):  # who sends content reads, too
                    there.read()
                self._over.wait(0.005)  # there is more to do on this machine
                for number in [number for number in under_way if there.told[number].over]:
                    under_way.remove(number)
                    self._settle(number, there, refused)
            for number in under_way:
                if not there.goaways or number <= there.goaways[-1][0]:
                    there.answer(number)
                    self._settle(number, there, refused)
            if not there.goaways:
                self.lost += refused
            self.moves += bool(there.goaways)

    def _ask(self, there: H2) -> int:
        if not self._content or random.random() < 0.5:
            return there.ask("GET", self._path)
        number = there.ask("POST", self._path, end=False)
        there.send(number, self._content)
        return number

    def _settle(self, number: int, there: H2, refused: list[Any]) -> None:
        told = there.told.pop(number)
        if told.status == 200 and told.ended and len(told.body) == int(told.fields.get("content-length", -1)):
            self.answered += 1
        elif told.code == REFUSED:
            refused.append((number, told))
        else:
            self.lost.append((number, told, there.goaways))

    def goes_on(self) -> None:
        """Wait for more answers."""
        before = self.answered
        eventually(lambda: self.answered > before + 100 or self.lost, "answers")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let them; in the end nothing may be lost."""
        for each in self._threads:
            each.start()
        try:
            self.goes_on()
            yield
            self.goes_on()
        finally:
            self._over.set()
            for each in self._threads:
                each.join(WITHIN)
        assert self.lost == []


@pytest.fixture(params=ENGINES)
def engined(request: pytest.FixtureRequest, neighbours: Neighbours) -> Iterator[str]:
    """Gateways of this test have that engine."""
    with engine(request.param, neighbours.directory):
        yield request.param


cells = pytest.mark.parametrize(("engined", "tls"), [("ngh2", True), ("h2", False)], indirect=["engined"])
"""Each engine once, with and without TLS: what is below a connection does not know of engines."""


def over2(node: int, /, *, listen: int = 0, **parts: Any) -> dict[str, Any]:
    """A gateway that speaks both versions to clients."""
    settings = config(node, listen=listen, **parts)
    settings["listeners"][0]["protocols"] = BOTH
    return settings


@cells
def test_a_gateway_that_stops_answers_all_that_it_was_asked(
    neighbours: Neighbours, node: int, engined: str, tls: bool
) -> None:
    authority = Authority(neighbours.directory)
    settings = over2(node, accessLog={"file": "access.log"})
    if tls:
        settings["listeners"][0]["tls"] = {"certificates": [pair(authority.issue("shop.test"))]}
    gateway = start(neighbours, settings)
    context = client(authority, alpn=["h2"]) if tls else None
    names = [f"stop-{engined}-{tls}-{index}" for index in range(20)]
    with wire(node) as behind, connected(gateway.port, context) as there:
        held = [there.ask("GET", f"/wait/{name}") for name in names]

        def waiting() -> bytes:
            behind.send(b"GET /waiting HTTP/1.1\r\nHost: a\r\n\r\n")
            return behind.answer()[1]

        eventually(lambda: all(name.encode() in waiting() for name in names), "all are at the upstream")
        there.answers = False  # as if the network were slow: we have not heard of it yet
        gateway.running.signal(signal.SIGTERM)
        there.until(lambda: there.goaways, "GOAWAY")
        assert there.goaways == [(LAST, 0)], "a warning"
        late = there.ask("GET", "/hello")
        assert bytes(there.answer(late).body) == b"hello\n"
        # Now we have: and what comes after that is refused, surely unread.
        there.pong()
        there.until(lambda: len(there.goaways) > 1, "the last GOAWAY")
        assert there.goaways[-1] == (late, 0)
        later = there.ask("GET", "/hello?later")
        assert there.answer(later).code == REFUSED
        for name in names:
            behind.send(f"GET /release/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert behind.answer()[1] == b"yes\n"
        for number, name in zip(held, names, strict=True):
            told = there.answer(number)
            assert (told.status, told.body.decode()) == (200, f"released {name}\n")
        while there.read() and not there.closed:
            pass
    assert gateway.running.wait() == 0
    assert len(gateway.records()) == len(names) + 1
    gateway.healthy()


def test_a_listener_that_is_taken_away_lets_its_streams_end(neighbours: Neighbours, node: int, engined: str) -> None:
    port, name = free_port(), f"away-{engined}"
    settings = over2(node, gateway={"watch": False})
    more = {"name": "more", "address": f"127.0.0.1:{port}", "protocols": BOTH}
    gateway = start(neighbours, {**settings, "listeners": [*settings["listeners"], more]})
    with wire(node) as behind, connected(port) as there, connected(gateway.port) as other:
        held = there.ask("GET", f"/hold/{name}")
        there.until(lambda: there.told[held].body, "some of it")
        assert other.get("/hello").status == 200
        gateway.hangup(settings)
        there.until(lambda: len(there.goaways) > 1, "GOAWAY, twice")
        assert there.goaways == [(LAST, 0), (held, 0)]
        behind.send(f"GET /release/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert behind.answer()[1] == b"yes\n"
        assert bytes(there.answer(held).body) == b"first\nlast\n"
        while there.read() and not there.closed:
            pass
        assert other.get("/hello").status == 200
        assert other.goaways == []
    gateway.healthy()


@pytest.mark.parametrize("engined", ["ngh2"], indirect=True)
def test_an_upgrade_loses_no_stream(neighbours: Neighbours, node: int, engined: str) -> None:
    settings = crowd(node, 1)
    settings["listeners"][0]["protocols"] = BOTH
    gateway = begin(neighbours, settings)
    clients = Crowd2(gateway.port, "/bytes/3000")
    with clients.working():
        upgrade(gateway, "two")
        eventually(lambda: clients.moves >= 3 or clients.lost, "all clients have moved")
    gateway.healthy()


@cells
def test_reloads_disturb_nobody(neighbours: Neighbours, node: int, engined: str, tls: bool) -> None:
    authority = Authority(neighbours.directory)
    issued = authority.issue("shop.test")
    ports = [origin(neighbours, "origin.js", arguments=("h2",)).port for _ in range(2)]

    def settings(turn: int) -> dict[str, Any]:
        made = over2(
            node,
            upstreams=[{"name": "origin", "endpoints": [{"url": f"h2c://127.0.0.1:{ports[turn % 2]}"}]}],
            gateway={"watch": False},
            accessLog={"file": f"access-{turn % 2}.log"},
        )
        if tls:
            made["listeners"][0]["tls"] = {"certificates": [pair(issued)]}
        return made

    gateway = start(neighbours, settings(0))
    clients = Crowd2(gateway.port, "/bytes/500", client(authority, alpn=["h2"]) if tls else None)
    with clients.working():
        for turn in range(1, 5):
            gateway.hangup(settings(turn))
            clients.goes_on()
    assert clients.moves == 0
    gateway.healthy()


@cells
def test_a_server_that_says_goaway_costs_nothing(neighbours: Neighbours, engined: str, tls: bool) -> None:
    port, authority = free_port(), Authority(neighbours.directory)
    issued = authority.issue("127.0.0.1")
    secure = f"ssl; ssl_certificate {issued.cert}; ssl_certificate_key {issued.key}" if tls else ""
    server = neighbours.nginx(
        f"keepalive_requests 100; server {{ listen 127.0.0.1:{port} http2 {secure};\n"
        'location / { return 200 "$connection $connection_requests\n"; } }',
        port,
    )
    there: dict[str, Any] = {"name": "origin", "endpoints": [{"url": f"{'h2' if tls else 'h2c'}://127.0.0.1:{port}"}]}
    if tls:
        there["tls"] = {"ca": str(authority.file)}
    gateway = start(neighbours, over2(port, upstreams=[there], accessLog={"file": "access.log"}))
    clients = Crowd2(gateway.port, "/", content=b"a call")
    with clients.working():
        for _ in range(4):
            server.signal(signal.SIGHUP)
            clients.goes_on()
    with connected(gateway.port) as asking:
        eventually(lambda: asking.get("/").body.endswith(b" 100\n"), "a connection is used to its end")
    assert any(record["attempts"] > 1 for record in gateway.records()), "some were refused"
    gateway.healthy()


def test_servers_that_are_killed_in_turn_cost_nothing(neighbours: Neighbours, engined: str) -> None:
    (neighbours.directory / "small").write_bytes(b"small\n")
    ports = [free_port(), free_port()]
    argv = [need("nghttpd"), "--no-tls", "-a", "127.0.0.1", "-d", str(neighbours.directory)]
    servers = [neighbours.start([*argv, str(port)], port=port) for port in ports]
    endpoints = [{"url": f"h2c://127.0.0.1:{port}"} for port in ports]
    upstreams = [{"name": "origin", "endpoints": endpoints}]
    gateway = start(neighbours, over2(0, upstreams=upstreams, accessLog={"file": "access.log"}))
    clients = Crowd2(gateway.port, "/small")
    with clients.working():
        for turn in (0, 1, 0, 1):
            servers[turn].signal(signal.SIGKILL)
            servers[turn].wait()
            clients.goes_on()
            servers[turn] = neighbours.start([*argv, str(ports[turn])], port=ports[turn])
            clients.goes_on()
    assert any(record["attempts"] > 1 for record in gateway.records())
    gateway.healthy()


@pytest.mark.parametrize(("engined", "proxy"), [("ngh2", "haproxy"), ("h2", "envoy")], indirect=["engined"])
def test_gateways_behind_a_proxy_restart_in_turn(neighbours: Neighbours, node: int, engined: str, proxy: str) -> None:
    front, ports = free_port(), [free_port(), free_port()]

    def gateway(port: int) -> Gateway:
        return start(neighbours, over2(node, listen=port, accessLog={"file": "access.log"}))

    gateways = [gateway(port) for port in ports]
    if proxy == "haproxy":
        servers = "".join(f"  server gateway{port} 127.0.0.1:{port} proto h2\n" for port in ports)
        neighbours.haproxy(
            f"frontend front\n  bind 127.0.0.1:{front} proto h2\n  default_backend gateways\n"
            f"backend gateways\n  option redispatch 1\n{servers}",
            front,
        )
    else:
        envoy(neighbours, (listener(front, "gateways"), cluster("gateways", *ports)))
    clients = Crowd2(front, "/bytes/500")
    with clients.working():
        for turn in (0, 1):
            gateways[turn].running.signal(signal.SIGTERM)
            assert gateways[turn].running.wait() == 0
            gateways[turn].healthy()
            clients.goes_on()
            gateways[turn] = gateway(ports[turn])
            clients.goes_on()
    for each in gateways:
        # What a gateway took it has answered: nothing was saved by a second try.
        records = each.records()
        assert records
        assert [record for record in records if record["status"] != 200 or "error" in record] == []
        each.healthy()
