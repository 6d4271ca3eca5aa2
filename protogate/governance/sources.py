"""
Content that comes from a file or a URL, and is refreshed while the gateway runs: keys, lists.

Rules
- A file is read when the configuration is loaded: what is wrong with it is a fault of the configuration.  A URL is
  asked when the configuration is in force: a gateway starts without its neighbours.  Until then there is nothing, and
  the module says what that means.
- It is read and parsed in a thread, one at a time; what was made of it is put in force on the event loop.
- Content that is what it was before is not parsed again, and changes nothing: what was learnt by it goes on.
- Whatever fails keeps what there was, is counted (C{source_failed}) and told once until it works again.
- A URL is asked again each interval, give or take a tenth; after a failure sooner, by and by less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import SystemRandom
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.config.faults import ConfigFaults
from protogate.config.forgiven import forgiven
from protogate.config.stamp import Stamp, read
from protogate.config.watch import FileWatch
from protogate.errors import Abort, ConfigError
from protogate.governance.asking import Answer, Question, ask
from protogate.governance.means import Means
from protogate.quiet import quiet
from protogate.wheel import Timer

LARGEST: Final = 16 << 20
"""Bytes of the content, unless said otherwise."""
PATIENCE: Final = 10.0
"""Seconds that a URL has to give all of it."""
FIRST_RETRY: Final = 1.0
"""Seconds after which a URL that failed is asked again; twice as long each time, up to its interval."""

T = TypeVar("T")
_log = Logger()
_random: Final = SystemRandom()


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where content comes from: exactly one of both.

    @ivar file: absolute path, or empty.
    @ivar url: or None.
    @ivar interval: seconds after which a URL is asked again.
    """

    file: str = ""
    url: Question | None = None
    interval: float = 300.0

    def __str__(self) -> str:
        url = self.url
        return self.file if url is None else f"{url.service}{url.target.partition(b'?')[0].decode()}"


class Followed(Generic[T]):
    """
    What was made of the content of a source, up to date.

    @ivar source: where it comes from.
    @ivar about: what one has to do with the other: the source, and what is made of it.
    @ivar value: what was made of it last; None = nothing could be yet.
    @ivar digest: of the content that C{value} was made of.
    """

    def __init__(self, source: Source, parse: Callable[[bytes], T], limit: int = LARGEST) -> None:
        """
        @param parse: in a thread: raises a ValueError (a L{ConfigError} is one) that says what is wrong.  It keeps no
            reference to whoever has this.
        @param limit: bytes that the content may have.
        """
        self.source, self.about = source, (source, parse)
        self.value: T | None = None
        self.digest = b""
        self._parse, self._limit = parse, limit
        self._stamp: Stamp | None = None
        self._means: Means | None = None
        self._taken: Callable[[T], None] | None = None
        self._watch: FileWatch | None = None
        self._timer: Timer | None = None
        self._asking: Deferred[Answer] | None = None
        self._trouble: ConfigError | None = None
        self._busy = self._again = self._failing = False
        self._delay = 0.0

    def load(self) -> None:
        """
        Read the file, if it is one; for C{build()}.

        @raise ConfigError: it cannot be read or used; without a path.  Not where that is L{forgiven}: then it is as
            with a URL that has not answered yet.
        """
        if not self.source.file:
            return
        try:
            self.value, self.digest = self._read()
        except ConfigError as error:
            if not forgiven():
                raise
            self._trouble = error

    def start(self, means: Means, before: Followed[T] | None = None, taken: Callable[[T], None] | None = None) -> None:
        """
        Keep it up to date from now on.

        @param before: of the configuration before: what it knows counts until there is something newer, where it is
            about the same.
        @param taken: told of each new value.
        """
        self._means, self._taken = means, taken
        heir = before is not None and before.about == self.about and before.value is not None
        if heir and before is not None and self.digest in (b"", before.digest):
            self.value, self.digest = before.value, before.digest  # a file that is equal is kept once
        if self.source.file:
            self._watch = FileWatch(self.source.file, self._changed, means.wheel)
            self._watch.start(self._stamp)
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                self._failed(Failure(trouble))
                self._changed()  # it may have been mended since
            return
        self._timer = means.wheel.timer(self.refresh)
        self._delay = FIRST_RETRY
        self.refresh()

    def stop(self) -> None:
        """Keep it up to date no longer."""
        self._means = self._taken = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def refresh(self) -> None:
        """Ask the URL now, unless that is under way; a file is looked at anyway."""
        means, question = self._means, self.source.url
        if means is None or question is None or self._busy:
            return
        self._busy = True
        if self._timer is not None:
            self._timer.clear()
        asking = ask(means.service(question.service), question.request(), means.wheel, PATIENCE, self._limit)
        self._asking = asking
        asking.addCallbacks(self._answered, self._failed)

    # -- a URL

    def _answered(self, answer: Answer) -> None:
        self._asking = None
        if answer.status != 200:
            self._failed(Failure(ValueError(f"it answered {answer.status}")))
            return
        self._work(lambda: self._made_of(answer.content))

    # -- a file

    def _changed(self) -> None:
        if self._busy:
            self._again = True
        else:
            self._busy = True
            self._work(self._read)

    def _read(self) -> tuple[T, bytes]:
        path = self.source.file
        try:
            data, self._stamp = read(path, self._limit)
            return self._made_of(data)
        except ConfigFaults as error:
            raise ConfigError(f"{path}: {error.faults[0].message}") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None

    # -- either

    def _made_of(self, data: bytes) -> tuple[T, bytes]:
        """What is made of it, in a thread, and its digest: what there is where it is the same."""
        digest = sha256(data).digest()
        known = self.value
        return (known if known is not None and digest == self.digest else self._parse(data)), digest

    def _work(self, make: Callable[[], tuple[T, bytes]]) -> None:
        means = self._means
        if means is None:
            return
        making: Deferred[Any] = deferToThreadPool(means.reactor, means.reactor.getThreadPool(), _quietly, make)
        making.addCallbacks(self._made, self._failed)

    def _made(self, made: tuple[T, bytes]) -> None:
        means = self._means
        if means is None:
            return
        value, same = made[0], made[0] is self.value
        self.value, self.digest = made
        means.count("source_refreshed")
        if self._failing:
            self._failing = False
            _log.info("{source} can be used again", source=str(self.source))
        self._delay = FIRST_RETRY
        self._over(self.source.interval * _random.uniform(0.9, 1.1))
        if self._taken is not None and not same:
            self._taken(value)

    def _failed(self, failure: Failure) -> None:
        means, self._asking = self._means, None
        if means is None:
            return
        means.count("source_failed")
        error = failure.value
        expected = isinstance(error, (Abort, ValueError))
        if not self._failing or not expected:
            self._failing = True
            kept = "what was there before stays in use" if self.value is not None else "there is nothing to use yet"
            source = str(self.source)
            if expected:
                why = str(error).removeprefix(f"{source}: ")  # of a file it says so itself
                _log.error("{source}: {why}; {kept}", source=source, why=why, kept=kept)
            else:
                _log.failure("{source} cannot be used; {kept}", failure, source=source, kept=kept)
        delay, self._delay = self._delay, min(2 * self._delay, self.source.interval)
        self._over(min(delay, self.source.interval) * _random.uniform(0.9, 1.1))

    def _over(self, delay: float) -> None:
        self._busy = False
        if self._timer is not None:
            self._timer.set(delay)
        elif self._again:
            self._again = False
            self._changed()


def _quietly(make: Callable[[], T]) -> T:
    with quiet:
        return make()
