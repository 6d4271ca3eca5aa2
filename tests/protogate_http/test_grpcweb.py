"""gRPC-Web as content: the frame of trailers, and bodies that translate without ever collecting."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from protogate.errors import UPSTREAM, Abort
from protogate.interfaces import IBody, ISink
from protogate.testing.bodies import Giver, Taker
from protogate_http.grpcweb import Filter, Framed, Plain, Told, decoded, encoded, frame_of

LOST = Abort("the upstream is gone", UPSTREAM, 502)
TRAILERS = [(b"grpc-status", b"0"), (b"x-bin", b"AAE=")]
FRAME = b"\x80\x00\x00\x00\x1dgrpc-status: 0\r\nx-bin: AAE=\r\n"


@pytest.mark.parametrize("made", [Filter, Plain, lambda body: Framed(body, True), lambda body: Told(body, print)])
def test_they_are_bodies_and_sinks(made: Any) -> None:
    body = made(Giver(close=False).body)
    verifyObject(IBody, body)
    verifyObject(ISink, body)
    assert not body.attached
    taker = Taker(body)
    assert body.attached
    with pytest.raises(RuntimeError, match="once"):
        body.attach(taker)


def test_trailers_are_one_frame() -> None:
    assert frame_of(TRAILERS) == FRAME
    assert len(FRAME) == 5 + int.from_bytes(FRAME[1:5], "big")


# -- Base64


@given(st.lists(st.binary(min_size=1, max_size=20)))
def test_pieces_of_base64_may_each_have_their_padding(pieces: list[bytes]) -> None:
    assert decoded(b"".join(map(encoded, pieces))) == b"".join(pieces)


@given(st.lists(st.binary(min_size=1, max_size=20)), st.lists(st.integers(1, 7), min_size=1))
def test_base64_comes_out_however_it_was_cut(pieces: list[bytes], cuts: list[int]) -> None:
    text = b"".join(map(b64encode, pieces))
    reads, at = [], 0
    while at < len(text):
        size = cuts[len(reads) % len(cuts)]
        reads.append(text[at : at + size])
        at += size
    taker = Taker(Plain(Giver(reads, len(text)).body))
    assert taker.finished
    assert taker.data == b"".join(pieces)


def test_what_is_decoded_has_no_length_before_its_end() -> None:
    assert Plain(Giver([], 8).body).length is None


@pytest.mark.parametrize(
    "text",
    [b"AAA", b"A", b"AAAA=", b"====", b"A===", b"AA=A", b"AAA\n", b"AA A", b"AA-_", b"AAAAAA==A", b"\xff\xff\xff\xff"],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_what_is_no_base64_breaks_the_body_off(text: bytes, size: int) -> None:
    giver = Giver([text[at : at + size] for at in range(0, len(text), size)])
    taker = Taker(Plain(giver.body))
    assert not taker.finished
    assert taker.reason is not None
    assert (taker.reason.status, taker.reason.who) == (400, "client")


def test_nothing_more_is_read_of_what_is_no_base64() -> None:
    giver = Giver([b"AAAA", b"!!!!", b"AAAA"], close=False)
    taker = Taker(Plain(giver.body))
    assert taker.data == b"\x00\x00\x00"
    assert giver.stopped
    assert giver.gave == 8


def test_a_pause_reaches_the_source_of_base64() -> None:
    giver = Giver(iter(lambda: b"AAAA", None), close=False)
    taker = Taker(Plain(giver.body), limit=6)
    assert taker.size == 6
    taker.limit = 12
    taker.resume()
    assert taker.size == 12
    taker.stop()
    assert giver.stopped


# -- trailers as content


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("limit", [None, 0])
def test_trailers_become_the_last_frame(text: bool, limit: int | None) -> None:
    giver = Giver([b"one", b"second"], trailers=TRAILERS)
    body = Framed(giver.body, text)
    assert body.length is None
    taker = Taker(body, limit)
    for _ in range(3):
        assert limit is None or not taker.finished
        taker.resume()
    assert taker.finished
    assert taker.trailers is None
    plain = [b64decode(each, validate=True) for each in taker.got] if text else taker.got
    assert plain == [b"one", b"second", FRAME]


def test_the_end_is_not_told_inside_the_last_write() -> None:
    class Hasty(Taker):
        def write(self, data: bytes) -> None:
            self.pause()
            self.resume()
            assert not self.ended
            super().write(data)

    taker = Hasty(Framed(Giver([b"one"], trailers=TRAILERS).body, False))
    assert taker.finished
    assert taker.data == b"one" + FRAME


def test_whoever_stops_at_the_last_frame_hears_of_no_end() -> None:
    taker = Taker(Framed(Giver([], trailers=TRAILERS).body, False), limit=0)
    assert taker.data == FRAME
    taker.stop()
    taker.resume()
    assert not taker.ended


@pytest.mark.parametrize("trailers", [None, []])
def test_without_trailers_there_is_no_frame(trailers: list[Any] | None) -> None:
    taker = Taker(Framed(Giver([b"one"], trailers=trailers).body, False))
    assert taker.finished
    assert taker.data == b"one"


def test_what_breaks_off_has_no_frame() -> None:
    giver = Giver([b"one"], close=False)
    taker = Taker(Framed(giver.body, False))
    giver.abort(LOST)
    assert taker.data == b"one"
    assert taker.reason is LOST


# -- who is told


def test_trailers_are_told_and_passed_on() -> None:
    told: list[Any] = []
    body = Told(Giver([b"one"], 3, TRAILERS).body, told.append)
    assert body.length == 3
    taker = Taker(body)
    assert told == [TRAILERS]
    assert taker.finished
    assert taker.trailers == TRAILERS


def test_nothing_is_told_of_what_nobody_reads_any_more() -> None:
    told: list[Any] = []
    giver = Giver([b"one"], close=False)
    taker = Taker(Told(giver.body, told.append))
    taker.stop()
    assert giver.stopped
    giver.finish(TRAILERS)
    assert told == []
    assert not taker.ended
