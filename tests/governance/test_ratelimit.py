"""rateLimit: who had too much, what is told, and what holds without the store."""

from __future__ import annotations

from functools import partial

import limiting
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived
from limiting import STORE
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.governance.gcrascript import GCRA
from protogate.governance.ratelimit import RateLimitFactory
from protogate.message import Request
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.redis import RedisServer, gcra
from protogate.testing.upstream import Expect
from protogate_sotp.frames import END, REQUEST, RESPONSE, Hello, Reader, frame
from protogate_sotp.heads import read_response, write_request
from protogate_sotp.status import STATUSES

Stand = partial(limiting.Stand, lambda now: RateLimitFactory())
SHARED = {"limit": "10/s", "name": "api", "redis": STORE}


class RateLimitContract(ModuleContract, SynchronousTestCase):
    factory = RateLimitFactory
    good = (
        {"limit": "10/s"},
        {"limit": "1/d", "burst": 5, "key": "${request.headers['x-a']}", "cost": 2, "headers": True, "keys": 10},
        {"limit": "100/10s", "key": "all", "cost": "${request.headers['x-a']}", "name": "api"},
        {**SHARED, "whenStoreFails": "open"},
    )
    bad = (
        ({}, "limit"),
        ({"limit": 10}, "limit"),
        ({"limit": "10"}, "limit"),
        ({"limit": "10/s", "burst": 0}, "burst"),
        ({"limit": "10/s", "cost": 11}, "cost"),
        ({"limit": "10/s", "cost": -1}, "cost"),
        ({"limit": "10/s", "key": 7}, "key"),
        ({"limit": "10/s", "name": "a b"}, "name"),
        ({"limit": "10/s", "keys": 0}, "keys"),
        ({"limit": "10/s", "headers": "yes"}, "headers"),
        ({"limit": "10/s", "redis": STORE}, "name"),
        ({"limit": "10/s", "name": "a", "redis": {"url": "http://a"}}, "url"),
        ({**SHARED, "whenStoreFails": "close"}, "whenStoreFails"),
        ({"limit": "10/s", "whenStoreFails": "open"}, "whenStoreFails"),
        ({"limits": "10/s"}, "limits"),
    )
    waits = True

    def exchange(self, stage):
        return exchange(stage, method=b"POST", headers=[(b"x-a", b"1")], body=b"request")

    def means(self):
        self.stand = Stand(store=True)
        self.addCleanup(self.stand.redises.stop)
        means = self.stand.means()
        self.stand.reactor.run()
        return means

    def answer(self, result):
        self.stand.reactor.run()
        return super().answer(result)


@pytest.fixture
def stand():
    return Stand()


@pytest.fixture
def shared():
    made = Stand(store=True)
    yield made
    made.close()


# -- local


def test_so_many_in_a_time_for_each_client(stand):
    module = stand.module(limit="10/s")
    assert stand.passed(module, 15, ip="192.0.2.1") == 10
    assert stand.passed(module, 15, ip="192.0.2.2") == 10
    stand.reactor.advance(0.5)
    assert stand.passed(module, 15, ip="192.0.2.1") == 5
    assert stand.counted["limited"] == 20


def test_a_refusal_says_when_to_come_back_and_little_else(stand):
    module = stand.module(limit="1/m", burst=2, name="api")
    stand.passed(module, 2)
    stand.reactor.advance(10)
    abort = stand.ask(module)
    assert (abort.who, abort.status, abort.error) == (CLIENT, 429, "http_request_denied")
    assert abort.detail == "too many requests"
    assert dict(abort.headers) == {
        b"retry-after": b"50",
        b"ratelimit": b'"api";r=0;t=110',
        b"ratelimit-policy": b'"api";q=1;w=60',
    }
    assert abort.reason == "rateLimit api: too much", "a key may be a credential: it is not repeated"


def test_all_answers_tell_what_is_left_where_that_is_wanted(stand):
    module = stand.module(limit="10/s", headers=True)
    made = exchange(clock=stand.reactor.clock)
    assert module.process(made) is None
    assert made.fields == [(b"ratelimit-policy", b'"default";q=10;w=1'), (b"ratelimit", b'"default";r=9;t=1')]
    quiet = exchange(clock=stand.reactor.clock)
    stand.module(limit="10/s").process(quiet)
    assert quiet._fields is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:0:ffff::1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("", "", True),
    ],
)
def test_whoever_has_a_network_of_ipv6_is_one_client(stand, one, other, same):
    module = stand.module(limit="1/m")
    assert stand.ask(module, ip=one) is None
    assert (stand.ask(module, ip=other) is not None) is same


