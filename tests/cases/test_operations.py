"""A gateway that goes on: breakers that probe, reloads of whatever is under way, and nothing that is left behind."""

from __future__ import annotations

import copy
import gc
from random import Random

import pytest
from edge import armed, config, known, logged, rule, to
from mixture import ONE, OVERLOAD, WORDS, held, helping, mixture, release
from several import Origin, Several
from twisted.internet.defer import Deferred

from protogate.message import Response
from protogate.testing.bodies import Giver
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
FRONT = ["http1", "http2", "sotp"]
codecs = pytest.mark.parametrize("codec", FRONT)
BREAKER = {"consecutive": 2, "errorRatio": 0, "open": "1s", "probes": 1, "ramp": "0s"}


# -- F13: breakers


@codecs
def test_what_began_before_it_was_probed_makes_no_room_for_another_probe(codec):
    """Answers that take long are over while it is probed: one probe at a time is one all the same."""
    with Several(codec, codec, origins=1, circuitBreaker=BREAKER) as town:
        slow = town.ask()
        for turn in (1, 2):
            town.ask()
            town.at(turn).give(500)
        assert town.ask().status == 503
        town.pass_by(1.2)
        probe = town.ask()
        town.at(3)
        assert town.ask().status == 503
        town.asked[0].give(200, b"late")
        assert slow.status == 200
        assert town.ask().status == 503, "the probe is still under way"
        town.asked[3].give(204)
        assert probe.status == 204
        town.ask()
        town.at(4).give(204)


@codecs
@pytest.mark.parametrize("scope", ["endpoint", "upstream"])
def test_a_probe_whose_client_leaves_makes_room_for_the_next_one(codec, scope):
    with Several(codec, codec, origins=1, circuitBreaker={**BREAKER, "scope": scope}) as town:
        for turn in range(2):
            town.ask()
            town.at(turn).give(500)
        town.pass_by(1.2)
        for turn in (2, 3, 4):
            probe = town.ask()
            town.at(turn)
            assert town.ask().status == 503
            probe.leave()
        last = town.ask()
        town.at(5).give(204)
        assert last.status == 204
        assert town.counts("breaker_closed") == 1


# -- F7, F17: looks at endpoints


@pytest.mark.parametrize("judge", ["healthCheck", "outliers", "circuitBreaker"])
def test_what_is_known_of_an_address_outlives_each_answer_of_dns(judge):
    """Case F7: TTL 0 and 30 in turn, the addresses in either order, one of them not there for a moment."""
    words = {
        "healthCheck": {"interval": "1s", "timeout": "500ms", "fall": 1, "rise": 1000},
        "outliers": {"consecutive": 1, "ejection": "1h", "maxEjection": "1h"},
        "circuitBreaker": {"consecutive": 1, "open": "1h", "maxOpen": "1h"},
    }
    with Several(**{judge: words[judge]}) as town:
        for number, origin in enumerate(town.origins):
            origin.handle = lambda request, number=number: Response(500 if number else 204)
        names = town.gateway.names
        names.ttl = 0
        names.hosts["up.test"] = ["192.0.2.1", "192.0.2.2"]
        assert town.gateway.reload(changed(town, found("up.test")))
        for _ in range(4):
            town.ask()
        town.pass_by(3)
        for turn in range(12):
            names.ttl = (0, 30)[turn % 2]
            names.hosts["up.test"].reverse()
            if turn == 5:
                names.hosts["up.test"] = ["192.0.2.1"]
            if turn == 6:
                names.hosts["up.test"] = ["192.0.2.2", "192.0.2.1"]
            assert {town.ask().status for _ in range(6)} == {204}, turn
            town.pass_by(31 if turn % 2 else 1.1)


