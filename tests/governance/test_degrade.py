"""degrade: something else where an upstream fails, or is not to be asked."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from rubbish import garbage
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.governance.degrade import DegradeFactory
from protogate.message import Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans, Service
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Do, Expect

ANSWER = {"answer": {"text": "later"}}


class DegradeContract(ModuleContract, SynchronousTestCase):
    factory = DegradeFactory
    upstreams = ("other",)
    good = (
        {"give": [ANSWER]},
        {"name": "shop", "when": {"always": True}, "give": [ANSWER], "mark": False},
        {"when": {"always": True}, "give": [{"upstream": "other", "path": "/x${request.path}"}, ANSWER]},
        {"give": [{"cached": {}}, {"upstream": "other"}, {"answer": {"status": 503}}]},
        {"give": [{"cached": {"memory": "1MiB", "objectSize": "1KiB", "maxAge": "1h", "silent": True}}]},
        {"give": [{"answer": {"headers": {"x-a": "${request.path}"}, "json": "{}", "html": "<p>later</p>"}}]},
    )
    bad = (
        ({}, "give"),
        ({"give": []}, "give"),
        ({"give": ANSWER}, "give"),
        ({"give": [{"page": {}}]}, "give"),
        ({"give": [{"answer": {}, "cached": {}}]}, "give"),
        ({"give": [{"answer": "later"}]}, "give"),
        ({"give": [{"answer": {"status": 99}}]}, "status"),
        ({"give": [{"answer": {"status": 204, "text": "none"}}]}, "text"),
        ({"give": [{"answer": {"body": "none"}}]}, "body"),
        ({"give": [{"cached": {}}, {"cached": {}}]}, "give"),
        ({"give": [{"cached": {"memory": "1B"}}]}, "memory"),
        ({"give": [{"cached": {"memory": "1MiB", "objectSize": "1MiB"}}]}, "objectSize"),
        ({"give": [{"cached": {"by": "all"}}]}, "by"),
        ({"give": [{"cached": {"credentials": ["a b"]}}]}, "credentials"),
        ({"give": [{"upstream": {}}]}, "upstream"),
        ({"give": [{"upstream": "nobody"}]}, "upstream"),
        ({"give": [{"upstream": "other", "answer": {}}]}, "answer"),
        ({"give": [{"upstream": "other", "path": "x"}]}, "path"),
        ({"give": [ANSWER], "name": "a b"}, "name"),
        ({"give": [ANSWER], "when": {"switch": "a"}}, "switches"),
        ({"give": [ANSWER], "switches": {"file": "/dev/null"}}, "switches"),
        ({"give": [ANSWER], "when": {"switch": "a"}, "switches": {"file": "/no/such"}}, "switches"),
        ({"give": [ANSWER], "mark": "x"}, "mark"),
        ({"give": [ANSWER], "fallback": 1}, "fallback"),
    )

    def means(self):
        return FakeMeans({"other": Service(lambda request: Response(200, body=Whole(b"other")))})


HEAD = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: shop, endpoints: [{url: "http://192.0.2.7:80"}], timeouts: {responseHead: 5s}}
  - {name: other, endpoints: [{url: "http://192.0.2.8:80"}], timeouts: {responseHead: 5s}}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
"""
GET = b"GET /a?b=1 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
TEXT = "{answer: {text: later}}"
OTHER = "{upstream: other}"
CACHED = "{cached: {}}"


def answer(content=b"ok", status=b"200 OK", *lines):
    head = b"".join(line + b"\r\n" for line in (*lines, b"Connection: close"))
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, head, len(content), content)


def config(give, more="", entry="", others=""):
    more = f", {more}" if more else ""
    return f"{HEAD}  - {{name: degrade{entry}, actionParam: {{name: plan-b, give: [{give}]{more}}}}}\n{others}"


def upstream(gateway, *answers, host="192.0.2.7"):
    return gateway.upstream(host, 80, *[[Expect(b"\r\n\r\n"), each] for each in answers])


def counts(gateway):
    found = gateway.service.counters.snapshot()["counts"].get("module", {}).get("degrade", {})
    return {name: number for name, number in found.items() if number and not name.startswith("source_")}


def status_of(data):
    return int(data[9:12])


FAILS = {
    "status": [Expect(b"\r\n\r\n"), answer(b"sorry", b"503 Sorry")],
    "reset": [Expect(b"\r\n\r\n"), Do.RESET],
    "silence": [Do.SILENCE],
    "refused": None,
}


