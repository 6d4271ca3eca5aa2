"""
What exchanges came to: the class of the answer, and how long gateway and upstream took.

One call for each exchange, of its ledger alone: no name is looked up, nothing is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protogate.observe.histogram import Histogram
from protogate.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange


class Tally:
    """
    @ivar answered: how many answers had a status of each hundred; [0] is never used.
    @ivar total: seconds from the first byte of a request to the end of its answer.
    @ivar gateway: seconds from the request's head until the upstream was asked, or until the end where none was.
    @ivar upstream: seconds from that moment to the head of the upstream's answer, or to the end where none came; of
        the last attempt.
    """

    __slots__ = ("answered", "gateway", "total", "upstream")

    def __init__(self) -> None:
        self.answered = [0] * 6
        self.total, self.gateway, self.upstream = Histogram(), Histogram(), Histogram()

    def note(self, exchange: Exchange) -> None:
        """An exchange that is over."""
        response, ledger = exchange.response, exchange.ledger
        if response is not None:
            hundred = response.status // 100
            self.answered[hundred if 1 <= hundred <= 5 else 5] += 1  # codecs answer 502 for what is no status
        end, chosen = ledger.end, ledger.chosen
        head = ledger.head or end  # there was none
        self.total.observe(end - (ledger.first or head))
        if chosen:
            self.gateway.observe((chosen if ledger.past is None else ledger.past.asked) - head)
            self.upstream.observe((ledger.answered or end) - chosen)
        else:
            self.gateway.observe(end - head)

    def add(self, snapshot: Snapshot) -> None:
        """Put it into a snapshot."""
        counts = snapshot["counts"].setdefault("", {}).setdefault("", {})
        counts.update({f"answered_{at}xx": number for at, number in enumerate(self.answered) if number})
        for name in ("total", "gateway", "upstream"):
            taken = getattr(self, name).snapshot()
            if taken["bins"]:
                snapshot["histograms"][name] = taken