def test_by_any_key(stand):
    module = stand.module(limit="1/m", key="${request.headers['x-key']}|${request.method}")
    long = b"k" * 9000
    asked = [(b"GET", b"a"), (b"GET", b"b"), (b"POST", b"a"), (b"GET", b"a"), (b"GET", long), (b"GET", long)]
    passed = [stand.ask(module, method=method, headers=[(b"x-key", key)]) is None for method, key in asked]
    assert passed == [True, True, True, False, True, False]
    assert len(module._key(exchange(headers=[(b"x-key", long)]))) <= 64, "no key is remembered that is long"


def test_for_all_together(stand):
    module = stand.module(limit="5/m", key="everybody")
    assert sum(stand.ask(module, ip=f"192.0.2.{n}") is None for n in range(9)) == 5


def test_requests_have_their_price(stand):
    module = stand.module(limit="10/m", cost="${request.headers['x-cost']}")

    def costs(text):
        return stand.ask(module, headers=[(b"x-cost", text)])

    assert costs(b"7") is None
    assert costs(b"4").status == 429
    assert costs(b"3") is None
    assert costs(b"0") is None, "what costs nothing passes always"
    for wrong in (b"", b"-1", b"1.5", b"many", b"1" * 10):
        abort = costs(wrong)
        assert (abort.who, abort.status) == (GATEWAY, 500)
    stand.reactor.advance(61)
    assert costs(b"999999999") is None, "more than the burst is the burst"
    assert costs(b"1").status == 429


