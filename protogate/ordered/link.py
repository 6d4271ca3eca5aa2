"""
What both sides share: the read loop, the framing of what is written, and their halves.

Rules
- The loop is never nested: what is resumed inside it goes on when it comes round.
- A read is handled corked, so that all that it causes leaves in one write.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.connection import Connection
from protogate.errors import GATEWAY, Abort
from protogate.halves import OPEN, Half
from protogate.message import Field, Request, Response
from protogate.ordered.input import Input

if TYPE_CHECKING:
    from protogate.context import Context

END: Final[list[Field]] = []
"""The event of a message that ends without trailers."""
AHEAD: Final = 65536
"""Bytes that are read ahead."""

Event = tuple[Request | Response, int | None] | bytes | list[Field] | None
Events = Generator[Event, None, None]

_log = Logger()


class Flow:
    """What both halves say alike."""

    connection: Any
    outgoing: Any
    writing: int

    def write(self, data: bytes) -> None:
        self.connection.give(self, data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        self.connection.given(self, trailers)

    def over(self) -> None:
        self.connection.over(self)

    def pauseProducing(self) -> None:
        self.connection.hold(True)

    def resumeProducing(self) -> None:
        self.connection.hold(False)


@implementer(IHalfCloseableProtocol)
class Link(Connection):
    """
    What both sides share.

    @cvar protocol: C{protocol} of messages for which read() does not say another.
    @ivar input: what was read and not yet understood.
    @ivar half: the request under way, or None: read() and head() may look at C{half.request}.
    @ivar heard: when something was read last.
    """

    protocol: ClassVar[str] = ""
    _events: Events | None = None

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.input = Input()
        self.half: Any = None
        self.heard = self.now()
        self._fresh = False  # a head was read, but not handed on yet
        self._held = False  # the body that is being read is paused
        self._inside = False  # between the head and the end of a message that is being read
        self._pieces: list[bytes] = []  # content that was read and is not in a body yet
        self._coming: int | None = 0  # content of it that is still to come; None = nobody knows
        self._owed: int | None = 0  # the same, of the message that is being written
        self._looping = self._choked = False

    # -- for the codec to fill in

    def read(self) -> Events:
        """What the peer says: see the rules above."""
        raise NotImplementedError

    def head(self, message: Any, length: int | None) -> bytes:
        """
        The bytes that a message begins with: for a client of a Request, for a server of a Response.

        A client raises an L{Abort} for what its protocol cannot ask: nothing was said then.  A server never raises; of
        a response whose content it cannot say, it calls L{Server.drop}.
        """
        raise NotImplementedError

    def content(self, data: bytes) -> bytes:
        """Those of some content."""
        return data

    def tail(self, trailers: Sequence[Field]) -> bytes:
        """Those of the end."""
        return b""

    # -- reading

    def halves(self) -> tuple[Half, ...]:
        return () if self.half is None else (self.half,)

    def connectionMade(self) -> None:
        super().connectionMade()
        self._events = self.read()

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self.heard = self.now()
        self.input.feed(data)
        self._loop()

    def hold(self, on: bool) -> None:
        """The body that is being read was paused, or resumed."""
        self._held = on
        if not on:
            self._restart()  # the peer's clock stood still meanwhile
            self._loop()

    def _restart(self) -> None:
        self.heard = self.now()
        self.watch(self.look())

    def _loop(self) -> None:
        """Turn what was read into events, until it is used up or must wait."""
        if self._looping:
            return
        self._looping = True
        self.cork()
        try:
            while not self.dead and self._events is not None:
                event = next(self._events) if self._fresh or self._wants() else None
                if event is None:
                    if self._pieces:
                        self._pour()
                    elif self._fresh:
                        self._fresh = False
                        self._fire()
                    else:
                        break
                else:
                    self._take(event)
        except Abort as reason:
            self._bad(reason)
        except (ValueError, RecursionError) as error:
            self._bad(str(error))
        except Exception:
            _log.failure("read() may raise Abort and ValueError, and must not end")
            self._bad(Abort("internal error", GATEWAY, 500))
        finally:
            self._looping = False
            self.uncork()
        if not self.dead:
            self._choke()

    def _choke(self) -> None:
        """What is more than may wait here, waits with the kernel."""
        choked = len(self.input) > AHEAD and not self._wants()
        if choked is not self._choked:
            self._choked = choked
            (self.transport.pauseProducing if choked else self.transport.resumeProducing)()

    def _take(self, event: tuple[Request | Response, int | None] | bytes | list[Field]) -> None:
        if isinstance(event, bytes):
            self._more(event)
        elif isinstance(event, tuple):
            self._inside, self._coming = True, event[1]
            if self._coming is not None and self._coming < 0:
                raise ValueError("content of less than nothing")
            self._headed(*event)
        elif self._coming:
            raise ValueError("content that ended too soon")
        else:
            self._inside = False
            self._pour()
            self._whole(event)

    def _more(self, data: bytes) -> None:
        """Some content."""
        if self._coming is not None:
            self._coming -= len(data)
            if self._coming < 0:
                raise ValueError("content that is longer than it said")
        if self.half.reading == OPEN and data:
            self._pieces.append(data)

    def _pour(self) -> None:
        """What was read goes into the body."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        if data and self.half is not None:
            self.half.received(data)

    def _wants(self) -> bool:
        """Whether to go on reading."""
        raise NotImplementedError

    def _headed(self, message: Any, length: int | None) -> None:
        """A head."""
        raise NotImplementedError

    def _whole(self, trailers: list[Field]) -> None:
        """The end of a message."""
        raise NotImplementedError

    def _fire(self) -> None:
        """The read is used up: hand the message on."""
        raise NotImplementedError

    def _bad(self, reason: Abort | str) -> None:
        """What was read is not as it should be."""
        raise NotImplementedError

    def over(self, half: Any) -> None:
        """Both directions ended."""
        raise NotImplementedError

    # -- writing

    def give(self, half: Any, data: bytes) -> None:
        """Some bytes of a body."""
        if self._owed is not None:
            self._owed -= len(data)
            if self._owed < 0:
                self._mismatch(half)
                return
        self.put(self.content(data))
        if self.full and half.outgoing is not None:
            half.outgoing.pauseProducing()

    def given(self, half: Any, trailers: Sequence[Field] | None) -> None:
        """Its end."""
        if self._owed:
            half.writing = OPEN
            self._mismatch(half)
        else:
            self.put(self.tail(trailers or ()))

    def _mismatch(self, half: Any) -> None:
        self.context.count("body_length_mismatch")
        if half.outgoing is not None:
            half.outgoing.stopProducing()
        half.abort(Abort("a body was not as long as it said", GATEWAY, 500))

    # -- ends

    def readConnectionLost(self) -> None:
        """Twisted: the peer says no more."""
        if not self.dead:
            self._eof()
        elif self.lingering:
            self._leave()

    def writeConnectionLost(self) -> None:
        """Twisted: our half is closed, as we wanted."""

    def _eof(self) -> None:
        """The peer says no more."""
        raise NotImplementedError

    def end(self) -> None:
        super().end()
        self.half = None

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._events = None  # it refers to this
