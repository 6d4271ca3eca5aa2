"""
The seam behind which HTTP/2 is framed and compressed, and its windows are kept: C{ngh2} where it is installed, else
C{h2}.

An engine has that part of C{ngh2.Connection}'s interface:

    receive_data(bytes)            events() → list             data_to_send() → bytes, as the peer's windows allow
    send_request(fields, end_stream=) → number                 send_response(number, fields, end_stream=)
    send_informational_response(number, fields)                send_trailers(number, fields)
    send_data(number, bytes)       end_stream(number)          queued_body_size(number): bytes taken but not framed
    reset_stream(number, code)     ping(eight bytes)           acknowledge_received_data(bytes, number)
    remote_settings: a mapping     can_send_request: False as soon as a GOAWAY was read
    remote_window_size, stream_remote_window_size(number): above 0 where END_STREAM alone may leave
    want_read: False as soon as what was taken of data_to_send() ends the connection

Rules
- C{ngh2} is used as it is, without a layer on the hot path; L{protogate_http.h2engine} gives C{h2} the same face.
- Events are told apart by the names of their classes.
- A call on a stream that is over raises one of L{ERRORS}; why it is over follows as an event.
- GOAWAY is not the engine's: h2 refuses every frame after one, and both name streams that nobody has looked at.
  L{protogate_http.link2} writes it, and leaves out the engine's.
- StreamClosed tells of every stream that is over, once.  With an error it is our reset, or it follows StreamReset, or
  the engine has judged what came: that may be a message that it never showed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

from h2.exceptions import H2Error

from protogate_http.frames2 import SETTINGS, frame
from protogate_http.h2engine import H2Engine
from protogate_http.shape2 import MAX_CONCURRENT_STREAMS, Shape

ngh2: Any
try:
    import ngh2
except ImportError:  # pragma: no cover - the extra `ngh2`
    ngh2 = None

ENGINES: Final = ("ngh2", "h2") if ngh2 is not None else ("h2",)
"""Those installed, best first."""
SHORT: Final[dict[str, tuple[str, ...]]] = {
    "ngh2": (
        "a malformed head is reset, and not answered; the record has neither its method nor its target",
        "frames behind END_STREAM, and a window that overflows, end the connection, not the stream alone",
        "an END_STREAM alone waits while a window is 0",
    ),
    "h2": (
        "a second head on a stream, and trailers without END_STREAM, end the connection, not the stream alone",
        "it is written in Python, and takes several times as long",
    ),
}
"""Where each falls short of what this codec would do."""
ERRORS: Final[tuple[type[Exception], ...]] = (H2Error,) if ngh2 is None else (H2Error, ngh2.NGH2Error)
"""What a call on a stream, or a connection, that is over raises."""
TOO_MUCH: Final[tuple[type[Exception], ...]] = () if ngh2 is None else (ngh2.DenialOfServiceError,)
"""Those of them that say: more than it takes.  (h2 says so in ConnectionClosed.)"""


def _ngh2(shape: Shape) -> Any:
    # What is longer than we take is still decoded, so that it can be refused by itself and the table stays right.
    engine = ngh2.Connection(
        ngh2.Role.CLIENT if shape.client else ngh2.Role.SERVER,
        ngh2.Configuration(
            auto_window_update=False,
            max_inbound_header_list_size=4 * shape.fields,
            max_inbound_header_count=4 * shape.count,
            max_continuations=shape.continuations,
            max_send_header_block_length=1 << 20,
            stream_reset_rate_limit=(1 << 30, 1 << 30),  # ours counts
            glitch_rate_limit=(1 << 30, 1 << 30),
        ),
    )
    engine.initiate_connection(shape.settings())
    engine.set_local_window_size(shape.total)
    return engine


def remarks(name: str) -> list[tuple[str, str]]:
    """What an operator should know of an engine."""
    told = f"{name} {version(name)}"
    others = [f"{each} {version(each)}" for each in ENGINES if each != name]
    found = [("engine", f"{told}; {' and '.join(others)} is installed, too" if others else told)]
    return found + [("falls short" if at == 0 else "", text) for at, text in enumerate(SHORT[name])]


_MAKERS: Final[dict[str, Callable[[Shape], Any]]] = {"ngh2": _ngh2, "h2": H2Engine}


def make(name: str, shape: Shape) -> tuple[Any, bytes]:
    """
    An engine, and what is to be sent first.

    MAX_CONCURRENT_STREAMS is said behind its back: to both, one stream too many is the end of the connection, and not
    of that stream (RFC 9113, 5.1.2).  Who uses this refuses the stream.
    """
    engine = _MAKERS[name](shape)
    hello: bytes = engine.data_to_send()
    if not shape.client:
        end = 9 + int.from_bytes(hello[:3], "big")
        said = hello[9:end] + struct.pack(">HI", MAX_CONCURRENT_STREAMS, shape.streams)
        hello = frame(SETTINGS, 0, 0, said) + hello[end:]
    return engine, hello
