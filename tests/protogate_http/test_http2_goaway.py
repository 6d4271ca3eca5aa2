"""A server says GOAWAY in the read in which an answer ends: what that lets go on must not go to this connection."""

from __future__ import annotations

import struct

import pytest
from twisted.internet.task import Clock

from protogate.context import Context, Limits, Timeouts
from protogate.errors import ALWAYS
from protogate.message import Request
from protogate.testing.transport import Wire
from protogate.upstream.outcome import FAILED, NOTHING, failed
from protogate.wheel import Wheel
from protogate_http.http2 import Http2

SETTINGS, RESPONSE, GOAWAY = 4, 1, 7
ENDS = 5
"""END_STREAM and END_HEADERS."""


def frame(kind: int, number: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", number) + payload


def goaway(last: int) -> bytes:
    return frame(GOAWAY, 0, struct.pack(">II", last, 0))


class Bench:
    """A connection whose requests are handed to it in the very call that says it can take one."""

    def __init__(self, engine: str, wire: Wire | None = None) -> None:
        self.clock = Clock()
        self.waiting: list[Request] = []
        self.outcomes: list[object] = []
        self.client = Http2(engine).client(self.ready, Context(Wheel(self.clock), Limits(), Timeouts()))
        self.wire = Wire() if wire is None else wire
        self.client.makeConnection(self.wire)

    def ready(self, connection: object) -> None:
        while self.waiting and self.client.capacity:
            self.ask(self.waiting.pop())

    def ask(self, request: Request | None = None) -> None:
        request = Request(b"GET", b"/", authority=b"a.test") if request is None else request
        self.client.handle(request).addBoth(self.outcomes.append)

    def read(self, data: bytes) -> None:
        self.client.dataReceived(data)
        self.clock.advance(0)


@pytest.mark.parametrize("engine", ["ngh2", "h2"])
def test_no_request_is_taken_after_goaway_was_read(engine: str) -> None:
    bench = Bench(engine)
    bench.read(frame(SETTINGS, payload=struct.pack(">HI", 3, 1)))  # one at a time
    bench.ask()
    bench.waiting.append(Request(b"GET", b"/next", authority=b"a.test"))
    assert bench.client.capacity == 0
    bench.read(frame(RESPONSE, 1, b"\x88", ENDS) + goaway(1))
    (answer,) = bench.outcomes
    assert answer.status == 200  # type: ignore[attr-defined]
    assert len(bench.waiting) == 1, "it was not given to a connection that is about to end"
    assert bench.client.capacity == 0


@pytest.mark.parametrize("engine", ["ngh2", "h2"])
def test_a_request_that_waits_for_settings_is_asked_elsewhere_when_goaway_comes_with_them(engine: str) -> None:
    bench = Bench(engine)
    request = Request(b"GET", b"/", authority=b"a.test", upgrade=b"websocket")
    bench.ask(request)
    bench.read(frame(SETTINGS, payload=struct.pack(">HI", 8, 1)) + goaway(0))
    (failure,) = bench.outcomes
    assert failure.value.retry is ALWAYS  # type: ignore[attr-defined]


class Telling(Wire):
    """Tells what it sent, as that of protogate's reactor does: then all of a turn is written when it is over."""

    flushed = None


@pytest.mark.parametrize("engine", ["ngh2", "h2"])
def test_what_was_asked_before_goaway_was_read_leaves_before_the_server_is_told_that_it_was(engine: str) -> None:
    """Servers that go send a PING with it; what comes behind its ACK they do not look at (RFC 9113, 6.8)."""
    bench = Bench(engine, Telling())
    bench.read(frame(SETTINGS))
    bench.wire.take(1 << 20)
    bench.ask()  # in a turn in which there is more to be read
    bench.client.dataReceived(goaway((1 << 31) - 1) + frame(6, payload=b"graceful"))
    bench.clock.advance(0)
    sent, kinds, at = bench.wire.take(1 << 20), [], 0
    while at < len(sent):
        kinds.append(sent[at + 3])
        at += 9 + int.from_bytes(sent[at : at + 3], "big")
    assert kinds.index(1) < kinds.index(6)
    assert bench.client.capacity == 0
    bench.read(goaway(1) + frame(RESPONSE, 1, b"\x88", ENDS))
    assert bench.outcomes[0].status == 200  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ["ngh2", "h2"])
def test_what_goaway_does_not_name_says_nothing_of_the_server(engine: str) -> None:
    """It goes: that is no failure.  One that refuses a request by itself has too much to do."""
    bench = Bench(engine)
    bench.read(frame(SETTINGS))
    for _ in range(3):
        bench.ask()
    bench.read(frame(3, 3, struct.pack(">I", 7)))
    bench.read(goaway(1))
    refused, unread = [outcome.value for outcome in bench.outcomes]  # type: ignore[attr-defined]
    assert refused.retry is unread.retry is ALWAYS
    assert (failed(refused), failed(unread)) == (FAILED, NOTHING)
    bench.read(frame(RESPONSE, 1, b"\x88", ENDS))
    assert bench.outcomes[2].status == 200  # type: ignore[attr-defined]
