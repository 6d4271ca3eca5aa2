"""
What was said in HTTP/2, for people: the frames of one direction of a connection (RFC 9113, 4 and 6).

Rules
- Fields are shown as they were meant: HPACK is undone, and so is the cutting of a head into CONTINUATION frames.  Where
  it cannot be undone, nothing behind it can be read.
- A frame that is one, but whose payload is wrong, is shown with what is wrong: it is what somebody looks for.

Must not know: connections; whether a frame may come where it came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from hpack import Decoder
from hpack.exceptions import HPACKError

from protogate_http.dissect1 import fields_of, shown
from protogate_http.frames2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LAST,
    PADDED,
    PING,
    PREFACE,
    PRIORITIES,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    code_name,
)

if TYPE_CHECKING:
    from protogate.context import Limits

HEAD: Final = 9
"""Bytes before the payload."""
NAMES: Final = (
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
)
_SETTINGS: Final = {
    1: "HEADER_TABLE_SIZE",
    2: "ENABLE_PUSH",
    3: "MAX_CONCURRENT_STREAMS",
    4: "INITIAL_WINDOW_SIZE",
    5: "MAX_FRAME_SIZE",
    6: "MAX_HEADER_LIST_SIZE",
    8: "ENABLE_CONNECT_PROTOCOL",
}
"""Names of settings (RFC 9113, 6.5.2; RFC 8441)."""
_TABLE: Final = 1 << 20
"""Bytes of a table of HPACK: the other direction has said how many there may be."""
_WRONG: Final = "WRONG: the payload has not the size of its type"
_FIXED: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""Bytes of payloads that have always as many."""


def dissect(data: bytes, client: bool, limits: Limits) -> Iterator[str]:
    """See L{protogate.interfaces.IReadableCodec}."""
    at = 0
    if client:
        if not data.startswith(PREFACE):
            cut = PREFACE.startswith(data)
            raise ValueError("at 0: the preface is cut off" if cut else "at 0: not the preface of a client of HTTP/2")
        yield "0: PREFACE"
        at = len(PREFACE)
    said = Said(limits)
    while len(data) - at >= HEAD:
        size = int.from_bytes(data[at : at + 3], "big")
        end = at + HEAD + size
        if end > len(data):
            break
        stream = int.from_bytes(data[at + 5 : at + HEAD], "big") & LAST
        try:
            line = said.frame(data[at + 3], data[at + 4], stream, data[at + HEAD : end])
        except HPACKError as error:
            raise ValueError(f"at {at}: fields that cannot be decoded: {shown(str(error).encode())}") from None
        yield f"{at}: {line}"
        at = end
    if at < len(data):
        raise ValueError(f"at {at}: a frame that is cut off after {len(data) - at} bytes")


class Said:
    """The frames of one direction, one after the other."""

    def __init__(self, limits: Limits) -> None:
        # As HPACK counts, each field is 32 bytes more than it has.
        most = max(limits.headers, limits.response_headers) + 32 * (limits.header_count + 1)
        self._decoder = Decoder(max_header_list_size=most)
        self._decoder.max_allowed_table_size = _TABLE
        self._block = b""  # of a head that is not complete

    def frame(self, kind: int, flags: int, stream: int, payload: bytes) -> str:
        """
        One frame; its fields stand on indented lines of their own.

        @raise HPACKError: there are fields in it that cannot be decoded.
        """
        words = [NAMES[kind] if kind < len(NAMES) else f"frame {kind:#04x}"]
        if stream:
            words.append(f"stream {stream}")
        if flags & END_STREAM and kind in (DATA, HEADERS):
            words.append("END_STREAM")
        if flags & ACK and kind in (SETTINGS, PING):
            words.append("ACK")
        text = self._said(kind, flags, stream, payload)
        return " ".join(words) + (f": {text}" if text else "")

    def _said(self, kind: int, flags: int, stream: int, payload: bytes) -> str:
        """What the payload says."""
        if len(payload) != _FIXED.get(kind, len(payload)):
            return _WRONG
        if kind in (DATA, HEADERS, PUSH_PROMISE) and flags & PADDED:
            if not payload or payload[0] >= len(payload):
                return "WRONG: more padding than there is payload"
            payload = payload[1 : len(payload) - payload[0]]
        if kind in (HEADERS, PUSH_PROMISE, CONTINUATION):
            return self._head(kind, flags, payload)
        if kind == WINDOW_UPDATE:
            return f"{_number(payload)} bytes{'' if stream else ' for the connection'}"
        show = _SHOW.get(kind)
        return f"{len(payload)} bytes" if show is None else show(payload)

    def _head(self, kind: int, flags: int, payload: bytes) -> str:
        """What stands before fields, and these when all of them are there."""
        before, said = 0, ""
        if kind == PUSH_PROMISE:
            before, said = 4, f"promises stream {_number(payload)}, "
        elif kind == HEADERS and flags & PRIORITIES:
            before, said = 5, f"{_priority(payload[:5].ljust(5))}, "
        if len(payload) < before:
            return _WRONG
        self._block += payload[before:]
        if not flags & END_HEADERS:
            return f"{said}a head that goes on"
        block, self._block = self._block, b""
        found: Iterable[tuple[bytes, bytes]] = self._decoder.decode(block, raw=True)
        fields = [(bytes(name), bytes(value)) for name, value in found]
        return f"{said}{len(fields)} field{'' if len(fields) == 1 else 's'}{fields_of(fields)}"


def _number(payload: bytes) -> int:
    return int.from_bytes(payload[:4], "big") & LAST


def _priority(payload: bytes) -> str:
    alone = " alone" if payload[0] & 0x80 else ""
    return f"depends{alone} on stream {_number(payload)}, weight {payload[4] + 1}"


def _settings(payload: bytes) -> str:
    if len(payload) % 6:
        return _WRONG
    return ", ".join(f"{_SETTINGS.get(key, hex(key))} {value}" for key, value in struct.iter_unpack("!HI", payload))


def _reset(payload: bytes) -> str:
    return code_name(int.from_bytes(payload, "big"))


def _goaway(payload: bytes) -> str:
    if len(payload) < 8:
        return _WRONG
    text = f": {shown(payload[8:])}" if payload[8:] else ""
    return f"last stream {_number(payload)}, {_reset(payload[4:8])}{text}"


_SHOW: Final[dict[int, Callable[[bytes], str]]] = {
    PRIORITY: _priority,
    RST_STREAM: _reset,
    SETTINGS: _settings,
    PING: bytes.hex,
    GOAWAY: _goaway,
}
"""What a payload says, by the type of its frame, where that is all it takes."""
