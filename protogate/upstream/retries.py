"""
When a request of an upstream is sent again: what C{retry} of the configuration says, ready for use.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.health import statuses
from protogate.errors import ConfigError
from protogate.interfaces import IBody
from protogate.message import Request, Response
from protogate.upstream.outcome import unavailable

IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""RFC 9110, 9.2.2."""
PUSHBACK: Final = b"grpc-retry-pushback-ms"
"""In which a call's answer says when it may be tried again; what is no number means: not at all (gRPC, A6)."""


def verify(upstreams: Iterable[model.Upstream]) -> None:
    """
    Whether requests can be sent again as a configuration says.

    @raise ConfigFaults: some cannot.
    """
    faults: list[ConfigError] = []
    for index, upstream in enumerate(upstreams):
        retry = upstream.retry
        if retry.per_try and "timeout" not in retry.on:
            message = "an attempt that is cut off is sent again only with on: [timeout]"
            faults.append(ConfigError(message, ("upstreams", index, "retry", "perTry")))
        if retry.backoff > retry.max_backoff:
            message = "the first pause may be no longer than maxBackoff"
            faults.append(ConfigError(message, ("upstreams", index, "retry", "backoff")))
        if retry.statuses and not all(400 <= status <= 599 for status in statuses(retry.statuses)):
            message = "only what tells of a failure, 400 to 599, can be tried again"
            faults.append(ConfigError(message, ("upstreams", index, "retry", "statuses")))
        for place, method in enumerate(retry.methods):
            if not method.isascii() or not method.isalpha() or method.upper() != method:
                message = "expected a method in capitals, such as POST"
                faults.append(ConfigError(message, ("upstreams", index, "retry", "methods", place)))
    if faults:
        raise ConfigFaults(faults)


class Retries:
    """
    @ivar attempts: in all.
    @ivar reset: whether that the answer's head did not come is a reason.
    @ivar timeout: whether a clock of the upstream that ran out is.
    @ivar unavailable: whether an answer that says of its call that nobody is available is.
    @ivar statuses: of answers that are.
    @ivar methods: whose requests may be sent again when the upstream may have seen them.
    @ivar each: seconds that one attempt may take to its head; 0.0 = as long as its clocks say.
    @ivar buffer: bytes of content that are kept.
    @ivar early: whether attempts are watched from the first one on.
    """

    __slots__ = (
        "_first",
        "_most",
        "attempts",
        "buffer",
        "each",
        "early",
        "methods",
        "reset",
        "statuses",
        "timeout",
        "unavailable",
    )

    def __init__(self, config: model.Retry) -> None:
        self.attempts = int(config.attempts)
        self.reset, self.timeout = "reset" in config.on, "timeout" in config.on
        self.unavailable = "unavailable" in config.on
        self.statuses = statuses(config.statuses) if config.statuses else frozenset()
        self.methods = frozenset(method.encode("ascii") for method in config.methods)
        self.each, self.buffer = float(config.per_try), int(config.buffer)
        self._first, self._most = float(config.backoff), float(config.max_backoff)
        self.early = self.attempts > 1 and (bool(self.statuses) or self.unavailable or self.each > 0.0)

    def keeps(self, request: Request, body: IBody, refusable: bool) -> bool:
        """
        Whether it is worth keeping this body for another attempt.

        @param refusable: whether the upstream can say that it refused a request unread, which any method may be sent
            again for: a server of HTTP/2 says it of all that is under way when it ends a connection.
        """
        if not (refusable or request.method in self.methods) or self.attempts == 1:
            return False
        if request.upgrade is not None or body.attached:
            return False
        return body.length is None or body.length <= self.buffer

    def failed(self, response: Response) -> bool:
        """Whether an answer is a reason; where a call is told not to be tried again by who answered, it is none."""
        if response.status in self.statuses:
            return True
        if not self.unavailable or not unavailable(response):
            return False
        pushed = response.headers.get(PUSHBACK)
        return pushed is None or self._soon(pushed, 1000.0)

    def pause(self, failures: int, random: Random) -> float:
        """
        Seconds to wait after so many failures in a row: any time up to a bound that doubles each time, so that those
        that failed together do not come back together.
        """
        return random.uniform(0.0, min(self._first * 2.0 ** min(failures - 1, 16), self._most))

    def patient(self, response: Response) -> bool:
        """Whether who answered so may be asked again soon: it does not want to be left alone for longer than that."""
        after = response.headers.get(b"retry-after")
        return after is None or self._soon(after, 1.0)

    def _soon(self, after: bytes, unit: float) -> bool:
        return after.isdigit() and len(after) < 9 and int(after) <= self._most * unit


USUAL: Final = Retries(model.Retry())
"""Where the configuration says nothing."""
