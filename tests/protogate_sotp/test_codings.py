"""Bodies that unpack themselves: whatever the pieces, the pauses and the faults."""

from __future__ import annotations

import gzip

import pytest

from protogate.body import Replay
from protogate.errors import UPSTREAM, Abort
from protogate.testing.bodies import Giver, Taker
from protogate_sotp.codings import CODINGS, MOST, Unpacked, pack

BROKEN = Abort("broken", UPSTREAM)
TEXT = b"what was packed is unpacked; " * 5000
BOMB = bytes(50_000_000)


def unpacked(pieces, coding, **named):
    return Unpacked(Giver(pieces, **named).body, coding, BROKEN)


@pytest.fixture(params=list(CODINGS.values()), ids=lambda name: name.decode())
def coding(request):
    return request.param


def test_every_installation_of_the_tests_knows_both():
    assert set(CODINGS.values()) == {b"gzip", b"zstd"}


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_in_pieces_of_any_size(coding, size):
    data = pack(coding, TEXT)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    taker = Taker(unpacked(pieces, coding, trailers=[(b"x-sum", b"7")]))
    assert (taker.data, taker.finished, taker.trailers) == (TEXT, True, [(b"x-sum", b"7")])


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
    body = Unpacked(giver.body, coding, BROKEN)
    taker = Taker(body, 1)
    taker.stop()
    assert giver.stopped
    assert not taker.ended


def test_a_body_that_was_never_read_is_stopped_all_the_same(coding):
    giver = Giver([pack(coding, TEXT)])
    body = Unpacked(giver.body, coding, BROKEN)
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
    taker = Taker(Unpacked(giver.body, coding, BROKEN))
    assert taker.reason is BROKEN
    assert giver.stopped


def test_rubbish_behind_it(coding):
    taker = Taker(unpacked([pack(coding, b"x"), b"rubbish, and some more rubbish"], coding))
    assert taker.reason is BROKEN


def test_nothing_at_all_is_no_message(coding):
    assert Taker(unpacked([], coding)).reason is BROKEN


def test_the_reason_of_the_body_inside_comes_through(coding):
    giver = Giver([pack(coding, TEXT)[:50]], close=False)
    taker = Taker(Unpacked(giver.body, coding, BROKEN))
    reason = Abort("lost", UPSTREAM)
    giver.abort(reason)
    assert taker.reason is reason


def test_it_can_be_sent_again_as_long_as_what_is_inside_can(coding):
    giver = Giver([pack(coding, TEXT)])
    body = Unpacked(Replay(giver.body, 1 << 20), coding, BROKEN)
    for _ in range(2):
        assert not body.attached
        assert Taker(body).data == TEXT
        body.stopProducing()


def test_it_flows_once():
    body = unpacked([gzip.compress(b"x")], b"gzip")
    Taker(body)
    with pytest.raises(RuntimeError):
        Taker(body)
