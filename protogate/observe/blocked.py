"""
Notice what holds the event loop up, and say what it was: on every reactor, without a part in any request.

Rules
- A thread looks at the loop's every L{TICK} seconds.  Where that waits for events, nothing happens.  Otherwise the loop
  is asked to say when it comes to its next turn; until it does, each look notes where it is.
- A call of L{LIMIT} seconds is surely noticed, one of half of it never.  When it began is known within L{TICK}.
- What is told and counted is time in which the loop could have run.  Left out: time in which the whole process stood
  still (SIGSTOP, a machine that had no CPU for it), and in which the kernel gave the CPU to others.  The sleep of a
  laptop does not exist on this clock.
- A call that keeps the interpreter to itself (a C function, the garbage collector) is found out about afterwards: the
  look is late, while CPU was used.
- A turn in which exchanges come to their end is no call that blocks, however long the turn is: the loop is busy.
- It is told once, with the stack; once a minute for each place.  What lasts longer than L{STUCK} is told while it
  lasts: the process may not live to its end.
- Counting is done on the loop's thread; nothing of a frame is kept but names and numbers.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final, NamedTuple

from twisted.logger import Logger

from protogate.observe.counters import Counters
from protogate.observe.events import Limited

LIMIT: Final = 0.05
"""Seconds."""
TICK: Final = LIMIT / 2
"""Seconds between two looks."""
STUCK: Final = 1.0
"""Seconds."""
KEPT: Final = 0.015
"""Seconds that a thread waits for the interpreter at most, where nobody keeps it: it is handed over every 5 ms."""
DEPTH: Final = 60
"""Frames that are looked at, from the innermost."""
PLACES: Final = 64
"""Places of which each has its own minute."""

_KNOWN: Final = frozenset(("twisted", "zope", *sys.stdlib_module_names))
"""Top-level packages through which others call each other."""

_log = Logger()


class Frame(NamedTuple):
    """One call of a stack."""

    module: str
    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


Stack = tuple[Frame, ...]
"""From the outermost call of the loop to the innermost."""


class Blocked:
    """
    Looks after the loop of the thread on which L{start} is called.

    @param counters: get C{loop_blocked} (calls), C{loop_blocked_seconds}, C{loop_suspended} (times).
    @param now: seconds, on the clock that the loop's delays are measured on.
    @param modules: gives the modules of the configuration in force: name of the Python module → its name there.  The
        one that a stack leads through is named, and counted in its own scope.
    """

    def __init__(
        self,
        reactor: Any,
        counters: Counters,
        now: Callable[[], float] = time.monotonic,
        modules: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._reactor, self._counters, self._now, self._modules = reactor, counters, now, modules
        self._running = False
        self._answer = 0.0  # when the loop came to its next turn; 0 = it did not yet
        self._waited = 0.0  # of its thread, at that moment
        self._tell: dict[str, Limited] = {}

    def start(self) -> None:
        """Begin.  On the loop's thread, and once."""
        self._loop = _Loop(type(self._reactor).__module__)
        self._running = True
        threading.Thread(target=self._run, name="protogate event loop watch", daemon=True).start()

    def stop(self) -> None:
        """End.  Nothing is waited for: the thread ends at its next look.  Harmless when it has not begun."""
        self._running = False

    # -- on the thread

    def _run(self) -> None:
        waits = _Waits()
        try:
            self._watch(waits)
        except Exception:
            _log.failure("nobody looks after the event loop any more")
        finally:
            waits.close()
            self._loop.waits.close()

    def _watch(self, waits: _Waits) -> None:
        loop = self._loop
        case: _Case | None = None
        look = _Look(self._now(), waits, loop, self._done())
        while True:
            time.sleep(TICK)  # costs half of what waiting for a lock or an event does
            if not self._running:
                return
            last, look = look, _Look(self._now(), waits, loop, self._done())
            late = look.at - last.at - TICK
            # Nobody used a CPU: the whole process stood still, or was kept from running.
            still = max(late - (look.used - last.used), 0.0)
            if still - max(look.queued - last.queued, look.waited - last.waited) > LIMIT:
                self._on_loop(self._suspended)
            # This thread neither ran nor stood in the queue for a CPU: somebody kept the interpreter to himself.
            kept = late - still if late - (look.queued - last.queued) > KEPT else 0.0
            stack = loop.stack()
            if case is not None and look.done != last.done and not self._answer:
                # The call that held it up is over, and the turn goes on: whatever holds it up now began after that.
                self._judge(case, case.net(last.at, last.waited))
                case = _Case(look.at, look, busy=True)
            elif case is not None:
                case.lost += still
                case.kept += kept
                case.collected = look.collections != case.collections
                if self._answer:
                    self._judge(case, case.net(self._answer, self._waited))
                    case = None
                elif not case.told and case.net(look.at, look.waited) > STUCK:
                    self._log(case, case.net(look.at, look.waited), "so far")
            if case is None and (kept > LIMIT - TICK or stack):
                case = _Case(look.at, look)
                if kept > LIMIT - TICK:  # it began before this look
                    case.began -= kept
                    case.kept = kept
                    case.collections = last.collections
                self._answer = 0.0
                self._on_loop(self._turn)
            if case is not None:
                case.seen[stack] += 1
                # Perhaps this thread lost its CPU just now, while it had the interpreter.
                case.lost += waits.seconds() - look.queued

    def _judge(self, case: _Case, seconds: float) -> None:
        """It is over: did it take too long?"""
        if seconds >= (LIMIT if case.busy else LIMIT - TICK):
            if not case.told:
                self._log(case, seconds, "in all")
            self._on_loop(self._blocked, seconds + TICK / 2, self._through(case))

    def _log(self, case: _Case, seconds: float, how: str) -> None:
        case.told = True
        stack, times = case.most()
        looks = sum(case.seen.values())
        where = culprit(stack)
        if case.collected and case.kept > seconds / 2:
            place = "the garbage collector"
        elif where is None:
            place = "a C function or another thread"
        else:
            place = str(where)
        module = self._through(case)
        if module:
            place = f"module {module}: {place}"
        if place not in self._tell:
            if len(self._tell) >= PLACES:
                self._tell.clear()
            self._tell[place] = Limited(_log.warn)
        self._tell[place](
            "the event loop was held up for {milliseconds} ms {how} by {place} ({times} of {looks} looks):\n{stack}",
            milliseconds=round(1000 * (seconds + TICK / 2)),
            how=how,
            place=place,
            times=times,
            looks=looks,
            stack=written(stack),
        )

    def _through(self, case: _Case) -> str:
        """The module of the configuration that was called; empty when there is none."""
        names = self._modules()
        return next((names[frame.module] for frame in case.most()[0] if frame.module in names), "")

    def _done(self) -> object:
        counters = self._counters
        return counters.counts.get("exchanges"), counters.tally.total.sum

    def _on_loop(self, function: Callable[..., object], *args: object) -> None:
        self._reactor.callFromThread(function, *args)

    # -- on the loop

    def _turn(self) -> None:
        self._waited = self._loop.waits.seconds()
        self._answer = self._now()

    def _blocked(self, seconds: float, module: str) -> None:
        scopes = [self._counters]
        if module:
            scopes.append(self._counters.scope("module", module, apart=True))
        for counters in scopes:
            counters.count("loop_blocked")
            counters.add("loop_blocked_seconds", seconds)

    def _suspended(self) -> None:
        self._counters.count("loop_suspended")


