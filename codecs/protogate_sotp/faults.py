"""
What can be wrong with what a peer sends, and what it causes: the table of docs/sotp.md.

Rules
- A fault of the connection ends it: GOAWAY with code and text, then the end.  A fault of a stream ends that stream:
  CANCEL.  A fault of a request is answered: RESPONSE with a status, and CANCEL NONE for the rest.
"""

from __future__ import annotations

from typing import Final

NONE, CANCELLED, REFUSED, DEADLINE, INTERNAL, TIMEOUT = range(6)
FRAME, STATE, FLOW, HEADS, LENGTH, LIMIT, VERSIONS, FLOOD = range(16, 24)
CODES: Final = {
    NONE: "NONE",
    CANCELLED: "CANCELLED",
    REFUSED: "REFUSED",
    DEADLINE: "DEADLINE",
    INTERNAL: "INTERNAL",
    TIMEOUT: "TIMEOUT",
    FRAME: "FRAME",
    STATE: "STATE",
    FLOW: "FLOW",
    HEADS: "HEADS",
    LENGTH: "LENGTH",
    LIMIT: "LIMIT",
    VERSIONS: "VERSIONS",
    FLOOD: "FLOOD",
}
"""Codes of CANCEL and GOAWAY."""


FAULTS: Final[dict[str, tuple[bool, int, str]]] = {
    "no_magic": (True, FRAME, "not a frame"),
    "other_version": (True, VERSIONS, "a frame of another version"),
    "unknown_type": (True, FRAME, "unknown frame type"),
    "unknown_flags": (True, FRAME, "a flag that this frame does not have"),
    "frame_too_large": (True, LIMIT, "the frame is larger than was announced"),
    "wrong_size": (True, FRAME, "the payload has not the size of its type"),
    "no_hello": (True, STATE, "HELLO must come first"),
    "second_hello": (True, STATE, "HELLO comes once"),
    "hello_values": (True, FRAME, "a value of HELLO is out of its bounds"),
    "no_common_version": (True, VERSIONS, "no common version"),
    "wrong_stream": (True, STATE, "the frame stands on a wrong stream"),
    "wrong_number": (True, STATE, "streams have odd numbers that go up"),
    "never_opened": (True, STATE, "a stream that was never opened"),
    "wrong_side": (True, STATE, "the frame comes from the wrong side"),
    "wrong_state": (True, STATE, "the frame must not come in this state of its stream"),
    "empty_data": (True, FRAME, "DATA without a byte and without END"),
    "credit_value": (True, FLOW, "credit must be 1 to 2147483647"),
    "credit_overflow": (True, FLOW, "more than 2147483647 bytes of credit"),
    "beyond_credit": (True, FLOW, "more bytes than there was credit for"),
    "too_many_replies": (True, FLOOD, "too many frames that want an answer"),
    "too_many_cancels": (True, FLOOD, "too many requests given up"),
    "too_long": (False, LENGTH, "more bytes than the head said"),
    "too_short": (False, LENGTH, "fewer bytes than the head said"),
    "bad_response": (False, HEADS, "the head of the response cannot be read"),
    "bad_trailers": (False, HEADS, "the trailers cannot be read"),
    "large_trailers": (False, LIMIT, "the trailers are too large"),
    "large_response": (False, LIMIT, "the head of the response is too large"),
    "many_interims": (False, LIMIT, "too many interim responses"),
}
"""Whether it ends the connection (or only a stream), and code and text of the GOAWAY or CANCEL."""


class Fault(Exception):
    """
    One row of the table.

    @ivar name: of the row.
    @ivar connection: whether it ends the connection, or only a stream.
    @ivar code: @ivar text: of the GOAWAY or CANCEL.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection, self.code, self.text = FAULTS[name]
        super().__init__(self.text)
