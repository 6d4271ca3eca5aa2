"""What a gateway does about signals, on a table of handlers that is not this process's own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from protogate.signals import Signals

NUMBERS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class Process:
    """
    The module C{signal} for one process; also a reactor, which runs at once what comes from a handler.

    @ivar heard: what happened; a signal that nobody took is in it by its name.
    """

    SIGHUP, SIGTERM, SIGINT = NUMBERS
    SIG_IGN, SIG_DFL = signal.SIG_IGN, signal.SIG_DFL

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.handlers: dict[int, Any] = dict.fromkeys(NUMBERS, self.nobody)

    def nobody(self, number: int, frame: object) -> None:
        self.heard.append(signal.Signals(number).name)

    def signal(self, number: int, handler: Any) -> Any:
        before, self.handlers[number] = self.handlers[number], handler
        return before

    def everything(self) -> list[str]:
        """Every signal once; what was heard."""
        self.heard.clear()
        for number in NUMBERS:
            if self.handlers[number] is not signal.SIG_IGN:
                self.handlers[number](number, None)
        return self.heard

    def callFromThread(self, function: Callable[[], object]) -> None:
        function()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr("protogate.signals.signal", process)
    return process


@pytest.fixture
def signals(process: Process) -> Signals:
    return Signals(process)


def test_while_it_serves_a_hangup_is_a_reload(process: Process, signals: Signals) -> None:
    signals.serve(lambda: process.heard.append("reload"))
    assert process.everything() == ["reload", "SIGTERM", "SIGINT"]


def test_while_it_drains_only_an_interrupt_says_something(process: Process, signals: Signals) -> None:
    signals.serve(lambda: process.heard.append("reload"))
    signals.drain(lambda: process.heard.append("hurry"))
    assert process.everything() == ["hurry"]


def test_afterwards_all_is_as_before(process: Process, signals: Signals) -> None:
    before = dict(process.handlers)
    signals.serve(lambda: None)
    signals.drain(lambda: None)
    assert process.handlers != before
    signals.release()
    assert process.handlers == before


def test_a_handler_that_is_not_pythons_becomes_the_default(process: Process, signals: Signals) -> None:
    process.handlers[signal.SIGHUP] = None
    signals.serve(lambda: None)
    signals.release()
    assert process.handlers[signal.SIGHUP] == signal.SIG_DFL


def test_in_another_thread_nothing_is_taken(process: Process, signals: Signals) -> None:
    def work() -> None:
        signals.serve(lambda: process.heard.append("reload"))
        signals.drain(lambda: process.heard.append("hurry"))
        signals.release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert process.everything() == ["SIGHUP", "SIGTERM", "SIGINT"]
