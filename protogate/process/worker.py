"""
A worker: a process that serves, with sockets and a configuration that its supervisor hands over.

    python -m protogate.process.worker --slot 0 [--reactor NAME] [--core 3]

Rules
- It does what the supervisor says, over the line it finds on descriptor L{LINE}; when that is lost, its supervisor is
  gone: it drains and exits.  So does SIGTERM; a terminal's signals never get here.
- It accepts nothing before its first Commit.
- What it has to say goes over the line; what cannot (a crash of the interpreter) goes to standard error, which the
  supervisor reads as well.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogBeginner
from zope.interface import implementer

from protogate.admin.own import Own
from protogate.build import Build, build, build_quietly
from protogate.config.faults import ConfigFaults
from protogate.config.forgiven import forgiving
from protogate.config.load import Source
from protogate.memory import settle
from protogate.process import messages
from protogate.process.adopted import Adopting
from protogate.process.board import Shared
from protogate.process.channel import Channel, Refused
from protogate.process.messages import Done, Message
from protogate.process.spawn import LINE
from protogate.reactor.best import install
from protogate.release import release
from protogate.service import GatewayService, Prepared

DEAF: Final = 1 << 20
"""Bytes of events that the supervisor may leave unread before new ones are dropped."""


class Fleet(GatewayService):
    """A gateway whose file, signals and ports are its supervisor's."""

    def _begin(self) -> None:
        """Nothing to begin: the supervisor watches the file, and has said where it listens."""


