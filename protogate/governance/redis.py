"""
A Redis that modules share their state through: one connection for each process and set of settings.

Rules
- Nobody waits for a connection: without one, or while Redis does not answer, every call fails at once (L{RedisGone}).
  What to do then is the module's to say, never this file's.
- A call waits for its answer for the settings' C{timeout}.  Once one has waited in vain Redis is in doubt, and nobody
  waits for it until it says something again; after L{PATIENCE} seconds of silence the connection is made anew.
- A connection that cannot be made, or breaks, is tried again by itself, from L{FIRST} up to L{MOST} seconds later.
- Commands go out as they come, without waiting for the answers of those before (pipelining); what comes is in order.
- Passwords appear in no message.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.context import uncounted
from protogate.governance.redissettings import RedisSettings
from protogate.observe.events import Limited
from protogate.wheel import Timer, Wheel

if TYPE_CHECKING:
    from protogate.governance.redislink import Link

PATIENCE: Final = 1.0
"""Seconds that Redis may be silent while calls wait, and that a connection may take to be made."""
FIRST: Final = 0.1
"""Seconds before the first attempt to connect anew; each further one waits twice as long …"""
MOST: Final = 1.0
"""… up to this.  Up to a quarter is added by chance: a thousand workers do not come back at once."""
ELSEWHERE: Final = ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING")
"""Errors of a Redis that cannot do it, but another one at the same name may: the connection is made anew."""
UNDER_WAY: Final = 10_000
"""Calls that may wait for an answer; further ones fail at once."""
EARLY: Final = 0.001
"""Seconds by which the clocks of event loops ring too early."""

Word = bytes | str | int | float
"""Part of a command."""

_log = Logger()
_random = SystemRandom()


class RedisError(Exception):
    """A call came to nothing; the text says why, for operators."""


class RedisGone(RedisError):
    """There is no connection, or no answer in time."""


class RedisRefused(RedisError):
    """Redis answered with an error, e.g. C{OOM command not allowed when used memory > 'maxmemory'}."""


class Script:
    """
    A program in Lua that Redis runs as one step.

    @ivar name: for messages, and for who plays Redis in a test.
    @ivar sha: what Redis knows it by, once it has seen it.
    """

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Redis:
    """
    One connection, made and kept.  See L{Redises} for who owns it.

    @param count: told C{redis_ok} for each answer, C{redis_failed} for each connection that could not be made or broke
        and each error that Redis answers, C{redis_timeout} for each call that waited in vain.
    @param given: told when somebody who was handed it does not need it any more.
    """

    def __init__(
        self,
        settings: RedisSettings,
        reactor: Any,
        wheel: Wheel,
        count: Callable[[str], None] = uncounted,
        given: Callable[[Redis], None] | None = None,
    ) -> None:
        self.settings, self._given = settings, given
        self._reactor, self._wheel, self._count = reactor, wheel, count
        # One that is told must not hide the next one, which is another.
        self._warn_lost, self._warn_silent, self._warn_refused = (Limited(_log.warn, now=wheel.now) for _ in range(3))
        self._link: Link | None = None  # that may be used
        self._attempt: Deferred[Any] | None = None  # to connect
        self._retry: Timer = wheel.timer(self.connect)
        self._failures = 0  # attempts in vain, in a row
        self._pending: deque[tuple[float, Deferred[Any]]] = deque()  # calls by when they must have their answer
        self._late: Any = None  # the reactor's call for the first of them; a wheel is too coarse
        self._patience = wheel.timer(self._lost_patience)
        self._silent = 0.0  # since when an answer is overdue; 0 = none is
        self._stopped = False

    # -- for modules

    @property
    def ready(self) -> bool:
        """Whether a call would be sent; False is what RedisGone says, for less."""
        return self._link is not None and not self._silent and len(self._pending) < UNDER_WAY

    def call(self, *command: Word) -> Deferred[Any]:
        """
        Send one command.

        @return: its answer: bytes, an int, a list of these, or None.  Fails with L{RedisGone}, at once or after the
            timeout, or with L{RedisRefused}.  Cancelling it forgets about the answer; Redis may have done it.
        """
        link = self._link
        if link is None or not self.ready:
            return fail(RedisGone(self._why()))
        answer: Deferred[Any] = Deferred()
        now = self._wheel.now()
        self._pending.append((now + self.settings.timeout, answer))
        if self._late is None:
            self._late = self._reactor.callLater(self.settings.timeout, self._overdue)
        link.send(command).addBoth(self._answered, answer)
        return answer

    def script(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Deferred[Any]:
        """Run a script, see L{call}.  Its text is sent only to a Redis that does not know it."""
        answer = self.call("EVALSHA", script.sha, len(keys), *keys, *args)
        return answer.addErrback(self._unknown, script, keys, args)

    def release(self) -> None:
        """Whoever was handed it does not need it any more: once for each time it was handed out."""
        if self._given is not None:
            self._given(self)

    def _unknown(
        self, failure: Failure, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]
    ) -> Deferred[Any] | Failure:
        if failure.check(RedisRefused) and str(failure.value).startswith("NOSCRIPT"):
            return self.call("EVAL", script.text, len(keys), *keys, *args)
        return failure

    def _why(self) -> str:
        if self._silent:
            return f"Redis at {self.settings.shown} does not answer"
        if self._link is not None:
            return f"{UNDER_WAY} calls wait for Redis at {self.settings.shown}"
        return f"no connection to Redis at {self.settings.shown}"

    # -- answers

    def _answered(self, result: Any, answer: Deferred[Any]) -> None:
        """What came for the call that was sent first; every call has its turn, whether or not somebody still waits."""
        pending = self._pending
        if pending and pending[0][1] is answer:
            pending.popleft()
        if self._silent:
            self._silent = 0.0
            self._patience.clear()
        if answer.called:
            return  # it came too late, or nobody wants it
        if not isinstance(result, Failure):
            self._failures = 0
            self._count("redis_ok")
            answer.callback(result)
        elif self._link is None:
            answer.errback(RedisGone(self._why()))
        else:
            text = str(result.value)
            if not text.startswith("NOSCRIPT"):
                self._count("redis_failed")
                self._warn_refused("Redis at {where} refused a command: {why}", where=self.settings.shown, why=text)
            if text.startswith(ELSEWHERE):
                self._link.abort(text)
            answer.errback(RedisRefused(text))

    def _overdue(self) -> None:
        """The first call that waits may have waited for too long."""
        self._late = None
        now, pending = self._wheel.now(), self._pending
        late: list[Deferred[Any]] = []
        while pending and pending[0][0] <= now + EARLY:
            late.append(pending.popleft()[1])
        if pending:
            self._late = self._reactor.callLater(pending[0][0] - now, self._overdue)
        if not late:
            return
        if not self._silent:
            self._silent = now
            self._patience.set(PATIENCE)
        where, seconds = self.settings.shown, self.settings.timeout
        self._warn_silent("Redis at {where} does not answer within {seconds:g} s", where=where, seconds=seconds)
        for answer in late:
            self._count("redis_timeout")
            if not answer.called:
                answer.errback(RedisGone(self._why()))

    def _lost_patience(self) -> None:
        if self._link is not None:
            self._link.abort(f"silent for {PATIENCE:g} s")

    # -- the connection

    def connect(self) -> None:
        """Begin to make the connection.  Harmless where there is one, or soon will be."""
        if self._stopped or self._link is not None or self._attempt is not None:
            return
        from protogate.governance import redislink  # noqa: PLC0415 - an extra; and it imports the reactor

        attempt = self._attempt = redislink.connect(self.settings, self._reactor, self._wheel.soon, PATIENCE)
        attempt.addCallbacks(self._connected, self._unconnected)

    def _connected(self, link: Link) -> None:
        self._attempt, self._link, self._silent = None, link, 0.0
        if self._failures:
            _log.info("connected to Redis at {where}", where=self.settings.shown)
        link.lost.addCallback(partial(self._broken, link))

    def _unconnected(self, failure: Failure) -> None:
        self._attempt = None
        if not self._stopped:
            self._again(failure.getErrorMessage())

    def _broken(self, link: Link, why: str) -> None:
        if link is self._link:
            self._link, self._silent = None, 0.0
            pending, self._pending = self._pending, deque()
            self._patience.clear()
            if self._late is not None:
                self._late.cancel()
                self._late = None
            for _, answer in pending:
                if not answer.called:
                    answer.errback(RedisGone(self._why()))
            if not self._stopped:
                self._again(why)

    def _again(self, why: str) -> None:
        self._count("redis_failed")
        delay = min(FIRST * 2.0 ** min(self._failures, 16), MOST)
        self._failures += 1
        self._warn_lost("no connection to Redis at {where}: {why}", where=self.settings.shown, why=why)
        self._retry.set(delay * (1 + _random.random() / 4))

    def stop(self) -> None:
        """Close, for good."""
        self._stopped = True
        self._retry.end()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._link is not None:
            self._link.close()
            self._broken(self._link, "")
        self._patience.end()


class Redises:
    """
    All Redises of a process, by their settings.  Whoever takes one releases it when it is stopped; one that nobody has
    any more is closed.
    """

    def __init__(self, reactor: Any, wheel: Wheel, count: Callable[[str], None] = uncounted) -> None:
        self._reactor, self._wheel, self._count = reactor, wheel, count
        self._taken: dict[RedisSettings, tuple[Redis, int]] = {}

    def take(self, settings: RedisSettings) -> Redis:
        """The one with these settings; it begins to connect when it is taken for the first time."""
        redis, users = self._taken.get(settings, (None, 0))
        if redis is None:
            redis = Redis(settings, self._reactor, self._wheel, self._count, self._released)
            redis.connect()
        self._taken[settings] = redis, users + 1
        return redis

    def _released(self, redis: Redis) -> None:
        found, users = self._taken.get(redis.settings, (None, 0))
        if found is not redis:
            return
        if users > 1:
            self._taken[redis.settings] = redis, users - 1
        else:
            del self._taken[redis.settings]
            redis.stop()

    def stop(self) -> None:
        """Close all."""
        taken, self._taken = self._taken, {}
        for redis, _ in taken.values():
            redis.stop()


def ignored(failure: Failure) -> None:
    """For calls whose end matters to nobody: a failure was counted and told already."""
    failure.trap(RedisError, CancelledError)
