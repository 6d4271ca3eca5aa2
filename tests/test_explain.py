"""What the commands tell about a configuration, without a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from authority import Authority
from protogate.build import build
from protogate.explain import Question, explain, plan, routes

CONFIG = """
gateway: {name: edge-1, zone: PRO, trustedProxies: [10.0.0.0/8]}
listeners: [{name: web, address: "127.0.0.1:0"}]
upstreams: [{name: orders, endpoints: [{url: "http://127.0.0.1:9"}]}]
routes:
  - value: /hotel/order
    matcherType: prefix
    hosts: ["*.ctrip.com", a.test]
    methods: [GET]
    priority: 2
    routes:
      - {condition: "request.headers['x-canary'] == '1'", targets: [{url: "http://127.0.0.1:9/canary"}]}
      - zone: PRO
        targets: [{upstream: orders, weight: 95}, {url: "http://127.0.0.1:9/hotel", weight: 5}]
        sticky: {key: "request.cookies['sid']"}
  - {value: /old, published: false, routes: [{targets: [{upstream: orders}]}]}
modules:
  - {name: accessList, ruleOrder: 5, condition: "source.ip == '192.0.2.1'", actionParam: {deny: [192.0.2.0/24]}}
  - {name: setRequestHeader, stage: PRE_UPSTREAM, grayRatio: 0, actionParam: {x-a: b}}
  - {name: addResponseHeader, stage: PRE_RESPONSE, condition: "response.status == 200", actionParam: {x-a: b}}
  - {name: addResponseHeader, stage: PRE_RESPONSE, condition: "response.headers['x-b'] == '1'", actionParam: {x-a: b}}
  - {name: respond, stage: ERROR, actionParam: {status: 503}}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG)
    return str(path)


def told(path: str, text: str, *headers: str, **more: object) -> list[str]:
    return explain(build(path), Question.parse(text, headers, **more)).splitlines()  # type: ignore[arg-type]


def test_everything_that_decides_is_shown(path: str) -> None:
    lines = told(path, "GET http://a.test/hotel/./order/1?x=1", "X-Canary: 0")
    assert lines[:4] == [
        "GET http://a.test/hotel/./order/1?x=1",
        "  source  127.0.0.1",
        "  host    a.test",
        "  path    /hotel/order/1   (canonical form of /hotel/./order/1)",
    ]
    text = "\n".join(lines)
    assert "order 5    accessList: does not apply (condition is false: source.ip == '192.0.2.1')" in text
    assert "yes routes[0] uri prefix /hotel/order, hosts *.ctrip.com, a.test, methods GET, priority 2" in text
    assert "route   uri /hotel/order, entry 1 (condition true, zone PRO)" in text
    assert " 95.0 % orders -> GET /hotel/order/1?x=1" in text
    assert "  5.0 % http://127.0.0.1:9 -> GET /hotel/1?x=1" in text
    assert "the same key always goes to the same one" in text
    assert "order 0    setRequestHeader: does not apply (gray: 0 %)" in text
    assert text.count("addResponseHeader: applies") == 1
    assert "ERROR" not in text


def test_headers_source_and_the_answer_can_be_given(path: str) -> None:
    text = "\n".join(
        told(
            path,
            "http://a.test/hotel/order",
            "x-canary: 1",
            source="192.0.2.1",
            status=404,
            response_headers=["X-B: 1"],
        )
    )
    assert "accessList: applies" in text
    assert "entry 0 (condition request.headers['x-canary'] == '1')" in text
    assert "http://127.0.0.1:9 -> GET /canary" in text
    assert text.count("addResponseHeader: applies") == 1


