"""
Streams of HTTP/2 that come and go through a gateway in a process of its own, and what they leave: small runs of
C{bench/streams.py}, which tells more.
"""

from __future__ import annotations

import pytest

import streams
from processes import cells
from protogate_http.engine2 import ENGINES

engines = pytest.mark.parametrize("engine", ENGINES)


@engines
@pytest.mark.unwatched
def test_streams_that_are_reset_in_every_state_leave_windows_and_heap_as_they_were(engine: str) -> None:
    outcome = streams.resets(2_000, engine)
    assert not outcome.faults, cells(streams.HEADINGS, *outcome.rows)


@engines
@pytest.mark.parametrize("name", ["held-down", "held-up"])
@pytest.mark.unwatched
def test_a_stream_that_stands_still_holds_little(engine: str, name: str) -> None:
    outcome = streams.still(streams.EACH, name, engine, still=4)
    assert not outcome.faults, cells(streams.PAUSED, *outcome.rows)
