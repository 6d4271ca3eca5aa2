"""Work in a thread that holds the event loop up for no longer than it has to."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any, Final

SWITCH: Final = 0.0005
"""Seconds after which a thread at quiet work lets the event loop go on."""


class Quiet:
    """
    While a thread is inside, the interpreter is handed over after L{SWITCH} seconds of waiting (an event loop lets go
    of it several times a turn, and waits that long each time), and no garbage is collected: that holds the interpreter
    for longer than the event loop may wait.  Several threads may be inside.

    @ivar collects: whether garbage is collected when nobody is inside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0
        self.collects = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before, self.collects = sys.getswitchinterval(), gc.isenabled()
                sys.setswitchinterval(SWITCH)
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)
                if self.collects:
                    gc.enable()


quiet: Final = Quiet()


def bury(remains: list[Any]) -> None:
    """Let go of the parts of a large thing one by one, in a thread: all at once would hold the event loop up."""
    with quiet:
        while remains:
            remains.pop()
