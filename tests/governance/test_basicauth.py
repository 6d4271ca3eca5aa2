"""basicAuth: name and password."""

from __future__ import annotations

import hashlib
import os
import tempfile
from base64 import b64encode
from collections import Counter

import pytest
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import Abort, ConfigError
from protogate.governance import basicauth
from protogate.governance.basicauth import BasicAuthFactory
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Expect


def hashed(password):
    """Quick enough for tests."""
    made = hashlib.pbkdf2_hmac("sha256", password, b"saltsalt", 10_000)
    return f"$pbkdf2-sha256$i=10000$c2FsdHNhbHQ${b64encode(made).decode().rstrip('=')}"


USERS = f"alice:{hashed(b'correct horse')}:admin,ops\nbob:{hashed(b'b:o:b')}\n"


def basic(name, password):
    return b"Basic " + b64encode(name + b":" + password)


class Scene:
    """The module in force."""

    def __init__(self, path, before=None, reactor=None, **params):
        self.reactor = MemoryReactor() if reactor is None else reactor
        self.counted = Counter()
        self.module = BasicAuthFactory().build({"users": {"file": str(path)}, **params})
        self.module.start(FakeMeans(reactor=self.reactor, counted=self.counted), before and before.module)

    def ask(self, *values, headers=()):
        """What comes of it: the exchange, or the Abort."""
        made = exchange(headers=[*headers, *((b"authorization", value) for value in values)])
        try:
            waits = self.module.process(made)
        except Abort as abort:
            return abort
        if waits is None:
            return made
        told = []
        waits.addErrback(lambda failure: failure.value).addCallback(lambda value: told.append(value or made))
        self.reactor.run()
        return told[0]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "users.txt").write_text(USERS)
    return tmp_path / "users.txt"


@pytest.fixture
def scene(path):
    made = Scene(path)
    yield made
    made.module.stop()


class Contract(ModuleContract, SynchronousTestCase):
    factory = BasicAuthFactory
    waits = True
    bad = (
        ({}, "users"),
        ({"users": {"file": "/nowhere"}}, "users"),
        ({"users": {"url": "ftp://a.test"}}, "users"),
        ({"users": "users.txt"}, "users"),
        ({"remember": 300}, "remember"),
        ({"optional": "yes"}, "optional"),
        ({"realm": 'a"b'}, "realm"),
        ({"forward": {"authorization": "x"}}, "forward"),
        ({"forward": {"cookie": "x"}}, "forward"),
        ({"forward": {"x-forwarded-user": "x"}}, "forward"),
        ({"forward": {"content-length": "1"}}, "forward"),
        ({"user": {}}, "user"),
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "users.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(USERS)
        self.good = ({"users": {"file": path}}, {"users": {"file": path}, "optional": True, "remember": 0})


def test_a_right_password_is_an_identity_and_ends_here(scene):
    made = scene.ask(basic(b"alice", b"correct horse"), headers=[(b"x", b"1")])
    assert (made.identity.user, made.identity.scheme, made.identity.texts("groups")) == (
        "alice",
        "basic",
        ("admin", "ops"),
    )
    assert made.request.headers == [(b"x", b"1")]
    assert scene.ask(basic(b"bob", b"b:o:b")).identity.claims == {}


@pytest.mark.parametrize(
    "value",
    [
        basic(b"alice", b"correct horse "),
        basic(b"alice", b""),
        basic(b"Alice", b"correct horse"),
        basic(b"mallory", b"correct horse"),
        basic(b"", b"correct horse"),
        basic(b"alice", b"x" * 1025),
        basic(b"alice\0", b"correct horse"),
        basic(b"\xff", b"x"),
        b"Basic",
        b"Basic ",
        b"Basic !!!",
        b"Basic " + b64encode(b"alice"),
        basic(b"alice", b"correct horse") + b" x",
        basic(b"alice", b"correct horse").rstrip(b"=") + b"=====",
    ],
)
def test_anything_else_is_challenged(scene, value):
    abort = scene.ask(value)
    assert (abort.status, abort.who, abort.error) == (401, "client", "http_request_denied")
    assert abort.headers == [(b"www-authenticate", b'Basic realm="gateway", charset="UTF-8"')]
    assert abort.detail == "the credential is not valid"
    assert "correct" not in abort.reason


def test_strangers_are_not_told_whether_the_name_or_the_password_was_wrong(scene):
    one, other = scene.ask(basic(b"alice", b"x")), scene.ask(basic(b"mallory", b"x"))
    assert (one.detail, one.status, one.headers) == (other.detail, other.status, other.headers)
    assert one.reason != other.reason
    assert scene.counted["password_hashed"] == 2


def test_no_credential_is_challenged_unless_it_is_optional(path):
    assert Scene(path).ask().status == 401
    assert Scene(path).ask(b"Bearer abc").status == 401
    scene = Scene(path, optional=True)
    assert scene.ask().identity is None
    assert scene.ask(b"Bearer abc").identity is None
    assert scene.ask(basic(b"alice", b"x")).status == 401


def test_two_credentials_have_two_readings(scene):
    right = basic(b"alice", b"correct horse")
    assert scene.ask(right, right).status == 400
    assert scene.ask(right, b"Bearer x").status == 400
    assert scene.counted["password_hashed"] == 0


def test_it_may_be_kept(path):
    value = basic(b"alice", b"correct horse")
    assert Scene(path, keepCredential=True).ask(value).request.headers == [(b"authorization", value)]


def test_a_request_that_is_none_hashes_nothing(scene):
    made = exchange(headers=[(b"authorization", basic(b"alice", b"x"))])
    made.request.malformed = Abort("no request", "client", 400)
    assert scene.module.process(made) is None
    assert scene.counted == {}


def test_a_verdict_is_remembered_right_or_wrong(scene):
    for password, count in ((b"correct horse", 1), (b"wrong", 2)):
        for _ in range(3):
            scene.ask(basic(b"alice", password))
        assert scene.counted["password_hashed"] == count
    made = exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))])
    assert scene.module.process(made) is None, "no Deferred for what is known"
    scene.reactor.clock.advance(300)
    scene.ask(basic(b"alice", b"correct horse"))
    assert scene.counted["password_hashed"] == 3


