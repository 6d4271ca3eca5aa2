"""What every upstream works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom

from twisted.internet.interfaces import IReactorTCP

from protogate.context import uncounted
from protogate.interfaces import IService
from protogate.upstream.board import Alone, Board
from protogate.upstream.resolver import Resolver
from protogate.wheel import Wheel


def nobody(name: str) -> IService:
    """Where there are no other upstreams."""
    raise LookupError(f"there is no upstream {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """
    What every upstream works with.

    @ivar count: see L{Context}.
    @ivar random: decides where the choice of endpoints starts.
    @ivar service: the upstream of a name or origin.
    @ivar board: what the processes of this gateway tell each other.
    """

    reactor: IReactorTCP
    wheel: Wheel
    resolver: Resolver
    count: Callable[[str], None] = uncounted
    random: Random = field(default_factory=SystemRandom)
    board: Board = field(default_factory=Alone)
    service: Callable[[str], IService] = nobody
