"""
Tests that run over both libraries: C{@on_both} runs a coroutine function on a new reactor of uvloop's, whose TLS is
that of C{ssl}, and on one of Twisted's, with pyOpenSSL.  Its first argument is the reactor, the others are fixtures.
"""

from __future__ import annotations

import inspect
import signal
from asyncio import set_event_loop
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.python.failure import Failure

WITHIN = 30.0
Test = Callable[..., Coroutine[Any, Any, None]]


def on_uv(function: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """On a reactor of uvloop's."""
    uv = pytest.importorskip("protogate.reactor.uv", exc_type=ImportError)
    reactor = uv.UVReactor()
    _run(reactor, function)
    for transport in list(reactor.native):
        transport.connectionLost(Failure(ConnectionError("the test is over")))
    reactor.loop.call_soon(reactor.loop.stop)
    reactor.loop.run_forever()
    _close(reactor)
    reactor.loop.close()
    set_event_loop(None)


def on_epoll(function: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """On one of Twisted's."""
    reactor: Any = EPollReactor()
    _run(reactor, function)
    _close(reactor)
    reactor._poller.close()


def _run(reactor: Any, function: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    wakes = signal.set_wakeup_fd(-1)
    outcome: list[Any] = []

    def finish(result: object) -> None:
        outcome.append(result)
        reactor.stop()

    clock = reactor.callLater(WITHIN, finish, Failure(AssertionError(f"not within {WITHIN:g} s")))
    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(function(reactor)).addBoth(finish))
    reactor.run(installSignalHandlers=False)
    signal.set_wakeup_fd(wakes)
    if clock.active():
        clock.cancel()
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()


def _close(reactor: Any) -> None:
    for one in [*reactor.removeAll(), *reactor._internalReaders]:
        reactor.removeReader(one)
        one.connectionLost(Failure(ConnectionError("the test is over")))


def on_both(test: Test) -> Callable[..., None]:
    """See above."""

    @pytest.mark.parametrize("library", [on_uv, on_epoll], ids=["ssl", "pyOpenSSL"])
    @wraps(test)
    def run(library: Any, **fixtures: Any) -> None:
        library(lambda reactor: test(reactor, **fixtures))

    _, *others = inspect.signature(test).parameters.values()
    first = inspect.Parameter("library", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    return run
