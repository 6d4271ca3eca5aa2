"""
Notices that a file has changed, by looking at it each second.

Looking (rather than inotify) works for whatever a deployment does to the file: writing it in place, renaming another
one over it, swapping a symbolic link somewhere above it (a ConfigMap), a mount from another host, taking it away for a
while.

Rules
- A change is told when the file has looked the same twice: nobody wants to load what an editor has half written.
- A file that is gone is no change; its coming back is one, if it is not the same as before, or its absence was told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from protogate.config.stamp import Stamp, stamp_of
from protogate.wheel import Wheel

INTERVAL: Final = 1.0
"""Seconds between two looks."""
MISSING: Final = 2
"""Looks in a row after which a file is gone: while another one is put in its place there may be none."""


class FileWatch:
    """
    Calls C{changed()} each time the file at C{path} has another content.

    @param gone: told when there is none for two looks; once, until it is back.
    @ivar path: the file; links are followed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        changed: Callable[[], object],
        wheel: Wheel,
        interval: float = INTERVAL,
        gone: Callable[[], object] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._changed = changed
        self._interval = interval
        self._gone, self._missing = gone, 0  # looks in a row that saw none
        self._timer = wheel.timer(self._look)
        self._known: Stamp | None = None  # what was told last
        self._seen: Stamp | None = None  # what the last look saw

    def start(self, known: Stamp | None = None) -> None:
        """Begin to look.  C{known}: the state that was loaded (C{Loaded.stamp}); None = as it is now."""
        self._seen = stamp_of(self.path)
        self._known = self._seen if known is None else known
        self._timer.set(self._interval)

    def stop(self) -> None:
        """Look no more."""
        self._timer.end()

    def known(self, known: Stamp | None) -> None:
        """This state was loaded in the meantime, for another reason: it is no news."""
        if known is not None:
            self._known = known

    def _look(self) -> None:
        self._timer.set(self._interval)
        before, now = self._seen, stamp_of(self.path)
        self._seen = now
        if self._gone is not None:
            self._missing = 0 if now is not None else self._missing + 1
            if self._missing == MISSING:
                self._known = None
                self._gone()
        if now is None or now != before or now == self._known:
            return
        self._known = now
        self._changed()