@pytest.mark.parametrize("how", FAILS)
@pytest.mark.parametrize("give", [TEXT, OTHER])
def test_a_failure_does_not_reach_the_client(how, give):
    with MemoryGateway(config(give)) as gateway:
        if FAILS[how] is not None:
            gateway.upstream("192.0.2.7", 80, FAILS[how])
        other = upstream(gateway, answer(b"other"), host="192.0.2.8")
        client = gateway.client()
        client.send(GET)
        gateway.run()
        if how == "silence":
            gateway.advance(6)
        assert status_of(client.received) == 200
        assert client.received.endswith(b"later" if give is TEXT else b"other")
        assert b"x-protogate-degraded: plan-b\r\n" in client.received
        (record,) = gateway.records
        assert record.notes["degraded"]["name"] == "plan-b"
        assert record.notes["degraded"]["gave"] == ("answer" if give is TEXT else "upstream")
        assert record.notes["degraded"].get("upstream") == (None if give is TEXT else "other")
        assert record.notes["degraded"]["why"].startswith("status 503" if how == "status" else "error ")
        trigger = "on_status" if how == "status" else "on_error"
        assert counts(gateway) == {trigger: 1, "gave_answer" if give is TEXT else "gave_upstream": 1}
        if give is OTHER:
            assert other.received[0].startswith(b"GET /a?b=1 HTTP/1.1\r\n")
            assert record.address == "192.0.2.8:80"


def test_what_is_well_passes_unmarked():
    with MemoryGateway(config(TEXT)) as gateway:
        upstream(gateway, answer())
        got = gateway.ask(GET)
        assert got.endswith(b"\r\n\r\nok")
        assert b"degraded" not in got
        assert (gateway.records[0].notes, counts(gateway)) == (None, {})


def test_the_mark_may_be_left_out():
    with MemoryGateway(config(TEXT, "mark: false")) as gateway:
        got = gateway.ask(GET)
        assert got.endswith(b"later")
        assert b"degraded" not in got
        assert gateway.records[0].notes["degraded"]["gave"] == "answer"


def test_an_own_answer_is_in_the_words_that_the_client_takes_and_not_for_caches():
    give = (
        '{answer: {status: 203, headers: {x-a: \'1\'}, json: \'{"items": [], "path": "${request.path}"}\', html: no}}'
    )
    with MemoryGateway(config(give)) as gateway:
        got = gateway.ask(GET.replace(b"\r\n\r\n", b"\r\nAccept: application/json\r\n\r\n"))
        head, _, content = got.partition(b"\r\n\r\n")
        assert status_of(got) == 203
        assert json.loads(content) == {"items": [], "path": "/a"}
        for line in (b"x-a: 1", b"content-type: application/json", b"cache-control: no-store", b"vary: accept"):
            assert line in head.split(b"\r\n")
        assert b"via:" not in head


def test_an_own_answer_may_be_for_caches():
    give = "{answer: {headers: {Cache-Control: max-age=5}}}"
    with MemoryGateway(config(give)) as gateway:
        assert b"cache-control: max-age=5\r\n" in gateway.ask(GET)


def test_only_what_is_named_is_degraded():
    with MemoryGateway(config(TEXT, "when: {statuses: [404]}")) as gateway:
        shop = upstream(gateway, answer(b"", b"404 None"), answer(b"sorry", b"503 Sorry"))
        assert gateway.ask(GET).endswith(b"later")
        assert status_of(gateway.ask(GET)) == 503
        shop.scripts = ([Expect(b"\r\n\r\n"), Do.RESET],)
        assert status_of(gateway.ask(GET)) == 502
    with MemoryGateway(config(TEXT, "when: {errors: [dns_error]}")) as gateway:
        assert status_of(gateway.ask(GET)) == 502
    with MemoryGateway(config(TEXT, "when: {response: \"response.headers['x-partial'] != ''\"}")) as gateway:
        upstream(gateway, answer(b"half", b"200 OK", b"X-Partial: yes"), answer(b"all"))
        assert gateway.ask(GET).endswith(b"later")
        assert gateway.ask(GET).endswith(b"all")
        assert counts(gateway)["on_response"] == 1


BEHIND = "  - {name: forwardAuth, stage: PRE_UPSTREAM, ruleOrder: 5, actionParam: {ask: {upstream: other, path: /}}}\n"


def test_a_failure_of_a_module_behind_it_is_helped_with_what_can_be_given_at_once():
    with MemoryGateway(config(f"{OTHER}, {TEXT}", others=BEHIND)) as gateway:
        shop = upstream(gateway, answer())
        other = gateway.upstream("192.0.2.8", 80, [Expect(b"\r\n\r\n"), Do.RESET])
        assert gateway.ask(GET).endswith(b"later")
        (record,) = gateway.records
        assert record.notes["degraded"]["gave"] == "answer"
        assert record.error
        assert (len(shop.connections), len(other.connections)) == (0, 1)
        assert counts(gateway) == {"on_error": 1, "gave_answer": 1}


def test_its_verdict_is_none():
    with MemoryGateway(config(TEXT, others=BEHIND)) as gateway:
        upstream(gateway, answer(b"", b"403 No"), host="192.0.2.8")
        assert status_of(gateway.ask(GET)) == 403
        assert counts(gateway) == {}


