"""Bodies that pack and unpack themselves: whatever the pieces, the pauses and the faults."""

from __future__ import annotations

import gzip
import random
import zlib
from functools import cache

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from protogate.body import Replay
from protogate.coded import Packed, Unpacked
from protogate.codings import MOST, PACKERS, RATIO_FROM, UNPACKERS, Bounded
from protogate.errors import UPSTREAM, Abort
from protogate.testing.bodies import Giver, Taker
from protogate.wheel import Wheel

BROKEN = Abort("broken", UPSTREAM)
TEXT = b"what was packed is unpacked; " * 5000
BOMB = bytes(50_000_000)


@cache
def pack(coding, data):
    """All of a message, by another hand where there is one."""
    if coding == b"deflate":
        return zlib.compress(data)
    if coding == b"br":
        return brotli.compress(data, quality=5)
    if coding.endswith(b"gzip"):
        return gzip.compress(data)
    packer = PACKERS[coding](3)
    packer.give(data)
    packer.end()
    return packer.take()


def unpacked(pieces, coding, **named):
    return Unpacked(Giver(pieces, **named).body, UNPACKERS[coding], BROKEN)


@pytest.fixture(params=list(UNPACKERS), ids=lambda name: name.decode())
def coding(request):
    return request.param


def test_every_installation_of_the_tests_knows_all():
    assert set(UNPACKERS) == {b"gzip", b"x-gzip", b"deflate", b"zstd", b"br"}
    assert set(PACKERS) == {b"gzip", b"zstd", b"br"}


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_in_pieces_of_any_size(coding, size):
    data = pack(coding, TEXT)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    taker = Taker(unpacked(pieces, coding, trailers=[(b"x-sum", b"7")]))
    assert (taker.data, taker.finished, taker.trailers) == (TEXT, True, [(b"x-sum", b"7")])


@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
def test_several_in_a_row_are_one(coding):
    taker = Taker(unpacked([pack(coding, b"one "), pack(coding, b"two ") + pack(coding, b"three")], coding))
    assert (taker.data, taker.finished) == (b"one two three", True)


def test_a_bomb_is_unpacked_as_it_is_read(coding):
    body = unpacked([pack(coding, BOMB)], coding)
    taker = Taker(body, 1)
    rounds = 0
    while not taker.finished:
        before = taker.size
        taker.resume()
        rounds += 1
        assert taker.size - before <= 2 * MOST
    assert taker.size == len(BOMB)
    assert rounds > 100


def test_a_reader_that_stops_is_told_no_more(coding):
    giver = Giver([pack(coding, TEXT)], close=False)
    body = Unpacked(giver.body, UNPACKERS[coding], BROKEN)
    taker = Taker(body, 1)
    taker.stop()
    assert giver.stopped
    assert not taker.ended


def test_a_body_that_was_never_read_is_stopped_all_the_same(coding):
    giver = Giver([pack(coding, TEXT)])
    body = Unpacked(giver.body, UNPACKERS[coding], BROKEN)
    body.pauseProducing()
    body.resumeProducing()
    body.stopProducing()
    assert giver.body.attached


@pytest.mark.parametrize("cut", [1, 9, 20])
def test_what_breaks_off_is_never_complete(coding, cut):
    taker = Taker(unpacked([pack(coding, TEXT)[:-cut]], coding))
    assert not taker.finished
    assert taker.reason is BROKEN


def test_what_is_nothing_of_the_kind(coding):
    giver = Giver([b"this is no such thing, and long enough to be sure of it"], close=False)
    taker = Taker(Unpacked(giver.body, UNPACKERS[coding], BROKEN))
    assert taker.reason is BROKEN
    assert giver.stopped


@pytest.mark.parametrize("coding", [b"deflate", b"br"])
def test_of_others_there_is_one(coding):
    assert Taker(unpacked([pack(coding, b"one "), pack(coding, b"two")], coding)).reason is BROKEN


def test_what_is_deflated_without_its_head_is_known_too():
    raw = zlib.compress(TEXT)[2:-4]
    for pieces in ([raw], [raw[at : at + 1] for at in range(len(raw))]):
        taker = Taker(unpacked(pieces, b"deflate"))
        assert (taker.data, taker.finished) == (TEXT, True)


def test_rubbish_behind_it(coding):
    taker = Taker(unpacked([pack(coding, b"x"), b"rubbish, and some more rubbish"], coding))
    assert taker.reason is BROKEN


def test_nothing_at_all_is_no_message(coding):
    assert Taker(unpacked([], coding)).reason is BROKEN


