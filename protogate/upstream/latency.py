"""
How long each endpoint takes to answer by now: a moving average that rises at once and falls slowly.

Rules
- A head that took longer than the average becomes the average; others pull it down, the more the longer ago the last
  one was (the peak EWMA of Finagle).  While nobody asks an endpoint its average falls, too, so that it is tried again.
- Who fails soon is not fast: an attempt that came to nothing counts as one that took L{PENALTY}, an error (5xx) as one
  that took the average.  What the client or a limit of ours ended says how long it took at least, and nothing else.
- An endpoint that has never answered costs nothing; while it is first asked it costs more than any other, so that not
  all turn to it before anybody knows how it is.  So it is with one to which nothing was left: how it was before that is
  forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import exp
from typing import Final

from protogate.upstream.endpoint import Endpoint
from protogate.upstream.outcome import Outcome

DECAY: Final = 10.0
"""Seconds in which the average falls to 1/e of what it is above what comes."""
PENALTY: Final = 1.0
"""Seconds that an attempt counts for which came to nothing, at least."""
UNKNOWN: Final = 1e9
"""What an endpoint costs that is asked for the first time, with each request that it has."""


class Latencies:
    """
    Told of attempts as L{protogate.upstream.dispatcher.Watcher}.

    @param now: seconds, on a clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._of: dict[Endpoint, Average] = {}

    def take(self, endpoints: Iterable[Endpoint]) -> None:
        """From now on it is about these, as far as anything is left to them."""
        before, self._of = self._of, {}
        for endpoint in endpoints:
            if endpoint.up:
                average = before.get(endpoint)
                self._of[endpoint] = Average() if average is None else average

    def ended(self, endpoint: Endpoint, outcome: Outcome, seconds: float) -> None:
        """L{protogate.upstream.dispatcher.Watcher}."""
        average = self._of.get(endpoint)
        if average is None or (outcome is Outcome.NOTHING and not average.known):
            return
        now = self._now()
        if outcome is Outcome.FAILED:
            seconds = max(seconds, PENALTY)
        elif outcome is not Outcome.WELL:
            seconds = max(seconds, average.at(now))
        average.add(seconds, now)

    def cost(self, endpoint: Endpoint, load: float) -> float:
        """How long an answer of the endpoint is likely to take, in seconds, when it has so many requests already."""
        average = self._of.get(endpoint)
        if average is None or not average.known:
            return UNKNOWN * load
        return average.at(self._now()) * (load + 1.0)


class Average:
    """Of one endpoint, in seconds.  @ivar known: whether there is one."""

    __slots__ = ("_since", "_value", "known")

    def __init__(self) -> None:
        self._value = self._since = 0.0
        self.known = False

    def at(self, now: float) -> float:
        """What it has fallen to."""
        return self._value * exp((self._since - now) / DECAY)

    def add(self, seconds: float, now: float) -> None:
        """One more took so long."""
        if seconds > self._value:
            self._value = seconds
        else:
            kept = exp((self._since - now) / DECAY)
            self._value = self._value * kept + seconds * (1.0 - kept)
        self._since, self.known = now, True
