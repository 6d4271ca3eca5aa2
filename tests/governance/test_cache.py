"""cache: parameters, what tells answers apart, memory, reloads, whole gateways."""

from __future__ import annotations

import gc
import re
from types import SimpleNamespace

import pytest
from caches import Scene, say
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.load import loads
from protogate.governance.binding import bind
from protogate.governance.cache import CacheFactory
from protogate.plugins import find
from protogate.routing.table import Router
from protogate.testing.bodies import Giver
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect


class Contract(ModuleContract, SynchronousTestCase):
    factory = CacheFactory
    good = (
        {},
        {"memory": "8MiB", "objectSize": "2MiB", "by": "${request.headers['x-a']}", "wait": "0s", "targeted": []},
        {"credentials": "x-key", "stripCookies": True, "heuristic": 10, "heuristicMax": "1h", "staleIfError": "1m"},
        {"requestDirectives": False, "cacheStatus": False},
    )
    bad = (
        ({"memory": "1B"}, "memory"),
        ({"memory": 7.5}, "memory"),
        ({"memory": "1MiB", "objectSize": "512KiB"}, "objectSize"),
        ({"objectSize": "0B"}, "objectSize"),
        ({"by": "constant"}, "by"),
        ({"wait": "2m"}, "wait"),
        ({"targeted": "content-length"}, "targeted"),
        ({"targeted": [7]}, "targeted"),
        ({"credentials": ["a b"]}, "credentials"),
        ({"stripCookies": "yes"}, "stripCookies"),
        ({"heuristic": 101}, "heuristic"),
        ({"heuristicMax": "1h"}, "heuristicMax"),
        ({"staleIfError": -1}, "staleIfError"),
        ({"requestDirectives": 1}, "requestDirectives"),
        ({"cacheStatus": 1}, "cacheStatus"),
        ({"ttl": "1m"}, "ttl"),
    )


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


# -- memory


def test_what_nobody_has_asked_for_longest_goes_first():
    scene = Scene(memory="64KiB", objectSize="16KiB")
    content = b"x" * 16_000
    for target in (b"/1", b"/2", b"/3"):
        scene.keep(say(content=content), target=target)
    scene.get(target=b"/1")
    scene.keep(say(content=content), target=b"/4")
    assert scene.cache.store.used <= 65536
    assert scene.get(target=b"/1").told.startswith("hit")
    assert scene.counted["evicted"] == 1
    scene.answers = [say(content=b"again")]
    assert scene.get(target=b"/2").data == b"again"


def test_an_answer_that_is_known_to_be_too_large_flows_by():
    scene = Scene(objectSize="10B")
    scene.answers = [say(content=b"x" * 11)]
    assert scene.get().told == "fwd=uri-miss; fwd-status=200; detail=too-large"
    assert scene.asked == 1


def test_an_answer_that_turns_out_to_be_too_large_flows_on_at_its_readers_pace():
    scene = Scene(objectSize="10B")
    giver = Giver([b"12345", b"67890", b"abcde", b"fghij"])
    scene.answers = [say(body=giver.body), say(content=b"again")]
    first = scene.get(limit=1)
    assert (first.data, giver.gave) == (b"12345", 15)
    for taken in (2, 3, 4):
        first.taker.resume()
        assert len(first.taker.got) == taken
    first.taker.resume()
    first.end()
    assert first.data == b"1234567890abcdefghij"
    assert first.taker.finished
    assert scene.counted["too_large"] == 1
    assert (scene.cache.store.coming, len(scene.cache.store)) == (0, 0)
    assert scene.get().data == b"again"


def test_what_is_on_its_way_has_half_of_the_memory():
    scene = Scene(memory="64KiB", objectSize="16KiB")
    givers = [Giver([], 16_000, close=False) for _ in range(3)]
    scene.answers = [say(body=giver.body) for giver in givers]
    told = [scene.get(target=b"/%d" % number).told for number in range(3)]
    assert told[1:] == ["fwd=uri-miss; fwd-status=200; stored", "fwd=uri-miss; fwd-status=200; detail=no-room"]
    for giver in givers:
        giver.write(b"x" * 16_000)
        giver.finish()
    assert scene.cache.store.coming == 0
    assert len(scene.cache.store) == 2


