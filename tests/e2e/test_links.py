"""The bench of idle SOTP links, in small."""

from __future__ import annotations

import pytest

import links


@pytest.mark.unwatched
def test_idle_links_and_their_heartbeats() -> None:
    figure = links.run(500, 2, 200)
    assert figure.links == 500
    assert 100 < figure.rate < 250
    assert 0 < figure.each < links.MOST
    assert figure.cpu > 0
