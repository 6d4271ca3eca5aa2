"""What a copy of an upload is given, and when it is given up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.errors import CLIENT_GONE
from protogate.governance.copytee import LAGS, UNWANTED, Tee, Trail
from protogate.testing.bodies import Giver, Taker


class Twice:
    """An upload that is read twice."""

    def __init__(self, pieces=(), lag=10, close=True, length=None, trailers=None):
        self.lost = []
        self.giver = Giver(pieces, length, trailers, close)
        self.trail = Trail(length, lag, lambda: self.lost.append(self.trail.broken))
        self.tee = Tee(self.giver.body, self.trail)

    def original(self, limit=None):
        return Taker(self.tee, limit)

    def copy(self, limit=None):
        return Taker(self.trail.body, limit)


def test_both_get_all_of_it():
    twice = Twice([b"abc", b"def"], length=6, trailers=[(b"x-sum", b"7")])
    original = twice.original()
    copy = twice.copy()
    assert original.data == copy.data == b"abcdef"
    assert original.trailers == copy.trailers == [(b"x-sum", b"7")]
    assert (twice.tee.length, twice.trail.body.length, twice.lost) == (6, 6, [])


def test_nothing_flows_before_the_original_is_read():
    twice = Twice([b"abc"])
    copy = twice.copy()
    assert copy.data == b""
    twice.original()
    assert (copy.data, copy.finished) == (b"abc", True)


def test_the_original_sets_the_pace():
    twice = Twice([b"abc", b"def"])
    original, copy = twice.original(limit=3), twice.copy()
    assert (original.data, copy.data) == (b"abc", b"abc")
    original.limit = None
    original.resume()
    assert (original.finished, copy.data, copy.finished) == (True, b"abcdef", True)


def test_a_copy_that_lags_is_dropped_and_the_original_sees_nothing_of_it():
    twice = Twice([b"abcde"] * 100)
    original = twice.original()
    assert (original.size, original.finished, twice.lost) == (500, True, [LAGS])
    assert twice.copy().reason is LAGS


def test_one_that_lags_a_little_is_not():
    twice = Twice(close=False)
    original, copy = twice.original(), twice.copy(limit=1)
    for _ in range(3):
        twice.giver.write(b"abc")
    assert (original.data, copy.data) == (b"abc" * 3, b"abc")
    copy.limit = None
    copy.resume()
    twice.giver.write(b"0123456789")
    twice.giver.finish()
    assert (copy.data, copy.finished, twice.lost) == (b"abc" * 3 + b"0123456789", True, [])


def test_what_it_has_not_taken_counts_and_what_it_has_does_not():
    twice = Twice(close=False)
    twice.original()
    copy = twice.copy(limit=1)
    twice.giver.write(b"12345")
    copy.resume()
    twice.giver.write(b"1234567")  # passed on, and pauses again
    twice.giver.write(b"1234567890")
    assert (copy.size, twice.lost) == (12, [])
    twice.giver.write(b"1")
    assert twice.lost == [LAGS]


def test_a_copy_that_wants_no_more_is_nothing_to_the_original():
    twice = Twice(close=False)
    original, copy = twice.original(), twice.copy()
    twice.giver.write(b"abc")
    copy.stop()
    twice.giver.write(b"def")
    twice.giver.finish()
    assert (original.data, original.finished, copy.data, twice.lost) == (b"abcdef", True, b"abc", [])


@pytest.mark.parametrize("how", ["abort", "stop"])
def test_an_upload_that_breaks_off_or_is_not_wanted_ends_the_copys(how):
    twice = Twice(close=False)
    original, copy = twice.original(), twice.copy()
    twice.giver.write(b"abc")
    if how == "abort":
        twice.giver.abort(CLIENT_GONE)
        assert original.reason is CLIENT_GONE
    else:
        original.stop()
        assert twice.giver.stopped
    assert (copy.data, copy.reason, twice.lost) == (b"abc", UNWANTED, [UNWANTED])


def test_what_ends_after_all_has_come_harms_nobody():
    twice = Twice([b"abc"])
    original = twice.original()
    original.stop()
    copy = twice.copy()
    assert (copy.data, copy.finished, twice.lost) == (b"abc", True, [])


STEPS = st.lists(st.one_of(st.integers(1, 20), st.sampled_from(["pause", "resume", "copy pauses", "copy resumes"])))


@settings(max_examples=60)
@given(steps=STEPS, lag=st.integers(0, 40))
def test_whatever_the_copy_does_the_original_gets_all_and_the_copy_all_or_a_part_from_the_beginning(steps, lag):
    twice = Twice(close=False, lag=lag)
    original, copy = twice.original(), twice.copy()
    sent = b""
    for step in steps:
        if isinstance(step, int):
            data = bytes(at % 251 for at in range(len(sent), len(sent) + step))
            sent += data
            twice.giver.write(data)
        else:
            taker = copy if step.startswith("copy") else original
            (taker.pause if "pause" in step else taker.resume)()
    original.resume()
    twice.giver.finish()
    assert (original.data, original.finished) == (sent, True)
    copy.resume()
    assert sent.startswith(copy.data)
    assert (copy.data == sent and copy.finished) or (copy.reason is LAGS and twice.lost == [LAGS])
