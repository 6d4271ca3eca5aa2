"""
What a gateway does about signals, beside Twisted, which begins the stop on SIGTERM and SIGINT.

Rules
- While it serves, SIGHUP loads the configuration anew.
- While it drains, SIGHUP and SIGTERM change nothing: a reload that comes too late or a supervisor that asks twice must
  not cut off what is still under way.  SIGINT, which is Ctrl-C once more, ends the wait.
- Only in the main thread: Python takes no handler anywhere else.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Signals:
    """
    The handlers of this process.

    @param reactor: runs what a signal leads to, by C{callFromThread}, which a handler may call.
    """

    __slots__ = ("_before", "_reactor")

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._before: dict[int, Any] = {}

    def serve(self, reload: Callable[[], object]) -> None:
        """Begin.  Does nothing outside of the main thread, and neither do the others then."""
        if threading.current_thread() is threading.main_thread():
            self._take(signal.SIGHUP, reload)

    def drain(self, hurry: Callable[[], object]) -> None:
        """The stop has begun."""
        if self._before:
            self._take(signal.SIGHUP, None)
            self._take(signal.SIGTERM, None)
            self._take(signal.SIGINT, hurry)

    def release(self) -> None:
        """All is over: the handlers are those that were there before."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def _take(self, number: int, function: Callable[[], object] | None) -> None:
        handler: Any = signal.SIG_IGN
        if function is not None:
            handler = lambda *_: self._reactor.callFromThread(function)  # noqa: E731
        before = signal.signal(number, handler)
        # None = it was not Python that made it; what that was cannot be had back.
        self._before.setdefault(number, signal.SIG_DFL if before is None else before)