class _Look:
    """
    What the clocks say at one look.

    @ivar at: the time.
    @ivar used: seconds of CPU that the process used so far.
    @ivar queued: seconds that the looking thread was ready to run and had no CPU.
    @ivar waited: the same of the loop's.
    @ivar collections: how often all garbage was collected.
    @ivar done: changes with each exchange that is over.
    """

    __slots__ = ("at", "collections", "done", "queued", "used", "waited")

    def __init__(self, at: float, waits: _Waits, loop: _Loop, done: object) -> None:
        self.at, self.used, self.done = at, time.process_time(), done
        self.queued, self.waited = waits.seconds(), loop.waits.seconds()
        self.collections = gc.get_stats()[2]["collections"]


class _Case:
    """
    One time that the loop was found at work.

    @ivar began: when.
    @ivar waited: seconds that its thread had waited for a CPU until then.
    @ivar busy: exchanges were over in the same turn: it may be many short calls.
    @ivar lost: seconds since then in which the process could not run.
    @ivar kept: seconds in which somebody kept the interpreter to himself.
    @ivar collected: all garbage was collected meanwhile.
    @ivar seen: where it was, how often.
    """

    __slots__ = ("began", "busy", "collected", "collections", "kept", "lost", "seen", "told", "waited")

    def __init__(self, began: float, look: _Look, *, busy: bool = False) -> None:
        self.began, self.waited, self.collections, self.busy = began, look.waited, look.collections, busy
        self.lost = self.kept = 0.0
        self.collected = self.told = False
        self.seen: Counter[Stack] = Counter()

    def most(self) -> tuple[Stack, int]:
        """Where it was most often, and how often."""
        return self.seen.most_common(1)[0] if self.seen else ((), 0)

    def net(self, end: float, waited: float) -> float:
        """Seconds that it had for its work, until then."""
        return end - self.began - max(self.lost, waited - self.waited)


