"""
One worker, as its supervisor sees it.

Rules
- It is gone when it was reaped, not before: until then its process id is its own, and may be sent signals.
- What it prints to standard error is logged; the last lines are kept, to say what it died of.
"""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config.stamp import Stamp
from protogate.observe.snapshot import Share, Snapshot
from protogate.process import messages
from protogate.process.channel import Channel, Lost, Refused
from protogate.process.keeper import Keeper
from protogate.process.messages import Follow, Lead, Message, Observed, Post, Posts
from protogate.process.spawn import Watched, how

LINES: Final = 20
"""Lines of standard error that are kept."""
LONGEST: Final = 2000
"""Characters of one of them."""
PATIENCE: Final = 2.0
"""Seconds between a signal that can be survived and SIGKILL."""
LEAVE: Final = 5.0
"""Seconds between the end of the line and the end of the process."""

_log = Logger()


class Order(NamedTuple):
    """
    A configuration as it is handed to workers.

    @ivar workers: how many there are to be.
    @ivar drain: seconds that requests under way may take at an end.
    @ivar hang: seconds of silence that nobody survives; 0 = any.
    @ivar cores: where each worker is to stay, in turn; empty = anywhere.
    @ivar log: descriptor of the access log, or None.
    """

    path: str
    text: bytes
    stamp: Stamp | None
    workers: int
    drain: float
    hang: float = 0.0
    cores: Sequence[int] = ()
    log: int | None = None

    def prepare(self, given: Mapping[str, Sequence[int]]) -> tuple[messages.Prepare, list[int]]:
        """The message, and the descriptors that go with it: sockets for each listener."""
        message = messages.Prepare(
            path=self.path,
            text=self.text,
            stamp=self.stamp,
            listeners=[messages.Given(name, len(descriptors)) for name, descriptors in given.items()],
            log=self.log is not None,
            workers=self.workers,
            board=True,
        )
        descriptors = [each for some in given.values() for each in some]
        return message, descriptors if self.log is None else [*descriptors, self.log]


class Begun(Struct):
    """
    A process that was started: what it takes to be its supervisor.

    @ivar born: seconds on the machine's clock that only goes forward, which the next program has, too.
    @ivar serving: it has taken a configuration, and C{leaving}: it was told to go.
    @ivar line: descriptor of our end of the line.
    @ivar errors: descriptor to read its standard error from.
    @ivar number: of the last call on the line, C{held}: what was read of the next frame.
    @ivar board: it knows of a board, C{follows} these topics of it, and C{leads}.
    """

    pid: int
    slot: int
    born: float
    line: int
    errors: int
    number: int = 0
    held: bytes = b""
    serving: bool = False
    leaving: bool = False
    board: bool = False
    follows: list[str] = []
    leads: bool = False


