"""
What was said in SOTP/1, for people: C{protogate decode sotp}, and C{-v} of C{protogate sotp call}.

Rules
- Frames are read by L{protogate_sotp.frames} and their heads by L{protogate_sotp.heads}; here they are only shown.
- A frame that is one, but whose payload is wrong, is shown with what is wrong: it is what somebody looks for.

Must not know: connections; whether a frame may come where it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from protogate_sotp.faults import CODES, Fault
from protogate_sotp.fields import Bad
from protogate_sotp.frames import (
    CANCEL,
    CREDIT,
    END,
    GOAWAY,
    GZIP,
    HEAD,
    HELLO,
    INTERIM,
    NAMES,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    TRAILERS,
    ZSTD,
    Frame,
    Hello,
    Reader,
    cancelled,
    credit,
    going,
    hello,
)
from protogate_sotp.heads import read_request, read_response, read_trailers
from protogate_sotp.status import STATUSES

if TYPE_CHECKING:
    from protogate.context import Limits
    from protogate.message import Field

_LONGEST: Final = (1 << 24) - 1
"""Bytes of a payload whose length has three bytes."""
_FLAGS: Final = ((END, "END"), (INTERIM, "INTERIM"))
_ABLE: Final = ((GZIP, "GZIP"), (ZSTD, "ZSTD"))


def reader() -> Reader:
    """One that takes whatever two peers may have agreed on."""
    return Reader(Hello(data=_LONGEST, heads=_LONGEST).sizes)


def dissect(data: bytes, limits: Limits) -> Iterator[str]:
    """See L{protogate.interfaces.IReadableCodec}; frames say by themselves which side they come from."""
    read, at = reader(), 0
    for item in read.feed(data):
        payload = item[3]
        if len(payload) < int.from_bytes(data[at + 5 : at + 8], "big"):
            break  # the beginning of a DATA
        yield f"{at}: {shown(item, limits)}"
        at += HEAD + len(payload)
    if read.fault is not None:
        raise ValueError(f"at {at}: {read.fault.text}")
    if at < len(data):
        raise ValueError(f"at {at}: a frame that is cut off after {len(data) - at} bytes")


def shown(item: Frame, limits: Limits) -> str:
    """One frame; its fields stand on indented lines of their own."""
    kind, flags, stream, payload = item
    name = NAMES[kind] if kind <= GOAWAY else f"extension {kind}"
    words = [name, f"stream {stream}"] if stream else [name]
    words += [word for bit, word in _FLAGS if flags & bit]
    if flags & ~(END | INTERIM):
        words.append(f"flags {flags:#04x}")
    try:
        said = _said(kind, stream, payload, limits)
    except Fault as fault:
        said = f"WRONG: {fault.text}"
    except Bad as bad:
        said = f"WRONG: {bad.text}"
    return " ".join(words) + f": {said}"


def _said(kind: int, stream: int, payload: bytes, limits: Limits) -> str:
    """What the payload says."""
    show = _SHOW.get(kind)
    if kind == REQUEST:
        text = _request(payload, limits)
    elif show is not None:
        text = show(payload)
    else:  # DATA, and what is not known
        text = f"{len(payload)} bytes"
    return text if kind != CREDIT or stream else f"{text} for the connection"


def _hello(payload: bytes) -> str:
    said = hello(payload)
    able = [name for bit, name in _ABLE if said.capabilities & bit]
    return (
        f"versions {said.low} to {said.high}, heartbeat {said.heartbeat} s, capabilities {' '.join(able) or 'none'}, "
        f"streams {said.streams}, window {said.window}, total {said.total}, data {said.data}, heads {said.heads}"
    )


def _request(payload: bytes, limits: Limits) -> str:
    made = read_request(payload, limits)
    text = f"{_text(made.method)} {_text(made.target)}"
    if made.service:
        text += f", service {made.service}"
    text += f", authority {_text(made.authority)}" if made.authority else ""
    text += ", secure" if made.scheme == b"https" else ""
    text += f", tunnel {_text(made.upgrade)}" if made.upgrade else ""
    text += f", deadline {made.deadline} ms" if made.deadline else ""
    text += f", length {made.length}" if made.length is not None else ""
    text += f", WRONG: {made.bad.text}" if made.bad is not None else ""
    return text + _fields(made.fields)


def _response(payload: bytes) -> str:
    made = read_response(payload)
    code = int.from_bytes(payload[:2], "big")
    length = f", length {made.length}" if made.length is not None else ""
    return f"{status(code)}, HTTP {made.status}{length}{_fields(made.fields)}"


def status(code: int) -> str:
    """A status with its name."""
    known = STATUSES.get(code)
    return f"status {code}" if known is None else f"status {code} {known[0]}"


def _trailers(payload: bytes) -> str:
    found = read_trailers(payload)
    return f"{len(found)} pair{'' if len(found) == 1 else 's'}{_fields(found)}"


def _going(payload: bytes) -> str:
    last, code, text = going(payload)
    return f"last stream {last}, {_code(code, text)}"


def _code(code: int, text: str) -> str:
    name = CODES.get(code, str(code))
    return f"{name}: {text}" if text else name


def _fields(fields: Iterable[Field]) -> str:
    return "".join(f"\n    {_text(name)}: {_text(value)}" for name, value in fields)


def _text(data: bytes) -> str:
    """As it is where that is safe on a terminal."""
    return ascii(data.decode("utf-8", "replace"))[1:-1]


_SHOW: Final[dict[int, Callable[[bytes], str]]] = {
    HELLO: _hello,
    RESPONSE: _response,
    TRAILERS: _trailers,
    CREDIT: lambda payload: f"{credit(payload)} bytes",
    CANCEL: lambda payload: _code(*cancelled(payload)),
    PING: bytes.hex,
    PONG: bytes.hex,
    GOAWAY: _going,
}
"""What a payload says, by the type of its frame; of a REQUEST it also depends on limits."""
