"""A gateway that goes on: breakers that probe, reloads of whatever is under way, and nothing that is left behind."""

from __future__ import annotations

import pytest
from several import Several

FRONT = ["http1", "http2", "sotp"]
codecs = pytest.mark.parametrize("codec", FRONT)
BREAKER = {"consecutive": 2, "errorRatio": 0, "open": "1s", "probes": 1, "ramp": "0s"}


# -- F13: breakers


@codecs
def test_what_began_before_it_was_probed_makes_no_room_for_another_probe(codec):
    """Answers that take long are over while it is probed: one probe at a time is one all the same."""
    with Several(codec, codec, origins=1, circuitBreaker=BREAKER) as town:
        slow = town.ask()
        for turn in (1, 2):
            town.ask()
            town.at(turn).give(500)
        assert town.ask().status == 503
        town.pass_by(1.2)
        probe = town.ask()
        town.at(3)
        assert town.ask().status == 503
        town.asked[0].give(200, b"late")
        assert slow.status == 200
        assert town.ask().status == 503, "the probe is still under way"
        town.asked[3].give(204)
        assert probe.status == 204
        town.ask()
        town.at(4).give(204)


@codecs
@pytest.mark.parametrize("scope", ["endpoint", "upstream"])
def test_a_probe_whose_client_leaves_makes_room_for_the_next_one(codec, scope):
    with Several(codec, codec, origins=1, circuitBreaker={**BREAKER, "scope": scope}) as town:
        for turn in range(2):
            town.ask()
            town.at(turn).give(500)
        town.pass_by(1.2)
        for turn in (2, 3, 4):
            probe = town.ask()
            town.at(turn)
            assert town.ask().status == 503
            probe.leave()
        last = town.ask()
        town.at(5).give(204)
        assert last.status == 204
        assert town.counts("breaker_closed") == 1
