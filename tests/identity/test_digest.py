"""Content that is held to its digest."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import CLIENT, Abort
from protogate.identity.digest import Digested, wanted
from protogate.testing.bodies import Giver, Taker
from signing import content_digest

WRONG = Abort("wrong", CLIENT, 400)
CONTENT = b'{"hello": "world"}'


def held(pieces, content=CONTENT, **more):
    giver = Giver(pieces, **more)
    return giver, Digested(giver.body, {"sha256": hashlib.sha256(content).digest()}, WRONG)


def test_digests_are_read():
    assert wanted([content_digest(b"a"), content_digest(b"a", "sha-512")]) == {
        "sha256": hashlib.sha256(b"a").digest(),
        "sha512": hashlib.sha512(b"a").digest(),
    }
    assert list(wanted([b"md5=:AAAA:, " + content_digest(b"a")])) == ["sha256"]


@pytest.mark.parametrize(
    "values", [[], [b""], [b"md5=:AAAA:"], [b"sha-256=x"], [b"sha-256=(:AAAA:)"], [b"sha-256"], [b"x y"], [b"\xff"]]
)
def test_what_cannot_be_checked_is_refused(values):
    with pytest.raises(ValueError, match=r"."):
        wanted(values)


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=6))
def test_what_is_right_passes_as_it_came(pieces):
    content = b"".join(pieces)
    _, body = held(pieces, content, trailers=[(b"x", b"1")])
    taker = Taker(body)
    assert (taker.data, taker.finished, taker.trailers) == (content, True, [(b"x", b"1")])


@pytest.mark.parametrize("pieces", [[CONTENT[:-1]], [CONTENT, b" "], [CONTENT[:5], CONTENT[6:]], [], [b"x"]])
def test_of_what_is_wrong_nobody_gets_all(pieces):
    giver, body = held(pieces)
    taker = Taker(body)
    assert taker.reason is WRONG
    assert taker.size < max(len(b"".join(pieces)), 1)
    assert giver.stopped or not giver._go


def test_all_digests_must_agree():
    giver = Giver([CONTENT])
    digests = {"sha256": hashlib.sha256(CONTENT).digest(), "sha512": b"x" * 64}
    assert Taker(Digested(giver.body, digests, WRONG)).reason is WRONG


def test_a_reader_that_pauses_at_the_last_piece_hears_of_the_end_when_it_goes_on():
    _, body = held([CONTENT])
    taker = Taker(body, limit=1)
    assert (taker.data, taker.finished) == (CONTENT, False)
    taker.resume()
    assert taker.finished


def test_a_reader_that_pauses_in_between_gets_nothing_meanwhile():
    _, body = held([CONTENT[:5], CONTENT[5:9], CONTENT[9:]])
    taker = Taker(body, limit=1)
    assert taker.got == [CONTENT[:5]]
    while not taker.ended:
        taker.resume()
    assert taker.data == CONTENT


def test_who_stops_hears_nothing_more():
    giver, body = held([CONTENT], close=False)
    taker = Taker(body)
    taker.stop()
    assert giver.stopped
    assert not taker.ended


def test_a_body_that_breaks_off_breaks_off():
    giver, body = held([CONTENT[:5]], close=False)
    taker = Taker(body)
    reason = Abort("gone", CLIENT, 499)
    giver.abort(reason)
    assert (taker.data, taker.reason) == (b"", reason)
