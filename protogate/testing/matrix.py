"""
What the tests of L{protogate.testing.interop} share: a cell for each test, and what a protocol may be unable to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.trial.unittest import SkipTest

from protogate.interfaces import IStreamCodec
from protogate.testing.bodies import Giver
from protogate.testing.cell import Cell
from protogate.testing.transport import ALL

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

BLOCK: Final = bytes(range(256)) * 64
BIG: Final = 4 * 1024 * 1024
"""Bytes of a body that fits nowhere."""
LACKS: Final = frozenset(
    (
        "trailers",  # fields behind a body
        "interim",  # 1xx
        "continue",  # 100 Continue
        "upgrade",  # tunnels
        "halfclose",  # one direction of a tunnel ends alone
        "head",  # HEAD is answered without content
        "refuse",  # "I have not looked at this request"
        "multiplex",  # several requests at once
        "goaway",  # the peer learns that a connection drains
        "malformed",  # what is left of a broken request reaches the service
        "deadline",  # how long a client waits for the end of the answer
        "fields",  # header fields, and whom a request is for
        "method",  # other methods than GET, PUT and DELETE, and these by their names
        "query",  # what stands behind the path
        "status",  # which success it is, and whether it has content; what kind of error can be said
        "length",  # content whose length is not known beforehand
    )
)
"""What a protocol may be unable to say."""


class Matrix(Base):
    """
    @cvar down: makes the codec in front, called without arguments.
    @cvar up: makes the codec behind.
    @cvar lacks: which of L{LACKS} one of the two cannot say.
    @cvar bound: bytes of one body that may be under way while nobody reads: all buffers of both hops.
    """

    down: ClassVar[Callable[[], Any]]
    up: ClassVar[Callable[[], Any]]
    lacks: ClassVar[Collection[str]] = ()
    bound: ClassVar[int] = 1 << 20

    def made(self) -> tuple[IStreamCodec, IStreamCodec]:
        """Both codecs."""
        return type(self).down(), type(self).up()

    def cell(self, most: int = ALL, **named: Any) -> Cell:
        """A cell that is looked over when the test has ended."""
        cell = Cell(*self.made(), most, **named)
        cell.lacks = self.lacks
        self.addCleanup(cell.finish)
        return cell

    def needs(self, *words: str) -> None:
        """Skip the test unless both can say that."""
        unknown = set(self.lacks) - LACKS
        assert not unknown, f"lacks says {sorted(unknown)}; it may say {sorted(LACKS)}"
        for word in words:
            if word in self.lacks:
                raise SkipTest(f"the protocol cannot say: {word}")

    def big(self, size: int = BIG, length: bool = True, **named: Any) -> Giver:
        """A large body."""
        return Giver(itertools.repeat(BLOCK, size // len(BLOCK)), size if length else self.length(size), **named)

    def length(self, size: int) -> int | None:
        """The length of a body that best does not say it: None, where that can be said."""
        return size if "length" in self.lacks else None

    def status(self, wanted: int) -> int:
        """A status, or 200 where that is all that can be said."""
        return 200 if "status" in self.lacks else wanted
