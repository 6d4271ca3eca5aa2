"""
Start a program, and hear when it ends.

Twisted's own spawnProcess does both, but its processes cannot be handed to the program that a supervisor becomes by an
upgrade.  Here the two are apart: a child that was started by the one is watched by the other.

Must not know: what the program is.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from twisted.internet.process import registerReapProcessHandler, unregisterReapProcessHandler

LINE: Final = 3
"""The descriptor that a child finds its line to us on."""

_OURS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores, and a child should not."""


def spawn(arguments: Sequence[str], environ: Mapping[str, str], line: int, errors: int) -> int:
    """
    Start a program, with nothing on standard input, our own standard output, and no other descriptor of ours.

    @param line: becomes its descriptor L{LINE}.
    @param errors: becomes its standard error.
    @return: its process id.
    @raise OSError: it cannot be started.
    """
    # Descriptors above those that are made, or one would be overwritten before it is used.
    line, errors = _above(line), _above(errors)
    try:
        return os.posix_spawn(
            arguments[0],
            list(arguments),
            environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                (os.POSIX_SPAWN_DUP2, line, LINE),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            ],
            setsigmask=(),
            setsigdef=_OURS,
        )
    finally:
        os.close(line)
        os.close(errors)


def _above(descriptor: int) -> int:
    """A duplicate that no standard descriptor is."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LINE + 1)


def _inheritable() -> list[int]:
    """What a child would get although it was not meant for it: what our own parent left us."""
    found = []
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the one that reads the folder is gone
            if int(name) > LINE and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


class Watched:
    """
    One child, until it ends.

    @param ended: called once, with the status that waitpid(2) gives; at once where it has ended by now.
    """

    def __init__(self, pid: int, ended: Callable[[int], object]) -> None:
        self._pid, self._ended = pid, ended
        registerReapProcessHandler(pid, self)

    def stop(self) -> None:
        """Watch no more; its end is left to others."""
        unregisterReapProcessHandler(self._pid, self)

    def reapProcess(self) -> None:
        """Twisted: some child ended."""
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # somebody else took the status: it is gone all the same
            pid, status = self._pid, 0
        if pid:
            unregisterReapProcessHandler(self._pid, self)
            self._ended(status)

    def processEnded(self, status: int) -> None:
        """Twisted: it had ended when it was to be watched."""
        self._ended(status)


def how(status: int) -> str:
    """What became of a process, for people: C{exit status 1}, C{signal SIGKILL}."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
