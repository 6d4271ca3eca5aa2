"""concurrencyLimit: places are taken, waited for, and given back exactly once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import CLIENT, CLIENT_GONE, UPSTREAM, Abort
from protogate.expression import template
from protogate.governance.concurrencylimit import ConcurrencyLimitFactory, took
from protogate.governance.slots import NOTHING, Slots
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.means import FakeMeans
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Do, Expect
from protogate.wheel import Wheel


class ConcurrencyLimitContract(ModuleContract, SynchronousTestCase):
    factory = ConcurrencyLimitFactory
    good = (
        {"limit": 10},
        {"limit": 10, "key": "${source.ip}", "queue": 5, "wait": "1s", "status": 503},
        {"adaptive": {}, "keys": 10},
        {"adaptive": {}, "per": "upstream", "keys": 10, "queue": 1, "wait": "1s"},
        {"adaptive": {"min": 1, "max": 5, "initial": 2, "tolerance": 2}, "key": "${request.headers['x-a']}"},
    )
    bad = (
        ({}, ""),
        ({"limit": 1, "adaptive": {}}, ""),
        ({"limit": 0}, "limit"),
        ({"limit": "10"}, "limit"),
        ({"adaptive": 10}, "adaptive"),
        ({"adaptive": {"min": 0}}, "min"),
        ({"adaptive": {"min": 20, "max": 10}}, "max"),
        ({"adaptive": {"initial": 5}}, "initial"),
        ({"adaptive": {"tolerance": 0.5}}, "tolerance"),
        ({"adaptive": {"tolerance": True}}, "tolerance"),
        ({"adaptive": {"minimum": 1}}, "minimum"),
        ({"limit": 1, "keys": 5}, "keys"),
        ({"limit": 1, "wait": "1s"}, "wait"),
        ({"limit": 1, "queue": -1}, "queue"),
        ({"limit": 1, "queue": 1, "wait": "0"}, "wait"),
        ({"limit": 1, "status": 200}, "status"),
        ({"limt": 1}, "limt"),
        ({"limit": 1, "per": "route"}, "per"),
        ({"limit": 1, "per": "upstream", "key": "${source.ip}"}, "key"),
    )


class Stand:
    """A module, and exchanges that it sees."""

    def __init__(self, workers=1):
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor.clock)
        self.counted, self.gauges, self.workers = Counter(), {}, workers

    def module(self, before=None, **params):
        compiled = {
            name: template.compile(value) if isinstance(value, str) else value for name, value in params.items()
        }
        made = ConcurrencyLimitFactory().build(compiled)
        means = FakeMeans(
            reactor=self.reactor, wheel=self.wheel, counted=self.counted, gauges=self.gauges, workers=self.workers
        )
        made.start(means, before)
        if before is not None:
            before.stop()
        return made

    def ask(self, module, **more):
        """The exchange, and what became of it: None, an Abort, or a list that will have one of them."""
        made = exchange(clock=self.reactor.clock, **more)
        try:
            result = module.process(made)
        except Abort as abort:
            return made, abort
        if isinstance(result, Deferred):
            found = []
            result.addCallbacks(found.append, lambda failure: found.append(failure.value))
            self.waiting = result
            return made, found
        return made, result


@pytest.fixture
def stand():
    return Stand()


def test_so_many_at_a_time(stand):
    module = stand.module(limit=3)
    inside = [stand.ask(module) for _ in range(3)]
    assert [result for _, result in inside] == [None] * 3
    abort = stand.ask(module)[1]
    assert (abort.who, abort.status, abort.error, abort.detail) == (
        CLIENT,
        503,
        "http_request_denied",
        "too many requests at a time",
    )
    assert abort.headers == [(b"retry-after", b"1")]
    inside[1][0].closed(None)
    assert stand.ask(module)[1] is None
    assert stand.ask(module)[1].status == 503
    assert stand.counted["limited"] == 2


def test_who_was_refused_gives_nothing_back(stand):
    module = stand.module(limit=1)
    inside, _ = stand.ask(module)
    for _ in range(5):
        refused, abort = stand.ask(module)
        assert isinstance(abort, Abort)
        refused.closed(abort)
    assert stand.ask(module)[1].status == 503
    inside.closed(CLIENT_GONE)
    assert stand.ask(module)[1] is None


def test_for_each_key_by_itself(stand):
    module = stand.module(limit=1, key="${source.ip}")
    one, _ = stand.ask(module, ip="192.0.2.1")
    assert stand.ask(module, ip="192.0.2.2")[1] is None
    assert stand.ask(module, ip="192.0.2.1")[1].status == 429
    assert len(module._slots) == 2
    one.closed(None)
    assert len(module._slots) == 1, "who has no place is forgotten"


def test_who_waits_gets_the_next_place_in_turn(stand):
    module = stand.module(limit=1, queue=2, wait="1s")
    inside, _ = stand.ask(module)
    first, one = stand.ask(module)
    _, two = stand.ask(module)
    assert stand.ask(module)[1].status == 503, "the queue is full"
    assert (one, two) == ([], [])
    inside.closed(None)
    assert (one, two) == ([None], [])
    stand.reactor.advance(0.9)
    first.closed(None)
    assert two == [None]
    assert stand.counted == {"queued": 2, "limited": 1}


def test_who_waits_too_long_goes_without(stand):
    module = stand.module(limit=1, queue=2, wait="200ms")
    inside, _ = stand.ask(module)
    _, found = stand.ask(module)
    stand.reactor.advance(0.3)
    assert found[0].status == 503
    assert "within 0.2 s" in found[0].reason
    inside.closed(None)
    assert stand.ask(module)[1] is None, "its place is not kept for it"
    assert stand.counted == {"queued": 1, "limited": 1, "queue_timeout": 1}


def test_who_leaves_the_queue_gets_no_place(stand):
    module = stand.module(limit=1, queue=2, wait="1s")
    inside, _ = stand.ask(module)
    _, found = stand.ask(module)
    stand.waiting.cancel()
    assert len(found) == 1
    inside.closed(None)
    assert len(module._slots) == 0
    assert stand.ask(module)[1] is None


@pytest.mark.unwatched
def test_a_long_queue_is_served_without_a_deep_stack(stand):
    """Each is over as soon as it has its place."""
    module = stand.module(limit=1, queue=5000, wait="10s")
    inside, _ = stand.ask(module)
    over = 0

    def end(_, made):
        nonlocal over
        over += 1
        made.closed(None)

    for _ in range(5000):
        made = exchange(clock=stand.reactor.clock)
        module.process(made).addCallback(end, made)
    inside.closed(None)
    assert over == 5000
    assert len(module._slots) == 0


def test_workers_share_the_places():
    stand = Stand(workers=4)
    modules = [stand.module(limit=10, queue=4, wait="1s") for _ in range(4)]
    passed = sum(stand.ask(module)[1] is None for module in modules for _ in range(10))
    assert passed == 8, "rounded down: never more than all together may have"
    few = [stand.module(limit=2) for _ in range(4)]
    assert sum(stand.ask(module)[1] is None for module in few for _ in range(5)) == 4, "but one each"


def test_places_stay_taken_over_a_reload(stand):
    module = stand.module(limit=2)
    inside = [stand.ask(module)[0] for _ in range(2)]
    after = stand.module(module, limit=3)
    third, passed = stand.ask(after)
    assert passed is None
    assert stand.ask(after)[1].status == 503
    less = stand.module(after, limit=1)
    for each in (*inside, third):
        assert stand.ask(less)[1].status == 503
        each.closed(None)
    assert stand.ask(less)[1] is None
    other = stand.module(less, limit=1, key="${source.ip}")
    assert stand.ask(other)[1] is None, "another key is another limit"


def test_who_waits_over_a_reload_is_served_by_the_new_one(stand):
    module = stand.module(limit=1, queue=5, wait="1s")
    stand.ask(module)
    _, one = stand.ask(module)
    _, two = stand.ask(module)
    stand.module(module, limit=2, queue=5, wait="1s")
    assert (one, two) == ([None], [])


def test_nobody_waits_for_a_limit_that_is_gone(stand):
    module = stand.module(limit=1, queue=5, wait="1s")
    inside, _ = stand.ask(module)
    _, one = stand.ask(module)
    module.stop()
    assert one == [None]
    assert stand.ask(module)[1] is None
    inside.closed(None)
    stand.reactor.advance(0.1)
    assert stand.reactor.getDelayedCalls() == []


def test_it_works_before_it_was_started():
    module = ConcurrencyLimitFactory().build({"limit": 1})
    assert module.process(exchange()) is None
    with pytest.raises(Abort):
        module.process(exchange())


# -- learnt


def answered(made, seconds, status=200):
    ledger, now = made.ledger, made.wheel.now()
    ledger.chosen, ledger.answered = now - seconds, now
    made.response.status = status
    made.closed(None)


def test_the_limit_follows_what_the_upstream_takes(stand):
    module = stand.module(adaptive={"min": 5, "max": 100, "initial": 10})

    def second(seconds):
        inside = []
        while True:
            made, result = stand.ask(module, stage="POST_RESPONSE")
            if result is not None:
                break
            inside.append(made)
        stand.reactor.clock.advance(1.01)
        for made in inside:
            answered(made, seconds)
        return len(inside)

    grown = [second(0.01) for _ in range(40)]
    assert grown[0] == 10
    assert grown[-1] > 25
    shrunk = [second(0.2) for _ in range(40)]
    assert shrunk[-1] < 10
    assert min(shrunk) >= 5
    assert module._slots.learnt == pytest.approx(shrunk[-1], abs=2)


def test_it_tells_how_much_there_is_and_how_much_is_taken(stand):
    module = stand.module(limit=1, queue=1)
    inside, _ = stand.ask(module)
    stand.ask(module)
    assert {name: read() for name, read in stand.gauges.items()} == {"busy": 1, "waiting": 1}
    stand.waiting.cancel()
    inside.closed(None)
    assert {name: read() for name, read in stand.gauges.items()} == {"busy": 0, "waiting": 0}
    module = stand.module(adaptive={"min": 5, "max": 100, "initial": 50}, key="${request.path}", keys=2)
    for target in (b"/a", b"/b", b"/c"):
        stand.ask(module, target=target)[0].closed(None)
    assert stand.gauges["places"]() == 100, "of the keys that are remembered"


def test_what_was_learnt_is_kept_over_a_reload_within_new_bounds(stand):
    module = stand.module(adaptive={"min": 5, "max": 100, "initial": 50})
    stand.ask(module)
    module = stand.module(module, adaptive={"min": 5, "max": 100, "initial": 20})
    assert module._slots.learnt == 50
    module = stand.module(module, adaptive={"min": 5, "max": 30})
    assert module._slots.learnt == 30
    module = stand.module(module, limit=7)
    assert module._slots.learnt == 0


def test_keys_whose_limits_are_learnt_are_bounded(stand):
    module = stand.module(adaptive={}, key="${source.ip}", keys=3)
    for n in range(50):
        made, result = stand.ask(module, ip=f"192.0.2.{n}")
        assert result is None
        made.closed(None)
    assert len(module._slots) == 3


@pytest.mark.parametrize(
    ("chosen", "answered", "status", "reason", "expected"),
    [
        (1.0, 1.5, 200, None, 0.5),
        (1.0, 1.5, 404, None, 0.5),
        (1.0, 1.5, 503, None, NOTHING),
        (0.0, 0.0, 429, None, NOTHING),
        (1.0, 0.0, 504, Abort("too late", UPSTREAM, 504), 2.0),
        (1.0, 0.0, 502, Abort("refused", UPSTREAM, 502), NOTHING),
        (1.0, 0.0, 499, CLIENT_GONE, NOTHING),
        (1.0, 1.5, 200, CLIENT_GONE, 0.5),
    ],
)
def test_what_an_answer_says_about_the_upstream(chosen, answered, status, reason, expected):
    made = exchange("POST_RESPONSE", status=status)
    made.ledger.chosen, made.ledger.answered, made.ledger.end = chosen, answered, 3.0
    made.reason = reason
    assert took(made) == pytest.approx(expected)


# -- whatever happens


class Crowd(RuleBasedStateMachine):
    """Requests come, wait, leave and end in any order."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.clock.advance(1000)
        self.wheel = Wheel(self.clock)
        self.slots = Slots(3, queue=2, wait=0.5)
        self.inside, self.waiting = 0, []

    def _granted(self, taken, waiter):
        self.waiting.remove(waiter)
        self.inside += taken

    @rule()
    def come(self):
        before = self.inside, len(self.waiting)
        taken = self.slots.take("k", self.wheel)
        if isinstance(taken, Deferred):
            assert before[0] >= 3
            self.waiting.append(taken)
            taken.addCallbacks(self._granted, lambda _: None, callbackArgs=(taken,))
        else:
            assert taken is (before[0] < 3)
            assert taken or before[1] == 2
            self.inside += taken

    @precondition(lambda self: self.inside)
    @rule()
    def end(self):
        self.inside -= 1
        self.slots.give("k", NOTHING, self.wheel)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        waiter = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        waiter.cancel()

    @rule(seconds=st.sampled_from([0.1, 0.6]))
    def time_goes_by(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def nobody_waits_beside_a_free_place(self):
        assert self.inside <= 3
        assert not self.waiting or self.inside == 3
        assert len(self.slots) == bool(self.inside or self.waiting)
        assert (self.slots.busy, self.slots.waiting) == (self.inside, len(self.waiting))


Crowd.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestCrowd = Crowd.TestCase


# -- in gateways

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}], timeouts: {responseHead: 500ms}}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: concurrencyLimit, exceptionHandle: continue, actionParam: {limit: 1}}
"""
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"]


@pytest.mark.parametrize(
    "script",
    [
        OK,
        [Expect(b"\r\n\r\n"), Do.RESET],
        [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", Do.RESET],
        [Expect(b"\r\n\r\n"), b"nonsense\r\n\r\n", Do.SILENCE],
        [Expect(b"\r\n\r\n"), Do.SILENCE],
    ],
    ids=["answer", "reset", "half an answer", "nonsense", "silence"],
)
@pytest.mark.parametrize("leaves", [False, True])
def test_however_it_ends_the_place_is_free_again(script, leaves):
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, script, script, OK)
        for _ in range(2):
            client = gateway.client()
            client.send(GET)
            if leaves:
                gateway.reactor.run(rounds=3)
                client.reset()
            gateway.advance(1)
            client.close()
            gateway.advance(0.1)
        assert gateway.ask(GET).startswith(b"HTTP/1.1 204 ")
        assert 503 not in [record.status for record in gateway.records]


def test_a_second_one_is_refused_while_the_first_is_under_way_and_nothing_overrules_that():
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Do.SILENCE], OK)
        first = gateway.client()
        first.send(GET)
        gateway.run()
        assert gateway.ask(GET).startswith(b"HTTP/1.1 503 ")
        first.close()
        gateway.run()
        assert gateway.ask(GET).startswith(b"HTTP/1.1 204 ")


def test_a_place_is_waited_for_in_a_gateway():
    with MemoryGateway(CONFIG.replace("limit: 1", "limit: 1, queue: 1, wait: 1s")) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Do.SILENCE], OK)
        first, second, third = gateway.client(), gateway.client(), gateway.client()
        for client in (first, second, third):
            client.send(GET)
            gateway.run()
        assert second.received == b""
        assert third.received.startswith(b"HTTP/1.1 503 ")
        gateway.advance(0.6)
        assert first.received.startswith(b"HTTP/1.1 504 ")
        assert second.received.startswith(b"HTTP/1.1 204 ")


# -- for each upstream

PER = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: one, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: two, endpoints: [{url: "http://192.0.2.8:80"}]}
routes:
  - {value: /one, matcherType: prefix, routes: [{targets: [{upstream: one}]}]}
  - {value: /two, matcherType: prefix, routes: [{targets: [{upstream: two}]}]}
modules:
  - {name: concurrencyLimit, actionParam: {%s}}
"""


