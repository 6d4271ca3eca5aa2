"""The bench of choices: that each way chooses, of endpoints that have something to do."""

from __future__ import annotations

from collections import Counter

import pytest

import balance


@pytest.mark.parametrize("way", balance.WAYS)
def test_a_row_chooses_in_its_way(way: str) -> None:
    row = balance.Row(way, 5)
    assert [endpoint.pool.load for endpoint in row.endpoints] == [1] * 5
    for _ in range(2):
        seen = Counter(row.election.pick(request) for request in row.requests for _ in range(10))
        assert None not in seen
        assert len(seen) > 1 if way in ("leastRequest", "peakEwma") else len(seen) == 5
        row.name_anew()
        row.change()
    row.choose(balance.KEYS)
