"""What a module that lives (L{protogate.interfaces.ILiveModule}) is handed when it is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protogate.context import uncounted
from protogate.governance.news import News
from protogate.interfaces import IService
from protogate.observe.snapshot import Number
from protogate.wheel import Wheel


def unloaded() -> float:
    """The load where nobody measures it."""
    return 0.0


def unread(name: str, read: Callable[[], Number]) -> None:
    """A C{gauge} that nobody looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """
    @ivar reactor: to run things in threads; everything else goes through what is below.
    @ivar wheel: the clock for every wait.
    @ivar count: C{count(event)}: one more of that event of this module; snake_case names from the code, never from
        traffic.
    @ivar gauge: C{gauge(name, read)}: show what C{read()} gives as how much this module has right now, until it is
        stopped; snake_case names from the code.  Numbers of all modules of that name, and of all workers, are added up.
        It is read while requests wait: it looks up, and goes through nothing.
    @ivar load: how much of what this process can carry it carries right now, in percent; from 100 on it is late.
    @ivar services: upstreams by name or origin; see L{service}.
    @ivar workers: processes that share the work with this one, itself included.
    @ivar stores: gives the connection to a Redis; see L{redis}.
    @ivar shadow: it is in the shadow: what it writes where others read, they must not take for their own.
    @ivar news: what its like in other processes are told; None where there are none.
    """

    reactor: Any
    wheel: Wheel
    count: Callable[[str], None] = uncounted
    gauge: Callable[[str, Callable[[], Number]], None] = unread
    load: Callable[[], float] = unloaded
    services: Mapping[str, IService] = field(default_factory=dict)
    workers: int = 1
    stores: Callable[[Any], Any] | None = None
    shadow: bool = False
    news: News | None = None

    def service(self, name: str) -> IService:
        """The upstream of that name or origin, one of C{asks}."""
        return self.services[name]

    def apart(self, prefix: str) -> str:
        """The beginning of keys in a store, another one in the shadow.  @param prefix: as it is elsewhere."""
        return f"{prefix}~" if self.shadow else prefix

    def redis(self, settings: Any) -> Any:
        """The one connection of this process with these settings."""
        assert self.stores is not None
        return self.stores(settings)