class Per(MemoryGateway):
    """Two upstreams, which answer when the test says so."""

    def __init__(self, params):
        super().__init__(PER % params)
        self.upstream("192.0.2.7", 80, *[[Expect(b"\r\n\r\n"), Do.SILENCE]] * 9)
        self.upstream("192.0.2.8", 80, *[[Expect(b"\r\n\r\n"), Do.SILENCE]] * 9)

    def get(self, path):
        client = self.client()
        client.send(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
        self.run()
        return client

    @property
    def busy(self):
        module = self.service.plan.pre_request[0]
        return module.gauges["busy"]()


def test_each_upstream_has_places_of_its_own():
    with Per("per: upstream, limit: 2") as gateway:
        inside = [gateway.get(path) for path in ("/one", "/one", "/two")]
        assert [client.received for client in inside] == [b""] * 3
        assert gateway.get("/one").received.startswith(b"HTTP/1.1 503 ")
        assert gateway.get("/two").received == b""
        assert gateway.get("/none").received.startswith(b"HTTP/1.1 404 ")
        assert gateway.busy == 4
        gateway.link(inside[0]).ends[0][1].abortConnection()
        gateway.run()
        assert gateway.busy == 3
        assert gateway.get("/one").received == b""


def test_who_waits_for_an_upstream_gets_its_place_or_is_told():
    with Per("per: upstream, limit: 1, queue: 2, wait: 1s") as gateway:
        first, second, third = (gateway.get("/one") for _ in range(3))
        assert gateway.get("/one").received.startswith(b"HTTP/1.1 503 "), "the queue is full"
        gateway.link(first).ends[0][1].abortConnection()
        gateway.run()
        assert (second.received, third.received, gateway.busy) == (b"", b"", 1)
        gateway.advance(1.5)
        assert (second.received, third.received[:13]) == (b"", b"HTTP/1.1 503 ")
        leaves = gateway.get("/one")
        gateway.link(leaves).ends[0][1].abortConnection()
        gateway.link(second).ends[0][1].abortConnection()
        gateway.run()
        assert gateway.busy == 0


def test_waiting_for_a_place_is_no_time_of_the_upstream():
    made = exchange("POST_RESPONSE")
    made.ledger.chosen, made.ledger.answered = 10.0, 13.0
    assert took(made) == 3.0
    assert took(made, 12.5) == 0.5
