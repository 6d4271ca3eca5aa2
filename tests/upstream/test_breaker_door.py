"""Who a breaker lets through, and what the others are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protogate.errors import GATEWAY
from protogate.upstream.breaker import RAMP, Breaker, State, Terms
from protogate.upstream.door import Circuit, Door, refusal
from protogate.upstream.outcome import FAILED, WELL
from protogate.upstream.seen import one

TERMS = Terms(
    ratio=0.5, consecutive=0, latency=0.0, quantile=0.9, window=10.0, least=10, open=5.0, most=20.0, probes=3, ramp=4.0
)


def door(breaker: Breaker) -> Door:
    made = Door()
    made.set(breaker)
    return made


def test_a_door_lets_through_what_the_breaker_says() -> None:
    breaker = Breaker(TERMS)
    assert all(door(breaker).admits() for _ in range(5))
    breaker.trip("tried", 100.0)
    assert not any(door(breaker).admits() for _ in range(5))
    breaker.turn(105.0)
    probed, let = door(breaker), 0
    while probed.admits():
        assert probed.probing
        probed.under += 1
        let += 1
    assert let == 3
    probed.under -= 1
    assert probed.admits()
    for _ in range(3):
        breaker.observe(one(WELL, 0.01), 106.0)
    for step, share in enumerate(RAMP):
        made = door(breaker)
        assert not made.probing
        assert made.admits() is True, "the first one is let through"
        assert sum(made.admits() for _ in range(1000)) == pytest.approx(1000 * share, abs=1)
        breaker.turn(107.0 + step)
    assert breaker.state is State.CLOSED


def test_a_circuit_judges_for_itself() -> None:
    circuit = Circuit(TERMS)
    assert [circuit.see(one(FAILED, 0.0), 100.0) for _ in range(10)] == [False] * 9 + [True]
    assert not circuit.door.admits()
    assert not circuit.turn(104.0)
    told = circuit.refusal("route shop", 103.5)
    assert told.headers == [(b"retry-after", b"2")]
    assert told.reason.startswith("route shop: the circuit breaker is open: 10 of 10 failed")
    assert circuit.turn(105.0)
    assert circuit.door.probing
    circuit.change(replace(TERMS, probes=1))
    circuit.door.under = 1
    assert not circuit.door.admits()


def test_a_refusal() -> None:
    made = refusal("upstream shop", "20 of 20 failed", 4.2)
    assert (made.status, made.who, made.error) == (503, GATEWAY, "destination_unavailable")
    assert made.headers == [(b"retry-after", b"5")]
    assert made.detail == "the circuit breaker is open"
    assert made.reason == "upstream shop: the circuit breaker is open: 20 of 20 failed"
    assert refusal("", "", 0.0).headers == refusal("", "", 1.0000001).headers == [(b"retry-after", b"1")]
