"""trafficCopy: another upstream is asked the same, and nobody sees anything of it."""

from __future__ import annotations

from collections import Counter

import pytest
from rubbish import garbage
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.governance import copyunderway, trafficcopy
from protogate.governance.trafficcopy import TrafficCopyFactory
from protogate.interfaces import IStreamCodec
from protogate.message import Response
from protogate.plugins import names
from protogate.testing.bodies import Giver, Taker
from protogate.testing.caller import Caller
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans, Service
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Do, Expect

CODECS = tuple(names(IStreamCodec))


class TrafficCopyContract(ModuleContract, SynchronousTestCase):
    factory = TrafficCopyFactory
    upstreams = ("next",)
    good = (
        {"upstream": "next"},
        {"upstream": "next", "ratio": 0.5, "strip": ["authorization"], "path": "/copy${request.path}", "most": 1},
        {"upstream": "next", "compare": {}, "logInterval": "1m", "lag": "64KiB", "timeout": "1s", "path": "/copy"},
        {"upstream": "next", "compare": {"body": "json", "ignorePaths": ["/a/*", "/b~1c"], "limit": "1KiB"}},
        {"upstream": "next", "compare": {"status": False, "headers": False, "ignoreHeaders": "etag", "values": True}},
    )
    bad = (
        ({}, "upstream"),
        ({"upstream": "other"}, "upstream"),
        ({"upstream": 7}, "upstream"),
        ({"upstream": "next", "ratio": 101}, "ratio"),
        ({"upstream": "next", "strip": ["no name"]}, "strip"),
        ({"upstream": "next", "lag": "1B"}, "lag"),
        ({"upstream": "next", "most": 0}, "most"),
        ({"upstream": "next", "timeout": 0}, "timeout"),
        ({"upstream": "next", "path": "/a/../b"}, "path"),
        ({"upstream": "next", "path": "/a?b=1"}, "path"),
        ({"upstream": "next", "path": "/%2"}, "path"),
        ({"upstream": "next", "compare": True}, "compare"),
        ({"upstream": "next", "compare": {"body": "all"}}, "body"),
        ({"upstream": "next", "compare": {"ignorePaths": ["/a"]}}, "ignorePaths"),
        ({"upstream": "next", "compare": {"body": "json", "ignorePaths": ["a"]}}, "ignorePaths"),
        ({"upstream": "next", "compare": {"body": "json", "limit": "2MiB"}}, "limit"),
        ({"upstream": "next", "logInterval": "1s"}, "logInterval"),
        ({"upstream": "next", "sample": 1}, "sample"),
    )

    def means(self):
        return FakeMeans({"next": Service(lambda request: None)})


CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams:
  - {{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}
  - {{name: next, endpoints: [{{url: "http://192.0.2.8:80"}}]{more}}}
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
accessLog: null
modules: [{{name: trafficCopy{entry}, actionParam: {{upstream: next{params}}}}}]
"""
GET = b"GET /a?b=1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: secret\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
ANSWERS = [Expect(b"\r\n\r\n"), OK]


def config(params="", entry="", more=""):
    return CONFIG.format(params=f", {params}" if params else "", entry=entry, more=more)


def counts(gateway):
    found = gateway.service.counters.snapshot()["counts"].get("module", {}).get("trafficCopy", {})
    return {name: number for name, number in found.items() if number}


def upstreams(gateway, one=ANSWERS, other=ANSWERS):
    return gateway.upstream("192.0.2.7", 80, one), gateway.upstream("192.0.2.8", 80, other)


def test_the_copy_is_what_the_upstream_is_sent_and_marked():
    with MemoryGateway(config("strip: [Authorization]")) as gateway:
        shop, following = upstreams(gateway)
        assert gateway.ask(GET).endswith(b"ok")
        (original,), (copy,) = shop.received, following.received
        lines = copy.split(b"\r\n")
        assert lines[0] == b"GET /a?b=1 HTTP/1.1"
        assert b"x-protogate-copy: 1" in lines
        assert b"authorization: secret" in original
        assert b"authorization" not in copy
        for line in original.split(b"\r\n"):
            assert line in lines or line.startswith(b"authorization")
        assert counts(gateway) == {"copied": 1, "copy_2xx": 1}
        assert len(gateway.records) == 1
        assert gateway.records[0].upstream == "shop"
        assert gateway.records[0].notes is None


def test_content_goes_to_both():
    with MemoryGateway(config()) as gateway:
        shop, following = upstreams(gateway, [Expect(b"0\r\n\r\n"), OK], [Expect(b"0\r\n\r\n"), OK])
        client = gateway.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"3\r\nabc\r\n", b"3\r\ndef\r\n", b"0\r\n\r\n"):
            client.send(piece)
            gateway.run()
        for sent in (*shop.received, *following.received):
            assert sent.endswith(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        assert client.received.endswith(b"ok")


def test_another_path():
    with MemoryGateway(config('path: "/copy${request.path}"')) as gateway:
        _, following = upstreams(gateway)
        gateway.ask(GET)
        assert following.received[0].startswith(b"GET /copy/a?b=1 ")


def test_copies_are_not_copied():
    with MemoryGateway(config()) as gateway:
        shop, following = upstreams(gateway)
        gateway.ask(GET.replace(b"\r\n\r\n", b"\r\nX-Protogate-Copy: 1\r\n\r\n"))
        assert (len(shop.received), len(following.received)) == (1, 0)
        assert counts(gateway) == {"looped": 1}


def test_nor_what_goes_there_anyway_nor_what_asks_for_a_tunnel():
    upgrade = b"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with MemoryGateway(config()) as gateway:
        _, following = upstreams(gateway)
        gateway.ask(upgrade)
        assert following.received == []
    with MemoryGateway(config().replace("targets: [{upstream: shop}]", "targets: [{upstream: next}]")) as gateway:
        following = gateway.upstream("192.0.2.8", 80, ANSWERS)
        gateway.ask(GET)
        assert (len(following.received), counts(gateway)) == (1, {"same_upstream": 1})


def test_nor_what_a_module_behind_answers():
    answering = config().replace("modules: [", "modules: [{name: respond, stage: PRE_UPSTREAM, ruleOrder: 1}, ")
    with MemoryGateway(answering) as gateway:
        _, following = upstreams(gateway)
        assert gateway.ask(GET).startswith(b"HTTP/1.1 200")
        assert (following.received, counts(gateway)) == ([], {})


def test_so_many_of_a_hundred():
    module = TrafficCopyFactory().build({"upstream": "next", "ratio": 20})
    module.start(FakeMeans(), None)
    copied = 0
    for _ in range(1000):
        made = exchange("PRE_UPSTREAM")
        module.process(made)
        copied += len(made.promised()[2])
    assert 140 < copied < 260


def test_the_same_clients_where_the_entry_says_so():
    with MemoryGateway(config(entry=", grayRatio: 50, grayKey: \"request.headers['x-user']\"")) as gateway:
        _, following = upstreams(gateway)
        seen = []
        for user in (b"a", b"b", b"c", b"d", b"e", b"f") * 2:
            before = len(following.received)
            gateway.ask(GET.replace(b"\r\n\r\n", b"\r\nX-User: " + user + b"\r\n\r\n"))
            seen.append(len(following.received) > before)
        assert seen[:6] == seen[6:]
        assert len(set(seen)) == 2


# -- whatever becomes of the copy

DEAD = {
    "refuses": None,
    "resets": [Expect(b"\r\n\r\n"), Do.RESET],
    "is silent": [Do.SILENCE],
    "answers nonsense": [Expect(b"\r\n\r\n"), b"nonsense\r\n\r\n", Do.CLOSE],
    "answers an error": [Expect(b"\r\n\r\n"), b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"],
    "breaks off": [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Do.CLOSE],
    "never ends": [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Do.SILENCE],
}
COUNTED = {
    "refuses": {"unanswered": 1},
    "resets": {"unanswered": 1},
    "is silent": {"late": 1},
    "answers nonsense": {"unanswered": 1},
    "answers an error": {"copy_5xx": 1},
    "breaks off": {"copy_2xx": 1, "broken_off": 1},
    "never ends": {"copy_2xx": 1, "late": 1},
}


@pytest.mark.parametrize("how", DEAD)
def test_the_client_is_answered_at_once_whatever_the_copy_is_answered(how):
    with MemoryGateway(config("timeout: 5s")) as gateway:
        gateway.upstream("192.0.2.7", 80, ANSWERS)
        if DEAD[how] is not None:
            gateway.upstream("192.0.2.8", 80, DEAD[how])
        begun = gateway.reactor.seconds()
        assert gateway.ask(GET).endswith(b"\r\n\r\nok")
        assert gateway.reactor.seconds() == begun
        (record,) = gateway.records
        assert (record.status, record.upstream, record.attempts) == (200, "shop", 1)
        gateway.advance(6)
        assert counts(gateway) == {"copied": 1, **COUNTED[how]}


@pytest.mark.parametrize("how", DEAD)
def test_an_upload_flows_at_the_pace_of_its_upstream_whatever_the_copys_does(how):
    size = 3 << 20
    with MemoryGateway(config("timeout: 5s, lag: 64KiB")) as gateway:
        shop = gateway.upstream("192.0.2.7", 80, [Expect(b"end"), OK])
        if DEAD[how] is not None:
            gateway.upstream("192.0.2.8", 80, DEAD[how])
        client = gateway.client()
        begun = gateway.reactor.seconds()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % size)
        gateway.run()
        for _ in range(size >> 16):
            client.send(b"x" * (1 << 16) if client.transport is not None else b"")
            gateway.run()
        client.send(b"end")
        gateway.run()
        assert len(shop.received[0]) >= size
        assert gateway.reactor.seconds() == begun
        gateway.advance(6)
        found = counts(gateway)
        assert found.pop("copied") == 1
        assert sum(found.values()) >= 1


def test_a_copy_that_is_not_read_is_dropped_when_it_lags_and_no_more_than_that_is_held():
    with MemoryGateway(config("lag: 64KiB"), high=1 << 14) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"end"), OK])
        following = gateway.upstream("192.0.2.8", 80, [Do.SILENCE])
        client = gateway.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % ((1 << 20) + 3))
        gateway.run()
        following.connections[0].transport.pauseProducing()
        for _ in range(16):
            client.send(b"x" * (1 << 16))
            gateway.run()
        assert counts(gateway)["dropped"] == 1
        client.send(b"end")
        gateway.run()
        assert client.received.endswith(b"ok")


def test_only_so_many_are_under_way():
    with MemoryGateway(config("most: 2, timeout: 5s")) as gateway:
        upstreams(gateway, other=[Do.SILENCE])
        for _ in range(5):
            assert gateway.ask(GET).endswith(b"ok")
        assert counts(gateway) == {"copied": 2, "skipped": 3}
        gauges = gateway.service.admin._watched.snapshot()["gauges"]["module"]
        assert gauges == {"trafficCopy": {"under_way": 2}}
        gateway.advance(6)
        gateway.ask(GET)
        assert counts(gateway) == {"copied": 3, "skipped": 3, "late": 2}
        gateway.advance(6)


def test_a_client_that_leaves_does_not_end_the_copy():
    late = [Expect(b"\r\n\r\n"), Do.SILENCE]
    with MemoryGateway(config()) as gateway:
        _, following = upstreams(gateway, late, late)
        client = gateway.client()
        client.send(GET)
        gateway.run()
        client.reset()
        gateway.run()
        following.connections[0].send(OK)
        gateway.run()
        assert counts(gateway) == {"copied": 1, "copy_2xx": 1}


def test_but_it_does_when_its_upload_is_not_complete():
    with MemoryGateway(config()) as gateway:
        _, following = upstreams(gateway)
        client = gateway.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nabc")
        gateway.run()
        client.reset()
        gateway.run()
        assert counts(gateway)["copied"] == 1
        assert following.connections[0].lost is not None or counts(gateway).get("cut_off") == 1


def test_nor_is_an_upload_copied_that_the_original_had_no_use_for():
    with MemoryGateway(config("compare: {}")) as gateway:
        following = gateway.upstream("192.0.2.8", 80, [Expect(b"abc"), OK])
        answer = gateway.ask(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 502 ")
        gateway.run()
        assert counts(gateway) == {"copied": 1, "cut_off": 1, "uncompared": 1}
        assert not following.received[0].endswith(b"abc")


def test_a_reload_keeps_what_is_under_way_and_what_takes_the_module_away_gives_it_up():
    with MemoryGateway(config("most: 2")) as gateway:
        _, following = upstreams(gateway, other=[Do.SILENCE])
        gateway.ask(GET)
        gateway.ask(GET)
        assert gateway.reload(config("most: 2, lag: 2MiB"))
        gateway.ask(GET)
        assert counts(gateway) == {"copied": 2, "skipped": 1}
        following.connections[0].send(OK)
        gateway.run()
        assert counts(gateway)["copy_2xx"] == 1
        without = config().replace("trafficCopy, actionParam: {upstream: next}", "respond, condition: 'false'")
        assert gateway.reload(without)
        gateway.run()
        assert following.connections[1].lost is not None


def test_answers_that_are_there_at_once_are_compared_too():
    counted, reactor = Counter(), MemoryReactor()
    service = Service(lambda request: Response(200, body=Whole(b"ok")))
    module = TrafficCopyFactory().build({"upstream": "next", "compare": {}})
    module.start(FakeMeans({"next": service}, reactor=reactor, counted=counted), None)
    made = exchange("PRE_UPSTREAM", clock=reactor.clock)
    module.process(made)
    (through,) = made.promised()[2]
    response = through(made, lambda: Response(200, body=Whole(b"ok"), protocol="TEST/1"))
    assert counted == {}
    Taker(response.body)
    reactor.run()
    assert counted == {"copied": 1, "copy_2xx": 1, "matched": 1}
    assert service.requests[0].ledger is None
    module.stop()
    reactor.advance(1)
    assert list(reactor.getDelayedCalls()) == []


def test_an_answer_that_wins_over_giving_up_is_stopped():
    late, answers, reactor = Deferred(lambda _: None), [], MemoryReactor()
    module = TrafficCopyFactory().build({"upstream": "next", "timeout": "1s"})
    module.start(FakeMeans({"next": Service(lambda request: late)}, reactor=reactor), None)
    made = exchange("PRE_UPSTREAM", clock=reactor.clock)
    module.process(made)
    made.promised()[2][0](made, lambda: answers.append(1) or Response(200))
    late.addErrback(lambda failure: Response(200, body=giver.body))
    giver = Giver([b"ok"])
    reactor.run()
    module.stop()
    assert giver.stopped
    assert module.copies.under == set()


@pytest.mark.parametrize("params", ["", "compare: {body: json}"])
@pytest.mark.parametrize("ask", [GET, b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nok"])
def test_nothing_is_left_to_the_garbage_collector(params, ask):
    with MemoryGateway(config(params)) as gateway:
        upstreams(gateway)
        assert garbage(gateway, ask) == set()


def test_a_path_that_is_none_is_no_trouble(flush_errors):
    with MemoryGateway(config("path: \"/%2${request.headers['x-a']}\"")) as gateway:
        _, following = upstreams(gateway)
        assert gateway.ask(GET).endswith(b"ok")
        assert (following.received, counts(gateway)) == ([], {"failed": 1})
    flush_errors()


# -- comparing


def compared(params, one, other, **named):
    with MemoryGateway(config(f"compare: {{{params}}}", **named)) as gateway:
        told = []
        upstreams(gateway, [Expect(b"\r\n\r\n"), one], [Expect(b"\r\n\r\n"), other])
        for stage in gateway.service.built.bound.values():
            for bound in stage:
                bound.module._tell._emit = lambda text, **fields: told.append(fields)
        gateway.ask(GET)
        gateway.run()
        found = counts(gateway)
        assert found.pop("copied") == 1
        return {name: found[name] for name in ("matched", "differed", "uncompared") if name in found}, told


def answer(content, status=b"200 OK", *lines):
    head = b"".join(line + b"\r\n" for line in (*lines, b"Connection: close"))
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, head, len(content), content)


def test_answers_that_are_the_same():
    other = answer(b"ok", b"200 Fine", b"Date: Thu, 01 Jan 1970 00:00:00 GMT", b"Server: other")
    assert compared("", OK, other) == ({"matched": 1}, [])
    assert compared("body: json", answer(b'{"a":1,"b":2}'), answer(b'{"b": 2, "a": 1}')) == ({"matched": 1}, [])


def test_a_difference_is_counted_and_told_with_the_id_of_the_request():
    found, (told,) = compared("", OK, answer(b"no", b"500 No"))
    assert found == {"differed": 1}
    assert (told["found"], told["upstream"], told["path"]) == ("status: 200, 500; content", "next", "/a")
    assert len(told["id"]) == 32


def test_rules_of_what_does_not_count():
    one, other = answer(b'{"at": 1, "x": [{"s": 1}]}', b"200 OK", b"ETag: a"), answer(b'{"at": 2, "x": [{"s": 2}]}')
    rules = "body: json, ignorePaths: [/at, /x/*/s], ignoreHeaders: [ETag]"
    assert compared(rules, one, other) == ({"matched": 1}, [])
    assert compared("status: false, headers: false, body: none", one, answer(b"", b"404 No")) == ({"matched": 1}, [])


def test_lines_are_bounded_in_rate():
    with MemoryGateway(config("compare: {}, logInterval: 10s")) as gateway:
        upstreams(gateway, other=[Expect(b"\r\n\r\n"), answer(b"no")])
        told = []
        (bound,) = gateway.service.built.bound["PRE_UPSTREAM"]
        bound.module._tell._emit = lambda text, **fields: told.append(fields["suppressed"])
        for _ in range(5):
            gateway.ask(GET)
        assert (told, counts(gateway)["differed"]) == ([0], 5)
        gateway.advance(11)
        gateway.ask(GET)
        assert told == [0, 4]


@pytest.mark.parametrize("half", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b""])
def test_what_is_not_complete_is_not_compared(half):
    with MemoryGateway(config("compare: {}, timeout: 1s")) as gateway:
        upstreams(gateway, other=[Expect(b"\r\n\r\n"), half, Do.SILENCE])
        gateway.ask(GET)
        gateway.advance(2)
        assert counts(gateway)["uncompared"] == 1
    with MemoryGateway(config("compare: {}, timeout: 1s")) as gateway:
        upstreams(gateway, [Expect(b"\r\n\r\n"), half, Do.SILENCE])
        client = gateway.client()
        client.send(GET)
        gateway.run()
        client.reset()
        gateway.run()
        assert counts(gateway)["uncompared"] == 1


def test_what_breaks_off_on_the_way_to_the_client_is_not_compared():
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
    with MemoryGateway(config("compare: {}")) as gateway:
        upstreams(gateway, [Expect(b"\r\n\r\n"), half, Do.CLOSE])
        assert gateway.ask(GET).endswith(b"half")
        assert counts(gateway) == {"copied": 1, "copy_2xx": 1, "uncompared": 1}


def test_what_cannot_be_compared_is_not(monkeypatch):
    def fail(*args):
        raise RecursionError

    monkeypatch.setattr(copyunderway, "differences", fail)
    assert compared("", OK, OK) == ({"uncompared": 1}, [])


def test_large_answers_are_compared_without_being_kept():
    one, other = b"x" * (1 << 20), b"x" * ((1 << 20) - 1) + b"y"
    assert compared("body: json, limit: 1KiB", answer(one), answer(one))[0] == {"matched": 1}
    assert compared("", answer(one), answer(other))[0] == {"differed": 1}


# -- over any protocol


@pytest.mark.parametrize("spoken", CODECS)
@pytest.mark.parametrize("codec", CODECS)
def test_from_any_protocol_to_any_other(codec, spoken):
    """The copy goes to another listener of the same gateway, and from there to an upstream that is watched."""
    text = f"""
listeners:
  - {{name: web, address: "127.0.0.1:8080", protocols: [{codec}]}}
  - {{name: next, address: "127.0.0.1:8081", protocols: [{spoken}]}}
upstreams:
  - {{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}
  - {{name: watched, endpoints: [{{url: "http://192.0.2.8:80"}}]}}
  - {{name: next, protocol: {spoken}, endpoints: [{{url: "http://127.0.0.1:8081"}}]}}
routes:
  - value: /1001
    matcherType: prefix
    routes:
      - {{condition: "request.headers['x-protogate-copy'] == '1'", targets: [{{upstream: watched}}]}}
      - {{targets: [{{upstream: shop}}]}}
modules: [{{name: trafficCopy, actionParam: {{upstream: next, compare: {{body: digest, headers: false}}}}}}]
"""
    with MemoryGateway(text) as gateway:
        script = [Expect(b"hello"), OK]
        shop, watched = gateway.upstream("192.0.2.7", 80, script), gateway.upstream("192.0.2.8", 80, script)
        caller = Caller(gateway, codec, "web")
        got = caller.ask(b"POST", b"/1001/get", [(b"x-a", b"1")], b"hello")
        caller.close()
        assert (got.status, got.content) == (200, b"ok")
        for received in (shop.received[0], watched.received[0]):
            assert received.startswith(b"POST /1001/get HTTP/1.1\r\n")
            assert b"x-a: 1\r\n" in received
            assert received.endswith(b"hello")
        assert counts(gateway) == {"copied": 1, "copy_2xx": 1, "matched": 1, "looped": 1}


def test_the_mark_is_what_the_page_says():
    assert trafficcopy.MARK == b"x-protogate-copy"