@codecs
def test_looks_have_connections_of_their_own_and_say_nothing_to_breakers(codec):
    """Case F17: 200 and 500 in turn, while the only connection of the pool is busy."""
    check = {"interval": "1s", "timeout": "500ms", "path": "/health", "rise": 2, "fall": 3, "method": "HEAD"}
    breaker = {"consecutive": 2, "minRequests": 2, "errorRatio": 0.4}
    with Several(
        "http1", codec, pool=ONE, healthCheck=check, circuitBreaker=breaker, outliers={"consecutive": 2}
    ) as town:
        looks = []
        for origin in town.origins:

            def handle(request, origin=origin, answers=origin.handle):
                if request.target != b"/health":
                    return answers(request)
                looks.append(origin.number)
                return Response(500 if looks.count(origin.number) % 2 else 200)

            origin.handle = handle
        slow = [town.ask(), town.ask()]
        town.pass_by(20)
        assert min(looks.count(number) for number in (0, 1)) > 15
        for each in list(town.asked):
            each.give(200, b"ok")
        assert [each.status for each in slow] == [200, 200]
        counts = town.gateway.service.counters.counts
        assert not [name for name in counts if name.startswith(("breaker", "outlier"))]
        assert {endpoint.share for endpoint in town.gateway.service.plan.clusters["several"].endpoints} == {1.0}


# -- F3, F5, F9: another configuration while requests are under way


def changed(town, change):
    """What the gateway began with, and what else it should be now."""
    made = copy.deepcopy(town.config)
    change(made, made["upstreams"][0])
    return made


def of(**words):
    """A change of the upstream that all are sent to."""

    def change(made, upstream):
        upstream.update(words)

    return change


def by_key(made, upstream):
    upstream.update(balance="hash", hash={"key": "request.headers['x-user']"})


def in_zones(made, upstream):
    made["gateway"]["zone"] = "b"
    for endpoint, zone in zip(upstream["endpoints"], "ab", strict=True):
        endpoint["zone"] = zone
    upstream["zones"] = {}


def overloads(made, upstream):
    made["gateway"]["overload"] = OVERLOAD


def releases(made, upstream):
    made["routes"] = release(100)


def helps(made, upstream):
    made["modules"] = helping()


NAMES = ("next", "mirror", "spare")
MIRROR = 3
CHANGES = {
    "leastRequest": of(balance="leastRequest"),
    "peakEwma": of(balance="peakEwma"),
    "hash": by_key,
    "slowStart": of(slowStart="5s"),
    "zones": in_zones,
    "retry": of(retry={"on": ["reset", "timeout"], "statuses": "503", "perTry": "9s"}),
    "hedge": of(hedge={"after": "100ms"}),
    "outliers": of(outliers={}),
    "circuitBreaker": of(circuitBreaker={}),
    "upstream's breaker": of(circuitBreaker={"scope": "upstream"}),
    "healthCheck": of(healthCheck={"type": "connect"}),
    "standing": of(pool={**ONE, "standing": "5s"}),
    "overload": overloads,
    "release": releases,
    "modules": helps,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("codec", "begins"), [("http1", True), ("http1", False), ("sotp", True)])
def test_whatever_changes_what_is_under_way_is_answered(change, codec, begins):
    """One waits for its answer, one flows, one waits for a connection; connections stay; and back again."""
    # SOTP has many requests on a connection: nobody waits for one.
    with Several(codec, codec, pool=ONE, upstreams=NAMES) as town:
        other = changed(town, change)
        if not begins:
            assert town.gateway.reload(other)
        waits, flows, queued = town.ask(), town.ask(), town.ask()
        before = [each for each in town.asked if each.origin != MIRROR]
        giver = before[1].give(200, b"begin", close=False)
        kept = [list(origin.connections) for origin in town.origins[:2]]
        assert town.gateway.reload(other if begins else town.config)
        town.pass_by(0.05)
        before[0].give(200, b"ok")
        assert flows.status == 200
        assert not flows.content.ended
        giver.write(b"end")
        giver.finish()
        town.run()
        for each in list(town.asked):
            if each.origin != MIRROR and not each.answer.called:
                each.give(200, b"ok")
        assert [each.content.data for each in (waits, flows, queued)] == [b"ok", b"beginend", b"ok"]
        assert [list(origin.connections)[: len(kept[0])] for origin in town.origins[:2]] == kept
        town.pass_by(12)
        assert held(town) == {}
        town.check()
        assert len(town.records) == 3