def test_forwarded_sources_are_believed_as_they_would_be(path: str) -> None:
    lines = told(path, "https://a.test/hotel/order", "X-Forwarded-For: 203.0.113.9", source="10.1.1.1", tls=True)
    assert lines[1] == "  source  203.0.113.9 over TLS"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET http://a.test/nowhere", "answer  404: no rule matches"),
        ("POST http://a.test/hotel/order", "answer  405: "),
        ("GET http://a.test/old", "answer  404: "),
        ("GET http://a.test/%zz", "  refused 400: "),
    ],
)
def test_failures_are_shown_with_their_modules(path: str, text: str, expected: str) -> None:
    lines = told(path, text)
    assert any(line.startswith(expected) for line in lines), lines
    assert "  order 0    respond: applies" in lines


def test_rules_are_listed_in_the_order_in_which_they_decide(path: str) -> None:
    assert routes(build(path)).splitlines() == [
        "routes[0] uri prefix /hotel/order, hosts *.ctrip.com, a.test, methods GET, priority 2",
        "    condition request.headers['x-canary'] == '1'",
        "        100.0 % http://127.0.0.1:9/canary",
        "    condition true, zone PRO",
        "         95.0 % orders",
        "          5.0 % http://127.0.0.1:9/hotel",
        "routes[1] uri exact /old   NOT PUBLISHED: 404",
        "    condition true",
        "        100.0 % orders",
    ]


def test_a_rule_with_a_name_is_listed_with_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        'listeners: [{name: web, address: "127.0.0.1:0"}]\n'
        'routes: [{name: shop, value: /a, published: false, routes: [{targets: [{url: "http://127.0.0.1:9"}]}]}]\n'
    )
    assert routes(build(str(path))).splitlines()[0] == "routes[0] uri exact /a   named shop   NOT PUBLISHED: 404"


def test_no_rules_are_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    built = build(str(path))
    assert routes(built) == "no rule is for this gateway: every request is answered 404"
    assert "  none: the configuration has no rule for this gateway" in explain(built, Question.parse("/x"))


@pytest.mark.parametrize(
    ("text", "headers", "method", "authority", "target"),
    [
        ("GET http://a.test/x?y=1", [], b"GET", b"a.test", b"/x?y=1"),
        ("/x", [], b"GET", b"", b"/x"),
        ("OPTIONS *", [], b"OPTIONS", b"", b"*"),
        ("PURGE http://a.test", [], b"PURGE", b"a.test", b"/"),
        ("GET http://a.test/x", ["Host: b.test:81"], b"GET", b"b.test:81", b"/x"),
        ("http://[::1]:80/ä", [], b"GET", b"[::1]:80", "/ä".encode()),
    ],
)
def test_questions(text: str, headers: list[str], method: bytes, authority: bytes, target: bytes) -> None:
    request = Question.parse(text, headers).request()
    assert (request.method, request.authority, request.target) == (method, authority, target)
    assert request.headers == []


