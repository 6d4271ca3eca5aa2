"""
Tell the service manager how we are: sd_notify(3), without libsystemd.

Rules
- Nothing happens where nobody asked: without C{NOTIFY_SOCKET}, or without C{WATCHDOG_USEC} meant for this process.
- It never raises and never blocks: a message that cannot be delivered at once is lost, and told of once.
- The variables are taken out of the environment: a child that found them would speak in our name.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

SOCKET: Final = "NOTIFY_SOCKET"
USEC: Final = "WATCHDOG_USEC"
PID: Final = "WATCHDOG_PID"

_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_BREAK: Final = re.compile(r"[\x00-\x1f\x7f]+")

_log = Logger()


class Notify:
    """
    One process's line to its service manager; make it with L{take}.

    @param where: address of the manager's socket: a path, or C{@} and the name of an abstract one; empty = nobody
        asked.
    @param watchdog: seconds after which the manager gives a silent process up; 0 = it does not watch.
    @ivar interval: seconds between two signs of life: half of that, 0 = none is wanted.
    """

    def __init__(self, where: str = "", watchdog: float = 0.0) -> None:
        self._where = where
        self._told = False
        self._socket: socket.socket | None = None
        self._beat: LoopingCall | None = None
        self.interval = watchdog / 2 if where else 0.0

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ, pid: int | None = None) -> Notify:
        """
        As the environment wants it, which no longer has its variables afterwards.

        @param pid: of the process that is watched; None = this one.
        """
        where, usec, watched = (environ.pop(name, "") for name in (SOCKET, USEC, PID))
        if not where.startswith(("/", "@")):
            return cls()  # there is nobody, or a kind of socket that this system does not have
        ours = not watched or watched == str(os.getpid() if pid is None else pid)
        return cls(where, int(usec) / 1e6 if ours and _NUMBER.fullmatch(usec) else 0.0)

    @property
    def wanted(self) -> bool:
        """Whether somebody listens."""
        return bool(self._where)

    # -- what there is to say

    def ready(self, status: str = "") -> None:
        """The start is over, or the reload that L{reloading} announced: requests are served."""
        self._send("READY=1", _status(status))

    def reloading(self, status: str = "") -> None:
        """A reload begins; L{ready} must follow, also when it fails."""
        # The manager tells by the time whether this answers its own signal or an earlier one.
        self._send(
            "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}", _status(status)
        )

    def stopping(self, status: str = "") -> None:
        """The stop begins."""
        self._send("STOPPING=1", _status(status))

    def status(self, text: str) -> None:
        """One line for people: C{systemctl status} shows it."""
        self._send(_status(text))

    def main(self, pid: int) -> None:
        """Another process is the main one from now on; this one is still believed."""
        self._send(f"MAINPID={pid}")

    def alive(self) -> None:
        """A sign of life."""
        self._send("WATCHDOG=1")

    # -- the watchdog

    def watch(self, reactor: Any, well: Callable[[], bool] = lambda: True) -> None:
        """
        Give a sign of life every L{interval}, as long as the event loop turns and all is well.

        @param well: asked each time; False keeps silent, so that the manager starts us anew.
        """
        if not self.interval or self._beat is not None:
            return

        def beat() -> None:
            if well():
                self.alive()

        loop = self._beat = LoopingCall(beat)
        loop.clock = reactor
        loop.start(self.interval).addErrback(self._failed)

    def close(self) -> None:
        """Say no more."""
        beat, self._beat = self._beat, None
        if beat is not None and beat.running:
            beat.stop()
        self._where, self.interval = "", 0.0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _failed(self, failure: Any) -> None:
        _log.failure("no sign of life is given any more", failure)

    def _send(self, *lines: str) -> None:
        if not self._where:
            return
        where = "\0" + self._where[1:] if self._where.startswith("@") else self._where
        message = "\n".join(line for line in lines if line).encode("utf-8", "replace")
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.setblocking(False)
            self._socket.sendto(message, where)
        except OSError as error:
            if not self._told:
                self._told = True
                _log.warn(
                    "the service manager at {where} cannot be told: {why}",
                    where=self._where,
                    why=error.strerror or error,
                )


def _status(text: str) -> str:
    """A line break would be another variable."""
    return f"STATUS={_BREAK.sub(' ', text)}" if text else ""
