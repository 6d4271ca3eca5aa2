"""loginCheck: is somebody logged in?"""

from __future__ import annotations

import pytest
from stores import REDIS, Stored
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import Abort
from protogate.governance.logincheck import LoginCheckFactory
from protogate.governance.redis import Redises
from protogate.message import Response
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.wheel import Wheel

HTML = (b"accept", b"text/html,*/*")


class Contract(ModuleContract, SynchronousTestCase):
    factory = LoginCheckFactory
    waits = True
    good = ({"redis": REDIS}, {"redis": REDIS, "login": "https://id.test/login", "back": "to", "hashed": True})
    bad = (
        ({}, "redis"),
        ({"redis": {"url": "http://a.test"}}, "redis"),
        ({"redis": REDIS, "login": "/login"}, "login"),
        ({"redis": REDIS, "login": "https://id.test/\r\nx: 1"}, "login"),
        ({"redis": REDIS, "login": "https://id.test/é"}, "login"),
        ({"redis": REDIS, "back": "to"}, "back"),
        ({"redis": REDIS, "prefix": ""}, "prefix"),
        ({"redis": REDIS, "forward": {"cookie": "x"}}, "forward"),
        ({"redis": REDIS, "from": {"cookie": "a b"}}, "cookie"),
    )

    def means(self):
        reactor = MemoryReactor()
        redises = Redises(reactor, Wheel(reactor.clock))
        self.addCleanup(redises.stop)
        return FakeMeans(reactor=reactor, stores=redises.take)


def store(**params):
    made = Stored(LoginCheckFactory(), redis=REDIS, **params)
    made.server.put(b"session:abc", b'{"user": "alice", "roles": ["a"]}')
    made.server.put(b"session:plain", b"bob")
    return made


def with_cookie(value, *headers, **more):
    return exchange(headers=[(b"cookie", b"x=1; session=" + value), *headers], **more)


def test_a_session_is_whoever_has_it():
    scene = store()
    made = scene.ask(with_cookie(b"abc"))
    assert (made.identity.user, made.identity.scheme, made.identity.texts("roles")) == ("alice", "session", ("a",))
    assert made.request.headers == [(b"cookie", b"x=1")]
    assert scene.ask(with_cookie(b"plain")).identity.user == "bob"
    scene.stop()


@pytest.mark.parametrize("session", [b"other", b"", b"x" * 513, b"*", b"abc\xff"])
def test_anybody_else_is_refused(session):
    scene = store()
    abort = scene.ask(with_cookie(session))
    assert (abort.status, abort.detail) == (401, "the session is over")
    assert abort.headers == [(b"www-authenticate", b'Session realm="gateway"')]
    assert scene.ask(exchange()).status == 401
    scene.stop()


def test_two_sessions_have_two_readings():
    scene = store()
    assert scene.ask(with_cookie(b"abc; session=plain")).status == 400
    scene.stop()


def test_a_hash_of_redis_and_a_header():
    scene = store(**{"format": "hash", "user": "uid", "from": {"header": "x-session"}, "hashed": True})
    digest = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    scene.server.put(b"session:" + digest, {b"uid": b"alice", b"tenant": b"t1"})
    made = scene.ask(exchange(headers=[(b"x-session", b"abc")]))
    assert (made.identity.user, made.identity.claims) == ("alice", {"uid": "alice", "tenant": "t1"})
    assert scene.ask(exchange(headers=[(b"x-session", b"other")])).status == 401
    scene.stop()


@pytest.mark.parametrize("value", [b'{"user": ["alice"]}', b'{"user": "al\\nice"}', b"al\nice", b" alice"])
def test_what_would_be_told_as_another_name_lets_nobody_in(value):
    scene = store()
    scene.server.put(b"session:odd", value)
    assert scene.ask(with_cookie(b"odd")).status == 401
    assert scene.counted["lookup_unreadable"] == 1
    scene.stop()


def test_without_a_session_one_may_pass_where_it_is_optional():
    scene = store(optional=True, login="https://id.test/")
    assert scene.ask(exchange(headers=[HTML])).identity is None
    assert scene.ask(with_cookie(b"other")).status == 401
    scene.stop()


@pytest.mark.parametrize("headers", [[HTML], [HTML, (b"cookie", b"session=other")]])
def test_a_browser_is_sent_to_where_one_logs_in(headers):
    scene = store(login="https://id.test/login?app=shop", back="return to")
    answer = scene.ask(exchange(headers=headers, target=b"/a?b=c&d=%20", authority=b"shop.test:8443", tls=True))
    assert isinstance(answer, Response)
    assert answer.status == 302
    assert answer.headers == [
        (
            b"location",
            b"https://id.test/login?app=shop&return%20to=https%3A%2F%2Fshop.test%3A8443%2Fa%3Fb%3Dc%26d%3D%2520",
        ),
        (b"cache-control", b"no-store"),
    ]
    assert scene.counted["sent_to_login"] == 1
    scene.stop()


def test_nobody_else_is():
    scene = store(login="https://id.test/login", back="to")
    for made in (
        exchange(headers=[(b"accept", b"application/json")]),
        exchange(headers=[HTML], method=b"POST"),
        exchange(),
    ):
        assert isinstance(scene.ask(made), Abort)
    long = scene.ask(exchange(headers=[HTML], target=b"/" + b"x" * 3000))
    assert long.headers[0] == (b"location", b"https://id.test/login")
    scene.stop()


def test_without_the_redis_nobody_is_let_in_nor_sent_anywhere():
    scene = store(login="https://id.test/login")
    scene.ask(with_cookie(b"abc"))
    scene.server.silent = True
    abort = scene.ask(with_cookie(b"plain", HTML), 0.1)
    assert (abort.status, abort.who) == (503, "gateway")
    assert scene.ask(with_cookie(b"abc")).identity.user == "alice"
    scene.stop()


def test_a_session_that_ended_is_over_as_soon_as_it_is_forgotten():
    scene = store(remember="3s")
    scene.ask(with_cookie(b"abc"))
    del scene.server.values[b"session:abc"]
    assert scene.ask(with_cookie(b"abc")).identity.user == "alice"
    scene.reactor.advance(3.1)
    assert scene.ask(with_cookie(b"abc")).status == 401
    scene.stop()
