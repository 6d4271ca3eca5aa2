"""
One connection of SOTP, from either side: which frame may come when, the credit of the connection, heartbeats, the ends.

Rules
- HELLO comes first, from both sides; a client does not wait for the server's, L{LEAST} holds until then.
- All frames of a read are taken before a message is handed on.  What is wrong behind a message does not undo it.
- A stream that is over is forgotten; what still comes for it is thrown away, but its bytes count.
- Who makes us answer without reading our answers is no peer: L{REPLIES}.
- There is one clock a connection (L{protogate.connection}), on the one wheel; a byte that comes costs no timer.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr
from zope.interface import classImplements

from protogate.connection import Connection
from protogate.errors import Abort
from protogate.halves import OPEN, Half
from protogate.interfaces import IConnection
from protogate_sotp.faults import Fault
from protogate_sotp.frames import (
    CANCEL,
    CREDIT,
    DATA,
    END,
    GOAWAY,
    HELLO,
    INTERIM,
    LARGEST,
    LEAST,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    TRAILERS,
    VERSION,
    Frame,
    Hello,
    Reader,
    cancelled,
    credit,
    credited,
    frame,
    goaway,
    going,
    head,
    hello,
)
from protogate_sotp.options import Options
from protogate_sotp.streams import BODY, DONE

if TYPE_CHECKING:
    from protogate.context import Context, Limits
    from protogate_sotp.streams import Stream

LARGE: Final = 4096
"""Bytes of a DATA that cost less to hand on beside their head than to copy."""
REPLIES: Final = 1000
"""Answers to PINGs and refused requests that may wait for a peer who does not read."""
MISSED: Final = 3
"""Heartbeats without a byte after which a peer is given up."""

_FLAGS: Final = {REQUEST: END, RESPONSE: END | INTERIM}


class Greeting:
    """
    What the connections of one codec say of themselves.

    @ivar options: of that codec.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = Options() if options is None else options
        self._limits: Limits | None = None
        self._hello = LEAST

    def hello(self, limits: Limits) -> Hello:
        """Our HELLO, the same for all connections while the limits are."""
        if limits is not self._limits:
            heads = max(limits.headers + limits.request_line, limits.response_headers) + 4 * limits.header_count + 1024
            self._limits = limits
            self._hello = self.options.hello(min(max(LEAST.heads, heads), 1 << 23))
        return self._hello


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(Connection):
    """
    @ivar hello: what we said of ourselves; @ivar peer_hello: what the peer did, L{LEAST} until it has.
    @ivar greeted: its HELLO was read.
    @ivar streams: the requests under way, by number.
    @ivar credit: bytes that may be sent, @ivar room: that may come, on all streams together.
    @ivar half: credit that a stream is owed is given back from that many bytes on: half of its window.
    @ivar tails: streams that wait for the uncork.
    @ivar beat: seconds between two heartbeats; 0 = none.
    @ivar heard: when something was read last.
    @ivar began: when the first byte of a frame came that is not complete, or 0.0.
    @ivar why: what ended the connection, or None.
    """

    greeted: bool = False
    beat: int = 0
    why: Abort | None = None
    _owed: int = 0  # bytes passed on whose credit was not given back
    _replies: int = 0  # frames that had to be answered since the transport is full
    _rounds: int = 0

    def __init__(self, context: Context, greeting: Greeting) -> None:
        super().__init__(context)
        self.peer_hello, self.credit = LEAST, LEAST.total
        self.hello = greeting.hello(context.limits)
        self.room, self.half = self.hello.total, self.hello.window >> 1
        self.reader = Reader(self.hello.sizes)
        self.streams: dict[int, Stream] = {}
        self.tails: list[Stream] = []
        self.heard, self.began = self.now(), 0.0
        self._stirred = False  # there is credit again, for whoever waits: all are told once a read

    def halves(self) -> Collection[Half]:
        found: Any = self.streams.values()
        return found  # type: ignore[no-any-return]

    @property
    def corked(self) -> bool:
        """Whether what is put waits."""
        return self._corks > 0

    # -- for the sides to fill in

    def asked(self, number: int, flags: int, payload: bytes, whole: bytes | None) -> Stream | None:
        """A REQUEST; the new stream, or None."""
        raise Fault("wrong_side")

    def told(self, number: int, flags: int, payload: bytes, whole: bytes | None) -> Stream | None:
        """A RESPONSE; the stream, when it is the final one, or None."""
        raise Fault("wrong_side")

    def fire(self, stream: Stream) -> None:
        """This read is used up: hand the message on."""
        raise NotImplementedError

    def grown(self, stream: Stream) -> None:
        """More of a body came."""

    def most_trailers(self) -> int:
        """Bytes that TRAILERS of the peer may have."""
        raise NotImplementedError

    def newest(self) -> int:
        """The highest number of a stream so far."""
        raise NotImplementedError

    def answered(self) -> None:
        """The peer's HELLO was read, and fits."""

    def given_up(self, stream: Stream, code: int, text: str) -> Abort:
        """Why the peer cancelled a stream."""
        raise NotImplementedError

    def spoilt(self, stream: Stream, fault: Fault) -> Abort:
        """Why we cancel a stream: the peer made a mistake."""
        raise NotImplementedError

    def ponged(self, payload: bytes) -> None:
        """A PONG."""

    def leaves(self, last: int, code: int, text: str) -> None:
        """A GOAWAY."""
        raise NotImplementedError

    def blame(self, fault: Fault) -> Abort:
        """Why the connection ends: the peer made a mistake."""
        raise NotImplementedError

    # -- reading

    def dataReceived(self, data: bytes) -> None:
        if self.dead:
            self.discard(data)
            return
        self.heard = self.now()
        self._corks += 1
        try:
            self.read(data)
        except Fault as fault:
            self.fail(fault)
        finally:
            self.uncork()

    def read(self, data: bytes) -> None:
        """
        Take all frames, then hand on what is new.

        @raise Fault: one that ends the connection.
        """
        reader = self.reader
        new: list[Stream] = []
        frames, last = reader.feed(data), -1
        try:
            for place, (kind, flags, number, payload) in enumerate(frames):
                if kind == DATA:
                    if place != last:
                        self.data(number, flags, payload)
                elif kind <= RESPONSE and kind:
                    whole = None if flags else following(frames, place + 1, number)
                    stream = self.head(kind, flags, number, payload, whole)
                    if stream is not None:
                        new.append(stream)
                        if whole is not None and stream.state == DONE:
                            last = place + 1
                else:
                    self.take(kind, flags, number, payload)
                if self.dead:
                    break
            else:
                if reader.fault is not None:
                    raise reader.fault
        except Fault:
            self.hand_on(new)
            raise
        self.hand_on(new)

    def hand_on(self, new: list[Stream]) -> None:
        """The read is used up: what it brought goes on, also when that was the end of the connection."""
        for stream in new:
            self.fire(stream)
        if self._stirred:
            self._stirred = False
            self.wake()
        if self.reader.waiting and not self.dead:
            self.incomplete()
        else:
            self.began = 0.0

    def incomplete(self) -> None:
        """Part of a frame was read: the rest has the time that a head has."""
        if not self.began:
            self.began = self.heard
            self.watch(self.context.timeouts.client_header or inf)

    def head(self, kind: int, flags: int, number: int, payload: bytes, whole: bytes | None) -> Stream | None:
        """
        REQUEST or RESPONSE; the stream that is to be handed on, or None.

        @param whole: all of its content, where the frame behind it is that.  It was used when the stream is DONE.
        """
        if flags & ~_FLAGS[kind]:
            raise Fault("unknown_flags")
        if not self.greeted:
            raise Fault("no_hello")
        take = self.asked if kind == REQUEST else self.told
        return take(number, flags, payload, whole)

    def data(self, number: int, flags: int, payload: bytes) -> None:
        """DATA, or a piece of it."""
        stream, size = self.streams.get(number), len(payload)
        self.room -= size
        if self.room < 0:
            raise Fault("beyond_credit")
        if flags > END:
            raise Fault("unknown_flags")
        if not size and not flags:
            raise Fault("empty_data")
        if stream is None:
            self.closed_stream(number)
            self.passed(size)
            return
        if stream.state != BODY:
            raise Fault("wrong_state")
        try:
            if size:
                stream.arrived(payload)
                self.grown(stream)
            if flags:
                stream.state = DONE
                stream.tail(None)
        except Fault as fault:
            self.spoil(stream, fault)

    def take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Any other frame."""
        if not self.greeted and kind not in (HELLO, GOAWAY):
            raise Fault("no_hello")
        if kind > GOAWAY:
            return
        if flags:
            raise Fault("unknown_flags")
        if (kind in (HELLO, PING, PONG, GOAWAY)) is not (number == 0) and kind != CREDIT:
            raise Fault("wrong_stream")
        if kind == HELLO:
            self.greet(payload)
        elif kind == CREDIT:
            self.more(number, credit(payload))
        elif kind == TRAILERS:
            self.trailers(number, payload)
        elif kind == CANCEL:
            self.cancelled(number, *cancelled(payload))
        elif kind == GOAWAY:
            self.leaves(*going(payload))
        elif len(payload) != 8:
            raise Fault("wrong_size")
        elif kind == PING:
            self.reply(frame(PONG, 0, 0, payload))
        else:
            self.ponged(payload)

    def cancelled(self, number: int, code: int, text: str) -> None:
        """CANCEL."""
        stream = self.streams.get(number)
        if stream is None:
            self.closed_stream(number)
            return
        reason = self.given_up(stream, code, text)
        self.forget(stream)
        stream.hush()
        stream.lost(reason)

    def trailers(self, number: int, payload: bytes) -> None:
        """TRAILERS."""
        stream = self.streams.get(number)
        if stream is None:
            self.closed_stream(number)
            return
        if stream.state != BODY:
            raise Fault("wrong_state")
        stream.state = DONE
        try:
            stream.trailers(payload)
        except Fault as fault:
            self.spoil(stream, fault)

    def all_of(self, stream: Stream, whole: bytes) -> None:
        """A message whose content came behind its head: it takes no credit of its stream, and gives it back at once."""
        size = len(whole)
        self.room -= size
        if self.room < 0:
            raise Fault("beyond_credit")
        self.passed(size)
        stream.incoming, stream.state = None, DONE
        stream.ended()

    def closed_stream(self, number: int) -> None:
        """Something for a stream that is not there: it is over, or never was."""
        if not self.greeted:
            raise Fault("no_hello")
        if not number:
            raise Fault("wrong_stream")
        if number > self.newest() or not number & 1:
            raise Fault("never_opened")

    def greet(self, payload: bytes) -> None:
        """HELLO."""
        if self.greeted:
            raise Fault("second_hello")
        said = hello(payload)
        if not said.low <= VERSION <= said.high:
            raise Fault("no_common_version")
        self.greeted, self.peer_hello = True, said
        self.credit += said.total - LEAST.total
        for stream in self.streams.values():
            stream.credit += said.window - LEAST.window
        if said.heartbeat and self.hello.heartbeat:
            self.beat = max(said.heartbeat, self.hello.heartbeat)
        self.answered()
        self.wake()

    def more(self, number: int, size: int) -> None:
        """CREDIT."""
        if not number:
            self._stirred = self._stirred or not self.credit  # nobody waits for it while there is some
            self.credit += size
            if self.credit > LARGEST:
                raise Fault("credit_overflow")
            return
        stream = self.streams.get(number)
        if stream is None:
            self.closed_stream(number)
            return
        stream.credit += size
        if stream.credit > LARGEST:
            raise Fault("credit_overflow")
        stream.moves(self.now())
        stream.wake()

    def passed(self, size: int) -> None:
        """
        Bytes of some stream are out of our hands: their credit on the connection is owed.

        It is given back when it is more than what is left.  Where nobody holds anything that is half of all; where many
        do, the others must not wait for a half that cannot come.
        """
        self._owed += size
        if self._owed > self.room:
            owed, self._owed = self._owed, 0
            self.room += owed
            self.put(credited(0, owed))

    def reply(self, data: bytes) -> None:
        """Put what the peer made us say."""
        if self.full:
            self._replies += 1
            if self._replies > REPLIES:
                raise Fault("too_many_replies")
        self.put(data)

    # -- writing

    def put_data(self, flags: int, number: int, data: bytes) -> None:
        """A DATA; a large one is not copied."""
        if len(data) < LARGE:
            self.put(frame(DATA, flags, number, data))
        else:
            self._corks += 1
            self.put(head(DATA, flags, number, len(data)))
            self.put(data)
            self.uncork()

    def uncork(self) -> None:
        self._corks -= 1
        if not self._corks:
            if self.tails:
                self._corks = 1  # all of them in one piece
                tails, self.tails = self.tails, []
                for stream in tails:
                    stream.listed = False
                    stream.wake()
                self._corks = 0
            self.flush()

    def resumeProducing(self) -> None:
        self.full, self._replies = False, 0
        self.wake()

    def wake(self) -> None:
        """Whoever waits may send: each time another one first, so that nobody is always the last."""
        streams = list(self.streams.values())
        if not streams:
            return
        self._rounds += 1
        first = self._rounds % len(streams)
        for stream in streams[first:] + streams[:first]:
            if not self.full:
                stream.wake()

    # -- ends

    def spoil(self, stream: Stream, fault: Fault) -> None:
        """What the peer sends on a stream makes no sense."""
        if fault.connection:
            raise fault
        self.context.count("malformed_stream")
        reason = self.spoilt(stream, fault)
        stream.cancel(fault.code, fault.text)
        stream.lost(reason)

    def fail(self, fault: Fault) -> None:
        """What the peer sends makes no sense."""
        self.context.count("frame_flood" if fault.name.startswith("too_many") else "malformed_frame")
        if self.dead:
            return
        self.why = self.blame(fault)
        self.put(goaway(self.newest(), fault.code, fault.text))
        self.end()
        self.reader.clear()
        self.linger()

    def done(self, stream: Stream) -> None:
        """Both directions of a stream are over, and ours has left."""
        if stream.number in self.streams and OPEN not in (stream.writing, stream.reading):
            stream.settled()

    def forget(self, stream: Stream) -> None:
        """A stream is no more."""
        if self.streams.pop(stream.number, None) is not None:
            held, stream.held = stream.held, 0
            if held:
                self.passed(held)
            if not self.streams:
                self.rest()

    def rest(self) -> None:
        """No stream is left."""

    def end(self) -> None:
        super().end()
        self.streams = {}
        self.tails = []


classImplements(Link, IConnection)


def following(frames: list[Frame], place: int, number: int) -> bytes | None:
    """The content of a small message: it stands in the one frame behind its head."""
    if place >= len(frames):
        return None
    kind, flags, stream, payload = frames[place]
    return payload if kind == DATA and flags == END and stream == number else None
