"""
One coarse clock for every wait: a single reactor timer drives any number of deadlines.

Rules
- Arming a L{Timer} again, the common case on a busy connection, costs a few attribute writes: the timer stays where it
  is on the wheel and is put forward only when its old place comes up.
- A timer fires at its deadline or up to one C{resolution} later, never before.
- The wheel keeps no reactor timer while nothing is armed.
- Whoever makes a Timer ends it when its work is over; a function that raises is logged and harms no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

RESOLUTION: Final = 0.05

_log = Logger()


def _nothing() -> None:
    """What a timer that has ended calls."""


class Timer:
    """One deadline, armed again and again."""

    __slots__ = ("_at", "_function", "_queued", "_wheel")

    def __init__(self, wheel: Wheel, function: Callable[[], object]) -> None:
        self._wheel, self._function = wheel, function
        self._at = 0.0  # seconds on the wheel's clock; 0 = not armed
        self._queued = 0  # the slot that holds us; 0 = none

    @property
    def active(self) -> bool:
        """Whether it is armed."""
        return self._at != 0.0

    def set(self, delay: float) -> None:
        """Fire in C{delay} seconds; a deadline set before is forgotten."""
        wheel = self._wheel
        at = self._at = wheel.now() + delay if delay > 0.0 else wheel.now() or 1e-9  # 0.0 means: not armed
        if not self._queued or at < self._queued * wheel.resolution:
            wheel._put(self)

    def clear(self) -> None:
        """Do not fire.  Does nothing when not armed.  Cheap: the wheel still knows the timer for a while."""
        self._at = 0.0

    def close(self) -> None:
        """Do not fire, and let the wheel forget this timer: what a timer of a single request ends with."""
        self._at = 0.0
        if self._queued:
            self._wheel._drop(self)

    def end(self) -> None:
        """
        As L{close}, and for good: forget what was to be called.  That is mostly a method of the very object which has
        this timer, and the two would wait for the garbage collector.
        """
        self.close()
        self._function = _nothing


class Wheel:
    """
    @ivar now: seconds on a clock that only goes forward; what ledgers and deadlines are measured with.
    @ivar resolution: seconds between two looks at the deadlines.
    """

    def __init__(
        self, clock: IReactorTime, resolution: float = RESOLUTION, now: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self.now: Callable[[], float] = clock.seconds if now is None else now
        self.resolution = resolution
        self._slots: dict[int, dict[Timer, None]] = {}  # in order: what happens is the same each time
        self._last = 0
        self._tick: IDelayedCall | None = None
        self._turning = False  # time passes meanwhile, but no slot is passed over
        self._soon: list[Callable[[], object]] = []
        self._end: IDelayedCall | None = None  # of this turn

    def timer(self, function: Callable[[], object]) -> Timer:
        """A Timer, not armed."""
        return Timer(self, function)

    def after(self, delay: float, function: Callable[[], object]) -> Timer:
        """A Timer, armed."""
        timer = Timer(self, function)
        timer.set(delay)
        return timer

    def soon(self, function: Callable[[], object]) -> None:
        """Call it when this turn of the loop is over, before the loop waits again."""
        self._soon.append(function)
        if self._end is None:
            self._end = self._clock.callLater(0, self._over)

    def _over(self) -> None:
        self._end = None
        functions, self._soon = self._soon, []
        for function in functions:
            try:
                function()
            except Exception:
                _log.failure("what was to be done at the end of a turn failed")

    def stop(self) -> None:
        """Forget every deadline: the process ends."""
        for slot in self._slots.values():
            for timer in slot:
                timer._at, timer._queued = 0.0, 0
        self._slots.clear()
        self._soon.clear()
        for call in (self._tick, self._end):
            if call is not None:
                call.cancel()
        self._tick = self._end = None

    def _put(self, timer: Timer) -> None:
        if timer._queued:
            self._drop(timer)
        if self._tick is None and not self._turning and not self._slots:  # nothing was armed for a while
            self._last = max(self._last, int(self.now() / self.resolution) - 1)
        slot = timer._queued = max(int(timer._at / self.resolution) + 1, self._last + 1, 1)
        self._slots.setdefault(slot, {})[timer] = None
        if self._tick is None and not self._turning:
            self._schedule()

    def _drop(self, timer: Timer) -> None:
        slot, timer._queued = timer._queued, 0
        timers = self._slots[slot]
        timers.pop(timer, None)
        if not timers:
            del self._slots[slot]

    def _schedule(self) -> None:
        """The next look comes when the next slot is due: a look in between would find nothing and be late after it."""
        if self._tick is not None or not self._slots:
            return
        resolution, now = self.resolution, self.now()
        delay = (int(now / resolution) + 1) * resolution - now
        self._tick = self._clock.callLater(max(delay, resolution / 64), self._turn)

    def _turn(self) -> None:
        self._tick, self._turning = None, True
        now = self.now()
        first = self._last + 1
        last = self._last = max(int(now / self.resolution), self._last)
        try:
            for slot in range(first, last + 1):
                due = self._slots.pop(slot, None)
                if due is None:
                    continue
                for timer in due:
                    timer._queued = 0
                for timer in due:
                    if timer._queued:
                        continue  # armed anew by another one of this slot
                    if timer._at == 0.0:
                        continue
                    if timer._at > now:
                        self._put(timer)
                        continue
                    timer._at = 0.0
                    try:
                        timer._function()
                    except Exception:
                        _log.failure("a deadline's function failed")
        finally:
            self._turning = False
            self._schedule()
