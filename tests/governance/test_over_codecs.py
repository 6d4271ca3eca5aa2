"""One policy, every codec: what modules decide and change is the same over each of them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from protogate.interfaces import IStreamCodec
from protogate.plugins import names
from protogate.testing.caller import Caller, Got
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CODECS = tuple(names(IStreamCodec))
TARGET = b"/1001/get"
LISTENER = '{name: %s, address: "127.0.0.1:%d", protocols: [%s]}'
HEAD = f"""
gateway: {{name: edge-1, limits: {{body: 1MiB}}}}
listeners: [{", ".join(LISTENER % (name, 8080 + at, name) for at, name in enumerate(CODECS))}]
upstreams:
  - {{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}
  - {{name: other, endpoints: [{{url: "http://192.0.2.8:80"}}]}}
routes: [{{value: /1001, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules:
"""
RULES = """- name: rbac
    actionParam: {rules: [{name: admins, when: "request.headers['x-role'] == 'admin'", then: allow}]}"""
FIELDS = """- {name: setRequestHeader, actionParam: {x-who: "${source.ip}"}}
  - {name: removeHeader, actionParam: {names: [x-drop]}}"""
USERS = "bob:$pbkdf2-sha256$i=10000$c2FsdHNhbHRzYWx0$PDdWE3MFdVeoZSQyTAFebtzLM5x8LX6QConpOsW2CHs"
KEY = "sha256:" + hashlib.sha256(b"open sesame").hexdigest() + " bob"
BOB = "Basic " + base64.b64encode(b"bob:secret").decode()
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Case:
    """
    What is asked under a policy, and what becomes of it.

    @ivar modules: in the file.
    @ivar requests: fields and content of one after the other.
    @ivar statuses: of the answers.
    @ivar told: fields of the last answer.
    @ivar sent: lines of the head of the last request that the upstream gets.
    """

    modules: str
    requests: list[tuple[dict[str, str], bytes]]
    statuses: list[int]
    told: dict[str, str] = field(default_factory=dict)
    sent: tuple[bytes, ...] = ()


NOTHING: tuple[dict[str, str], bytes] = ({}, b"")
CASES = {
    "an address that is denied": Case('- {name: accessList, actionParam: {deny: ["127.0.0.0/8"]}}', [NOTHING], [403]),
    "an app that is denied": Case(
        "- {name: accessList, actionParam: {by: \"${request.headers['x-app']}\", deny: [bad]}}",
        [({"x-app": "good"}, b""), ({"x-app": "bad"}, b"")],
        [200, 403],
    ),
    "a rate": Case(
        "- {name: rateLimit, actionParam: {limit: 2/m}}", [NOTHING] * 3, [200, 200, 429], {"retry-after": "30"}
    ),
    "no credential": Case(
        "- {name: basicAuth, actionParam: {users: {file: users}, realm: back}}",
        [NOTHING],
        [401],
        {"www-authenticate": 'Basic realm="back", charset="UTF-8"'},
    ),
    "a credential": Case(
        '- {name: basicAuth, actionParam: {users: {file: users}, forward: {x-user: "${identity.user}"}}}',
        [({"authorization": BOB, "x-user": "alice"}, b"")],
        [200],
        {},
        (b"x-user: bob",),
    ),
    "rules": Case(
        RULES,
        [({"x-role": "admin"}, b""), ({"x-role": "guest"}, b"")],
        [200, 403],
    ),
    "too much content": Case(
        "- {name: bodyLimit, actionParam: {request: 10B}}", [({}, b"x" * 10), ({}, b"x" * 11)], [200, 413]
    ),
    "an answer": Case(
        '- {name: respond, actionParam: {status: 418, body: tea, headers: {x-pot: "1"}}}',
        [NOTHING],
        [418],
        {"x-pot": "1"},
    ),
    "a redirect": Case(
        '- {name: redirect, actionParam: {location: "https://a.example/"}}',
        [NOTHING],
        [302],
        {"location": "https://a.example/"},
    ),
    "fields of the request": Case(
        FIELDS,
        [({"x-drop": "1", "x-keep": "2"}, b"")],
        [200],
        {},
        (b"x-who: 127.0.0.1", b"x-keep: 2"),
    ),
    "fields of the answer": Case(
        '- {name: addResponseHeader, actionParam: {x-gate: "${gateway.name}"}}', [NOTHING], [200], {"x-gate": "edge-1"}
    ),
    "another path": Case(
        "- {name: rewritePath, stage: PRE_UPSTREAM, actionParam: {prefix: /1001, replacement: /shop}}",
        [NOTHING],
        [200],
        {},
        (b"POST /shop/get HTTP/1.1",),
    ),
    "pages of other origins": Case(
        '- {name: cors, actionParam: {origins: ["https://shop.example"]}}',
        [({"origin": "https://shop.example"}, b"")],
        [200],
        {"access-control-allow-origin": "https://shop.example"},
    ),
    "a key": Case(
        '- {name: keyAuth, actionParam: {keys: {file: users}, forward: {x-user: "${identity.user}"}}}',
        [({"x-api-key": "open sesame"}, b""), ({}, b""), ({"x-api-key": "open, sesame"}, b"")],
        [200, 401, 401],
    ),
    "a quota": Case(
        "- {name: quota, actionParam: {limit: 1, per: day}}",
        [NOTHING] * 2,
        [200, 429],
    ),
    "so many at once": Case("- {name: concurrencyLimit, actionParam: {limit: 1}}", [NOTHING] * 2, [200, 200]),
    "a fault on purpose": Case("- {name: faultInject, actionParam: {abort: 503}}", [NOTHING], [503]),
    "a page for an error": Case(
        "- {name: accessList, actionParam: {deny: [127.0.0.0/8]}}\n"
        "  - {name: errorPage, actionParam: {pages: [{statuses: [403], text: no}]}}",
        [NOTHING],
        [403],
        {"content-type": "text/plain; charset=utf-8"},
    ),
    "another query": Case(
        "- {name: rewriteQuery, actionParam: {set: {a: '1'}}}", [NOTHING], [200], {}, (b"POST /1001/get?a=1 HTTP/1.1",)
    ),
    "a field of the answer set": Case(
        "- {name: setResponseHeader, actionParam: {x-gate: edge}}", [NOTHING], [200], {"x-gate": "edge"}
    ),
    "a copy that nobody takes": Case("- {name: trafficCopy, actionParam: {upstream: other}}", [({}, b"hello")], [200]),
    "an answer in place of another": Case(
        "- {name: degrade, actionParam: {when: {statuses: [200]}, give: [{upstream: other}, {answer: {text: later}}]}}",
        [NOTHING],
        [200],
        {"x-protogate-degraded": "default", "content-type": "text/plain; charset=utf-8"},
    ),
    "an upstream that is not to be asked": Case(
        "- {name: degrade, actionParam: {when: {always: true}, give: [{answer: {status: 203}}]}}",
        [({}, b"hello")],
        [203],
        {"x-protogate-degraded": "default", "cache-control": "no-store"},
    ),
    "a module in the shadow": Case(
        '- {name: accessList, shadow: true, actionParam: {deny: ["127.0.0.0/8"]}}', [NOTHING], [200]
    ),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_policy_has_the_same_outcome(case: Case, codec: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"{KEY if 'keyAuth' in case.modules else USERS}\n")
    policy = case.modules.replace("file: users", f"file: {tmp_path / 'users'}")
    with MemoryGateway(f"{HEAD}  {policy}\n") as gateway:
        origin = gateway.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), OK]] * len(case.requests))
        got: list[Got] = []
        for fields, content in case.requests:
            caller = Caller(gateway, codec, codec)
            headers = [(name.encode(), value.encode()) for name, value in fields.items()]
            got.append(caller.ask(b"POST", TARGET, headers, content))
            caller.close()
        assert [one.error for one in got] == [None] * len(got)
        assert [one.status for one in got] == case.statuses
        assert all(one.whole for one in got)
        for name, value in case.told.items():
            assert got[-1].headers.all(name.encode()) == [value.encode()]
        head = origin.received[-1].split(b"\r\n") if case.sent else []
        assert set(case.sent) <= set(head)
        assert not any(line.startswith(b"x-drop") for line in head)
        assert [record.status for record in gateway.records] == case.statuses