def test_a_tunnel_survives_whatever_changes_and_is_asked_for_once():
    """Case F3; whatever is timed until there is an answer is over with its head, and nobody else is asked meanwhile."""
    endpoints = [{"url": f"http://192.0.2.{number}", "zone": zone} for number, zone in ((1, "a"), (2, "b"))]
    others = [{"name": name, "endpoints": [{"url": f"http://192.0.2.{at}"}]} for at, name in enumerate(NAMES, 3)]
    began = {
        **config(origin={"name": "several", **WORDS, "pool": ONE, "endpoints": endpoints}, upstreams=others, zone="a")
    }
    began["routes"] = [rule(routes=to("several"))]
    with MemoryGateway(began) as gateway:
        origins = [gateway.upstream(f"192.0.2.{each}", 80, [Expect(b"\r\n\r\n"), Do.SILENCE]) for each in (1, 2)]
        client = gateway.client()
        client.send(UPGRADE)
        gateway.run()
        gateway.advance(0.9)
        ((connection,),) = [origin.connections for origin in origins if origin.connections]
        connection.send(SWITCHED)
        gateway.run()
        assert client.take().startswith(b"HTTP/1.1 101 ")
        for number, change in enumerate(CHANGES.values()):
            made = copy.deepcopy(began)
            change(made, made["upstreams"][0])
            assert gateway.reload(made)
            gateway.advance(3)
            client.send(b"ping %d" % number)
            gateway.run()
            assert connection.received.endswith(b"ping %d" % number)
            connection.send(b"pong %d" % number)
            gateway.run()
            assert client.take() == b"pong %d" % number
        assert sum(each.received.count(b"GET") for origin in origins for each in origin.connections) == 1
        client.close()
        gateway.run()
        connection.close()
        gateway.run()
        assert [(each.status, each.attempts) for each in gateway.records] == [(101, 1)]


GOES = [{"endpoints": [{"url": "http://192.0.2.9"}]}, {"discovery": {"dns": "up.test:80"}, "endpoints": []}]


@pytest.mark.parametrize("words", GOES, ids=["others", "found"])
@pytest.mark.parametrize("when", ["pause", "hedge", "queue"])
def test_endpoints_that_go_are_not_asked_again(words, when):
    """In a pause, before a second attempt, in the queue: who is asked next is one of those that are there by then."""
    retry = {"statuses": "503", "backoff": "1s", "maxBackoff": "1s"}
    with Several(pool=ONE, retry=retry, hedge={"after": "1s", "budget": 100, "floor": 1000}, origins=2) as town:
        new = Origin(town, 8, "http1")
        town.gateway.names.hosts["up.test"] = ["192.0.2.9"]
        answers = [town.ask()]
        if when == "queue":
            answers += [town.ask(), town.ask()]
        if when == "pause":
            town.at(0).give(503)
        assert town.gateway.reload(changed(town, of(**words)))
        town.pass_by(1.1)
        later = town.asked[2 if when == "queue" else 1 :]
        assert {each.origin for each in later} == {8}
        for each in town.asked:
            if not each.answer.called and not each.ends:
                each.give(200, b"ok")
        assert [each.status for each in answers] == [200] * len(answers)
        town.pass_by(1)
        assert not any(origin.connections for origin in town.origins)
        assert held(town) == {}
        new.vanish()
        for each in list(new.connections):
            each.abort()
        town.run()


def found(name, **more):
    return of(endpoints=[], discovery={"dns": f"{name}:80"}, **more)


@pytest.mark.parametrize("comes", ["the same", "others", "failure", "nothing"])
def test_another_source_takes_over_when_it_has_answered(comes):
    """Endpoints that both know keep their connections; who waits for one is served, or told why not in the end."""
    with Several(pool=ONE, origins=1, timeouts={"queue": "9s", "dns": "2s"}) as town:
        new = Origin(town, 8, "http1")
        names = town.gateway.names
        names.hosts["old.test"] = ["192.0.2.1"]
        assert town.gateway.reload(changed(town, found("old.test")))
        busy, waits = town.ask(), town.ask()
        old = town.at(0)
        asked, names._lookup = [], lambda *given: asked.append((Deferred(), given)) or asked[-1][0]
        assert town.gateway.reload(changed(town, found("new.test")))
        (kept,) = town.origins[0].connections
        assert (busy.status, waits.status, len(asked)) == (0, 0, 2)
        del names._lookup
        names.hosts["new.test"] = [] if comes == "failure" else ["192.0.2.1" if comes == "the same" else "192.0.2.9"]
        if comes == "nothing":
            town.pass_by(1.9)
            assert waits.status == 0
            town.pass_by(0.3)
            assert waits.status == 503
        else:
            for answer, given in asked:
                names._lookup(*given).addCallbacks(answer.callback, answer.errback)
            town.run()
        if comes == "others":
            assert town.at(1).origin == 8
            town.at(1).give(204)
            assert waits.status == 204
        old.give(204)
        assert busy.status == 204
        if comes == "the same":
            town.at(1).give(204)
            assert waits.status == 204
            assert list(town.origins[0].connections) == [kept]
        else:
            assert not town.origins[0].connections, "it is in use no more"
        if comes == "failure":
            assert waits.status == 503
        assert held(town) == {}
        new.vanish()
        for each in list(new.connections):
            each.abort()
        town.run()


