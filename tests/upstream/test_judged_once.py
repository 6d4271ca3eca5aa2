"""
Endpoints that are judged once for a gateway, whatever it has of processes: gateways of memory that share a board, and
the upstreams' part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_upstream import Time
from polls import Nowhere
from test_health import GET, Server

from protogate.testing.boards import Boards
from protogate.testing.gateway import MemoryGateway
from protogate.testing.reactor import MemoryReactor
from protogate.upstream.endpoint import Endpoint, place
from protogate.upstream.pool import Pool
from protogate.upstream.verdicts import Verdicts, where

HOSTS = ("192.0.2.1", "192.0.2.2")
CONFIG = """
listeners: [{name: web, address: "127.0.0.1:PORT"}]
upstreams:
  - name: shop
    endpoints: [ENDPOINTS]
    healthCheck: {CHECK}
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
"""
CHECK = "path: /health, interval: 2s, timeout: 1s, rise: 1, fall: 1"


class Processes:
    """
    A gateway of several processes.

    @ivar up: by process.
    """

    def __init__(self) -> None:
        self.boards = Boards()
        self.reactor = MemoryReactor()
        self.up: list[MemoryGateway] = []
        self._port = 8080
        self.comes()
        self.one, self.two = (Server(self.up[0], host) for host in HOSTS)
        self.comes()
        self.lead(0)

    def configured(self, port: int, hosts: tuple[str, ...] = HOSTS, check: str = CHECK) -> str:
        endpoints = ", ".join(f'{{url: "http://{host}:80"}}' for host in hosts)
        return CONFIG.replace("PORT", str(port)).replace("ENDPOINTS", endpoints).replace("{CHECK}", f"{{{check}}}")

    def comes(self) -> MemoryGateway:
        """Another process."""
        board = self.boards.join()
        made = MemoryGateway(self.configured(self._port), reactor=self.reactor, board=board)
        self._port += 1
        board.settled()
        self.up.append(made)
        self.boards.run()
        return made

    def lead(self, number: int) -> None:
        self.boards.lead(self.up[number].service._board)  # type: ignore[arg-type]

    def dies(self, number: int) -> None:
        gone = self.up.pop(number)
        self.boards.leave(gone.service._board)  # type: ignore[arg-type]
        gone.stop()

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.reactor.advance(0.25)
            self.boards.run()

    def reload(self, hosts: tuple[str, ...] = HOSTS, check: str = CHECK) -> None:
        for at, gateway in enumerate(self.up):
            port = gateway.service.built.config.listeners[0].address.rpartition(":")[2]
            assert gateway.reload(self.configured(int(port), hosts, check)), at
            self.boards.run()

    def asked(self, number: int) -> tuple[int, int]:
        """How many of four requests to a process each endpoint gets."""
        before = len(self.one.requests), len(self.two.requests)
        for _ in range(4):
            assert b" 204 " in self.up[number].ask(GET)
        return len(self.one.requests) - before[0], len(self.two.requests) - before[1]

    def counted(self, event: str) -> int:
        return sum(int(each.service.counters.counts[event]) for each in self.up)

    def held(self, number: int) -> dict[str, dict[str, tuple[float, str]]]:
        """By endpoint, as a process has it."""
        clusters = self.up[number].service.clusters
        assert clusters is not None
        return {each.address: dict(each.held) for each in clusters.current["shop"].endpoints if each.held}

    def stop(self) -> None:
        while len(self.up) > 1:
            self.dies(0)
        assert self.up.pop().stop() == []


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.stop()


def ill(request: Any) -> Any:
    from protogate.message import Response

    return Response(503)


def test_an_endpoint_is_looked_at_once_for_all_and_what_is_found_holds_for_all(processes: Processes) -> None:
    processes.advance(8)
    assert 3 <= len(processes.one.looks) <= 6
    assert processes.counted("check_ok") == len(processes.one.looks) + len(processes.two.looks)
    processes.one.well = ill
    processes.advance(3)
    assert processes.asked(0) == processes.asked(1) == (0, 4)
    assert processes.held(1) == {"192.0.2.1:80": {"healthCheck": (0.0, "it answered 503")}}
    assert processes.counted("endpoint_down") == 1
    assert processes.up[1].service.counters.counts["check_failed"] == 0
    processes.one.well = processes.two.well
    processes.advance(3)
    assert processes.asked(0) == processes.asked(1) == (2, 2)
    assert processes.boards.keeper.posts == {}


def test_who_comes_later_knows_and_who_leads_next_goes_on(processes: Processes) -> None:
    processes.one.well = ill
    processes.advance(2)
    processes.comes()
    assert processes.asked(2) == (0, 4)
    processes.dies(0)
    looks = len(processes.one.looks)
    processes.advance(4)
    assert len(processes.one.looks) == looks, "nobody leads"
    assert processes.asked(0) == (0, 4)
    processes.lead(1)
    processes.advance(2)
    assert len(processes.one.looks) > looks
    assert processes.counted("endpoint_down") == 0, "it was, and is"
    processes.one.well = processes.two.well
    processes.advance(3)
    assert processes.asked(0) == processes.asked(1) == (2, 2)
    assert processes.counted("endpoint_up") == 1


def test_one_that_leads_no_more_stops_looking_and_keeps_what_it_knows(processes: Processes) -> None:
    processes.one.well = ill
    processes.advance(2)
    processes.lead(1)
    before = processes.up[0].service.counters.counts["check_ok"]
    processes.advance(5)
    assert processes.up[0].service.counters.counts["check_ok"] == before
    assert processes.up[1].service.counters.counts["check_ok"] > 1
    assert processes.asked(0) == processes.asked(1) == (0, 4)


def test_an_endpoint_that_goes_takes_what_was_judged_of_it_along(processes: Processes) -> None:
    processes.one.well = ill
    processes.advance(2)
    assert processes.boards.keeper.posts["endpoints/shop"]
    processes.reload(HOSTS[1:])
    assert processes.boards.keeper.posts == {}
    looks = len(processes.one.looks)
    processes.advance(4)
    assert len(processes.one.looks) == looks
    processes.one.well = processes.two.well
    processes.reload()
    assert processes.asked(1) == (2, 2), "it begins anew"


def test_when_nothing_is_judged_any_more_nothing_is_held(processes: Processes) -> None:
    processes.one.well = ill
    processes.advance(2)
    config = processes.configured
    processes.configured = lambda *_: config(*_).replace(f"    healthCheck: {{{CHECK}}}\n", "")  # type: ignore[method-assign]
    processes.reload()
    processes.boards.keeper.settled()
    assert processes.asked(0) == processes.asked(1) == (2, 2)
    assert processes.boards.keeper.posts == {}


def test_a_reload_of_the_check_keeps_what_was_found_out_in_all(processes: Processes) -> None:
    processes.one.well = ill
    processes.advance(2)
    processes.reload(check=CHECK.replace("/health", "/other-health"))
    assert processes.asked(0) == processes.asked(1) == (0, 4)
    processes.advance(2)
    assert processes.one.looks[-1].target == b"/other-health"


class Recorded:
    """A board that notes what is posted, and can be followed by one."""

    def __init__(self, leads: bool = True) -> None:
        self.leads = leads
        self.posted: list[Any] = []
        self.known: dict[str, Any] = {}
        self.told: Any = None

    def follow(self, topic: str, told: Any, heard: Any, led: Any) -> None:
        self.told = told
        heard("nothing comes of it")
        for key, value in self.known.items():
            told(key, value)

    def leave(self, topic: str) -> None:
        self.told = None

    def post(self, topic: str, key: str, value: Any) -> None:
        self.posted.append((key, value))

    def tell(self, topic: str, observed: Any) -> None:
        raise NotImplementedError


def endpoint(url: str) -> Endpoint:
    return Endpoint(place(url), Pool(Nowhere(), Time().context))


class Judged:
    """The part of one upstream."""

    def __init__(self, leads: bool = True, **known: Any) -> None:
        self.board = Recorded(leads)
        self.board.known = known
        self.changes = 0
        self.verdicts = Verdicts(self.board, "shop", self._changed)
        self.one, self.two = endpoint("http://192.0.2.1"), endpoint("http://192.0.2.2:81")
        self.verdicts.take([self.one, self.two], True)

    def _changed(self) -> None:
        self.changes += 1


def test_an_endpoint_is_known_by_where_it_is_and_who_it_must_be() -> None:
    assert where(endpoint("http://[2001:db8::1]:80")) == "[2001:db8::1]:80"
    assert where(endpoint("https://shop.test")) == "shop.test:443 shop.test"


def test_what_says_nothing_is_taken_off_and_the_same_is_posted_once() -> None:
    judged = Judged()
    judged.verdicts.post(judged.one, "outliers", 0.5, "slow")
    assert judged.board.posted == [], "nobody follows yet"
    judged.verdicts.follow(True)
    judged.verdicts.follow(True)
    judged.verdicts.post(judged.one, "outliers", 0.5, "slow")
    judged.verdicts.post(judged.one, "outliers", 0.5, "slow")
    judged.verdicts.post(judged.two, "outliers", 1.0, "")
    judged.verdicts.post(judged.one, "outliers", 1.0, "", {"times": 2})
    assert judged.verdicts.memo(judged.one, "outliers") == {"times": 2}
    judged.verdicts.post(judged.one, "outliers", 1.0, "")
    assert judged.verdicts.memo(judged.one, "outliers") is None
    assert judged.board.posted == [
        ("outliers 192.0.2.1:80", [0.5, "slow", None]),
        ("outliers 192.0.2.1:80", [1.0, "", {"times": 2}]),
        ("outliers 192.0.2.1:80", None),
    ]


def test_who_does_not_lead_posts_nothing_and_nobody_posts_of_what_is_gone() -> None:
    judged = Judged(leads=False)
    judged.verdicts.follow(True)
    judged.verdicts.post(judged.one, "outliers", 0.0, "")
    judged.board.leads = True
    judged.verdicts.take([judged.two], True)
    judged.verdicts.post(judged.one, "outliers", 0.0, "")
    judged.verdicts.post(endpoint("http://192.0.2.2:81"), "outliers", 0.0, "")
    assert judged.board.posted == []


def test_what_was_posted_is_applied_once_for_all_and_to_who_comes_later() -> None:
    judged = Judged(leads=False)
    judged.board.known = {
        "healthCheck 192.0.2.1:80": [0, "ill", None],
        "outliers 192.0.2.1:80": [0.5, "slow", 3],
        "outliers 192.0.2.3:80": [0.25, "errors", None],
    }
    judged.verdicts.follow(True)
    assert judged.changes == 1
    assert dict(judged.one.held) == {"healthCheck": (0.0, "ill"), "outliers": (0.5, "slow")}
    assert judged.verdicts.memo(judged.one, "outliers") == 3
    three = endpoint("http://192.0.2.3")
    judged.verdicts.take([judged.one, three], True)
    assert (three.share, judged.changes) == (0.25, 1)
    judged.board.told("healthCheck 192.0.2.1:80", None)
    assert (judged.one.share, judged.changes) == (0.5, 2)
    judged.board.told("outliers 192.0.2.3:80", [0.25, "other errors", None])
    assert (dict(three.held), judged.changes) == ({"outliers": (0.25, "other errors")}, 2)
    assert judged.board.posted == []


def test_who_leads_takes_off_what_is_posted_of_endpoints_that_are_not_there_when_it_knows_them_all() -> None:
    judged = Judged(**{"outliers 192.0.2.9:80": [0.0, "", None], "outliers 192.0.2.1:80": [0.0, "", None]})
    judged.verdicts.follow(True)
    judged.verdicts.take([judged.one], False)
    assert judged.board.posted == [], "they may be found yet"
    judged.verdicts.take([judged.one], True)
    assert judged.board.posted == [("outliers 192.0.2.9:80", None)]
    judged.verdicts.follow(False)
    assert judged.verdicts.memo(judged.one, "outliers") is None
