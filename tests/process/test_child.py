"""A worker as its supervisor sees it: a real process, whose line the test has the other end of."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from protogate.observe.snapshot import Totals, empty
from protogate.process import child as module
from protogate.process import messages
from protogate.process.channel import Channel, Lost, Refused
from protogate.process.child import Begun, Child, Order
from protogate.process.spawn import spawn

reactor: Any = installed
WAITS = "import signal, time; print('here', flush=True); time.sleep(60)"


class World:
    """
    @ivar child: what is tried.
    @ivar peer: the worker's end of the line; C{heard}: what it was told, C{answer}: what it says to that.
    """

    def __init__(self, program: str = WAITS) -> None:
        ours, theirs = socket.socketpair()
        spare, other = socket.socketpair()
        reads, writes = os.pipe()
        with spare, other:
            pid = spawn([sys.executable, "-c", program], os.environ, other.fileno(), writes)
        os.close(writes)
        self.totals = Totals()
        self.ended: Deferred[str] = Deferred()
        self.heard: list[Any] = []
        self.answer: Any = messages.Done()
        self.peer = Channel(reactor, theirs, self._answer)
        self.left: list[Child] = []
        begun = Begun(pid, 1, 0.0, ours.detach(), reads)
        self.child = Child(reactor, begun, self._ended, self.totals.join(), leaves=self.left.append)

    def _answer(self, message: Any, descriptors: list[int]) -> Any:
        self.heard.append((type(message).__name__, len(descriptors)))
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _ended(self, child: Child, why: str) -> None:
        assert child is self.child
        self.ended.callback(why)

    async def end(self, number: int = signal.SIGKILL) -> str:
        """Send a signal; what became of it."""
        self.child.kill(number)
        why = await self.ended
        self.peer.close()
        return why


async def until(holds: Callable[[], object]) -> None:
    """Wait for something to become true."""
    for _ in range(2000):
        if holds():
            return
        await deferLater(reactor, 0.005)
    pytest.fail("it never did")


ORDER = Order("/a.yaml", b"text", None, 2, 30.0)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(module, "LEAVE", 0.05)


@pytest_twisted.ensureDeferred
async def test_it_is_told_everything_and_answers() -> None:
    world = World()
    child = world.child
    assert str(child) == f"worker 1 (pid {child.pid})"
    await child.prepare(ORDER._replace(log=0), {"web": [0, 0], "local": [0]})
    await child.commit()
    child.forget()
    await child.drain()
    assert child.leaving
    child.hurry()
    await until(lambda: len(world.heard) == 5)
    assert world.heard == [("Prepare", 4), ("Commit", 0), ("Forget", 0), ("Drain", 0), ("Hurry", 0)]
    assert await world.end() == "signal SIGKILL"
    assert child.gone
    child.kill()  # of somebody else by now
    with pytest.raises(Lost):
        await child.commit()
    await child.drain()


@pytest_twisted.ensureDeferred
async def test_what_it_refuses_is_for_whoever_asked() -> None:
    world = World()
    world.answer = Refused("no port")
    with pytest.raises(Refused, match="no port"):
        await world.child.prepare(ORDER, {})
    await world.child.drain()
    await world.end()


@pytest_twisted.ensureDeferred
async def test_what_it_counted_is_kept_when_it_is_gone() -> None:
    world = World()
    taken = {**empty(), "counts": {"": {"": {"exchanges": 3}}}, "gauges": {"": {"": {"x": 1}}}}
    world.answer = messages.Counted(snapshot=taken)
    world.child.silent = 1.0
    await world.child.count()
    assert world.child.silent is None
    assert world.totals.whole() == taken
    last = {**taken, "counts": {"": {"": {"exchanges": 4}}}}
    world.peer.tell(messages.Counted(snapshot=last))
    await until(lambda: world.totals.whole() == last)
    await world.end()
    assert world.totals.whole() == {**last, "gauges": {}}


@pytest_twisted.ensureDeferred
async def test_what_it_says_and_what_it_prints_is_in_the_log() -> None:
    program = "import os, time; os.write(2, b'one\\ntw'); time.sleep(0.05); os.write(2, b'o\\nthree'); time.sleep(60)"
    world = World(program)
    with capturedLogs() as captured:
        world.peer.tell(messages.Started(version="1.2.3", reactor="UVReactor"))
        world.peer.tell(messages.Event(level="warn", namespace="a.b", text="careful {x}"))
        world.peer.tell(messages.Event(level="of another version", namespace="a.b", text="hm"))
        await until(lambda: len(captured) == 5)
        assert world.left == []
        world.peer.tell(messages.Leaving())
        await until(lambda: world.left == [world.child])
        why = await world.end()
    told = [(event["log_level"].name, formatEvent(event)) for event in captured]
    of = str(world.child)
    assert {("info", f"{of} has started: protogate 1.2.3 on UVReactor"), ("warn", f"{of}: [a.b] careful {{x}}")} < set(
        told
    )
    assert ("info", f"{of}: [a.b] hm") in told
    assert [text for _, text in told if " writes: " in text] == [
        f"{of} writes: {word}" for word in ("one", "two", "three")
    ]
    assert why == "signal SIGKILL, its last words:\n  one\n  two\n  three"


@pytest_twisted.ensureDeferred
async def test_of_what_it_prints_only_the_end_is_kept() -> None:
    world = World("import os; os.write(2, b'x' * 50000 + b'\\n' + b'line\\n' * 30); raise SystemExit(3)")
    with capturedLogs():
        why = await world.ended
    world.peer.close()
    assert why == "exit status 3, its last words:\n" + "\n".join(["  line"] * module.LINES)


@pytest_twisted.ensureDeferred
async def test_who_ends_as_he_should_has_no_last_words() -> None:
    world = World("import os; os.write(2, b'bye')")
    with capturedLogs():
        assert await world.ended == "exit status 0"
    world.peer.close()


@pytest_twisted.ensureDeferred
async def test_a_signal_that_can_be_survived_is_followed_by_one_that_cannot(patience: None) -> None:
    world = World("import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write(2, b'deaf\\n'); time.sleep(60)")
    with capturedLogs() as captured:
        await until(lambda: captured)
        assert (await world.end(signal.SIGTERM)).startswith("signal SIGKILL")


@pytest_twisted.ensureDeferred
async def test_who_is_no_longer_on_the_line_is_killed(patience: None) -> None:
    world = World()
    world.peer.close()
    assert await world.ended == "signal SIGKILL"


@pytest_twisted.ensureDeferred
async def test_another_supervisor_can_look_after_it() -> None:
    world = World()
    child = world.child
    child.serving = True
    begun = child.detach()
    assert (begun.pid, begun.slot, begun.serving, begun.leaving) == (child.pid, 1, True, False)
    world.child = Child(reactor, begun, world._ended, world.totals.join())
    await world.child.commit()
    assert world.heard == [("Commit", 0)]
    assert await world.end() == "signal SIGKILL"


@pytest_twisted.ensureDeferred
async def test_it_is_told_of_the_board_before_it_serves_and_what_it_says_is_for_the_keeper() -> None:
    world = World()
    child, keeper = world.child, world.child._keeper
    keeper.posts["shop"] = {"a": 1}
    await child.commit()
    assert [name for name, _ in world.heard] == ["Commit"], "it has not said that it knows of one"
    world.peer.tell(messages.Started(version="1", reactor="none", board=True))
    await until(lambda: child.board)
    await child.commit()
    assert [name for name, _ in world.heard[1:]] == ["Posts", "Commit"]
    world.peer.tell(messages.Follow(topic="shop", follows=True))
    await until(lambda: len(world.heard) == 4)
    keeper.lead([child])
    await until(lambda: len(world.heard) == 5)
    world.peer.tell(messages.Post(topic="shop", key="b", value=[0.5, "slow", None], term=1))
    await until(lambda: "b" in keeper.posts["shop"])
    await child.count()
    child.serving = True
    begun = child.detach()
    assert (begun.board, begun.follows, begun.leads) == (True, ["shop"], True)
    assert keeper.leader is None
    again = Child(reactor, begun, world._ended, world.totals.join(), keeper)
    world.child = again
    assert keeper.leader is again
    await until(lambda: [name for name, _ in world.heard[-2:]] == ["Posts", "Lead"])
    world.peer.close()
    await until(lambda: not again.board)
    again.kill()
    await world.ended
    assert keeper.leader is None
