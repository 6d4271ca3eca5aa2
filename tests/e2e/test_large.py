"""The bench of a large download among other streams, in small.  What it says of time a test does not ask."""

from __future__ import annotations

import pytest

import large
from processes import cells


@pytest.mark.unwatched
def test_a_large_stream_and_a_stalled_one_leave_the_others_alone() -> None:
    figures = large.run(mib=48, streams=50)
    told = cells(large.HEADINGS, *(figure.row() for figure in figures))
    assert [figure.name for figure in figures] == ["HTTP/1.1", "HTTP/2"]
    for figure in figures:
        assert figure.faults == [], told
        assert figure.moved == 48 << 20, told
        assert figure.held == large.WINDOW, "all that its window takes, and nothing more"
        assert figure.small >= 48, told
        assert figure.growth < large.MOST, told
