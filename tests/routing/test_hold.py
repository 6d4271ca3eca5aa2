"""protogate.routing.hold, in a whole gateway: what does worse is taken back, in all processes, until it may return."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protogate.admin.own import Own
from protogate.exchange.exchange import Exchange
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IStreamCodec
from protogate.message import Request, Response
from protogate.plugins import names
from protogate.routing.hold import TOPIC
from protogate.testing.boards import Boards
from protogate.testing.bodies import Giver
from protogate.testing.caller import Caller
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect

CODECS = tuple(names(IStreamCodec))
HEAD = Expect(b"\r\n\r\n")
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"
TITLE = "shop, entry 0: next"
CONFIG = """
gateway: {cohort: "request.headers['x-user']", zone: %(zone)s, timeouts: {responseHead: 3s}}
listeners: [%(listeners)s]
upstreams:
  - {name: old, endpoints: [{url: "http://192.0.2.7:80"}], retry: {attempts: 1}}
  - {name: next, endpoints: [{url: "http://192.0.2.8:80"}], retry: {attempts: 1}}
routes:
  - name: shop
    value: /
    matcherType: prefix
    routes:
      - targets: [{upstream: old}, {upstream: next, %(whose)s, hold: {%(hold)s}}]
        %(more)s
modules: [%(modules)s]
"""
LISTENERS = ", ".join(
    f'{{name: {name}, address: "127.0.0.1:{8080 + at}", protocols: [{name}]}}' for at, name in enumerate(CODECS)
)


def config(whose: str = "gray: 50", hold: str = "", more: str = "", modules: str = "", zone: str = "a") -> str:
    hold = ", ".join(["minRequests: 20", "window: 20s", *([hold] if hold else [])])
    words = {"whose": whose, "hold": hold, "more": more, "modules": modules, "zone": zone, "listeners": LISTENERS}
    return CONFIG % words


@contextmanager
def gateway(old: Any = (HEAD, OK), new: Any = (HEAD, OK), *, source: str = "", **more: Any) -> Iterator[MemoryGateway]:
    with MemoryGateway(source or config(), **more) as made:
        made.upstream("192.0.2.7", 80, list(old))
        if new:
            made.upstream("192.0.2.8", 80, list(new))
        yield made


def ask(made: MemoryGateway, users: int, more: bytes = b"", *, wait: float = 0.1) -> None:
    """One request of each user."""
    for user in range(users):
        made.ask(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-user: %d\r\n%s\r\n" % (user, more), "http1")
        made.advance(wait)


def held(made: MemoryGateway) -> dict[str, str]:
    return made.service.holds.why()


def count(made: MemoryGateway, event: str) -> int:
    return int(made.service.counters.counts[event])


def last(made: MemoryGateway, number: int) -> set[str]:
    """The upstreams of the last requests."""
    return {record.upstream for record in made.records[-number:]}


# -- for what


def test_a_target_that_fails_is_taken_back_and_its_users_get_the_other_one() -> None:
    with gateway(new=(HEAD, BAD)) as made:
        ask(made, 60)
        why = held(made)[TITLE]
        assert "requests failed, and 0 of" in why
        ask(made, 50)
        assert {(record.upstream, record.status) for record in made.records[-50:]} == {("old", 200)}
        noted = [record.notes for record in made.records[-50:] if record.notes]
        assert 15 < len(noted) < 35  # those who would have gone there
        assert noted[0] == {"release": f"next is taken back: {why}"}
        assert count(made, "release_held") == 1
        assert count(made, "release_passed") >= len(noted)
        own = Own(made.service)
        assert own.snapshot()["gauges"]["release"] == {TITLE: {"held": 1}}
        assert own.releases() == {TITLE: {"held": True, "why": why}}


@pytest.mark.parametrize(
    "new",
    [(), (Do.RESET,), (HEAD, Do.CLOSE), (HEAD, SHORT, Do.CLOSE)],
    ids=["cannot be reached", "resets", "says nothing", "breaks off"],
)
def test_whatever_way_it_fails(new: Any) -> None:
    with gateway(new=new) as made:
        ask(made, 60)
        assert "requests failed, and 0 of" in held(made)[TITLE]


def test_one_that_is_not_asked_any_more_fails_as_well() -> None:
    """A breaker that opens before there was enough to compare does not hide it."""
    source = config().replace('192.0.2.8:80"}], ', '192.0.2.8:80"}], circuitBreaker: {minRequests: 5}, ', 1)
    with gateway(new=(HEAD, BAD), source=source) as made:
        ask(made, 60)
        assert count(made, "breaker_refused") > 10
        assert "requests failed, and 0 of" in held(made)[TITLE]


def waiting(made: MemoryGateway, user: int) -> Any:
    client = made.client("http1")
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-user: %d\r\n\r\n" % user)
    made.run()
    return client


def test_one_whose_answers_take_longer_is_taken_back() -> None:
    with MemoryGateway(config()) as made:
        made.upstream("192.0.2.7", 80, [HEAD, OK])
        slow = made.upstream("192.0.2.8", 80, [HEAD, Do.SILENCE])
        for user in range(60):
            waiting(made, user)
            made.advance(0.2)
            for connection in slow.connections:
                if connection.lost is None and not connection.eof:
                    connection.send(OK)
            made.run()
        assert "answers took longer than 0.1" in held(made)[TITLE]
        assert {record.status for record in made.records} == {200}


def test_clients_that_leave_one_that_never_answers_tell_how_long_they_waited() -> None:
    with gateway(new=(HEAD, Do.SILENCE)) as made:
        for user in range(60):
            client = waiting(made, user)
            made.advance(0.2)
            client.reset()
            made.run()
        assert "answers took longer than" in held(made)[TITLE]
        assert count(made, "failed_upstream") == 0


def test_one_whose_clock_runs_out_fails() -> None:
    with gateway(new=(HEAD, Do.SILENCE)) as made:
        for user in range(60):
            waiting(made, user)
        made.advance(3.5)
        ask(made, 40)
        assert "requests failed, and 0 of" in held(made)[TITLE]


class Ended:
    """As much of an exchange as tells how a call ended whose answer had begun well."""

    def __init__(self, rpc: int) -> None:
        self.request, self.ledger, self.error, self.reason = Request(b"POST", b"/"), Ledger(1.0), None, None
        self.ledger.rpc = rpc
        self.over: list[Any] = []

    def after(self, function: Any) -> None:
        self.over.append(function)


@pytest.mark.parametrize(("rpc", "errors"), [(0, 0), (-1, 0), (3, 0), (4, 0), (2, 1), (13, 1), (14, 1), (15, 1)])
def test_calls_say_at_their_end_whether_they_failed(rpc: int, errors: int) -> None:
    with MemoryGateway(config()) as made:
        (hold,) = made.service.holds.holds.values()
        exchange: Any = Ended(rpc)
        body = Giver([b"x"], 1).body
        hold.watch(1, exchange, lambda: Response(200, [], body, "HTTP/2"))
        (over,) = exchange.over
        over()
        assert (hold.counted[1].requests, hold.counted[1].errors) == (1, errors)


# -- for what not


@pytest.mark.parametrize("both", [OK, BAD])
def test_equals_stay(both: bytes) -> None:
    with gateway((HEAD, both), (HEAD, both)) as made:
        ask(made, 60)
        assert held(made) == {}
        assert last(made, 30) == {"old", "next"}
        assert Own(made.service).releases() == {TITLE: {"held": False}}


def test_one_that_does_better_stays() -> None:
    with gateway(old=(HEAD, BAD)) as made:
        ask(made, 60)
        assert held(made) == {}


INSTEAD = "{name: respond, condition: \"request.headers['x-user'] < '5'\", actionParam: {status: 503}}"
AFTER = (
    "{name: respond, stage: PRE_RESPONSE, condition: \"response.headers['x-new'] != ''\", actionParam: {status: 503}}"
)


@pytest.mark.parametrize("module", [INSTEAD, AFTER], ids=["instead of the upstream", "in place of its answer"])
def test_what_modules_answer_is_not_what_a_target_does(module: str) -> None:
    new = OK.replace(b"OK\r\n", b"OK\r\nx-new: 1\r\n", 1)
    with gateway(new=(HEAD, new), source=config(modules=module)) as made:
        ask(made, 60)
        assert {record.status for record in made.records} == {200, 503}
        assert held(made) == {}


def test_a_client_that_breaks_off_is_nobodys_fault() -> None:
    with gateway() as made:
        for user in range(60):
            client = made.client("http1")
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nx-user: %d\r\n\r\nx" % user)
            made.advance(0.1)
            client.reset()
            made.run()
        assert held(made) == {}
        assert not any(each.errors for hold in made.service.holds.holds.values() for each in hold.counted.values())


def test_what_is_for_a_few_only_is_nothing_to_be_measured_by() -> None:
    odd = "}}, {upstream: odd, when: \"request.headers['x-odd'] == '1'\"}]\n"
    there = 'upstreams:\n  - {name: odd, endpoints: [{url: "http://192.0.2.9:80"}]}\n'
    source = config().replace("}}]\n", odd, 1).replace("upstreams:\n", there, 1)
    with gateway(new=(HEAD, BAD), source=source) as made:
        made.upstream("192.0.2.9", 80, [HEAD, OK])
        ask(made, 60, b"x-odd: 1\r\n")
        assert last(made, 60) == {"odd"}
        assert not any(hold.counted for hold in made.service.holds.holds.values())


def test_a_target_without_hold_is_not_judged() -> None:
    with gateway(new=(HEAD, BAD), source=unjudged()) as made:
        assert made.service.built.router.releases[0].hold is None
        ask(made, 60)
        assert last(made, 30) == {"old", "next"}
        assert Own(made.service).releases() == {}


def test_nothing_is_left_of_a_request_that_was_judged() -> None:
    with gateway(new=(HEAD, SHORT, Do.CLOSE)) as made:
        ask(made, 10)
        made.advance(2)
        gc.collect()
        gc.disable()
        try:
            before = alive()
            ask(made, 10)
            assert alive() == before
        finally:
            gc.enable()


def alive() -> int:
    """Exchanges that are alive."""
    return sum(isinstance(each, Exchange) for each in gc.get_objects())


def unjudged() -> str:
    return config().replace(", hold: {minRequests: 20, window: 20s}", "", 1)


# -- whose share


@pytest.mark.parametrize("more", ["", "sticky: {key: \"request.headers['x-user']\"}"])
def test_a_share_by_weight_is_taken_back_too(more: str) -> None:
    with gateway(new=(HEAD, BAD), source=config(whose="weight: 100", more=more)) as made:
        ask(made, 80)
        assert TITLE in held(made)
        assert last(made, 20) == {"old"}


def test_who_asks_for_it_gets_the_other_one_as_well() -> None:
    whose = "gray: 50, when: \"request.headers['x-version'] == 'next'\""
    with gateway(new=(HEAD, BAD), source=config(whose=whose)) as made:
        ask(made, 60)
        ask(made, 1, b"x-version: next\r\n")
        assert (made.records[-1].upstream, made.records[-1].status) == ("old", 200)


@pytest.mark.parametrize("codec", CODECS)
def test_over_every_codec(codec: str) -> None:
    with gateway(new=(HEAD, BAD)) as made:
        caller = Caller(made, codec, codec)
        for user in range(80):
            caller.ask(b"POST", b"/1001/get", [(b"x-user", b"%d" % user)], b"x")
            made.advance(0.1)
        assert "requests failed, and 0 of" in held(made)[TITLE]
        assert last(made, 10) == {"old"}


# -- until when


def broken(made: MemoryGateway) -> None:
    """Have it taken back."""
    ask(made, 60)
    assert TITLE in held(made)


def test_until_its_entry_changes() -> None:
    with gateway(new=(HEAD, BAD)) as made:
        broken(made)
        before = held(made)
        assert made.reload(config(zone="b", modules="{name: respond, condition: 'false', actionParam: {status: 418}}"))
        assert held(made) == before
        ask(made, 10)
        assert last(made, 10) == {"old"}
        assert made.reload(config(hold="attempt: 2"))
        assert held(made) == {}
        assert count(made, "release_returned") == 1
        ask(made, 10)
        assert last(made, 10) == {"old", "next"}


def test_until_its_time_is_over() -> None:
    with gateway(new=(HEAD, BAD), source=config(hold="duration: 30s")) as made:
        broken(made)
        made.advance(18)
        assert TITLE in held(made)
        made.advance(13)
        assert held(made) == {}
        assert count(made, "release_returned") == 1
        broken(made)  # it is as bad as it was
        assert count(made, "release_held") == 2


def test_until_it_is_not_to_be_judged_any_more() -> None:
    with gateway(new=(HEAD, BAD)) as made:
        broken(made)
        assert made.reload(unjudged())
        assert held(made) == {}
        assert Own(made.service).snapshot()["gauges"]["release"] == {}


def test_what_began_before_it_came_back_does_not_count() -> None:
    with gateway(new=(HEAD, Do.SILENCE), source=config(hold="duration: 1s")) as made:
        for user in range(60):
            waiting(made, user)
        made.advance(3.5)
        ask(made, 20, wait=0.05)
        made.advance(3)  # held, and back: there is nothing against it any more
        assert count(made, "release_returned") == 1
        assert not any(hold.counted for hold in made.service.holds.holds.values())


def test_entries_that_are_alike_are_judged_each_for_itself() -> None:
    text = config()
    rule = text[text.index("  - name: shop\n") : text.index("modules:")]
    with MemoryGateway(text.replace(rule, rule + rule.replace("value: /", "value: /b") + rule, 1)) as made:
        one, other, third = made.service.holds.holds
        assert one.partition(".")[0] == third.partition(".")[0] != other.partition(".")[0]
        assert (one[-2:], third[-2:]) == (".1", ".2")


# -- several processes


def both(first: MemoryGateway, second: MemoryGateway, boards: Boards, seconds: float) -> None:
    """Let time pass for both."""
    for _ in range(int(seconds / 0.5)):
        first.advance(0.5)
        second.advance(0.5)
        boards.run()


def test_one_judges_for_all() -> None:
    boards = Boards()
    one, two = boards.join(), boards.join()
    with gateway(board=one) as first, gateway(new=(HEAD, BAD), board=two) as second:
        boards.lead(one)
        for _ in range(10):  # all of it is seen by the one that does not judge
            ask(second, 20, wait=0.05)
            first.advance(1)
            boards.run()
        assert TITLE in held(first)
        assert held(second) == held(first)
        assert (count(first, "release_held"), count(second, "release_held")) == (1, 0)
        assert last(second, 20) == {"old"}
        assert Own(first.service).releases()[TITLE]["held"]
        assert Own(second.service).snapshot()["gauges"]["release"] == {}  # once for all
        # who comes later knows as well
        with gateway(board=boards.join()) as third:
            assert held(third) == held(first)
        # and who leads next goes on
        boards.lead(two)
        assert held(second) == held(first)
        assert Own(second.service).releases()[TITLE]["held"]
        # a change of the entry, wherever it is loaded first
        boards.lead(one)
        assert first.reload(config(hold="attempt: 2"))
        boards.run()
        assert second.reload(config(hold="attempt: 2"))
        boards.run()
        assert (held(first), held(second)) == ({}, {})
        assert boards.keeper.posts.get(TOPIC, {}) == {}


def test_who_loads_a_change_before_the_one_that_judges() -> None:
    boards = Boards()
    one, two = boards.join(), boards.join()
    with gateway(new=(HEAD, BAD), board=one) as first, gateway(board=two) as second:
        boards.lead(one)
        broken(first)
        boards.run()
        assert held(second) == held(first)
        assert second.reload(config(hold="attempt: 2"))
        boards.run()
        assert (held(second), len(held(first))) == ({}, 1)
        assert first.reload(config(hold="attempt: 2"))
        boards.run()
        assert held(first) == {}


def test_the_next_to_lead_ends_it_in_time() -> None:
    boards = Boards()
    one, two = boards.join(), boards.join()
    source = config(hold="duration: 20s")
    with gateway(new=(HEAD, BAD), board=one, source=source) as first, gateway(board=two, source=source) as second:
        boards.lead(one)
        both(first, second, boards, 1)
        for _ in range(10):
            ask(first, 10)
            second.advance(1)
        boards.run()
        assert TITLE in held(second)
        boards.lead(two)
        both(first, second, boards, 5)
        assert TITLE in held(second)
        both(first, second, boards, 15)
        assert (held(first), held(second)) == ({}, {})
        assert (count(first, "release_returned"), count(second, "release_returned")) == (0, 1)
