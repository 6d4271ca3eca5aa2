"""Who asks, for real: sessions and replays in a Redis, an issuer over HTTP, passwords in threads, certificates."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import secure

from authority import Authority
from gateways import WITHIN, Gateway, eventually, start
from neighbours import Neighbours, free_port, need
from protogate.identity import password
from signing import SECRET, signed
from tokens import OTHER, RSA, public, token

WHO = "${identity.user} by ${identity.scheme}, told ${request.headers['x-user']}"


def settings(modules: list[dict[str, Any]], listener: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A gateway that answers who asked, if he is let in."""
    answer = {"name": "respond", "stage": "PRE_REQUEST", "ruleOrder": 9, "actionParam": {"status": 200, "body": WHO}}
    return {
        "gateway": more,
        "listeners": [{"name": "web", "address": "127.0.0.1:0", **(listener or {})}],
        "modules": [*modules, answer],
        "accessLog": {"file": "access.log"},
    }


def ask(port: int, path: str = "/", headers: list[tuple[bytes, bytes]] | None = None) -> tuple[int, str]:
    """Status and content of an answer, on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as connection:
        connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        for name, value in [(b"host", b"a.test"), *(headers or [])]:
            connection.putheader(name.decode(), value)
        connection.endheaders()
        with connection.getresponse() as response:
            return response.status, response.read().decode()


def records(gateway: Gateway) -> list[dict[str, Any]]:
    lines = (gateway.file.parent / "access.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


# -- sessions and replays in a Redis


class Store:
    """A Redis that can go away and come back."""

    def __init__(self, neighbours: Neighbours) -> None:
        self.port, self._neighbours = free_port(), neighbours
        self._running: Any = None
        self.begin()

    def begin(self) -> None:
        words = [
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--save",
            "",
            "--dir",
            str(self._neighbours.directory),
        ]
        self._running = self._neighbours.start([need("redis-server"), *words], port=self.port)

    def end(self) -> None:
        self._running.stop()

    def say(self, *words: str) -> bytes:
        """One command, and its answer."""
        parts = b"".join(b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()) for word in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN) as connection:
            connection.sendall(b"*%d\r\n%b" % (len(words), parts))
            return connection.recv(65536)


@pytest.fixture
def store(neighbours: Neighbours) -> Store:
    return Store(neighbours)


def test_sessions_of_a_redis_come_and_go_with_it(neighbours: Neighbours, store: Store) -> None:
    store.say("SET", "session:s1", '{"user": "alice", "roles": ["a"]}', "EX", "600")
    store.say("HSET", "session:h1", "user", "bob")
    where = {"url": f"redis://127.0.0.1:{store.port}", "timeout": "2s"}
    common = {"redis": where, "remember": "0", "rememberUnknown": "0", "forward": {"x-user": "${identity.user}"}}
    modules = [
        {"name": "loginCheck", "condition": "request.path == '/'", "actionParam": common},
        {"name": "loginCheck", "condition": "request.path == '/hash'", "actionParam": {**common, "format": "hash"}},
    ]
    gateway = start(neighbours, settings(modules))
    alice = [(b"cookie", b"session=s1"), (b"x-user", b"root")]
    assert eventually(lambda: ask(gateway.port, headers=alice)[0] == 200, "the Redis is there")
    assert ask(gateway.port, headers=alice) == (200, "alice by session, told alice")
    assert ask(gateway.port, "/hash", [(b"cookie", b"session=h1")]) == (200, "bob by session, told bob")
    assert ask(gateway.port, headers=[(b"cookie", b"session=s2"), (b"x-user", b"root")])[0] == 401
    assert ask(gateway.port, "/open", [(b"x-user", b"root")]) == (200, " by , told ")
    store.say("DEL", "session:s1")
    assert ask(gateway.port, headers=alice)[0] == 401
    store.end()
    assert ask(gateway.port, headers=alice)[0] == 503
    store.begin()
    store.say("SET", "session:s1", "alice")
    eventually(lambda: ask(gateway.port, headers=alice) == (200, "alice by session, told alice"), "it is there again")


def test_a_signature_counts_once_for_all_workers_together(neighbours: Neighbours, store: Store, tmp_path: Path) -> None:
    keys = tmp_path / "secrets.txt"
    keys.write_text(f"partner-7 alice {b64encode(SECRET).decode()}\n")
    where = {"url": f"redis://127.0.0.1:{store.port}", "timeout": "2s"}
    module = {"name": "hmacAuth", "actionParam": {"keys": {"file": str(keys)}, "redis": where}}
    gateway = start(neighbours, settings([module], workers=2))

    def sign(number: int) -> list[tuple[bytes, bytes]]:
        parameters = f';created={int(time.time())};keyid="partner-7";nonce="{number}"'
        return signed(target=b"/", parameters=parameters)

    # A nonce counts once, also one that was refused because its worker had no Redis yet.
    fresh = count(1000)

    def both() -> bool:
        return all(ask(gateway.port, headers=sign(next(fresh)))[0] == 200 for _ in range(8))

    eventually(both, "both have the Redis")
    for number in range(5):
        headers = sign(number)
        assert sorted(ask(gateway.port, headers=headers)[0] for _ in range(8)) == [200, *[401] * 7]


# -- an issuer over HTTP


class Issuer:
    """Publishes keys, while it is there."""

    def __init__(self) -> None:
        self.port, self.keys, self.asked = free_port(), public(RSA), 0
        self._server: Any = None

    @contextmanager
    def there(self) -> Iterator[None]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(200)
                self.send_header("content-length", str(len(issuer.keys)))
                self.end_headers()
                self.wfile.write(issuer.keys)

            def log_message(self, *args: Any) -> None:
                """Nobody reads it."""

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def bearer(**more: Any) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + token(**{"exp": int(time.time()) + 300, **more}))]


def test_keys_of_an_issuer_are_fetched_followed_and_kept(neighbours: Neighbours) -> None:
    issuer = Issuer()
    parameters = {
        "keys": {"url": f"http://127.0.0.1:{issuer.port}/jwks", "interval": "1s"},
        "issuer": "https://id.test",
        "audience": "shop",
        "forward": {"x-user": "${identity.user}"},
    }
    gateway = start(neighbours, settings([{"name": "jwtAuth", "actionParam": parameters}]))
    assert ask(gateway.port, headers=bearer())[0] == 503, "nobody is let in before the keys are there"
    with issuer.there():
        eventually(lambda: ask(gateway.port, headers=bearer())[0] == 200, "the keys are there")
        assert ask(gateway.port, headers=bearer()) == (200, "alice by jwt, told alice")
        assert ask(gateway.port, headers=bearer(key=OTHER))[0] == 401
        issuer.keys = public(RSA, OTHER)
        eventually(lambda: ask(gateway.port, headers=bearer(key=OTHER))[0] == 200, "the new key is there")
        issuer.keys = public(OTHER)
        eventually(lambda: ask(gateway.port, headers=bearer())[0] == 401, "the old key is gone")
    asked = issuer.asked
    eventually(lambda: "what was there before stays in use" in gateway.log, "the log says that it is gone")
    assert ask(gateway.port, headers=bearer(key=OTHER))[0] == 200
    assert issuer.asked == asked
    told = [record for record in records(gateway) if record["status"] == 200]
    assert {(record["user"], record["auth"]) for record in told} == {("alice", "jwt")}
    assert "Bearer" not in (gateway.file.parent / "access.log").read_text()


# -- passwords in threads


def test_passwords_that_are_hashed_hold_up_nobody_else(neighbours: Neighbours, tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text(f"alice:{password.make(b'correct horse')}\n")
    module = {
        "name": "basicAuth",
        "condition": "request.path != '/open'",
        "actionParam": {"users": {"file": str(users)}},
    }
    gateway = start(neighbours, settings([module]))
    right = [(b"authorization", b"Basic " + b64encode(b"alice:correct horse"))]
    tries: list[tuple[int, str]] = []

    def known() -> bool:
        tries.append(ask(gateway.port, headers=right))
        return tries[-1] == (200, "alice by basic, told ")

    eventually(known, "who is right is let in, once a busy machine has the time")
    guesses = []
    for number in range(8):
        connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=WITHIN)
        text = b64encode(b"alice:%d" % number)
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic " + text + b"\r\nConnection: close\r\n\r\n"
        )
        guesses.append(connection)
    assert ask(gateway.port, "/open")[0] == 200
    assert ask(gateway.port, headers=right)[0] == 200, "who is known is let in at once"
    statuses = []
    for connection in guesses:
        connection.settimeout(WITHIN)
        with connection, connection.makefile("rb") as file:
            statuses.append(int(file.readline().split()[1]))
    assert set(statuses) <= {401, 503}, "503 = a busy machine"
    eventually(lambda: len(records(gateway)) >= len(tries) + 10, "all have a record")
    served = [record["status"] for record in records(gateway)[len(tries) :]]
    assert served.index(200) < len(served) - 3, "others were served while passwords waited to be hashed"
    users.write_text(f"alice:{password.make(b'new')}\n")
    eventually(lambda: ask(gateway.port, headers=right)[0] == 401, "the change of the file counts")


# -- certificates


@pytest.mark.parametrize("reactor", secure.REACTORS)
def test_who_shows_which_certificate(neighbours: Neighbours, tmp_path: Path, reactor: str) -> None:
    authority = Authority(tmp_path)
    shop = authority.issue("shop.test")
    partner, other = (authority.issue(name, [f"spiffe://prod/{name}"]) for name in ("partner", "other"))
    tls = {"certificates": [secure.pair(shop)], "clientAuth": {"ca": str(authority.file), "mode": "optional"}}
    parameters = {
        "allow": [{"issuer": "CN=authority", "san": "spiffe://prod/partner"}],
        "user": "san",
        "forward": {"x-user": "${identity.claims['subject']}"},
    }
    gateway = secure.begin(
        neighbours, settings([{"name": "mtlsAuth", "actionParam": parameters}], {"tls": tls}), reactor
    )

    def answer(issued: Any) -> tuple[int, bytes]:
        with secure.shaken(gateway.port, secure.client(authority, issued)) as connection:
            return secure.ask(connection, "/", "X-User: root", "Client-Cert: :AAAA:")

    assert answer(partner) == (200, b"spiffe://prod/partner by certificate, told CN=partner")
    assert answer(other)[0] == 403
    assert answer(None)[0] == 403
