"""The process that has the sockets: with real sockets, and workers that do what the test says."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from protogate.config.faults import ConfigFaults
from protogate.observe.snapshot import empty
from protogate.process import supervisor as module
from protogate.process.channel import Refused
from protogate.process.child import Begun, Order
from protogate.process.draft import draft
from protogate.process.notify import Notify
from protogate.process.supervisor import Supervisor
from protogate.process.upgrade import Begin, State
from protogate.process.whole import Whole

reactor: Any = installed


class Child:
    """A worker that does all it is asked to, at once, unless C{refuses} says otherwise."""

    def __init__(self, supervisor: Tried, slot: int) -> None:
        self.supervisor, self.slot, self.pid, self.born = supervisor, slot, 4711, 0.0
        self.serving = self.leaving = self.gone = self.board = False
        self.limit: Any = None
        self.silent: float | None = None
        self.refuses = ""
        self.asked: list[str] = []
        self.given: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"worker {self.slot}"

    def prepare(self, order: Order, given: dict[str, Any]) -> Deferred[Any]:
        self.asked.append("prepare")
        self.given = given
        return fail(Refused(self.refuses)) if self.refuses else succeed(None)

    def commit(self) -> Deferred[Any]:
        self.asked.append("commit")
        return succeed(None)

    def forget(self) -> None:
        self.asked.append("forget")

    def drain(self) -> Deferred[Any]:
        self.leaving = True
        self.asked.append("drain")
        if "held" not in self.asked:
            reactor.callLater(0, self.end)
        return succeed(None)

    def hurry(self) -> None:
        self.asked.append("hurry")
        if self.leaving:
            self.end()

    def count(self) -> Deferred[Any]:
        return succeed(None)

    def kill(self, number: int = 9) -> None:
        reactor.callLater(0, self.end)

    def end(self) -> None:
        if not self.gone:
            self.gone, self.serving = True, False
            self.supervisor.crew.ended(self, "signal SIGTERM")  # type: ignore[arg-type]

    def detach(self) -> Begun:
        self.gone = True
        return Begun(self.pid, self.slot, self.born, 0, 0, serving=self.serving, leaving=self.leaving)


class Tried(Supervisor):
    """With such workers."""

    hired: list[Child]
    refuses = ""
    waits = False

    def _hire(self, slot: int, order: Order) -> Any:
        child = Child(self, slot)
        child.refuses = self.refuses
        if self.waits:
            child.prepare = lambda *_: Deferred()  # type: ignore[method-assign]
        self.hired.append(child)
        return child

    def _child(self, begun: Begun) -> Any:
        child = Child(self, begun.slot)
        child.serving, child.leaving = begun.serving, begun.leaving
        self.hired.append(child)
        return child


class World:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "gateway.yaml"

    def write(self, *names: str, workers: int = 2, more: str = "") -> None:
        listeners = "".join(f'  - {{name: {name}, address: "127.0.0.1:0"}}\n' for name in names)
        self.file.write_text(
            f"gateway: {{workers: {workers}, watch: false, drain: 10s{more}}}\nlisteners:\n{listeners}"
            "accessLog: {file: a.log}\nadmin: {address: '127.0.0.1:0'}\n"
        )

    def make(self, state: State | None = None, **more: Any) -> Tried:
        """Not started."""
        made = Tried(draft(str(self.file)), reactor, state=state, signals=False, **more)
        made.hired = []
        return made


async def until(holds: Callable[[], object]) -> None:
    """Wait for something to become true."""
    for _ in range(2000):
        if holds():
            return
        await deferLater(reactor, 0.005)
    pytest.fail("it never did")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write("web")
    return world


@pytest_twisted.ensureDeferred
async def test_a_life(world: World) -> None:
    supervisor = world.make()
    whole = Whole(supervisor)
    assert whole.unready() == "it stops: requests under way end"
    supervisor.startService()
    supervisor.privilegedStartService()
    assert set(supervisor.addresses) == {"web"}
    assert [child.asked for child in supervisor.hired] == [["prepare", "commit"]] * 2
    assert supervisor.hired[0].given["web"] != supervisor.hired[1].given["web"]
    assert whole.unready() == ""
    taken: Any = await whole.snapshot()
    assert taken["gauges"] == {"": {"": {"workers": 2}}}
    await supervisor.stopService()
    assert whole.unready()
    assert supervisor.addresses == {}
    assert supervisor.admin.host is None


@pytest_twisted.ensureDeferred
async def test_nobody_serves_yet(world: World) -> None:
    supervisor = world.make()
    supervisor.waits = True
    supervisor.startService()
    assert Whole(supervisor).unready() == "no worker serves yet"
    await supervisor.stopService()


@pytest_twisted.ensureDeferred
async def test_what_a_worker_refuses_changes_nothing(world: World) -> None:
    supervisor = world.make()
    supervisor.startService()
    supervisor.hired[1].refuses = "gateway.yaml:1:1: no such module"
    world.write("web", "more")
    files = len(os.listdir("/proc/self/fd"))
    with capturedLogs() as captured:
        assert await supervisor.loading.reload() is False
    (told,) = [formatEvent(event) for event in captured if event["log_level"].name == "error"]
    assert told.endswith("the configuration in force stays:\nworker 1: gateway.yaml:1:1: no such module")
    assert set(supervisor.addresses) == {"web"}
    assert supervisor.hired[0].asked[-1] == "forget"
    assert len(os.listdir("/proc/self/fd")) == files
    supervisor.hired[1].refuses = ""
    assert await supervisor.loading.reload() is True
    assert set(supervisor.addresses) == {"web", "more"}
    assert supervisor.counters.counts["reload_failed"] == supervisor.counters.counts["reload_ok"] == 1
    await supervisor.stopService()


@pytest_twisted.ensureDeferred
async def test_a_port_that_cannot_be_opened_is_a_fault_at_the_start(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        world.file.write_text(world.file.read_text().replace("'127.0.0.1:0'", f"'127.0.0.1:{port}'"))
        supervisor = world.make()
        with pytest.raises(ConfigFaults, match=f"admin.address: cannot listen on 127.0.0.1:{port}"):
            supervisor.privilegedStartService()
    assert supervisor.addresses == {}


@pytest_twisted.ensureDeferred
async def test_who_is_in_a_hurry_waits_for_neither_delay_nor_requests(world: World) -> None:
    world.write("web", more=", drainDelay: 1h")
    supervisor = world.make()
    supervisor.startService()
    for child in supervisor.hired:
        child.asked.append("held")
    stopped: list[object] = []
    supervisor.stopService().addCallback(stopped.append)
    assert supervisor.hired[0].asked[-1] == "held", "it serves on"
    supervisor._hurry()
    await until(lambda: "drain" in supervisor.hired[0].asked)
    assert not stopped
    supervisor._hurry()
    await until(lambda: stopped)


@pytest_twisted.ensureDeferred
async def test_without_knowing_how_it_was_started_there_is_no_upgrade(world: World) -> None:
    supervisor = world.make()
    supervisor.startService()
    with capturedLogs() as captured:
        await supervisor.upgrade()
    assert [formatEvent(event) for event in captured] == ["no upgrade: how this process was started is not known"]
    await supervisor.stopService()


@pytest_twisted.ensureDeferred
async def test_a_program_that_cannot_be_executed_leaves_all_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = world.make(begin=Begin(twistd=False))
    supervisor.startService()
    supervisor.hired[0].end()
    await until(lambda: len(supervisor.crew.serving) == 2)
    states: list[State] = []

    def become(state: State) -> None:
        states.append(state)
        raise OSError("no such file")

    monkeypatch.setattr(module.upgrade, "rehearse", lambda *_: succeed(""))
    monkeypatch.setattr(module.upgrade, "become", become)
    with capturedLogs() as captured:
        await supervisor.upgrade()
    assert "no upgrade: the new program cannot be executed: no such file" in map(formatEvent, captured)
    (state,) = states
    assert [(begun.slot, begun.serving) for begun in state.children] == [(1, True), (0, True)]
    assert state.log is not None
    assert [len(each.descriptors) for each in state.sockets] == [2]
    assert state.counted["counts"][""][""]["worker_restarted"] == 1
    assert len(supervisor.crew.serving) == 2
    assert supervisor.admin.host is not None
    world.write("web", "more")
    assert await supervisor.loading.reload() is True
    await supervisor.stopService()


def left(world: World) -> tuple[Supervisor, State]:
    """One that serves with two workers, and what it leaves to the next program."""
    before = world.make(begin=Begin(twistd=False))
    before.startService()
    state = before._left(Begin(twistd=False))
    for each in state.sockets:
        each.descriptors = [os.dup(number) for number in each.descriptors]
    assert state.log is not None
    state.log = state.log[0], os.dup(state.log[1])
    state.children = [Begun(1, 0, 0.0, 0, 0, serving=True), Begun(2, 1, 0.0, 0, 0, serving=True)]
    return before, state


@pytest.mark.parametrize("fault", ["", "file", "worker"])
@pytest_twisted.ensureDeferred
async def test_the_next_program_goes_on_with_what_it_finds(world: World, fault: str) -> None:
    before, state = left(world)
    state.counted = {"counts": {"": {"": {"exchanges": 7}}}, "gauges": {}, "histograms": {}}
    state.posts, state.term = {"endpoints/shop": {"healthCheck 192.0.2.7:80": [0.0, "ill", None]}}, 3
    where = before.addresses
    world.write("web", "more")
    text = world.file.read_text()
    if fault == "file":
        world.file.write_text(text.replace("a.log", "none/a.log"))
    after = world.make(state)
    if fault == "worker":
        after.refuses = "a bug"
    with capturedLogs() as captured:
        after.startService()
        found = after.hired[:2]
        await until(lambda: {"upgrade_ok", "upgrade_failed"} & set(after.counters.counts))
    told = [formatEvent(event) for event in captured]
    assert after.addresses["web"] == where["web"]
    assert after.counted()["counts"][""][""]["exchanges"] == 7
    assert after.keeper.term == 3
    assert after._left(Begin(twistd=False)).term == 3
    if fault:
        (why,) = [text for text in told if text.startswith("no upgrade, the workers that were there go on: ")]
        assert ("accessLog.file: cannot be opened" if fault == "file" else "worker 0: a bug") in why
        assert after.crew.serving == found
        assert set(after.addresses) == {"web"}
        assert after.admin.host is not None
    else:
        assert "upgrade: 2 workers with the new code serve" in told
        assert set(after.addresses) == {"web", "more"}
        assert [child.asked[-1] for child in found] == ["drain", "drain"]
    await after.stopService()
    await before.stopService()


class Told(Notify):
    """What the service manager is told."""

    def __init__(self) -> None:
        super().__init__("@nobody", 10.0)
        self.said: list[str] = []

    def _send(self, *lines: str) -> None:
        self.said.append(lines[0])


@pytest_twisted.ensureDeferred
async def test_nobody_waits_for_new_workers_but_the_old_ones(world: World) -> None:
    before, state = left(world)
    notify = Told()
    after = world.make(state, notify=notify)
    after.waits = True
    after.startService()
    assert len(after.hired) == 4
    assert after.admin.host is not None, "operators are answered"
    assert Whole(after).unready() == ""
    assert notify.said == ["WATCHDOG=1"]
    with capturedLogs() as captured:
        await after.stopService()
    assert after.admin.host is None
    assert notify.said == ["WATCHDOG=1", "STOPPING=1"]
    assert "upgrade_failed" not in after.counters.counts
    assert not [event for event in captured if event["log_level"].name == "error"]
    await before.stopService()


@pytest_twisted.ensureDeferred
async def test_why_an_endpoint_is_held_back_is_what_was_posted(world: World) -> None:
    supervisor = world.make()
    supervisor.startService()
    shares = {"shop": {"192.0.2.7:80": {"": 0.0, "healthCheck": 0.0, "mine": 0.5}, "192.0.2.8:80": {"": 1.0}}}
    supervisor.totals.join().take({**empty(), "endpoints": shares})
    supervisor.keeper.posts["endpoints/shop"] = {"healthCheck 192.0.2.7:80": [0.0, "it answered 503", None]}
    assert await Whole(supervisor).endpoints() == {
        "shop": {
            "192.0.2.7:80": {
                "share": 0.0,
                "held": {
                    "healthCheck": {"share": 0.0, "why": "it answered 503"},
                    "mine": {"share": 0.5, "why": ""},
                },
            },
            "192.0.2.8:80": {"share": 1.0, "held": {}},
        }
    }
    supervisor.totals.join().take({**empty(), "endpoints": {"shop": {"*": {"": 0.0, "circuitBreaker": 0.0}}}})
    told = (await Whole(supervisor).endpoints())["shop"]["*"]
    assert told == {"share": 0.0, "held": {"circuitBreaker": {"share": 0.0, "why": ""}}}, "nobody leads yet"
    supervisor.keeper.posts["watch/shop"] = {"circuitBreaker ": [1, 1, 0, 4.5, 1, 5.0, "12 of 20 failed"]}
    told = (await Whole(supervisor).endpoints())["shop"]["*"]
    assert told["held"]["circuitBreaker"]["why"] == "12 of 20 failed"
    await supervisor.stopService()