def test_the_failure_stays_where_nothing_can_be_given():
    with MemoryGateway(config(f"{CACHED}, {OTHER}")) as gateway:
        assert status_of(gateway.ask(GET)) == 502
        (record,) = gateway.records
        assert record.error.startswith("cannot connect to 192.0.2.7:80")
        assert record.address == "192.0.2.7:80"
        assert record.notes is None
        assert counts(gateway) == {"on_error": 1, "fallback_failed": 1}
    with MemoryGateway(config(OTHER)) as gateway:
        upstream(gateway, answer(b"sorry", b"503 Sorry"))
        upstream(gateway, answer(b"no", b"500 No"), host="192.0.2.8")
        got = gateway.ask(GET)
        assert (status_of(got), got[-5:]) == (503, b"sorry")


def test_what_another_upstream_says_is_for_this_client_and_this_moment():
    asked = GET.replace(b"\r\n\r\n", b'\r\nIf-None-Match: "1"\r\nRange: bytes=0-1\r\nX-A: 1\r\n\r\n')
    with MemoryGateway(config(OTHER)) as gateway:
        said = answer(b"other", b"200 OK", PUBLIC, b"Expires: 0", b"CDN-Cache-Control: max-age=60")
        other = upstream(gateway, said, host="192.0.2.8")
        head = gateway.ask(asked).lower().split(b"\r\n\r\n")[0].split(b"\r\n")
        assert b"cache-control: no-store" in head
        assert not [line for line in head if line.startswith((b"expires", b"cdn-"))]
        sent = other.received[0].lower()
        assert b"x-a: 1" in sent
        assert b"if-none-match" not in sent
        assert b"range" not in sent


@pytest.mark.parametrize("order", [-1, 1])
@pytest.mark.parametrize("give", [OTHER, TEXT, CACHED])
def test_a_cache_keeps_nothing_of_it_and_what_it_has(order, give):
    cache = f"  - {{name: cache, ruleOrder: {order}, actionParam: {{cacheStatus: false}}}}\n"
    with MemoryGateway(config(give, others=cache)) as gateway:
        tagged = answer(b"good", b"200 OK", PUBLIC, b'ETag: "1"')
        upstream(gateway, tagged, DOWN, answer(b"", b"304 Same"))
        upstream(gateway, answer(b"other", b"200 OK", PUBLIC), host="192.0.2.8")
        given = {OTHER: b"other", TEXT: b"later", CACHED: b"good"}[give]
        assert asks(gateway, GET) == [(200, b"good")]
        gateway.advance(5)
        assert asks(gateway, GET) == [(200, given)]
        gateway.advance(5)
        assert asks(gateway, GET) == [(200, b"good")]  # its own, which the upstream says is still good


def test_what_fails_is_followed_by_the_next():
    with MemoryGateway(config(f"{CACHED}, {OTHER}, {TEXT}")) as gateway:
        upstream(gateway, answer(b"no", b"500 No"), host="192.0.2.8")
        assert gateway.ask(GET).endswith(b"later")
        assert counts(gateway) == {"on_error": 1, "fallback_failed": 1, "gave_answer": 1}


def test_a_path_that_is_none_is_passed_over():
    give = f'{{upstream: other, path: "/%2${{request.path}}"}}, {TEXT}'
    with MemoryGateway(config(give)) as gateway:
        assert gateway.ask(GET).endswith(b"later")
        assert counts(gateway) == {"on_error": 1, "fallback_failed": 1, "gave_answer": 1}


def test_what_has_a_bug_is_passed_over_and_told(flush_errors):
    module, counted = DegradeFactory().build({"when": {"always": True}, "give": [ANSWER, ANSWER]}), Counter()
    module.start(FakeMeans(counted=counted), None)
    made = exchange("PRE_UPSTREAM")
    first = module._fallbacks[0]
    first._page = None
    first._fields = None
    assert Taker(module.process(made).body).data == b"later"
    assert counted == {"on_condition": 1, "fallback_failed": 1, "gave_answer": 1}
    flush_errors()


def through(params, response, give=None):
    """What comes of an answer that is there at once."""
    services = {"other": Service(lambda request: give)}
    module = DegradeFactory().build(params)
    module.start(FakeMeans(services), None)
    made = exchange("PRE_UPSTREAM")
    assert module.process(made) is None
    (function,) = made.promised()[2]
    return function(made, lambda: response)


def test_answers_that_are_there_at_once():
    good, bad = Response(200, protocol="TEST/1"), Response(503, body=Giver([b"sorry"]).body)
    other = Response(200, protocol="TEST/1")
    assert through({"give": [ANSWER]}, good) is good
    assert through({"give": [{"upstream": "other"}]}, bad, other) is other
    assert bad.body.attached
    assert through({"when": {"always": True}, "give": [{"upstream": "other"}]}, good, other) is other
    failing = Response(500, body=Whole(b"no"))
    assert through({"when": {"always": True}, "give": [{"upstream": "other"}]}, good, failing) is good
    assert through({"give": [{"upstream": "other"}]}, Response(503), failing).status == 503


