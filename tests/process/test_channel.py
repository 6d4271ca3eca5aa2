"""The line between two processes, with both ends here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from protogate.process.channel import CARRIED, Channel, Lost, Refused
from protogate.process.messages import Counted, Done, Event, Message, Ping, Prepare


class Reactor:
    """Readers and writers that are asked when the test says so."""

    def __init__(self) -> None:
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()
        self.addReader, self.removeReader = self.readers.add, self.readers.discard
        self.addWriter, self.removeWriter = self.writers.add, self.writers.discard

    def turn(self, rounds: int = 50) -> None:
        """Until there is nothing left to do, most probably."""
        for _ in range(rounds):
            for writer in list(self.writers):
                writer.doWrite()
            for reader in list(self.readers):
                reader.doRead()


class End:
    """One end: says what it was told, and answers what the test wants."""

    def __init__(self, reactor: Reactor, line: socket.socket) -> None:
        self.heard: list[tuple[Message, list[int]]] = []
        self.answer: Any = Done()
        self.lost = 0
        self.channel = Channel(reactor, line, self.handle, self.gone)

    def handle(self, message: Message, descriptors: list[int]) -> Any:
        self.heard.append((message, descriptors))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def gone(self) -> None:
        self.lost += 1


class Pair:
    def __init__(self) -> None:
        self.reactor = Reactor()
        lines = socket.socketpair()
        self.one, self.two = (End(self.reactor, line) for line in lines)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    for end in (pair.one, pair.two):
        for _, descriptors in end.heard:
            for descriptor in descriptors:
                os.close(descriptor)
        end.channel.close()
    assert pair.reactor.readers == pair.reactor.writers == set()


def prepare(text: bytes = b"") -> Prepare:
    return Prepare(path="/a", text=text, stamp=None, listeners=[], log=False)


def test_it_can_be_watched(pair: Pair) -> None:
    verifyObject(IReadWriteDescriptor, pair.one.channel)


def test_a_call_is_answered(pair: Pair) -> None:
    pair.two.answer = Counted(snapshot={"counts": {}})
    got: list[Any] = []
    pair.one.channel.call(Ping()).addCallback(got.append)
    pair.reactor.turn()
    assert pair.two.heard == [(Ping(), [])]
    assert got == [Counted(snapshot={"counts": {}})]


def test_answers_come_in_any_order(pair: Pair) -> None:
    first: Deferred[Message] = Deferred()
    got: list[str] = []
    pair.two.answer = first
    pair.one.channel.call(Ping()).addCallback(lambda _: got.append("first"))
    pair.reactor.turn()
    pair.two.answer = Done()
    pair.one.channel.call(Ping()).addCallback(lambda _: got.append("second"))
    pair.reactor.turn()
    first.callback(Done())
    pair.reactor.turn()
    assert got == ["second", "first"]


def test_what_is_only_told_is_not_answered(pair: Pair) -> None:
    event = Event(level="info", namespace="a", text="é")
    pair.one.channel.tell(event)
    pair.reactor.turn()
    assert pair.two.heard == [(event, [])]
    assert pair.one.channel._calls == {}


@pytest.mark.parametrize("answer", [Refused("no"), ValueError("what")])
def test_what_cannot_be_done_is_said(pair: Pair, answer: Exception, flush_errors: Any) -> None:
    pair.two.answer = answer
    failed: list[Failure] = []
    pair.one.channel.call(Ping()).addErrback(failed.append)
    pair.reactor.turn()
    (failure,) = failed
    assert failure.check(Refused)
    assert failure.getErrorMessage() == str(answer)
    assert len(flush_errors(ValueError)) == isinstance(answer, ValueError), "only what nobody meant is logged"


@pytest.mark.parametrize("count", [1, CARRIED, CARRIED + 1, 3 * CARRIED])
def test_descriptors_come_with_their_message(pair: Pair, count: int) -> None:
    files = [os.memfd_create(str(number)) for number in range(3)]
    inodes = [os.fstat(file).st_ino for file in files]
    sent = [files[number % 3] for number in range(count)]
    got: list[Any] = []
    pair.one.channel.call(prepare(), sent).addCallback(got.append)
    pair.one.channel.call(Ping())
    for file in files:
        os.close(file)  # they are on their way
    pair.reactor.turn()
    assert got == [Done()]
    (_, came), (_, none) = pair.two.heard
    assert [os.fstat(descriptor).st_ino for descriptor in came] == [inodes[number % 3] for number in range(count)]
    assert not any(os.get_inheritable(descriptor) for descriptor in came)
    assert none == []


def test_what_is_large_waits_for_room_and_keeps_its_order(pair: Pair) -> None:
    file = os.memfd_create("a")
    text = os.urandom(3_000_000)
    pair.one.channel.call(prepare(text), [file])
    pair.one.channel.call(prepare(b"small"), [file, file])
    os.close(file)
    assert pair.one.channel.waiting > 1_000_000
    pair.reactor.turn(400)
    assert [(message.text, len(came)) for message, came in pair.two.heard] == [  # type: ignore[attr-defined]
        (text, 1),
        (b"small", 2),
    ]
    assert pair.one.channel.waiting == 0


def test_frames_are_found_wherever_they_are_cut(pair: Pair) -> None:
    line = pair.one.channel
    written: list[bytes] = []
    line._line.close()
    line._line = Recorder(written)  # type: ignore[assignment]
    line.tell(Event(level="info", namespace="a", text="one"))
    line.tell(Event(level="info", namespace="a", text="two"))
    data = b"".join(written)
    for size in range(1, len(data)):
        ours, theirs = socket.socketpair()
        end = End(pair.reactor, theirs)
        for at in range(0, len(data), size):
            ours.sendall(data[at : at + size])
            end.channel.doRead()
        assert [message.text for message, _ in end.heard] == ["one", "two"]  # type: ignore[attr-defined]
        end.channel.close()
        ours.close()


class Recorder:
    """A socket that takes everything."""

    def __init__(self, written: list[bytes]) -> None:
        self._written = written

    def send(self, data: memoryview) -> int:
        self._written.append(bytes(data))
        return len(data)

    def close(self) -> None:
        pass


def test_calls_fail_when_the_other_side_is_gone(pair: Pair) -> None:
    pair.two.answer = Deferred()
    failed: list[Failure] = []
    pair.one.channel.call(Ping()).addErrback(failed.append)
    pair.reactor.turn()
    pair.two.channel.close()
    pair.reactor.turn()
    assert [bool(failure.check(Lost)) for failure in failed] == [True]
    assert (pair.one.lost, pair.two.lost) == (1, 0)
    pair.one.channel.call(Ping()).addErrback(failed.append)
    assert len(failed) == 2, "and so do later ones"
    pair.one.channel.tell(Ping())
    pair.one.channel.connectionLost(Failure(Lost()))
    assert pair.one.lost == 1


def test_descriptors_that_nobody_took_are_closed(pair: Pair) -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    pair.one.channel.call(prepare(b"x" * 1_000_000), [writes]).addErrback(lambda failure: failure.trap(Lost))
    os.close(writes)
    pair.two.channel.doRead()  # the descriptor is there, the message is not
    with pytest.raises(BlockingIOError):
        os.read(reads, 1)
    pair.two.channel.close()
    pair.one.channel.close()
    assert os.read(reads, 1) == b""
    os.close(reads)


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\0\0\0\3abc"], ids=["a size that nothing has", "what is no frame"]
)
def test_what_cannot_be_read_ends_it(pair: Pair, data: bytes) -> None:
    pair.one.channel._line.sendall(data)
    pair.reactor.turn()
    assert pair.two.lost == 1
    assert pair.two.heard == []


def test_a_message_of_a_newer_program_is_answered_and_what_comes_with_it_closed(pair: Pair) -> None:
    class Newer(Message):
        pass

    reads, writes = os.pipe()
    failed: list[Failure] = []
    pair.one.channel.call(Newer(), [writes]).addErrback(failed.append)
    os.close(writes)
    pair.reactor.turn()
    assert "not understood" in failed[0].getErrorMessage()
    assert os.read(reads, 1) == b""
    os.close(reads)
    assert pair.two.lost == 0


def test_it_can_be_taken_over_in_the_middle(pair: Pair) -> None:
    answers: list[Deferred[Message]] = [Deferred(), Deferred()]
    pair.two.answer = answers[0]
    pair.one.channel.call(Ping()).addErrback(lambda failure: failure.trap(Lost))
    pair.two.channel.tell(Event(level="info", namespace="a", text="x"))
    pair.one.channel._held += pair.one.channel._line.recv(5)
    pair.two.channel.doRead()
    descriptor, number, held = pair.one.channel.detach()
    assert (number, len(held)) == (1, 5)
    heard: list[Message] = []
    line = socket.socket(fileno=descriptor)
    over = Channel(pair.reactor, line, lambda message, _: heard.append(message), number=number, held=held)
    answers[0].callback(Done())  # to a question that the one before had asked
    pair.two.answer = answers[1]
    got: list[Message] = []
    over.call(Ping()).addCallback(got.append)
    pair.reactor.turn()
    assert [type(message) for message in heard] == [Event]
    assert got == []
    answers[1].callback(Done())
    pair.reactor.turn()
    assert got == [Done()]
    over.close()
