"""What a clock that ran out says."""

from __future__ import annotations

import pytest

from protogate.errors import CLIENT, UPSTREAM, Phase, Who, timeout


@pytest.mark.parametrize(
    ("phase", "who", "seconds", "reason", "status"),
    [
        (Phase.CLIENT_STALL, CLIENT, 30.0, "clientStall timeout: client took more than 30 s", 408),
        (
            Phase.CLIENT_MIN_RATE,
            CLIENT,
            10.0476,
            "clientMinRate timeout: client sent less than the least rate for 10 s",
            408,
        ),
        (Phase.RESPONSE_HEAD, UPSTREAM, 0.25, "responseHead timeout: upstream took more than 0.25 s", 504),
    ],
)
def test_a_clock_names_phase_and_side(phase: Phase, who: Who, seconds: float, reason: str, status: int) -> None:
    abort = timeout(phase, who, seconds)
    assert (abort.reason, abort.who, abort.status, abort.phase) == (reason, who, status, phase)
    assert abort.detail == f"{phase} timeout"