class Child:
    """
    @param begun: what this is to look after; its descriptors are ours from now on.
    @param ended: called once, when it is gone, with what became of it, for people.
    @param share: of the totals.
    @param keeper: of the board.
    @param leaves: called when it was told to go by somebody else.
    @ivar board: it knows of a board, and may lead.
    @ivar serving: it has taken a configuration.
    @ivar leaving: it was told to go.
    @ivar limit: what ends it at some time; it is the crew's.
    @ivar silent: since when it owes an answer to L{count}, as the crew noted; None = it does not.
    """

    def __init__(
        self,
        reactor: Any,
        begun: Begun,
        ended: Callable[[Child, str], object],
        share: Share,
        keeper: Keeper | None = None,
        leaves: Callable[[Child], object] = lambda child: None,
    ) -> None:
        self._reactor, self._ended, self._share, self._leaves = reactor, ended, share, leaves
        self._keeper = Keeper() if keeper is None else keeper
        self.board = begun.board
        self.slot, self.pid, self.born = begun.slot, begun.pid, begun.born
        self.serving, self.leaving, self.gone = begun.serving, begun.leaving, False
        self.silent: float | None = None
        self.limit: Any = None
        self._last: Any = None  # SIGKILL is on its way
        line = socket.socket(fileno=begun.line)
        line.set_inheritable(False)
        self._channel = Channel(reactor, line, self._heard, self._lost, begun.number, begun.held)
        self._errors = _Errors(reactor, begun.errors, self)
        self._keeper.join(self, begun.follows, begun.leads)
        self._watched = Watched(begun.pid, self._reaped)

    def __str__(self) -> str:
        return f"worker {self.slot} (pid {self.pid})"

    # -- L{protogate.process.keeper.Member}

    @property
    def waiting(self) -> int:
        """Bytes that it has not read yet."""
        return self._channel.waiting

    def tell(self, message: Message) -> None:
        """Say something that is not answered."""
        self._channel.tell(message)

    # -- what it is asked to do

    def prepare(self, order: Order, given: Mapping[str, Sequence[int]]) -> Deferred[Message]:
        """See L{messages.Prepare}.  Fails with Refused or Lost, as the others do."""
        message, descriptors = order.prepare(given)
        return self._channel.call(message, descriptors)

    def commit(self) -> Deferred[Message]:
        """See L{messages.Commit}."""
        if not self.serving:
            self._keeper.begin(self)
        return self._channel.call(messages.Commit())

    def forget(self) -> None:
        """See L{messages.Forget}."""
        self._channel.tell(messages.Forget())

    def drain(self) -> Deferred[Any]:
        """See L{messages.Drain}; fires, in any case, when it accepts nothing any more."""
        self.leaving = True
        return self._channel.call(messages.Drain()).addErrback(lambda failure: failure.trap(Lost, Refused))

    def hurry(self) -> None:
        """See L{messages.Hurry}."""
        self._channel.tell(messages.Hurry())

    def count(self) -> Deferred[Any]:
        """Ask for what it counted, for the totals, and for a sign of life; fires in any case."""
        # Nobody has to wait for it: what it said last stands for it.
        return self._channel.call(messages.Ping()).addCallbacks(self._counted, lambda failure: None)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; SIGKILL follows where it can be survived."""
        if self.gone:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if number != signal.SIGKILL and self._last is None:
            self._last = self._reactor.callLater(PATIENCE, self.kill)

    def detach(self) -> Begun:
        """Look after it no more: the program that this process becomes does."""
        self._watched.stop()
        line, number, held = self._channel.detach()
        errors = self._errors.detach()
        follows, leads = self._keeper.leave(self)
        return Begun(
            self.pid, self.slot, self.born, line, errors, number, held, self.serving, self.leaving,
            self.board, follows, leads,
        )  # fmt: skip

    # -- what it says

    def _heard(self, message: Message, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(message, messages.Counted):
            self._counted(message)
        elif isinstance(message, (Follow, Lead, Observed, Post, Posts)):
            self._keeper.heard(self, message)
        elif isinstance(message, messages.Leaving):
            self._leaves(self)
        elif isinstance(message, messages.Event):
            level = LogLevel.lookupByName(message.level) if message.level in _LEVELS else LogLevel.info
            _log.emit(level, "{worker}: [{of}] {text}", worker=self, of=message.namespace, text=message.text)
        elif isinstance(message, messages.Started):
            self.board = message.board
            _log.info(
                "{worker} has started: protogate {version} on {reactor}",
                worker=self,
                version=message.version,
                reactor=message.reactor,
            )

    def _counted(self, answer: Message) -> None:
        self.silent = None
        self._keeper.alive(self)
        if isinstance(answer, messages.Counted) and answer.snapshot:
            self._share.take(cast("Snapshot", answer.snapshot))

    # -- its end

    def _lost(self) -> None:
        """It ends, or has lost its mind."""
        self.board = False
        if not self.gone and self._last is None:
            self._last = self._reactor.callLater(LEAVE, self.kill)

    def _reaped(self, status: int) -> None:
        self.gone, self.serving = True, False
        if self._last is not None and self._last.active():
            self._last.cancel()
        self._last = None
        lines = self._errors.close()
        self._channel.close()
        self._keeper.leave(self)
        self._share.end()
        told = how(status)
        if lines and status:
            told += ", its last words:\n" + "\n".join(f"  {line}" for line in lines)
        self._ended(self, told)


_LEVELS: Final = {level.name for level in LogLevel.iterconstants()}


@implementer(IReadDescriptor)
class _Errors:
    """What a child writes to standard error."""

    def __init__(self, reactor: Any, descriptor: int, child: Child) -> None:
        self._reactor, self._descriptor, self._child = reactor, descriptor, child
        self._lines: deque[str] = deque(maxlen=LINES)
        self._rest = b""
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
        reactor.addReader(self)

    def fileno(self) -> int:
        """Twisted."""
        return self._descriptor

    def logPrefix(self) -> str:
        """Twisted."""
        return "standard error of a worker"

    def doRead(self) -> None:
        """Twisted: there is something, or the end."""
        if self._read() == 0:
            self._reactor.removeReader(self)

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the reactor stops."""

    def detach(self) -> int:
        """Read no more, and give the descriptor away."""
        self._reactor.removeReader(self)
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    def close(self) -> list[str]:
        """The last lines."""
        if self._descriptor != -1:
            while self._read() > 0:
                pass
            os.close(self.detach())
            if self._rest:
                self._line(self._rest)
        return list(self._lines)

    def _read(self) -> int:
        """How many bytes there were: 0 = it is the end, -1 = none right now."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return -1
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > LONGEST:
            self._line(self._rest)
            self._rest = b""
        return len(data)

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")[:LONGEST]
        self._lines.append(text)
        _log.warn("{worker} writes: {text}", worker=self._child, text=text)