@pytest.mark.parametrize(("limit", "burst"), [("100/s", None), ("10/s", 40), ("3/s", 1), ("7/m", None)])
def test_workers_have_a_part_each_and_together_the_whole(limit, burst):
    workers = 4
    params = {"limit": limit} | ({} if burst is None else {"burst": burst})
    stand = Stand(workers=workers)
    modules = [stand.module(**params) for _ in range(workers)]
    count, period = modules[0]._rate.count, modules[0]._rate.period
    first = sum(stand.passed(module, count * 2) for module in modules)
    assert first == max((burst or count) // workers, 1) * workers
    passed = 0
    for _ in range(20):
        stand.reactor.clock.advance(period / 10)
        passed += sum(stand.passed(module, count // 10 + 1) for module in modules)
    assert passed == pytest.approx(count * 2, abs=workers)


def test_what_was_used_is_kept_over_a_reload(stand):
    module = stand.module(limit="10/m")
    assert stand.passed(module, 20) == 10
    same = stand.module(module, limit="10/m")
    assert stand.passed(same, 5) == 0
    more = stand.module(same, limit="30/m")
    assert stand.passed(more, 50) == 20, "ten of thirty are used"
    assert stand.passed(module, 5) == 0, "exchanges under way under the old one count, too"
    less = stand.module(more, limit="6/m")
    assert stand.passed(less, 5) == 0
    stand.reactor.advance(10.1)
    assert stand.passed(less, 5) == 1
    other = stand.module(less, limit="6/m", key="${request.path}")
    assert stand.passed(other, 20) == 6, "another key is another limit"


def test_keys_beyond_the_most_are_counted_and_limited(stand):
    module = stand.module(limit="1/m", keys=3)
    passed = sum(stand.ask(module, ip=f"192.0.2.{n}") is None for n in range(50))
    assert passed == 4
    assert stand.counted["keys_shared"] == 47


def test_it_works_before_it_was_started():
    module = RateLimitFactory().build({"limit": "2/m"})
    assert [_refused(module) for _ in range(3)] == [False, False, True]


def _refused(module):
    try:
        module.process(exchange())
    except Abort:
        return True
    return False


# -- shared


def test_gateways_with_one_store_have_one_limit(shared):
    modules = [shared.module(limit="10/m", name="api", redis=STORE) for _ in range(4)]
    assert sum(shared.passed(module, 5) for module in modules) == 10
    assert [shared.passed(module, 3) for module in modules] == [0] * 4
    assert list(shared.server.values) == [b"protogate:rate:api:192.0.2.1"]
    other = shared.module(limit="10/m", name="other", redis=STORE)
    assert shared.passed(other, 20) == 10


def test_one_in_the_shadow_uses_nothing_of_it(shared):
    tried = shared.module(limit="3/h", name="api", redis=STORE, shadow=True)
    real = shared.module(limit="10/h", name="api", redis=STORE)
    assert (shared.passed(tried, 5), shared.passed(real, 12)) == (3, 10)
    for module in (tried, real):
        module.stop()


def test_keys_that_may_be_credentials_are_not_seen_in_the_store(shared):
    module = shared.module(key="${request.headers['authorization']}", **SHARED)
    assert shared.ask(module, headers=[(b"authorization", b"s3cret")]) is None
    assert b"s3cret" not in repr(shared.server.asked).encode()
    (key,) = shared.server.values
    assert key.startswith(b"protogate:rate:api:#")


def test_another_number_keeps_what_was_used_in_the_store(shared):
    module = shared.module(limit="10/m", name="api", redis=STORE)
    assert shared.passed(module, 20) == 10
    module = shared.module(module, limit="20/m", name="api", redis=STORE)
    shared.reactor.advance(0.2)
    assert shared.passed(module, 40) == 10


def test_a_shared_refusal_and_what_is_left(shared):
    module = shared.module(limit="6/m", name="api", redis=STORE, headers=True)
    made = exchange(clock=shared.reactor.clock)
    result = module.process(made)
    shared.reactor.run()
    assert isinstance(result, Deferred)
    assert made.fields[1] == (b"ratelimit", b'"api";r=5;t=10')
    shared.passed(module, 5)
    abort = shared.ask(module)
    assert dict(abort.headers)[b"retry-after"] == b"10"


@pytest.mark.parametrize(("policy", "passed", "limited"), [("local", 10, 10), ("open", 20, 0), ("closed", 0, 20)])
def test_without_the_store_the_configuration_says_what_holds(policy, passed, limited):
    stand = Stand()  # nobody listens there
    module = stand.module(whenStoreFails=policy, **SHARED)
    results = [stand.at_once(module) for _ in range(20)]
    assert results.count(None) == passed
    assert all(result is None or (result.status, result.who) == (429, CLIENT) for result in results)
    assert (stand.counted["limited"], stand.counted["store_failed"]) == (limited, 20)
    stand.redises.stop()


def test_when_the_store_goes_the_own_part_begins_where_the_shared_limit_was(shared):
    shared.workers = 2
    module = shared.module(whenStoreFails="local", limit="100/s", name="api", redis=STORE)
    assert shared.passed(module, 150) == 100
    shared.server.drop()
    shared.reactor.run()
    assert shared.passed(module, 50) == 0, "the limit is used up, with or without the store"
    shared.reactor.advance(0.05)
    shared.port.stopListening()
    shared.server.drop()
    shared.reactor.run()
    before = shared.counted["limited"]
    passed = 0
    for _ in range(100):
        shared.reactor.advance(0.05)
        passed += shared.passed(module, 20)
    assert passed == pytest.approx(250, rel=0.03), "half of the limit: the part of one worker of two"
    assert shared.counted["limited"] > before


def test_there_is_a_way_back(shared):
    module = shared.module(whenStoreFails="closed", **SHARED)
    assert shared.ask(module) is None
    shared.server.drop()
    shared.reactor.run()
    assert shared.ask(module).status == 429
    shared.reactor.advance(1)
    failed = shared.counted["store_failed"]
    assert shared.ask(module) is None
    assert shared.counted["store_failed"] == failed == 1


def test_a_store_that_is_silent_delays_nobody_but_the_first(shared):
    module = shared.module(whenStoreFails="open", **SHARED)
    shared.server.silent = True
    found = []
    module.process(exchange(clock=shared.reactor.clock)).addCallback(found.append)
    shared.reactor.advance(0.04)
    assert found == []
    shared.reactor.advance(0.02)
    assert found == [None]
    assert shared.at_once(module) is None


def test_the_store_is_given_back(shared):
    module = shared.module(**SHARED)
    again = shared.module(module, **SHARED)
    assert len(shared.server.connections) == 1
    again.stop()
    again.stop()
    shared.reactor.run()
    assert shared.server.connections == []
    assert shared.at_once(again) is None, "an exchange under way is still judged"


# -- in gateways

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: rateLimit, actionParam: {limit: 2/m, headers: true, name: minute}}
  - {name: rateLimit, exceptionHandle: continue, actionParam: {limit: LIMIT, headers: true, name: day}}
"""
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
OK = [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"]


def test_several_limits_stack_and_none_is_overruled():
    with MemoryGateway(CONFIG.replace("LIMIT", "3/d")) as gateway:
        gateway.upstream("192.0.2.7", 80, OK)
        answers = [gateway.ask(GET) for _ in range(3)]
        assert [answer[9:12] for answer in answers] == [b"204", b"204", b"429"]
        assert b'ratelimit: "minute";r=1;t=30\r\n' in answers[0]
        assert b'ratelimit: "day";r=2;t=28800\r\n' in answers[0]
        assert b"retry-after: 30\r\n" in answers[2]
        assert answers[2].count(b"\r\nratelimit: ") == 1
        gateway.advance(120)
        assert [gateway.ask(GET)[9:12] for _ in range(2)] == [b"204", b"429"]
        assert gateway.records[-1].status == 429


def test_a_reload_gives_nothing_away():
    with MemoryGateway(CONFIG.replace("LIMIT", "3/d")) as gateway:
        gateway.upstream("192.0.2.7", 80, OK)
        assert [gateway.ask(GET)[9:12] for _ in range(2)] == [b"204", b"204"]
        assert gateway.reload(CONFIG.replace("LIMIT", "4/d"))
        assert gateway.ask(GET)[9:12] == b"429"
        gateway.advance(60.1)
        assert [gateway.ask(GET)[9:12] for _ in range(3)] == [b"204", b"204", b"429"]


def test_two_gateways_share_a_limit_and_live_without_their_store():
    text = (
        CONFIG[: CONFIG.index("modules")]
        + """
modules:
  - name: rateLimit
    actionParam: {limit: 4/d, name: api, redis: {url: "redis://192.0.2.9"}, whenStoreFails: closed}
"""
    )
    with MemoryGateway(text) as gateway:
        gateway.upstream("192.0.2.7", 80, OK)
        server = RedisServer(gateway.reactor.seconds, {GCRA: gcra})
        gateway.advance(1)
        assert gateway.ask(GET)[9:12] == b"429", "there is no store yet"
        gateway.reactor.listenTCP(6379, server, interface="192.0.2.9")
        gateway.advance(5)
        # The other gateway is one more user of the same store.
        gcra(server, [b"protogate:rate:api:127.0.0.1"], [b"21600000000", b"4", b"2", b"1"])
        assert [gateway.ask(GET)[9:12] for _ in range(3)] == [b"204", b"204", b"429"]
        assert gateway.reload(text.replace("4/d", "5/d"))
        gateway.advance(0.2)
        assert [gateway.ask(GET)[9:12] for _ in range(2)] == [b"204", b"429"]
        assert gateway.service.counters.counts["redis_ok"] >= 3
        server.drop()
        assert gateway.ask(GET)[9:12] == b"429"
        assert {record.status for record in gateway.records} == {204, 429}
    assert server.connections == []


SPOKEN = CONFIG[: CONFIG.index("modules")].replace('8080"', '8080", protocols: [http1, http2, sotp]')
SPOKEN += "modules: [{name: rateLimit, actionParam: {limit: 1/d}}]"


def test_a_call_of_grpc_has_exhausted_its_resources():
    with MemoryGateway(SPOKEN) as gateway:
        gateway.ask(GET)
        connection = H2Connection(H2Configuration())
        connection.initiate_connection()
        head = {":method": "POST", ":scheme": "http", ":authority": "a.test", ":path": "/shop.Cart/Add"}
        connection.send_headers(1, [*head.items(), ("content-type", "application/grpc"), ("te", "trailers")])
        client = gateway.client()
        client.send(connection.data_to_send())
        gateway.run()
        (answer,) = (each for each in connection.receive_data(client.take()) if isinstance(each, ResponseReceived))
        fields = dict(answer.headers)
        assert (fields[b":status"], fields[b"grpc-status"]) == (b"200", b"8")
        assert fields[b"retry-after"] == b"86400"
        client.close()


def test_a_request_of_sotp_has_exhausted_its_resources():
    with MemoryGateway(SPOKEN) as gateway:
        gateway.ask(GET)
        client = gateway.client()
        request = write_request(Request(b"GET", b"/", authority=b"a.test"), 0, lambda _: None)
        client.send(Hello(heartbeat=0).pack() + frame(REQUEST, END, 1, request))
        gateway.run()
        frames = Reader(Hello().sizes).feed(client.take())
        (payload,) = (payload for kind, _, _, payload in frames if kind == RESPONSE)
        told = read_response(payload)
        assert STATUSES[8][:2] == ("RESOURCE_EXHAUSTED", 429)
        assert (int.from_bytes(payload[:2]), told.status) == (8, 429)
        assert dict(told.fields)[b"retry-after"] == b"86400"
        client.close()