def test_the_reason_of_the_body_inside_comes_through(coding):
    giver = Giver([pack(coding, TEXT)[:50]], close=False)
    taker = Taker(Unpacked(giver.body, UNPACKERS[coding], BROKEN))
    reason = Abort("lost", UPSTREAM)
    giver.abort(reason)
    assert taker.reason is reason


def test_it_can_be_sent_again_as_long_as_what_is_inside_can(coding):
    giver = Giver([pack(coding, TEXT)])
    body = Unpacked(Replay(giver.body, 1 << 20), UNPACKERS[coding], BROKEN)
    for _ in range(2):
        assert not body.attached
        assert Taker(body).data == TEXT
        body.stopProducing()


def test_it_flows_once():
    body = unpacked([gzip.compress(b"x")], b"gzip")
    Taker(body)
    with pytest.raises(RuntimeError):
        Taker(body)


# -- more than should be


def test_a_bomb_is_noticed_by_what_came_of_how_little(coding):
    giver = Giver([pack(coding, BOMB)])
    taker = Taker(Unpacked(giver.body, lambda: Bounded(UNPACKERS[coding](), 10), BROKEN))
    assert taker.reason is BROKEN
    assert taker.size <= RATIO_FROM + MOST + 10 * len(pack(coding, BOMB))


def test_what_is_small_may_be_as_dense_as_it_likes(coding):
    data = bytes(RATIO_FROM)
    taker = Taker(Unpacked(Giver([pack(coding, data)]).body, lambda: Bounded(UNPACKERS[coding](), 2), BROKEN))
    assert (taker.data, taker.finished) == (data, True)


# -- packing


class Packing:
    """A body that is packed, and who reads it."""

    def __init__(self, coding, pieces=(), limit=None, **named):
        self.clock = Clock()
        self.wheel = Wheel(self.clock)
        self.giver = Giver(pieces, **named)
        self.body = Packed(self.giver.body, lambda: PACKERS[coding](4), self.wheel.soon)
        self.taker = Taker(self.body, limit)
        self.coding = coding

    def turn(self):
        """One of the event loop."""
        self.clock.advance(0)

    def unpacked(self):
        """What a reader has by now."""
        unpacker, out = UNPACKERS[self.coding](), b""
        unpacker.give(self.taker.data)
        while data := unpacker.take():
            out += data
        return out


@pytest.fixture(params=list(PACKERS), ids=lambda name: name.decode())
def packing(request):
    return request.param


@given(st.lists(st.binary(max_size=3000), max_size=20), st.sampled_from(sorted(PACKERS)), st.booleans())
def test_what_was_packed_is_what_it_was(pieces, coding, turns):
    packing = Packing(coding, close=False)
    for piece in filter(None, pieces):
        packing.giver.write(piece)
        if turns:
            packing.turn()
            assert packing.unpacked() == b"".join(pieces)[: len(packing.unpacked())]
    packing.giver.finish([(b"x-sum", b"7")])
    assert packing.unpacked() == b"".join(pieces)
    assert (packing.taker.finished, packing.taker.trailers) == (True, [(b"x-sum", b"7")])


def test_what_came_in_a_turn_goes_out_at_its_end(packing):
    one = Packing(packing, close=False)
    one.giver.write(b"event: 1\n\n")
    one.giver.write(b"event: 2\n\n")
    one.turn()
    assert one.unpacked() == b"event: 1\n\nevent: 2\n\n"
    one.giver.write(b"event: 3\n\n")
    one.turn()
    assert one.unpacked().endswith(b"event: 3\n\n")
    assert not one.taker.ended
    one.giver.finish()
    assert one.taker.finished
    one.turn()
    assert one.clock.getDelayedCalls() == []


def test_who_pauses_gets_nothing_more_until_he_goes_on(packing):
    noise = random.Random(7).randbytes(3_000_000)
    one = Packing(packing, [noise[at : at + 30_000] for at in range(0, len(noise), 30_000)], limit=1)
    rounds = 0
    while not one.taker.ended:
        one.turn()
        size = one.taker.size
        one.turn()
        assert one.taker.size == size
        one.taker.resume()
        rounds += 1
    assert one.unpacked() == noise
    assert rounds > 2


def test_who_stops_stops_the_body_inside(packing):
    one = Packing(packing, [b"x" * 1000] * 10, limit=1, close=False)
    one.turn()
    one.taker.stop()
    assert one.giver.stopped
    one.turn()
    assert not one.taker.ended


def test_what_breaks_off_breaks_off_packed(packing):
    one = Packing(packing, close=False)
    one.giver.write(b"x")
    reason = Abort("lost", UPSTREAM)
    one.giver.abort(reason)
    assert one.taker.reason is reason
    one.turn()


def test_nobody_knows_how_long_it_will_be(packing):
    assert Packing(packing, [b"x"], length=1).body.length is None
