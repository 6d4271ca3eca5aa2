"""
The other end of an HTTP/2 connection: takes its frames apart, and looks whether it keeps to the rules itself.

    peer = Peer(client=True)                the peer is the client, it looks at a server
    peer.feed(what came)                    peer.frames, peer.answers, peer.resets, peer.goaway …
    peer.faults                             what the other end must not have sent

Rules
- C{hyperframe} and C{hpack} read; nothing of protogate is used.
- Everything that one end can tell about the other's frames is looked at, whatever the case at hand is about: order,
  sizes, states, windows, fields.  So each case tests the sender's side of RFC 9113, too.
- A peer sends nothing by itself but the ACK of SETTINGS and of PING.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping

from hpack import Decoder
from hpack.exceptions import HPACKError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from h2frames import (
    ACK,
    ACKED,
    DATA,
    FRAME,
    HEADERS,
    NAMES,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    TABLE,
    TOP,
    WINDOW,
    WINDOW_UPDATE,
    Field,
    raw,
)

NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?").fullmatch
PER_CONNECTION = {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
CALLED = {b":method", b":scheme", b":path", b":authority", b":protocol"}


class Message:
    """
    What came on one stream.

    @ivar heads: its field sections: interim, final, trailers.
    @ivar ended: END_STREAM came.
    """

    def __init__(self) -> None:
        self.heads: list[list[Field]] = []
        self.content = b""
        self.ended = False

    @property
    def status(self) -> int:
        """Of the final response; 0 = there is none yet."""
        return next((n for n in self.statuses if n >= 200), 0)

    @property
    def statuses(self) -> list[int]:
        """All of them, in order."""
        return [int(value) for head in self.heads for name, value in head if name == b":status"]


class Peer:
    """
    @ivar client: whether it plays the client.
    @ivar frames: all that came.
    @ivar messages: by stream.
    @ivar resets: code by stream.
    @ivar goaways: last stream and code of each.
    @ivar settings: what the other end has set.
    @ivar credit: by stream, what the other end has given by WINDOW_UPDATE; 0 is the connection.
    @ivar pongs: payloads of PING with ACK.
    @ivar acked: how many SETTINGS were acknowledged.
    @ivar closed: the other end closed the connection.
    @ivar faults: rules that it broke.
    @ivar send: where ACKs go.
    @ivar answers: False acknowledges nothing by itself.
    """

    def __init__(self, client: bool, said: Mapping[int, int] | None = None) -> None:
        """
        @param said: what this end says in its first SETTINGS.
        """
        said = said or {}
        self.client = client
        self.frames: list[Frame] = []
        self.messages: dict[int, Message] = defaultdict(Message)
        self.resets: dict[int, int] = {}
        self.goaways: list[tuple[int, int]] = []
        self.settings: dict[int, int] = {}
        self.credit: Counter[int] = Counter()
        self.pongs: list[bytes] = []
        self.acked = 0
        self.closed = False
        self.faults: list[str] = []
        self.send: Callable[[bytes], object] = lambda data: None
        self.answers = True
        self.largest = said.get(FRAME, 16384)
        self.gave: dict[int, int] = defaultdict(lambda: self.initial)  # windows of what may come
        self.initial = said.get(WINDOW, 65535)
        self.gave[0] = 65535
        self.spent: Counter[int] = Counter()  # by stream, what this end has taken of the other's windows
        self.content: Counter[int] = Counter()
        self.ours: set[int] = set()  # streams that this end reset last
        self._decoder = Decoder()
        self._decoder.max_allowed_table_size = said.get(TABLE, 4096)
        self._unacked: deque[list[tuple[int, int]]] = deque()  # SETTINGS hold from their ACK on (RFC 9113, 6.5.3)
        self._unread = b""
        self._preface = b"" if client else PREFACE
        self._block: tuple[HeadersFrame, bytearray] | None = None
        self._opened = 0

    # -- what this end says

    def said(self, data: bytes) -> None:
        """These frames are being sent: windows grow, streams end."""
        data = data.removeprefix(PREFACE)
        while len(data) >= 9:
            length, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
            stream, payload = int.from_bytes(data[5:9], "big") & TOP, data[9 : 9 + length]
            data = data[9 + length :]
            if kind == WINDOW_UPDATE and length == 4:
                self.gave[stream] += int.from_bytes(payload, "big") & TOP
            elif kind == RST_STREAM:
                self.ours.add(stream)
            elif kind in (DATA, HEADERS):
                self.ours.discard(stream)  # that it may answer
                if kind == DATA:
                    self.spent[stream] += length
                    self.content[stream] += length - (1 + payload[0] if flags & PADDED and payload else 0)
            elif kind == SETTINGS and not flags & ACK and not length % 6:
                self._unacked.append(list(struct.iter_unpack(">HI", payload)))

    def resize(self, initial: int) -> None:
        """Each stream's window changes with the initial one (RFC 9113, 6.9.2)."""
        for stream in self.gave:
            if stream:
                self.gave[stream] += initial - self.initial
        self.initial = initial

    # -- reading

    def feed(self, data: bytes) -> None:
        """Some bytes."""
        self._unread += data
        if self._preface:
            if len(self._unread) < len(self._preface):
                return
            if not self._unread.startswith(self._preface):
                self.fault("3.4: no preface")
            self._unread, self._preface = self._unread[len(self._preface) :], b""
        while len(self._unread) >= 9:
            length = int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < 9 + length:
                return
            head, payload = self._unread[:9], self._unread[9 : 9 + length]
            self._unread = self._unread[9 + length :]
            if length > self.largest:
                self.fault(f"4.2: {length} bytes in a frame")
            frame, _ = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(payload))
            self._frame(frame, length)

    def lost(self) -> None:
        """The connection is gone."""
        self.closed = True
        if self._unread:
            self.fault("half a frame, then the end")

    def fault(self, text: str) -> None:
        """A rule was broken."""
        self.faults.append(text)

    def _frame(self, frame: Frame, length: int) -> None:
        if not self.frames and (type(frame) is not SettingsFrame or "ACK" in frame.flags):
            self.fault("3.4: SETTINGS do not come first")
        self.frames.append(frame)
        if self._block is not None and type(frame) is not ContinuationFrame:
            self.fault("6.10: a block is interrupted")
        stream = frame.stream_id
        if stream and type(frame) is not PriorityFrame:
            message = self.messages.get(stream)
            if stream in self.resets and type(frame) is not RstStreamFrame:
                self.fault(f"5.4.2: {frame!r} after RST_STREAM")
            elif message is not None and message.ended and type(frame) not in (RstStreamFrame, WindowUpdateFrame):
                self.fault(f"5.1: {frame!r} after END_STREAM")
        if type(frame) not in (ExtensionFrame, PriorityFrame):
            getattr(self, f"_{type(frame).__name__}")(frame, length)

    def _SettingsFrame(self, frame: SettingsFrame, length: int) -> None:
        if "ACK" in frame.flags:
            self.acked += 1
            for name, value in self._unacked.popleft() if self._unacked else ():
                if name == WINDOW:
                    self.resize(value)
                elif name == TABLE:
                    self._decoder.max_allowed_table_size = value
                elif name == FRAME:
                    self.largest = value
            return
        self.settings |= {int(name): value for name, value in frame.settings.items()}
        if not self.client and self.settings.get(2, 0):
            self.fault("8.4: push is not switched off")
        if self.answers:
            self.send(ACKED)

    def _PingFrame(self, frame: PingFrame, length: int) -> None:
        if "ACK" in frame.flags:
            self.pongs.append(frame.opaque_data)
        elif self.answers:
            self.send(raw(PING, ACK, 0, frame.opaque_data))

    def _GoAwayFrame(self, frame: GoAwayFrame, length: int) -> None:
        if self.goaways and frame.last_stream_id > self.goaways[-1][0]:
            self.fault("6.8: GOAWAY with a higher last stream than the one before")
        self.goaways.append((frame.last_stream_id, frame.error_code))

    def _WindowUpdateFrame(self, frame: WindowUpdateFrame, length: int) -> None:
        if not frame.window_increment:
            self.fault("6.9: WINDOW_UPDATE of 0")
        self.credit[frame.stream_id] += frame.window_increment

    def _RstStreamFrame(self, frame: RstStreamFrame, length: int) -> None:
        if frame.stream_id in self.ours:
            self.fault("5.4.2: RST_STREAM answers RST_STREAM")
        if frame.stream_id in self.resets:
            self.fault("5.4.2: RST_STREAM twice")
        self.resets[frame.stream_id] = frame.error_code

    def _PushPromiseFrame(self, frame: PushPromiseFrame, length: int) -> None:
        self.fault("8.4: nobody may push here")

    def _DataFrame(self, frame: DataFrame, length: int) -> None:
        stream = frame.stream_id
        message = self.messages.get(stream)
        if message is None or (self.client and not message.status):
            self.fault(f"8.1: DATA before HEADERS on {stream}")
            return
        for window in (0, stream):
            self.gave[window] -= length
            if length and self.gave[window] < 0:
                self.fault(f"6.9.1: {-self.gave[window]} bytes beyond the window of {window}")
        message.content += frame.data
        message.ended = "END_STREAM" in frame.flags

    def _HeadersFrame(self, frame: HeadersFrame, length: int) -> None:
        if not self.client and frame.stream_id not in self.messages:
            if not frame.stream_id % 2 or frame.stream_id <= self._opened:
                self.fault(f"5.1.1: a new stream {frame.stream_id} after {self._opened}")
            self._opened = frame.stream_id
        self._collect(frame, frame, frame.data)

    def _ContinuationFrame(self, frame: ContinuationFrame, length: int) -> None:
        if self._block is None or self._block[0].stream_id != frame.stream_id:
            self.fault("6.10: CONTINUATION without a block")
            return
        self._collect(self._block[0], frame, frame.data)

    def _collect(self, head: HeadersFrame, frame: Frame, fragment: bytes) -> None:
        block = self._block[1] if self._block else bytearray()
        block += fragment
        if "END_HEADERS" not in frame.flags:
            self._block = (head, block)
            return
        self._block = None
        try:
            found = [(bytes(n), bytes(v)) for n, v in self._decoder.decode(bytes(block), raw=True)]
        except HPACKError as error:
            self.fault(f"4.3: {error!r}")
            return
        self._section(head, found)

    def _section(self, frame: HeadersFrame, found: list[Field]) -> None:
        message = self.messages[frame.stream_id]
        end = "END_STREAM" in frame.flags
        trailers = bool(message.status) if self.client else bool(message.heads)
        names = [name for name, _ in found]
        pseudo = [name for name in names if name[:1] == b":"]
        allowed = set() if trailers else {b":status"} if self.client else CALLED
        if set(pseudo) - allowed or len(set(pseudo)) != len(pseudo):
            self.fault(f"8.3: pseudo fields {pseudo}")
        if names[: len(pseudo)] != pseudo:
            self.fault("8.3: a pseudo field after another field")
        if not trailers and self.client and pseudo != [b":status"]:
            self.fault("8.3.2: no :status")
        if not trailers and not self.client and b":method" not in pseudo:
            self.fault("8.3.1: no :method")
        if trailers and not end:
            self.fault("8.1: trailers without END_STREAM")
        for name, value in found:
            if not NAME(name) or not VALUE(value):
                self.fault(f"8.2.1: {name!r}: {value!r}")
        if PER_CONNECTION.intersection(names):
            self.fault(f"8.2.2: {PER_CONNECTION.intersection(names)}")
        message.heads.append(found)
        message.ended = end

    # -- what it came to

    def table(self) -> int:
        """Bytes that the other end lets the table of its fields have."""
        return int(self._decoder.header_table_size)

    def seen(self, stream: int) -> str:
        """In two words: C{closed CODE}, C{reset CODE}, C{answer STATUS}, or C{open}."""
        if self.closed:
            return f"closed {name(self.goaways[-1][1])}" if self.goaways else "closed"
        if self.goaways:
            return f"leaving {name(self.goaways[-1][1])}"
        message = self.messages.get(stream)
        if message is not None and message.ended and message.status and self.client:
            return f"answer {message.status}"
        if stream in self.resets:
            return f"reset {name(self.resets[stream])}"
        return "open"


def name(code: int) -> str:
    """Of an error code."""
    return NAMES[code] if code < len(NAMES) else hex(code)
