"""
Tests on a reactor of their own, which is uvloop's, whatever reactor the process has; without uvloop they are skipped.

C{@on_uv} runs a coroutine function: its first argument is the reactor, the others are fixtures.  When it is done the
reactor is stopped as a program would, and what the test left behind is closed.
"""

from __future__ import annotations

import inspect
import signal
import socket
from asyncio import set_event_loop
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

pytest.importorskip("uvloop")

from protogate.reactor.uv import UVReactor

MEGABYTE = b"m" * 1_000_000
WITHIN = 30.0
"""Seconds that a test may take: a lot, since the machine may be busy with something else."""

Test = Callable[..., Coroutine[Any, Any, None]]


def dispose(reactor: UVReactor) -> None:
    """Close the connections that no reactor of Twisted's would (paused ones), let uvloop do so, then close the loop."""
    for transport in list(reactor.native):
        transport.connectionLost(Failure(ConnectionError("the test is over")))
    reactor.loop.call_soon(reactor.loop.stop)
    reactor.loop.run_forever()
    for reader in list(reactor._internalReaders):
        reactor.removeReader(reader)
        reader.connectionLost(Failure(ConnectionError("the test is over")))
    reactor.loop.close()
    set_event_loop(None)


def run(function: Callable[[UVReactor], Coroutine[Any, Any, None]]) -> None:
    """Run it on a new reactor."""
    wakes = signal.set_wakeup_fd(-1)  # uvloop does not give it back
    reactor, outcome = UVReactor(), []

    def finish(result: object) -> None:
        outcome.append(result)
        reactor.stop()

    clock = reactor.callLater(WITHIN, finish, Failure(AssertionError(f"not within {WITHIN:g} s")))
    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(function(reactor)).addBoth(finish))
    try:
        reactor.run(installSignalHandlers=False)
        if clock.active():
            clock.cancel()
        dispose(reactor)
    finally:
        signal.set_wakeup_fd(wakes)
    for result in outcome[:1]:
        if isinstance(result, Failure):
            result.raiseException()
    assert outcome, "the reactor stopped before the test did"


def on_uv(function: Test) -> Callable[..., None]:
    """See above."""

    @wraps(function)
    def test(**fixtures: Any) -> None:
        run(lambda reactor: function(reactor, **fixtures))

    signature = inspect.signature(function)
    test.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:], return_annotation=None
    )
    return test


class Recorder(Protocol):
    """
    A protocol that writes down what happens to it.

    @ivar events: "made", "data" (once for however many reads) and "lost", in order.
    @ivar made: fires with the recorder when it is connected.
    @ivar lost: fires with the type of the reason.
    """

    transport: Any

    def __init__(self) -> None:
        self.made: Deferred[Recorder] = Deferred()
        self.lost: Deferred[type[BaseException]] = Deferred()
        self.data = bytearray()
        self.events: list[str] = []
        self.waits: list[tuple[int, Deferred[None]]] = []

    def connectionMade(self) -> None:
        self.note("made")
        self.made.callback(self)

    def dataReceived(self, data: bytes) -> None:
        self.note("data")
        self.data += data
        ready = [one for one in self.waits if len(self.data) >= one[0]]
        self.waits = [one for one in self.waits if one not in ready]
        for _, deferred in ready:
            deferred.callback(None)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.note("lost")
        self.lost.callback(reason.type)

    def note(self, event: str) -> None:
        if event != "data" or self.events[-1:] != ["data"]:
            self.events.append(event)

    def received(self, count: int) -> Deferred[None]:
        """Fires when that many bytes have come."""
        deferred: Deferred[None] = Deferred()
        self.waits.append((count, deferred))
        if len(self.data) >= count:
            self.waits.pop()
            deferred.callback(None)
        return deferred


class One(ClientFactory):
    """
    A factory of one protocol.

    @ivar failed: fires with the failure of a connection attempt.
    @ivar gone: fires with that of a connection that was made.
    """

    noisy = False

    def __init__(self, protocol: Protocol | None = None) -> None:
        self.one = Recorder() if protocol is None else protocol
        self.failed: Deferred[Failure] = Deferred()
        self.gone: Deferred[Failure] = Deferred()

    def buildProtocol(self, address: object) -> Protocol:
        return self.one

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        self.failed.callback(Box(reason))  # type: ignore[arg-type]

    def clientConnectionLost(self, connector: object, reason: Failure) -> None:
        self.gone.callback(Box(reason))  # type: ignore[arg-type]


class Box:
    """A failure that a Deferred may fire with."""

    def __init__(self, failure: Failure) -> None:
        self.type, self.value = failure.type, failure.value


def sleep(reactor: UVReactor, seconds: float = 0.0) -> Deferred[None]:
    """For what is not to happen, or takes time; never for what is to happen in time."""
    return deferLater(reactor, seconds, lambda: None)


async def until(reactor: UVReactor, condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    while not condition():
        await sleep(reactor, 0.005)


def listen(reactor: UVReactor, protocol: Protocol) -> tuple[str, int]:
    """Where a server of this one protocol listens."""
    host = reactor.listenTCP(0, One(protocol), interface="127.0.0.1").getHost()
    return host.host, host.port


async def pair(reactor: UVReactor, server: Recorder, client: Recorder) -> None:
    """Connect the two."""
    reactor.connectTCP(*listen(reactor, server), One(client))
    await server.made
    await client.made


async def raw(reactor: UVReactor, server: Recorder) -> socket.socket:
    """Connect a socket of nobody's reactor, which blocks for ten seconds at most."""
    sock = socket.create_connection(listen(reactor, server))
    sock.settimeout(10)
    await server.made
    return sock
