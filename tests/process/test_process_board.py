"""What workers tell each other through their supervisor: a keeper and the boards of its workers, on lines of memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent

from protogate.process import keeper as module
from protogate.process.keeper import ROOM, Keeper
from protogate.process.messages import Follow, Lead, Observed, Post, Posts
from protogate.testing.boards import Boards, Worker


class Judge(Worker):
    """
    A worker with followers.

    @ivar seen: what each takes to be posted on its topic.
    @ivar heard: what it was told that others observe, and C{led}: whether it leads.
    """

    def __init__(self, worker: Worker) -> None:
        self.__dict__ = worker.__dict__
        self.seen: dict[str, dict[str, Any]] = {}
        self.heard: list[Any] = []
        self.led: list[bool] = []

    def follow(self, topic: str = "shop") -> None:
        mine = self.seen[topic] = {}

        def told(key: str, value: Any) -> None:
            if value is None:
                del mine[key]
            else:
                mine[key] = value

        self.here.follow(topic, told, self.heard.append, self.led.append)

    def leave(self, topic: str = "shop") -> None:
        del self.seen[topic]
        self.here.leave(topic)

    def post(self, key: str, value: Any, topic: str = "shop") -> None:
        """As a judge does: what it posts it has applied."""
        if value is None:
            self.seen[topic].pop(key, None)
        else:
            self.seen[topic][key] = value
        self.here.post(topic, key, value)


class Town(Boards):
    """Workers with followers."""

    def judge(self, *topics: str) -> Judge:
        """Another one serves."""
        made = self.comes()
        for topic in topics or ("shop",):
            made.follow(topic)
        made.here.settled()
        self.run()
        self.keeper.settled()
        return made

    def comes(self) -> Judge:
        """Another one is about to serve."""
        worker = self.worker()
        made = Judge(worker)
        self.workers[-1] = made
        self.keeper.leave(worker)
        self.keeper.join(made)
        return made

    def appoint(self, *able: Judge) -> None:
        self.lead(*(judge.here for judge in able))

    def end(self, judge: Judge) -> None:
        super().leave(judge.here)


@pytest.fixture
def town() -> Town:
    return Town()


def test_what_who_leads_posts_is_known_to_all_and_to_who_comes_later(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one, two)
    assert (one.here.leads, two.here.leads) == (True, False)
    assert (one.led, two.led) == ([True], [])
    one.post("a", [0.5, "slow", None])
    one.post("b", [0.0, "ill", {"times": 3}])
    one.post("a", None)
    town.run()
    assert one.seen == two.seen == {"shop": {"b": [0.0, "ill", {"times": 3}]}}
    assert town.judge().seen == one.seen
    assert town.keeper.posts == one.seen
    assert town.counted == []


def test_who_comes_knows_before_it_serves(town: Town) -> None:
    one = town.judge()
    town.appoint(one)
    one.post("a", 1)
    town.run()
    two = town.comes()
    two.follow()  # it is told inside, not when an answer comes
    assert two.seen == {"shop": {"a": 1}}
    two.follow("other")
    assert two.seen["other"] == {}
    one.post("a", 2)
    one.post("b", 1)
    town.run()
    assert two.seen["shop"] == {"a": 2, "b": 1}


def test_who_does_not_lead_tells_what_it_observes_and_posts_nothing(town: Town) -> None:
    one, two, three = town.judge(), town.judge(), town.judge()
    two.here.tell("shop", "nobody leads yet")
    town.run()
    assert town.counted == ["board_dropped"]
    town.appoint(one, two, three)
    two.here.tell("shop", [1, 2])
    three.here.tell("shop", {"a": 1})
    one.here.tell("shop", "to myself")
    two.here.post("shop", "a", 1)
    two.here.tell("nobody's", 1)
    town.run()
    assert (one.heard, two.heard, three.heard) == ([[1, 2], {"a": 1}], [], [])
    assert town.keeper.posts == {}


def test_another_one_leads_when_one_is_gone_and_goes_on_from_what_is_posted(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one, two)
    one.post("a", 1)
    town.run()
    town.end(one)
    assert town.keeper.leader is None
    with capturedLogs() as captured:
        town.appoint(two)
    assert [formatEvent(event) for event in captured] == ["worker 1 judges endpoints from now on"]
    assert two.led == [True]
    assert two.seen == {"shop": {"a": 1}}
    two.post("a", 2)
    town.run()
    assert town.judge().seen == {"shop": {"a": 2}}
    assert town.counted == ["board_moved"]


def test_who_leads_stays_that_while_it_can_and_when_nobody_else_can(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(two)
    town.appoint(one, two)
    assert town.keeper.leader is two
    town.appoint()
    assert town.keeper.leader is two
    old = town.judge()
    old.board = False
    town.appoint(old)
    assert town.keeper.leader is two
    assert town.counted == []


def test_one_that_leaves_says_so_and_another_one_leads(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one, two)
    town.keeper.vacant = lambda: town.keeper.lead([one, two])
    one.here.resign()
    town.run()
    assert (one.led, two.led) == ([True, False], [True])
    town.appoint(one, two)
    assert town.keeper.leader is two


def test_one_that_stood_still_and_did_not_hear_is_contradicted(town: Town) -> None:
    one, two, three = town.judge(), town.judge(), town.judge()
    town.appoint(one, two, three)
    one.post("a", 1)
    one.post("b", 1)
    town.run()
    town.keeper.lead([two, three])
    town.run(one)
    two.post("a", 2)
    two.post("c", 2)
    # It goes on as if nothing had been, before it reads.
    one.post("a", None)
    one.post("b", "everything is unwell")
    one.post("d", 1)
    town.run(one)
    assert two.here.leads
    assert one.here.leads, "it has not read yet"
    town.run()
    assert one.led == [True, False]
    assert one.seen == two.seen == three.seen == {"shop": {"a": 2, "b": 1, "c": 2}}
    assert town.counted == ["board_moved", "board_stale", "board_stale", "board_stale"]


def test_a_post_of_an_earlier_term_of_the_same_worker_is_dropped(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)
    late = Post(topic="shop", key="a", value=1, term=town.keeper.term)
    town.appoint(two)
    town.appoint(one)
    town.keeper.heard(one, late)
    town.keeper.heard(two, Posts(posts={"shop": {"a": 1}}, term=town.keeper.term))
    assert town.keeper.posts == {}
    assert town.counted.count("board_stale") == 2


def test_what_nobody_follows_is_forgotten_but_not_because_all_have_died(town: Town) -> None:
    one = town.judge("shop", "cart")
    town.appoint(one)
    one.post("a", 1)
    one.post("b", 1, "cart")
    town.run()
    town.end(one)
    two = town.comes()
    two.follow("cart")
    two.here.settled()
    town.run()
    assert set(town.keeper.posts) == {"shop", "cart"}
    town.keeper.settled()
    assert town.keeper.posts == {"cart": {"b": 1}}
    assert two.seen == {"cart": {"b": 1}}
    two.leave("cart")
    two.here.leave("nobody's")
    town.run()
    town.keeper.settled()
    assert town.keeper.posts == {}


def test_who_does_not_follow_is_not_told(town: Town) -> None:
    one, two = town.judge("shop"), town.judge("cart")
    town.appoint(one)
    one.post("a", 1)
    town.keeper.heard(one, *one.up.take())
    assert two.down.held == []
    one.leave()
    one.here.post("shop", "b", 1)
    assert [type(message) for message in one.up.held] == [Follow]


def test_who_does_not_read_is_told_all_at_once_when_it_does_again(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)
    one.post("gone", 1)
    town.run()
    two.down.waiting = ROOM
    for number in range(1000):
        one.post(f"{number}", number)
    one.post("gone", None)
    town.run()
    assert two.seen == {"shop": {"gone": 1}}
    town.keeper.alive(two)
    assert two.down.held == [], "it still does not"
    two.down.waiting = 0
    one.post("more", 1)
    town.run()
    assert two.seen == {"shop": {"gone": 1}}, "not one without the others"
    town.keeper.alive(two)
    assert len(two.down.held) == 1
    town.run()
    assert two.seen == one.seen
    one.post("0", "again")
    town.run()
    assert two.seen == one.seen


def test_one_that_was_behind_knows_all_before_it_leads(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)
    two.down.waiting = ROOM
    one.post("a", 1)
    town.run()
    town.appoint(two)
    assert two.seen == {"shop": {"a": 1}}


def test_observations_are_dropped_where_nobody_reads_them(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)
    one.down.waiting = ROOM
    two.here.tell("shop", 1)
    town.run()
    two.up.waiting = ROOM
    two.here.tell("shop", 2)
    assert two.up.held == []
    assert town.counted == ["board_dropped"] * 2
    assert one.heard == []


def test_posts_that_a_supervisor_does_not_read_are_made_up_for(town: Town) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)
    one.post("before", 1)
    town.run()
    one.up.waiting = ROOM
    for number in range(100):
        one.post("a", number)
    one.post("before", None)
    one.here.alive()
    assert one.up.held == []
    one.up.waiting = 0
    one.post("b", 1)
    assert one.up.held == [], "not one without the others"
    one.here.alive()
    town.run()
    assert town.keeper.posts == two.seen == {"shop": {"a": 99, "b": 1}}
    one.post("a", None)
    one.post("b", None)
    town.run()
    assert town.keeper.posts == {}


def test_what_is_kept_has_a_bound(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    one, two = town.judge("shop", "cart"), town.judge("shop", "cart")
    town.appoint(one)
    for number in range(5):
        one.post(f"{number}", number)
    one.post("2", "changed")
    one.post("other", 1, "cart")
    town.run()
    assert town.keeper.posts == {"shop": {"0": 0, "1": 1, "2": "changed"}}
    assert two.seen["shop"] == town.keeper.posts["shop"]
    town.keeper.heard(one, Posts(posts={"cart": {"a": 1}, "shop": {}}, term=town.keeper.term))
    assert town.keeper.posts == {}
    assert Counter(town.counted) == {"board_full": 4}


def test_a_keeper_goes_on_where_another_program_was(town: Town) -> None:
    one, two, three = (town.judge() for _ in range(3))
    town.appoint(two, one, three)
    two.post("a", 1)
    town.run()
    left = [(each, *town.keeper.leave(each)) for each in (one, two, three)]
    assert [(follows, leads) for _, follows, leads in left] == [(["shop"], False), (["shop"], True), (["shop"], False)]
    one.seen["shop"]["a"] = one.here._posts["shop"]["a"] = 0  # it had missed something
    town.keeper = Keeper(town.counted.append, town.keeper.posts, town.keeper.term)
    for each, follows, leads in left:
        town.keeper.join(each, follows, leads)
    town.run()
    town.appoint(one, two, three)
    assert town.keeper.leader is two
    assert one.seen == three.seen == {"shop": {"a": 1}}
    two.post("a", 2)
    town.run()
    assert one.seen == three.seen == {"shop": {"a": 2}}
    assert two.led == [True]
    assert town.counted == []


def test_one_that_fails_harms_no_other(town: Town, flush_errors: Any) -> None:
    one, two = town.judge(), town.judge()
    town.appoint(one)

    def fails(*_: object) -> None:
        raise ValueError("a bug")

    two.here.follow("shop", fails, fails, fails)
    two.follow("cart")
    one.post("a", 1)
    with capturedLogs() as captured:
        town.run()
        town.appoint(two)
    assert [formatEvent(event) for event in captured if event["log_level"].name == "critical"] == [
        "what was told by another process could not be taken"
    ] * 2
    assert len(flush_errors(ValueError)) == 2
    assert two.led == [True]


def test_what_is_about_something_else_is_not_taken(town: Town) -> None:
    one = town.judge()
    assert not one.here.take(Follow(topic="shop", follows=True))
    assert one.here.take(Observed(topic="unknown", observed=1))
    assert one.here.take(Post(topic="unknown", key="a", value=1))
    assert one.here.take(Posts(posts={"unknown": {"a": 1}}))
    assert one.here.take(Lead(term=0))
    assert one.led == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_happens_all_agree_in_the_end(data: st.DataObject) -> None:
    """Terms, deaths, lines that are read or not, in any order."""
    town = Town()
    for _ in range(3):
        town.judge()
    for _ in range(data.draw(st.integers(1, 25), "steps")):
        worker: Any = data.draw(st.sampled_from(town.workers), "worker")
        match data.draw(st.sampled_from(["post", "lead", "run", "deaf", "die", "full"]), "step"):
            case "post":
                if worker.here.leads:
                    worker.post(data.draw(st.sampled_from("abc")), data.draw(st.one_of(st.none(), st.integers(0, 9))))
            case "lead":
                town.keeper.lead([worker])
            case "run":
                town.run()
            case "deaf":
                town.run(worker)
            case "die":
                town.end(worker)
                town.judge()
            case "full":
                worker.down.waiting = ROOM - worker.down.waiting
    for worker in town.workers:
        worker.down.waiting = 0
    town.keeper.lead(town.workers[:1])
    town.run()
    for worker in town.workers:
        town.keeper.alive(worker)
    town.run()
    assert [worker.here.leads for worker in town.workers].count(True) == 1
    for worker in town.workers:
        assert isinstance(worker, Judge)
        assert worker.seen["shop"] == town.keeper.posts.get("shop", {})
