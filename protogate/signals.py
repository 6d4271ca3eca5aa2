"""
What a gateway does about signals, beside Twisted, which begins the stop on SIGTERM and SIGINT.

Rules
- While it serves, SIGHUP loads the configuration anew, and SIGUSR2 is the wish for new code.  (Somebody else's handler
  for that one stays.)
- Once it was asked to stop, SIGHUP and SIGTERM change nothing: a reload that comes too late or a supervisor that asks
  twice must not cut off what is still under way.  SIGINT, which is Ctrl-C once more, ends the wait.
- Who is told that it serves may ask it to stop at once, when Twisted's handlers are not there yet: what comes before
  them would end the process where it is.  It is kept for them.
- SIGINT stays ignored where it was when the process began: a script's Ctrl-C is not for what runs in its background.
- Only in the main thread: Python takes no handler anywhere else.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """
    The handlers of this process.

    @param reactor: runs what a signal leads to, by C{callFromThread}, which a handler may call.
    """

    __slots__ = ("_asked", "_before", "_early", "_hurry", "_reactor")

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._before: dict[int, Any] = {}
        self._early = 0  # SIGTERM or SIGINT, if it came before the reactor ran
        self._asked = False  # by a signal: then the process ends, and Twisted's handlers are of no more use
        self._hurry: Callable[[], object] | None = None

    def serve(self, reload: Callable[[], object], upgrade: Callable[[], object]) -> None:
        """Begin.  Does nothing outside of the main thread, and neither do the others then."""
        if threading.current_thread() is threading.main_thread():
            self._take(signal.SIGHUP, lambda *_: self._reactor.callFromThread(reload))
            if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:  # which would end the process
                self._take(signal.SIGUSR2, lambda *_: self._reactor.callFromThread(upgrade))
            for number in _STOPS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._take(number, self._keep)
            self._reactor.callWhenRunning(self._stand_before)  # Twisted's handlers are there by then

    def drain(self, hurry: Callable[[], object]) -> None:
        """The stop has begun."""
        if self._before:
            self._hurry = hurry
            self._take(signal.SIGHUP, signal.SIG_IGN)
            if signal.SIGUSR2 in self._before:
                self._take(signal.SIGUSR2, signal.SIG_IGN)

    def release(self) -> None:
        """All is over: the handlers are those that were there before, unless the process is about to end."""
        before, self._before = self._before, {}
        self._hurry = None
        if not self._asked:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _keep(self, number: int, frame: object) -> None:
        """Too early."""
        self._early = number

    def _stand_before(self) -> None:
        if self._before:
            stops = signal.getsignal(signal.SIGTERM) != self._keep  # Twisted stops the reactor, as it mostly does
            for number in _STOPS:
                there = signal.getsignal(number)
                if there is not signal.SIG_IGN:
                    if there != self._keep:
                        self._before.pop(number, None)
                    elif stops:  # of SIGINT it keeps off where somebody else has taken it
                        self._before[number] = self._reactor.sigInt
                    self._take(number, self._heard)
            if self._early:
                self._heard(self._early, None)

    def _heard(self, number: int, frame: object) -> None:
        """SIGTERM or SIGINT.  Twisted must hear of the first only: to stop twice is an error to it."""
        if not self._asked and self._hurry is None:
            self._asked = True
            before = self._before[number]
            if callable(before):
                before(number, frame)
            elif before is signal.SIG_DFL:  # nobody stops the reactor: the process ends as it would without us
                signal.signal(number, before)
                signal.raise_signal(number)
        elif number == signal.SIGINT and self._hurry is not None:
            self._reactor.callFromThread(self._hurry)

    def _take(self, number: int, handler: Any) -> None:
        before = signal.signal(number, handler)
        # None = it was not Python that made it; what that was cannot be had back.
        self._before.setdefault(number, signal.SIG_DFL if before is None else before)
