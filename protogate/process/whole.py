"""What operators are told of all workers: their supervisor answers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from protogate.admin.endpoints import targets, told
from protogate.observe.snapshot import Snapshot
from protogate.routing.hold import TOPIC
from protogate.upstream import watch
from protogate.upstream.circuit import WHOLE
from protogate.upstream.verdicts import topic

if TYPE_CHECKING:
    from protogate.process.supervisor import Supervisor


class Whole:
    """L{protogate.admin.site.Watched}."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def unready(self) -> str:
        """L{Watched}."""
        if not self._supervisor.running:
            return "it stops: requests under way end"
        if not self._supervisor.crew.serving:
            return "no worker serves yet"
        return ""

    def snapshot(self) -> Deferred[Snapshot]:
        """L{Watched}."""
        return self._supervisor.crew.counted().addCallback(lambda _: self._supervisor.counted())

    def endpoints(self) -> Deferred[dict[str, Any]]:
        """L{Watched}: why is what was posted; who holds one back in a process of its own says it nowhere."""
        return self.snapshot().addCallback(lambda taken: told(taken.get("endpoints", {}), self._why))

    def releases(self) -> Deferred[dict[str, Any]]:
        """L{Watched}."""
        return self.snapshot().addCallback(self._releases)

    def _releases(self, taken: Snapshot) -> dict[str, Any]:
        posted = self._supervisor.keeper.posts.get(TOPIC, {}).values()
        return targets(taken["gauges"].get("release", {}), {title: why for why, _, title in posted})

    def _why(self, upstream: str, at: str, by: str) -> str:
        keeper = self._supervisor.keeper
        if at == WHOLE:
            return watch.reason(keeper.posts.get(watch.topic(upstream), {}))
        return keeper.why(topic(upstream), at, by)