@pytest.mark.parametrize("give", [TEXT, OTHER, CACHED])
@pytest.mark.parametrize("more", ["", "when: {always: true}"])
def test_nothing_is_left_to_the_garbage_collector(give, more):
    with MemoryGateway(config(give, more)) as gateway:
        if give is CACHED:
            upstream(gateway, GOOD)
        upstream(gateway, answer(b"other"), host="192.0.2.8")
        assert garbage(gateway, GET) == set()
        assert garbage(gateway, post()) == set()


def test_a_client_that_leaves_ends_it():
    with MemoryGateway(config(OTHER)) as gateway:
        upstream(gateway, answer(b"sorry", b"503 Sorry"))
        other = gateway.upstream("192.0.2.8", 80, [Do.SILENCE])
        client = gateway.client()
        client.send(GET)
        gateway.run()
        assert len(other.connections) == 1
        client.reset()
        gateway.run()
        assert other.connections[0].lost is not None
        assert gateway.records[0].who == "client"


def test_another_path_of_another_upstream():
    give = '{upstream: other, path: "/plain${request.path}"}'
    with MemoryGateway(config(give)) as gateway:
        other = upstream(gateway, answer(b"other"), host="192.0.2.8")
        assert gateway.ask(GET).endswith(b"other")
        assert other.received[0].startswith(b"GET /plain/a?b=1 HTTP/1.1\r\n")
        assert other.received[0].lower().count(b"via:") == 1


def test_a_reduced_route_asks_the_same_upstream_for_less():
    brief = '{upstream: shop, path: "/brief${request.path}"}'
    with MemoryGateway(config(brief, "when: {load: 90}")) as gateway:
        shop = upstream(gateway, answer(b"all"), answer(b"brief"))
        assert gateway.ask(GET).endswith(b"all")
        gateway.service.load = lambda: 93.0
        assert gateway.ask(GET).endswith(b"brief")
        assert [each.split(b" ")[1] for each in shop.received] == [b"/a?b=1", b"/brief/a?b=1"]
        degraded = gateway.records[-1].notes["degraded"]
        assert (degraded["why"], degraded["gave"], degraded["upstream"]) == ("load 93 %", "upstream", "shop")


def test_after_a_failure_the_same_upstream_is_asked_something_else_and_not_the_same():
    with MemoryGateway(
        config('{upstream: shop}, {upstream: shop, path: "${request.path}"}, {upstream: shop, path: /b}')
    ) as gateway:
        shop = upstream(gateway, answer(b"sorry", b"503 Sorry"), answer(b"less"))
        assert gateway.ask(GET).endswith(b"less")
        assert [each.split(b" ")[1] for each in shop.received] == [b"/a?b=1", b"/b?b=1"]
        assert counts(gateway) == {"on_status": 1, "gave_upstream": 1}


def post(content=b"hello", method=b"POST"):
    return b"%b / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (
        method,
        len(content),
        content,
    )


def test_content_is_sent_again_where_nothing_was_done():
    with MemoryGateway(config(OTHER)) as gateway:
        other = gateway.upstream("192.0.2.8", 80, [Expect(b"hello"), answer(b"other")])
        assert gateway.ask(post()).endswith(b"other")  # nobody was connected to
        assert other.received[0].endswith(b"hello")


@pytest.mark.parametrize(("method", "given"), [(b"POST", False), (b"PUT", True)])
def test_what_may_have_been_done_is_done_again_only_where_that_does_no_harm(method, given):
    with MemoryGateway(config(OTHER)) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"hello"), answer(b"sorry", b"503 Sorry")])
        other = gateway.upstream("192.0.2.8", 80, [Expect(b"hello"), answer(b"other")])
        assert status_of(gateway.ask(post(method=method))) == (200 if given else 503)
        assert len(other.connections) == int(given)


def test_content_that_is_too_large_to_be_kept_is_not():
    large = b"x" * 100_000 + b"hello"
    with MemoryGateway(config(f"{OTHER}, {TEXT}")) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"hello"), answer(b"sorry", b"503 Sorry")])
        other = gateway.upstream("192.0.2.8", 80, [Expect(b"hello"), answer(b"other")])
        assert gateway.ask(post(large, b"PUT")).endswith(b"later")
        assert other.connections == []


@pytest.mark.parametrize("more", ["", "when: {always: true}"])
def test_content_that_is_still_on_its_way_is_not_sent_again(more):
    with MemoryGateway(config(f"{OTHER}, {TEXT}" if not more else OTHER, more)) as gateway:
        first = ("192.0.2.8", "192.0.2.7") if more else ("192.0.2.7", "192.0.2.8")
        gateway.upstream(first[0], 80, [Expect(b"\r\n\r\n"), answer(b"sorry", b"503 Sorry")])
        gateway.upstream(first[1], 80, [Expect(b"hello"), answer(b"other")])
        client = gateway.client()
        client.send(b"PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhel")
        gateway.run()
        if more:
            assert status_of(client.received) == 502  # nobody else has the part that was sent
        else:
            assert client.received.endswith(b"later")
        client.close()
        gateway.run()


