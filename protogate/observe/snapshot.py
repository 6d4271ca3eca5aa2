"""
What counters, gauges and histograms say at one moment, as plain data: it survives JSON, and can be added up.

Rules
- A L{Snapshot} is dictionaries, lists, texts and numbers: any encoding carries it from a worker to its supervisor.
- Whoever adds up does not know what it adds: events, gauges and histograms of workers are all sums.  What is left to an
  endpoint is the same in all of them, or soon will be: the least counts.
- A total never goes down, whatever becomes of a worker: L{Totals}.  (What a worker counted after its last snapshot dies
  with it.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NotRequired, TypedDict

Number = int | float
Scoped = dict[str, dict[str, dict[str, Number]]]
"""Kind → name → event or gauge → number; of the process as a whole where kind and name are empty."""
Shares = dict[str, dict[str, dict[str, Number]]]
"""Upstream → endpoint → who judges it → the share that is left to it, 0 to 1; by all of them where that is empty."""


class Bins(TypedDict):
    """A L{protogate.observe.histogram.Histogram}."""

    bins: list[int]
    """As in L{protogate.observe.histogram.BOUNDS}; zeros at the end are left out."""
    sum: float


class Snapshot(TypedDict):
    """One moment of a process, or of several."""

    counts: Scoped
    """How often, since the start; never goes down."""
    gauges: Scoped
    """How much right now."""
    histograms: dict[str, Bins]
    endpoints: NotRequired[Shares]
    """Right now, of those that are judged."""


def empty() -> Snapshot:
    """Nothing happened."""
    return {"counts": {}, "gauges": {}, "histograms": {}}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """All of them together; they stay as they are."""
    whole = empty()
    for each in snapshots:
        _add(whole["counts"], each["counts"])
        _add(whole["gauges"], each["gauges"])
        _pour(whole["histograms"], each["histograms"])
        if "endpoints" in each:
            _least(whole.setdefault("endpoints", {}), each["endpoints"])
    return whole


def _add(into: Scoped, more: Scoped) -> None:
    for kind, names in more.items():
        mine = into.setdefault(kind, {})
        for name, numbers in names.items():
            sums = mine.setdefault(name, {})
            for event, number in numbers.items():
                sums[event] = sums.get(event, 0) + number


def _least(into: Shares, more: Shares) -> None:
    for upstream, endpoints in more.items():
        mine = into.setdefault(upstream, {})
        for endpoint, shares in endpoints.items():
            known = mine.setdefault(endpoint, {})
            for by, share in shares.items():
                known[by] = min(share, known.get(by, share))


def _pour(into: dict[str, Bins], more: dict[str, Bins]) -> None:
    for name, each in more.items():
        mine = into.setdefault(name, {"bins": [], "sum": 0.0})
        bins, others = mine["bins"], each["bins"]
        bins.extend([0] * (len(others) - len(bins)))
        for at, number in enumerate(others):
            bins[at] += number
        mine["sum"] += each["sum"]


class Share:
    """What one worker counted: made by L{Totals.join}."""

    __slots__ = ("_totals", "latest")

    def __init__(self, totals: Totals) -> None:
        self._totals: Totals | None = totals
        self.latest = empty()

    def take(self, snapshot: Snapshot) -> None:
        """What the worker says now.  One that comes after L{end} changes nothing."""
        if self._totals is not None:
            self.latest = snapshot

    def end(self) -> None:
        """The worker is gone: what it counted stays, what it had does not."""
        totals, self._totals = self._totals, None
        if totals is not None:
            totals._left(self)


class Totals:
    """
    What several workers counted, those that are gone included.

    What a worker said last stands for it until it says something else, so a worker that does not answer lowers nothing.

    @ivar gone: what those counted that are gone; what is there from the start counts as theirs.
    """

    def __init__(self, gone: Snapshot | None = None) -> None:
        self._shares: list[Share] = []
        self.gone = empty() if gone is None else gone

    def join(self) -> Share:
        """A worker begins."""
        share = Share(self)
        self._shares.append(share)
        return share

    def keep(self, kind: str, names: Collection[str]) -> None:
        """
        Forget what workers that are gone counted for others of that kind: they left the configuration, and a reload may
        not grow this for ever.  Totals stay.
        """
        scopes = self.gone["counts"].get(kind, {})
        for name in [name for name in scopes if name not in names]:
            del scopes[name]

    def whole(self) -> Snapshot:
        """All together, at this moment."""
        return merge((self.gone, *(share.latest for share in self._shares)))

    def _left(self, share: Share) -> None:
        self._shares.remove(share)
        self.gone = merge((self.gone, {**share.latest, "gauges": {}, "endpoints": {}}))
        self.gone.pop("endpoints", None)
