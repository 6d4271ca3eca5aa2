"""hmacAuth: signed requests."""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections import Counter

import pytest
from stores import REDIS, Stored
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import Abort, ConfigError
from protogate.governance import hmacauth
from protogate.governance.hmacauth import HmacAuthFactory
from protogate.governance.redis import Redises
from protogate.identity.replays import Replays
from protogate.testing.bodies import Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Expect
from protogate.wheel import Wheel
from signing import NOW, SECRET, USUAL, content_digest, signed

FILE = f"partner-7 partner {b64encode(SECRET).decode()} plan=gold\nother somebody {b64encode(b'x' * 32).decode()}\n"
CONTENT = b'{"hello": "world"}'
DIGEST = (*USUAL, "content-digest")


class Scene:
    """The module in force."""

    def __init__(self, path, before=None, **params):
        self.reactor = MemoryReactor() if before is None else before.reactor
        self.counted, self.now = Counter(), float(NOW)
        self.module = HmacAuthFactory(lambda: self.now).build({"keys": {"file": str(path)}, **params})
        self.module.start(FakeMeans(reactor=self.reactor, counted=self.counted), before and before.module)

    def ask(self, headers, **what):
        """The exchange, or the Abort."""
        made = exchange(headers=headers, **what)
        try:
            assert self.module.process(made) is None
        except Abort as abort:
            return abort
        return made


@pytest.fixture
def path(tmp_path):
    (tmp_path / "secrets.txt").write_text(FILE)
    return tmp_path / "secrets.txt"


@pytest.fixture
def scene(path):
    made = Scene(path)
    yield made
    made.module.stop()


class Contract(ModuleContract, SynchronousTestCase):
    factory = HmacAuthFactory
    waits = True
    bad = (
        ({}, "keys"),
        ({"keys": {"file": "/nowhere"}}, "keys"),
        ({"components": ["@status"]}, "components"),
        ({"components": [7]}, "components"),
        ({"components": []}, "components"),
        ({"components": "@method"}, "components"),
        ({"tag": 'a"b'}, "tag"),
        ({"maxAge": 60}, "maxAge"),
        ({"maxAge": "2h"}, "maxAge"),
        ({"skew": "1h"}, "skew"),
        ({"body": "yes"}, "body"),
        ({"replay": "maybe"}, "replay"),
        ({"redis": REDIS, "replay": "allow"}, "redis"),
        ({"keepCredential": True}, "keepCredential"),
        ({"forward": {"signature": "x"}}, "forward"),
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "secrets.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FILE)
        self.good = (
            {"keys": {"file": path}},
            {"keys": {"file": path}, "redis": REDIS, "optional": True, "components": ["@target-uri", "@method", "X-A"]},
        )

    def means(self):
        reactor = MemoryReactor()
        redises = Redises(reactor, Wheel(reactor.clock))
        self.addCleanup(redises.stop)
        return FakeMeans(reactor=reactor, stores=redises.take)


def test_a_signed_request_is_its_signer(scene):
    made = scene.ask(signed())
    assert (made.identity.user, made.identity.scheme) == ("partner", "signature")
    assert made.identity.claims == {"plan": "gold", "keyid": "partner-7"}
    assert made.request.headers.get(b"signature") is not None


def test_no_signature_is_challenged_with_what_is_wanted(scene, path):
    abort = scene.ask([])
    assert (abort.status, abort.who) == (401, "client")
    assert abort.headers == [
        (b"www-authenticate", b'Signature realm="gateway"'),
        (
            b"accept-signature",
            b'sig=("@method" "@authority" "@path" "@query" "content-digest");created;keyid',
        ),
    ]
    assert Scene(path, optional=True).ask([]).identity is None
    assert Scene(path, body="covered", nonce=True, tag="t").ask([]).headers[1][1] == (
        b'sig=("@method" "@authority" "@path" "@query");created;keyid;nonce;tag="t"'
    )


OVER = ';created=%d;keyid="partner-7"'
BAD = {
    "other secret": signed(secret=b"y" * 64),
    "secret of somebody else": signed(parameters=f';created={NOW};keyid="other"'),
    "nobody's": signed(parameters=f';created={NOW};keyid="none"'),
    "no keyid": signed(parameters=f";created={NOW}"),
    "keyid path": signed(parameters=f';created={NOW};keyid="../partner-7"'),
    "no method": signed(components=USUAL[1:]),
    "no authority": signed(components=("@method", "@path", "@query")),
    "no path": signed(components=("@method", "@authority", "@query")),
    "no query": signed(components=USUAL[:3]),
    "nothing": signed(components=()),
    "not created": signed(parameters=';keyid="partner-7"'),
    "old": signed(parameters=OVER % (NOW - 65)),
    "of the future": signed(parameters=OVER % (NOW + 6)),
    "expired": signed(parameters=f';created={NOW};expires={NOW - 5};keyid="partner-7"'),
    "covers what is not there": signed(components=(*USUAL, "x-none")),
    "other algorithm": signed(parameters=f';created={NOW};keyid="partner-7";alg="ed25519"'),
    "no algorithm": signed(parameters=f';created={NOW};keyid="partner-7";alg="none"'),
    "nobody's, by another algorithm": signed(parameters=f';created={NOW};keyid="none";alg="ed25519"'),
    "other method": signed(method=b"POST"),
    "other host": signed(authority=b"b.test"),
    "other path": signed(target=b"/other?q=1"),
    "other query": signed(target=b"/path?q=2"),
    "other field": [(b"x-a", b"2"), *signed(headers=[(b"x-a", b"1")], components=(*USUAL, "x-a"))],
    "cut": [(name, value[:-3] if name == b"signature" else value) for name, value in signed()],
    "twice": [*signed(), *signed()],
    "beside another": [*signed(), *signed(label="sig2")],
}


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD)
def test_anything_else_is_refused(scene, headers):
    abort = scene.ask(headers)
    assert (abort.status, abort.detail) == (401, "the signature is not valid")
    assert scene.counted["signature_refused"] == 1
    assert scene.ask(signed()).identity


