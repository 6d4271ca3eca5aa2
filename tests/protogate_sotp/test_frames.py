"""The frame reader: the same frames however they are cut, and a fault behind all that was right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sotp_ends import VECTORS

from protogate_sotp.frames import (
    DATA,
    END,
    GOAWAY,
    HEAD,
    LEAST,
    PING,
    TEXT,
    Hello,
    Reader,
    cancel,
    cancelled,
    frame,
    goaway,
    going,
    hello,
)

SIZES = Hello(data=1 << 16, heads=1 << 16).sizes
FRAMES = [bytes.fromhex(each["hex"]) for each in VECTORS["frames"]]


def joined(frames):
    """With the pieces of a DATA put together: what a reader may cut as it comes."""
    out = []
    open_ = False
    for kind, flags, stream, payload in frames:
        if open_:
            assert (kind, stream) == (DATA, out[-1][2])
            out[-1] = (DATA, flags, stream, out[-1][3] + payload)
        else:
            out.append((kind, flags, stream, payload))
        open_ = kind == DATA and len(out[-1][3]) < expected(out)
    return out


def expected(out):
    return WHOLE[len(out) - 1]


ALL = b"".join(FRAMES)
WANTED = [(each["type"], each["flags"], each["stream"], bytes.fromhex(each["payload"])) for each in VECTORS["frames"]]
WHOLE = [len(payload) for _, _, _, payload in WANTED]


def read(*pieces, sizes=SIZES):
    reader, out = Reader(sizes), []
    for piece in pieces:
        out += reader.feed(piece)
    return out, reader


@pytest.mark.parametrize("each", VECTORS["frames"], ids=lambda each: each["name"])
def test_a_frame_is_read_and_written_as_its_vector_says(each):
    data, payload = bytes.fromhex(each["hex"]), bytes.fromhex(each["payload"])
    out, reader = read(data)
    assert out == [(each["type"], each["flags"], each["stream"], payload)]
    assert (reader.fault, reader.waiting) == (None, 0)
    assert frame(each["type"], each["flags"], each["stream"], payload) == data


def test_at_every_split():
    for at in range(len(ALL) + 1):
        out, reader = read(ALL[:at], ALL[at:])
        assert joined(out) == WANTED
        assert (reader.fault, reader.waiting) == (None, 0)


def test_byte_by_byte():
    out, reader = read(*(ALL[at : at + 1] for at in range(len(ALL))))
    assert joined(out) == WANTED
    assert (reader.fault, reader.waiting) == (None, 0)


def test_what_is_cut_off_is_never_a_frame_but_for_the_pieces_of_a_data():
    for data, whole in zip(FRAMES, WANTED, strict=True):
        for at in range(len(data)):
            out, reader = read(data[:at])
            if whole[0] == DATA and at > HEAD:
                assert [(kind, flags, stream) for kind, flags, stream, _ in out] == [(DATA, 0, whole[2])]
                assert b"".join(piece for *_, piece in out) == data[HEAD:at]
            else:
                assert out == []
                assert whole[0] == DATA or reader.waiting == at


def test_a_fault_comes_behind_the_frames_before_it():
    for bad, name in (
        (b"GET / HTTP/1.1\r\n", "no_magic"),
        (b"\xd5\x50\x02" + bytes(9), "other_version"),
        (frame(GOAWAY + 1, 0, 0), "unknown_type"),
        (frame(PING, 0, 0, b"nine byte"), "frame_too_large"),
    ):
        out, reader = read(FRAMES[1] + bad)
        assert out == [WANTED[1]]
        assert reader.fault is not None
        assert reader.fault.name == name


def test_extensions_are_frames():
    out, _ = read(frame(0x80, 0xFF, 7, b"x"), frame(0xFF, 0, 0, bytes(1024)))
    assert [each[:3] for each in out] == [(0x80, 0xFF, 7), (0xFF, 0, 0)]
    _, reader = read(frame(0x80, 0, 0, bytes(1025)))
    assert reader.fault is not None
    assert reader.fault.name == "frame_too_large"


def test_a_reader_that_was_cleared_begins_anew():
    reader = Reader(SIZES)
    reader.feed(frame(DATA, 0, 1, b"hello")[:-1])
    reader.clear()
    assert reader.feed(FRAMES[1]) == [WANTED[1]]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.binary(min_size=1, max_size=4)), max_size=6),
    st.lists(st.integers(1, 30)),
)
def test_any_frames_in_any_pieces(made, cuts):
    data = b"".join(frame(kind, END, stream, payload) for kind, stream, payload in made)
    pieces, at = [], 0
    for size in cuts:
        pieces.append(data[at : at + size])
        at += size
    out, reader = read(*pieces, data[at:])
    assert reader.fault is None
    assert b"".join(payload for *_, payload in out) == b"".join(payload for *_, payload in made)
    assert [each[:3] for each in out if each[1]] == [(kind, END, stream) for kind, stream, _ in made]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_are_frames_or_a_fault(pieces):
    out, reader = read(*pieces)
    held = sum(map(len, pieces)) - sum(HEAD * (kind != DATA) + len(payload) for kind, *_, payload in out)
    assert reader.waiting <= max(held, 0)


def test_hello_keeps_what_it_says():
    for each in VECTORS["hellos"]:
        made = hello(bytes.fromhex(each["hex"]))
        names = {"lowest": "low", "highest": "high"}
        wanted = {names.get(key, key): value for key, value in each.items() if key not in ("name", "hex")}
        assert {key: getattr(made, key) for key in wanted} == wanted
    assert hello(LEAST.pack()[HEAD:]).window == LEAST.window


def test_texts_are_cut_and_made_printable():
    assert cancelled(cancel(1, 7, "x" * 300)[HEAD:]) == (7, "x" * TEXT)
    assert going(goaway(5, 3, "ä\n")[HEAD:]) == (5, 3, r"\xe4\n")
    assert cancelled(b"\0\1\xff") == (1, r"\ufffd")
