from __future__ import annotations

from io import StringIO

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger, capturedLogs, globalLogPublisher, textFileLogObserver
from twisted.python import log as old

from protogate.observe.events import Limited, quietly

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


def test_what_twisted_tells_quietly_is_not_written() -> None:
    def tell(number: int, *, fails: bool = False) -> int:
        old.msg("a step")
        if fails:
            raise ValueError(number)
        return number

    written = StringIO()
    observer = textFileLogObserver(written)
    globalLogPublisher.addObserver(observer)
    try:
        assert quietly(tell, 7) == 7
        with pytest.raises(ValueError, match="8"):
            quietly(tell, 8, fails=True)
        assert written.getvalue() == ""
        tell(9)
    finally:
        globalLogPublisher.removeObserver(observer)
    assert "[-] a step" in written.getvalue()