@pytest.mark.parametrize("created", [NOW - 64, NOW + 5])
def test_clocks_may_differ_a_little(scene, created):
    assert scene.ask(signed(parameters=OVER % created)).identity


def test_a_signature_counts_once(scene):
    assert scene.ask(signed()).identity
    abort = scene.ask(signed())
    assert (abort.status, abort.reason) == (401, "hmacAuth: it came before")
    assert scene.counted["signature_replayed"] == 1
    assert scene.ask(signed(parameters=f';created={NOW};keyid="partner-7";nonce="1"')).identity
    assert scene.ask(signed(target=b"/path?q=2"), target=b"/path?q=2").identity


def test_a_nonce_counts_once_whatever_is_signed_with_it(scene):
    parameters = f';created={NOW};keyid="partner-7";nonce="n1"'
    assert scene.ask(signed(parameters=parameters)).identity
    again = signed(target=b"/path?q=2", parameters=parameters)
    assert scene.ask(again, target=b"/path?q=2").reason == "hmacAuth: it came before"


def test_a_nonce_may_be_wanted(path):
    scene = Scene(path, nonce=True)
    assert scene.ask(signed()).reason == "hmacAuth: it has no nonce"
    assert scene.ask(signed(parameters=f';created={NOW};keyid="partner-7";nonce=""')).status == 401
    assert scene.ask(signed(parameters=f';created={NOW};keyid="partner-7";nonce="1"')).identity


def test_a_replay_is_noticed_as_long_as_the_signature_counts(path):
    scene = Scene(path, maxAge="60s", skew="5s")
    headers = signed(parameters=OVER % (NOW + 5))
    assert scene.ask(headers).identity
    for later in (1, 30, 69, 69.9):
        scene.now = NOW + later
        assert scene.ask(headers).reason == "hmacAuth: it came before"
    scene.now = NOW + 70
    assert scene.ask(headers).reason == "hmacAuth: it is over"


