"""What the worlds around one whole gateway share: how they begin and end, and what the gateway tells of itself."""

from __future__ import annotations

from typing import Any, Self

from protogate.testing.gateway import MemoryGateway


class Stage:
    """
    At the end of a test that went well its C{check} says what must hold; then all is closed, whatever that says.

    @ivar gateway: made by who derives from this.
    """

    gateway: MemoryGateway

    def check(self) -> None:
        """What must hold in the end of each test."""

    def close(self) -> None:
        """Take away what stands around the gateway."""

    def __enter__(self) -> Self:
        self.gateway.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if error is None:
                self.check()
        except BaseException as failed:
            self._end(type(failed), failed, None)
            raise
        self._end(kind, error, trace)

    def _end(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
        self.gateway.__exit__(kind, error, trace)

    @property
    def records(self) -> list[Any]:
        """As they were made, in order."""
        return self.gateway.records

    def counts(self, event: str) -> int:
        """How often that event was counted."""
        return int(self.gateway.service.counters.counts.get(event, 0))
