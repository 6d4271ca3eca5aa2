"""forwardAuth: a service says whether a request may go on."""

from __future__ import annotations

from collections import Counter

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.config.load import loads
from protogate.errors import UPSTREAM, Abort
from protogate.expression.template import compile as template
from protogate.governance.binding import bind
from protogate.governance.forwardauth import ForwardAuthFactory
from protogate.message import Response
from protogate.testing.bodies import Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans, Service
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Expect

URL = "https://auth.test/check?app=shop"
ORIGIN = "https://auth.test:443"


class Scene:
    """The module in force, and the service it asks."""

    def __init__(self, answer, **params):
        self.reactor, self.counted = MemoryReactor(), Counter()
        self.service = Service(answer if callable(answer) else lambda request: answer)
        self.module = ForwardAuthFactory().build({"ask": URL, **params})
        self.module.start(FakeMeans({ORIGIN: self.service}, reactor=self.reactor, counted=self.counted), None)

    def begin(self, made):
        told = []
        try:
            result = self.module.process(made)
        except Abort as abort:
            result = abort
        if isinstance(result, Deferred):
            result.addErrback(lambda failure: failure.value).addCallback(told.append)
        else:
            told.append(result)
        return told

    def ask(self, made=None, seconds=0.0):
        """The exchange, when it goes on; else the Response or the Abort."""
        made = exchange() if made is None else made
        told = self.begin(made)
        self.reactor.advance(seconds)
        (result,) = told
        return made if result is None else result


def ok(*headers):
    return Response(200, headers)


class Contract(ModuleContract, SynchronousTestCase):
    factory = ForwardAuthFactory
    waits = True
    upstreams = ("auth",)
    good = (
        {"ask": URL},
        {"ask": {"upstream": "auth", "path": "/check"}, "take": "x-user", "user": "x-user", "method": "HEAD"},
        {"ask": URL, "remember": {"key": "${request.headers['authorization']}"}, "send": "*", "give": ["set-cookie"]},
    )
    bad = (
        ({}, "ask"),
        ({"ask": "auth"}, "ask"),
        ({"ask": {"upstream": "none"}}, "ask"),
        ({"ask": URL, "method": "DELETE"}, "method"),
        ({"ask": URL, "timeout": 1}, "timeout"),
        ({"ask": URL, "send": ["a b"]}, "send"),
        ({"ask": URL, "take": ["content-length"]}, "take"),
        ({"ask": URL, "take": ["host"]}, "take"),
        ({"ask": URL, "give": [7]}, "give"),
        ({"ask": URL, "user": "a b"}, "user"),
        ({"ask": URL, "remember": "10s"}, "remember"),
        ({"ask": URL, "remember": {}}, "key"),
        ({"ask": URL, "remember": {"key": "all"}}, "key"),
        ({"ask": URL, "remember": {"key": "${source.ip}", "good": "2h"}}, "good"),
        ({"ask": URL, "headers": {"transfer-encoding": "x"}}, "headers"),
    )

    def means(self):
        service = Service(lambda request: ok((b"x-user", b"alice")))
        return FakeMeans({ORIGIN: service, "auth": service})


@pytest.mark.parametrize(("send", "field"), [("x-token", b"x-token"), ("*", b"authorization")])
def test_a_field_that_says_who_it_is_stands_there_once(send, field):
    scene = Scene(ok(), send=send, remember={"key": template("${request.cookies['sid']}")})
    known = (b"cookie", b"sid=7")
    assert scene.ask(exchange(headers=[known, (field, b"good")])) is not None
    abort = scene.ask(exchange(headers=[known, (field, b"good"), (field, b"bad")]))
    assert (abort.status, abort.reason) == (400, f"more than one credential: the field {field.decode()}")
    assert len(scene.service.requests) == 1


