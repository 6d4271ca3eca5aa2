"""
C{h2} behind the seam of L{protogate_http.engine2}.

Rules
- Frames are handed to h2 one by one, so that what it says of one is not lost in what the next one does.
- A queue for each stream: h2 refuses what the window does not allow.
- h2 never sees a GOAWAY, since it would refuse every frame after it, nor which stream depends on which: nothing about
  that is an error any more (RFC 9113, 5.3.2).
- A stream is over when its last frame was taken: else who reads no answers could have any number of them.
- Its own checks of fields and of content-length are off: L{protogate_http.fields2} and the streams make them.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final

import h2.events
from h2.config import H2Configuration
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.exceptions import H2Error, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

from protogate_http.frames2 import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    LAST,
    PADDED,
    PREFACE,
    PRIORITIES,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)
from protogate_http.h2connection import Connection
from protogate_http.h2events import (
    ConnectionClosed,
    DataReceived,
    Event,
    GoAwayReceived,
    InformationalResponseReceived,
    PingAcknowledged,
    RequestReceived,
    ResponseReceived,
    SettingsReceived,
    StreamClosed,
    StreamReset,
    TrailersReceived,
)
from protogate_http.shape2 import FRAME, LEAST, Shape

_RECEIVED: Final = {
    h2.events.RequestReceived: RequestReceived,
    h2.events.ResponseReceived: ResponseReceived,
    h2.events.InformationalResponseReceived: InformationalResponseReceived,
    h2.events.TrailersReceived: TrailersReceived,
}


class H2Engine:
    """See L{protogate_http.engine2}."""

    def __init__(self, shape: Shape) -> None:
        connection = self._connection = Connection(
            H2Configuration(
                client_side=shape.client,
                header_encoding=None,  # bytes
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        connection.local_settings = Settings(
            shape.client, {SettingCodes(code): value for code, value in shape.settings().items()}
        )
        connection.decoder.max_header_list_size = 4 * shape.fields
        connection.max_inbound_frame_size = FRAME
        connection.initiate_connection()
        if shape.total > LEAST:
            connection.increment_flow_control_window(shape.total - LEAST)
        self._client = shape.client
        self._queues: dict[int, deque[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._tails: dict[int, list[Any] | None] = {}
        self._heads: list[int] = []  # answers without content that were not taken yet
        self._events: list[Event] = []
        self._buffer = b""
        self._preface = not shape.client
        self._block = False
        self._over = self._greeted = self._leaves = False

    @property
    def remote_settings(self) -> Any:
        """Of the peer."""
        return self._connection.remote_settings

    @property
    def can_send_request(self) -> bool:
        """Whether the server still takes any."""
        return not (self._over or self._leaves)

    remote_window_size = 1  # above 0: END_STREAM alone is never held back here, as it is by ngh2

    def stream_remote_window_size(self, number: int) -> int:
        """The same of a stream."""
        return 1

    @property
    def want_read(self) -> bool:
        """Whether the connection goes on."""
        return not self._over

    # -- in

    def receive_data(self, data: bytes) -> None:
        """Some bytes."""
        buffer = self._buffer + data
        if self._preface:
            if len(buffer) < len(PREFACE) and PREFACE.startswith(buffer):
                self._buffer = buffer
                return
            self._preface = False
            if not self._take(buffer[: len(PREFACE)]):
                return
            buffer = buffer[len(PREFACE) :]
        at, size = 0, len(buffer)
        while at + 9 <= size:
            length = int.from_bytes(buffer[at : at + 3], "big")
            end = at + 9 + length
            if end > size and length <= FRAME:
                break
            if not self._frame(buffer[at : min(end, size)]):
                return
            at = end
        self._buffer = buffer[at:]

    def _frame(self, data: bytes) -> bool:
        """One frame; as much as there is of one that is too long.  First what h2 lets pass."""
        kind, flags, number = data[3], data[4], int.from_bytes(data[5:9], "big") & LAST
        if int.from_bytes(data[:3], "big") > FRAME:
            return self._broken(ErrorCodes.FRAME_SIZE_ERROR, "a frame is too long")  # RFC 9113, 4.2
        if not self._greeted:
            if kind != SETTINGS or flags & ACK:
                return self._broken(ErrorCodes.PROTOCOL_ERROR, "SETTINGS are due first")  # RFC 9113, 3.4
            self._greeted = True
        elif kind == HEADERS and self._client and number and not number % 2:
            return self._broken(ErrorCodes.PROTOCOL_ERROR, "a stream that nobody opened")  # RFC 9113, 5.1.1
        elif kind == RST_STREAM and self._idle(number):
            return self._broken(ErrorCodes.PROTOCOL_ERROR, "RST_STREAM on an idle stream")  # RFC 9113, 6.4
        elif kind == WINDOW_UPDATE and len(data) == 13 and data[9] & 0x80:
            data = data[:9] + bytes((data[9] & 0x7F,)) + data[10:]  # a reserved bit (RFC 9113, 6.9)
        if not self._block and self._kept(kind, data):
            return not self._over
        if kind == HEADERS and flags & PRIORITIES:
            at = 10 if flags & PADDED else 9
            if len(data) >= at + 5:
                data = data[:at] + b"\0\0\0\0" + data[at + 4 :]
        if kind in (HEADERS, CONTINUATION):
            self._block = not flags & END_HEADERS
        return self._take(data)

    def _kept(self, kind: int, data: bytes) -> bool:
        """Whether that is a frame that h2 does not get to see."""
        if kind == PRIORITY:
            if len(data) != 14:
                self._broken(ErrorCodes.FRAME_SIZE_ERROR, "PRIORITY of another length")
            return True
        if kind == GOAWAY and len(data) >= 17 and data[5:9] == b"\0\0\0\0":
            last, code = struct.unpack(">II", data[9:17])
            self._leaves = True
            self._events.append(GoAwayReceived(last_stream_id=last & LAST, error_code=code, debug_data=data[17:]))
            return True
        return False

    def _idle(self, number: int) -> bool:
        """Whether nobody has opened that stream, or a later one of the same side, yet."""
        connection = self._connection
        ours = number % 2 == int(self._client)
        return number > (connection.highest_outbound_stream_id if ours else connection.highest_inbound_stream_id)

    def _broken(self, code: int, text: str) -> bool:
        self._over, self._buffer = True, b""
        self._events.append(ConnectionClosed(error_code=int(code), debug_data=text.encode()))
        return False

    def _take(self, data: bytes) -> bool:
        try:
            events = self._connection.receive_data(data)
        except StreamClosedError as error:
            if self._connection.state_machine.state is ConnectionState.CLOSED:
                return self._broken(ErrorCodes.STREAM_CLOSED, str(error))
            for event in error._events:  # h2 has reset it
                self._tell(event)
            return True
        except (ProtocolError, H2Error) as error:
            return self._broken(getattr(error, "error_code", ErrorCodes.PROTOCOL_ERROR), str(error))
        for event in events:
            self._tell(event)
        return True

    def _tell(self, event: Any) -> None:
        kind, number = type(event), getattr(event, "stream_id", 0) or 0
        made = _RECEIVED.get(kind)
        if made is not None:
            ends = getattr(event, "stream_ended", None) is not None
            self._events.append(made(stream_id=number, headers=event.headers, end_stream=ends))
        elif kind is h2.events.DataReceived:
            padding = event.flow_controlled_length - len(event.data)
            if padding:
                self.acknowledge_received_data(padding, number)
            ends = event.stream_ended is not None
            self._events.append(DataReceived(stream_id=number, data=event.data, end_stream=ends))
        elif kind is h2.events.StreamReset:
            self._forget(number)
            if event.remote_reset:
                self._events.append(StreamReset(stream_id=number, error_code=int(event.error_code)))
            self._events.append(StreamClosed(stream_id=number, error_code=int(event.error_code)))
        elif kind is h2.events.RemoteSettingsChanged:
            self._events.append(SettingsReceived())
        elif kind is h2.events.PingAckReceived:
            self._events.append(PingAcknowledged(opaque_data=event.ping_data))
        elif kind is h2.events.StreamEnded:
            self._check(number)

    def _check(self, number: int) -> None:
        """Tell when both directions are done."""
        stream = self._connection.streams.get(number)
        if stream is None or stream.closed:
            self._forget(number)
            self._events.append(StreamClosed(stream_id=number))

    def events(self) -> list[Event]:
        """What happened since."""
        events, self._events = self._events, []
        return events

    # -- out

    def data_to_send(self) -> bytes:
        """Frames."""
        for number in list(self._queues):
            self._pump(number)
        heads, self._heads = self._heads, []
        for number in heads:
            self._check(number)
        return self._connection.data_to_send()

    def _pump(self, number: int) -> None:
        connection, queue = self._connection, self._queues[number]
        try:
            while queue:
                piece = queue[0]
                room = min(connection.local_flow_control_window(number), connection.max_outbound_frame_size)
                if room <= 0:
                    return
                if len(piece) <= room:
                    queue.popleft()
                else:
                    piece, queue[0] = piece[:room], piece[room:]
                connection.send_data(number, piece)
                self._sizes[number] -= len(piece)
            if number in self._tails:
                trailers = self._tails[number]
                self._forget(number)
                if trailers:
                    connection.send_headers(number, trailers, end_stream=True)
                else:
                    connection.end_stream(number)
                self._check(number)
        except H2Error:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._queues.pop(number, None)
        self._sizes.pop(number, None)
        self._tails.pop(number, None)

    def send_request(self, fields: list[Any], end_stream: bool = False) -> int:
        """A new stream."""
        number: int = self._connection.get_next_available_stream_id()
        self._connection.send_headers(number, fields, end_stream=end_stream)
        return number

    def send_response(self, number: int, fields: list[Any], end_stream: bool = False) -> None:
        """The final response."""
        self._connection.send_headers(number, fields, end_stream=end_stream)
        if end_stream:
            self._heads.append(number)

    def send_informational_response(self, number: int, fields: list[Any]) -> None:
        """A 1xx."""
        self._connection.send_headers(number, fields)

    def send_data(self, number: int, data: bytes) -> None:
        """Content; it is queued."""
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = deque()
        queue.append(data)
        self._sizes[number] = self._sizes.get(number, 0) + len(data)

    def end_stream(self, number: int) -> None:
        """Nothing comes behind what is queued."""
        self.send_trailers(number, None)

    def send_trailers(self, number: int, fields: list[Any] | None) -> None:
        """Trailers, behind what is queued."""
        self._queues.setdefault(number, deque())
        self._tails[number] = fields

    def queued_body_size(self, number: int) -> int:
        """Bytes that wait for a window."""
        return self._sizes.get(number, 0)

    def reset_stream(self, number: int, code: int) -> None:
        """RST_STREAM."""
        self._forget(number)
        try:
            self._connection.reset_stream(number, code)
        except H2Error:
            return
        self._events.append(StreamClosed(stream_id=number, error_code=code))

    def ping(self, data: bytes) -> None:
        """PING."""
        self._connection.ping(data)

    def acknowledge_received_data(self, amount: int, number: int) -> None:
        """Credit for bytes that were consumed, on the stream and on the connection."""
        if self._over:
            return
        try:
            self._connection.acknowledge_received_data(amount, number)
        except H2Error:  # the stream is over: the connection's alone
            self._connection.increment_flow_control_window(amount)
