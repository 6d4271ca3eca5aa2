"""keyAuth: keys of an API."""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256

import pytest
from stores import REDIS, Stored
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import Abort, ConfigError
from protogate.governance.keyauth import KeyAuthFactory
from protogate.governance.redis import Redises
from protogate.identity.keys import digest_of
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Expect
from protogate.wheel import Wheel

NOW = 1_800_000_000.0
FILE = f"""
{digest_of(b"old")} billing expires=2027-01-15T08:00:00Z
{digest_of(b"new")} billing plan=gold
{digest_of(b"other")} reports
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "keys.txt").write_text(FILE)
    return tmp_path / "keys.txt"


@pytest.fixture
def scene(path):
    made = Stored(KeyAuthFactory(lambda: NOW), keys={"file": str(path)})
    yield made
    made.stop()


def shown(*keys, **more):
    return exchange(headers=[(b"x-api-key", key) for key in keys], **more)


class Contract(ModuleContract, SynchronousTestCase):
    factory = KeyAuthFactory
    waits = True
    bad = (
        ({}, "keys"),
        ({"keys": {"file": "/nowhere"}}, "keys"),
        ({"keys": {"file": "/nowhere"}, "redis": REDIS}, "keys"),
        ({"keys": {"url": "https://a.test"}, "prefix": "k:"}, "prefix"),
        ({"redis": REDIS, "prefix": ""}, "prefix"),
        ({"redis": {"url": "nowhere"}}, "redis"),
        ({"redis": REDIS, "format": "xml"}, "format"),
        ({"redis": REDIS, "remember": "2h"}, "remember"),
        ({"keys": {"url": "https://a.test"}, "from": {"header": "X-Key"}, "forward": {"x-key": "a"}}, "forward"),
        ({"keys": {"url": "https://a.test"}, "from": "x-key"}, "from"),
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "keys.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FILE)
        self.good = ({"keys": {"file": path}}, {"redis": REDIS, "from": [{"query": "key"}], "optional": True})

    def means(self):
        reactor = MemoryReactor()
        redises = Redises(reactor, Wheel(reactor.clock))
        self.addCleanup(redises.stop)
        return FakeMeans(reactor=reactor, stores=redises.take)


def test_a_key_is_its_owner_and_ends_here(scene):
    made = scene.ask(shown(b"new"))
    assert (made.identity.user, made.identity.scheme, made.identity.claims) == ("billing", "key", {"plan": "gold"})
    assert made.request.headers == []
    assert scene.ask(shown(b"other")).identity.user == "reports"


def test_several_keys_of_one_owner_work_until_they_are_over(path):
    now = [NOW - 1]
    scene = Stored(KeyAuthFactory(lambda: now[0]), keys={"file": str(path)})
    assert scene.ask(shown(b"old")).identity.user == scene.ask(shown(b"new")).identity.user == "billing"
    now[0] = NOW
    abort = scene.ask(shown(b"old"))
    assert (abort.status, abort.reason, abort.detail) == (
        401,
        "keyAuth: a key of billing that is over",
        "the key has expired",
    )
    assert scene.ask(shown(b"new")).identity
    scene.stop()


@pytest.mark.parametrize("key", [b"wrong", b"", b"New", b"new ", b"x" * 513, digest_of(b"new").encode(), b"\xff\x00"])
def test_anything_else_is_refused(scene, key):
    abort = scene.ask(shown(key))
    assert (abort.status, abort.who, abort.detail) == (401, "client", "the credential is not valid")
    assert abort.headers == [(b"www-authenticate", b'ApiKey realm="gateway"')]
    assert not key or key.decode("latin-1") not in abort.reason


def test_no_key_and_two_keys(scene, path):
    assert scene.ask(shown()).status == 401
    assert scene.ask(shown(b"new", b"new")).status == 400
    assert Stored(KeyAuthFactory(), keys={"file": str(path)}, optional=True).ask(shown()).identity is None


def test_a_key_of_the_query_is_taken_out(path):
    places = [{"query": "key"}, {"authorization": "ApiKey"}]
    scene = Stored(KeyAuthFactory(), keys={"file": str(path)}, **{"from": places})
    made = scene.ask(exchange(target=b"/a?x=1&key=other"))
    assert (made.identity.user, made.request.target) == ("reports", b"/a?x=1")
    assert scene.module.hides == {"key"}
    assert scene.ask(exchange(headers=[(b"authorization", b"apikey other")])).identity.user == "reports"
    assert scene.ask(shown(b"other")).status == 401


def test_a_change_of_the_file_counts(scene, path):
    path.write_text(f"{digest_of(b'newest')} billing\n")
    scene.reactor.advance(3)
    assert scene.ask(shown(b"new")).status == 401
    assert scene.ask(shown(b"newest")).identity.user == "billing"


def test_before_the_keys_of_a_url_are_there_nobody_is_let_in():
    module = KeyAuthFactory().build({"keys": {"url": "https://a.test/keys"}})
    assert module.asks == {"https://a.test:443": ("keys", "url")}
    with pytest.raises(Abort) as caught:
        module.process(shown(b"new"))
    assert (caught.value.status, caught.value.who) == (503, "gateway")


def test_an_empty_file_is_warned_of_and_a_broken_one_a_fault(tmp_path):
    (tmp_path / "keys.txt").write_text("")
    module = KeyAuthFactory().build({"keys": {"file": str(tmp_path / "keys.txt")}})
    assert [warning.path for warning in module.warnings] == [("keys",)]
    (tmp_path / "keys.txt").write_text("plain-text-key billing")
    with pytest.raises(ConfigError, match="line 1: expected sha256:DIGEST OWNER"):
        KeyAuthFactory().build({"keys": {"file": str(tmp_path / "keys.txt")}})


# -- in a Redis


@pytest.fixture
def store():
    made = Stored(KeyAuthFactory(), redis=REDIS)
    made.server.put(b"key:" + sha256(b"new").hexdigest().encode(), b'{"owner": "billing", "groups": ["a"]}')
    made.server.put(b"key:" + sha256(b"plain").hexdigest().encode(), b"reports")
    yield made
    made.stop()


def test_a_redis_may_know_the_keys_by_their_digests(store):
    made = store.ask(shown(b"new"))
    assert (made.identity.user, made.identity.scheme, made.identity.texts("groups")) == ("billing", "key", ("a",))
    assert store.ask(shown(b"plain")).identity.user == "reports"
    assert store.ask(shown(b"wrong")).status == 401
    assert all(b"new" not in word for command in store.server.asked for word in command)


def test_what_it_said_is_remembered_and_who_is_unknown_not_for_long(store):
    for _ in range(3):
        store.ask(shown(b"new"))
        store.ask(shown(b"wrong"))
    assert store.counted["looked_up"] == 2
    assert store.module.process(shown(b"new")) is None
    store.reactor.advance(2.1)
    store.ask(shown(b"new"))
    store.ask(shown(b"wrong"))
    assert store.counted["looked_up"] == 3
    store.reactor.advance(8)
    store.ask(shown(b"new"))
    assert store.counted["looked_up"] == 4


def test_many_who_show_the_same_key_at_once_ask_once(store):
    made = [shown(b"new") for _ in range(5)]
    told = [store.begin(each) for each in made]
    store.reactor.run()
    assert told == [[None]] * 5
    assert [each.identity.user for each in made] == ["billing"] * 5
    assert store.counted["looked_up"] == 1


def test_without_the_redis_nobody_is_let_in_who_is_not_remembered(store):
    store.ask(shown(b"new"))
    store.server.silent = True
    abort = store.ask(shown(b"plain"), 0.1)
    assert (abort.status, abort.who, abort.headers) == (503, "gateway", [(b"retry-after", b"1")])
    assert store.ask(shown(b"new")).identity.user == "billing"
    assert store.ask(shown(b"plain")).status == 503, "at once, now that it is in doubt"
    store.server.speak()
    store.reactor.run()
    assert store.ask(shown(b"plain")).identity.user == "reports"


def test_without_any_redis_nobody_is_let_in():
    store = Stored(KeyAuthFactory(), there=False, redis=REDIS)
    assert store.ask(shown(b"new")).status == 503
    assert store.ask(shown()).status == 401
    store.module.stop()
    assert store.ask(shown(b"new")).status == 503


def test_an_answer_that_says_nothing_lets_nobody_in(store):
    for number, value in enumerate((b"{", b'{"owner": ""}', b'{"owner": "a", "owner": "b"}', b"\xff", b"", b"{}")):
        key = b"k%d" % number
        store.server.put(b"key:" + sha256(key).hexdigest().encode(), value)
        assert store.ask(shown(key)).status == 401, value
    assert store.counted["lookup_unreadable"] == 5


def test_what_is_remembered_outlives_a_reload_about_the_same_keys(store):
    store.ask(shown(b"new"))
    same = Stored(KeyAuthFactory(), store, redis=REDIS, realm="other")
    assert same.module.process(shown(b"new")) is None
    other = Stored(KeyAuthFactory(), same, redis=REDIS, prefix="other:")
    other.module.stop()
    assert other.ask(shown(b"new")).status == 503, "nobody keeps the Redis"
    other = Stored(KeyAuthFactory(), same, redis=REDIS, prefix="other:")
    assert other.ask(shown(b"new")).status == 401
    for each in (same, other):
        each.module.stop()
        each.redises.stop()
        each.wheel.stop()


def test_a_client_that_leaves_is_waited_for_by_nobody(store):
    store.server.silent = True
    wait = store.module.process(shown(b"new"))
    failed = []
    wait.addErrback(lambda failure: failed.append(failure.type.__name__))
    wait.cancel()
    assert failed == ["CancelledError"]
    store.server.speak()
    store.reactor.run()
    assert store.ask(shown(b"new")).identity.user == "billing"


CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules:
  - name: keyAuth
    condition: "request.path != '/open'"
    actionParam:
      keys: {{file: {path}}}
      from: [{{header: x-api-key}}, {{query: key}}]
      forward: {{x-owner: "${{identity.user}}"}}
"""


def test_in_a_gateway_no_record_has_the_key_also_where_the_module_does_not_run(path):
    with MemoryGateway(CONFIG.format(path=path)) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        for target in (b"/a?key=new&x=1", b"/a?key=wrong", b"/open?key=new"):
            gateway.ask(b"GET " + target + b" HTTP/1.1\r\nHost: a.test\r\nX-Owner: root\r\nConnection: close\r\n\r\n")
        assert [(record.target, record.status, record.user) for record in gateway.records] == [
            ("/a?key=***&x=1", 204, "billing"),
            ("/a?key=***", 401, ""),
            ("/open?key=***", 204, ""),
        ]
        told = b"".join(connection.received for connection in origin.connections)
        assert b"GET /a?x=1 HTTP/1.1\r\n" in told
        assert b"x-owner: billing\r\n" in told
        assert b"root" not in told