def test_what_the_gateway_says_no_client_says():
    scene = Scene(ok(), send="*", headers={"x-gateway": "edge", "x_app": "shop"})
    mine = [(b"x-gateway", b"evil"), (b"x_gateway", b"evil"), (b"x-app", b"evil"), (b"x_app", b"evil")]
    spelled = [(b"x_forwarded_uri", b"/evil"), (b"x-forwarded_method", b"EVIL"), (b"x-forwarded-port", b"evil")]
    scene.ask(exchange(headers=[*mine, *spelled, (b"x-other", b"1")], target=b"/a"))
    (request,) = scene.service.requests
    assert not [field for field in request.headers if b"evil" in field[1].lower()]
    assert {(b"x-gateway", b"edge"), (b"x_app", b"shop"), (b"x-forwarded-uri", b"/a"), (b"x-other", b"1")} <= set(
        request.headers
    )


def test_what_is_a_list_may_have_several_lines():
    scene = Scene(ok(), send=["accept", "via"])
    made = exchange(headers=[(b"accept", b"a/b"), (b"accept", b"c/d"), (b"x-other", b"1"), (b"x-other", b"2")])
    assert scene.ask(made) is made


def test_the_service_is_told_what_is_asked_and_never_the_content():
    scene = Scene(ok(), headers={"x-gateway": "edge", "x-tenant": template("${request.headers['x-t']}")})
    made = exchange(
        method=b"POST",
        target=b"/a%20b?c=d",
        authority=b"Shop.test:8080",
        ip="192.0.2.7",
        tls=True,
        body=b"content",
        headers=[
            (b"authorization", b"Bearer x"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
            (b"x-t", b"t1"),
            (b"accept", b"*/*"),
            (b"x-forwarded-for", b"10.0.0.1"),
            (b"x-forwarded-method", b"GET"),
        ],
    )
    assert scene.ask(made) is made
    (request,) = scene.service.requests
    assert (request.method, request.authority, request.target, request.body) == (
        b"GET",
        b"auth.test",
        b"/check?app=shop",
        None,
    )
    assert sorted(request.headers) == [
        (b"authorization", b"Bearer x"),
        (b"cookie", b"a=1; b=2"),
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"x-forwarded-host", b"Shop.test:8080"),
        (b"x-forwarded-method", b"POST"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-uri", b"/a%20b?c=d"),
        (b"x-gateway", b"edge"),
        (b"x-tenant", b"t1"),
    ]
    assert not made.request.body.attached


@pytest.mark.parametrize(("send", "sent"), [("*", {b"a", b"b"}), (["A"], {b"a"}), (["none"], set())])
def test_which_fields_it_gets_the_file_says(send, sent):
    scene = Scene(ok(), send=send, method="POST")
    scene.ask(exchange(headers=[(b"a", b"1"), (b"b", b"2"), (b"x-forwarded-host", b"evil.test")]))
    (request,) = scene.service.requests
    names = {name for name, _ in request.headers}
    assert {name for name in names if not name.startswith(b"x-forwarded-")} == sent
    assert request.headers.all(b"x-forwarded-host") == [b"a.test"]


@pytest.mark.parametrize("status", [200, 204, 299])
def test_yes_is_yes(status):
    scene = Scene(Response(status))
    assert scene.ask().request.headers == []
    assert scene.counted == {"service_asked": 1}


def test_what_it_says_about_who_asks_goes_on_and_nothing_of_the_client():
    answer = ok(
        (b"x-user", b"alice"), (b"x-role", b"a"), (b"x-role", b"b"), (b"x-other", b"1"), (b"set-cookie", b"s=1")
    )
    scene = Scene(answer, take=["X-User", "x-role", "x-plan"], give=["set-cookie"], user="x-user")
    made = scene.ask(exchange(headers=[(b"x-plan", b"gold"), (b"x-role", b"root"), (b"y", b"1")]))
    assert made.request.headers == [(b"y", b"1"), (b"x-user", b"alice"), (b"x-role", b"a"), (b"x-role", b"b")]
    assert made.fields == [(b"set-cookie", b"s=1")]
    assert (made.identity.user, made.identity.scheme) == ("alice", "forward")
    assert made.identity.claims == {"x-user": "alice", "x-role": "a, b"}
    assert scene.module.reserves == {b"x-user", b"x-role", b"x-plan"}


def test_a_credential_is_replaced_and_may_still_be_sent():
    scene = Scene(ok((b"authorization", b"Bearer inner")), take=["authorization"])
    assert scene.module.reserves == set()
    made = scene.ask(exchange(headers=[(b"authorization", b"Bearer outer")]))
    assert made.request.headers == [(b"authorization", b"Bearer inner")]


def test_who_is_let_in_without_a_name_is_somebody_all_the_same():
    for scene in (Scene(ok(), user="x-user"), Scene(ok((b"x-user", b"")), user="x-user"), Scene(ok((b"x-user", b"a")))):
        identity = scene.ask().identity
        assert (identity.user, identity.scheme) == ("", "forward")
    abort = Scene(ok((b"x-user", b"a"), (b"x-user", b"b")), user="x-user").ask()
    assert (abort.status, abort.who) == (503, "gateway")


@pytest.mark.parametrize("status", [401, 403, 302, 307])
def test_no_is_its_own_answer(status):
    headers = [(b"www-authenticate", b"Bearer"), (b"location", b"/login"), (b"date", b"x"), (b"server", b"y")]
    scene = Scene(Response(status, headers, Whole(b"no")), take=["x-user"])
    made = exchange()
    answer = scene.ask(made)
    assert (answer.status, answer.headers) == (status, headers[:2])
    assert Taker(answer.body).data == b"no"
    assert made.notes == {"forwardAuth": f"the service answered {status}"}
    assert made.identity is None
    assert scene.counted["service_refused"] == 1


@pytest.mark.parametrize("status", [304, 400, 404, 407, 429, 500, 503])
def test_anything_else_is_no_answer_to_the_question(status):
    scene = Scene(Response(status))
    abort = scene.ask()
    assert (abort.status, abort.who, abort.reason) == (503, "gateway", f"forwardAuth: the service answered {status}")
    assert scene.counted["service_failed"] == 1


def test_no_answer_in_time_lets_nobody_in():
    scene = Scene(Deferred(), timeout="500ms")
    abort = scene.ask(seconds=0.6)
    assert (abort.status, abort.who) == (503, "gateway")
    assert "no whole answer after 0.5 s" in abort.reason
    gone = Scene(lambda request: fail(Abort("refused", UPSTREAM, 502))).ask()
    assert (gone.status, gone.reason) == (503, "forwardAuth: no answer: refused")


def test_an_answer_that_is_too_long_is_none():
    scene = Scene(Response(403, [], Whole(b"x" * (64 * 1024 + 1))))
    assert scene.ask().status == 503


def test_who_leaves_is_asked_about_no_longer():
    cancelled = []
    scene = Scene(lambda request: Deferred(cancelled.append))
    failed = []
    wait = scene.module.process(exchange()).addErrback(lambda failure: failed.append(failure.type.__name__))
    wait.cancel()
    assert (len(cancelled), failed) == (1, ["CancelledError"])


KEY = {"remember": {"key": template("${request.headers['authorization']} ${request.path}"), "bad": "2s"}}


def token(value, target=b"/a"):
    return exchange(headers=[(b"authorization", value)], target=target)


def test_a_verdict_is_remembered_under_its_key():
    scene = Scene(lambda request: ok((b"x-user", request.headers.get(b"authorization"))), take=["x-user"], **KEY)
    for _ in range(3):
        assert scene.ask(token(b"one")).request.headers.get(b"x-user") == b"one"
    assert scene.ask(token(b"two")).request.headers.get(b"x-user") == b"two"
    assert scene.ask(token(b"one", b"/b")).request.headers.get(b"x-user") == b"one"
    assert scene.counted["service_asked"] == 3
    assert scene.module.process(token(b"one")) is None
    scene.reactor.advance(10.1)
    scene.ask(token(b"one"))
    assert scene.counted["service_asked"] == 4


def test_verdicts_outlive_a_reload_that_leaves_the_terms_as_they_are():
    params = {"take": "x-user", "remember": {"key": template("${request.headers['authorization']}")}}
    made = exchange(headers=[(b"authorization", b"a")])
    first = Scene(ok((b"x-user", b"alice")), **params)
    first.ask(made)
    for changed, asked in (({}, 0), ({"send": "x-a"}, 1)):
        second = Scene(ok(), **params, **changed)
        second.module.start(FakeMeans({ORIGIN: second.service}, reactor=second.reactor), first.module)
        second.reactor.clock.advance(first.reactor.clock.seconds() - second.reactor.clock.seconds())
        assert second.ask(exchange(headers=[(b"authorization", b"a")])).identity is not None
        assert len(second.service.requests) == asked, changed


def test_a_refusal_is_remembered_for_its_own_time_and_each_gets_a_body():
    scene = Scene(lambda request: Response(403, [], Whole(b"no")), **KEY)
    for _ in range(3):
        assert Taker(scene.ask(token(b"one")).body).data == b"no"
    assert scene.counted["service_asked"] == 1
    scene.reactor.advance(2.1)
    scene.ask(token(b"one"))
    assert scene.counted["service_asked"] == 2


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: Response(500),
        lambda request: ok((b"cache-control", b"private, No-Store")),
        lambda request: Response(403, [], Whole(b"x" * 5000)),
    ],
)
def test_what_is_no_verdict_or_must_not_be_kept_is_not_remembered(answer):
    scene = Scene(answer, **KEY)
    for _ in range(2):
        scene.ask(token(b"one"))
    assert scene.counted["service_asked"] == 2


