"""
When a request over HTTP/2 has left: its clock for the head of the answer starts then, and the record says so.

Transports differ in what they tell: that of protogate's reactor when the kernel has taken all, a layer of TLS nothing,
so that somebody has to look.
"""

from __future__ import annotations

import struct

import pytest
from ends import Giver, Wire, World

from protogate.errors import Abort, Phase
from protogate.exchange.ledger import Ledger
from protogate.message import Request, Response
from protogate_http.http2 import Http2
from protogate_http.options2 import Options

pytestmark = pytest.mark.parametrize("engine", ["ngh2", "h2"])
START = 1000
TICK = 0.05
"""What the wheel adds to a clock."""
OK = b"\x88"


def frame(kind: int, number: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", number) + payload


class Telling(Wire):
    """Tells when the kernel has taken all, as that of protogate's reactor does."""

    flushed = None

    def flush(self, most: int = 1 << 40) -> None:
        self.waiting = max(self.waiting - most, 0)
        self.flushed(self.waiting == 0)
        super().flush(0)


class Asker(World):
    """A client of HTTP/2 whose server has said hello."""

    def __init__(self, engine: str, wire: Wire, **timeouts: float) -> None:
        super().__init__(**{"upstream_stall": 100, "response_head": 30, **timeouts})
        self.answers: list[Response] = []
        self.errors: list[Abort] = []
        self.wire = wire
        self.client = Http2(engine, Options(ping=0)).client(lambda connection: None, self.context)
        self.client.makeConnection(wire)
        self.read(frame(4) + frame(4, flags=1))
        self.clock.advance(0)
        wire.flush()

    def ask(self, body: Giver | None = None) -> Ledger:
        request = Request(b"POST" if body else b"GET", b"/", body=body and body.body, authority=b"a.test")
        ledger = request.ledger = Ledger(self.clock.seconds())
        self.client.handle(request).addCallbacks(self.answers.append, lambda failure: self.errors.append(failure.value))
        return ledger

    def read(self, data: bytes) -> None:
        self.client.dataReceived(data)


def test_at_once_where_the_transport_takes_all(engine: str) -> None:
    asker = Asker(engine, Wire())
    ledger = asker.ask()
    assert ledger.sent == START
    asker.advance(29.9, TICK)
    assert asker.errors == []
    asker.advance(0.1 + 2 * TICK, TICK)
    assert asker.errors[0].phase is Phase.RESPONSE_HEAD


def test_a_transport_that_tells_nothing_is_looked_at_soon(engine: str) -> None:
    asker = Asker(engine, Wire(flushing=False))
    ledger = asker.ask()
    asker.clock.advance(0.001)
    asker.wire.waiting = 0  # nobody hears of it
    asker.advance(2 * TICK, TICK)
    assert START < ledger.sent <= START + 0.001 + 2 * TICK
    asker.advance(29.85, TICK)
    assert asker.errors == []
    asker.advance(4 * TICK, TICK)
    assert asker.errors[0].phase is Phase.RESPONSE_HEAD


def test_one_that_takes_its_time_is_looked_at_ever_less_often(engine: str) -> None:
    asker = Asker(engine, Wire(flushing=False))
    ledger = asker.ask()
    asker.advance(50, TICK)
    assert (ledger.sent, asker.errors) == (0, []), "the clock of the answer does not run"
    asker.wire.waiting = 0
    asker.advance(2, TICK)
    assert START + 50 < ledger.sent <= START + 50 + 1.6 + 2 * TICK
    asker.advance(ledger.sent + 29.9 - asker.clock.seconds(), TICK)
    assert asker.errors == []
    asker.advance(4 * TICK, TICK)
    assert asker.errors[0].phase is Phase.RESPONSE_HEAD


def test_it_is_looked_at_without_any_clock_of_the_upstream(engine: str) -> None:
    asker = Asker(engine, Wire(flushing=False), upstream_stall=0, response_head=0)
    ledger = asker.ask()
    asker.wire.waiting = 0
    asker.advance(2 * TICK, TICK)
    assert ledger.sent > 0


def test_one_that_tells_is_believed(engine: str) -> None:
    asker = Asker(engine, Telling(flushing=False))
    ledger = asker.ask()
    asker.clock.advance(0)  # the turn is over: it is written
    asker.clock.advance(3.01)
    asker.wire.flush(1)
    assert ledger.sent == 0, "that was part of it"
    asker.wire.flush()
    assert ledger.sent == START + 3.01


def test_what_is_not_written_yet_was_not_sent_with_what_was(engine: str) -> None:
    asker = Asker(engine, Telling(flushing=False))
    ledger = asker.ask()
    asker.client.flushed(True)  # of what was written before: the request leaves when the turn is over
    assert ledger.sent == 0
    asker.clock.advance(0)
    asker.wire.flush()
    assert ledger.sent == START


def test_nor_is_what_waits_for_a_transport_that_is_full(engine: str) -> None:
    asker = Asker(engine, Telling(flushing=False))
    asker.client.pauseProducing()
    ledger = asker.ask()
    asker.clock.advance(0)
    asker.client.flushed(True)
    assert ledger.sent == 0
    asker.client.resumeProducing()
    asker.clock.advance(0)
    asker.wire.flush()
    assert ledger.sent == START


def test_an_answer_shows_it(engine: str) -> None:
    asker = Asker(engine, Wire(flushing=False))
    ledger = asker.ask()
    asker.clock.advance(0.02)
    asker.read(frame(1, 1, OK, 5))
    assert asker.answers[0].status == 200
    assert (ledger.sent, ledger.answered) == (START, START + 0.02)
    asker.advance(1, TICK)
    assert ledger.sent == START


def test_an_answer_to_part_of_an_upload_does_not(engine: str) -> None:
    asker = Asker(engine, Wire())
    giver = Giver(b"x" * 10, ends=False)
    ledger = asker.ask(giver)
    asker.read(frame(1, 1, OK, 4))
    assert (ledger.sent, ledger.answered) == (0, START)
    asker.clock.advance(1)
    giver.body.finish()
    assert ledger.sent == START + 1


def test_each_of_several_has_its_own(engine: str) -> None:
    asker = Asker(engine, Wire(flushing=False))
    first = asker.ask()
    asker.wire.waiting = 0
    asker.advance(2 * TICK, TICK)
    asker.advance(10, TICK)
    second = asker.ask()
    asker.wire.waiting = 0
    asker.advance(2 * TICK, TICK)
    assert first.sent <= START + 2 * TICK
    assert START + 10 < second.sent <= START + 10 + 4 * TICK
