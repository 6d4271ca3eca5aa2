"""Who serves, who comes, who leaves: with workers that are nothing but promises."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from protogate.process.channel import Lost, Refused
from protogate.process.child import Order
from protogate.process.crew import BEAT, GRACE, START, Crew


class Child:
    """
    A worker that does what the test says.

    @ivar asked: what it was asked, in order; C{prepare} with the text of the configuration.
    @ivar prepared, committed, drained, counts: to be fired.
    """

    def __init__(self, crew: Crew, slot: int, number: int, born: float) -> None:
        self.crew, self.slot, self.number, self.born = crew, slot, number, born
        self.serving = self.leaving = self.gone = False
        self.silent: float | None = None
        self.limit: Any = None
        self.asked: list[str] = []
        self.prepared: Deferred[Any] = Deferred()
        self.committed: Deferred[Any] = Deferred()
        self.drained: Deferred[Any] = Deferred()
        self.counts = 0
        self.given: Any = None

    def __str__(self) -> str:
        return f"worker {self.slot} (pid {self.number})"

    def prepare(self, order: Order, given: Any) -> Deferred[Any]:
        self.asked.append(f"prepare {order.text.decode()}")
        self.given = given
        self.prepared = Deferred()
        return self.prepared

    def commit(self) -> Deferred[Any]:
        self.asked.append("commit")
        self.committed = Deferred()
        return self.committed

    def forget(self) -> None:
        self.asked.append("forget")

    def drain(self) -> Deferred[Any]:
        self.leaving = True
        self.asked.append("drain")
        return self.drained

    def hurry(self) -> None:
        self.asked.append("hurry")

    def count(self) -> Deferred[Any]:
        self.counts += 1
        return Deferred()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if not self.gone:
            self.asked.append(signal.Signals(number).name)

    # -- by the test

    def serve(self) -> None:
        """Take whatever it was asked to take."""
        self.prepared.callback(None)
        self.committed.callback(None)

    def end(self, why: str = "signal SIGKILL") -> None:
        """It is gone."""
        self.gone, self.serving = True, False
        for each in (self.prepared, self.committed):
            if not each.called:
                each.errback(Lost())
                each.addErrback(lambda failure: None)  # nobody may have asked
        self.crew.ended(self, why)  # type: ignore[arg-type]


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.hired: list[Child] = []
        self.counted: list[str] = []
        self.refuse = 0
        self.crew = Crew(self.clock, self.hire, self.counted.append, self.clock.seconds)  # type: ignore[arg-type]

    def hire(self, slot: int, order: Order) -> Child:
        if self.refuse:
            self.refuse -= 1
            raise OSError("no more processes")
        child = Child(self.crew, slot, len(self.hired), self.clock.seconds())
        self.hired.append(child)
        return child

    def start(self, workers: int = 2, **more: Any) -> None:
        """All serve."""
        self.crew.start(order("one", workers, **more), given("one"))
        for child in self.hired:
            child.serve()

    def reload(self, text: str, workers: int = 2) -> Result:
        return Result(Deferred.fromCoroutine(self.crew.reload(order(text, workers), given(text))))

    def renew(self, text: str, workers: int = 2) -> Result:
        return Result(Deferred.fromCoroutine(self.crew.renew(order(text, workers), given(text))))


class Result:
    """What became of something."""

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.done, self.why = False, ""
        deferred.addCallbacks(self._done, self._failed)

    def _done(self, _: object) -> None:
        self.done = True

    def _failed(self, failure: Failure) -> None:
        failure.trap(Refused)
        self.why = failure.getErrorMessage()


def order(text: str, workers: int = 2, drain: float = 30.0, hang: float = 0.0) -> Order:
    return Order("/a.yaml", text.encode(), None, workers, drain, hang)


def given(text: str) -> Any:
    return lambda slot: {text: [slot]}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    if not world.crew._stopping:
        world.crew.stop()
    for child in [*world.crew.slots.values(), *world.crew.others]:
        child.end()  # type: ignore[attr-defined]
    left = [call for call in world.clock.getDelayedCalls() if call.active()]
    assert left == []


def test_who_comes_prepares_then_serves(world: World) -> None:
    ready: list[None] = []
    world.crew.start(order("one"), given("one"))
    world.crew.ready().addCallback(ready.append)
    one, two = world.hired
    assert (one.slot, two.slot) == (0, 1)
    assert one.asked == ["prepare one"]
    assert (one.given, two.given) == ({"one": [0]}, {"one": [1]})
    one.prepared.callback(None)
    assert one.asked == ["prepare one", "commit"]
    assert world.crew.serving == []
    one.committed.callback(None)
    assert world.crew.serving == [one]
    assert not ready
    two.serve()
    assert ready == [None]
    world.crew.ready().addCallback(ready.append)
    assert ready == [None, None]


def test_who_takes_too_long_to_serve_is_killed(world: World) -> None:
    world.crew.start(order("one", 1), given("one"))
    (child,) = world.hired
    world.clock.advance(START - 1)
    assert "SIGABRT" not in child.asked
    world.clock.advance(1)
    assert child.asked[-1] == "SIGABRT"


def test_who_cannot_serve_says_why_and_another_one_tries(world: World) -> None:
    with capturedLogs() as captured:
        world.crew.start(order("one", 1), given("one"))
        (child,) = world.hired
        child.prepared.errback(Refused("access log: no such folder"))
        assert child.asked[-1] == "SIGTERM"
        child.end("signal SIGTERM")
    told = [formatEvent(event) for event in captured]
    assert told[0] == "worker 0 (pid 0) cannot serve: access log: no such folder"
    world.clock.advance(0)
    assert len(world.hired) == 2


def test_who_ends_is_replaced_at_once_then_later_and_later(world: World) -> None:
    world.start(1)
    delays = []
    for _ in range(4):
        began, number = world.clock.seconds(), len(world.hired)
        world.hired[-1].end()
        while len(world.hired) == number:
            world.clock.advance(0.25)
        delays.append(world.clock.seconds() - began)
        world.hired[-1].serve()
    assert delays == pytest.approx([0.25, 0.5, 1.0, 2.0])
    assert world.counted == ["worker_restarted"] * 4
    world.clock.advance(60)
    world.hired[-1].end()
    world.clock.advance(0)
    assert len(world.hired) == 6, "it had lived for a minute"


def test_who_is_told_to_go_by_somebody_else_is_replaced_while_it_drains(world: World) -> None:
    world.start(2)
    old = world.hired[0]
    world.crew.leaves(old)  # type: ignore[arg-type]
    assert old.asked[-1] == "drain"
    fresh = world.hired[2]
    assert fresh.slot == 0
    fresh.serve()
    assert world.crew.serving == [fresh, world.hired[1]]
    world.crew.leaves(old)  # type: ignore[arg-type]
    old.end("exit status 0")
    assert len(world.hired) == 3
    assert world.counted == []


def test_who_is_told_to_go_before_it_serves_is_replaced_when_it_is_gone(world: World) -> None:
    world.crew.start(order("one", 1), given("one"))
    (child,) = world.hired
    world.crew.leaves(child)  # type: ignore[arg-type]
    assert world.hired == [child]
    child.end("signal SIGTERM")
    world.clock.advance(0)
    assert len(world.hired) == 2


def test_who_is_told_to_go_in_a_stop_goes(world: World) -> None:
    world.start(1)
    world.crew.stop()
    world.crew.leaves(world.hired[0])  # type: ignore[arg-type]
    assert len(world.hired) == 1


def test_a_process_that_cannot_be_started_is_tried_again(world: World) -> None:
    world.refuse = 2
    world.crew.start(order("one", 1), given("one"))
    assert world.hired == []
    world.clock.pump([1.0] * 10)
    assert len(world.hired) == 1


def test_all_prepare_before_one_of_them_takes(world: World) -> None:
    world.start(3)
    result = world.reload("two", 3)
    for child in world.hired[:2]:
        child.prepared.callback(None)
    assert [child.asked[-1] for child in world.hired] == ["prepare two"] * 3
    assert world.crew.order is not None
    assert world.crew.order.text == b"one"
    world.hired[2].prepared.callback(None)
    assert [child.asked[-1] for child in world.hired] == ["commit"] * 3
    assert not result.done
    for child in world.hired:
        child.committed.callback(None)
    assert result.done
    assert world.crew.order.text == b"two"


def test_one_that_cannot_keeps_it_from_all(world: World) -> None:
    world.start(3)
    result = world.reload("two", 3)
    world.hired[0].prepared.callback(None)
    world.hired[1].prepared.errback(Refused("no"))
    assert not result.why, "the others are waited for: they hold what they prepared"
    world.hired[2].prepared.callback(None)
    assert result.why == "worker 1 (pid 1): no"
    assert [child.asked[-1] for child in world.hired] == ["forget", "prepare two", "forget"]
    assert world.crew.order is not None
    assert world.crew.order.text == b"one"
    assert world.reload("three", 3).why == ""
    assert [child.asked[-1] for child in world.hired] == ["prepare three"] * 3


def test_one_that_dies_over_it_keeps_nobody_from_it(world: World) -> None:
    world.start(2)
    result = world.reload("two")
    world.hired[0].end()
    world.hired[1].serve()
    assert result.done
    world.clock.advance(0)
    assert world.hired[2].asked == ["prepare two"]


def test_one_that_cannot_take_what_it_prepared_is_replaced(world: World) -> None:
    world.start(2)
    result = world.reload("two")
    for child in world.hired[:2]:
        child.prepared.callback(None)
    world.hired[0].committed.errback(Refused("a port"))
    world.hired[1].committed.callback(None)
    assert result.done
    assert world.hired[0].asked[-1] == "drain", "what it has may end"
    assert world.hired[2].asked == ["prepare two"]
    assert world.counted == ["worker_restarted"]
    world.hired[0].end("exit status 0")
    world.clock.advance(60)
    assert len(world.hired) == 3


def test_who_comes_meanwhile_serves_nothing_but_the_new_one(world: World) -> None:
    world.start(2)
    world.hired[0].end()
    world.clock.advance(0)
    fresh = world.hired[2]
    result = world.reload("two")
    world.hired[1].serve()
    assert result.done
    fresh.prepared.callback(None)
    assert fresh.asked == ["prepare one", "prepare two"]
    assert fresh.given == {"two": [0]}
    fresh.serve()
    assert fresh.asked == ["prepare one", "prepare two", "commit"]
    assert fresh.serving


def test_who_begins_to_serve_the_old_one_meanwhile_takes_the_new_one_after(world: World) -> None:
    world.start(2)
    world.hired[0].end()
    world.clock.advance(0)
    fresh = world.hired[2]
    result = world.reload("two")
    fresh.serve()
    assert fresh.asked == ["prepare one", "commit"]
    world.hired[1].serve()
    assert result.done
    assert fresh.asked == ["prepare one", "commit", "prepare two"]


def test_more_workers_come_and_too_many_leave_once_the_others_have_their_sockets(world: World) -> None:
    world.start(2)
    result = world.reload("more", 3)
    for child in world.hired[:2]:
        child.prepared.callback(None)
    for child in world.hired[:2]:
        child.committed.callback(None)
    assert result.done
    assert [child.slot for child in world.hired] == [0, 1, 2]
    world.hired[2].serve()
    result = world.reload("less", 1)
    assert [child.asked[-1] for child in world.hired] == ["prepare less", "commit", "commit"]
    world.hired[0].prepared.callback(None)
    assert "drain" not in world.hired[1].asked, "nobody else accepts from its sockets yet"
    world.hired[0].committed.callback(None)
    assert result.done
    assert [child.asked[-1] for child in world.hired] == ["commit", "drain", "drain"]
    assert world.crew.others == {world.hired[1], world.hired[2]}
    world.clock.advance(30 + GRACE)
    assert [child.asked[-1] for child in world.hired[1:]] == ["SIGKILL", "SIGKILL"]
    for child in world.hired[1:]:
        child.end()
    world.clock.advance(60)
    assert len(world.hired) == 3
    assert world.counted == []


def test_new_ones_serve_before_the_old_ones_leave(world: World) -> None:
    world.start(2)
    result = world.renew("one")
    old, new = world.hired[:2], world.hired[2:]
    assert [child.slot for child in new] == [0, 1]
    new[0].prepared.callback(None)
    assert new[0].asked == ["prepare one"]
    new[1].prepared.callback(None)
    assert [child.asked[-1] for child in new] == ["commit", "commit"]
    new[0].committed.callback(None)
    assert "drain" not in old[0].asked
    new[1].committed.callback(None)
    assert result.done
    assert [child.asked[-1] for child in old] == ["drain", "drain"]
    assert world.crew.serving == new
    for child in old:
        child.end("exit status 0")
    world.clock.advance(60)
    assert len(world.hired) == 4


@pytest.mark.parametrize("how", ["refuses", "ends"])
def test_new_ones_that_cannot_serve_leave_the_old_ones_as_they_are(world: World, how: str) -> None:
    world.start(2)
    asked = [list(child.asked) for child in world.hired]
    result = world.renew("two")
    old, new = world.hired[:2], world.hired[2:]
    new[0].prepared.callback(None)
    if how == "refuses":
        new[1].prepared.errback(Refused("a bug"))
    else:
        new[1].end("exit status 1")
    assert result.why == "worker 1 (pid 3): " + ("a bug" if how == "refuses" else "it ended")
    assert "commit" not in new[0].asked
    assert new[0].asked[-1] == "SIGTERM"
    new[0].end("signal SIGTERM")
    if how == "refuses":
        new[1].end("signal SIGTERM")
    assert [child.asked for child in old] == asked
    assert world.crew.serving == old
    assert world.crew.order is not None
    assert world.crew.order.text == b"one"
    assert world.counted == []
    told: list[str] = []
    world.crew.stop().addCallback(lambda _: told.append("ended"))
    for child in old:
        child.end()
    assert told == ["ended"], "nobody waits for those who were gone by then"


def test_one_that_ends_behind_its_answer_is_no_success(world: World) -> None:
    world.start(2)
    result = world.renew("two")
    old, new = world.hired[:2], world.hired[2:]
    new[0].prepared.callback(None)
    new[0].end()
    new[1].prepared.callback(None)
    assert result.why == "worker 0 (pid 2): it ended"
    assert new[1].asked[-1] == "SIGTERM"
    assert world.crew.serving == old


def test_new_ones_that_cannot_be_started_change_nothing(world: World) -> None:
    world.start(2)
    world.refuse = 1
    assert world.renew("two").why == "no worker can be started: no more processes"
    assert world.crew.serving == world.hired


def test_an_old_one_that_ends_meanwhile_is_replaced_and_not_counted_as_new(world: World) -> None:
    world.start(2)
    result = world.renew("one")
    new = world.hired[2:]
    world.hired[0].end()
    world.clock.advance(0)
    stop_gap = world.hired[4]
    for child in new:
        child.prepared.callback(None)
    for child in new:
        child.committed.callback(None)
    assert result.done
    assert stop_gap.asked[-1] == "SIGTERM", "it did not serve yet"
    assert world.crew.serving == new


def test_who_was_there_before_goes_on_and_who_was_leaving_leaves(world: World) -> None:
    found = [Child(world.crew, slot, 90 + number, 0.0) for number, slot in enumerate((0, 1, 0))]
    for child in found:
        child.serving = True
    found[2].leaving = True
    world.crew.start(order("one"), given("one"), found)  # type: ignore[arg-type]
    assert world.hired == []
    assert world.crew.serving == found[:2]
    assert found[2].asked == ["drain"]
    assert set(world.crew.release()) == set(found)


def test_who_ended_while_one_program_became_the_other_is_replaced(world: World) -> None:
    found = [Child(world.crew, slot, 90 + slot, 0.0) for slot in (0, 1)]
    found[0].serving, found[1].gone = True, True
    world.crew.start(order("one"), given("one"), found)  # type: ignore[arg-type]
    assert [child.slot for child in world.hired] == [1]
    world.hired[0].serve()
    assert world.crew.serving == [found[0], world.hired[0]]


def test_a_stop_tells_when_nobody_is_left(world: World) -> None:
    world.start(2)
    world.hired[1].end()
    world.clock.advance(0)
    told: list[str] = []
    world.crew.stop().addCallback(lambda _: told.append("ended"))
    assert world.hired[0].asked[-1] == "drain"
    assert world.hired[2].asked[-1] == "SIGTERM", "it did not serve yet"
    world.hired[0].drained.callback(None)
    assert told == []
    world.crew.hurry()
    assert world.hired[0].asked[-1] == "hurry"
    world.hired[2].end()
    world.hired[0].end()
    assert told == ["ended"]
    world.clock.advance(60)
    assert len(world.hired) == 3
    assert world.counted == ["worker_restarted"]


def test_a_stop_while_one_is_waited_for_starts_nobody(world: World) -> None:
    world.start(1)
    for _ in range(2):
        world.hired[-1].end()
        world.clock.advance(0)
    told: list[str] = []
    world.crew.stop().addCallback(lambda _: told.append("ended"))
    for child in world.hired:
        if not child.gone:
            child.end()
    assert told == ["ended"]
    world.clock.advance(60)
    assert not any(not child.gone for child in world.hired)


def test_a_stop_ends_who_would_have_come(world: World) -> None:
    world.start(1)
    world.renew("two", 1)
    told: list[str] = []
    world.crew.stop().addCallback(lambda _: told.append("ended"))
    assert [child.asked[-1] for child in world.hired] == ["drain", "SIGTERM"]
    for child in world.hired:
        child.end()
    assert told == ["ended"]


def test_a_stop_in_an_upgrade_is_over_whoever_ends_last(world: World) -> None:
    world.start(2)
    result = world.renew("two")
    old, new = world.hired[:2], world.hired[2:]
    told: list[str] = []
    world.crew.stop().addCallback(lambda _: told.append("ended"))
    for child in (new[1], old[1], new[0]):
        child.end("signal SIGTERM")
    assert result.why == "the gateway stops"
    assert told == []
    old[0].end("exit status 0")
    assert told == ["ended"]


def test_who_does_not_serve_yet_is_handed_on_to_leave(world: World) -> None:
    world.start(2)
    world.hired[0].end()
    world.clock.advance(0)
    one, fresh = world.hired[1:]
    assert set(world.crew.release()) == {one, fresh}
    assert (one.leaving, fresh.leaving) == (False, True)
    world.clock.advance(START * 2)
    assert one.asked == ["prepare one", "commit"]
    other = World()
    other.crew.start(order("one"), given("one"), [fresh])  # type: ignore[list-item]
    assert fresh.asked[-1] == "SIGTERM"
    assert [child.slot for child in other.hired] == [0, 1]
    other.crew.stop()
    for child in other.hired:
        child.end()
    fresh.crew = other.crew
    fresh.end()


@pytest.mark.parametrize("way", ["reload", "renew"])
def test_what_a_stop_interrupts_is_over(world: World, way: str) -> None:
    world.start(1)
    result = getattr(world, way)("two", 1)
    world.crew.stop()
    for child in world.hired:
        if not child.prepared.called:
            child.prepared.callback(None)
    assert result.why == "the gateway stops"


def test_who_says_nothing_for_too_long_is_killed(world: World) -> None:
    world.start(2, hang=10.0)
    well, stuck = world.hired
    for _ in range(5):
        world.clock.advance(BEAT)
        well.silent = None
    assert stuck.counts == 1, "one question at a time"
    assert "SIGABRT" not in stuck.asked
    world.clock.advance(BEAT)
    assert stuck.asked[-1] == "SIGABRT"
    assert "SIGABRT" not in well.asked


def test_nobody_is_blamed_for_the_time_in_which_nobody_listened(world: World) -> None:
    world.start(1, hang=10.0)
    (child,) = world.hired
    world.clock.advance(BEAT)
    world.clock.advance(3600)
    assert "SIGABRT" not in child.asked
    for _ in range(5):
        world.clock.advance(BEAT)
    assert "SIGABRT" in child.asked


def test_where_nothing_is_too_long_nobody_is_killed(world: World) -> None:
    world.start(1, hang=0.0)
    world.clock.pump([BEAT] * 1000)
    assert "SIGABRT" not in world.hired[0].asked


def test_all_who_serve_are_asked_what_they_counted(world: World) -> None:
    world.start(2)
    maybeDeferred(world.crew.counted)
    assert [child.counts for child in world.hired] == [1, 1]


class Led:
    """Whom a crew says to be able to lead, from now on."""

    def __init__(self, world: World) -> None:
        self.said: list[list[Child]] = []
        world.crew._lead = self.said.append  # type: ignore[assignment]

    @property
    def able(self) -> list[Child]:
        return self.said[-1]


def test_who_serves_can_lead_and_who_leaves_cannot(world: World) -> None:
    led = Led(world)
    world.crew.start(order("one"), given("one"))
    assert led.able == []
    one, two = world.hired
    two.serve()
    assert led.able == [two]
    one.serve()
    assert led.able == [one, two]
    one.end()
    assert led.able == [two]
    world.clock.advance(0)
    world.hired[2].serve()
    assert led.able == [world.hired[2], two]
    reloaded = world.reload("two", 1)
    for child in (world.hired[2],):
        child.prepared.callback(None)
        child.committed.callback(None)
    assert reloaded.done
    assert led.able == [world.hired[2]]


def test_new_ones_lead_as_soon_as_the_first_serves(world: World) -> None:
    led = Led(world)
    world.start(2)
    result = world.renew("two")
    new = world.hired[2:]
    for child in new:
        child.prepared.callback(None)
    assert led.able == world.hired[:2]
    new[1].committed.callback(None)
    new[0].committed.callback(None)
    assert result.done
    assert new[0] in led.able
    assert not set(led.able) & set(world.hired[:2])


def test_one_that_says_nothing_does_not_lead_until_it_does(world: World) -> None:
    led = Led(world)
    world.start(2, hang=60.0)
    one, two = world.hired
    for _ in range(2):
        world.clock.advance(BEAT)
        two.silent = None
    assert led.able == [one, two]
    world.clock.advance(BEAT)
    two.silent = None
    assert led.able == [two]
    one.silent = None
    world.clock.advance(BEAT)
    assert led.able == [one, two]


def test_nobody_is_appointed_during_a_stop(world: World) -> None:
    led = Led(world)
    world.start(2)
    said = len(led.said)
    world.crew.stop()
    assert len(led.said) == said
