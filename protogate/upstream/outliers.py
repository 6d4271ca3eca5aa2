"""
C{outliers}: endpoints that do worse than they should are left alone for a while, and come back little by little.

Rules
- Failures in a row, a share of failures, or answers that take much longer than those of the others.
- Of several endpoints at least one may be left alone, but never more than C{maxShare} of them, and never all; those
  that others hold down count as well.  Whoever cannot be left alone is judged anew from then on.
- How long grows with each time; the way back is a ramp, on which the same rules hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from protogate.config import model
from protogate.upstream.breaker import State, Terms
from protogate.upstream.judge import Entry, Judge, Office
from protogate.upstream.window import SLICES, Window

if TYPE_CHECKING:
    from protogate.upstream.endpoint import Endpoint
    from protogate.upstream.seen import Seen

BY: Final = "outliers"

_log = Logger()


class Outliers(Judge):
    """Who is left alone."""

    by = BY

    def __init__(self, settings: model.Outliers, office: Office) -> None:
        super().__init__(terms(settings), office)
        self.settings = settings
        self._times: dict[str, Window] = {}  # how long each one's answers took
        self._compared = 0.0

    def settle(self, settings: model.Outliers) -> None:
        """Judge by these from now on."""
        if settings != self.settings:
            self.settings = settings
            self._times.clear()
            self.change(terms(settings))

    def observe(self, endpoint: Endpoint, seen: Seen) -> None:
        """L{Judge}."""
        if self.settings.latency_factor and seen.well:
            self._time(endpoint, seen)
        super().observe(endpoint, seen)

    def may(self, entry: Entry) -> bool:
        """L{Judge}."""
        weighty = [endpoint for endpoint in self.there if endpoint.place.weight]
        down = sum(1 for endpoint in weighty if not endpoint.up and endpoint is not entry.endpoint)
        most = min(max(int(len(weighty) * self.settings.max_share), 1), len(weighty) - 1)
        if down < most:
            return True
        self.office.count("outlier_spared")
        return False

    def moved(self, entry: Entry, before: State) -> None:
        """L{Judge}."""
        office, breaker = self.office, entry.breaker
        self._times.pop(entry.at, None)
        if breaker.state is State.OPEN:
            office.count("outlier_ejected")
            _log.warn(
                "upstream {upstream}: {address} is left alone for {seconds:g} s: {why}",
                upstream=office.name,
                address=entry.at,
                seconds=breaker.due - breaker.since,
                why=breaker.why,
            )
        elif before is State.OPEN:
            office.count("outlier_returned")
            _log.info("upstream {upstream}: {address} gets requests again", upstream=office.name, address=entry.at)

    # -- how long answers take

    def _time(self, endpoint: Endpoint, seen: Seen) -> None:
        entry = self.there.get(endpoint)
        if entry is None or entry.breaker.state is State.OPEN:
            return
        now, settings = self.office.wheel.now(), self.settings
        times = self._times.get(entry.at)
        if times is None:
            times = self._times[entry.at] = Window(float(settings.interval), latencies=True)
        times.add(seen, now)
        if now - self._compared >= float(settings.interval) / SLICES:
            self._compared = now
            self._compare(now)

    def _compare(self, now: float) -> None:
        """The slowest is held, if it is much slower than the others."""
        medians: dict[str, float] = {}
        for at, times in list(self._times.items()):
            times.turn(now)
            if at not in self.entries:
                del self._times[at]
            elif times.well >= self.settings.min_requests:
                medians[at] = times.quantile(0.5)
        if len(medians) < 2:
            return
        at = max(medians, key=lambda at: medians[at])
        took, usual = medians.pop(at), median(medians.values())
        if took > usual * self.settings.latency_factor and took - usual >= self.settings.latency_floor:
            entry = self.entries[at]
            if entry.endpoint is not None:
                self._times[at].clear()
                self.accuse(entry, f"its median answer took {took:.3g} s, that of the others {usual:.3g} s")


def terms(settings: model.Outliers) -> Terms:
    """What their breakers work by."""
    return Terms(
        ratio=settings.error_ratio,
        consecutive=settings.consecutive,
        latency=0.0,
        quantile=0.0,
        window=float(settings.interval),
        least=settings.min_requests,
        open=float(settings.ejection),
        most=float(settings.max_ejection),
        probes=0,
        ramp=float(settings.ramp),
    )


def wrong(settings: model.Outliers) -> Iterator[tuple[str, str]]:
    """What these settings cannot mean: the key, empty where it is all of them, and what to do."""
    if not settings.consecutive and not settings.error_ratio and not settings.latency_factor:
        yield "", "no endpoint would ever be an outlier: give consecutive, errorRatio or latencyFactor"
    if 0 < settings.latency_factor <= 1:
        message = f"expected more than 1, or 0 for off, got {settings.latency_factor:g}: half of all take longer"
        yield "latencyFactor", message
    if settings.max_ejection < settings.ejection:
        yield "maxEjection", "less than ejection, which only grows"
