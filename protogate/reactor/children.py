"""Child processes: told of their end without the descriptor that Twisted waits on for it."""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.process import reapAllProcesses


class Children:
    """
    A C{SignalHandling} of Twisted's.  Twisted has the interpreter write to a descriptor when a signal arrives
    (C{signal.set_wakeup_fd}); there is one such descriptor a process, and a running uvloop takes it for its own.
    uvloop runs handlers written in Python at once, so one of these will do.
    """

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor

    def install(self) -> None:
        """When the reactor starts; children that ended before are reaped now."""
        signal.signal(signal.SIGCHLD, lambda *_: self.reactor.callFromThread(reapAllProcesses))
        signal.siginterrupt(signal.SIGCHLD, False)
        reapAllProcesses()

    def uninstall(self) -> None:
        """When it stops."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
