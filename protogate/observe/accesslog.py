"""
The access log: one JSON line for each record, written by a thread of its own.

Rules
- The event loop never waits for the log, whatever becomes of its file: a full or slow disk, a FIFO that nobody reads, a
  directory that is gone.  Records wait in a bounded queue; when it is full new ones are dropped, and counted.
- The event loop only appends: it neither encodes nor wakes the thread.  The thread looks every L{TICK} seconds.
- What a full disk cut in two is completed when there is room again; after a rotation the rest of it is left out.
- Rotation is by rename: the file is opened anew when its name leads to another file or to none.
- C{-} is standard output.  It is left as it is (blocking, shared with others): only the thread waits for its reader.
- Several processes may append to one file: a write is whole lines, and no more than the kernel keeps together.  (In a
  pipe that is L{PIPE} bytes: of a line that is longer, a part may end up elsewhere.)
- Events are told once a minute, by L{protogate.observe.events}.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from protogate.cohort import fraction
from protogate.errors import ConfigError
from protogate.observe.events import Limited
from protogate.observe.record import encode
from protogate.observe.schema import Record

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

TICK: Final = 0.1
"""Seconds between two looks at the queue."""
RETRY: Final = 1.0
"""Seconds between two attempts on a file that cannot be written."""
BATCH: Final = 128
"""Lines of a write; after so many others may have the interpreter."""
STOP: Final = 2.0
"""Seconds that a stop waits for the last lines."""
MODE: Final = 0o640
"""Of a file that is made."""
STDOUT: Final = "-"

PIPE: Final = select.PIPE_BUF
"""Bytes that a pipe keeps together."""
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK

_log = Logger()


class AccessLog:
    """
    Opens its file at once, so that a fault shows at start; the thread starts with it.

    C{file} never changes; C{sample}, C{always} and C{queue} may be set at any time, by a reload.

    @param file: a path, or C{-} for standard output.
    @param sample: from 0 to 1, which part of all exchanges is logged.  A stable hash of the request id decides.
    @param always: what is logged whatever C{sample} says.
    @param queue: records that may wait.
    @param count: told of each C{access_log_dropped}.
    @param reactor: for L{stop}; None = the installed one.
    @param descriptor: of the file, where somebody has opened it already (L{opened}); it is ours from now on.
    @ivar dropped: records that found the queue full.
    @raise OSError: the file cannot be opened.
    """

    def __init__(
        self,
        file: str,
        *,
        sample: float = 1.0,
        always: Callable[[Exchange], bool] | None = None,
        queue: int = 10_000,
        count: Callable[[str], None] = lambda event: None,
        reactor: Any = None,
        descriptor: int | None = None,
    ) -> None:
        self.file, self.sample, self.always, self.queue = file, sample, always, queue
        self.dropped = 0
        self._count, self._reactor = count, reactor
        self._waiting: deque[Record] = deque()
        self._tell_full = Limited(_log.warn)
        self._tell_always = Limited(_log.failure)
        self._stop = threading.Event()
        self._deadline = float("inf")
        self._ended: Deferred[None] | None = None
        self._writer = _Writer(file, descriptor)
        self._thread = threading.Thread(target=self._run, name="protogate access log", daemon=True)
        self._thread.start()

    # -- on the event loop

    @property
    def written(self) -> int:
        """Lines that were written."""
        return self._writer.written

    @property
    def lost(self) -> int:
        """Lines given up: what a stop left behind, and the rest of a line whose file was rotated away."""
        return self._writer.lost

    def wants(self, exchange: Exchange) -> bool:
        """Whether this exchange is to be logged: ask before making a record."""
        if self.sample >= 1.0 or (self.sample > 0.0 and fraction(exchange.id) < self.sample):
            return True
        if self.always is None:
            return False
        try:
            return self.always(exchange)
        except Exception:
            # Better a line too many than an exchange without its record.
            self._tell_always("access log {file}: accessLog.always failed", file=self.file)
            return True

    def write(self, record: Record) -> None:
        """Log it, or drop it when too many wait."""
        if len(self._waiting) >= self.queue:
            self.dropped += 1
            self._count("access_log_dropped")
            self._tell_full(
                "access log {file}: not written fast enough, records are dropped; {dropped} so far",
                file=self.file,
                dropped=self.dropped,
            )
        else:
            self._waiting.append(record)

    def stop(self, within: float = STOP) -> Deferred[None]:
        """
        Write what waits, then close the file.

        @param within: seconds after which the rest is given up.
        @return: fires when all is done or given up; never fails.
        """
        reactor = self._reactor
        if reactor is None:
            from twisted.internet import reactor as installed  # noqa: PLC0415 - importing it installs it

            reactor = self._reactor = installed
        ended: Deferred[None] = Deferred()
        # The thread minds the deadline by itself, unless it is stuck in a write: then this ends the wait.
        last = reactor.callLater(within + TICK, self._settle)
        self._ended = ended
        ended.addBoth(lambda _: last.cancel() if last.active() else None)
        self._finish(within)
        return ended

    def close(self, within: float = STOP) -> None:
        """As L{stop}, where nothing else is to be done meanwhile: it blocks."""
        self._finish(within)
        self._thread.join(within + TICK)

    def _finish(self, within: float) -> None:
        self._deadline = time.monotonic() + within
        self._stop.set()

    def _settle(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.callback(None)

    # -- on the thread

    def _run(self) -> None:
        writer, waiting, stop = self._writer, self._waiting, self._stop
        try:
            while True:
                stopping = stop.is_set()  # looked at before the queue is, so that nothing is left in it
                done = writer.flush(waiting)
                if not stopping:
                    stop.wait(TICK)
                elif done or time.monotonic() >= self._deadline:
                    break
                else:
                    time.sleep(TICK / 10)
            writer.give_up(waiting)
        except Exception:
            _log.failure("access log {file}: its thread failed, nothing is written any more", file=self.file)
        finally:
            writer.close()
            if self._ended is not None:
                self._reactor.callFromThread(self._settle)


class _Writer:
    """
    The file, and what is on its way there.

    @ivar written: lines.
    @ivar lost: lines.
    """

    def __init__(self, file: str, descriptor: int | None = None) -> None:
        self.file = file
        self.written = self.lost = 0
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._batch = memoryview(b"")
        self._pipe = False
        self._cut = False  # the first line of the batch is written in part
        self._retry = 0.0
        self._failing = False
        self._tell_trouble = Limited(_log.error)
        self._tell_fault = Limited(_log.failure)
        if file != STDOUT:
            if descriptor is None:
                descriptor = opened(file)
            if descriptor is not None:
                self._use(descriptor)

    def flush(self, waiting: deque[Record]) -> bool:
        """Write what waits; returns whether all of it was."""
        now = time.monotonic()
        if now < self._retry:
            return False
        try:
            self._follow()
            while self._batch or self._fill(waiting):
                written = os.write(self._descriptor, self._piece())
                self.written += bytes(self._batch[:written]).count(b"\n")
                self._cut = self._batch[written - 1] != _LINE_FEED
                self._batch = self._batch[written:]
                self._well()
        except BlockingIOError:
            return False  # a FIFO whose reader takes its time
        except OSError as error:
            self._trouble(error, now)
            return False
        self._well()
        return True

    def _well(self) -> None:
        """It can be written."""
        if self._failing:
            self._failing = False
            _log.info("access log {file}: it is written again", file=self.file)

    def _piece(self) -> memoryview:
        """What of the batch is written at once."""
        batch = self._batch
        if not self._pipe or len(batch) <= PIPE:
            return batch
        end = bytes(batch[:PIPE]).rfind(b"\n")
        return batch[: end + 1 if end >= 0 else bytes(batch).index(b"\n") + 1]

    def give_up(self, waiting: deque[Record]) -> None:
        """There will be no more attempt."""
        left = len(waiting) + bytes(self._batch).count(b"\n")
        if left:
            self.lost += left
            self._batch, self._cut = memoryview(b""), False
            _log.error("access log {file}: {lost} lines could not be written", file=self.file, lost=left)

    def close(self) -> None:
        """Leave the file.  The rest of a line that is partly in it has nowhere to go."""
        if self._descriptor != -1 and self.file != STDOUT:
            os.close(self._descriptor)
        self._descriptor, self._identity = -1, None
        if self._cut:
            self._cut = False
            self._batch = self._batch[bytes(self._batch).index(b"\n") + 1 :]
            self.lost += 1

    def _fill(self, waiting: deque[Record]) -> bool:
        lines: list[bytes] = []
        for _ in range(min(len(waiting), BATCH)):
            try:
                lines.append(encode(waiting.popleft()))
            except Exception:
                self.lost += 1
                self._tell_fault("access log {file}: a record cannot be encoded", file=self.file)
        self._batch = memoryview(b"".join(lines))
        return bool(lines)

    def _follow(self) -> None:
        """Have the file open that the name leads to."""
        if self.file == STDOUT:
            if self._descriptor == -1:
                self._use(1)
            return
        try:
            found = os.stat(self.file)
        except FileNotFoundError:
            identity = None
        else:
            identity = (found.st_dev, found.st_ino)
        if identity is None or identity != self._identity:
            self.close()
            self._open()

    def _open(self) -> None:
        self._use(os.open(self.file, _FLAGS, MODE))

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        self._pipe = stat.S_ISFIFO(status.st_mode)

    def _trouble(self, error: OSError, now: float) -> None:
        self._retry = now + RETRY
        if error.errno not in _NO_ROOM:
            self.close()  # and try with a new descriptor: the reader of a FIFO left, a network file system was away
        self._failing = True
        why = "nobody reads this FIFO" if _nobody_reads(error) else os.strerror(error.errno or 0)
        self._tell_trouble("access log {file}: {why}; records wait, then they are dropped", file=self.file, why=why)


_LINE_FEED: Final = 0x0A
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def opened(file: str) -> int | None:
    """
    A descriptor of the file, to append to; None for a FIFO that nobody reads yet, which is no fault.

    @raise OSError: it cannot be opened.
    """
    try:
        return os.open(file, _FLAGS, MODE)
    except OSError as error:
        if _nobody_reads(error):
            return None
        raise


def cannot_open(error: OSError) -> ConfigError:
    """What is wrong with the file's name."""
    return ConfigError(f"cannot be opened: {error.strerror}: {error.filename}", ("accessLog", "file"))


def _nobody_reads(error: OSError) -> bool:
    return error.errno in {errno.ENXIO, errno.EPIPE}