def test_too_much_content_is_the_clients_own_failure():
    limited = config(TEXT).replace("\nlisteners", "\ngateway: {limits: {body: 10B}}\nlisteners")
    with MemoryGateway(limited) as gateway:
        upstream(gateway, answer())
        assert status_of(gateway.ask(post(b"x" * 11))) == 413


BREAKER = "circuitBreaker: {errorRatio: 0.5, minRequests: 2, window: 5s, open: 5s}"


@pytest.mark.parametrize("where", ["upstream", "route"])
def test_what_a_circuit_breaker_refuses_is_given_something_else_and_may_be_sent_to_others(where):
    text = config(OTHER, "when: {errors: true}")
    if where == "upstream":
        text = text.replace("timeouts: {responseHead: 5s}}", f"{BREAKER}}}", 1)
    else:
        params = BREAKER.partition(": ")[2]
        text += f"  - {{name: circuitBreaker, ruleOrder: 5, actionParam: {params}}}\n"
    with MemoryGateway(text) as gateway:
        shop = upstream(gateway, DOWN)
        gateway.upstream("192.0.2.8", 80, [Expect(b"hello"), answer(b"other")])
        got = [gateway.ask(post()) for _ in range(8)]
        assert status_of(got[0]) == 503
        assert got[-1].endswith(b"other")  # nobody has taken it, so that it may be asked of others
        assert len(shop.connections) < 8
        assert "circuit breaker is open" in gateway.records[-1].notes["degraded"]["why"]


# -- before the upstream is asked


def test_by_a_condition():
    with MemoryGateway(config(TEXT, "when: {always: true}", entry=", condition: \"request.path == '/a'\"")) as gateway:
        shop = upstream(gateway, answer())
        assert gateway.ask(GET).endswith(b"later")
        assert (shop.connections, counts(gateway)) == ([], {"on_condition": 1, "gave_answer": 1, "answered": 1})
        assert gateway.ask(GET.replace(b"/a", b"/b")).endswith(b"ok")


def test_another_upstream_is_asked_instead():
    with MemoryGateway(config(f"{CACHED}, {OTHER}, {TEXT}", "when: {always: true}")) as gateway:
        shop = upstream(gateway, answer())
        upstream(gateway, answer(b"other"), answer(b"no", b"500 No"), host="192.0.2.8")
        got = gateway.ask(GET)
        assert got.endswith(b"other")
        assert got.lower().count(b"via:") == 1
        assert gateway.ask(GET).endswith(b"later")
        assert shop.connections == []


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_where_nothing_can_be_given_the_upstream_is_asked_after_all(content):
    with MemoryGateway(config(f"{CACHED}, {OTHER}", "when: {always: true}")) as gateway:
        shop = gateway.upstream("192.0.2.7", 80, [Expect(content or b"\r\n\r\n"), answer()])
        assert gateway.ask(post(content) if content else GET).endswith(b"ok")
        assert shop.received[0].endswith(content)
        assert counts(gateway) == {"on_condition": 1, "fallback_failed": 1}
    with MemoryGateway(config(CACHED, "when: {always: true}")) as gateway:
        upstream(gateway, answer())
        assert gateway.ask(GET).endswith(b"ok")
        assert counts(gateway) == {"on_condition": 1}


