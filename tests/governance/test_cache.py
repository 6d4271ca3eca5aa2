"""cache: parameters, what tells answers apart, memory, reloads, whole gateways."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from caches import Scene, say
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.load import loads
from protogate.governance.binding import bind
from protogate.governance.cache import CacheFactory
from protogate.plugins import find
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
        ({"purge": "purged.txt"}, "purge"),
        ({"purge": {"file": "/nowhere/purged.txt"}}, "purge"),
        ({"ttl": "1m"}, "ttl"),
    )


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


# -- what an operator has forgotten


def purging(tmp_path, text=""):
    path = tmp_path / "purged.txt"
    path.write_text(text)
    return path, Scene(answer=lambda request: say(content=request.target), purge={"file": str(path)})


def hits(scene, *targets):
    return [scene.get(target=target).told.startswith("hit") for target in targets]


def test_what_is_added_to_the_list_is_forgotten_once(tmp_path):
    path, scene = purging(tmp_path, "/old\n")
    targets = b"/old", b"/a", b"/a?x=1", b"/b/1", b"/b/2", b"/c"
    hits(scene, *targets)
    assert hits(scene, *targets) == [True] * 6, "what stood there before means nothing of what came later"
    path.write_text("/old\n# since Monday\n/a # gone\n/b/*\nA.test/c\nb.test/old\n")
    scene.wait(3)
    assert hits(scene, *targets) == [True, False, True, False, False, False]
    assert hits(scene, *targets) == [True] * 6
    path.write_text(path.read_text() + "/a\n")
    scene.wait(3)
    assert hits(scene, *targets) == [True, False, True, True, True, True]
    assert scene.counted["purged"] == 5


def test_everything_and_groups_are_forgotten(tmp_path):
    path, scene = purging(tmp_path)
    scene.origin._answer = lambda request: say(cache_groups=f'"{request.target.decode()[1:]}"')
    targets = b"/shoes", b"/hats"
    hits(scene, *targets)
    path.write_text("group:shoes\n")
    scene.wait(3)
    assert hits(scene, *targets) == [False, True]
    path.write_text("group:shoes\n*\n")
    scene.wait(3)
    assert hits(scene, *targets) == [False, False]


def test_what_was_on_its_way_is_not_kept(tmp_path):
    path, scene = purging(tmp_path)
    late = Deferred()
    scene.origin._answer = lambda request: late
    scene.get()
    path.write_text("/a\n")
    scene.wait(3)
    late.callback(say())
    scene.origin._answer = lambda request: say(content=b"new")
    assert scene.get().data == b"new"


def test_a_reload_forgets_what_was_added_meanwhile(tmp_path):
    path, scene = purging(tmp_path, "/old\n")
    hits(scene, b"/a", b"/b")
    path.write_text("/old\n/a\n")
    after = Scene(before=scene, purge={"file": str(path)}, answer=lambda request: say())
    scene.cache.stop()
    assert hits(after, b"/a", b"/b") == [False, True]


def test_a_list_that_is_none_is_not_used(tmp_path):
    path, scene = purging(tmp_path)
    hits(scene, b"/a")
    for text in ("products\n", "/a b\n", "/a*b\n", "group:\n", "/a\n" * 1001):
        path.write_text(text)
        scene.wait(3)
    assert hits(scene, b"/a") == [True]
    assert scene.counted["source_failed"] == 5


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
    scene = Scene(answer=lambda request: say("max-age=1, stale-while-revalidate=3", etag='"a"'))

    def traffic():
        for _ in range(3):
            scene.get()
            scene.get('if-none-match: "a"')
            scene.get("cache-control: no-store")
            scene.wait(2)
            scene.get()
            scene.wait(6)
        scene.origin.requests.clear()  # they have the exchanges

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


def test_the_tests_that_the_page_names_are_there():
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "modules" / "cache.md").read_text()
    named = set(re.findall(r"^\| .* \| .* \| `(test_\w+)` \|$", page, re.MULTILINE))
    found = {
        name for path in here.glob("test_cache*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    assert len(named) > 30
    assert named - found == set()
