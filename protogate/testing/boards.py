"""
The board of a gateway of several processes (L{protogate.upstream.board}), all of them in this one.

    boards = Boards()
    one, two = boards.join(), boards.join()
    with MemoryGateway(CONFIG, board=one) as first, MemoryGateway(OTHER, board=two, reactor=first.reactor) as second:
        boards.lead(one)
        first.advance(5)
        boards.run()        # now the second one knows as well

Rules
- What a supervisor and its workers run is what runs here; only the lines between them are made of memory.
- Nothing is carried but by L{Boards.run}.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protogate.process.board import Shared
from protogate.process.keeper import Keeper
from protogate.process.messages import Message, Word

_WORDS: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Word)


class Line:
    """
    One direction of a line.

    @ivar held: what was said, and not read yet.
    @ivar waiting: bytes that count as not read.
    """

    def __init__(self) -> None:
        self.held: list[Message] = []
        self.waiting = 0

    def tell(self, message: Message) -> None:
        """Say something."""
        self.held.append(_WORDS.decode(msgspec.msgpack.encode(message)))

    def take(self) -> list[Message]:
        """What was said since the last time."""
        held, self.held = self.held, []
        return held


class Worker:
    """
    A worker, as the supervisor has it: L{protogate.process.keeper.Member}.

    @ivar up: what it says, and C{down}: what is said to it.
    @ivar here: its board.
    """

    def __init__(self, name: str) -> None:
        self.name, self.board = name, True
        self.up, self.down = Line(), Line()
        self.here = Shared(self.up)

    def __str__(self) -> str:
        return self.name

    @property
    def waiting(self) -> int:
        """Bytes that it has not read yet."""
        return self.down.waiting

    def tell(self, message: Message) -> None:
        """Say something to it."""
        self.down.tell(message)


class Boards:
    """
    A supervisor, and workers.

    @ivar keeper: what the supervisor keeps.
    @ivar counted: what it and the workers' boards counted.
    @ivar workers: who is there.
    """

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.keeper = Keeper(self.counted.append)
        self.workers: list[Worker] = []
        self._joined = 0

    def join(self) -> Shared:
        """The board of another worker."""
        return self.worker().here

    def worker(self) -> Worker:
        """Another worker, which has taken no configuration yet."""
        made = Worker(f"worker {self._joined}")
        self._joined += 1
        made.here.count = self.counted.append
        self.workers.append(made)
        self.keeper.join(made)
        self.keeper.begin(made)
        self.run()
        return made

    def lead(self, *boards: Shared) -> None:
        """Who is able to lead, best first."""
        self.keeper.lead([worker for board in boards for worker in self.workers if worker.here is board])
        self.run()

    def leave(self, board: Shared) -> None:
        """That worker is gone."""
        for worker in [worker for worker in self.workers if worker.here is board]:
            self.workers.remove(worker)
            self.keeper.leave(worker)

    def run(self, *deaf: Worker) -> None:
        """Carry all there is, but to and from these."""
        going = True
        while going:
            going = False
            for worker in [worker for worker in self.workers if worker not in deaf]:
                for message in worker.up.take():
                    going = True
                    self.keeper.heard(worker, message)
                for message in worker.down.take():
                    going = True
                    worker.here.take(message)
