"""
What happened how often.

Rules
- Counting is one dictionary update; nothing is allocated after the first time.
- Names come from the code, never from traffic.  What comes from the configuration (listeners, upstreams) is a scope,
  and there are L{SCOPES} of them at most: a reload may not grow this for ever.
- All on one thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from protogate.observe.snapshot import Number, Snapshot
from protogate.observe.tally import Tally

SCOPES: Final = 4096
"""More are counted together, as the one named L{OTHER}."""
OTHER: Final = "(other)"


class Counters:
    """
    @ivar counts: event → how often, e.g. C{"header_line_too_long"}; of this one and of all scopes below it.
    @ivar tally: what exchanges came to, all together; scopes have none of their own.
    """

    __slots__ = ("_above", "_scopes", "counts", "tally")

    def __init__(self, above: Counters | None = None) -> None:
        self.counts: defaultdict[str, Number] = defaultdict(int)
        self._above = above
        self._scopes: dict[tuple[str, str], Counters] = {}
        self.tally: Tally = Tally() if above is None else above.tally

    def count(self, event: str) -> None:
        """One more of that event."""
        self.counts[event] += 1
        if self._above is not None:
            self._above.count(event)

    def add(self, event: str, amount: Number) -> None:
        """So much more of what is not counted one by one, e.g. seconds; never less than 0."""
        self.counts[event] += amount
        if self._above is not None:
            self._above.add(event, amount)

    def scope(self, kind: str, name: str, apart: bool = False) -> Counters:
        """
        The counters of one listener, one upstream …: what is counted there is counted here as well.

        @param apart: that is not so: what its events are called means something there only.
        """
        scopes = self._scopes
        found = scopes.get((kind, name))
        if found is None:
            if len(scopes) >= SCOPES:
                name = OTHER
            found = scopes.setdefault((kind, name), Counters(self))
            if apart:
                found._above = None
        return found

    def keep(self, kind: str, names: Collection[str]) -> None:
        """Forget the scopes of that kind with other names: they are gone from the configuration.  Totals stay."""
        for key in [key for key in self._scopes if key[0] == kind and key[1] not in names]:
            del self._scopes[key]

    @property
    def scopes(self) -> Mapping[tuple[str, str], Counters]:
        """Those of each kind and name that there are now."""
        return self._scopes

    def snapshot(self) -> Snapshot:
        """What was counted up to this moment.  Gauges are for whoever has some to put in."""
        taken: Snapshot = {"counts": {"": {"": dict(self.counts)}}, "gauges": {}, "histograms": {}}
        for (kind, name), scope in self._scopes.items():
            taken["counts"].setdefault(kind, {})[name] = dict(scope.counts)
        self.tally.add(taken)
        return taken