def test_nothing_is_remembered_where_that_is_asked_for(path):
    scene = Scene(path, remember=0)
    for _ in range(3):
        assert scene.ask(basic(b"alice", b"correct horse")).identity.user == "alice"
    assert scene.counted["password_hashed"] == 3


def test_the_same_password_is_hashed_once_for_all_who_wait(scene):
    value = basic(b"alice", b"correct horse")
    made = [exchange(headers=[(b"authorization", value)]) for _ in range(5)]
    waits = [scene.module.process(each) for each in made]
    scene.reactor.run()
    assert [each.identity.user for each in made] == ["alice"] * 5
    assert all(wait.called for wait in waits)
    assert scene.counted["password_hashed"] == 1


def test_too_many_guesses_are_turned_away_and_who_is_known_is_not(scene, monkeypatch):
    scene.ask(basic(b"alice", b"correct horse"))
    waits = []
    for number in range(basicauth.HANDS + basicauth.ROOM):
        made = exchange(headers=[(b"authorization", basic(b"bob", b"%d" % number))])
        waits.append(scene.module.process(made).addErrback(lambda failure: failure.value.status))
    abort = None
    try:
        scene.module.process(exchange(headers=[(b"authorization", basic(b"bob", b"b:o:b"))]))
    except Abort as error:
        abort = error
    assert (abort.status, abort.who, abort.headers) == (503, "gateway", [(b"retry-after", b"1")])
    assert scene.counted["hash_queue_full"] == 1
    made = exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))])
    assert scene.module.process(made) is None
    scene.reactor.run()
    assert [wait.result for wait in waits] == [401] * len(waits)
    assert scene.ask(basic(b"bob", b"b:o:b")).identity.user == "bob"


def test_who_waits_for_too_long_is_told_so_and_finds_his_password_known_later(scene):
    made = exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))], clock=scene.reactor.clock)
    told = []
    scene.module.process(made).addErrback(lambda failure: told.append(failure.value))
    scene.reactor.clock.pump([0.1] * 16)  # the thread does not get its turn
    (abort,) = told
    assert (abort.status, abort.who, abort.headers) == (503, "gateway", [(b"retry-after", b"1")])
    assert scene.counted["hash_too_late"] == 1
    scene.reactor.run()
    made = exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))])
    assert scene.module.process(made) is None
    assert scene.counted["password_hashed"] == 1


