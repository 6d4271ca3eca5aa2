from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import Logger, capturedLogs

from protogate.observe.events import Limited

log = Logger()


def test_the_first_passes_and_then_one_an_interval() -> None:
    clock = Clock()
    event = Limited(log.warn, 60.0, clock.seconds)
    with capturedLogs() as captured:
        told = []
        for _ in range(5):
            told.append(event("disk {name} is full", name="a"))
            clock.advance(30)
    assert told == [True, False, True, False, True]
    assert [seen["suppressed"] for seen in captured] == [0, 1, 1]
    assert {seen["name"] for seen in captured} == {"a"}


def test_after_a_long_silence_it_passes_at_once() -> None:
    clock = Clock()
    event = Limited(log.warn, 60.0, clock.seconds)
    with capturedLogs():
        assert event("x")
        clock.advance(1000)
        assert event("x")
        assert not event("x")
