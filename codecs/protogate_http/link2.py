"""
One connection of HTTP/2 (RFC 9113), from either side: reading, writing once a turn, GOAWAY, floods, the ends.

Rules
- All events of a read are taken before a message is handed on.
- What is to be sent is taken out of the engine once a turn of the loop, and not while the transport is full.
- A stream that is over is forgotten; what still comes for it is thrown away, but its bytes are credited.
- A peer that makes work and does none is told to calm down, and let go: L{protogate_http.frames2.Walker}.
- One clock a connection, on the one wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Any

from zope.interface import implementer

from protogate.connection import Connection
from protogate.errors import Abort
from protogate.halves import OPEN, Half
from protogate.interfaces import IConnection
from protogate_http.engine2 import ERRORS, make
from protogate_http.frames2 import (
    ENHANCE_YOUR_CALM,
    GOAWAY,
    INTERNAL_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    RST_STREAM,
    Flood,
    Walker,
    Wrong,
    goaway,
)
from protogate_http.shape2 import Shape
from protogate_http.stream2 import LOW, Broken, spoiled

if TYPE_CHECKING:
    from protogate.context import Context, Limits
    from protogate_http.stream2 import Ask


class Settings:
    """
    What the codec says of itself; may be changed before its first connection.

    @ivar engine: its name.
    @ivar streams: requests that a connection serves at once (SETTINGS_MAX_CONCURRENT_STREAMS).
    @ivar cheap: frames of a kind that cost the peer nothing: so many more of them than real work.
    @ivar ping: seconds of silence after which an upstream with requests under way is asked for a sign of life; 0 = off.
    """

    def __init__(self, engine: str, streams: int = 128, cheap: int = 1000, ping: float = 30.0) -> None:
        self.engine, self.streams, self.cheap, self.ping = engine, streams, cheap, ping

    def shape(self, client: bool, limits: Limits) -> Shape:
        """For a new connection."""
        most = limits.response_headers if client else limits.headers + limits.request_line
        return Shape(client, self.streams, most + 32 * limits.header_count, limits.header_count)


@implementer(IConnection)
class Link(Connection):
    """
    @ivar streams: the requests under way, by number.
    @ivar blocked: those whose body is paused until the engine holds less.
    @ivar late_ones: answered streams whose rest is not wanted: reset once END_STREAM has left.
    @ivar leaving: requests whose end is with the engine.
    @ivar heard: when something was read last.
    @ivar began: when the first byte of what is incomplete came, or 0.0.
    @ivar why: what ended the connection, or None.
    @ivar newest: the highest number of a stream of the peer's so far.
    """

    why: Abort | None = None
    newest = 0
    handlers: dict[type, Callable[[Any, Any], None] | None] = {}  # noqa: RUF012 - each side has its own

    def __init__(self, context: Context, settings: Settings, client: bool) -> None:
        super().__init__(context)
        self.settings = settings
        self.engine = make(settings.engine, settings.shape(client, context.limits))
        self.walker = Walker(settings.cheap, not client)
        self.streams: dict[int, Any] = {}
        self.blocked: dict[int, Any] = {}
        self.late_ones: list[Any] = []
        self.leaving: list[Ask] = []
        self._new: list[Any] = []
        self._asked = False  # pull() is to be called …
        self._batches = False  # … when the turn is over, rather than at once
        self._reading = self._pulling = False
        self.heard, self.began = self.now(), 0.0

    def halves(self) -> Collection[Half]:
        return self.streams.values()

    # -- for the sides to fill in

    def fire(self, stream: Any) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def opened(self, stream: Any) -> None:
        """A stream has its number."""
        self.streams[stream.number] = stream

    def grown(self, stream: Any) -> None:
        """More of a body came."""

    def most_trailers(self) -> int:
        """Bytes that trailers of the peer may have."""
        raise NotImplementedError

    def dropped(self, stream: Any, code: int) -> Abort:
        """Why the peer reset a stream."""
        raise NotImplementedError

    def spoilt(self, stream: Any, text: str) -> Abort:
        """Why we reset a stream: the peer made a mistake."""
        raise NotImplementedError

    def blame(self, text: str) -> Abort:
        """Why the connection ends: the peer made a mistake."""
        raise NotImplementedError

    def rest(self) -> None:
        """No stream is left."""

    def leaves(self) -> None:
        """The peer asks for nothing more, and everything was answered."""
        raise NotImplementedError

    # -- reading

    def connectionMade(self) -> None:
        super().connectionMade()
        self._batches = self._hears or self._write == self._collect
        self.pull()

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self.heard = self.now()
        self._corks += 1
        self._reading = True
        try:
            self.walker.feed(data)
            self.engine.receive_data(data)
            self.events()
        except Flood as flood:
            self.fail(flood.event, ENHANCE_YOUR_CALM, str(flood))
        except Wrong as wrong:
            self.fail("malformed_frame", wrong.code, str(wrong))
        except ERRORS as error:
            self.events()
            self.fail("malformed_frame", PROTOCOL_ERROR, str(error))
        finally:
            self._reading = False
            self._fire_new()
            if not self.dead:
                self._wait()
                self.pull()
            self.uncork()

    def _wait(self) -> None:
        """Part of a frame, or of the fields of a message, has the time that a head has."""
        if not self.walker.within:
            self.began = 0.0
        elif not self.began:
            self.began = self.heard
            self.watch(self.context.timeouts.client_header or inf)

    def events(self) -> None:
        """Take what the engine has to tell."""
        handlers = self.handlers
        for event in self.engine.events():
            kind = type(event)
            if kind not in handlers:
                handlers[kind] = getattr(type(self), kind.__name__, None)
            handler = handlers[kind]
            if handler is not None and not self.dead:
                handler(self, event)
        if not self._reading:
            self._fire_new()

    def _fire_new(self) -> None:
        new, self._new = self._new, []
        for stream in new:
            self.fire(stream)

    def DataReceived(self, event: Any) -> None:
        """Content."""
        stream = self.streams.get(event.stream_id)
        data = event.data
        if stream is None:
            self.credit(event.stream_id, len(data))
            return
        try:
            if data:
                self.walker.earn()
                stream.arrived(data)
                self.grown(stream)
            if event.end_stream:
                stream.complete(None)
        except Broken as broken:
            spoiled(stream, broken.text)

    def TrailersReceived(self, event: Any) -> None:
        """Trailers."""
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            try:
                stream.trailers(event.headers)
            except Broken as broken:
                spoiled(stream, broken.text)

    def StreamReset(self, event: Any) -> None:
        """RST_STREAM came."""
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self._lose(stream, event.error_code)

    def StreamClosed(self, event: Any) -> None:
        """A stream is over for the engine.  What is still under way was cut off, by either side."""
        stream = self.streams.get(event.stream_id)
        if stream is None:
            if event.local_error is not None:
                self.hidden(event)
        elif OPEN in (stream.reading, stream.writing):
            if event.local_error is not None:
                self.context.count("malformed_stream")
            self._lose(stream, event.error_code)
        else:
            self.forget(stream)

    def hidden(self, event: Any) -> None:
        """The engine refused a message that it never showed."""

    def _lose(self, stream: Any, code: int) -> None:
        reason = self.dropped(stream, code)
        self.forget(stream)
        if OPEN in (stream.reading, stream.writing):
            stream.lost(reason)

    def ConnectionClosed(self, event: Any) -> None:
        """The peer broke the rules, as the engine has said or we do; or it said GOAWAY, and no stream is left."""
        if not event.error_code:
            self.leaves()
            return
        text = event.debug_data.decode("ascii", "replace") or "it broke the rules of HTTP/2"
        self.fail("malformed_frame", event.error_code, text)

    def credit(self, number: int, size: int) -> None:
        """Bytes were consumed: they may come again, on the stream and on the connection."""
        if size:
            try:
                self.engine.acknowledge_received_data(size, number)
            except ERRORS:
                return
            self.due()

    # -- writing

    def due(self) -> None:
        """The engine has something to send."""
        if not self._asked and not self._reading:
            self._asked = True
            if self._batches:
                self.context.wheel.soon(self._pulls)
            elif not self._corks:
                self._pulls()

    def _pulls(self) -> None:
        if self._asked:
            self.pull()

    def uncork(self) -> None:
        while self._corks == 1 and self._asked and not self._batches and not self._pulling:
            self.pull()  # what this wakes may ask for more
        super().uncork()

    def pull(self) -> None:
        """Take out of the engine what may be sent."""
        self._asked = False
        if self.full or self.dead or self._pulling:
            return
        self._corks += 1
        self._pulling = True
        try:
            data = self.engine.data_to_send()
            if data:
                self.put(data)
            if self.late_ones:
                self._give_up()
            if self.blocked:
                self._unblock()
            # It tells the end of a stream only when its last frame was taken.
            self.events()
        except ERRORS as error:
            self.fail("malformed_frame", INTERNAL_ERROR, str(error))
        finally:
            self._pulling = False
            self.uncork()
        if self.leaving and not self._hears and not self._waiting:
            self.flushed(not self.unsent())

    def _give_up(self) -> None:
        late, self.late_ones = self.late_ones, []
        stream: Any
        for stream in late:
            if stream.number not in self.streams:
                continue
            if self.queued(stream):
                self.late_ones.append(stream)
            else:
                stream.given_up()
        data = self.engine.data_to_send()
        if data:
            self.put(data)

    def queued(self, stream: Any) -> int:
        """Bytes of it that the engine holds."""
        try:
            return int(self.engine.queued_body_size(stream.number))
        except ERRORS:
            return 0

    def block(self, stream: Any) -> None:
        """Pause its body until the engine holds less."""
        outgoing = stream.outgoing
        if outgoing is not None:
            self.blocked[stream.number] = stream
            outgoing.pauseProducing()
            stream.held, stream.moved = self.queued(stream), self.now()
            self.watch(self.look())

    def _unblock(self) -> None:
        for stream in list(self.blocked.values()):
            if stream.outgoing is None:
                self.blocked.pop(stream.number, None)
            elif not self.full and self.queued(stream) < LOW:
                self.blocked.pop(stream.number, None)
                stream.outgoing.resumeProducing()
        if self.blocked:
            self.watch(self.look())

    def resumeProducing(self) -> None:
        self.full = False
        self.pull()
        half: Any
        for half in list(self.halves()):
            if not self.full and half.outgoing is not None and half.number not in self.blocked:
                half.outgoing.resumeProducing()

    def flushed(self, whole: bool) -> None:
        if not self.leaving:
            return
        if not whole or self._size:
            self.watch(self.look())
            return
        now, still = self.now(), []
        for ask in self.leaving:
            if ask.writing == OPEN or self.streams.get(ask.number) is not ask:
                continue
            if self.queued(ask):
                still.append(ask)
                continue
            ask.flushed = now
            if ask.ledger is not None:
                ask.ledger.sent = now
        self.leaving = still

    def reset(self, number: int, code: int) -> None:
        """RST_STREAM."""
        try:
            self.engine.reset_stream(number, code)
        except ERRORS:
            return
        self.due()

    # -- ends

    def forget(self, stream: Any) -> None:
        """A stream is no more."""
        if self.streams.pop(stream.number, None) is not None:
            self.blocked.pop(stream.number, None)
            owed, stream.owed = stream.owed, 0
            self.credit(stream.number, owed)
            if not self.streams:
                self.rest()

    def fail(self, event: str, code: int, text: str) -> None:
        """What the peer sends makes no sense, or is too much."""
        self.context.count(event)
        if self.dead:
            return
        self.why = self.blame(text)
        try:
            data = self.engine.data_to_send()
        except ERRORS:
            data = b""
        if not _ends_with_goaway(data):
            data += goaway(self.newest, code, text)
        self.put(data)
        self.end()
        self.linger()

    def farewell(self, code: int = NO_ERROR, text: str = "") -> None:
        """The last is said."""
        if not self.dead:
            self.pull()
            if not self.dead:
                self.put(goaway(self.newest, code, text))
                self.close()

    def end(self) -> None:
        super().end()
        self.streams, self.blocked = {}, {}
        self.late_ones, self.leaving, self._new = [], [], []

    def spend_reset(self) -> None:
        """A stream was given up that had cost something."""
        self.walker.spend(RST_STREAM)


def _ends_with_goaway(data: bytes) -> bool:
    """Whether the last frame is one."""
    at = 0
    last = -1
    while at + 9 <= len(data):
        last = data[at + 3]
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return last == GOAWAY
