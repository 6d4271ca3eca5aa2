"""Endpoints to choose among, whose load a test sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from fake_upstream import Time
from twisted.internet.defer import CancelledError, Deferred

from protogate.config import model
from protogate.config.model import PoolSettings
from protogate.message import Request
from protogate.upstream.election import Election
from protogate.upstream.endpoint import Endpoint, place
from protogate.upstream.pool import Pool


class Nowhere:
    """Attempts to connect that never end."""

    def connect(self, ready: object, times: object) -> Deferred[None]:
        return Deferred()


def endpoint(number: int, weight: int = 100, zone: str = "") -> Endpoint:
    pool = Pool(Nowhere(), Time(queue=0.0).context, PoolSettings(queue=1_000_000))
    return Endpoint(place(f"http://10.0.0.{number}:80", weight, zone), pool)


def load(one: Endpoint, many: int) -> None:
    """Give its pool so many requests, which it never gets rid of."""
    pool = one.pool
    while pool.load < many:
        answer = pool.handle(request())
        assert isinstance(answer, Deferred)
        answer.addErrback(lambda failure: failure.trap(CancelledError) and None)
    while pool.load > many:
        next(reversed(pool._waiting.usual)).cancel()


def fill(one: Endpoint) -> None:
    """Leave no room for a request that would not wait."""
    one.pool.settings = PoolSettings(max_per_endpoint=1)
    load(one, 1)


def endpoints(*weights: int, zone: str = "", first: int = 1) -> list[Endpoint]:
    return [endpoint(first + index, weight, zone) for index, weight in enumerate(weights)]


def request(key: str = "") -> Request:
    made = Request(b"GET", b"/")
    made.key = key
    return made


class Poll:
    """An election on a clock that stands still."""

    def __init__(self, among: Sequence[Endpoint], seed: int = 1, zone: str = "", **config: Any) -> None:
        self.time = Time()
        self.counted = self.time.counted
        self.election = Election(Random(seed), self.counted.append, self.time.wheel)
        self.among = list(among)
        self.election.arrange(self.among)
        self.settle(zone, **config)

    def settle(self, zone: str = "", **config: Any) -> None:
        self.election.settle(model.Upstream(name="up", **config), zone)

    def arrange(self, among: Sequence[Endpoint] | None = None) -> None:
        if among is not None:
            self.among = list(among)
        self.election.arrange(self.among)

    def pick(self, key: str = "") -> Endpoint | None:
        return self.election.pick(request(key))

    def counts(self, times: int) -> dict[str, int]:
        """How often each endpoint is chosen, by the last part of its address."""
        return Counter(short(self.pick()) for _ in range(times))

    def owners(self, keys: Sequence[str]) -> dict[str, str]:
        """Whom each key belongs to."""
        return {key: short(self.pick(key)) for key in keys}


def short(chosen: Endpoint | None) -> str:
    """C{3} for C{10.0.0.3:80}."""
    return "nobody" if chosen is None else chosen.address.removeprefix("10.0.0.").removesuffix(":80")


def holding(one: Endpoint, share: float) -> None:
    """Somebody leaves the endpoint so much."""
    one.hold("outliers", share, "because")