def test_what_cannot_be_asked_again_is_not_asked_after_all():
    with MemoryGateway(config(OTHER, "when: {always: true}")) as gateway:
        shop = upstream(gateway, answer())
        gateway.upstream("192.0.2.8", 80, [Expect(b"x" * 70_000), Do.RESET])
        client = gateway.client()
        client.send(b"PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
        gateway.run()
        client.send(b"0\r\n\r\n")
        gateway.run()
        assert (status_of(client.received), shop.connections) == (502, [])


def test_an_operators_switch_is_followed(tmp_path):
    path = tmp_path / "switches.txt"
    path.write_text("# all is well\n")
    more = f"when: {{switch: plan-b, statuses: [503]}}, switches: {{file: {path}}}"
    with MemoryGateway(config(TEXT, more)) as gateway:
        shop = upstream(gateway, answer())
        assert gateway.ask(GET).endswith(b"ok")
        path.write_text("plan-b # since noon\n")
        gateway.advance(3)
        assert gateway.ask(GET).endswith(b"later")
        assert gateway.records[-1].notes["degraded"]["why"] == "switch plan-b"
        gauges = gateway.service.admin._watched.snapshot()["gauges"]["module"]["degrade"]
        assert gauges["switched_on"] == 1
        path.write_text("plan b\n")  # nonsense: what was there stays
        gateway.advance(3)
        assert gateway.ask(GET).endswith(b"later")
        path.unlink()
        gateway.advance(3)
        assert gateway.reload(config(TEXT, more)) is False
        assert gateway.ask(GET).endswith(b"later")
        path.write_text("")
        gateway.advance(3)
        assert gateway.ask(GET).endswith(b"ok")
        assert len(shop.connections) == 2
        assert counts(gateway)["on_switch"] == 3


def test_a_switch_is_off_until_a_url_says_otherwise():
    more = "when: {switch: plan-b}, switches: {url: {upstream: other, path: /switches}, interval: 1m}"
    with MemoryGateway(config(TEXT, more)) as gateway:
        upstream(gateway, answer())
        upstream(gateway, answer(b""), answer(b"plan-b\n"), host="192.0.2.8")
        assert gateway.ask(GET).endswith(b"ok")
        gateway.advance(70)
        assert gateway.ask(GET).endswith(b"later")


def test_by_load():
    level = [79.0]
    module, counted = DegradeFactory().build({"when": {"load": 80}, "give": [ANSWER]}), Counter()
    module.start(replace(FakeMeans(counted=counted), load=lambda: level[0]), None)
    assert module.process(exchange("PRE_UPSTREAM")) is None
    level[0] = 85.0
    made = exchange("PRE_UPSTREAM")
    assert module.process(made).status == 200
    assert made.notes["degraded"]["why"] == "load 85 %"
    assert counted == {"on_load": 1, "gave_answer": 1}
    module.stop()


def test_the_load_is_what_the_gateway_says():
    with MemoryGateway(config(TEXT, "when: {load: 90}")) as gateway:
        upstream(gateway, answer())
        assert gateway.ask(GET).endswith(b"ok")
        gateway.service.load = lambda: 93.0
        assert gateway.ask(GET).endswith(b"later")
        assert gateway.records[-1].notes["degraded"]["why"] == "load 93 %"


def test_tunnels_are_left_alone():
    with MemoryGateway(config(TEXT, "when: {always: true}")) as gateway:
        upstream(gateway, answer(b"no", b"426 Other"))
        upgrade = b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        assert status_of(gateway.ask(b"GET / HTTP/1.1\r\nHost: a.test\r\n" + upgrade)) == 426


# -- the last good answer

PUBLIC = b"Cache-Control: public, max-age=1"
DOWN = answer(b"sorry", b"503 Sorry")


def asks(gateway, *requests):
    """What each is answered: status and content."""
    got = [gateway.ask(each) for each in requests]
    return [(status_of(each), each.partition(b"\r\n\r\n")[2]) for each in got]


def kept(*answers, cached="{}", requests=(GET, GET), wait=5):
    """What the last of some requests gets, when the upstream is down by then."""
    with MemoryGateway(config(f"{{cached: {cached}}}")) as gateway:
        upstream(gateway, *answers, DOWN)
        for each in requests[:-1]:
            gateway.ask(each)
            gateway.advance(wait)
        (found,) = asks(gateway, requests[-1])
        return found


def test_the_last_good_answer_is_given_though_it_is_stale():
    with MemoryGateway(config(CACHED)) as gateway:
        upstream(gateway, answer(b"old", b"200 OK", PUBLIC), answer(b"new", b"200 OK", PUBLIC, b"X-A: 1"), DOWN)
        for _ in range(2):
            gateway.ask(GET)
            gateway.advance(5)
        got = gateway.ask(GET)
        assert got.endswith(b"new")
        assert b"x-a: 1\r\n" in got.lower()
        assert b"age: " in got
        assert b"x-protogate-degraded: plan-b" in got
        assert gateway.records[-1].notes["degraded"]["gave"] == "cached"
        assert gateway.service.admin._watched.snapshot()["gauges"]["module"]["degrade"]["bytes"] > 1000


GOOD = answer(b"good", b"200 OK", PUBLIC)
SILENT = answer(b"good")


def test_for_no_longer_than_the_file_or_the_origin_says():
    assert kept(GOOD) == (200, b"good")
    assert kept(GOOD, cached="{maxAge: 10s}", wait=10) == (200, b"good")
    assert kept(GOOD, cached="{maxAge: 10s}", wait=20) == (503, b"sorry")
    origin = answer(b"good", b"200 OK", b"Cache-Control: max-age=1, stale-if-error=5")
    assert kept(origin, wait=4) == (200, b"good")
    assert kept(origin, wait=20) == (503, b"sorry")


@pytest.mark.parametrize(
    "control", ["private", "no-store", "no-cache", "max-age=1, must-revalidate", "max-age=1, proxy-revalidate"]
)
@pytest.mark.parametrize("cached", ["{}", "{silent: true}"])
def test_never_what_is_not_for_that(control, cached):
    origin = answer(b"good", b"200 OK", b"Cache-Control: " + control.encode())
    assert kept(origin, cached=cached) == (503, b"sorry")


def test_what_says_nothing_is_kept_where_the_file_says_so():
    assert kept(SILENT) == (503, b"sorry")
    assert kept(SILENT, cached="{silent: true}") == (200, b"good")
    cookie = answer(b"good", b"200 OK", b"Set-Cookie: sid=1")
    assert kept(cookie, cached="{silent: true}") == (503, b"sorry")
    assert kept(cookie, cached="{silent: true, stripCookies: true}") == (200, b"good")
    assert kept(answer(b"good", b"200 OK", b"Vary: *"), cached="{silent: true}") == (503, b"sorry")


@pytest.mark.parametrize("line", [b"Authorization: Bearer x", b"Cookie: sid=1"])
def test_what_belongs_to_somebody_is_not_kept_for_others(line):
    mine = GET.replace(b"\r\n\r\n", b"\r\n%b\r\n\r\n" % line)
    limited = answer(b"mine", b"200 OK", b"Cache-Control: max-age=1")
    assert kept(limited, requests=(mine, GET)) == (503, b"sorry")
    assert kept(limited, requests=(mine, mine)) == (503, b"sorry")
    assert kept(limited, requests=(mine, GET), cached="{silent: true}") == (503, b"sorry")
    assert kept(answer(b"all", b"200 OK", PUBLIC), requests=(mine, GET)) == (200, b"all")


def test_who_is_found_out_behind_it_is_somebody(tmp_path):
    (tmp_path / "keys").write_text("sha256:" + hashlib.sha256(b"sesame").hexdigest() + " bob\n")
    params = f"keys: {{file: {tmp_path / 'keys'}}}, from: {{header: x-api-key}}"
    behind = f"  - {{name: keyAuth, stage: PRE_UPSTREAM, ruleOrder: 5, actionParam: {{{params}}}}}\n"
    asked = GET.replace(b"\r\n\r\n", b"\r\nX-API-Key: sesame\r\n\r\n")
    for lines, found in (((b"Cache-Control: max-age=1",), (503, b"sorry")), ((PUBLIC,), (200, b"good"))):
        with MemoryGateway(config(CACHED, others=behind)) as gateway:
            upstream(gateway, answer(b"good", b"200 OK", *lines), DOWN)
            assert asks(gateway, asked) == [(200, b"good")]
            gateway.advance(5)
            assert asks(gateway, asked) == [found]


def test_answers_are_told_apart():
    german = GET.replace(b"\r\n\r\n", b"\r\nAccept-Language: de\r\n\r\n")
    varying = answer(b"good", b"200 OK", PUBLIC, b"Vary: Accept-Language")
    assert kept(varying, requests=(german, GET)) == (503, b"sorry")
    assert kept(varying, requests=(german, german)) == (200, b"good")
    assert kept(GOOD, requests=(GET.replace(b"a.test", b"b.test"), GET)) == (503, b"sorry")
    assert kept(GOOD, requests=(GET.replace(b"b=1", b"b=2"), GET)) == (503, b"sorry")
    tenant = GET.replace(b"\r\n\r\n", b"\r\nX-Tenant: 1\r\n\r\n")
    by = "{by: \"${request.headers['x-tenant']}\"}"
    assert kept(GOOD, cached=by, requests=(tenant, GET)) == (503, b"sorry")
    assert kept(GOOD, cached=by, requests=(tenant, tenant)) == (200, b"good")


def test_head_and_parts_are_answered_from_it_and_conditions_are_not():
    tagged = answer(b"good", b"200 OK", PUBLIC, b'ETag: "1"')
    part = GET.replace(b"\r\n\r\n", b"\r\nRange: bytes=1-2\r\n\r\n")
    assert kept(tagged, requests=(GET, part)) == (206, b"oo")
    same = GET.replace(b"\r\n\r\n", b'\r\nIf-None-Match: "1"\r\n\r\n')
    assert kept(tagged, requests=(GET, same)) == (200, b"good")
    assert kept(tagged, requests=(GET, GET.replace(b"GET", b"HEAD"))) == (200, b"")
    assert kept(tagged, requests=(GET, post())) == (503, b"sorry")


@pytest.mark.parametrize("status", [b"404 None", b"403 No", b"410 Gone"])
def test_what_is_gone_or_not_for_everybody_any_more_is_not_given(status):
    assert kept(GOOD, answer(b"", status), requests=(GET, GET, GET)) == (503, b"sorry")


def test_what_is_about_the_moment_changes_nothing_and_what_became_private_does():
    assert kept(GOOD, answer(b"", b"429 Busy"), requests=(GET, GET, GET)) == (200, b"good")
    private = answer(b"mine", b"200 OK", b"Cache-Control: private")
    assert kept(GOOD, private, requests=(GET, GET, GET)) == (503, b"sorry")


def test_what_was_changed_is_forgotten():
    change = post().replace(b"POST / ", b"POST /a?b=1 ")
    assert kept(GOOD, answer(b""), requests=(GET, change, GET)) == (503, b"sorry")
    assert kept(GOOD, answer(b"", b"400 No"), requests=(GET, change, GET)) == (200, b"good")


def test_what_breaks_off_or_is_too_large_is_not_kept():
    half = b"HTTP/1.1 200 OK\r\nCache-Control: public, max-age=1\r\nContent-Length: 9\r\n\r\nhalf"
    with MemoryGateway(config(CACHED)) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), half, Do.CLOSE], [Expect(b"\r\n\r\n"), DOWN])
        gateway.ask(GET)
        gateway.advance(5)
        assert asks(gateway, GET) == [(503, b"sorry")]
    large = answer(b"x" * 3000, b"200 OK", PUBLIC)
    assert kept(large, cached="{objectSize: 1KiB}")[0] == 503
    chunked = b"HTTP/1.1 200 OK\r\nCache-Control: public, max-age=1\r\nTransfer-Encoding: chunked\r\n"
    chunked += b"Connection: close\r\n\r\n"
    chunked += b"".join(b"3e8\r\n%b\r\n" % (b"x" * 1000) for _ in range(3)) + b"0\r\n\r\n"
    assert kept(chunked, cached="{objectSize: 1KiB}")[0] == 503
    assert kept(chunked, cached="{objectSize: 4KiB}") == (200, b"x" * 3000)


