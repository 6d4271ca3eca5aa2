"""cache: what tells answers apart."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from caches import Scene, say

from protogate.cohort import position
from protogate.config.load import loads
from protogate.routing.table import Router

# -- what tells answers apart


@pytest.mark.parametrize(
    "other",
    [
        {"target": b"/b"},
        {"target": b"/a?"},
        {"target": b"/a?x"},
        {"target": b"/A"},
        {"target": b"//a"},
        {"authority": b"b.test"},
        {"authority": b"a.test:8080"},
        {"scheme": b"https"},
    ],
)
def test_another_question(other):
    scene = Scene()
    scene.keep(say(), say(content=b"other"))
    assert scene.ask(**other).data == b"other"
    assert scene.get().data == b"hello"


def test_the_same_question_in_another_spelling():
    scene = Scene()
    scene.keep(say())
    assert scene.get(authority=b"A.Test:80").data == b"hello"
    assert scene.asked == 1


def test_by():
    scene = Scene(by="${request.headers['x-tenant']}|${request.host}")
    scene.keep(say(), say(content=b"two"), headers=["x-tenant: 1"])
    assert scene.get("x-tenant: 2").data == b"two"
    assert scene.get("x-tenant: 1").data == b"hello"


def test_what_a_proxy_in_front_says_counts_where_it_is_believed():
    scene = Scene()
    scene.keep(say())
    assert scene.get("x-forwarded-host: evil.test").data == b"hello"
    trusting = SimpleNamespace(pseudonym="x", trusts=lambda ip: True)
    for name in ("source", "write", "via"):
        setattr(trusting, name, getattr(scene.plan.forwarding, name))
    object.__setattr__(scene.plan, "forwarding", trusting)
    scene.answers = [say(content=b"poisoned")]
    assert scene.get("x-forwarded-host: evil.test").data == b"poisoned"
    assert scene.get().data == b"hello"


ROUTES = """
listeners: [{name: testing, address: "127.0.0.1:80"}]
upstreams:
  - {name: origin, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: other, endpoints: [{url: "http://192.0.2.8:80"}]}
routes:
  - value: /split
    matcherType: prefix
    routes:
      - {condition: "request.headers['x-beta'] == '1'", targets: [{upstream: other}]}
      - {targets: [{upstream: origin}]}
  - value: /sticky
    matcherType: prefix
    routes:
      - sticky: {key: "request.headers['x-user']"}
        targets: [{upstream: origin, weight: 50}, {upstream: other, weight: 50}]
  - value: /gray
    matcherType: prefix
    routes:
      - cohort: "request.headers['x-user']"
        targets:
          - {upstream: origin}
          - {upstream: other, gray: 50, when: "request.headers['x-beta'] == '1'"}
  - value: /tenant
    matcherType: prefix
    routes: [{targets: [{upstream: origin, rewrite: {path: "/t/${request.headers['x-tenant']}"}}]}]
  - value: /both
    matcherType: prefix
    routes:
      - targets:
        - {upstream: origin, weight: 50, rewrite: {path: "/t/${request.headers['x-tenant']}"}}
        - {upstream: other, weight: 50}
  - value: /post
    matcherType: prefix
    routes: [{targets: [{upstream: origin, rewrite: {method: POST}}]}]
"""


def routed():
    config = loads(ROUTES.encode(), "gateway.yaml").config
    return Scene(routes=Router(config.routes, config.gateway))


def test_requests_of_different_routes_share_nothing():
    scene = routed()
    scene.keep(say(content=b"old"), target=b"/split")
    scene.answers = [say(content=b"beta")]
    assert scene.get("x-beta: 1", target=b"/split").data == b"beta"
    assert scene.get(target=b"/split").data == b"old"


def test_requests_that_stick_to_different_targets_share_nothing():
    scene = routed()
    users = [f"x-user: {number}" for number in range(20)]
    scene.answers = [say(content=b"a"), say(content=b"b")]
    assert {scene.get(user, target=b"/sticky").data for user in users} == {b"a", b"b"}
    assert scene.asked == 2


def test_who_is_gray_and_who_is_not_share_nothing():
    scene = routed()
    users = [f"x-user: {number}" for number in range(20)]
    scene.answers = [say(content=b"a"), say(content=b"b")]
    assert {scene.get(user, target=b"/gray").data for user in users} == {b"a", b"b"}
    stable = next(user for user in users if position(user[8:]) >= 50)
    gray = next(user for user in users if position(user[8:]) < 50)
    assert scene.get(stable, "x-beta: 1", target=b"/gray").data == scene.get(gray, target=b"/gray").data
    assert scene.asked == 2


def test_requests_that_are_rewritten_by_what_they_hold_share_nothing():
    scene = routed()
    scene.answers = [say(content=b"1"), say(content=b"2")]
    for tenant in (b"1", b"2", b"1"):
        assert scene.get(f"x-tenant: {tenant.decode()}", target=b"/tenant").data == tenant
    assert [request.target for request in scene.origin.requests] == [b"/t/1", b"/t/2"]


@pytest.mark.parametrize("target", [b"/both", b"/post"])
def test_where_nobody_knows_what_will_be_asked_nothing_is_kept(target):
    scene = routed()
    scene.answers = [say(), say()]
    for _ in range(2):
        assert scene.get("x-tenant: 1", target=target).told == "fwd=bypass; fwd-status=200"