def test_many_with_the_same_key_ask_once():
    asked = Deferred()
    scene = Scene(lambda request: asked, take=["x-user"], **KEY)
    made = [token(b"one") for _ in range(5)]
    told = [scene.begin(each) for each in made]
    assert scene.counted["service_asked"] == 1
    asked.callback(ok((b"x-user", b"alice")))
    assert told == [[None]] * 5
    assert [each.request.headers.get(b"x-user") for each in made] == [b"alice"] * 5


def test_an_empty_key_is_remembered_under_nothing():
    scene = Scene(lambda request: ok(), remember={"key": template("${request.headers['authorization']}")})
    for _ in range(2):
        scene.ask()
    assert scene.counted["service_asked"] == 2


def test_a_service_without_tls_is_warned_of():
    assert [w.path for w in ForwardAuthFactory().build({"ask": "http://auth.test/"}).warnings] == [("ask",)]
    assert ForwardAuthFactory().build({"ask": "http://127.0.0.1:9000/"}).warnings == []
    assert ForwardAuthFactory().build({"ask": {"upstream": "auth", "path": "/"}}).warnings == []


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: auth, endpoints: [{url: "http://192.0.2.8:80"}]}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - name: forwardAuth
    actionParam: {ask: {upstream: auth, path: /check}, take: [x-user], user: x-user, give: [set-cookie]}