def test_who_leaves_is_hashed_for_no_longer(scene):
    failed = []
    for number in range(basicauth.HANDS + 5):
        made = exchange(headers=[(b"authorization", basic(b"bob", b"%d" % number))])
        wait = scene.module.process(made).addErrback(lambda failure: failed.append(failure.type))
        wait.cancel()
    assert failed == [CancelledError] * (basicauth.HANDS + 5)
    scene.reactor.run()
    assert scene.ask(basic(b"bob", b"b:o:b")).identity.user == "bob"


def test_a_change_of_the_file_counts_and_forgets(scene, path):
    assert scene.ask(basic(b"alice", b"correct horse")).identity
    path.write_text(f"alice:{hashed(b'new')}\n")
    scene.reactor.advance(3)
    assert scene.ask(basic(b"alice", b"correct horse")).status == 401
    assert scene.ask(basic(b"alice", b"new")).identity.user == "alice"
    path.write_text("alice:nonsense\n")
    scene.reactor.advance(3)
    assert scene.counted["source_failed"] >= 1
    assert scene.ask(basic(b"alice", b"new")).identity.user == "alice"


def test_what_is_known_outlives_a_reload_of_the_same_file(path):
    first = Scene(path)
    first.ask(basic(b"alice", b"correct horse"))
    second = Scene(path, first, first.reactor, realm="other")
    first.module.stop()
    made = exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))])
    assert second.module.process(made) is None
    assert second.counted["password_hashed"] == 0
    path.write_text(USERS + "# other\n")
    third = Scene(path, second, first.reactor)
    second.module.stop()
    third.ask(basic(b"alice", b"correct horse"))
    assert third.counted["password_hashed"] == 1
    third.module.stop()


def test_before_the_users_of_a_url_are_there_nobody_is_let_in():
    module = BasicAuthFactory().build({"users": {"url": "https://a.test/users"}})
    assert list(module.asks) == ["https://a.test:443"]
    with pytest.raises(Abort) as caught:
        module.process(exchange(headers=[(b"authorization", basic(b"alice", b"correct horse"))]))
    assert (caught.value.status, caught.value.who) == (503, "gateway")


def test_warnings_and_faults_of_files(tmp_path):
    (tmp_path / "none.txt").write_text("# nobody\n")
    module = BasicAuthFactory().build({"users": {"file": str(tmp_path / "none.txt")}})
    assert [warning.path for warning in module.warnings] == [("users",)]
    module = BasicAuthFactory().build({"users": {"url": "http://a.test/users"}})
    assert [warning.path for warning in module.warnings] == [("users", "url")]
    (tmp_path / "bad.txt").write_text("\nalice:{SHA}topmost\n")
    with pytest.raises(ConfigError, match=r"bad\.txt: line 2: SHA-1 is too fast") as caught:
        BasicAuthFactory().build({"users": {"file": str(tmp_path / "bad.txt")}})
    assert "topmost" not in caught.value.message


CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules:
  - name: basicAuth
    actionParam:
      users: {{file: {path}}}
      forward: {{x-user: "${{identity.user}}", x-groups: "${{identity.claims['groups']}}"}}
"""


def test_in_a_gateway(path):
    with MemoryGateway(CONFIG.format(path=path)) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        head = b"GET / HTTP/1.1\r\nHost: a.test\r\nX-User: root\r\nx_groups: root\r\n"
        answer = gateway.ask(head + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b'www-authenticate: Basic realm="gateway", charset="UTF-8"\r\n' in answer
        assert origin.connections == []
        answer = gateway.ask(head + b"Authorization: " + basic(b"alice", b"correct horse") + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 204 ")
        told = origin.connections[0].received
        assert b"x-user: alice\r\nx-groups: admin,ops\r\n" in told
        assert b"root" not in told
        assert b"horse" not in told
        assert b"authorization" not in told
        assert [(record.status, record.user, record.auth) for record in gateway.records] == [
            (401, "", ""),
            (204, "alice", "basic"),
        ]
