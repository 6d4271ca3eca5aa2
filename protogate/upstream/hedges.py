"""
When a request of an upstream is worth a second attempt beside the first: what C{hedge} of the configuration says.

Rules
- The second attempt begins when the first has taken longer than most do: a quantile of what answers took within the
  last L{SPAN} seconds, once there are enough of them, or a time of the configuration.  Only what may be asked twice is
  looked at.
- What is asked twice is held to a budget of its own.  Together with that of C{retry} it bounds what an upstream is
  asked on top, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.message import Request
from protogate.upstream.budget import Budget
from protogate.upstream.outcome import WELL
from protogate.upstream.retries import IDEMPOTENT
from protogate.upstream.seen import Seen
from protogate.upstream.window import Window

SPAN: Final = 30.0
"""Seconds of answers that are looked at."""
FRESH: Final = 0.2
"""Seconds for which a quantile is believed before it is worked out anew."""


def verify(upstreams: Iterable[model.Upstream]) -> None:
    """
    Whether requests can be hedged as a configuration says.

    @raise ConfigFaults: some cannot.
    """
    faults: list[ConfigError] = []
    for index, upstream in enumerate(upstreams):
        hedge = upstream.hedge
        if hedge is None:
            continue
        for place, method in enumerate(hedge.methods):
            if method.encode("utf-8") not in IDEMPOTENT:
                at = ("upstreams", index, "hedge", "methods", place)
                faults.append(ConfigError(f"{method} may not be sent twice: it is not idempotent", at))
    if faults:
        raise ConfigFaults(faults)


class Hedges:
    """
    @param budget: of attempts.
    @param now: seconds, on a clock that only goes forward.
    """

    def __init__(self, config: model.Hedge, budget: Budget, now: Callable[[], float]) -> None:
        self.config, self.budget, self._now = config, budget, now
        self._methods = frozenset(method.encode("ascii") for method in config.methods)
        self._after, self._quantile = float(config.after), float(config.quantile)
        self._least = int(config.min_requests)
        self._window, self._seen = Window(SPAN, latencies=True), Seen()
        self._delay, self._until = 0.0, 0.0

    def fits(self, request: Request) -> bool:
        """Whether it may be sent twice: nothing that is read once belongs to it."""
        return request.body is None and request.upgrade is None and request.method in self._methods

    def delay(self) -> float:
        """Seconds after which the second attempt begins; 0.0 = nobody knows yet."""
        if self._after:
            return self._after
        now = self._now()
        if now >= self._until:
            self._until = now + FRESH
            seen, self._seen = self._seen, Seen()
            self._window.add(seen, now)
            self._delay = self._window.quantile(self._quantile) if self._window.well >= self._least else 0.0
        return self._delay

    def took(self, seconds: float) -> None:
        """An answer took so long, or would have taken longer."""
        if not self._after:
            self._seen.add(WELL, seconds)