@pytest.mark.parametrize(
    ("text", "headers", "fault"),
    [
        ("", [], "expected a method and a URL"),
        ("GET", [], "expected a method and a URL"),
        ("GET /x y", [], "expected a method and a URL"),
        ("GET http://a.test:x/", [], "host: "),
        ("GET http://ä.test/", [], "host: "),
        ("/x", ["nothing"], "expected a header"),
        ("/x", ["a b: c"], "expected a header"),
    ],
)
def test_questions_that_are_none(text: str, headers: list[str], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Question.parse(text, headers)


def test_nothing_waits_in_an_explanation(path: str) -> None:
    with pytest.raises(AssertionError):
        plan(build(path)).wheel.after(1, print)


def test_a_client_may_be_one_with_a_certificate(path: str, tmp_path: Path) -> None:
    cert = Authority(tmp_path).issue("partner", ["partner.test"]).cert
    text = CONFIG.replace("source.ip == '192.0.2.1'", "'partner.test' in source.certificate.san")
    Path(path).write_text(text)
    lines = told(path, "http://a.test/hotel/order", certificate=str(cert), source="192.0.2.1")
    assert lines[1:3] == ["  source  192.0.2.1 over TLS", "  shows   CN=partner"]
    assert any("accessList: applies" in line for line in lines)
    assert any("accessList: does not apply" in line for line in told(path, "http://a.test/hotel/order"))


def test_what_is_no_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        Question.parse("/", certificate=str(tmp_path / "nowhere.pem"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="expected one certificate in PEM form"):
        Question.parse("/", certificate=str(tmp_path / "text"))


def test_it_may_be_somebody(path: str) -> None:
    text = CONFIG.replace("source.ip == '192.0.2.1'", "identity.user == 'alice' && 'ops' in identity.lists['groups']")
    Path(path).write_text(text)
    lines = told(path, "http://a.test/hotel/order", user="alice", claims=['groups=["ops"]', "tenant=one"])
    assert "  user    alice" in lines
    assert any("accessList: applies" in line for line in lines)
    for claims in ((), ["groups=staff"]):
        lines = told(path, "http://a.test/hotel/order", user="alice", claims=claims)
        assert any("accessList: does not apply" in line for line in lines)


@pytest.mark.parametrize(("user", "claims"), [("alice", ["groups"]), ("alice", ["=x"]), ("", ["groups=x"])])
def test_claims_that_are_none_are_told(user: str, claims: list[str]) -> None:
    with pytest.raises(ValueError, match="claim"):
        Question.parse("/", user=user, claims=claims)


BUSY = """
gateway:
  overload:
    priorities:
      - {name: payments, when: "request.service == 'shop.Payments'"}
      - {name: rest}
      - {name: bots, when: "request.headers['x-bot'] == '1'"}
listeners: [{name: web, address: "127.0.0.1:0", protocols: [http2, http1]}]
upstreams:
  - {name: shop, endpoints: [{url: "http://10.0.0.1:80"}]}
  - name: payments
    balance: hash
    hash: {key: "request.headers['x-customer']"}
    endpoints: [{url: "http://10.0.0.1:80"}, {url: "http://10.0.0.2:80"}]
routes:
  - {type: service, value: shop.Payments, routes: [{targets: [{upstream: payments}]}]}
  - {type: protocol, value: SOTP, matcherType: prefix, routes: [{targets: [{upstream: payments}]}]}
  - {value: /a, routes: [{targets: [{upstream: shop}]}]}
modules: [{name: accessList, shadow: true, actionParam: {deny: [127.0.0.0/8]}}]
"""


@pytest.fixture
def busy(tmp_path: Path) -> str:
    path = tmp_path / "busy.yaml"
    path.write_text(BUSY)
    return str(path)


def test_a_call_names_its_service(busy: str) -> None:
    lines = told(busy, "POST http://a.test/shop.Payments/Pay", "content-type: application/grpc+proto", "x-customer: 7")
    assert "  service shop.Payments" in lines
    assert "  class   payments   (of 3 by importance this is number 1)" in lines
    at = lines.index("  100.0 % payments -> POST /shop.Payments/Pay")
    assert lines[at + 1].startswith("          endpoint: hash of request.headers['x-customer'], which is '7', unless ")


def test_what_is_no_call_has_none_and_the_class_is_that_of_all_others(busy: str) -> None:
    for text, header in (("GET http://a.test/shop.Payments/Pay", "content-type: application/grpc"), ("/a", "x-a: b")):
        lines = told(busy, text, header)
        assert not [line for line in lines if line.startswith("  service")]
        assert "  class   rest   (of 3 by importance this is number 2)" in lines
        assert not [line for line in lines if "endpoint:" in line], "there is only one"
    assert "  class   bots   (of 3 by importance this is number 3)" in told(busy, "/a", "x-bot: 1")


def test_service_and_protocol_can_be_given(busy: str) -> None:
    assert "  service shop.Payments" in told(busy, "/shop.Payments/Pay", service="shop.Payments")
    lines = told(busy, "/1001/2", protocol="SOTP/1")
    assert "route   protocol SOTP, entry 0 (condition true)" in lines


def test_a_module_in_the_shadow_is_said_to_do_nothing(busy: str) -> None:
    assert "  order 0    accessList: applies in the shadow: it does nothing" in told(busy, "/a")
