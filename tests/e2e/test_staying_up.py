"""
Servers behind a gateway are killed, stand still and are started anew, under load: small runs of C{bench/stories.py}.
"""

from __future__ import annotations

import pytest

import stories
from neighbours import need
from processes import cells

RATE = 100
"""Requests a second: so few that they are no work, also where there is much else to do."""


@pytest.mark.parametrize(
    ("workers", "judge", "plays"),
    [
        (2, "healthCheck", (("killed", 1), ("frozen", 0), ("restarted", 1))),
        (0, "all", (("frozen", 1),)),
    ],
    ids=["workers that look at endpoints", "one process that also sees how requests go and sends them again"],
)
@pytest.mark.unwatched
def test_clients_lose_nothing_once_it_is_found_out(
    workers: int, judge: str, plays: tuple[tuple[str, int], ...]
) -> None:
    for name in ("nginx", "node"):
        need(name)
    figures, faults = stories.tell(workers, judge, RATE, 0.4, plays)
    told = cells(stories.HEADINGS, *(figure.row() for figure in figures))
    assert faults == [], told
    assert all(figure.asked > RATE / 2 for figure in figures), told
