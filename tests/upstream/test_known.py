"""A process that comes while a source of endpoints is away: it goes on with what the others use, and no longer."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fake_upstream import Time
from test_findings import Source, at

from protogate.config import model
from protogate.errors import Abort
from protogate.testing.boards import Boards
from protogate.upstream.board import Board
from protogate.upstream.discovery import Findings
from protogate.upstream.known import MOST
from protogate.upstream.means import Means

HOUR = 3600.0


class Process:
    def __init__(self, town: Town, board: Board, key: object, **settings: Any) -> None:
        self.board, self.source = board, Source()
        self.places: list[tuple[str, ...]] = []
        self.lost: list[Abort] = []
        means = Means(
            reactor=None,  # type: ignore[arg-type]
            wheel=town.time.wheel,
            resolver=None,  # type: ignore[arg-type]
            count=town.time.counted.append,
            board=board,
        )
        config = model.Discovery(**{"plugin": {"fake": {}}, "stale_for": model.Seconds(HOUR), **settings})
        self.findings = Findings("up", self.source, config, key, means, town.time.context, self._changed, self._lost)
        self.findings.start()
        town.boards.run()

    def _changed(self, places: Any) -> None:
        self.places.append(tuple(each.address for each in places))

    def _lost(self, reason: Abort) -> None:
        self.lost.append(reason)


class Town:
    """Processes of a gateway, and what time it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time, self.boards, self.day = Time(dns=3.0), Boards(), 1e9
        monkeypatch.setattr(time, "time", lambda: self.day)

    def comes(self, key: object = "etcd", **settings: Any) -> Process:
        return Process(self, self.boards.join(), key, **settings)

    def lead(self, *processes: Process) -> None:
        self.boards.lead(*(each.board for each in processes))  # type: ignore[arg-type]

    def goes(self, process: Process, *left: Process) -> None:
        """It is killed; one of the others leads."""
        process.findings.stop()
        self.boards.leave(process.board)  # type: ignore[arg-type]
        self.lead(*left)

    def pass_by(self, seconds: float) -> None:
        self.day += seconds
        self.time.pass_by(seconds)
        self.boards.run()


@pytest.fixture
def town(monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(monkeypatch)


def first(town: Town, *urls: str) -> Process:
    """The one that leads, and what it has found."""
    made = town.comes()
    town.lead(made)
    made.findings.found([at(url) for url in urls or ("a:1", "b:1")])
    town.boards.run()
    return made


def test_one_that_comes_while_the_source_is_away_goes_on_with_what_the_others_use(town: Town) -> None:
    leader = first(town)
    leader.findings.failed("away")
    town.pass_by(HOUR / 2)
    late = town.comes()
    assert late.places == [], "its own source may answer"
    late.findings.failed("away")
    assert (late.places, late.lost) == ([("a:1", "b:1")], [])
    assert late.findings.stale
    town.pass_by(HOUR / 2 - 20)
    assert len(late.places) == 1
    town.pass_by(40)
    assert late.places[1:] == [()], "as long as the one that knew it, and no longer"
    assert leader.places[1:] == [()]


def test_what_has_expired_is_passed_on_to_nobody(town: Town) -> None:
    leader = first(town)
    leader.findings.failed("away")
    town.pass_by(HOUR + 10)
    late = town.comes()
    late.findings.failed("away")
    assert (late.places, len(late.lost)) == ([], 1)


def test_one_that_waits_too_long_goes_on_with_it_too_and_its_own_answer_counts(town: Town) -> None:
    first(town)
    late = town.comes()
    town.pass_by(3.3)
    assert (late.places, late.lost, late.findings.stale) == ([("a:1", "b:1")], [], True)
    late.findings.found([at("c:1")])
    assert (late.places[1:], late.findings.stale) == ([("c:1",)], False)


def test_it_is_passed_on_from_one_that_has_it_from_another_one(town: Town) -> None:
    leader = first(town)
    leader.findings.failed("away")
    town.pass_by(100)
    second = town.comes()
    second.findings.failed("away")
    town.goes(leader, second)
    third = town.comes()
    third.findings.failed("away")
    assert third.places == [("a:1", "b:1")]
    town.pass_by(HOUR - 120)
    assert len(third.places) == 1
    town.pass_by(40)
    assert third.places[1:] == [()], "since the first of them has heard nothing"


def test_one_that_has_no_answer_yet_and_begins_to_lead_takes_nothing_off(town: Town) -> None:
    leader = first(town)
    second = town.comes()
    town.goes(leader, second)
    third = town.comes()
    third.findings.failed("away")
    assert third.places == [("a:1", "b:1")]


def test_the_news_of_who_leads_is_what_counts(town: Town) -> None:
    leader = first(town)
    leader.findings.found([at("c:1")])
    town.boards.run()
    late = town.comes()
    late.findings.failed("away")
    assert late.places == [("c:1",)]


def test_what_another_source_has_found_is_nobody_s(town: Town) -> None:
    first(town)
    other = town.comes("consul")
    other.findings.failed("away")
    assert (other.places, len(other.lost)) == ([], 1)


def test_a_long_list_is_not_passed_on(town: Town) -> None:
    first(town, *(f"a:{number}" for number in range(1, MOST + 2)))
    late = town.comes()
    late.findings.failed("away")
    assert (late.places, len(late.lost)) == ([], 1)


def test_what_is_not_understood_is_nothing(town: Town) -> None:
    leader = first(town)
    (topic,) = town.boards.keeper.posts
    leader.board.post(topic, "list", ["soon", 7])
    town.boards.run()
    late = town.comes()
    late.findings.failed("away")
    assert (late.places, len(late.lost)) == ([], 1)


def test_a_source_that_is_there_again_is_not_old(town: Town) -> None:
    leader = first(town)
    leader.findings.failed("away")
    town.pass_by(HOUR / 2)
    leader.findings.found([at("a:1"), at("b:1")])
    town.boards.run()
    late = town.comes()
    late.findings.failed("away")
    town.pass_by(HOUR - 60)
    assert late.places == [("a:1", "b:1")]