class _Waits:
    """
    How long a thread was ready to run and had no CPU, as the kernel counts it; 0 where it does not.

    The thread that makes it is the one that is meant.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def seconds(self) -> float:
        """So far."""
        if self._file == -1:
            return 0.0
        try:
            return int(os.pread(self._file, 80, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def close(self) -> None:
        """Look no more."""
        if self._file != -1:
            os.close(self._file)
            self._file = -1


class _Loop:
    """
    The thread of the event loop, seen from another one.  It is the one that makes this.

    @param module: of its reactor.
    @ivar waits: for a CPU.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._thread = threading.get_ident()
        self.waits = _Waits()

    def stack(self) -> Stack:
        """What the loop called, from the outside in; empty when it waits for events."""
        frames: list[FrameType] = []
        frame = sys._current_frames().get(self._thread)
        # The thread goes on meanwhile: what is no frame any more by the time it is looked at is the end of the chain.
        while isinstance(frame, FrameType) and len(frames) < DEPTH:
            frames.append(frame)
            frame = frame.f_back
        frames.reverse()
        # Inside of the outermost loop: a call that runs a loop of its own holds ours up all the same.
        at = next((at for at, one in enumerate(frames) if self._turns(one)), -1) + 1
        while at < len(frames) and at and self._turns(frames[at]):
            at += 1
        if at == len(frames) - 1 and _module(frames[at]) == "selectors":
            at += 1
        return tuple(
            Frame(_module(one), one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_qualname)
            for one in frames[at:]
            if _module(one) != __name__
        )

    def _turns(self, frame: FrameType) -> bool:
        """Whether this is the work of a loop itself."""
        module = _module(frame)
        return (
            module in (self._module, "twisted.internet.base", "asyncio.base_events", "asyncio.events")
            or module.startswith("protogate.reactor.")
            or (module.startswith("twisted.internet.") and module.endswith("reactor"))
        )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def culprit(stack: Stack) -> Frame | None:
    """
    Who is to be named: the innermost call of the package that was called by us; without one, the innermost call that is
    not the standard library's.
    """
    begin = max((at for at, frame in enumerate(stack) if _root(frame) == "protogate"), default=-1) + 1
    others = [frame for frame in stack[begin:] if _root(frame) not in _KNOWN]
    if others:
        return next(frame for frame in reversed(others) if _root(frame) == _root(others[0]))
    ours = [frame for frame in stack if _root(frame) not in sys.stdlib_module_names]
    return (ours or stack)[-1] if stack else None


def _root(frame: Frame) -> str:
    return frame.module.partition(".")[0]


def written(stack: Stack) -> str:
    """As a traceback has it."""
    lines: list[str] = []
    for frame in stack:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.name}')
        source = linecache.getline(frame.file, frame.line).strip()
        if source:
            lines.append(f"    {source}")
    return "\n".join(lines)