def test_a_replay_is_noticed_over_a_reload_also_with_a_longer_time(path):
    first = Scene(path)
    headers = signed()
    assert first.ask(headers).identity
    second = Scene(path, first, maxAge="10m")
    first.module.stop()
    second.now = NOW + 300
    assert second.ask(headers).reason == "hmacAuth: it came before"
    assert first.ask(headers).status == 401, "one that is under way under the configuration before"
    second.module.stop()


def test_replays_may_be_allowed(path):
    scene = Scene(path, replay="allow")
    assert scene.ask(signed()).identity
    assert scene.ask(signed()).identity


def test_when_no_more_can_be_remembered_nobody_new_is_let_in(scene):
    scene.module._replays = Replays(lambda: scene.now, 70, room=1)
    assert scene.ask(signed()).identity
    abort = scene.ask(signed(target=b"/b"), target=b"/b")
    assert (abort.status, abort.who) == (503, "gateway")
    assert scene.counted["replays_full"] == 1
    scene.now += 70
    assert scene.ask(signed(target=b"/b", parameters=OVER % scene.now), target=b"/b").identity


def test_who_names_a_secret_that_nobody_has_is_verified_all_the_same(scene, monkeypatch):
    asked = []
    real = hmacauth.Signature.verifies
    monkeypatch.setattr(hmacauth.Signature, "verifies", lambda *args: asked.append(args) or real(*args))
    scene.ask(signed(parameters=f';created={NOW};keyid="none"'))
    assert len(asked) == 1


# -- content


def posted(content=CONTENT, told=None, components=DIGEST, **more):
    headers = [] if told == b"" else [(b"content-digest", content_digest(content) if told is None else told)]
    return signed(method=b"POST", headers=headers, components=components, **more)


def test_content_is_held_to_the_digest_that_was_signed(scene):
    made = scene.ask(posted(), method=b"POST", body=CONTENT)
    assert Taker(made.request.body).data == CONTENT
    made = scene.ask(posted(b"other"), method=b"POST", body=CONTENT)
    taker = Taker(made.request.body)
    assert (taker.data, taker.reason.status) == (b"", 400)


@pytest.mark.parametrize(
    "headers",
    [
        posted(components=USUAL),
        posted(told=b"md5=:AAAA:"),
        posted(told=b"nonsense"),
        posted(told=b"", components=DIGEST),
    ],
    ids=["not covered", "unknown", "nonsense", "not there"],
)
def test_content_without_a_digest_that_was_signed_is_refused(scene, headers):
    assert scene.ask(headers, method=b"POST", body=CONTENT).status == 401


def test_what_is_held_is_the_digest_that_was_signed_and_no_other(scene):
    headers = [(b"content-digest", content_digest(b"evil")), *posted()]
    assert scene.ask(headers, method=b"POST", body=b"evil").status == 401


def test_a_digest_of_no_content_is_checked_at_once(scene):
    assert scene.ask(posted(b""), method=b"POST").identity
    assert scene.ask(posted(CONTENT), method=b"POST").status == 400


def test_content_may_be_left_alone(path):
    headers = posted(components=USUAL)
    made = Scene(path, body="covered").ask(headers, method=b"POST", body=CONTENT)
    assert made.identity
    made = Scene(path, body="covered").ask(posted(b"other"), method=b"POST", body=CONTENT)
    assert Taker(made.request.body).reason.status == 400
    made = Scene(path, body="ignored").ask(posted(b"other"), method=b"POST", body=CONTENT)
    assert Taker(made.request.body).data == CONTENT


@pytest.mark.parametrize("components", [USUAL, DIGEST])
def test_what_a_tunnel_carries_is_no_content(scene, components):
    made = exchange(headers=signed(headers=[(b"content-digest", content_digest(b""))], components=components), body=b"")
    made.request.upgrade = b"websocket"
    before = made.request.body
    assert scene.module.process(made) is None
    assert made.identity.user == "partner"
    assert made.request.body is before


# -- secrets, and where replays are remembered


def test_a_change_of_the_file_counts(scene, path):
    path.write_text(f"partner-7 partner {b64encode(b'n' * 32).decode()}\n")
    scene.reactor.advance(3)
    assert scene.ask(signed()).status == 401
    assert scene.ask(signed(secret=b"n" * 32)).identity.user == "partner"


