"""Copies of traffic, on real sockets: a small run of the bench."""

from __future__ import annotations

import pytest

import copies
from processes import cells


@pytest.mark.unwatched
def test_a_silent_upstream_of_copies_is_nothing_to_clients() -> None:
    """What the machine does to the clock is not ours: the large run says more of latency."""
    figures, _ = copies.run(rate=100, seconds=1, size=32 * copies.MIB, kinds=("", "silent"))
    told = cells(copies.HEADINGS, *(figure.row() for figure in figures))
    alone, copied = figures
    assert alone.strange == copied.strange == 0, told
    assert copied.answered > 50, told  # none of a hundred if they waited; some may be late on a busy machine
    assert copied.middle < copies.SLOW / 4, told
    assert copied.upload < alone.upload * 2 + 4.0, told
    assert copied.room < copies.ROOM, told