def test_what_comes_in_crumbs_is_put_together():
    scene = Scene()
    scene.answers = [say(body=Giver([b"x"] * 100).body)]
    assert scene.get().data == b"x" * 100
    assert scene.get().taker.got == [b"x" * 100]
    assert scene.cache.store.used < 4096


def test_what_varies_without_end_is_bounded():
    scene = Scene(answer=lambda request: say(vary="x-a"))
    for number in range(100):
        scene.get("x-a: 0")
        scene.get(f"x-a: {number}")
    assert len(scene.cache.store) == 32
    assert scene.get("x-a: 0").told.startswith("hit")


def test_a_client_that_leaves_stops_what_nobody_else_reads():
    scene = Scene()
    giver = Giver([b"hel"], 5, close=False)
    scene.answers = [say(body=giver.body), say(content=b"again")]
    scene.get().leave()
    assert giver.stopped
    assert scene.get().data == b"again"
    assert scene.cache.store.coming == 0


# -- a life of its own


def test_a_reload_keeps_what_is_kept():
    scene = Scene(memory="8MiB", objectSize="1MiB")
    scene.keep(say())
    after = Scene(before=scene, memory="4MiB", objectSize="512KiB", wait="0s")
    scene.cache.stop()
    assert after.get().told.startswith("hit")
    assert after.cache.store.limit == 4 << 20


def test_a_smaller_memory_keeps_less():
    scene = Scene(memory="8MiB", objectSize="1MiB")
    for number in range(8):
        scene.keep(say(content=b"x" * 30_000), target=b"/%d" % number)
    after = Scene(before=scene, memory="64KiB", objectSize="16KiB")
    assert len(after.cache.store) == 2


@pytest.mark.parametrize(
    "params", [{"by": "${request.host}"}, {"credentials": []}, {"heuristic": 5}, {"stripCookies": True}]
)
def test_what_was_kept_under_other_terms_is_not(params):
    scene = Scene()
    scene.keep(say())
    after = Scene(before=scene, **params)
    after.answers = [say(content=b"new")]
    assert after.get().data == b"new"


def test_what_is_on_its_way_over_a_reload_is_kept():
    scene, late = Scene(), Deferred()
    scene.answers = [late]
    first = scene.get()
    after = Scene(before=scene)
    second = after.get()
    assert second.response is None
    late.callback(say())
    assert (first.data, second.data, after.asked) == (b"hello", b"hello", 0)


# -- what it tells


def test_cache_status_can_be_left_out():
    scene = Scene(cacheStatus=False)
    scene.answers = [say()]
    assert (scene.get().told, scene.get().told) == (None, None)
    assert scene.asked == 1


def test_cache_status_stands_behind_that_of_others():
    scene = Scene()
    scene.answers = [say(cache_status="far; hit")]
    scene.get()
    assert scene.get().response.headers.all(b"cache-status") == [b"far; hit", b"testing; hit; ttl=60"]


def test_the_record_tells_what_was_done():
    scene = Scene()
    scene.answers = [say(), say("no-store")]
    notes = [client.exchange.notes["cache"] for client in (scene.get(), scene.get(), scene.get(target=b"/b"))]
    assert notes == ["fwd=uri-miss; fwd-status=200; stored", "hit", "fwd=uri-miss; fwd-status=200; detail=no-store"]


# -- whole gateways

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: cache, MORE}
  - {name: setRequestHeader, stage: PRE_UPSTREAM, ruleOrder: 1, actionParam: {x-inside: "1"}}
  - {name: addResponseHeader, actionParam: {x-id: "${func.requestId}"}}
