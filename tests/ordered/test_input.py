"""What was read and not yet understood."""

from __future__ import annotations

import itertools

import pytest

from protogate.ordered.input import Input


def drive(steps, source, pieces):
    """What a generator returns that is fed piece by piece, and what it yields besides None."""
    found, left = [], iter(pieces)
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            return end.value, found
        if event is None:
            source.feed(next(left))
        else:
            found.append(event)


def splits(data, parts):
    for cuts in itertools.combinations_with_replacement(range(len(data) + 1), parts - 1):
        edges = (0, *cuts, len(data))
        yield [data[a:b] for a, b in itertools.pairwise(edges)]


def test_a_line_at_every_split():
    for pieces in splits(b"one\r\r\ntwo", 3):
        source = Input()
        assert drive(source.line(4), source, [*pieces, b""])[0] == b"one\r"


def test_lines_of_one_read_come_one_after_the_other():
    source = Input(b"one\n\ntwo\nrest")
    assert [drive(source.line(9, b"\n"), source, [])[0] for _ in range(3)] == [b"one", b"", b"two"]
    assert len(source) == 4


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_may_have_so_many_bytes_and_no_more(end):
    source = Input()
    assert drive(source.line(5, end), source, [b"abc", b"de" + end])[0] == b"abcde"
    for pieces in ([b"abcdef" + end], [b"abcdef", end], [b"a"] * 9, [b"x" * 100]):
        source = Input()
        with pytest.raises(ValueError, match="too long"):
            drive(source.line(5, end), source, pieces)


def test_exactly_so_many_bytes_at_every_split():
    for pieces in splits(b"abcdef", 4):
        source = Input()
        assert drive(source.exactly(4), source, [*pieces, b""])[0] == b"abcd"
        while len(source) < 2:
            source.feed(b"ef"[len(source) :])
        assert drive(source.exactly(2), source, [])[0] == b"ef"
    assert drive(Input().exactly(0), None, []) == (b"", [])


def test_pieces_as_they_come_and_not_one_byte_more():
    source = Input()
    _, found = drive(source.pieces(5), source, [b"ab", b"", b"c", b"defg"])
    assert (found, len(source)) == ([b"ab", b"c", b"de"], 2)
    assert drive(Input().pieces(0), None, []) == (None, [])


def test_a_size_below_zero_is_an_error():
    for take in (Input(b"abc").pieces, Input(b"abc").exactly):
        with pytest.raises(ValueError, match="below zero"):
            next(take(-1))


def test_a_read_that_is_all_content_is_not_copied():
    source, data = Input(), b"x" * 1000
    _, (piece,) = drive(source.pieces(1000), source, [data])
    assert piece is data


def test_bytes_of_something_large_wait_elsewhere_since_what_waits_is_copied_with_each_read():
    source = Input()
    taking = source.exactly(5)
    for byte in (b"a", b"b", b"c", b"d"):
        assert next(taking) is None
        source.feed(byte)
        assert len(source) == 1
    assert drive(taking, source, [b"ef"])[0] == b"abcde"
    assert len(source) == 1