def test_a_reload_keeps_it_unless_the_terms_change():
    with MemoryGateway(config(CACHED)) as gateway:
        upstream(gateway, GOOD, DOWN)
        gateway.ask(GET)
        gateway.advance(5)
        assert gateway.reload(config("{cached: {maxAge: 1h}}"))
        assert asks(gateway, GET) == [(200, b"good")]
        assert gateway.reload(config("{cached: {silent: true}}"))
        assert asks(gateway, GET) == [(503, b"sorry")]


def test_it_is_given_by_a_switch_too_and_without_one_who_has_it_is_asked(tmp_path):
    path = tmp_path / "switches.txt"
    path.write_text("")
    more = f"when: {{switch: plan-b}}, switches: {{file: {path}}}"
    with MemoryGateway(config(CACHED, more)) as gateway:
        shop = upstream(gateway, GOOD, answer(b"new", b"200 OK", PUBLIC))
        gateway.ask(GET)
        path.write_text("plan-b")
        gateway.advance(5)
        assert asks(gateway, GET, GET.replace(b"/a", b"/b")) == [(200, b"good"), (200, b"new")]
        assert len(shop.connections) == 2


CONTROLS = (
    *(b"private", b"no-store", b"max-age=1", b"public, max-age=1", b"no-cache", b"s-maxage=1", b""),
    *(b"max-age=1, must-revalidate", b"public, max-age=1, stale-if-error=3"),
)
SHARED = (b"public, max-age=1", b"s-maxage=1", b"public, max-age=1, stale-if-error=3")
"""What lets an answer to somebody be given to others."""


