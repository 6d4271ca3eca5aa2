"""
When a configuration is loaded anew, and what is said about it: by signal, or because the file changed.

Rules
- One load at a time.  Who asks while one is under way gets another one after it: the file may have changed since.
- Reading and checking happen in a thread; what was made of the file is handed over on the event loop.
- A fault keeps what is in force, is logged, and fails nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.config.faults import ConfigFaults
from protogate.config.stamp import Stamp
from protogate.config.watch import FileWatch
from protogate.process.notify import Notify
from protogate.wheel import Wheel

WARNINGS: Final = 50
"""Warnings of a configuration that are logged: each holds the event loop up."""

T = TypeVar("T")
_log = Logger()


class Loading(Generic[T]):
    """
    The file of one gateway.

    @param path: of the file.
    @param make: what is made of it; runs in a thread.  What it raises is a fault of the file.
    @param take: puts that in force, on the event loop.  It gives None, or a Deferred that fires when it is; what it
        raises, or fails with, is a fault likewise.
    @param count: told of each load: C{reload_ok} or C{reload_failed}.
    @param notify: the line to the service manager, which may wait for the end of a reload that it asked for.
    @ivar path: absolute: a daemon may change its folder.
    @ivar running: whether anything is to be taken at all.
    """

    def __init__(
        self,
        path: str,
        make: Callable[[str], T],
        take: Callable[[T], Deferred[Any] | None],
        reactor: Any,
        wheel: Wheel,
        count: Callable[[str], None],
        notify: Notify,
    ) -> None:
        self.path = os.path.abspath(path)
        self.running = False
        self._make, self._take, self._reactor, self._wheel, self._count = make, take, reactor, wheel, count
        self._notify = notify
        self._loading = False
        self._next: list[Deferred[bool]] = []  # asked for while the file was being read: another load
        self._watch: FileWatch | None = None

    @property
    def busy(self) -> bool:
        """Whether a load is under way."""
        return self._loading

    def start(self) -> None:
        """From now on configurations are taken."""
        self.running = True

    def stop(self) -> None:
        """From now on none is."""
        self.running = False
        self.follow(False, None)

    def reload(self) -> Deferred[bool]:
        """
        Load the configuration anew.  A fault keeps the old one, and is logged.

        @return: fires with whether the file as it is now, or was changed to later, is in force; never fails.
        """
        mine: Deferred[bool] = Deferred()
        if self._loading:
            self._next.append(mine)  # the file may have changed after it was read
        else:
            self._load([mine])
        return mine

    def follow(self, wanted: bool, stamp: Stamp | None) -> None:
        """
        Watch the file, or stop watching it.

        @param stamp: the state of it that is in force.
        """
        if wanted and self._watch is None:
            self._watch = FileWatch(self.path, self.reload, self._wheel)
            self._watch.start(stamp)
        elif wanted and self._watch is not None:
            self._watch.known(stamp)
        elif not wanted and self._watch is not None:
            self._watch.stop()
            self._watch = None

    def warn(self, warnings: Sequence[str]) -> None:
        """Log what the configuration in force perhaps does not mean."""
        for warning in warnings[:WARNINGS]:
            _log.warn("{warning}", warning=warning)
        if len(warnings) > WARNINGS:
            left = len(warnings) - WARNINGS
            _log.warn("{path}: {left} more warnings; `protogate check` tells them all", path=self.path, left=left)

    def _load(self, waiting: list[Deferred[bool]]) -> None:
        self._loading = True
        self._notify.reloading()
        _log.info("loading {path} anew", path=self.path)
        reading: Deferred[Any] = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._make, self.path)
        reading.addCallback(self._made)
        reading.addErrback(self._kept)
        reading.addCallback(self._settled, waiting)

    def _made(self, made: T) -> Deferred[bool] | bool:
        if not self.running:
            return False
        return maybeDeferred(self._take, made).addCallback(self._taken)

    def _taken(self, _: object) -> bool:
        self._count("reload_ok")
        _log.info("{path} is in force", path=self.path)
        return True

    def _kept(self, failure: Failure) -> bool:
        self._count("reload_failed")
        if failure.check(ConfigFaults):
            _log.error(
                "{path} has faults, the configuration in force stays:\n{faults}",
                path=self.path,
                faults=failure.getErrorMessage(),
            )
        else:
            _log.failure("{path} cannot be loaded, the configuration in force stays", failure, path=self.path)
        return False

    def _settled(self, result: bool, waiting: list[Deferred[bool]]) -> None:
        self._loading = False
        following, self._next = self._next, []
        if self.running:
            self._notify.ready()
        if following:
            self._load(following)
        for each in waiting:
            each.callback(result)
