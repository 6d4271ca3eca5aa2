"""A worker, in the process of the test: what its supervisor tells it, and what it does."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from protogate.process import messages
from protogate.process.channel import Channel, Refused
from protogate.process.worker import DEAF, Worker

reactor: Any = installed


class World:
    """
    @ivar worker: what is tried.
    @ivar line: the supervisor's end.
    @ivar sockets: of the supervisor: of C{web}, C{more} and C{local}.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[Any] = []
        self.exits: list[None] = []
        ours, theirs = socket.socketpair()
        self.line = Channel(reactor, ours, lambda message, _: self.told.append(message))
        self.worker = Worker(reactor, theirs, lambda: self.exits.append(None))
        self.sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in ("web", "more")}
        self.sockets["local"] = socket.socket(socket.AF_UNIX)
        self.sockets["local"].bind(str(folder / "local.sock"))
        self.sockets["local"].listen()
        for each in self.sockets.values():
            each.setblocking(False)

    def text(self, mark: str, *names: str, **parts: Any) -> bytes:
        listeners = ", ".join(f'{{name: {name}, address: "127.0.0.1:{9000 + at}"}}' for at, name in enumerate(names))
        module = f"{{name: respond, stage: PRE_REQUEST, actionParam: {{status: 200, body: {mark}}}}}"
        more = "".join(f"\n{name}: {value}" for name, value in parts.items())
        return f"gateway: {{drain: 1s}}\nlisteners: [{listeners}]\nmodules: [{module}]{more}\n".encode()

    def prepare(self, text: bytes, *names: str, log: bool = False, board: bool = False) -> Deferred[Any]:
        given = [messages.Given(name, 1) for name in names]
        message = messages.Prepare(
            path=str(self.folder / "gateway.yaml"), text=text, stamp=None, listeners=given, log=log, board=board
        )
        descriptors = [self.sockets[name].fileno() for name in names]
        if log:
            descriptors.append(os.open(self.folder / "opened.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        answer = self.line.call(message, descriptors)
        if log:
            os.close(descriptors[-1])
        return answer

    async def take(self, mark: str, *names: str, **parts: Any) -> None:
        await self.prepare(self.text(mark, *names, **parts), *names, log="accessLog" in parts)
        await self.line.call(messages.Commit())

    async def ask(self, name: str = "web") -> str:
        """What is answered there."""
        where = self.sockets[name].getsockname()
        endpoint: Any = UNIXClientEndpoint(reactor, where) if name == "local" else TCP4ClientEndpoint(reactor, *where)
        answer = Answer()
        await connectProtocol(endpoint, answer)
        assert answer.transport is not None
        answer.transport.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return (await answer.whole).rpartition(b"\r\n\r\n")[2].decode()

    async def stop(self) -> None:
        if self.line._open:
            await self.line.call(messages.Drain())
        await until(lambda: self.exits)
        self.line.close()
        self.worker.channel.close()
        for each in self.sockets.values():
            each.close()


class Answer(Protocol):
    """All that comes."""

    def __init__(self) -> None:
        self.data = b""
        self.whole: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.whole.callback(self.data)


async def until(holds: Callable[[], object]) -> None:
    """Wait for something to become true."""
    for _ in range(2000):
        if holds():
            return
        await deferLater(reactor, 0.005)
    pytest.fail("it never did")


@pytest_twisted.async_yield_fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.stop()


@pytest_twisted.ensureDeferred
async def test_it_serves_what_it_was_handed(world: World) -> None:
    world.worker.begin()
    await world.prepare(world.text("one", "web", "local"), "web", "local")
    assert world.worker.service is None
    await world.line.call(messages.Commit())
    assert (await world.ask("web"), await world.ask("local")) == ("one", "one")
    assert isinstance(world.told[0], messages.Started)
    assert (world.folder / "local.sock").is_socket()


@pytest_twisted.ensureDeferred
async def test_another_configuration_is_taken_on_the_same_sockets(world: World) -> None:
    await world.take("one", "web", "local")
    before = [port for one in world.worker.service.ports.opened.values() for port in one.ports]  # type: ignore[union-attr]
    await world.prepare(world.text("two", "web", "local", "more"), "web", "local", "more")
    assert await world.ask() == "one"
    await world.line.call(messages.Commit())
    assert [await world.ask(name) for name in ("web", "local", "more")] == ["two"] * 3
    after = [port for one in world.worker.service.ports.opened.values() for port in one.ports]  # type: ignore[union-attr]
    assert after[:2] == before
    await world.take("three", "more")
    assert await world.ask("more") == "three"
    assert (world.folder / "local.sock").is_socket(), "it is the supervisor's"
    assert world.sockets["web"].getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@pytest_twisted.ensureDeferred
async def test_what_is_off_leaves_everything_as_it_was(world: World) -> None:
    await world.take("one", "web")
    await world.prepare(world.text("two", "web", "more", accessLog="{file: a.log}"), "web", "more", log=True)
    world.line.tell(messages.Forget())
    await world.line.call(messages.Ping())
    assert await world.ask() == "one"
    with pytest.raises(Refused, match="nothing was prepared"):
        await world.line.call(messages.Commit())
    await until(lambda: not any("AccessLog" in str(call) for call in reactor.getDelayedCalls()))


@pytest_twisted.ensureDeferred
async def test_faults_are_refused(world: World) -> None:
    with pytest.raises(Refused, match=r"gateway\.yaml:1:1: nonsense: unknown key"):
        await world.prepare(b"nonsense: 1\nlisteners: [{name: web, address: '127.0.0.1:1'}]\n", "web")
    await world.take("one", "web")
    with pytest.raises(Refused, match=r"accessLog\.file: cannot be opened: No such file"):
        await world.prepare(world.text("two", "web", accessLog="{file: none/a.log}"), "web")
    assert await world.ask() == "one"


@pytest_twisted.ensureDeferred
async def test_a_socket_that_cannot_be_taken_leaves_everything_as_it_was(world: World) -> None:
    await world.take("one", "web")
    await world.prepare(world.text("two", "web", "more"), "web", "more")
    adopted: list[Any] = []
    adopt = reactor.adoptStreamPort

    def fails(descriptor: int, family: int, factory: Any) -> Any:
        adopted.append(descriptor)
        raise OSError(24, "Too many open files")

    reactor.adoptStreamPort = fails
    try:
        with pytest.raises(Refused, match=r"cannot listen on .*: Too many open files"):
            await world.line.call(messages.Commit())
    finally:
        reactor.adoptStreamPort = adopt
    assert len(adopted) == 1
    assert await world.ask() == "one"


@pytest_twisted.ensureDeferred
async def test_the_log_that_was_opened_is_the_one_that_is_written(world: World) -> None:
    await world.take("one", "web", accessLog="{file: opened.log}")
    await world.ask()
    await until(lambda: (world.folder / "opened.log").read_text().count("\n") == 1)
    await world.take("two", "web", accessLog="{file: opened.log, queue: 5}")
    await world.ask()
    await until(lambda: (world.folder / "opened.log").read_text().count("\n") == 2)


@pytest_twisted.ensureDeferred
async def test_it_tells_what_it_counted_and_once_more_at_its_end(world: World) -> None:
    assert (await world.line.call(messages.Ping())).snapshot == {}  # type: ignore[attr-defined]
    await world.take("one", "web")
    await world.ask()
    counted: Any = await world.line.call(messages.Ping())
    assert counted.snapshot["counts"][""][""]["exchanges"] == 1
    assert counted.snapshot["gauges"]["listener"]["web"]["requests"] == 0
    await world.line.call(messages.Drain())
    await until(lambda: world.exits)
    await until(lambda: any(isinstance(message, messages.Counted) for message in world.told))


@pytest_twisted.ensureDeferred
async def test_it_drains_when_its_supervisor_is_gone(world: World) -> None:
    await world.take("one", "web")
    world.line.close()
    await until(lambda: world.exits)
    assert not world.worker.service.running  # type: ignore[union-attr]


@pytest_twisted.ensureDeferred
async def test_reloads_leave_no_descriptor_behind(world: World) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def some() -> None:
        for number in range(5):
            await world.take(f"m{number}", "web", "local", accessLog="{file: opened.log}")
        await world.prepare(world.text("off", "web"), "web", log=True)
        world.line.tell(messages.Forget())
        await world.line.call(messages.Ping())

    await some()
    most = count()
    await some()
    await some()
    await until(lambda: count() <= most)  # files are closed by the threads that wrote them, when they are through


@pytest_twisted.ensureDeferred
async def test_it_cuts_off_what_is_under_way_when_it_is_told_to(world: World) -> None:
    world.line.tell(messages.Hurry())
    await world.take("one", "web")
    held = Answer()
    await connectProtocol(TCP4ClientEndpoint(reactor, *world.sockets["web"].getsockname()), held)
    await until(
        lambda: world.worker.service.ports.opened[next(iter(world.worker.service.ports.opened))].listener.connections
    )  # type: ignore[union-attr]
    await world.line.call(messages.Drain())
    await world.line.call(messages.Hurry())
    assert await held.whole == b""


@pytest_twisted.ensureDeferred
async def test_who_drains_takes_no_configuration_but_holds_nobody_up(world: World) -> None:
    await world.take("one", "web")
    service = world.worker.service
    assert service is not None
    held = Answer()
    await connectProtocol(TCP4ClientEndpoint(reactor, *world.sockets["web"].getsockname()), held)
    await until(lambda: next(iter(service.ports.opened.values())).listener.connections)
    world.worker.leave()  # as SIGTERM has it
    await until(lambda: messages.Leaving() in world.told)
    await world.take("two", "web", "more")
    assert service.addresses == {}, "it would accept whom it cannot serve to the end"
    await until(lambda: world.exits)
    assert await held.whole == b""


@pytest_twisted.ensureDeferred
async def test_a_message_that_is_for_a_supervisor_is_refused(world: World) -> None:
    with pytest.raises(Refused, match="does not understand Started"):
        await world.line.call(messages.Started(version="", reactor=""))


@pytest_twisted.ensureDeferred
async def test_its_log_is_told_to_the_supervisor_as_long_as_he_listens(world: World) -> None:
    log = Logger("acme", observer=world.worker)
    log.warn("careful {x}", x=1)
    log.info("")
    try:
        raise ValueError("broken")
    except ValueError:
        log.failure("it failed")
    await until(lambda: len(world.told) == 2)
    warning, failure = world.told
    assert (warning.level, warning.namespace, warning.text) == ("warn", "acme", "careful 1")
    assert failure.level == LogLevel.critical.name
    assert failure.text.startswith("it failed\nTraceback")
    world.worker.channel.waiting = DEAF
    log.warn("nobody listens")
    world.worker.channel.waiting = 0
    await world.line.call(messages.Ping())
    assert len(world.told) == 2


CHECKED = "[{name: shop, endpoints: [{url: 'http://127.0.0.1:9'}], healthCheck: {type: connect, interval: 1h}}]"


@pytest_twisted.ensureDeferred
async def test_it_knows_what_is_posted_before_it_serves_and_judges_when_it_leads(world: World) -> None:
    judged = {"endpoints/shop": {"healthCheck 127.0.0.1:9": [0.0, "ill", None]}, "gone": {"a": 1}}
    world.line.tell(messages.Posts(posts=judged))
    await world.prepare(world.text("one", "web", upstreams=CHECKED), "web", board=True)
    await world.line.call(messages.Commit())
    service = world.worker.service
    assert service is not None
    assert service.clusters is not None
    (endpoint,) = service.clusters.current["shop"].endpoints
    assert dict(endpoint.held) == {"healthCheck": (0.0, "ill")}
    assert world.worker.board._posts == {"endpoints/shop": judged["endpoints/shop"]}
    await until(lambda: messages.Follow(topic="endpoints/shop", follows=True) in world.told)
    assert not world.worker.board.leads
    world.line.tell(messages.Lead(term=7))
    await world.line.call(messages.Ping())
    assert world.worker.board.leads
    service.clusters.current["shop"].hold(endpoint, "healthCheck", 1.0)
    post = messages.Post(topic="endpoints/shop", key="healthCheck 127.0.0.1:9", value=None, term=7)
    await until(lambda: post in world.told)
    await world.line.call(messages.Drain())
    await until(lambda: messages.Lead(term=0) in world.told)


@pytest_twisted.ensureDeferred
async def test_without_a_board_it_judges_for_itself(world: World) -> None:
    await world.take("one", "web", upstreams=CHECKED)
    await world.line.call(messages.Ping())
    assert not any(isinstance(message, messages.Follow) for message in world.told)
    assert world.worker.service is not None
    assert world.worker.service._board.leads
