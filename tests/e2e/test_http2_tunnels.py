"""
Tunnels between versions of HTTP: WebSocket over extended CONNECT (RFC 8441) on either side or on both, with HAProxy and
Envoy as the other ends; and CONNECT.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import pytest
from envoys import cluster, envoy, listener
from h2wire import CANCEL, H2, connected
from multiplexed import ENGINES, engine, rule
from secure import REACTORS, begin, client, pair
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT
from websockets.protocol import Protocol as Speaker
from websockets.sync.client import connect

from authority import Authority
from gateways import WITHIN, Gateway, Origin, config, eventually, origin, start, wire
from neighbours import Neighbours, free_port

pytestmark = pytest.mark.unwatched

MIB = 1 << 20
MOST = 4 * MIB
CLIENTS = ["h1", "haproxy", "envoy", "h2"]
"""How clients come to the gateway: over HTTP/1.1, through proxies that speak HTTP/2 to it, over HTTP/2."""
SERVERS = ["h1", "haproxy", "envoy"]
"""What speaks WebSocket behind it; those that are no h1 speak HTTP/2 to it."""
RAW = ["one", "two"]
"""Node, with bytes in the place of WebSocket: HTTP/1.1, and HTTP/2."""
WEBSOCKET = [("sec-websocket-version", "13"), ("origin", "http://shop.test")]


class World(NamedTuple):
    """
    A gateway with tunnels on both sides.

    @ivar sockets: the server of WebSockets at the very end.
    @ivar front: where proxies before the gateway listen.
    """

    gateway: Gateway
    sockets: Origin
    front: dict[str, int]
    raw: dict[str, int]


class Talk(Protocol):
    """What a test needs of a WebSocket, whatever carries it."""

    def send(self, message: str | bytes) -> None: ...
    def recv(self) -> str | bytes: ...
    def pinged(self) -> bool: ...
    def close(self, code: int, reason: str) -> None: ...
    def closed(self) -> tuple[int, str]: ...
    def vanish(self) -> None: ...


class Over1:
    """By the client of C{websockets}."""

    def __init__(self, port: int, path: str, context: ssl.SSLContext | None = None) -> None:
        url = f"{'ws' if context is None else 'wss'}://127.0.0.1:{port}{path}"
        self._made = connect(
            url, ssl=context, open_timeout=WITHIN, close_timeout=WITHIN, max_size=MOST, proxy=None, legacy=True
        )
        self.send = self._made.send

    def recv(self) -> str | bytes:
        return self._made.recv(WITHIN)

    def pinged(self) -> bool:
        return self._made.ping(b"mine").wait(WITHIN)

    def close(self, code: int, reason: str) -> None:
        self._made.close(code, reason)
        assert self._made.close_code == code, "it was answered"

    def closed(self) -> tuple[int, str]:
        with pytest.raises(ConnectionClosed) as caught:
            self.recv()
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, caught.value.rcvd.reason

    def vanish(self) -> None:
        # By a reset: what a mere end of the connection means is the server's affair, and Envoy does not tell it.
        if self._made.socket.fileno() < 0:
            return  # it is closed
        linger = struct.pack("ii", 1, 0)
        self._made.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._made.socket.close()


class Over2:
    """On a stream of HTTP/2; the frames of WebSocket are those of C{websockets}."""

    def __init__(self, there: H2, path: str) -> None:
        self._there, self._speaker = there, Speaker(CLIENT, max_size=MOST)
        there.until(lambda: there.settings, "settings")
        assert there.settings[8] == 1, "SETTINGS_ENABLE_CONNECT_PROTOCOL"
        self._number = there.ask("CONNECT", path, WEBSOCKET, end=False, protocol="websocket")
        self._told = there.told[self._number]
        there.until(lambda: self._told.status, "the answer")
        assert self._told.status == 200
        self._frames: list[Frame] = []

    def _say(self) -> None:
        for data in self._speaker.data_to_send():
            self._there.send(self._number, data, end=not data)

    def _frame(self) -> Frame:
        while not self._frames:
            self._there.until(lambda: self._told.body or self._told.over, "a frame")
            data = bytes(self._told.body)
            self._told.body.clear()
            if data:
                self._speaker.receive_data(data)
            else:
                assert self._told.code is None, f"reset with {self._told.code}"
                self._speaker.receive_eof()
            self._frames += [each for each in self._speaker.events_received() if isinstance(each, Frame)]
            self._say()
        return self._frames.pop(0)

    def send(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._speaker.send_text(message.encode())
        else:
            self._speaker.send_binary(message)
        self._say()

    def recv(self) -> str | bytes:
        frame = self._frame()
        data, kind = bytes(frame.data), frame.opcode
        while not frame.fin:
            frame = self._frame()
            data += bytes(frame.data)
        return data.decode() if kind is Opcode.TEXT else data

    def pinged(self) -> bool:
        self._speaker.send_ping(b"mine")
        self._say()
        frame = self._frame()
        return (frame.opcode, bytes(frame.data)) == (Opcode.PONG, b"mine")

    def close(self, code: int, reason: str) -> None:
        self._speaker.send_close(code, reason)
        self._say()
        while self._speaker.close_rcvd is None:
            self._frame()
        self._there.answer(self._number)

    def closed(self) -> tuple[int, str]:
        while self._speaker.close_rcvd is None:
            self._frame()
        return self._speaker.close_rcvd.code, self._speaker.close_rcvd.reason

    def vanish(self) -> None:
        self._there.reset(self._number)
        assert self._there.get("/one/hello").status == 200, "the connection goes on"


@pytest.fixture(scope="module")
def behind(company: Neighbours) -> tuple[Origin, dict[str, int], dict[str, int]]:
    """A server of WebSockets, what leads to it, and servers of raw bytes."""
    sockets = origin(company, "websocket_server.py")
    ports = {"h1": sockets.port, "haproxy": free_port(), "envoy": free_port()}
    company.haproxy(
        f"frontend front\n  bind 127.0.0.1:{ports['haproxy']} proto h2\n  default_backend back\n"
        f"backend back\n  server sockets 127.0.0.1:{sockets.port}\n",
        ports["haproxy"],
    )
    envoy(company, (listener(ports["envoy"], "sockets"), cluster("sockets", sockets.port, version=1)))
    return sockets, ports, {"one": origin(company, "origin.js").port, "two": origin(company, "origin2.js").port}


@pytest.fixture(scope="module", params=ENGINES)
def there(request: pytest.FixtureRequest, company: Neighbours, behind: Any) -> Iterator[World]:
    sockets, ports, raw = behind
    upstreams = [
        {"name": name, "endpoints": [{"url": f"{'http' if name in ('h1', 'one') else 'h2c'}://127.0.0.1:{port}"}]}
        for name, port in (*ports.items(), *raw.items())
    ]
    connects = [{"condition": f"request.host == '{name}.test'", "targets": [{"upstream": name}]} for name in RAW]
    settings = config(
        0,
        listeners=[{"name": "web", "address": "127.0.0.1:0", "protocols": ["http2", "http1"]}],
        upstreams=upstreams,
        routes=[
            *(rule(f"/{each['name']}/", each["name"]) for each in upstreams),
            {"type": "method", "value": "CONNECT", "routes": connects},
        ],
        modules=[
            {
                "name": "rewritePath",
                "stage": "PRE_UPSTREAM",
                "actionParam": {"regex": "^/[a-z0-9]+/", "replacement": "/"},
            }
        ],
        accessLog={"file": "access.log"},
    )
    with engine(request.param, company.directory):
        gateway = start(company, settings)
    front = {"haproxy": free_port(), "envoy": free_port()}
    company.haproxy(
        f"frontend front\n  bind 127.0.0.1:{front['haproxy']}\n  default_backend back\n"
        f"backend back\n  option abortonclose\n  server gateway 127.0.0.1:{gateway.port} proto h2 ws h2\n",
        front["haproxy"],
    )
    envoy(company, (listener(front["envoy"], "gateway"), cluster("gateway", gateway.port)))
    yield World(gateway, sockets, front, raw)
    gateway.healthy()


@contextmanager
def talk(there: World, how: str, path: str) -> Iterator[Talk]:
    """A WebSocket that is open."""
    if how == "h2":
        with connected(there.gateway.port) as connection:
            yield Over2(connection, path)
    else:
        made = Over1(there.front.get(how, there.gateway.port), path)
        try:
            yield made
        finally:
            made.vanish()


every_way = pytest.mark.parametrize(("how", "to"), [(how, to) for how in CLIENTS for to in SERVERS])


@every_way
def test_messages_come_back_whole_and_in_order(there: World, how: str, to: str) -> None:
    with talk(there, how, f"/{to}/echo") as spoken:
        for message in ("text ☃", b"\x00\xff", "", b"", "t" * MIB, b"\x80" * MIB):
            spoken.send(message)
            assert spoken.recv() == message
        for index in range(200):
            spoken.send(f"{index}")
        assert [spoken.recv() for _ in range(200)] == [str(index) for index in range(200)]


@every_way
def test_pings_are_answered_by_the_other_end(there: World, how: str, to: str) -> None:
    with talk(there, how, f"/{to}/echo") as spoken:
        assert spoken.pinged()


@every_way
def test_fragments_and_first_words_of_the_server_come_as_they_were_sent(there: World, how: str, to: str) -> None:
    with talk(there, how, f"/{to}/first") as spoken:
        assert spoken.recv() == "welcome"
    with talk(there, how, f"/{to}/pieces") as spoken:
        spoken.send("abc")
        assert spoken.recv() == "abc"


@every_way
def test_the_server_closes_with_its_code(there: World, how: str, to: str) -> None:
    with talk(there, how, f"/{to}/leave") as spoken:
        spoken.send("go")
        assert spoken.closed() == (4001, "enough")


@every_way
def test_the_client_closes_with_its_code(there: World, how: str, to: str) -> None:
    name = f"/close-{how}-{to}-{there.gateway.port}"
    with talk(there, how, f"/{to}{name}") as spoken:
        spoken.close(4242, "mine")
    eventually(lambda: f"closed {name} 4242 mine\n" in there.sockets.running.output(), "the server is told")


@every_way
def test_a_client_that_vanishes_is_noticed_by_the_server(there: World, how: str, to: str) -> None:
    name = f"/vanish-{how}-{to}-{there.gateway.port}"
    with talk(there, how, f"/{to}{name}") as spoken:
        spoken.send("here")
        assert spoken.recv() == "here"
        spoken.vanish()
        eventually(lambda: f"closed {name} 1006 " in there.sockets.running.output(), "the server is told")


@pytest.mark.parametrize("reactor", REACTORS, ids=["ssl", "pyOpenSSL"])
def test_the_last_words_of_a_server_pass_over_tls(
    neighbours: Neighbours, behind: tuple[Origin, dict[str, int], Any], reactor: str
) -> None:
    """Envoy resets the stream right behind them."""
    authority = Authority(neighbours.directory)
    settings = config(
        0, upstreams=[{"name": "origin", "endpoints": [{"url": f"h2c://127.0.0.1:{behind[1]['envoy']}"}]}]
    )
    settings["listeners"][0]["tls"] = {"certificates": [pair(authority.issue("shop.test", ["127.0.0.1"]))]}
    gateway = begin(neighbours, settings, reactor)
    spoken = Over1(gateway.port, "/echo", client(authority))
    spoken.send("hello")
    assert spoken.recv() == "hello"
    spoken.close(4242, "mine")
    gateway.healthy()


def opened(client: H2, to: str, how: str) -> int:
    """A tunnel of raw bytes: by CONNECT, or by the extended one."""
    if how == "connect":
        number = client.ask("CONNECT", "", end=False, authority=f"{to}.test:7")
    else:
        client.until(lambda: client.settings, "settings")
        number = client.ask("CONNECT", f"/{to}/raw", WEBSOCKET, end=False, protocol="websocket")
    client.until(lambda: client.told[number].status, "the answer")
    assert client.told[number].status == 200
    assert "content-length" not in client.told[number].fields
    return number


def welcome(to: str, how: str) -> bytes:
    """What Node says first."""
    return b"" if (to, how) == ("one", "connect") else b"welcome "


raw = pytest.mark.parametrize(("to", "how"), [(to, how) for to in RAW for how in ("connect", "websocket")])


@raw
def test_much_passes_both_ways_and_each_way_ends_by_itself(there: World, to: str, how: str) -> None:
    sent = bytes(range(256)) * (8 * MIB // 256)
    with connected(there.gateway.port) as client:
        number = opened(client, to, how)
        assert client.send(number, sent) == len(sent)
        told = client.answer(number)
    assert told.body == welcome(to, how) + sent + b"bye"
    assert told.code is None


def gone(client: H2, to: str) -> Any:
    """What Node knows of tunnels that broke off."""
    return json.loads(client.get(f"/{to}/gone").body)


@raw
def test_the_server_learns_that_a_tunnel_broke_off(there: World, to: str, how: str) -> None:
    with connected(there.gateway.port) as client:
        before = gone(client, to)
        number = opened(client, to, how)
        client.send(number, b"hello", end=False)
        client.until(lambda: client.told[number].body.endswith(b"hello"), "it is open")
        client.reset(number, CANCEL)
        eventually(lambda: gone(client, to) == ["tunnel"] if to == "one" else gone(client, to) > before, "it is told")


@raw
def test_the_client_learns_that_a_tunnel_broke_off(there: World, to: str, how: str) -> None:
    with connected(there.gateway.port) as client:
        number = opened(client, to, how)
        client.until(lambda: client.told[number].body == welcome(to, how), "it is open")
        client.send(number, b"abort", end=False)
        told = client.answer(number)
        assert (told.ended, told.code is None) == (False, False), "no end, but a reset"
        assert client.get("/one/hello").status == 200


CONNECT = b"CONNECT two.test:7 HTTP/1.1\r\nHost: two.test:7\r\n\r\n"


def test_connect_over_http1_leads_into_http2(there: World) -> None:
    with wire(there.gateway.port) as client:
        client.send(CONNECT + b"early")
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert client.exactly(13) == b"welcome early"
        client.half_close()
        assert client.rest() == b"bye"


def test_a_tunnel_over_http1_ends_by_a_reset_when_that_of_http2_does(there: World) -> None:
    with wire(there.gateway.port) as client:
        client.send(CONNECT)
        client.until(b"welcome ")
        client.send(b"abort")
        with pytest.raises(ConnectionResetError):
            client.rest()


def test_a_tunnel_that_nobody_reads_holds_no_other_stream_up(there: World) -> None:
    with connected(there.gateway.port) as client:
        number = opened(client, "two", "connect")
        client.stalled.add(number)
        client.send(number, b"x" * MIB, end=False)
        client.until(lambda: len(client.told[number].body) >= MIB, "as much as its window takes")
        client.send(number, b"y" * 100_000, end=False)
        assert len(client.get("/two/bytes/100000").body) == 100_000
        client.pay(number)
        client.send(number)
        assert client.answer(number).body == b"welcome " + b"x" * MIB + b"y" * 100_000 + b"bye"