@pytest.mark.parametrize("fixed", [True, False], ids=["listed instead", "listed besides"])
def test_who_waits_for_the_first_endpoints_is_served_when_a_reload_lists_some(fixed):
    """They waited for an answer that nobody looked for any more, without an end."""
    with Several(origins=1) as town:
        town.gateway.names._lookup = lambda *given: Deferred()
        assert town.gateway.reload(changed(town, found("up.test")))
        answers = [town.ask(), town.ask()]
        assert not town.asked
        besides = {} if fixed else {"discovery": {"dns": "up.test:80"}}
        assert town.gateway.reload(changed(town, of(**besides)))
        assert len(town.asked) == 2
        for each in list(town.asked):
            each.give(204)
        assert [each.status for each in answers] == [204, 204]


@pytest.mark.parametrize("change", [{"protocol": "http2"}, {"protocol": "sotp"}])
def test_what_was_found_for_another_protocol_is_not_asked_in_this_one(change):
    with Several(origins=1) as town:
        names = town.gateway.names
        names.hosts["old.test"] = ["192.0.2.1"]
        assert town.gateway.reload(changed(town, found("old.test")))
        town.ask()
        town.at(0).give(204)
        names._lookup = lambda *given: Deferred()
        assert town.gateway.reload(changed(town, found("new.test", **change)))
        answer = town.ask()
        assert not town.origins[0].connections
        answer.leave()


def module(name, **params):
    def change(made, upstream):
        made["modules"].append({"name": name, "actionParam": params})

    return change


def two_for_all_others(made, upstream):
    made["gateway"]["overload"] = {"priorities": [{"name": "a"}, {"name": "b"}]}


def nobody_for_all_others(made, upstream):
    made["routes"][0]["routes"] = [{"targets": [{"upstream": "several", "gray": 5}]}]


FIRST = "upstreams[0]."
WRONG = {
    FIRST + "retry.perTry": of(retry={"perTry": "1s"}),
    FIRST + "balance": of(balance="hash"),
    FIRST + "circuitBreaker": of(circuitBreaker={"errorRatio": 0}),
    FIRST + "outliers.maxEjection": of(outliers={"ejection": "10s", "maxEjection": "1s"}),
    FIRST + "zones.schedule": of(zones={"schedule": {"nowhere": 1}}),
    FIRST + "discovery": of(discovery={}, endpoints=[]),
    "modules[0].actionParam.upstream": module("trafficCopy", upstream="nobody"),
    "modules[0].actionParam.give[0].upstream": module("degrade", give=[{"upstream": "nobody"}]),
    "gateway.overload.priorities[1]": two_for_all_others,
    "routes[0].routes[0].targets": nobody_for_all_others,
}


@pytest.mark.parametrize("where", WRONG)
def test_what_cannot_be_meant_changes_nothing(where):
    """Case F5: a second attempt begins by the rules that are in force, and so does what comes later."""
    with Several(hedge={"after": "1s", "budget": 100}, retry={"statuses": "503"}) as town:

        def wrong(made, upstream):
            upstream["hedge"] = {"after": "10s"}
            WRONG[where](made, upstream)

        answer = town.ask()
        plan = town.gateway.service.plan
        with logged() as lines:
            assert not town.gateway.reload(changed(town, wrong))
        assert f": {where}: " in lines[-1]
        assert town.gateway.service.plan is plan
        town.pass_by(1.1)
        town.at(1).give(204)
        assert answer.status == 204


# -- F15: thousands of requests, and everything that may happen to them


