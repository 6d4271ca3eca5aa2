"""What a gateway does about signals, on a table of handlers that is not this process's own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from protogate.signals import Signals

NUMBERS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


class Process:
    """
    The module C{signal} for one process; also a reactor, which runs at once what comes from a handler.

    @ivar run: what is to be done once the reactor runs.
    @ivar heard: what happened; a signal that nobody took is in it by its name.
    """

    SIGHUP, SIGTERM, SIGINT, SIGUSR2 = NUMBERS
    SIG_IGN, SIG_DFL = signal.SIG_IGN, signal.SIG_DFL

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.run: Callable[[], object] = lambda: None
        self.handlers: dict[int, Any] = dict.fromkeys(NUMBERS, self.nobody)
        self.handlers[signal.SIGUSR2] = signal.SIG_DFL

    def nobody(self, number: int, frame: object) -> None:
        self.heard.append(signal.Signals(number).name)

    def signal(self, number: int, handler: Any) -> Any:
        before, self.handlers[number] = self.handlers[number], handler
        return before

    def getsignal(self, number: int) -> Any:
        return self.handlers[number]

    def raise_signal(self, number: int) -> None:
        assert self.handlers[number] is signal.SIG_DFL
        self.heard.append("the end")

    def kill(self, number: int) -> None:
        if self.handlers[number] is signal.SIG_DFL:
            self.heard.append("the end")
        elif self.handlers[number] is not signal.SIG_IGN:
            self.handlers[number](number, None)

    def sigInt(self, number: int, frame: object) -> None:
        """Twisted's; it takes SIGINT only where Python's own handler is."""
        self.heard.append("Twisted")

    def callFromThread(self, function: Callable[[], object]) -> None:
        function()

    def callWhenRunning(self, function: Callable[[], object]) -> None:
        self.run = function


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr("protogate.signals.signal", process)
    return process


@pytest.fixture
def signals(process: Process) -> Signals:
    """Serving, on a reactor that runs."""
    signals = Signals(process)
    signals.serve(lambda: process.heard.append("reload"), lambda: process.heard.append("upgrade"))
    process.run()
    return signals


def hurry(process: Process) -> Callable[[], object]:
    return lambda: process.heard.append("hurry")


def test_while_it_serves_a_hangup_is_a_reload(process: Process, signals: Signals) -> None:
    process.kill(signal.SIGHUP)
    process.kill(signal.SIGHUP)
    assert process.heard == ["reload", "reload"]


def test_while_it_serves_new_code_can_be_asked_for(process: Process, signals: Signals) -> None:
    process.kill(signal.SIGUSR2)
    assert process.heard == ["upgrade"]


def test_a_handler_of_somebody_else_for_that_signal_stays(process: Process) -> None:
    process.handlers[signal.SIGUSR2] = process.nobody
    signals = Signals(process)
    signals.serve(lambda: None, lambda: process.heard.append("upgrade"))
    process.kill(signal.SIGUSR2)
    signals.drain(lambda: None)
    process.kill(signal.SIGUSR2)
    assert process.heard == ["SIGUSR2", "SIGUSR2"]


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_twisted_hears_of_the_first_request_to_stop_only(process: Process, signals: Signals, first: int) -> None:
    process.kill(first)
    # Perhaps before the stop has begun, and certainly until the process has ended.
    steps: list[Callable[[], object]] = [lambda: None, lambda: signals.drain(hurry(process)), signals.release]
    for step in steps:
        step()
        process.kill(signal.SIGTERM)
    assert process.heard == [signal.Signals(first).name]


def test_an_interrupt_that_was_ignored_from_the_beginning_stays_so(process: Process) -> None:
    process.handlers[signal.SIGINT] = signal.SIG_IGN  # as a shell starts what a script puts in the background
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    process.run()
    process.kill(signal.SIGINT)
    assert process.heard == []
    process.kill(signal.SIGTERM)
    assert process.heard == ["SIGTERM"]  # it was lost: the interrupt counted as the first request to stop
    signals.drain(hurry(process))
    process.kill(signal.SIGINT)
    signals.release()
    assert process.heard == ["SIGTERM"]
    assert process.handlers[signal.SIGINT] is signal.SIG_IGN


def test_while_it_drains_only_an_interrupt_says_something(process: Process, signals: Signals) -> None:
    process.kill(signal.SIGTERM)
    signals.drain(hurry(process))
    process.heard.clear()
    for number in NUMBERS:
        process.kill(number)
    assert process.heard == ["hurry"]


def test_a_stop_that_no_signal_began_is_left_alone_as_well(process: Process, signals: Signals) -> None:
    signals.drain(hurry(process))
    for number in NUMBERS:
        process.kill(number)
    assert process.heard == ["hurry"]


def test_when_the_process_goes_on_all_is_as_before(process: Process, signals: Signals) -> None:
    signals.drain(hurry(process))
    signals.release()
    for number in NUMBERS:
        process.kill(number)
    assert process.heard == ["SIGHUP", "SIGTERM", "SIGINT", "the end"]


@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], [signal.SIGTERM] * 2, [signal.SIGINT], [signal.SIGINT, signal.SIGTERM]]
)
def test_who_is_asked_to_stop_before_the_reactor_runs_stops_when_it_does(process: Process, numbers: list[int]) -> None:
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    for number in numbers:
        process.kill(number)
    assert process.heard == []
    process.handlers[signal.SIGTERM] = process.sigInt
    process.run()
    assert process.heard == ["Twisted"]
    process.kill(signal.SIGTERM)
    assert process.heard == ["Twisted"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_there_before_the_reactor_ran_hears_of_it_where_twisted_takes_nothing(
    process: Process, number: int
) -> None:
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    process.kill(number)
    process.run()
    assert process.heard == [signal.Signals(number).name]


def test_what_is_stopped_before_the_reactor_runs_takes_nothing_any_more(process: Process) -> None:
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    signals.drain(hurry(process))
    signals.release()
    process.run()
    for number in NUMBERS:
        process.kill(number)
    assert process.heard == ["SIGHUP", "SIGTERM", "SIGINT", "the end"]


def test_handlers_that_are_not_pythons_become_the_default(process: Process) -> None:
    process.handlers = dict.fromkeys(NUMBERS)
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    process.run()
    signals.release()
    assert list(process.handlers.values()) == [signal.SIG_DFL, signal.SIG_DFL, signal.SIG_DFL, None]


def test_a_handler_that_cannot_be_called_is_not(process: Process) -> None:
    process.handlers[signal.SIGTERM] = signal.SIG_IGN
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    process.run()
    process.kill(signal.SIGTERM)
    assert process.heard == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_where_nobody_stops_the_reactor_the_process_ends(process: Process, number: int) -> None:
    process.handlers[number] = signal.SIG_DFL
    signals = Signals(process)
    signals.serve(lambda: None, lambda: None)
    process.run()
    process.kill(number)
    assert process.heard == ["the end"]


def test_in_another_thread_nothing_is_taken(process: Process) -> None:
    signals = Signals(process)

    def work() -> None:
        signals.serve(lambda: process.heard.append("reload"), lambda: process.heard.append("upgrade"))
        signals.drain(hurry(process))
        signals.release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for number in NUMBERS:
        process.kill(number)
    assert process.heard == ["SIGHUP", "SIGTERM", "SIGINT", "the end"]
