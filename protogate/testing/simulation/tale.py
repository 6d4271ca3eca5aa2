"""What became of a story: everything that happened, in order, for whoever judges or draws it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

from protogate.observe.schema import Record
from protogate.testing.simulation.clients import Ask
from protogate.testing.simulation.servers import Seen
from protogate.testing.simulation.story import Story


@dataclass(slots=True)
class Judged:
    """
    From C{at} on an endpoint gets C{share} of its weight; C{by} says who left it less than all.

    @ivar at: seconds since the story began, to a tenth.
    """

    at: float
    upstream: str
    server: str
    share: float
    by: tuple[str, ...] = ()


@dataclass(slots=True)
class Tale:
    """
    @ivar asks: what clients asked, in the order in which they began.
    @ivar seen: what servers were asked, health checks included.
    @ivar records: what the gateway said of each exchange, in the order in which they ended.
    @ivar judged: changes of what endpoints get, of the gateway's own making.
    @ivar counted: C{(seconds, scope, event, total)} whenever a look, twice a second, found a counter changed; scope is
        empty for all together, else C{upstream NAME} or C{module NAME}.
    @ivar counts: totals at the end, by scope.
    @ivar most: how many requests each server had at work at once, at most.
    @ivar left: what stayed behind after the gateway had stopped.
    @ivar failures: tracebacks that were logged.
    @ivar unsettled: what was still under way long after the end.
    """

    story: Story
    seed: int
    asks: list[Ask] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    counted: list[tuple[float, str, str, float]] = field(default_factory=list)
    counts: dict[str, Mapping[str, float]] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)

    def asked(self, begin: float = 0.0, end: float = 1e9) -> list[Ask]:
        """The asks that began in that time."""
        return [ask for ask in self.asks if begin <= ask.began < end]

    def served(self, begin: float = 0.0, end: float = 1e9, server: str = "") -> list[Seen]:
        """What servers, or that server, were asked in that time by clients: neither checks nor copies."""
        return [
            seen
            for seen in self.seen
            if begin <= seen.at < end and not seen.check and not seen.copied and server in ("", seen.server)
        ]

    def count(self, event: str, scope: str = "") -> float:
        """How often, by the end."""
        return self.counts.get(scope, {}).get(event, 0)

    def digest(self) -> str:
        """Of all that happened: equal for two runs that were the same."""
        digest = hashlib.sha256()
        for line in self._lines():
            digest.update(line.encode("utf-8", "backslashreplace") + b"\n")
        return digest.hexdigest()

    def _lines(self) -> Iterator[str]:
        for kind, each in ((Ask, self.asks), (Seen, self.seen), (Judged, self.judged)):
            for one in each:
                yield repr([getattr(one, name) for name in kind.__slots__])
        for record in self.records:
            yield repr([getattr(record, name) for name in record.__struct_fields__ if name not in ("id", "trace")])
        for scope, counts in self.counts.items():
            yield f"{scope} {sorted(counts.items())}"


def percentile(values: list[float], percent: float) -> float:
    """By the nearest rank; 0.0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(ceil(len(values) * percent / 100), 1) - 1]
