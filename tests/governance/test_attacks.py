"""
Attacks on who asks, over whole gateways, in every protocol that clients speak: each is refused, or comes to nothing.

The honest request beside each attack goes through, so nothing is refused for another reason.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import pytest
from joserfc.jwk import OctKey
from test_basicauth import USERS, basic
from twisted.internet.protocol import ClientFactory

from protogate.context import Context
from protogate.identity.keys import digest_of
from protogate.interfaces import IStreamCodec
from protogate.message import Field, Request
from protogate.plugins import find
from protogate.testing.bodies import Giver, Taker
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect
from protogate.wheel import Wheel
from signing import SECRET, USUAL, content_digest, signed
from tokens import OTHER, RSA, part, public, token
from tokens import signed as signed_token

PROTOCOLS = ("http1", "http2", "sotp")
CONFIG = """
gateway: {limits: {headerLine: 32KiB}}
listeners: [{name: web, address: "127.0.0.1:8080", protocols: [http1, http2, sotp]}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - name: jwtAuth
    condition: "request.path.startsWith('/jwt')"
    actionParam:
      keys: {file: FOLDER/keys.json}
      issuer: https://id.test
      audience: shop
      from: [{authorization: bearer}, {cookie: token}, {query: token}]
      forward: &told {x-user: "${identity.user}", x-roles: "${identity.claims['roles']}"}
  - name: keyAuth
    condition: "request.path.startsWith('/key')"
    actionParam: {keys: {file: FOLDER/keys.txt}, forward: *told}
  - name: basicAuth
    condition: "request.path.startsWith('/basic')"
    actionParam: {users: {file: FOLDER/users.txt}, forward: *told}
  - name: hmacAuth
    condition: "request.path.startsWith('/hmac')"
    actionParam: {keys: {file: FOLDER/secrets.txt}, forward: *told}
  - {name: mtlsAuth, condition: "request.path.startsWith('/mtls')", actionParam: {forward: *told}}
  - name: rbac
    ruleOrder: 1
    actionParam:
      rules:
        - {name: admins, when: "request.path.contains('/admin')", claims: {roles: admin}, then: allow}
        - {name: others, when: "!request.path.contains('/admin')", then: allow}
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Attempt:
    """A request."""

    target: bytes
    headers: list[Field] = field(default_factory=list)
    method: bytes = b"GET"
    content: bytes | None = None


class _Once(ClientFactory[Any]):
    noisy = False

    def __init__(self, made: Any) -> None:
        self._made = made

    def buildProtocol(self, addr: object) -> Any:
        return self._made


class World:
    """A gateway, its origin, and somebody who asks."""

    def __init__(self, folder: Any, protocol: str) -> None:
        (folder / "keys.json").write_bytes(public(RSA))
        (folder / "keys.txt").write_text(f"{digest_of(b'right')} alice\n")
        (folder / "users.txt").write_text(USERS)
        (folder / "secrets.txt").write_text(f"partner-7 alice {b64encode(SECRET).decode()}\n")
        self.gateway = MemoryGateway(CONFIG.replace("FOLDER", str(folder)))
        self.origin = self.gateway.upstream("192.0.2.7", 80, *([Expect(b"\r\n\r\n"), ANSWER] * 8 for _ in range(8)))
        wheel = Wheel(self.gateway.reactor.clock)
        self.ready: list[Any] = []
        codec: Any = find(IStreamCodec, protocol)
        self._wheel, self._made = wheel, codec.client(self.ready.append, Context(wheel))
        self.gateway.reactor.connectTCP("127.0.0.1", 8080, _Once(self._made))
        self.gateway.run()

    def close(self) -> None:
        self._made.abort()
        self.gateway.run()
        self._wheel.stop()
        assert self.gateway.stop() == []

    @property
    def told(self) -> bytes:
        """All that the origin was sent."""
        return b"".join(connection.received for connection in self.origin.connections)

    def ask(self, attempt: Attempt) -> int:
        """The status of the answer; 0 = none."""
        content = attempt.content
        body = None if content is None else Giver([content], len(content)).body
        request = Request(attempt.method, attempt.target, list(attempt.headers), body, b"a.test")
        seen: list[Any] = []
        self.ready[-1].handle(request).addBoth(seen.append)
        self.gateway.run()
        (answer,) = seen
        Taker(getattr(answer, "body", None))
        self.gateway.run()
        return int(getattr(answer, "status", 0))


@pytest.fixture(params=PROTOCOLS)
def world(request, tmp_path):
    made = World(tmp_path, request.param)
    yield made
    made.close()


def now() -> int:
    return int(time.time())


def jwt(*args: Any, **claims: Any) -> bytes:
    return token(*args, **{"exp": now() + 60, **claims})


def bearer(text: bytes) -> list[Field]:
    return [(b"authorization", b"Bearer " + text)]


def confused() -> bytes:
    """Signed with the public key, as if it were a shared secret."""
    head = part(b'{"alg":"HS256","kid":"rsa"}')
    content = part(json.dumps({"iss": "https://id.test", "aud": "shop", "sub": "root", "exp": now() + 60}).encode())
    text = head + b"." + content
    return text + b"." + part(hmac.digest(RSA.as_pem(private=False), text, "sha256"))


def unsigned(alg: str) -> bytes:
    content = json.dumps({"iss": "https://id.test", "aud": "shop", "sub": "root", "exp": now() + 60}).encode()
    return part(json.dumps({"alg": alg}).encode()) + b"." + part(content) + b"."


def told_twice() -> bytes:
    content = json.dumps({"iss": "https://id.test", "aud": "shop", "sub": "alice", "exp": now() + 60})
    return signed_token(b'{"alg":"RS256","kid":"rsa"}', (content[:-1] + ',"sub":"root"}').encode(), "RS256", RSA)


def sign(
    target: bytes = b"/hmac", *, method: bytes = b"GET", ago: int = 0, nonce: str = "", **more: Any
) -> list[Field]:
    parameters = f';created={now() - ago};keyid="partner-7"' + (f';nonce="{nonce}"' if nonce else "")
    return signed(method=method, target=target, **{"parameters": parameters, **more})


JWT: dict[str, Any] = {
    "no token": lambda: Attempt(b"/jwt"),
    "alg none": lambda: Attempt(b"/jwt", bearer(unsigned("none"))),
    "alg nOnE": lambda: Attempt(b"/jwt", bearer(unsigned("nOnE"))),
    "alg empty": lambda: Attempt(b"/jwt", bearer(unsigned(""))),
    "alg none with a signature": lambda: Attempt(b"/jwt", bearer(jwt(header={"alg": "none"}))),
    "alg confusion": lambda: Attempt(b"/jwt", bearer(confused())),
    "shared secret": lambda: Attempt(b"/jwt", bearer(jwt("HS256", OctKey.import_key(b"guessed" * 8)))),
    "kid path": lambda: Attempt(b"/jwt", bearer(jwt(header={"kid": "../../../../dev/null"}))),
    "kid sql": lambda: Attempt(b"/jwt", bearer(jwt(header={"kid": "x' UNION SELECT 'key"}))),
    "kid url": lambda: Attempt(b"/jwt", bearer(jwt(key=OTHER, header={"kid": "https://evil.test/key"}))),
    "embedded key": lambda: Attempt(b"/jwt", bearer(jwt(key=OTHER, header={"jwk": OTHER.as_dict(private=False)}))),
    "key url": lambda: Attempt(b"/jwt", bearer(jwt(key=OTHER, header={"jku": "https://evil.test/jwks", "kid": "rsa"}))),
    "critical extension": lambda: Attempt(b"/jwt", bearer(jwt(header={"crit": ["exp"], "exp": 1}))),
    "other signer": lambda: Attempt(b"/jwt", bearer(jwt(key=OTHER, header={"kid": "rsa"}))),
    "expired": lambda: Attempt(b"/jwt", bearer(jwt(exp=now() - 40))),
    "no end": lambda: Attempt(b"/jwt", bearer(jwt(exp=None))),
    "future": lambda: Attempt(b"/jwt", bearer(jwt(nbf=now() + 60))),
    "wrong audience": lambda: Attempt(b"/jwt", bearer(jwt(aud="bank"))),
    "wrong audiences": lambda: Attempt(b"/jwt", bearer(jwt(aud=["bank", "shops"]))),
    "wrong issuer": lambda: Attempt(b"/jwt", bearer(jwt(iss="https://id.test.evil.test"))),
    "token of another kind": lambda: Attempt(b"/jwt", bearer(jwt(header={"typ": "logout+jwt"}))),
    "claim twice": lambda: Attempt(b"/jwt", bearer(told_twice())),
    "padding": lambda: Attempt(b"/jwt", bearer(jwt() + b"=")),
    "trailing dot": lambda: Attempt(b"/jwt", bearer(jwt() + b".")),
    "oversized": lambda: Attempt(b"/jwt", bearer(jwt(x="x" * 8192))),
    "two tokens": lambda: Attempt(b"/jwt", bearer(jwt()) + bearer(jwt(sub="root"))),
    "two tokens, the good one last": lambda: Attempt(b"/jwt", bearer(jwt(sub="root", exp=1)) + bearer(jwt())),
    "two places": lambda: Attempt(b"/jwt?token=" + jwt(sub="root", exp=1), bearer(jwt())),
    "two cookies": lambda: Attempt(b"/jwt", [(b"cookie", b"token=" + jwt() + b"; token=" + jwt(sub="root", exp=1))]),
    "not an admin": lambda: Attempt(b"/jwt/admin", bearer(jwt(roles=["user"]))),
    "admin by a comma": lambda: Attempt(b"/jwt/admin", bearer(jwt(roles="user,admin"))),
    "admin by a list in a list": lambda: Attempt(b"/jwt/admin", bearer(jwt(roles=[["admin"]]))),
    "admin by an encoded path": lambda: Attempt(b"/jwt/%61dmin", bearer(jwt(roles=["user"]))),
    "admin by a dotted path": lambda: Attempt(b"/jwt/x/../admin", bearer(jwt(roles=["user"]))),
    "past the check by an encoded path": lambda: Attempt(b"/%6awt/x"),
    "past the check by a dotted path": lambda: Attempt(b"/open/../jwt"),
}
HEARSAY: list[Field] = [
    (b"client-cert", b":AAAA:"),
    (b"x-forwarded-client-cert", b"Subject=CN=root"),
    (b"ssl-client-verify", b"SUCCESS"),
]
OTHERS: dict[str, Any] = {
    "wrong key": lambda: Attempt(b"/key", [(b"x-api-key", b"wrong")]),
    "digest of the key": lambda: Attempt(b"/key", [(b"x-api-key", digest_of(b"right").encode())]),
    "two keys": lambda: Attempt(b"/key", [(b"x-api-key", b"right"), (b"x-api-key", b"wrong")]),
    "two keys, the good one last": lambda: Attempt(b"/key", [(b"x-api-key", b"wrong"), (b"x-api-key", b"right")]),
    "keys as one": lambda: Attempt(b"/key", [(b"x-api-key", b"right, wrong")]),
    "key with an underscore": lambda: Attempt(b"/key", [(b"x_api_key", b"right")]),
    "oversized key": lambda: Attempt(b"/key", [(b"x-api-key", b"x" * 4000)]),
    "wrong password": lambda: Attempt(b"/basic", [(b"authorization", basic(b"alice", b"wrong"))]),
    "nobody": lambda: Attempt(b"/basic", [(b"authorization", basic(b"mallory", b"correct horse"))]),
    "name with a colon": lambda: Attempt(b"/basic", [(b"authorization", basic(b"alice:correct horse", b""))]),
    "two passwords": lambda: Attempt(
        b"/basic", [(b"authorization", basic(b"alice", word)) for word in (b"wrong", b"correct horse")]
    ),
    "unsigned": lambda: Attempt(b"/hmac"),
    "signature of another path": lambda: Attempt(b"/hmac/other", sign()),
    "signature of another query": lambda: Attempt(b"/hmac?admin=1", sign()),
    "signature of another method": lambda: Attempt(b"/hmac", sign(), b"DELETE"),
    "signature that covers too little": lambda: Attempt(b"/hmac", sign(components=USUAL[1:])),
    "signature with another secret": lambda: Attempt(b"/hmac", sign(secret=b"x" * 32)),
    "signature of yesterday": lambda: Attempt(b"/hmac", sign(ago=86400)),
    "signature of tomorrow": lambda: Attempt(b"/hmac", sign(ago=-86400)),
    "signature by nobody": lambda: Attempt(b"/hmac", sign(parameters=f';created={now()};keyid="../partner-7"')),
    "two signatures": lambda: Attempt(b"/hmac", [*sign(), *sign(label="sig2")]),
    "content nobody signed": lambda: Attempt(b"/hmac", sign(method=b"POST"), b"POST", b"evil"),
    "no certificate": lambda: Attempt(b"/mtls"),
    "a certificate by hearsay": lambda: Attempt(b"/mtls", HEARSAY),
}


@pytest.mark.parametrize("attempt", {**JWT, **OTHERS}.values(), ids={**JWT, **OTHERS})
def test_an_attack_is_refused_and_the_origin_never_hears_of_it(world, attempt):
    status = world.ask(attempt())
    assert status in (400, 401, 403)
    assert world.told == b""
    (record,) = world.gateway.records
    assert (record.status, record.who) == (status, "client")
    assert "horse" not in repr(record)


HONEST: dict[str, Any] = {
    "token": lambda: Attempt(b"/jwt", bearer(jwt())),
    "token for several": lambda: Attempt(b"/jwt", bearer(jwt(aud=["bank", "shop"]))),
    "token in a cookie": lambda: Attempt(b"/jwt", [(b"cookie", b"a=1; token=" + jwt())]),
    "token in a query": lambda: Attempt(b"/jwt?token=" + jwt()),
    "admin": lambda: Attempt(b"/jwt/admin", bearer(jwt(roles=["user", "admin"]))),
    "key": lambda: Attempt(b"/key", [(b"x-api-key", b"right")]),
    "password": lambda: Attempt(b"/basic", [(b"authorization", basic(b"alice", b"correct horse"))]),
    "signature": lambda: Attempt(b"/hmac?a=b%20c", sign(b"/hmac?a=b%20c")),
    "signature of content": lambda: Attempt(
        b"/hmac",
        sign(
            method=b"POST",
            headers=[(b"content-digest", content_digest(b"good"))],
            components=(*USUAL, "content-digest"),
        ),
        b"POST",
        b"good",
    ),
}
SPOOFED: list[Field] = [
    (b"x-user", b"spoofed"),
    (b"x_user", b"spoofed"),
    (b"x-roles", b"spoofed"),
    (b"x_roles", b"spoofed"),
]


@pytest.mark.parametrize("attempt", HONEST.values(), ids=HONEST)
def test_the_honest_one_goes_through_and_says_who_it_is_for_nobody_but_the_gateway(world, attempt):
    made = attempt()
    assert world.ask(Attempt(made.target, [*made.headers, *SPOOFED], made.method, made.content)) == 200
    assert world.told.count(b"x-user: alice\r\n") == 1
    assert b"spoofed" not in world.told
    assert b"x_user" not in world.told
    assert b"right" not in world.told
    assert b"horse" not in world.told
    assert b"Bearer" not in world.told
    (record,) = world.gateway.records
    assert (record.status, record.user) == (200, "alice")
    assert "token=ey" not in record.target


def test_nobody_says_who_he_is_where_no_module_runs(world):
    assert world.ask(Attempt(b"/open", SPOOFED)) == 200
    assert b"GET /open HTTP/1.1\r\n" in world.told
    assert b"spoofed" not in world.told


def test_a_signature_is_no_good_for_a_second_time(world):
    attempt = Attempt(b"/hmac", sign())
    assert [world.ask(attempt), world.ask(attempt)] == [200, 401]
    fresh = [world.ask(Attempt(b"/hmac", sign(nonce=nonce))) for nonce in ("a", "b", "a")]
    assert fresh == [200, 200, 401]
    assert world.told.count(b"GET /hmac HTTP/1.1\r\n") == 3


def test_content_that_was_changed_on_its_way_never_arrives_as_a_whole(world):
    headers = [(b"content-digest", content_digest(b"good"))]
    fields = sign(method=b"POST", headers=headers, components=(*USUAL, "content-digest"))
    assert world.ask(Attempt(b"/hmac", fields, b"POST", b"evil")) == 400
    assert b"evil" not in world.told


def test_a_refusal_says_how_to_ask(world):
    for target, scheme in ((b"/jwt", b"Bearer"), (b"/key", b"ApiKey"), (b"/basic", b"Basic"), (b"/hmac", b"Signature")):
        seen: list[Any] = []
        world.ready[-1].handle(Request(b"GET", target, [], None, b"a.test")).addBoth(seen.append)
        world.gateway.run()
        (answer,) = seen
        assert answer.status == 401
        assert answer.headers.get(b"www-authenticate").startswith(scheme + b' realm="gateway"')
        Taker(answer.body)
        world.gateway.run()


def test_a_call_of_grpc_hears_its_own_word(tmp_path):
    world = World(tmp_path, "http2")
    seen: list[Any] = []
    headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    for more in ([], bearer(jwt(roles=["user"]))):
        body = Giver([b"\0\0\0\0\0"], 5).body
        world.ready[-1].handle(Request(b"POST", b"/jwt/admin", headers + more, body, b"a.test")).addBoth(seen.append)
        world.gateway.run()
    told = []
    for answer in seen:
        taker = Taker(answer.body)
        world.gateway.run()
        told.append((answer.status, dict([*answer.headers, *(taker.trailers or ())])[b"grpc-status"]))
    assert told == [(200, b"16"), (200, b"7")]
    assert world.told == b""
    world.close()
