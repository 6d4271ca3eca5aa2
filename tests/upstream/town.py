"""Processes of a gateway, each with the same upstream, whose attempts go as a test says: no connection is made."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from fake_upstream import Codec, FakeDns, Time
from twisted.internet.testing import MemoryReactorClock

from protogate.config import model
from protogate.testing.boards import Boards
from protogate.upstream.board import Alone, Board
from protogate.upstream.cluster import Cluster
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.means import Means
from protogate.upstream.outcome import Outcome
from protogate.upstream.resolver import Resolver

GATEWAY = model.Gateway()


def upstream(count: int, **more: Any) -> model.Upstream:
    """One with endpoints C{10.0.0.1} and so on."""
    endpoints = tuple(model.Endpoint(url=f"http://10.0.0.{number + 1}") for number in range(count))
    return model.Upstream(name="shop", endpoints=endpoints, **more)


class Process:
    """
    @ivar counted: what the upstream counted.
    """

    def __init__(self, config: model.Upstream, time: Time, board: Board | None = None) -> None:
        self.time = time
        self.board = Alone() if board is None else board
        self.counted: Counter[str] = Counter()
        resolver = Resolver(time.wheel, FakeDns(), self._count, "/nonexistent")
        means = Means(
            reactor=MemoryReactorClock(),
            wheel=time.wheel,
            resolver=resolver,
            count=self._count,
            random=Random(0),
            board=self.board,
        )
        self.cluster = Cluster.named(config, GATEWAY, Codec(), means)  # type: ignore[arg-type]
        self.cluster.start()

    def _count(self, event: str) -> None:
        self.counted[event] += 1

    def update(self, config: model.Upstream) -> None:
        self.cluster.update(config, GATEWAY, self.cluster._codec)

    def at(self, number: int) -> Endpoint:
        return next(each for each in self.cluster.endpoints if each.place.host == f"10.0.0.{number}")

    def see(self, number: int, *outcomes: Outcome, seconds: float = 0.01) -> float:
        """Attempts at an endpoint that end now; what is left of it then."""
        endpoint = self.at(number)
        for outcome in outcomes:
            probes = self.cluster._watch.began(endpoint)
            self.cluster.ended(endpoint, outcome, seconds)
            if probes is not None:
                self.cluster._watch.over(endpoint, probes)
        return endpoint.share

    @property
    def shares(self) -> list[float]:
        return [endpoint.share for endpoint in self.cluster.endpoints]

    def why(self, number: int, by: str = "outliers") -> str:
        return self.at(number).held[by][1]


class Town:
    """Several of them, the first of which leads."""

    def __init__(self, config: model.Upstream, count: int = 3) -> None:
        self.config, self.time, self.boards = config, Time(), Boards()
        self.processes = [self.comes() for _ in range(count)]
        self.lead(*self.processes)

    def comes(self) -> Process:
        made = Process(self.config, self.time, self.boards.join())
        self.boards.run()
        return made

    def lead(self, *processes: Process) -> None:
        self.boards.lead(*(each.board for each in processes))  # type: ignore[arg-type]

    def goes(self, process: Process) -> None:
        """It is killed."""
        self.processes.remove(process)
        self.boards.leave(process.board)  # type: ignore[arg-type]
        process.cluster._watch.stop()
        self.lead(*self.processes)

    def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.time.clock.advance(0.05)
            self.boards.run()

    @property
    def shares(self) -> list[list[float]]:
        return [each.shares for each in self.processes]


__all__ = ["GATEWAY", "Process", "Town", "upstream"]