def test_before_the_secrets_of_a_url_are_there_nobody_is_let_in():
    module = HmacAuthFactory().build({"keys": {"url": "https://a.test/secrets"}})
    with pytest.raises(Abort) as caught:
        module.process(exchange(headers=signed()))
    assert (caught.value.status, caught.value.who) == (503, "gateway")
    with pytest.raises(Abort) as caught:
        module.process(exchange())
    assert caught.value.status == 401


def test_all_processes_may_remember_together(path):
    params = {"keys": {"file": str(path)}, "redis": REDIS}
    one = Stored(HmacAuthFactory(lambda: float(NOW)), **params)
    other = Stored(HmacAuthFactory(lambda: float(NOW)), one, **params)
    assert one.ask(exchange(headers=signed())).identity.user == "partner"
    assert other.ask(exchange(headers=signed())).reason == "hmacAuth: it came before"
    ((key, (_, until)),) = one.server.values.items()
    assert key.startswith(b"signature:")
    assert len(key) == len("signature:") + 64
    assert until - one.reactor.seconds() == pytest.approx(70)
    one.server.silent = True
    abort = one.ask(exchange(headers=signed(target=b"/b"), target=b"/b"), 0.1)
    assert (abort.status, abort.who) == (503, "gateway")
    for each in (one, other):
        each.module.stop()
        each.redises.stop()
        each.wheel.stop()


def test_what_came_in_the_shadow_did_not_come(path):
    params = {"keys": {"file": str(path)}, "redis": REDIS}
    tried = Stored(HmacAuthFactory(lambda: float(NOW)), shadow=True, **params)
    real = Stored(HmacAuthFactory(lambda: float(NOW)), tried, **params)
    for each in (tried, real):
        assert each.ask(exchange(headers=signed())).identity.user == "partner"
        assert each.ask(exchange(headers=signed())).reason == "hmacAuth: it came before"
    for each in (tried, real):
        each.module.stop()
        each.redises.stop()
        each.wheel.stop()


def test_what_is_not_covered_is_warned_of(path):
    def warned(*components):
        built = HmacAuthFactory().build({"keys": {"file": str(path)}, "components": list(components)})
        return [warning.message for warning in built.warnings]

    assert warned(*USUAL) == []
    assert warned("@method", "@target-uri") == []
    assert warned("@method", "host", "@request-target") == [
        "whoever has a signature may send it with another @authority"
    ]
    assert warned("date") == ["whoever has a signature may send it with another @method, @authority, @path, @query"]


def test_a_broken_file_is_a_fault_and_an_empty_one_is_warned_of(tmp_path):
    (tmp_path / "s.txt").write_text("a alice c2hvcnQ=")
    with pytest.raises(ConfigError, match="line 1: a secret has 16 bytes at least"):
        HmacAuthFactory().build({"keys": {"file": str(tmp_path / "s.txt")}})
    (tmp_path / "s.txt").write_text("")
    assert [w.path for w in HmacAuthFactory().build({"keys": {"file": str(tmp_path / "s.txt")}}).warnings] == [
        ("keys",)
    ]


CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules: [{{name: hmacAuth, actionParam: {{keys: {{file: {path}}}, replay: allow}}}}]
"""


def test_in_a_gateway_the_upstream_never_has_all_of_what_was_not_signed(path):
    import time

    with MemoryGateway(CONFIG.format(path=path)) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(CONTENT), b"HTTP/1.1 204 No Content\r\n\r\n"])
        for content, status in ((CONTENT, 204), (CONTENT.replace(b"world", b"devil"), 400)):
            fields = posted(parameters=f';created={int(time.time())};keyid="partner-7"', told=content_digest(CONTENT))
            head = b"".join(b"%b: %b\r\n" % field for field in fields)
            answer = gateway.ask(
                b"POST /path?q=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18\r\n%b\r\n%b" % (head, content)
            )
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert b"devil" not in b"".join(connection.received for connection in origin.connections)
        assert [(record.status, record.user) for record in gateway.records] == [(204, "partner"), (400, "partner")]
