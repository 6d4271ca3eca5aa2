"""quota: what a day or a month has, alone and with others, and what holds without the store."""

from __future__ import annotations

from functools import partial

import limiting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limiting import STORE
from test_periods import at
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import CLIENT
from protogate.governance.quota import QuotaFactory
from protogate.governance.quotascript import KEEP
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect

Stand = partial(limiting.Stand, QuotaFactory)


def count(stand, key="192.0.2.1", day="2026-11-30", name="api"):
    """What the store has counted."""
    return stand.server.get(f"protogate:quota:{name}:{day}:{key}".encode())


class QuotaContract(ModuleContract, SynchronousTestCase):
    factory = QuotaFactory
    good = (
        {"limit": 10, "per": "day"},
        {"limit": 10, "per": "month", "timeZone": "Asia/Shanghai", "headers": True, "cost": 2, "keys": 5},
        {"limit": 10, "per": "day", "key": "${request.headers['x-a']}", "cost": "${request.headers['x-a']}"},
        {"limit": 10, "per": "day", "name": "api", "redis": STORE, "whenStoreFails": "closed"},
    )
    bad = (
        ({"per": "day"}, "limit"),
        ({"limit": 10}, "per"),
        ({"limit": 10, "per": "year"}, "per"),
        ({"limit": 0, "per": "day"}, "limit"),
        ({"limit": "10", "per": "day"}, "limit"),
        ({"limit": 10, "per": "day", "timeZone": "Mars/Olympus"}, "timeZone"),
        ({"limit": 10, "per": "day", "cost": 11}, "cost"),
        ({"limit": 10, "per": "day", "name": "1"}, "name"),
        ({"limit": 10, "per": "day", "redis": STORE}, "name"),
        ({"limit": 10, "per": "day", "whenStoreFails": "open"}, "whenStoreFails"),
        ({"limit": 10, "per": "day", "keys": 0}, "keys"),
        ({"limit": 10, "per": "day", "timezone": "UTC"}, "timezone"),
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


def test_a_day_has_so_many_for_each_client(stand):
    module = stand.module(limit=5, per="day")
    assert stand.passed(module, 9, ip="192.0.2.1") == 5
    assert stand.passed(module, 9, ip="192.0.2.2") == 5
    stand.reactor.clock.advance(11 * 3600)
    assert stand.passed(module, 1) == 0
    stand.reactor.clock.advance(3600)
    assert stand.passed(module, 9) == 5


def test_a_month_ends_where_its_zone_is(stand):
    module = stand.module(limit=5, per="month", timeZone="Asia/Shanghai")
    assert stand.passed(module, 9) == 5
    stand.reactor.clock.advance(4 * 3600)
    assert stand.passed(module, 9) == 5, "it is December in Shanghai"
    stand.reactor.clock.advance(30 * 86400)
    assert stand.passed(module, 9) == 0


def test_a_refusal_says_when_the_next_one_begins(stand):
    module = stand.module(limit=5, per="day", name="api", cost=3)
    stand.ask(module)
    abort = stand.ask(module)
    assert (abort.who, abort.status, abort.reason) == (CLIENT, 429, "quota api: used up")
    assert dict(abort.headers) == {
        b"retry-after": b"43200",
        b"ratelimit": b'"api";r=0;t=43200',
        b"ratelimit-policy": b'"api";q=5;w=86400',
    }


def test_all_answers_tell_what_is_left_where_that_is_wanted(stand):
    module = stand.module(limit=50, per="month", headers=True)
    made = exchange(clock=stand.reactor.clock)
    module.process(made)
    assert made.fields == [
        (b"ratelimit-policy", b'"default";q=50;w=2592000'),
        (b"ratelimit", b'"default";r=49;t=43200'),
    ]


def test_workers_have_a_part_each():
    stand = Stand(workers=4)
    modules = [stand.module(limit=10, per="day") for _ in range(4)]
    assert sum(stand.passed(module, 10) for module in modules) == 8


def test_what_was_used_is_kept_over_a_reload(stand):
    module = stand.module(limit=5, per="day")
    assert stand.passed(module, 9) == 5
    module = stand.module(module, limit=8, per="day")
    assert stand.passed(module, 9) == 3
    module = stand.module(module, limit=2, per="day")
    assert stand.passed(module, 9) == 0
    for other in ({"per": "month"}, {"per": "day", "timeZone": "Asia/Shanghai"}, {"per": "day", "key": "all"}):
        assert stand.passed(stand.module(module, limit=2, **other), 9) == 2, other


def test_keys_beyond_the_most_are_counted(stand):
    module = stand.module(limit=1, per="day", keys=2)
    assert sum(stand.ask(module, ip=f"192.0.2.{n}") is None for n in range(20)) == 3
    assert stand.counted["keys_shared"] == 18


# -- shared


def test_gateways_with_one_store_have_one_quota(shared):
    modules = [shared.module(limit=10, per="day", name="api", redis=STORE) for _ in range(4)]
    assert sum(shared.passed(module, 4) for module in modules) == 10
    assert count(shared) == 10
    assert shared.server.values[b"protogate:quota:api:2026-11-30:192.0.2.1"][1] == at("2026-12-02T00:00:00")
    for module in modules:
        module.stop()


def test_one_in_the_shadow_uses_nothing_of_it(shared):
    tried = shared.module(limit=3, per="day", name="api", redis=STORE, shadow=True)
    real = shared.module(limit=10, per="day", name="api", redis=STORE)
    assert (shared.passed(tried, 5), shared.passed(real, 12)) == (3, 10)
    for module in (tried, real):
        module.stop()


def test_a_busy_key_asks_seldom_and_gives_back_what_it_did_not_need(shared):
    module = shared.module(limit=100_000, per="day", name="api", redis=STORE)
    for _ in range(400):
        assert shared.ask(module) is None
        shared.reactor.clock.advance(0.0025)
    asked = len(shared.server.asked)
    for _ in range(400):
        assert shared.ask(module) is None
        shared.reactor.clock.advance(0.0025)
    assert len(shared.server.asked) - asked < 40
    assert count(shared) >= 800
    shared.reactor.advance(3 * KEEP)
    assert count(shared) == 800, "what was held is there again"
    module.stop()


def test_what_is_held_at_the_end_is_given_back(shared):
    module = shared.module(limit=100_000, per="day", name="api", redis=STORE)
    for _ in range(40):
        shared.ask(module)
        shared.reactor.clock.advance(0.001)
    assert count(shared) > 40
    module.stop()
    shared.reactor.run()
    assert count(shared) == 40


def test_what_comes_after_the_end_is_given_back(shared):
    module = shared.module(limit=100_000, per="day", name="api", redis=STORE)
    shared.module(limit=1, per="day", name="other", redis=STORE)  # so that the connection stays
    shared.server.silent = True
    waiting = [module.process(exchange(clock=shared.reactor.clock)) for _ in range(5)]
    waiting[1].addErrback(lambda _: None)
    shared.reactor.run()
    waiting[0].cancel()
    waiting[0].addErrback(lambda _: None)
    module.stop()
    shared.server.speak()
    shared.reactor.run()
    assert count(shared) == 4, "who left took nothing"


def test_a_quota_used_up_is_asked_for_once_a_second(shared):
    module = shared.module(limit=3, per="day", name="api", redis=STORE)
    assert shared.passed(module, 5) == 3
    asked = len(shared.server.asked)
    for _ in range(50):
        assert shared.ask(module).status == 429
        shared.reactor.clock.advance(0.1)
    assert len(shared.server.asked) - asked <= 6
    shared.server.values.clear()  # an operator gives him another chance
    shared.reactor.advance(1.1)
    assert shared.ask(module) is None
    module.stop()


def test_a_costly_request_takes_nothing_where_it_does_not_fit(shared):
    module = shared.module(limit=10, per="day", name="api", redis=STORE, cost="${request.headers['x-cost']}")

    def costs(text):
        result = shared.ask(module, headers=[(b"x-cost", text)])
        shared.reactor.advance(0.1)
        return result is None

    assert [costs(text) for text in (b"8", b"5", b"2", b"1")] == [True, False, True, False]
    assert count(shared) == 10
    module.stop()


def test_the_next_day_is_another_quota(shared):
    module = shared.module(limit=3, per="day", name="api", redis=STORE)
    assert shared.passed(module, 5) == 3
    shared.reactor.clock.advance(12 * 3600)
    assert shared.passed(module, 5) == 3
    assert (count(shared), count(shared, day="2026-12-01")) == (3, 3)
    module.stop()


@pytest.mark.parametrize(("policy", "passed"), [("local", 10), ("open", 20), ("closed", 0)])
def test_without_the_store_the_configuration_says_what_holds(policy, passed):
    stand = Stand()
    module = stand.module(limit=10, per="day", name="api", redis=STORE, whenStoreFails=policy)
    assert stand.passed(module, 20) == passed
    assert stand.counted["store_failed"] == 20
    module.stop()
    stand.close()


def test_when_the_store_goes_each_worker_has_its_part_of_what_was_left(shared):
    shared.workers = 2
    module = shared.module(limit=10, per="day", name="api", redis=STORE)
    assert shared.passed(module, 6) == 6
    shared.port.stopListening()
    shared.server.drop()
    shared.reactor.run()
    assert shared.passed(module, 9) == 2
    module.stop()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.sampled_from([0.0, 0.004, 0.05, 1.3])), max_size=40),
)
def test_all_processes_together_never_let_through_more_than_there_is(processes, limit, steps):
    stand = Stand(store=True)
    modules = [stand.module(limit=limit, per="day", name="api", redis=STORE) for _ in range(processes)]
    passed = 0
    for process, requests, wait in steps:
        passed += stand.passed(modules[process % processes], requests)
        stand.reactor.advance(wait)
        assert passed <= limit
    for module in modules:
        module.stop()
    stand.reactor.run()
    assert (count(stand) or 0) == passed, "nothing is lost"
    stand.close()


def test_in_a_gateway():
    text = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules: [{name: quota, actionParam: {limit: 2, per: month, headers: true}}]
"""
    ask = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
    with MemoryGateway(text) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        answers = [gateway.ask(ask) for _ in range(2)]
        assert b'ratelimit: "default";r=0;t=' in answers[1]
        assert gateway.reload(text.replace("limit: 2", "limit: 3"))
        answers += [gateway.ask(ask) for _ in range(2)]
        assert [answer[9:12] for answer in answers] == [b"204", b"204", b"204", b"429"]