"""


def gateway(more="actionParam: {}"):
    return MemoryGateway(CONFIG.replace("MORE", more))


def said(data):
    """Status and fields of an answer, and its content."""
    head, _, content = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), content


def test_in_a_gateway():
    with gateway() as made:
        answer = b'HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\netag: "a"\r\ntransfer-encoding: chunked\r\n\r\n'
        answer += b"5\r\nhello\r\n0\r\n\r\n"
        changed = b"HTTP/1.1 204 No Content\r\n\r\n"
        end = Expect(b"\r\n\r\n")
        origin = made.upstream("192.0.2.7", 80, [end, answer], [end, changed, end, answer])
        ask = b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n"
        first, second = said(made.ask(ask)), said(made.ask(ask))
        assert (first[0], second[0]) == (200, 200)
        assert second[1]["content-length"] == "5"
        assert second[1]["age"] == "0"
        assert second[1]["via"] == first[1]["via"]
        assert second[2] == b"hello"
        assert first[1]["x-id"] != second[1]["x-id"], "modules behind it see each answer"
        made.advance(30.5)
        third = said(made.ask(ask.replace(b"\r\n\r\n", b'\r\nIf-None-Match: "a"\r\n\r\n')))
        assert (third[0], third[1]["age"], third[2]) == (304, "30", b"")
        head = said(made.ask(ask.replace(b"GET", b"HEAD")))
        assert (head[0], head[1]["content-length"], head[2]) == (200, "5", b"")
        part = said(made.ask(ask.replace(b"\r\n\r\n", b"\r\nRange: bytes=1-2\r\n\r\n")))
        assert (part[0], part[1]["content-range"], part[2]) == (206, "bytes 1-2/5", b"el")
        assert len(re.findall(rb"(?m)^(?:GET|HEAD|PUT) ", origin.received[0])) == 1
        made.ask(b"PUT /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
        assert said(made.ask(ask))[1]["cache-status"] == "protogate; fwd=uri-miss; fwd-status=200; stored"


def test_in_the_background_the_modules_behind_it_run_and_there_is_no_record():
    with gateway() as made:
        answer = (
            b"HTTP/1.1 200 OK\r\ncache-control: max-age=1, stale-while-revalidate=60\r\ncontent-length: %d\r\n\r\n%b"
        )
        origin = made.upstream(
            "192.0.2.7", 80, [Expect(b"\r\n\r\n"), answer % (3, b"old"), Expect(b"\r\n\r\n"), answer % (3, b"new")]
        )
        ask = b"GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
        assert said(made.ask(ask))[2] == b"old"
        made.advance(3)
        assert said(made.ask(ask))[2] == b"old"
        assert said(made.ask(ask))[2] == b"new"
        assert origin.received[0].count(b"x-inside: 1") == 2
        assert origin.received[0].count(b"via:") == 2
        assert len(made.records) == 3


def test_an_upstream_that_is_gone():
    with gateway("actionParam: {staleIfError: 1h}") as made:
        answer = b"HTTP/1.1 200 OK\r\ncache-control: max-age=1\r\ncontent-length: 5\r\n\r\nhello"
        origin = made.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), answer])
        ask = b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n"
        made.ask(ask)
        made.advance(10)
        for connection in origin.connections:
            connection.reset()
        origin.scripts = ((Expect(b"\r\n\r\n"), b"nonsense\r\n\r\n"),)
        assert said(made.ask(ask))[::2] == (200, b"hello")


def test_in_the_shadow_it_does_nothing():
    with gateway("shadow: true") as made:
        answer = b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 5\r\n\r\nhello"
        origin = made.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), answer])
        ask = b'GET /a HTTP/1.1\r\nHost: a.test\r\nIf-None-Match: "a"\r\n\r\n'
        for _ in range(3):
            assert said(made.ask(ask))[0] == 200
        assert origin.received[0].count(b'if-none-match: "a"') == 3


def test_it_is_installed():
    config = loads(CONFIG.replace("MORE", "actionParam: {}").encode(), "gateway.yaml").config
    bound = bind(config.modules, find)
    assert [each.name for each in bound["PRE_UPSTREAM"]] == ["cache", "setRequestHeader"]


def test_nothing_of_it_is_left_to_the_garbage_collector():
    """An exchange under way has a visit, and that must not have the exchange."""
    scene = Scene(answer=lambda request: say("max-age=1", etag='"a"'))

    def traffic():
        for _ in range(3):
            scene.get()
            scene.get('if-none-match: "a"')
            scene.get("cache-control: no-store")
            scene.wait(2)

    traffic()
    gc.collect()
    gc.disable()
    try:
        traffic()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each for each in gc.garbage if type(each).__module__.startswith(("protogate.caching", "protogate.gov"))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