@implementer(ILogObserver)
class Worker:
    """
    @param line: to the supervisor.
    @param exit: ends the process.
    @ivar service: None before the first Commit.
    """

    def __init__(self, reactor: Any, line: socket.socket, exit: Callable[[], object]) -> None:  # noqa: A002
        self._reactor, self._exit = reactor, exit
        self._adopting = Adopting(reactor)
        self._prepared: Prepared | None = None
        self._first: Build | None = None
        self._offer: dict[str, list[int]] = {}
        self._log: int | None = None
        self._workers = 1
        self._draining = False
        self.service: GatewayService | None = None
        self._board = False
        self.channel = Channel(reactor, line, self._handle, self.drain)
        self.board = Shared(self.channel)

    def begin(self) -> None:
        """Say that we are there."""
        self.channel.tell(messages.Started(version=release(), reactor=type(self._reactor).__name__, board=True))

    def __call__(self, event: LogEvent) -> None:
        """L{ILogObserver}: tell the supervisor."""
        text = formatEvent(event)
        if text and self.channel.waiting < DEAF:
            failure = event.get("log_failure")
            if failure is not None:
                text = f"{text}\n{failure.getTraceback()}"
            level = event.get("log_level")
            self.channel.tell(
                messages.Event(
                    level="info" if level is None else level.name,
                    namespace=str(event.get("log_namespace", "")),
                    text=text,
                )
            )

    # -- what the supervisor says

    def _handle(self, message: Message, descriptors: list[int]) -> Any:
        match message:
            case messages.Prepare():
                return self._prepare(message, descriptors)
            case messages.Commit():
                return self._commit()
            case messages.Forget():
                self._forget()
            case messages.Drain():
                self.drain()
            case messages.Hurry():
                self._hurry()
            case messages.Ping():
                self.board.alive()
                return self._counted()
            case _ if self.board.take(message):
                pass
            case _:
                raise Refused(f"a worker does not understand {type(message).__name__}")
        return Done()

    def _prepare(self, message: messages.Prepare, descriptors: list[int]) -> Deferred[Message]:
        self._forget()
        left = iter(descriptors)
        self._offer = {given.name: [next(left) for _ in range(given.count)] for given in message.listeners}
        self._log = next(left) if message.log else None
        self._workers, self._board = message.workers, message.board
        source: Source = message.text, message.stamp
        # The first one is made at once: nobody waits for the event loop.
        service = self.service
        make: Callable[..., Build] = _first
        if service is not None:

            def make(path: str, source: Source) -> Build:
                return service.secure(build_quietly(path, source))

        making: Deferred[Build] = deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), make, message.path, source
        )
        return making.addCallbacks(self._made, _faulty)

    def _made(self, built: Build) -> Message:
        if self.service is None:
            self._first = built
            return Done()
        log, self._log = self._log, None
        try:
            self._prepared = self.service.prepare(built, log)
        except ConfigFaults as faults:
            raise Refused(str(faults)) from None
        return Done()

    def _commit(self) -> Message:
        if self._draining:  # by a signal, while this was on its way: who comes in its place takes it
            self._forget()
            return Done()
        self._adopting.offer = self._offer
        try:
            if self._prepared is not None and self.service is not None:
                prepared, self._prepared = self._prepared, None
                self.service.workers = self._workers
                self.service.take(prepared)
            elif self._first is not None:
                self._start(self._first)
            else:
                raise Refused("nothing was prepared")
            self.board.settled()
        except ConfigFaults as faults:
            raise Refused(str(faults)) from None
        finally:
            self._close()
        return Done()

    def _start(self, built: Build) -> None:
        self._first = None
        service = Fleet(
            built.loaded.name,
            built,
            self._reactor,
            signals=False,
            opener=self._adopting,
            alone=False,
            log=self._log,
            board=self.board if self._board else None,
        )
        self._log = None
        self.board.count = service.counters.count
        service.workers = self._workers
        settle()
        service.startService()
        service.watch_loop()
        self.service = service

    def _forget(self) -> None:
        prepared, self._prepared, self._first = self._prepared, None, None
        if prepared is not None and self.service is not None:
            self.service.forget(prepared)
        self._close()

    def _close(self) -> None:
        """Close what was handed over; what is in use of it was duplicated."""
        offer, self._offer, self._adopting.offer = self._offer, {}, {}
        for descriptors in offer.values():
            for descriptor in descriptors:
                os.close(descriptor)
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def leave(self) -> None:
        """As L{drain}, by a signal: nobody comes in its place unless the supervisor hears of it."""
        if not self._draining:
            self.channel.tell(messages.Leaving())
            self.drain()

    def drain(self) -> None:
        """Accept nothing more, end what is under way, and exit."""
        if self._draining:
            return
        self._draining = True
        self._forget()
        self.board.resign()
        if self.service is None:
            self._exit()
        else:
            self.service.stopService().addBoth(self._drained)

    def _drained(self, _: object) -> None:
        """The last word is what was counted."""
        self.channel.tell(self._counted())
        self._exit()

    def _hurry(self) -> None:
        if self.service is not None:
            self.service.ports.abort()

    def _counted(self) -> messages.Counted:
        taken: Any = {} if self.service is None else Own(self.service).snapshot()
        return messages.Counted(snapshot=taken)


def _first(path: str, source: Source) -> Build:
    """The supervisor has made it before: what is wrong now was not when that took it."""
    with forgiving():
        return build(path, source)


def _faulty(failure: Any) -> Any:
    if failure.check(ConfigFaults):
        raise Refused(failure.getErrorMessage())
    return failure


def main(arguments: Sequence[str] | None = None) -> None:
    """The whole life of a worker."""
    options = _options(arguments)
    faulthandler.enable()  # SIGABRT is what a supervisor sends to who hangs: it then reads where that was
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    if options.core is not None:
        os.sched_setaffinity(0, [options.core])
    reactor: Any = install(options.reactor)
    line = socket.socket(fileno=LINE)
    line.set_inheritable(False)
    worker = Worker(reactor, line, reactor.stop)
    globalLogBeginner.beginLoggingTo([worker], redirectStandardIO=False)
    reactor.callWhenRunning(signal.signal, signal.SIGTERM, lambda *_: reactor.callFromThread(worker.leave))
    reactor.callWhenRunning(worker.begin)
    reactor.run(installSignalHandlers=False)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="protogate worker", description="Started by a supervisor, never by hand.")
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--reactor", default="")
    parser.add_argument("--core", type=int)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(1)
