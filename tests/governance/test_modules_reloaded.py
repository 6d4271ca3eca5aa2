"""What modules have learnt outlives a reload that leaves them as they are, whatever else it changes."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode

import pytest
from test_basicauth import USERS, basic

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect
from signing import SECRET, signed
from tokens import RSA, public, token

CONFIG = """
gateway: {drain: 1s}
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: auth, endpoints: [{url: "http://192.0.2.8:80"}]}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
"""
OTHER = CONFIG.replace("\nroutes: [", "\nroutes: [{value: /new, routes: [{targets: [{upstream: auth}]}]}, ")
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
KEPT = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"


class Scene:
    """A gateway with one module, which a reload gives company in front."""

    def __init__(self, folder, name, params):
        (folder / "users.txt").write_text(USERS)
        (folder / "keys.json").write_bytes(public(RSA))
        (folder / "secrets.txt").write_text(f"partner-7 partner {urlsafe_b64encode(SECRET).decode()}\n")
        self.entry = f"  - {{name: {name}, condition: \"request.path != '/x'\", actionParam: {json.dumps(params)}}}\n"
        self.before = f"  - {{name: {name}, condition: \"request.path == '/x'\", actionParam: {json.dumps(params)}}}\n"
        self.entry = self.entry.replace("FOLDER", str(folder))
        self.before = self.before.replace("FOLDER", str(folder))
        self.name = name
        self.gateway = MemoryGateway(CONFIG + self.entry)
        self.shop = None

    def serve(self, *answers):
        scripts = [[Expect(b"\r\n\r\n"), answer] if answer else [Expect(b"\r\n\r\n")] for answer in answers]
        if self.shop is None:
            self.shop = self.gateway.upstream("192.0.2.7", 80, *scripts)

    def ask(self, *headers):
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        answer = self.gateway.ask(b"GET /path?q=1 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n" + lines + b"\r\n")
        return int(answer[9:12] or b"0"), answer

    def reload(self):
        assert self.gateway.reload(OTHER + self.before + self.entry)

    def counted(self, event):
        return self.gateway.service.counters.snapshot()["counts"]["module"].get(self.name, {}).get(event, 0)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(name, **params):
        made.append(Scene(tmp_path, name, params))
        return made[-1]

    yield make
    for scene in made:
        assert scene.gateway.stop() == []


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("rateLimit", {"limit": "2/h"}),
        ("quota", {"limit": 2, "per": "day"}),
        ("concurrencyLimit", {"limit": 2}),
    ],
)
def test_what_was_used(make, name, params):
    scene = make(name, **params)
    scene.serve(*([b""] * 2 if name == "concurrencyLimit" else [GOOD] * 2))  # or else they are under way
    for _ in range(2):
        scene.ask()
    scene.reload()
    assert scene.ask()[0] in (429, 503)
    assert scene.counted("limited") == 1


def basic_header():
    return [(b"authorization", basic(b"alice", b"correct horse"))]


def token_header():
    return [(b"authorization", b"Bearer " + token(exp=time.time() + 60))]


@pytest.mark.parametrize(
    ("name", "params", "headers", "event"),
    [
        ("basicAuth", {"users": {"file": "FOLDER/users.txt"}}, basic_header, "password_hashed"),
        (
            "jwtAuth",
            {"keys": {"file": "FOLDER/keys.json"}, "issuer": "https://id.test", "audience": "shop"},
            token_header,
            "token_verified",
        ),
        (
            "forwardAuth",
            {"ask": {"upstream": "auth"}, "remember": {"key": "${request.headers['authorization']}"}},
            basic_header,
            "service_asked",
        ),
    ],
)
def test_who_was_let_in(make, name, params, headers, event):
    scene = make(name, **params)
    scene.serve(GOOD, GOOD)
    scene.gateway.upstream("192.0.2.8", 80, [Expect(b"\r\n\r\n"), GOOD])
    fields = headers()
    assert scene.ask(*fields)[0] == 200
    scene.reload()
    assert scene.ask(*fields)[0] == 200
    assert scene.counted(event) == 1


def test_what_came_already(make):
    scene = make("hmacAuth", keys={"file": "FOLDER/secrets.txt"})
    scene.serve(GOOD, GOOD)
    fields = signed(
        parameters=f';created={int(time.time())};keyid="partner-7"',
    )
    assert scene.ask(*fields)[0] == 200
    scene.reload()
    assert scene.ask(*fields)[0] == 401
    assert scene.counted("signature_replayed") == 1


def test_what_is_kept(make):
    scene = make("cache")
    scene.serve(KEPT)
    scene.ask()
    scene.reload()
    assert b"cache-status: protogate; hit" in scene.ask()[1]


def test_what_is_open(make):
    scene = make("circuitBreaker", consecutive=1, key="${route.name}")
    scene.serve(BAD)
    assert scene.ask()[0] == 500
    scene.reload()
    assert scene.ask()[0] == 503
    assert len(scene.shop.connections) == 1


def test_the_last_good_answer(make):
    scene = make("degrade", give=[{"cached": {"maxAge": "1h"}}], when={"statuses": ["5xx"]})
    scene.serve(KEPT, BAD)
    scene.ask()
    scene.reload()
    status, answer = scene.ask()
    assert (status, answer[-2:]) == (200, b"ok")
