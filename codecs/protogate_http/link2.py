"""
One connection of HTTP/2 (RFC 9113), from either side: reading, writing once a turn, GOAWAY, floods, the ends.

Rules
- All events of a read are taken before a message is handed on.
- What is to be sent is taken out of the engine once a turn of the loop, and not while the transport is full.
- A stream is forgotten when it is over and the engine has let go of its last byte, or when it is reset.  What still
  comes for it is thrown away, but its bytes are credited.
- A peer that makes work and does none is told to calm down, and let go: L{protogate_http.frames2.Budget}.
- One clock a connection, on the one wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Any, Final

from zope.interface import classImplements

from protogate.connection import Connection
from protogate.errors import Abort
from protogate.halves import ENDED, OPEN, Half
from protogate.interfaces import IConnection
from protogate_http.engine2 import ERRORS, TOO_MUCH, make
from protogate_http.frames2 import (
    DATA,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    INTERNAL_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    Budget,
    Flood,
    Walker,
    Wrong,
    code_name,
    goaway,
)
from protogate_http.shape2 import FRAME
from protogate_http.stream2 import LOW, Broken, Stream, spoiled

if TYPE_CHECKING:
    from protogate.context import Context
    from protogate_http.ask2 import Ask
    from protogate_http.options2 import Options

PADDING: Final = 256
"""Bytes of a frame that are none of its content, at most."""
SLACK: Final = 1 << 20
"""Bytes that a peer which takes nothing may send beyond what it has windows for."""
MOST_LOOKS: Final = 5
"""How often the time between two looks at what is not flushed is doubled."""


_handlers: Final[dict[type, dict[type, Callable[[Any, Any], None] | None]]] = {}
"""What takes each kind of event, on either side: the method that is called as it is."""


class Link(Connection):
    """
    @ivar streams: the requests under way, by number.
    @ivar blocked: those whose body is paused until the engine holds less.
    @ivar late_ones: answered streams whose rest is not wanted: reset once END_STREAM has left.
    @ivar leaving: requests whose end is with the engine.
    @ivar heard: when something was read last.
    @ivar began: when the first byte of what is incomplete came, or 0.0.
    @ivar why: what ended the connection, or None.
    @ivar newest: the highest number of a stream of the peer's that was handed on so far.
    @ivar half: credit that a stream is owed is given back from that many bytes on.
    """

    def __init__(self, context: Context, options: Options, engine: str, client: bool) -> None:
        """
        @param engine: its name, L{protogate_http.engine2.ENGINES}.
        """
        super().__init__(context)
        self.why: Abort | None = None
        self.newest = 0
        self.options = options
        shape = options.shape(client, context.limits)
        self.engine: Any
        self.engine, self._hello = make(engine, shape)
        self._handlers = _handlers.setdefault(type(self), {})
        self.budget = Budget(options, self.now)
        self.walker = Walker(self.budget, options.continuations, not client)
        # Half a window; of all streams together half of the connection's at most, else what is owed to them stops them.
        self.half = min(shape.window, shape.total // shape.streams) >> 1
        self._deaf = self._patient = shape.total + SLACK  # bytes that may still come while it takes nothing
        self._lost, self._least = 0, shape.total >> 2  # bytes of the connection's window, and how many may be
        self._resets: set[int] = set()  # by us, of which the engine has not told that they are over
        self._later: tuple[int, int] | None = None  # a stream to be reset when its DATA frame is complete, and the code
        self._dropped = 0  # the last one by the peer: that it is over is the next thing told, if there was anything
        self.streams: dict[int, Stream] = {}
        self.blocked: dict[int, Stream] = {}
        self.late_ones: list[Stream] = []
        self.leaving: list[Ask] = []
        self._new: list[Stream] = []
        self._looks = 0  # in vain, at whether what `leaving` waits for is flushed
        self._asked = False  # pull() is to be called …
        self._batches = False  # … when the turn is over, rather than at once
        self._reading = self._pulling = False
        self.heard, self.began = self.now(), 0.0

    def halves(self) -> Collection[Half]:
        found: Any = self.streams.values()
        return found  # type: ignore[no-any-return]

    # -- for the sides to fill in

    def fire(self, stream: Stream) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def grown(self, stream: Stream) -> None:
        """More of a body came."""

    def most_trailers(self) -> int:
        """Bytes that trailers of the peer may have."""
        raise NotImplementedError

    def dropped(self, stream: Stream, code: int) -> Abort:
        """Why the peer reset a stream."""
        raise NotImplementedError

    def unread(self, stream: Stream) -> Abort:
        """Why a stream came to nothing that stands above what a GOAWAY of the peer's names."""
        return self.dropped(stream, REFUSED_STREAM)

    def spoilt(self, stream: Stream, text: str) -> Abort:
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
        self.put(self._hello)
        self.pull()

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self.heard = self.now()
        self._corks += 1
        self._reading = True
        try:
            if self.full:
                self._deaf -= len(data)
                if self._deaf < 0:
                    raise Flood("deaf_flood")
            if self._later is not None:
                data = self._complete(self._later, data)
            if data and not self.dead:
                self._receive(data)
        except Flood as flood:
            self.calm(flood)
        except Wrong as wrong:
            self.fail("malformed_frame", wrong.code, str(wrong))
        except ERRORS as error:
            self.events()
            self.ended_by(ENHANCE_YOUR_CALM if isinstance(error, TOO_MUCH) else PROTOCOL_ERROR, str(error))
        finally:
            self._reading = False
            self._fire_new()
            if not self.dead:
                self._wait()
                self.pull()
            self.uncork()

    def _receive(self, data: bytes) -> None:
        self.walker.feed(data)
        if self.walker.goes and self._asked and not self.full:
            # A PING comes with it, whose ACK says that nothing more will come: ngh2 would send that first.
            self._take()
        self.engine.receive_data(data)
        self.events()

    def _complete(self, later: tuple[int, int], data: bytes) -> bytes:
        """A stream is to be reset behind the DATA frame that is under way.  Returns what comes behind that."""
        left = self.walker.left
        self._receive(data[:left])
        if not self.walker.partial:
            self._later = None
            if later[0] in self._resets and not self.dead:
                self.reset(*later)
        return data[left:]

    def _wait(self) -> None:
        """Part of a frame, or of the fields of a message, has the time that a head has."""
        if not self.walker.within:
            self.began = 0.0
        elif not self.began:
            self.began = self.heard
            self.watch(self.context.timeouts.client_header or inf)

    def events(self) -> None:
        """Take what the engine has to tell."""
        handlers = self._handlers
        for event in self.engine.events():
            kind = type(event)
            handler = handlers.get(kind)
            if handler is None:
                if kind in handlers:
                    continue
                handler = handlers[kind] = getattr(type(self), kind.__name__, None)
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
                self.budget.moved()
                stream.arrived(data)
                self.grown(stream)
            if event.end_stream:
                stream.complete(None)
            elif not data:
                self.spend(DATA)
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
        self._dropped = event.stream_id
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self.forget(stream)
            if OPEN in (stream.reading, stream.writing):
                stream.lost(self.dropped(stream, event.error_code))

    def StreamClosed(self, event: Any) -> None:
        """A stream is over for the engine."""
        number, code = event.stream_id, event.error_code
        stream = self.streams.get(number)
        known = number in self._resets or number == self._dropped
        self._resets.discard(number)
        if stream is None:
            if code and not known:
                self.hidden(number)
        elif OPEN not in (stream.reading, stream.writing):
            self.forget(stream)
        elif not code or code == REFUSED_STREAM:
            self.forget(stream)
            stream.lost(self.unread(stream) if code else self.dropped(stream, code))
        else:  # the engine has reset it for what came
            self.context.count("malformed_stream")
            self.forget(stream)
            self.lose(stream, self.spoilt(stream, judged(stream, code)))
            self.gave_up()
            if stream.due and not self.draining and not self.dead:
                # ngh2 drops a last frame that was too short without any credit: leave before that is missed.
                self._lost += min(FRAME, stream.due + PADDING)
                if self._lost > self._least:
                    self.drain()

    def hidden(self, number: int) -> None:
        """The engine refused a message that it never showed."""

    def lose(self, stream: Stream, reason: Abort) -> None:
        """What came on it makes no sense."""
        stream.lost(reason)

    def ConnectionClosed(self, event: Any) -> None:
        """The peer broke the rules, as the engine has said or we do; or it said GOAWAY, and no stream is left."""
        if not event.error_code:
            self.leaves()
            return
        self.ended_by(event.error_code, event.debug_data.decode("ascii", "replace"))

    def ended_by(self, code: int, text: str) -> None:
        """The engine does not go on."""
        if code == ENHANCE_YOUR_CALM:  # what it decodes of one message is more than it may hold
            self.calm(Flood("header_flood"))
        else:
            self.fail("malformed_frame", code, text or "it broke the rules of HTTP/2")

    def calm(self, flood: Flood) -> None:
        """It is too much."""
        self.fail(flood.event, ENHANCE_YOUR_CALM, str(flood))

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
        if self.leaving and not (self._hears or self._corks or self._waiting):
            self.flushed(not self.unsent())

    def pull(self) -> None:
        """Take out of the engine what may be sent."""
        self._asked = False
        if self.full or self.dead or self._pulling:
            return
        self._corks += 1
        self._pulling = True
        try:
            self._take()
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

    def _take(self) -> None:
        """Write what the engine has."""
        data = self.engine.data_to_send()
        if data:
            self.put(data if self.engine.want_read else _without_goaway(data))

    def _give_up(self) -> None:
        late, self.late_ones = self.late_ones, []
        stream: Stream
        for stream in late:
            if stream.number not in self.streams:
                continue
            if self.queued(stream) or self._stuck(stream):
                self.late_ones.append(stream)
            else:
                stream.given_up()
        data = self.engine.data_to_send()
        if data:
            self.put(data)

    def queued(self, stream: Stream) -> int:
        """Bytes of it that the engine holds."""
        try:
            return int(self.engine.queued_body_size(stream.number))
        except ERRORS:
            return 0

    def _stuck(self, stream: Stream) -> bool:
        """Whether its END_STREAM may be there still: ngh2 sends not even that into a window of 0."""
        engine = self.engine
        try:
            return bool(engine.remote_window_size <= 0 or engine.stream_remote_window_size(stream.number) <= 0)
        except ERRORS:
            return False

    def block(self, stream: Stream) -> None:
        """Pause its body until the engine holds less."""
        outgoing = stream.outgoing
        if outgoing is not None:
            self.blocked[stream.number] = stream
            outgoing.pauseProducing()
            stream.stands(self.queued(stream), self.now())
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
        self._deaf = self._patient
        self.pull()
        for stream in list(self.streams.values()):
            if not self.full and stream.outgoing is not None and stream.number not in self.blocked:
                stream.outgoing.resumeProducing()

    def flushed(self, whole: bool) -> None:
        if not self.leaving:
            return
        taken = whole and not (self._size or self._asked or self.full)  # … nor anything that pull() did not take out
        now, still = self.now(), []
        for ask in self.leaving:
            if ask.flushed or ask.writing == OPEN or self.streams.get(ask.number) is not ask:
                continue
            if not taken or (ask.given and self.queued(ask)):
                still.append(ask)
            else:
                ask.whole(now)
        self.leaving = still
        if taken:
            self._looks = 0
        elif still:
            self.watch(self._soon())

    def flushes(self) -> float:
        """
        For late(): a transport may not tell when the kernel has taken the rest, as none of TLS does.

        @return: seconds until somebody must look again.
        """
        if not self.leaving:
            return inf
        self._looks += 1
        self.flushed(not self.unsent())
        return self._soon() if self.leaving else inf

    def _soon(self) -> float:
        """Seconds between two looks: few at first, since most requests are flushed at once."""
        return min(self.look(), self.context.wheel.resolution * (1 << min(self._looks, MOST_LOOKS)))

    # What streams have the engine send; whether it took it.  Of a stream that is over it tells with its next events.

    def respond(self, number: int, fields: list[Any], ends: bool) -> bool:
        """HEADERS of the final response."""
        try:
            self.engine.send_response(number, fields, end_stream=ends)
        except ERRORS:
            return False
        self.due()
        return True

    def interim(self, number: int, fields: list[Any]) -> bool:
        """HEADERS of an interim one."""
        try:
            self.engine.send_informational_response(number, fields)
        except ERRORS:
            return False
        self.due()
        return True

    def data(self, number: int, data: bytes) -> bool:
        """DATA."""
        try:
            self.engine.send_data(number, data)
        except ERRORS:
            return False
        self.due()
        return True

    def finish(self, number: int, trailers: list[Any] | None) -> bool:
        """END_STREAM, behind the DATA that there is, and trailers."""
        try:
            if trailers:
                self.engine.send_trailers(number, trailers)
            else:
                self.engine.end_stream(number)
        except ERRORS:
            return False
        self.due()
        return True

    def reset(self, number: int, code: int) -> None:
        """RST_STREAM; in the middle of a DATA frame behind it, since ngh2 never credits what it had read of that."""
        if number == self.walker.partial:
            self._later = (number, code)
            self._resets.add(number)
            return
        try:
            if self._asked and not (self.full or self.dead or self._pulling):
                self._take()  # what the stream may say at once goes first: the last words of a tunnel
            self.engine.reset_stream(number, code)
        except ERRORS:
            return
        self._resets.add(number)
        self.due()

    # -- ends

    def forget(self, stream: Stream) -> None:
        """A stream is no more."""
        number = stream.number
        if number in self.streams:
            del self.streams[number]
            if self.blocked:
                self.blocked.pop(number, None)
            owed, stream.owed = stream.owed, 0
            self.credit(number, owed)
            if stream.writing == ENDED and stream.worth:
                self.budget.earn()
            if not self.streams:
                self.rest()

    def fail(self, event: str, code: int, text: str) -> None:
        """What the peer sends makes no sense, or is too much."""
        self.context.count(event)
        if self.dead:
            return
        self.why = self.blame(text)
        self._fire_new()  # what is wrong behind a message does not undo it, and what was begun is what GOAWAY names
        try:
            data = self.engine.data_to_send()
        except ERRORS:
            data = b""
        self.put(_without_goaway(data) + goaway(self.newest, code, text))
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
        self.late_ones, self.leaving, self._new, self._looks = [], [], [], 0
        self._resets.clear()

    def spend(self, kind: int) -> None:
        """Count something that costs the peer nothing."""
        try:
            self.budget.spend(kind)
        except Flood as flood:
            self.calm(flood)

    def gave_up(self) -> None:
        """A stream that had cost something came to nothing, and that is the peer's doing."""
        self.spend(RST_STREAM)


classImplements(Link, IConnection)


def judged(stream: Stream, code: int) -> str:
    """What an engine can have found, which says no more than a code."""
    if code == PROTOCOL_ERROR and stream.due is not None:
        return "content that is not as long as content-length says, or malformed trailers"
    return f"what came on the stream is against the rules of HTTP/2: {code_name(code)}"


def _without_goaway(data: bytes) -> bytes:
    """The engine names streams in it that nobody has looked at."""
    kept, at, size = [], 0, len(data)
    while at < size:
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        if data[at + 3] != GOAWAY:
            kept.append(data[at:end])
        at = end
    return b"".join(kept)