class Moody(Protocol):
    """An upstream that answers each with what is theirs, unless it says that it is everybody's; or fails."""

    chance = Random(0)
    fails = False

    def dataReceived(self, data):
        if self.fails:
            self.transport.write(DOWN)
            return
        user = data.partition(b"cookie: ")[2].partition(b"\r\n")[0] or b"anybody"
        control = self.chance.choice(CONTROLS)
        shared = user == b"anybody" or control in SHARED
        lines = [b"Cache-Control: " + control] if control else []
        lines += [b"Vary: Accept"] if self.chance.random() < 0.3 else []
        self.transport.write(answer(b"for anybody" if shared else b"for " + user, b"200 OK", *lines))


@pytest.mark.unwatched
@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_given_what_is_somebody_elses(seed):
    chance = Random(seed)
    silent = "silent: true" if seed % 2 else "silent: false"
    given = 0
    with MemoryGateway(config(f"{{cached: {{{silent}}}}}, {TEXT}")) as gateway:
        kind = type("Each", (Moody,), {"chance": chance})
        gateway.reactor.listenTCP(80, Factory.forProtocol(kind), interface="192.0.2.7")
        for _ in range(250):
            kind.fails = chance.random() < 0.4
            user = chance.choice([b"", b"", b"Cookie: alice", b"Cookie: bob"])
            line = b"\r\n" + user if user else b""
            target = b"/%d" % chance.randrange(3)
            got = gateway.ask(GET.replace(b"/a?b=1", target).replace(b"\r\n\r\n", line + b"\r\n\r\n"))
            content = got.partition(b"\r\n\r\n")[2]
            assert content in (b"later", b"for anybody", b"for " + user.removeprefix(b"Cookie: "))
            given += b"x-protogate-degraded" in got and content != b"later"
            gateway.advance(chance.choice([0, 0.5, 2]))
    assert given > 10
