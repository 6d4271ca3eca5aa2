"""What protogate decode shows of HTTP/2: every frame, each wrong payload, and fields whatever they are cut into."""

from __future__ import annotations

import pytest
from hpack import Encoder

from protogate.context import Limits
from protogate_http.dissect2 import dissect
from protogate_http.frames2 import (
    CANCEL,
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    goaway,
)

FIELDS = [(b":method", b"GET"), (b":path", b"/x"), (b"x-name", b"caf\xc3\xa9")]
SHOWN = "3 fields\n    :method: GET\n    :path: /x\n    x-name: caf\\xe9"
WRONG = "WRONG: the payload has not the size of its type"


def shown(*frames: bytes, client: bool = False) -> list[str]:
    """The frames, without their offsets."""
    return [line.partition(": ")[2] for line in dissect(b"".join(frames), client, Limits())]


def block(fields: list[tuple[bytes, bytes]] = FIELDS) -> bytes:
    return Encoder().encode(fields)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (frame(DATA, 0, 3, b"hello"), "DATA stream 3: 5 bytes"),
        (frame(DATA, 1 | 8, 3, b"\2hello\0\0"), "DATA stream 3 END_STREAM: 5 bytes"),
        (frame(HEADERS, 4, 1, block()), f"HEADERS stream 1: {SHOWN}"),
        (frame(HEADERS, 5, 1, block(FIELDS[:1])), "HEADERS stream 1 END_STREAM: 1 field\n    :method: GET"),
        (
            frame(HEADERS, 4 | 8 | 32, 1, b"\1\x80\0\0\7\x0f" + block() + b"\0"),
            f"HEADERS stream 1: depends alone on stream 7, weight 16, {SHOWN}",
        ),
        (frame(PRIORITY, 0, 5, b"\0\0\0\3\xff"), "PRIORITY stream 5: depends on stream 3, weight 256"),
        (frame(RST_STREAM, 0, 5, CANCEL.to_bytes(4, "big")), "RST_STREAM stream 5: CANCEL"),
        (frame(RST_STREAM, 0, 5, b"\0\0\1\0"), "RST_STREAM stream 5: 0x100"),
        (frame(SETTINGS, 0, 0, b"\0\4\0\1\0\0\0\x99\0\0\0\1"), "SETTINGS: INITIAL_WINDOW_SIZE 65536, 0x99 1"),
        (frame(SETTINGS, 1, 0), "SETTINGS ACK"),
        (frame(PUSH_PROMISE, 4, 1, b"\0\0\0\2" + block()), f"PUSH_PROMISE stream 1: promises stream 2, {SHOWN}"),
        (frame(PING, 1, 0, b"8 bytes."), "PING ACK: 382062797465732e"),
        (goaway(7, 11, "calm\tdown"), "GOAWAY: last stream 7, ENHANCE_YOUR_CALM: calm\\tdown"),
        (goaway(0, 0), "GOAWAY: last stream 0, NO_ERROR"),
        (frame(WINDOW_UPDATE, 0, 0, b"\x80\0\0\x09"), "WINDOW_UPDATE: 9 bytes for the connection"),
        (frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x09"), "WINDOW_UPDATE stream 1: 9 bytes"),
        (frame(16, 0, 0, b"u=1"), "frame 0x10: 3 bytes"),
        (frame(DATA, 8, 1, b"\6hello"), "DATA stream 1: WRONG: more padding than there is payload"),
        (frame(DATA, 8, 1), "DATA stream 1: WRONG: more padding than there is payload"),
        (frame(HEADERS, 4 | 32, 1, b"\0\0\0\1"), f"HEADERS stream 1: {WRONG}"),
        (frame(PUSH_PROMISE, 4, 1, b"\0"), f"PUSH_PROMISE stream 1: {WRONG}"),
        (frame(PRIORITY, 0, 1, b"\0\0\0\1"), f"PRIORITY stream 1: {WRONG}"),
        (frame(RST_STREAM, 0, 1), f"RST_STREAM stream 1: {WRONG}"),
        (frame(PING, 0, 0, b"seven.."), f"PING: {WRONG}"),
        (frame(WINDOW_UPDATE, 0, 0, b"\1"), f"WINDOW_UPDATE: {WRONG}"),
        (frame(SETTINGS, 0, 0, b"\0\4\0\0\0"), f"SETTINGS: {WRONG}"),
        (frame(GOAWAY, 0, 0, bytes(7)), f"GOAWAY: {WRONG}"),
    ],
)
def test_a_frame_is_shown(data: bytes, text: str) -> None:
    assert shown(data) == [text]
    assert shown(PREFACE, data, client=True)[1:] == [text]


def test_each_begins_with_its_offset() -> None:
    data = PREFACE + frame(SETTINGS, 0, 0) + frame(DATA, 0, 1, b"hello") + frame(PING, 0, 0, bytes(8))
    assert [line.split(":")[0] for line in dissect(data, True, Limits())] == ["0", "24", "33", "47"]


def test_fields_are_shown_when_all_of_them_have_come() -> None:
    whole = block()
    assert shown(
        frame(HEADERS, 1, 1, whole[:2]), frame(CONTINUATION, 0, 1, whole[2:5]), frame(CONTINUATION, 4, 1, whole[5:])
    ) == [
        "HEADERS stream 1 END_STREAM: a head that goes on",
        "CONTINUATION stream 1: a head that goes on",
        f"CONTINUATION stream 1: {SHOWN}",
    ]


def test_what_stands_in_the_table_is_shown_as_it_was_meant() -> None:
    encoder = Encoder()
    encoder.header_table_size = 65536  # the other direction has said so
    first, second = encoder.encode(FIELDS), encoder.encode(FIELDS)
    assert len(second) < len(first)
    assert shown(frame(HEADERS, 4, 1, first), frame(HEADERS, 4, 3, second))[1] == f"HEADERS stream 3: {SHOWN}"


@pytest.mark.parametrize(
    ("data", "client", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True, "at 0: not the preface"),
        (PREFACE[:7], True, "at 0: the preface is cut off"),
        (
            frame(SETTINGS, 1, 0) + frame(PING, 0, 0, bytes(8))[:-1],
            False,
            "at 9: a frame that is cut off after 16 bytes",
        ),
        (frame(SETTINGS, 1, 0) + bytes(8), False, "at 9: a frame that is cut off after 8 bytes"),
        (frame(HEADERS, 4, 1, b"\xff\xff\xff"), False, "at 0: fields that cannot be decoded"),
        (frame(HEADERS, 4, 1, block([(b"x", b"v" * 9000)] * 20)), False, "at 0: fields that cannot be decoded"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, client: bool, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(dissect(data, client, Limits()))