"""


def test_in_a_gateway():
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        said = [
            b"HTTP/1.1 200 OK\r\nX-User: alice\r\nSet-Cookie: s=1\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\nno",
            b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        ]
        auth = gateway.upstream("192.0.2.8", 80, [step for answer in said for step in (Expect(b"\r\n\r\n"), answer)])
        head = b"GET /a HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer x\r\nX-User: root\r\n\r\n"
        answers = [gateway.ask(head) for _ in said]
        assert [answer[9:12] for answer in answers] == [b"204", b"401", b"503"]
        assert b"set-cookie: s=1\r\n" in answers[0]
        assert b"www-authenticate: Bearer\r\n" in answers[1]
        assert answers[1].endswith(b"\r\n\r\nno")
        told = b"".join(connection.received for connection in origin.connections)
        assert told.count(b"x-user: alice\r\n") == told.count(b"x-user: ") == 1
        assert b"root" not in b"".join(connection.received for connection in auth.connections)
        assert [(record.status, record.user) for record in gateway.records] == [(204, "alice"), (401, ""), (503, "")]


def test_an_upstream_that_there_is_not_is_a_fault():
    from protogate.config.faults import ConfigFaults

    config = loads(CONFIG.replace("upstream: auth", "upstream: outh").encode(), "x.yaml").config
    with pytest.raises(ConfigFaults, match="no upstream is called"):
        bind(config.modules, lambda interface, name: ForwardAuthFactory(), ["shop", "auth"])
