"""
A client of HTTP/2 that blocks, of C{hyperframe} and C{hpack}: it does what a test tells it, and nothing cleverer.

    with connected(port) as client:
        told = client.answer(client.ask("GET", "/"))

- Windows are kept: C{send} waits for the peer's, and what comes is paid back at once, but on streams in C{stalled}.
- SETTINGS and PING are acknowledged, unless C{answers} is False.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from gateways import WITHIN

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REFUSED, CANCEL = 7, 8
LAST = 2**31 - 1
WINDOW = 1 << 20
Fields = Sequence[tuple[str, str]]


@dataclass
class Told:
    """
    What came on one stream.

    @ivar status: of the final answer; 0 = there is none yet.
    @ivar interims: the answers before it.
    @ivar code: of the RST_STREAM that came, or None.
    """

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    interims: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    trailers: dict[str, str] | None = None
    ended: bool = False
    code: int | None = None

    @property
    def over(self) -> bool:
        """Nothing more comes."""
        return self.ended or self.code is not None


class H2:
    """
    @ivar told: by stream.
    @ivar goaways: last stream and code of each.
    @ivar settings: the peer's.
    @ivar closed: the peer closed the connection.
    @ivar stalled: streams whose content is not paid back.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.told: dict[int, Told] = defaultdict(Told)
        self.goaways: list[tuple[int, int]] = []
        self.settings: dict[int, int] = {}
        self.closed = False
        self.stalled: set[int] = set()
        self.answers = True
        self._next, self._held = 1, b""
        self._encoder, self._decoder = Encoder(), Decoder()
        self._windows: dict[int, int] = defaultdict(lambda: self._initial)
        self._initial, self._windows[0] = 65535, 65535
        self._block: tuple[int, bytes, bool] | None = None
        self._pings: list[bytes] = []
        self._owed: dict[int, int] = defaultdict(int)
        first = SettingsFrame(0, {SettingsFrame.ENABLE_PUSH: 0, SettingsFrame.INITIAL_WINDOW_SIZE: WINDOW})
        more = WindowUpdateFrame(0, window_increment=16 * WINDOW)
        self.socket.sendall(PREFACE + first.serialize() + more.serialize())

    # -- saying

    def put(self, frame: Frame) -> None:
        """One frame."""
        self.socket.sendall(frame.serialize())

    def ask(self, method: str, path: str, fields: Fields = (), *, end: bool = True, **pseudo: str) -> int:
        """HEADERS; returns the number of the stream."""
        head = {"method": method, "scheme": "http", "authority": "shop.test", "path": path, **pseudo}
        if isinstance(self.socket, ssl.SSLSocket):
            head["scheme"] = "https"
        if method == "CONNECT" and "protocol" not in head:
            del head["scheme"], head["path"]
        number, self._next = self._next, self._next + 2
        self._headers(number, [*((f":{name}", value) for name, value in head.items()), *fields], end)
        return number

    def _headers(self, number: int, fields: Fields, end: bool) -> None:
        flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
        self.put(HeadersFrame(number, self._encoder.encode(list(fields)), flags=flags))

    def send(self, number: int, data: bytes = b"", end: bool = True, trailers: Fields = ()) -> int:
        """Content, and its end; stops when nothing more is wanted.  Returns how many bytes were sent."""
        view, told = memoryview(data), self.told[number]
        while view and not told.over and not self.closed:
            room = min(self._windows[0], self._windows[number], 16384, len(view))
            if room <= 0:
                self.read()
                continue
            self._windows[0] -= room
            self._windows[number] -= room
            self.put(DataFrame(number, bytes(view[:room])))
            view = view[room:]
            self.read(0)
        if end and not len(view):
            if trailers:
                self._headers(number, trailers, True)
            else:
                self.put(DataFrame(number, flags=["END_STREAM"]))
        return len(data) - len(view)

    def reset(self, number: int, code: int = CANCEL) -> None:
        """Give a stream up."""
        self.put(RstStreamFrame(number, code))

    def pong(self) -> None:
        """Answer each PING that came."""
        pings, self._pings = self._pings, []
        for data in pings:
            with suppress(OSError):
                self.put(PingFrame(0, data, flags=["ACK"]))

    def pay(self, number: int) -> None:
        """Let content come again on a stream that was stalled."""
        self.stalled.discard(number)
        self._credit(number, self._owed.pop(number, 0))

    # -- hearing

    def read(self, within: float = WITHIN) -> bool:
        """Take what comes; C{within} seconds for something to come.  Returns whether anything did."""
        pending = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
        if not pending and not select.select([self.socket], [], [], within)[0]:
            if within:
                pytest.fail(f"nothing came within {within:g} s; so far: {dict(self.told)}", pytrace=False)
            return False
        try:
            data = self.socket.recv(262144)
        except (ConnectionResetError, ssl.SSLEOFError):
            data = b""
        self.closed = not data
        self._held += data
        while len(self._held) >= 9:
            length = int.from_bytes(self._held[:3], "big")
            if len(self._held) < 9 + length:
                break
            frame, _ = Frame.parse_frame_header(memoryview(self._held[:9]))
            frame.parse_body(memoryview(self._held[9 : 9 + length]))
            self._held = self._held[9 + length :]
            handler = getattr(self, f"_{type(frame).__name__}", None)
            if handler is not None:
                handler(frame, length)
        return True

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Read until something holds."""
        deadline = time.monotonic() + WITHIN
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or self.closed:
                pytest.fail(f"{what}: {'closed before' if self.closed else 'not in time'}; {self!r}", pytrace=False)
            self.read(left)

    def answer(self, number: int) -> Told:
        """All that comes on a stream."""
        self.until(lambda: self.told[number].over, f"the end of stream {number}")
        return self.told[number]

    def get(self, path: str, method: str = "GET", fields: Fields = ()) -> Told:
        """A request without content, and its answer."""
        return self.answer(self.ask(method, path, fields))

    def post(self, path: str, body: bytes, fields: Fields = (), trailers: Fields = ()) -> Told:
        """One with content."""
        number = self.ask("POST", path, fields, end=False)
        self.send(number, body, trailers=trailers)
        return self.answer(number)

    def __repr__(self) -> str:
        return (
            f"<H2 goaways={self.goaways} told={ {n: (t.status, len(t.body), t.code) for n, t in self.told.items()} }>"
        )

    def _SettingsFrame(self, frame: SettingsFrame, length: int) -> None:
        if "ACK" in frame.flags:
            return
        self.settings |= {int(name): value for name, value in frame.settings.items()}
        if SettingsFrame.INITIAL_WINDOW_SIZE in frame.settings:
            grown = frame.settings[SettingsFrame.INITIAL_WINDOW_SIZE] - self._initial
            self._initial += grown
            for number in self._windows:
                if number:
                    self._windows[number] += grown
        if self.answers:
            self.put(SettingsFrame(flags=["ACK"]))

    def _PingFrame(self, frame: PingFrame, length: int) -> None:
        if "ACK" not in frame.flags:
            self._pings.append(frame.opaque_data)
            if self.answers:
                self.pong()

    def _GoAwayFrame(self, frame: GoAwayFrame, length: int) -> None:
        self.goaways.append((frame.last_stream_id, frame.error_code))

    def _RstStreamFrame(self, frame: RstStreamFrame, length: int) -> None:
        self.told[frame.stream_id].code = frame.error_code

    def _WindowUpdateFrame(self, frame: WindowUpdateFrame, length: int) -> None:
        self._windows[frame.stream_id] += frame.window_increment

    def _DataFrame(self, frame: DataFrame, length: int) -> None:
        told = self.told[frame.stream_id]
        told.body += frame.data
        told.ended = "END_STREAM" in frame.flags
        self._credit(0, length)
        if frame.stream_id in self.stalled:
            self._owed[frame.stream_id] += length
        elif not told.ended:
            self._credit(frame.stream_id, length)

    def _credit(self, number: int, size: int) -> None:
        if size:
            with suppress(OSError):
                self.put(WindowUpdateFrame(number, window_increment=size))

    def _HeadersFrame(self, frame: HeadersFrame, length: int) -> None:
        self._block = frame.stream_id, frame.data, "END_STREAM" in frame.flags
        self._head(frame)

    def _ContinuationFrame(self, frame: ContinuationFrame, length: int) -> None:
        assert self._block is not None
        number, data, end = self._block
        self._block = number, data + frame.data, end
        self._head(frame)

    def _head(self, frame: Any) -> None:
        if "END_HEADERS" not in frame.flags:
            return
        assert self._block is not None
        (number, data, end), self._block = self._block, None
        found: Mapping[str, str] = {str(name): str(value) for name, value in self._decoder.decode(data)}
        fields, told = dict(found), self.told[number]
        told.ended = end
        status = int(fields.pop(":status", 0))
        if not status:
            told.trailers = fields
        elif status < 200:
            told.interims.append((status, fields))
        else:
            told.status, told.fields = status, fields


@contextmanager
def connected(
    port: int, context: ssl.SSLContext | None = None, *, name: str = "shop.test", source: str = "127.0.0.1"
) -> Iterator[H2]:
    """A connection to a port of this machine, over TLS if there is a context."""
    with socket.create_connection(("127.0.0.1", port), WITHIN, (source, 0)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            yield H2(plain)
        else:
            with context.wrap_socket(plain, server_hostname=name) as secured:
                assert secured.selected_alpn_protocol() == "h2"
                yield H2(secured)
