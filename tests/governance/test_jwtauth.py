"""jwtAuth: signed tokens."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter

import pytest
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.config.faults import ConfigFaults
from protogate.errors import UPSTREAM, Abort, ConfigError
from protogate.expression.template import compile as template
from protogate.governance.jwtauth import EARLY, JwtAuthFactory
from protogate.message import Response
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans, Service
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Expect
from tokens import EC, NOW, OCT, OTHER, RSA, SECRET, public, token

URL = "https://id.test/jwks.json"
ORIGIN = "https://id.test:443"


class Scene:
    """The module in force, and its issuer."""

    def __init__(self, before=None, keys=None, answer=None, **params):
        self.reactor = MemoryReactor() if before is None else before.reactor
        self.counted, self.now, self.published = Counter(), NOW, public(RSA)
        self.issuer = Service(answer or (lambda request: Response(200, body=Whole(self.published))))
        if "issuers" not in params and "secret" not in params:
            params = {"keys": keys or {"url": URL}, "issuer": "https://id.test", "audience": "shop", **params}
        self.module = JwtAuthFactory(lambda: self.now).build(params)
        services = dict.fromkeys(self.module.asks, self.issuer)
        self.module.start(FakeMeans(services, reactor=self.reactor, counted=self.counted), before and before.module)
        self.reactor.run()

    def ask(self, *tokens, **what):
        """What comes of it: the exchange, or the Abort."""
        headers = [*what.pop("headers", ()), *((b"authorization", b"Bearer " + each) for each in tokens)]
        made = exchange(headers=headers, **what)
        try:
            assert self.module.process(made) is None, "nothing is waited for"
        except Abort as abort:
            return abort
        return made


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.module.stop()


class Contract(ModuleContract, SynchronousTestCase):
    factory = JwtAuthFactory
    bad = (
        ({}, "keys"),
        ({"keys": {"url": URL}, "secret": {"env": "PATH"}}, "keys"),
        ({"keys": {"url": "jwks"}}, "keys"),
        ({"keys": {"file": "/nowhere"}}, "keys"),
        ({"keys": {"url": URL}, "algorithms": ["none"]}, "algorithms"),
        ({"keys": {"url": URL}, "algorithms": ["HS256"]}, "algorithms"),
        ({"keys": {"url": URL}, "algorithms": []}, "algorithms"),
        ({"secret": {"env": "PATH"}, "algorithms": ["RS256"]}, "algorithms"),
        ({"secret": {"env": "NOBODY_SETS_THIS"}}, "secret"),
        ({"secret": "s" * 32}, "secret"),
        ({"keys": {"url": URL}, "from": {"body": "x"}}, "from"),
        ({"keys": {"url": URL}, "from": []}, "from"),
        ({"keys": {"url": URL}, "from": {"header": "a b"}}, "header"),
        ({"keys": {"url": URL}, "from": {"header": "cookie"}}, "header"),
        ({"keys": {"url": URL}, "from": {"cookie": "a;b"}}, "cookie"),
        ({"keys": {"url": URL}, "from": [{"query": ""}]}, "query"),
        ({"keys": {"url": URL}, "from": {"header": "x-t"}, "forward": {"x-t": "1"}}, "forward"),
        ({"keys": {"url": URL}, "audience": [7]}, "audience"),
        ({"keys": {"url": URL}, "leeway": "1h"}, "leeway"),
        ({"keys": {"url": URL}, "remembered": -1}, "remembered"),
        ({"issuers": []}, "issuers"),
        ({"issuers": [7]}, "issuers"),
        ({"issuers": [{"keys": {"url": URL}}]}, "issuer"),
        ({"issuers": [{"issuer": "a", "keys": {"url": URL}}], "audience": "x"}, "audience"),
        ({"issuers": [{"issuer": "a", "keys": {"url": URL}}, {"issuer": "a", "keys": {"url": URL}}]}, "issuer"),
        ({"issuers": [{"issuer": "a", "keys": {"url": "x"}}]}, "keys"),
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "keys.json")
        with open(path, "wb") as file:
            file.write(public(RSA))
        self.good = (
            {"keys": {"file": path}, "issuer": "https://id.test", "audience": "shop"},
            {"issuers": [{"issuer": "a", "keys": {"url": URL}}, {"issuer": "b", "keys": {"file": path}}]},
        )

    def means(self):
        return FakeMeans({ORIGIN: Service(lambda request: Response(200, body=Whole(public(RSA))))})


def test_a_good_token_is_an_identity_and_ends_here(scene):
    made = scene.ask(token(groups=["a"], realm_access={"roles": ["r"]}), headers=[(b"x", b"1")])
    assert (made.identity.user, made.identity.scheme) == ("alice", "jwt")
    assert made.identity.texts("realm_access.roles") == ("r",)
    assert made.request.headers == [(b"x", b"1")]


def test_a_bad_one_is_challenged_and_operators_read_why(scene):
    abort = scene.ask(token(exp=NOW - 100))
    assert (abort.status, abort.who, abort.error) == (401, "client", "http_request_denied")
    assert abort.headers == [(b"www-authenticate", b'Bearer realm="gateway", error="invalid_token"')]
    assert (abort.reason, abort.detail) == ("jwtAuth: it is over", "the token has expired")
    assert scene.ask(token(header={"alg": "none"})).detail == "the token is not valid"
    assert scene.ask(b"x" * 8193).reason == "jwtAuth: it has 8193 bytes; from 1 to 8192 are read"
    assert scene.ask(b"").status == 401


def test_no_token_is_challenged_unless_it_is_optional(scene):
    abort = scene.ask()
    assert (abort.status, abort.headers) == (401, [(b"www-authenticate", b'Bearer realm="gateway"')])
    assert scene.ask(headers=[(b"authorization", b"Basic abc")]).status == 401
    lax = Scene(optional=True, realm="shop")
    assert lax.ask().identity is None
    assert lax.ask(b"nonsense").headers == [(b"www-authenticate", b'Bearer realm="shop", error="invalid_token"')]


def test_two_tokens_have_two_readings(scene):
    assert scene.ask(token(), token()).status == 400
    both = Scene(**{"from": [{"authorization": "bearer"}, {"cookie": "t"}]})
    assert both.ask(token()).identity.user == "alice"
    assert both.ask(headers=[(b"cookie", b"t=" + token())]).identity.user == "alice"
    assert both.ask(token(), headers=[(b"cookie", b"t=" + token())]).status == 400


@pytest.mark.parametrize(
    ("where", "what", "left"),
    [
        ({"header": "X-Token"}, {"headers": [(b"x-token", token())]}, ([], b"/path?q=1")),
        ({"cookie": "t"}, {"headers": [(b"cookie", b"a=1; t=" + token())]}, ([(b"cookie", b"a=1")], b"/path?q=1")),
        ({"query": "t"}, {"target": b"/path?q=1&t=" + token()}, ([], b"/path?q=1")),
        ({"authorization": "Token"}, {"headers": [(b"authorization", b"token " + token())]}, ([], b"/path?q=1")),
    ],
)
def test_it_may_stand_elsewhere_and_is_taken_out_there(where, what, left):
    scene = Scene(**{"from": where})
    made = scene.ask(**what)
    assert (made.request.headers, made.request.target) == left
    assert scene.ask(token()).status == 401
    assert scene.module.hides == ({"t"} if "query" in where else frozenset())


def test_it_may_be_kept():
    assert Scene(keepCredential=True).ask(token()).request.headers == [(b"authorization", b"Bearer " + token())]


def test_claims_are_forwarded_and_nothing_is_where_there_is_nothing():
    scene = Scene(
        forward={"x-user": template("${identity.user}"), "x-groups": template("${identity.claims['groups']}")}
    )
    assert scene.module.reserves == {b"x-user", b"x-groups"}
    made = scene.ask(token(groups=["a", "b"]), headers=[(b"x-user", b"root")])
    assert made.request.headers == [(b"x-user", b"alice"), (b"x-groups", b"a,b")]
    assert scene.ask(token()).request.headers == [(b"x-user", b"alice")]


def test_the_name_may_be_another_claim_and_must_be_there():
    scene = Scene(user="account.name")
    assert scene.ask(token(account={"name": "al"})).identity.user == "al"
    abort = scene.ask(token())
    assert (abort.status, abort.reason) == (401, "jwtAuth: it has no claim account.name, or one that is no name")
    assert Scene().ask(token(sub=None)).status == 401


@pytest.mark.parametrize("sub", [["alice"], {"name": "alice"}, True, "", "ad\r\nmin", "ad\0min", " alice", "alice\n"])
def test_what_would_be_told_as_another_name_is_none(sub):
    assert Scene().ask(token(sub=sub)).status == 401


def test_a_claim_that_no_field_can_hold_is_not_forwarded_in_part():
    scene = Scene(
        forward={
            "x-user": template("${identity.user}"),
            "x-groups": template("${identity.claims['groups']}"),
            "x-both": template("${identity.user}/${identity.claims['groups']}"),
        }
    )
    made = scene.ask(token(sub="ålice", groups="ad\nmin"), headers=[(b"x-groups", b"root")])
    assert made.request.headers == [(b"x-user", "ålice".encode())]
    made = scene.ask(token(sub="7", groups=" a b "))
    assert made.request.headers == [(b"x-user", b"7"), (b"x-groups", b"a b"), (b"x-both", b"7/ a b")]


def test_a_token_is_verified_once_until_it_is_over(scene):
    for _ in range(3):
        assert scene.ask(token()).identity.user == "alice"
    assert scene.counted["token_verified"] == 1
    scene.now = NOW + 89.9
    assert scene.ask(token()).identity.user == "alice"
    scene.now = NOW + 90
    assert scene.ask(token()).status == 401
    assert (scene.counted["token_verified"], scene.counted["token_refused"]) == (1, 1)


def test_nothing_is_remembered_where_that_is_asked_for():
    scene = Scene(remembered=0)
    for _ in range(3):
        scene.ask(token())
    assert scene.counted["token_verified"] == 3


def test_while_there_are_no_keys_nobody_is_let_in():
    scene = Scene(answer=lambda request: Deferred())
    abort = scene.ask(token())
    assert (abort.status, abort.who, abort.headers) == (503, "gateway", [(b"retry-after", b"1")])
    assert scene.ask().status == 401
    assert scene.counted["keys_missing"] == 1
    scene.module.stop()


def test_keys_are_asked_for_once_and_in_time_again(scene):
    assert [request.target for request in scene.issuer.requests] == [b"/jwks.json"]
    scene.ask(token())
    scene.published = public(OTHER)
    scene.reactor.advance(331)
    assert len(scene.issuer.requests) == 2
    assert scene.ask(token()).status == 401, "what was verified with the keys before is forgotten"
    assert scene.ask(token(key=OTHER)).identity.user == "alice"


def test_keys_that_cannot_be_had_stay_those_before():
    answers = [Response(200, body=Whole(public(RSA))), Response(500), Response(200, body=Whole(b"no"))]

    def answer(request):
        if answers:
            return answers.pop(0)
        raise_ = Deferred()
        raise_.errback(Abort("gone", UPSTREAM, 502))
        return raise_

    scene = Scene(answer=answer)
    scene.reactor.advance(1200)
    assert len(scene.issuer.requests) > 3
    assert scene.counted["source_failed"] >= 3
    assert scene.ask(token()).identity.user == "alice"
    scene.module.stop()


def test_a_key_that_is_not_known_has_keys_asked_for_early_but_seldom(scene):
    scene.published = public(RSA, OTHER)
    for _ in range(50):
        assert scene.ask(token(key=OTHER)).status == 401, "a request never waits for keys"
    scene.reactor.run()
    assert len(scene.issuer.requests) == 2
    assert scene.counted["keys_asked_early"] == 1
    assert scene.ask(token(key=OTHER)).identity.user == "alice"
    for number in range(50):
        scene.ask(token(header={"kid": f"made up {number}"}))
    scene.reactor.run()
    assert len(scene.issuer.requests) == 2
    scene.reactor.advance(EARLY + 1)
    scene.ask(token(header={"kid": "made up"}))
    scene.reactor.run()
    assert len(scene.issuer.requests) == 3


def test_a_wrong_signature_of_a_known_key_asks_for_nothing(scene):
    for _ in range(5):
        scene.ask(token(key=OTHER, header={"kid": "rsa"}))
    scene.reactor.run()
    assert len(scene.issuer.requests) == 1


def test_keys_of_the_same_url_outlive_a_reload():
    first = Scene()
    second = Scene(first, answer=lambda request: Deferred())
    first.module.stop()
    assert second.ask(token()).identity.user == "alice"
    third = Scene(second, keys={"url": "https://id.test/other"}, answer=lambda request: Deferred())
    second.module.stop()
    assert third.ask(token()).status == 503
    third.module.stop()


def test_what_was_verified_outlives_reloads_and_refreshes_that_change_nothing():
    first = Scene()
    first.ask(token())
    first.reactor.advance(1000)
    assert len(first.issuer.requests) > 2
    first.ask(token())
    assert first.counted["token_verified"] == 1
    again = Scene(first, realm="other")
    assert again.ask(token()).identity.user == "alice"
    assert again.counted["token_verified"] == 0
    for terms in ({"audience": "elsewhere"}, {"required": ["tenant"]}, {"algorithms": ["ES256"]}):
        assert Scene(again, **terms).ask(token()).status == 401, terms
    renamed = Scene(again, user="iss")
    assert renamed.ask(token()).identity.user == "https://id.test"
    first.module.stop()
    again.module.stop()


def test_what_was_verified_with_a_secret_outlives_a_reload_with_the_same(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    params = {"secret": {"file": str(path)}, "issuer": "https://id.test", "audience": "shop"}
    first = Scene(**params)
    text = token("HS256", OCT)
    assert first.ask(text).identity.user == "alice"
    same = Scene(first, **params)
    assert same.ask(text).identity.user == "alice"
    assert same.counted["token_verified"] == 0
    path.write_bytes(b"x" * 32)
    assert Scene(same, **params).ask(text).status == 401


def test_a_file_of_keys_is_followed(tmp_path):
    path = tmp_path / "keys.json"
    path.write_bytes(public(RSA))
    scene = Scene(keys={"file": str(path)})
    assert scene.module.asks == {}
    assert scene.ask(token()).identity.user == "alice"
    path.write_bytes(public(OTHER))
    scene.reactor.advance(3)
    assert scene.ask(token()).status == 401
    assert scene.counted["keys_asked_early"] == 0
    scene.module.stop()
    path.write_bytes(b"{}")
    with pytest.raises(ConfigError, match=r"keys\.json: it is no JSON Web Key Set"):
        Scene(keys={"file": str(path)})


def test_a_shared_secret_verifies_what_is_signed_with_it_and_nothing_else(monkeypatch):
    monkeypatch.setenv("JWT_SECRET", SECRET.decode())
    scene = Scene(secret={"env": "JWT_SECRET"}, issuer="https://id.test", audience="shop")
    assert scene.ask(token("HS256", OCT)).identity.user == "alice"
    assert scene.ask(token("HS512", OCT)).identity.user == "alice"
    assert scene.ask(token()).status == 401
    scene = Scene(secret={"env": "JWT_SECRET"}, issuer="https://id.test", audience="shop", algorithms="HS512")
    assert scene.ask(token("HS256", OCT)).status == 401


ISSUERS = [
    {"issuer": "https://id.test", "keys": {"url": URL}, "audience": "shop"},
    {"issuer": "https://two.test", "keys": {"url": "https://two.test/jwks"}, "audience": "two", "algorithms": "ES256"},
]


def test_what_one_issuer_has_signed_never_counts_as_the_others():
    published = {b"/jwks.json": public(RSA), b"/jwks": public(EC, OTHER)}
    scene = Scene(issuers=ISSUERS, answer=lambda request: Response(200, body=Whole(published[request.target])))
    assert scene.module.asks == {
        ORIGIN: ("issuers", 0, "keys", "url"),
        "https://two.test:443": ("issuers", 1, "keys", "url"),
    }
    two = {"iss": "https://two.test", "aud": "two"}
    assert scene.ask(token()).identity.user == "alice"
    assert scene.ask(token("ES256", EC, **two)).identity.user == "alice"
    for text in (
        token("ES256", EC),  # the key of two, in the name of one
        token(**two),
        token("ES256", EC, iss="https://two.test"),  # of two, for one
        token("RS256", OTHER, **two),  # an algorithm that two has not
        token(iss="https://three.test"),
        token(iss=None),
        token(iss=["https://id.test"]),
    ):
        assert scene.ask(text).status == 401
    scene.module.stop()


def test_what_is_not_checked_is_warned_of():
    def warned(**params):
        return [warning.path for warning in JwtAuthFactory().build(params).warnings]

    assert warned(keys={"url": URL}, issuer="a", audience="b") == []
    assert warned(keys={"url": URL}) == [("issuer",), ("audience",)]
    assert warned(keys={"url": "http://id.test/jwks"}, issuer="a", audience="b") == [("keys", "url")]
    assert warned(keys={"url": "http://127.0.0.1:8080/jwks"}, issuer="a", audience="b") == []
    assert warned(issuers=[{"issuer": "a", "keys": {"url": URL}}]) == [("issuers", 0, "audience")]


def test_a_place_that_is_none_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match='got an unknown place "headr"; did you mean "header"'):
        JwtAuthFactory().build({"keys": {"url": URL}, "from": {"headr": "x"}})


def test_faults_of_all_issuers_are_told_together():
    with pytest.raises(ConfigFaults) as caught:
        JwtAuthFactory().build({"issuers": [{"issuer": "a"}, {"keys": {"url": URL}, "leeway": 3}]})
    assert [fault.path for fault in caught.value.faults] == [
        ("issuers", 0, "keys"),
        ("issuers", 1, "issuer"),
        ("issuers", 1, "leeway"),
    ]


def test_a_request_that_is_none_is_left_to_who_refuses_it(scene):
    made = exchange(headers=[(b"authorization", b"Bearer x")])
    made.request.malformed = Abort("no request", "client", 400)
    assert scene.module.process(made) is None


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: issuer, endpoints: [{url: "http://192.0.2.8:80"}]}
routes:
  - value: /
    matcherType: prefix
    routes: [{condition: "'beta' in identity.lists['groups']", targets: [{upstream: shop}]}]
modules:
  - name: jwtAuth
    actionParam:
      keys: {url: {upstream: issuer, path: /jwks}, interval: 1h}
      issuer: https://id.test
      audience: shop
      forward: {x-user: "${identity.user}"}
"""


def test_in_a_gateway_keys_come_from_an_upstream_and_rules_may_ask_who_it_is():
    def published(keys):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(keys), keys)

    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        sets = [published(public(RSA)), published(public(OTHER))]
        gateway.upstream("192.0.2.8", 80, [step for keys in sets for step in (Expect(b"\r\n\r\n"), keys)])

        def ask(key=RSA, **claims):
            text = token(key=key, **{"exp": time.time() + 60, **claims})
            head = b"GET /a HTTP/1.1\r\nHost: a.test\r\nX-User: root\r\nAuthorization: Bearer " + text
            return int(gateway.ask(head + b"\r\n\r\n")[9:12])

        assert ask(groups=["beta"]) == 503, "the upstream is there since a moment"
        gateway.advance(2)
        assert (ask(groups=["beta"]), ask(groups=["alpha"]), ask(exp=1)) == (204, 404, 401)
        assert (ask(OTHER, groups=["beta"]), ask(OTHER, groups=["beta"]), ask(groups=["beta"])) == (401, 204, 401)
        told = b"".join(connection.received for connection in origin.connections)
        assert told.count(b"x-user: alice\r\n") == told.count(b"x-user: ") == 2
        assert b"ey" not in told