class Crowd:
    """Clients and origins that do one thing after the other, by chance; 3 of 10 requests are left or broken off."""

    def __init__(self, town, seed):
        self.town, self.dice = town, Random(seed)
        self.made = self.left = 0
        self.answers = []
        self.givers = []

    def go(self, requests):
        """So many, and then until nothing is under way."""
        until = self.made + requests
        while self.made < until:
            self.dice.choices(STEPS, WEIGHTS)[0](self)
            self.answers = [each for each in self.answers if not _over(each)]
        self.settle()

    def ask(self):
        dice = self.dice
        if len(self.answers) > 12:
            self.town.pass_by(0.5)
            return
        fields = [(b"x-user", b"%d" % dice.randrange(30)), *([(b"x-pay", b"1")] if dice.random() < 0.3 else ())]
        upload = None
        if dice.random() < 0.4:
            whole = dice.random() < 0.7
            upload = Giver([b"x" * 1000] * dice.randrange(1, 4), close=whole)
            if not whole:
                self.givers.append(upload)
        method = b"GET" if upload is None else dice.choice((b"PUT", b"POST"))
        self.answers.append(self.town.ask(method, None if upload is None else upload.body, fields))
        self.made += 1

    def answer(self):
        pending = self.pending()
        if not pending:
            return
        asked, dice = self.dice.choice(pending), self.dice
        kind = dice.random()
        if kind < 0.6:
            asked.give(200, b"ok", [(b"cache-control", b"max-age=1")] if dice.random() < 0.3 else ())
        elif kind < 0.8:
            asked.give(dice.choice((503, 503, 500)), b"no")
        elif kind < 0.9:
            self.givers.append(asked.give(200, b"part", close=False))
        elif kind < 0.95:
            asked.hint(b"</x>")
        else:
            self.town.origins[asked.origin].abort()

    def leave(self):
        if not self.answers:
            return
        answer = self.answers.pop(self.dice.randrange(len(self.answers)))
        if answer.status:
            answer.content.stop()
            self.town.run()
        else:
            answer.leave()
        self.left += 1

    def finish(self):
        if self.givers:
            _finish(self.givers.pop(self.dice.randrange(len(self.givers))))
            self.town.run()

    def wait(self):
        self.town.pass_by(self.dice.choice((0.05, 0.2, 0.5, 1.2)))

    def pending(self):
        return [each for each in self.town.asked if not each.ends and not each.answer.called]

    def settle(self):
        """Let all come to an end, and forget what there was."""
        for giver in self.givers:
            _finish(giver)
        self.givers.clear()
        self.town.run()
        for _ in range(100):
            pending = self.pending()
            if not pending and not held(self.town):
                break
            for each in pending:
                if not each.ends and not each.answer.called:
                    each.give(200, b"ok")
            self.town.pass_by(0.5)
        self.town.pass_by(120)
        assert held(self.town) == {}
        self.town.check()
        self.answers.clear()
        self.town.asked.clear()
        self.town.records.clear()
        self.town.reactor.links.clear()


STEPS = (Crowd.ask, Crowd.answer, Crowd.leave, Crowd.finish, Crowd.wait)
WEIGHTS = (35, 30, 8, 15, 12)


def _over(answer):
    return answer.failure is not None or (answer.content is not None and answer.content.ended)


def _finish(giver):
    if not giver.stopped:
        giver.finish()


def _objects():
    gc.unfreeze()
    gc.collect()
    return sum(type(each) is not dict for each in gc.get_objects())  # dicts: of events, for who begins to log


@pytest.mark.parametrize(("front", "behind"), [("http1", "http1"), ("http2", "sotp"), ("sotp", "http2")])
def test_thousands_of_requests_leave_nothing_behind(front, behind):
    """Case F15, with all that may be configured; a pool of one is free, no timer is armed, no connection left."""
    with mixture(front, behind) as town:
        crowd = Crowd(town, 1)
        wheel = town.gateway.service.wheel
        try:
            crowd.go(150)
            objects, timers, links = _objects(), known(wheel), len(town.reactor.net.links)
            for _ in range(2):
                crowd.go(300)
            assert _objects() - objects < 200
            assert armed(wheel) <= timers
            assert known(wheel) <= timers
            assert len(town.reactor.net.links) <= links
        finally:
            gc.freeze()
        counts = town.gateway.service.counters.counts
        for event in ("retry_sent", "hedge_sent", "breaker_opened"):
            assert counts.get(event), event
        assert crowd.left > 0.2 * crowd.made
